"""Fitted pipelines of Spark ML, read as Spark saves them and applied row by row without Java.

Source of the files: ``pyspark.ml`` 4.2. A transformer or model that is not read here is refused when the pipeline is fitted.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import StateError
from floodmark.spec.keyed.learning import finite
from floodmark.spec.keyed.stages import KEEPING, STAGES, Apply, Columns, Saved

ABOUT = "floodmark.json"
"""Name of the file, beside those of Spark, with the features in their order."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A fitted pipeline.

    Args:
        features: columns of a row, in the order of its values.
        stages: each adds columns to those of a row.
        prediction: column that the last stage adds.
        lenient: features that may be null, NaN or infinite, as each stage that reads them is set to ``handleInvalid="keep"``.
        labels: texts that ``IndexToString`` makes of the classes 0, 1, 2; none for a pipeline that predicts a number.
    """

    features: tuple[str, ...]
    stages: tuple[Apply, ...]
    prediction: str
    lenient: frozenset[str] = frozenset()
    labels: tuple[str, ...] = ()

    def predict(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The prediction of each row: a number, or the text of ``IndexToString``."""
        return [self._predicted(row) for row in rows]

    def taken(self, values: Sequence[Any]) -> list[Any]:
        """The values of a row's features as they are predicted from.

        Raises:
            ValueError: null, NaN or infinite, where a stage does not take them.
        """
        named = zip(self.features, values, strict=True)
        return [value if name in self.lenient else finite(name, value) for name, value in named]

    def _predicted(self, row: Sequence[Any]) -> Any:
        columns: Columns = dict(zip(self.features, row, strict=True))
        for stage in self.stages:
            stage(columns)
        return columns[self.prediction]


def is_saved(data: bytes) -> bool:
    """True for the bytes of a pipeline of Spark ML."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return False
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return ABOUT in archive.namelist()


def read(data: bytes, where: str) -> Pipeline:
    """The pipeline of an archive of the files that Spark has saved, with ``ABOUT``.

    Args:
        data: the archive.
        where: the model, for errors.

    Raises:
        StateError: STATE-077, a stage that is not read here.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    features = tuple(json.loads(files.pop(ABOUT))["features"])
    saved = [_saved(files, f"stages/{name}") for name in _stages(files)]
    applied = [STAGES[one.kind](one) if one.kind in STAGES and not _unread(one) else None for one in saved]
    for each, stage in zip(saved, applied, strict=True):
        if stage is None:
            got = f"{each.kind}{_unread(each)}"
            fix = f"Compute it as a column before, with_columns(...), or use one of: {', '.join(sorted(STAGES))}."
            if each.kind == "IndexToString":
                fix = "Name them in the order of their numbers, labels=['early', 'late']: that of StringIndexer(..., stringOrderType='alphabetAsc')."
            raise StateError(where, "stages that are applied without Java", got, fix, code="STATE-077")
    last = saved[-1].params
    prediction = last["outputCol"] if saved[-1].kind == "IndexToString" else last.get("predictionCol")
    if prediction is None:
        fix = "End the pipeline with a model, or with IndexToString behind one."
        raise StateError(where, "a pipeline that predicts", saved[-1].kind, fix, code="STATE-078")
    return Pipeline(
        features,
        tuple(stage for stage in applied if stage is not None),
        prediction,
        lenient((one.kind, one.params) for one in saved) & set(features),
        tuple(last["labels"]) if saved[-1].kind == "IndexToString" else (),
    )


def lenient(stages: Iterable[tuple[str, Mapping[str, Any]]], kinds: frozenset[str] = KEEPING) -> frozenset[str]:
    """Columns of which every stage that reads them takes what is no number: those of some classes, set to ``handleInvalid="keep"``.

    Args:
        stages: (class, parameters) of each.
        kinds: classes, by default those that take null and NaN in a row that is predicted.
    """
    takes = dict[str, bool]()
    for kind, params in stages:
        keeps = params.get("handleInvalid") == "keep" and kind.removesuffix("Model") in kinds
        for name in params.get("inputCols") or [params.get("inputCol"), params.get("featuresCol")]:
            takes[name] = takes.get(name, True) and keeps
    return frozenset(name for name, keeps in takes.items() if keeps and name)


def _unread(saved: Saved) -> str:
    """What a stage is set to that is not applied here; empty for nothing."""
    params = saved.params
    if params.get("thresholds") is not None:
        return " with thresholds"
    if params.get("handleInvalid") == "skip":
        return " with handleInvalid='skip', which would lose rows"
    if params.get("distanceMeasure", "euclidean") != "euclidean":
        return f" with distanceMeasure={params['distanceMeasure']!r}"
    if saved.kind == "IndexToString" and not params.get("labels"):
        return " without labels=, which Spark does not save"
    return ""


def _stages(files: Mapping[str, bytes]) -> list[str]:
    """Names of the folders of the stages, in their order."""
    names = {name.split("/")[1] for name in files if name.startswith("stages/")}
    return sorted(names, key=lambda name: int(name.partition("_")[0]))


def _saved(files: Mapping[str, bytes], folder: str) -> Saved:
    import pyarrow as pa  # noqa: PLC0415 - a definition is imported without it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    about, tables = dict[str, Any](), dict[str, list[dict[str, Any]]]()
    for name in sorted(files):
        if not name.startswith(f"{folder}/"):
            continue
        table, _, file = name[len(folder) + 1 :].rpartition("/")
        if table == "metadata" and file.startswith("part-"):
            about = json.loads(files[name])
        elif file.endswith(".parquet"):
            rows = pq.read_table(pa.BufferReader(files[name])).to_pylist()
            tables.setdefault(table, []).extend(rows)
    params = {**about.get("defaultParamMap", {}), **about.get("paramMap", {})}
    return Saved(about["class"].rpartition(".")[2].removesuffix("Model"), params, about, tables)
