"""Estimators and pipelines of Spark ML: fitted by Spark, stored as Spark saves them, applied without Java by ``spec.keyed.pipelines``."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import isclose, isnan
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.core.errors import DefinitionError, StateError, shown
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.storage import file_system
from floodmark.models.library import Fitted, Metrics
from floodmark.spec.keyed import pipelines

_CLOSE = 1e-9
"""Relative difference of two predictions that are the same: sums of floats in another order."""


def is_estimator(estimator: Any) -> bool:
    """True for what ``pyspark.ml`` has, or a subclass of it."""
    kind = estimator if isinstance(estimator, type) else type(estimator)
    return any(base.__module__.startswith("pyspark.ml.") for base in kind.__mro__)


def library(where: str) -> SparkML:
    """Spark ML, for a model that errors name."""
    return SparkML(where)


@dataclass(frozen=True, slots=True)
class SparkML:
    """Spark ML, as ``Library``.

    Args:
        where: the model, for errors.
    """

    where: str

    def check(self, estimator: Any) -> None:
        """As ``Library``."""
        from pyspark.ml.base import Estimator, Model  # noqa: PLC0415 - an extra

        if not isinstance(estimator, Estimator) or isinstance(estimator, Model):
            fix = "For example Pipeline(stages=[VectorAssembler(...), LinearRegression(labelCol=...)]) of pyspark.ml, not fitted."
            raise DefinitionError(
                self.where, "an estimator of pyspark.ml", shown(estimator), fix, code="DEFINITION-447"
            )

    def form(self, estimator: Any) -> Any:
        """As ``Library``. A seed that nobody has set, which is another one in each process, is no part of it."""
        stages, names = list(_leaves(estimator)), dict[str, str]()
        for number, stage in enumerate(stages):
            names[stage.uid] = f"stage{number}"

        def named(value: Any) -> Any:
            text = repr(value)
            for uid, name in names.items():
                text = text.replace(uid, name)
            return text

        forms = []
        for stage in stages:
            params = _params(stage)
            if stage.hasParam("seed") and not stage.isSet(stage.getParam("seed")):
                params.pop("seed", None)
            forms.append([type(stage).__name__, {name: named(value) for name, value in sorted(params.items())}])
        return forms

    def called(self, estimator: Any) -> str:
        """As ``Library``: the last stage of a pipeline."""
        return type(list(_leaves(estimator))[-1]).__name__

    def release(self, estimator: Any) -> str:  # noqa: ARG002 - the protocol's
        """As ``Library``."""
        return f"pyspark {version('pyspark')}"

    def metrics(self, estimator: Any) -> Metrics:
        """As ``Library``."""
        return {"accuracy": _accuracy} if _classifies(estimator) else {"r2": _r2}

    def lenient(self, estimator: Any) -> tuple[frozenset[str], frozenset[str]]:
        """As ``Library``: to a ``StringIndexer`` null is a category, to a ``Bucketizer`` NaN is a bucket. No model learns of a vector with NaN."""
        stages = [(type(leaf).__name__, _params(leaf)) for leaf in _leaves(estimator)]
        nulls = frozenset({"StringIndexer"})
        return pipelines.lenient(stages, nulls), pipelines.lenient(stages, nulls | {"Bucketizer"})

    def fit(
        self, estimator: Any, rows: pa.Table, split: int, features: tuple[str, ...], target: str, folder: str
    ) -> Fitted:
        """As ``Library``. The predictions of the rows that measure are those of Spark, and those without Java are compared with them.

        A ``StringIndexer`` of the target makes the numbers that are learned, and is no part of what is stored.

        Raises:
            DefinitionError: DEFINITION-449 it learns another column than the target, 453 it names the texts of the target in another order.
            StateError: STATE-077 and 078 a pipeline that is not applied here, STATE-079 other predictions than Spark's.
        """
        from pyspark.ml import Pipeline, PipelineModel  # noqa: PLC0415 - an extra
        from pyspark.sql import SparkSession  # noqa: PLC0415 - likewise

        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        leaves = _leaves(estimator)
        numbered = [str(_params(leaf)["outputCol"]) for leaf in leaves if _indexes(leaf, target)]
        labels = {leaf.getOrDefault("labelCol") for leaf in leaves if leaf.hasParam("labelCol")}
        labels -= {target, *numbered}
        if labels:
            fix = (
                f"Set it: LinearRegression(labelCol={target!r}), or target={labels.pop()!r}; "
                f"of a text, StringIndexer(inputCol={target!r}, outputCol='label') as a stage, and labelCol='label'."
            )
            raise DefinitionError(self.where, f"labelCol='{target}'", "another one", fix, code="DEFINITION-449")
        train = session.createDataFrame(_numbers(rows.slice(0, split)))
        fitted = _leaves(Pipeline(stages=leaves).fit(train))
        indexers = [stage for stage in fitted if _indexes(stage, target)]
        applied = PipelineModel([stage for stage in fitted if not _indexes(stage, target)])
        data = _saved(applied, features, folder)
        pipeline = pipelines.read(data, self.where)
        for indexer in indexers:
            check_labels(list(indexer.labels), pipeline.labels, self.where)
        measured = applied.transform(session.createDataFrame(_numbers(rows.slice(split))))
        for indexer in indexers:
            measured = indexer.copy({indexer.handleInvalid: "keep"}).transform(measured)
        shown_by_spark = measured.select(pipeline.prediction, numbered[-1] if numbered else target).collect()
        predictions, values = [row[0] for row in shown_by_spark], [row[1] for row in shown_by_spark]
        self._compare(pipeline, rows.slice(split), features, predictions)
        return Fitted([_named(value, pipeline.labels) for value in values], predictions, data)

    def _compare(
        self, pipeline: pipelines.Pipeline, rows: pa.Table, features: tuple[str, ...], predictions: Sequence[Any]
    ) -> None:
        columns = [rows[name].to_pylist() for name in features]
        for row, expected in zip(zip(*columns, strict=True), predictions, strict=True):
            try:
                (made,) = pipeline.predict([pipeline.taken(row)])
            except (KeyError, ValueError) as error:
                made = f"column {error}, which is none of its features" if isinstance(error, KeyError) else error
            if not _same(made, expected):
                fix = "Name all columns that the pipeline reads as features, without the target."
                got = f"{made} for {dict(zip(features, row, strict=True))}"
                expected_text = f"{expected}, as Spark predicts"
                raise StateError(self.where, expected_text, got, fix, code="STATE-079")


def _leaves(estimator: Any) -> list[Any]:
    """The stages of a pipeline, fitted or not, those of pipelines within it too; an estimator itself."""
    from pyspark.ml import Pipeline, PipelineModel  # noqa: PLC0415 - an extra

    if not isinstance(estimator, (Pipeline, PipelineModel)):
        return [estimator]
    stages = estimator.stages if isinstance(estimator, PipelineModel) else estimator.getStages()
    return [leaf for stage in stages for leaf in _leaves(stage)]


def _params(stage: Any) -> dict[str, Any]:
    """Name -> value, those by default included."""
    return {param.name: value for param, value in stage.extractParamMap().items()}


def _indexes(stage: Any, target: str) -> bool:
    """True for a ``StringIndexer`` of the target alone, fitted or not."""
    from pyspark.ml.feature import StringIndexer, StringIndexerModel  # noqa: PLC0415 - an extra

    return isinstance(stage, (StringIndexer, StringIndexerModel)) and _params(stage).get("inputCol") == target


def check_labels(numbered: Sequence[str], labels: Sequence[str], where: str) -> None:
    """A pipeline that predicts texts names the classes as they were numbered.

    Args:
        numbered: texts of the target in the order of their numbers, as its ``StringIndexer`` has them.
        labels: those of ``IndexToString``; none for a pipeline that predicts numbers.
        where: the model, for errors.

    Raises:
        DefinitionError: DEFINITION-453, another order or other texts, so that predictions would be of other classes.
    """
    if labels and [*labels[: len(numbered)]] != [*numbered]:
        fix = f"IndexToString(..., labels={[*numbered]!r}); stringOrderType='alphabetAsc' of StringIndexer numbers texts by the alphabet, and not by how many rows have them."
        raise DefinitionError(
            where,
            f"the labels {', '.join(numbered)} of the StringIndexer",
            ", ".join(labels),
            fix,
            code="DEFINITION-453",
        )


def _named(value: Any, labels: tuple[str, ...]) -> Any:
    """A value of the target as the pipeline predicts it: the text of its class if it predicts texts."""
    if not labels or isinstance(value, str):
        return value
    return labels[int(value)] if value in range(len(labels)) else str(value)


def _same(made: Any, expected: Any) -> bool:
    """True for the same prediction: a NaN is one."""
    if not isinstance(made, float) or not isinstance(expected, float):
        return bool(made == expected)
    return isclose(made, expected, rel_tol=_CLOSE, abs_tol=_CLOSE) or (isnan(made) and isnan(expected))


def _numbers(rows: pa.Table) -> pa.Table:
    """Rows as Spark ML learns from: booleans are 0 and 1."""
    fields = [pa.field(f.name, pa.int32() if pa.types.is_boolean(f.type) else f.type) for f in rows.schema]
    return rows.cast(pa.schema(fields))


def _classifies(estimator: Any) -> bool:
    from pyspark.ml.classification import Classifier  # noqa: PLC0415 - an extra

    return any(isinstance(leaf, Classifier) for leaf in _leaves(estimator))


def _accuracy(values: Sequence[object], predictions: Sequence[object]) -> float:
    """Share of rows whose prediction is the value."""
    return sum(a == b for a, b in zip(values, predictions, strict=True)) / len(values)


def _r2(values: Sequence[float], predictions: Sequence[float]) -> float:
    """Share of the variance that the predictions explain; NaN for values that are all equal."""
    mean = sum(values) / len(values)
    whole: float = sum((value - mean) ** 2 for value in values)
    left: float = sum((a - b) ** 2 for a, b in zip(values, predictions, strict=True))
    return 1 - left / whole if whole else float("nan")


def _saved(fitted: Any, features: tuple[str, ...], folder: str) -> bytes:
    """The archive of what Spark saves of a fitted pipeline, which is in the folder meanwhile."""
    try:
        fitted.write().save(folder)
        crash.point("model.after_save")
        return _archive(folder, {"features": list(features)})
    finally:
        remove(folder)


def _archive(folder: str, about: dict[str, Any]) -> bytes:
    """The files of a folder, checksums of Hadoop's file system left out."""
    system, base = file_system(folder)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(pipelines.ABOUT, json.dumps(about))
        infos = system.get_file_info(FileSelector(base, recursive=True))
        for info in sorted(infos, key=lambda info: info.path):
            if info.type == FileType.File and not info.base_name.startswith((".", "_")):
                with system.open_input_file(info.path) as file:
                    archive.writestr(info.path[len(base.rstrip("/")) + 1 :], bytes(file.read()))
    return out.getvalue()
