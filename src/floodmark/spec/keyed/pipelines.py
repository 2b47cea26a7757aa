"""Fitted pipelines of Spark ML, read as Spark saves them and applied row by row without Java.

Source: ``pyspark.ml`` 4.2. A transformer or model that is not read here is refused when the pipeline is fitted.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import copysign, inf, log
from typing import Any

from floodmark.core.errors import StateError

ABOUT = "floodmark.json"
"""Name of the file, beside those of Spark, with the features in their order."""
Vector = list[float]
Columns = dict[str, Any]
Apply = Callable[[Columns], None]
"""(columns of a row, those that a stage adds included) -> adds the columns of the stage."""
Number = Callable[[Vector], float]
"""Features -> prediction."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A fitted pipeline.

    Args:
        features: columns of a row, in the order of its values.
        stages: each adds columns to those of a row.
        prediction: column that the last stage adds.
    """

    features: tuple[str, ...]
    stages: tuple[Apply, ...]
    prediction: str

    def predict(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The prediction of each row: a number, or the text of ``IndexToString``."""
        return [self._predicted(row) for row in rows]

    def _predicted(self, row: Sequence[Any]) -> Any:
        columns: Columns = dict(zip(self.features, row, strict=True))
        for stage in self.stages:
            stage(columns)
        return columns[self.prediction]


@dataclass(frozen=True, slots=True)
class _Saved:
    """A stage as it was saved.

    Args:
        kind: class of the stage, without its package.
        params: name -> value, those by default included.
        about: what else its metadata has.
        tables: name of a folder -> its rows.
    """

    kind: str
    params: Mapping[str, Any]
    about: Mapping[str, Any]
    tables: Mapping[str, list[dict[str, Any]]]

    @property
    def data(self) -> list[dict[str, Any]]:
        """The rows of what was fitted."""
        return self.tables["data"]

    def columns(self) -> tuple[list[str], list[str]]:
        """Input and output columns of a transformer of several columns, or of one."""
        several = self.params.get("inputCols")
        if several is not None:
            return list(several), list(self.params["outputCols"])
        return [self.params["inputCol"]], [self.params["outputCol"]]


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
    applied = [_STAGES[one.kind](one) if one.kind in _STAGES and not _unread(one) else None for one in saved]
    for each, stage in zip(saved, applied, strict=True):
        if stage is None:
            got = f"{each.kind}{_unread(each)}"
            fix = f"Compute it as a column before, with_columns(...), or use one of: {', '.join(sorted(_STAGES))}."
            raise StateError(where, "stages that are applied without Java", got, fix, code="STATE-077")
    last = saved[-1].params
    prediction = last["outputCol"] if saved[-1].kind == "IndexToString" else last.get("predictionCol")
    if prediction is None:
        fix = "End the pipeline with a model, or with IndexToString behind one."
        raise StateError(where, "a pipeline that predicts", saved[-1].kind, fix, code="STATE-078")
    return Pipeline(features, tuple(stage for stage in applied if stage is not None), prediction)


def _unread(saved: _Saved) -> str:
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


def _saved(files: Mapping[str, bytes], folder: str) -> _Saved:
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
    return _Saved(about["class"].rpartition(".")[2].removesuffix("Model"), params, about, tables)


def vector(value: Mapping[str, Any]) -> Vector:
    """A vector as Spark stores it: all values, or those that are not 0 with their positions."""
    if value["type"] == 1:
        return list(value["values"])
    whole = [0.0] * value["size"]
    for position, number in zip(value["indices"], value["values"], strict=True):
        whole[position] = number
    return whole


def _matrix(value: Mapping[str, Any]) -> list[Vector]:
    """The rows of a matrix as Spark stores it: by columns, or by rows if it is transposed; all values, or those that are not 0."""
    rows, columns, numbers = value["numRows"], value["numCols"], value["values"]
    whole = [[0.0] * columns for _ in range(rows)]
    if value["type"] == 1:
        for position, number in enumerate(numbers):
            row, column = divmod(position, columns) if value["isTransposed"] else divmod(position, rows)[::-1]
            whole[row][column] = number
        return whole
    starts = value["colPtrs"]
    for outer in range(len(starts) - 1):
        for n in range(starts[outer], starts[outer + 1]):
            inner = value["rowIndices"][n]
            row, column = (outer, inner) if value["isTransposed"] else (inner, outer)
            whole[row][column] = numbers[n]
    return whole


def _dot(left: Vector, right: Vector) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _largest(values: Sequence[float]) -> float:
    """Position of the first of the largest values."""
    return float(max(range(len(values)), key=values.__getitem__))


def _each(saved: _Saved, changed: Callable[[Vector], Vector]) -> Apply:
    """A stage that makes another vector of a vector."""
    (source,), (target,) = saved.columns()

    def apply(columns: Columns) -> None:
        columns[target] = changed(columns[source])

    return apply


def _assembler(saved: _Saved) -> Apply:
    sources, target = saved.params["inputCols"], saved.params["outputCol"]

    def apply(columns: Columns) -> None:
        whole = Vector()
        for name in sources:
            value = columns[name]
            whole.extend(value) if isinstance(value, list) else whole.append(float(value))
        columns[target] = whole

    return apply


def _indexer(saved: _Saved) -> Apply:
    sources, targets = saved.columns()
    numbers = [{label: float(n) for n, label in enumerate(labels)} for labels in saved.data[0]["labelsArray"]]
    keeps = saved.params.get("handleInvalid") == "keep"

    def apply(columns: Columns) -> None:
        for source, target, of in zip(sources, targets, numbers, strict=True):
            label, *others = _texts(columns[source])
            label = next((text for text in others if text in of), label) if label not in of else label
            if label not in of and not keeps:
                msg = f"feature '{source}' is {label!r}, which no row had that the model was fitted to"
                raise ValueError(msg)
            columns[target] = of.get(label, float(len(of)))

    return apply


def _texts(value: Any) -> Iterator[str]:
    """What Spark may have cast a value to: a number with a fraction is a double, or a float, whose text is shorter. Booleans are fitted as 0 and 1."""
    yield _java(repr(value)) if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
    if isinstance(value, float) and abs(value) < _GREATEST_FLOAT and _single(value) == value:
        shortest = (repr(float(f"{value:.{digits}g}")) for digits in range(1, 10))
        yield next(_java(text) for text in shortest if _single(float(text)) == value)


def _single(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _java(text: str) -> str:
    """(a number as Python writes it) -> as Java does, ``Double.toString``: with an exponent below 0.001 and from 10,000,000 on."""
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if sign else ""
    if digits == (0,) or len(digits) + exponent - 1 in _WRITTEN_OUT:
        return text if "e" not in text else f"{minus}{abs(Decimal(text)):f}"
    figures = "".join(map(str, digits))
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{len(digits) + exponent - 1}"


def _encoder(saved: _Saved) -> Apply:
    sources, targets = saved.columns()
    sizes, params = saved.data[0]["categorySizes"], saved.params
    keeps, drops = params.get("handleInvalid") == "keep", params.get("dropLast", True)

    def apply(columns: Columns) -> None:
        for source, target, size in zip(sources, targets, sizes, strict=True):
            category, whole = columns[source], [0.0] * (size + keeps - drops)
            if not 0 <= category < size and not keeps:
                msg = f"'{source}' is category {category:g}, of {size} that the model was fitted to"
                raise ValueError(msg)
            position = int(category) if 0 <= category < size else size
            if position < len(whole):
                whole[position] = 1.0
            columns[target] = whole

    return apply


def _standard(saved: _Saved) -> Apply:
    mean, deviation = (vector(saved.data[0][name]) for name in ("mean", "std"))
    shift = mean if saved.params.get("withMean") else [0.0] * len(mean)
    scale = [1 / s if s else 0.0 for s in deviation] if saved.params.get("withStd", True) else [1.0] * len(mean)
    return _each(saved, lambda values: [(v - m) * s for v, m, s in zip(values, shift, scale, strict=True)])


def _ranged(saved: _Saved) -> Apply:
    least, greatest = (vector(saved.data[0][name]) for name in ("originalMin", "originalMax"))
    low, high = saved.params["min"], saved.params["max"]
    scales = [(high - low) / (b - a) if b != a else 0.0 for a, b in zip(least, greatest, strict=True)]

    def changed(values: Vector) -> Vector:
        parts = zip(values, least, scales, strict=True)
        return [(v - a) * scale + low if scale else (low + high) / 2 for v, a, scale in parts]

    return _each(saved, changed)


def _absolute(saved: _Saved) -> Apply:
    scales = [1 / (size or 1.0) for size in vector(saved.data[0]["maxAbs"])]
    return _each(saved, lambda values: [v * scale for v, scale in zip(values, scales, strict=True)])


def _buckets(saved: _Saved) -> Apply:
    sources, targets = saved.columns()
    whole = saved.params.get("splitsArray") or [saved.params["splits"]]
    splits = [[float(split) for split in of] for of in whole]

    def apply(columns: Columns) -> None:
        for source, target, of in zip(sources, targets, splits, strict=True):
            value = float(columns[source])
            if not of[0] <= value <= of[-1]:
                msg = f"'{source}' is {value:g}, outside of the splits {of[0]:g} to {of[-1]:g}"
                raise ValueError(msg)
            below = (
                bisect_left if value == 0 and copysign(1, value) < 0 else bisect_right
            )  # to Java -0.0 is less than 0.0
            columns[target] = float(max(min(below(of, value), len(of) - 1), 1) - 1)

    return apply


def _labels(saved: _Saved) -> Apply:
    (source,), (target,) = saved.columns()
    labels = saved.params["labels"]

    def apply(columns: Columns) -> None:
        columns[target] = labels[int(columns[source])]

    return apply


def _predicting(saved: _Saved, number: Number) -> Apply:
    source, target = saved.params["featuresCol"], saved.params["predictionCol"]

    def apply(columns: Columns) -> None:
        columns[target] = number(columns[source])

    return apply


def _line(saved: _Saved) -> Apply:
    weights, intercept = vector(saved.data[0]["coefficients"]), saved.data[0]["intercept"]
    return _predicting(saved, lambda values: _dot(weights, values) + intercept)


def _margin(saved: _Saved) -> Apply:
    weights, intercept = vector(saved.data[0]["coefficients"]), saved.data[0]["intercept"]
    threshold = saved.params["threshold"]
    return _predicting(saved, lambda values: float(_dot(weights, values) + intercept > threshold))


def _logistic(saved: _Saved) -> Apply:
    fitted = saved.data[0]
    rows, intercepts = _matrix(fitted["coefficientMatrix"]), vector(fitted["interceptVector"])
    if fitted["isMultinomial"]:
        pairs = list(zip(rows, intercepts, strict=True))
        return _predicting(saved, lambda values: _largest([_dot(row, values) + b for row, b in pairs]))
    threshold = saved.params["threshold"]
    least = log(threshold / (1 - threshold)) if 0 < threshold < 1 else inf if threshold else -inf
    return _predicting(saved, lambda values: float(_dot(rows[0], values) + intercepts[0] > least))


def _centres(saved: _Saved) -> Apply:
    rows = sorted(saved.data, key=lambda row: row["clusterIdx"])
    centres = [vector(row["clusterCenter"]) for row in rows]

    def nearest(values: Vector) -> float:
        return _largest([-sum((a - b) ** 2 for a, b in zip(centre, values, strict=True)) for centre in centres])

    return _predicting(saved, nearest)


Node = Mapping[str, Any]
Tree = Mapping[int, Node]


def _leaf(tree: Tree, values: Vector) -> Node:
    """The leaf of a row."""
    node = tree[0]
    while node["leftChild"] >= 0:
        split = node["split"]
        value, bounds = values[split["featureIndex"]], split["leftCategoriesOrThreshold"]
        left = value <= bounds[0] if split["numCategories"] < 0 else value in bounds
        node = tree[node["leftChild" if left else "rightChild"]]
    return node


def _trees(saved: _Saved) -> list[tuple[Tree, float]]:
    """Trees and their weights."""
    if "treesMetadata" not in saved.tables:
        return [({row["id"]: row for row in saved.data}, 1.0)]
    nodes = dict[int, dict[int, Node]]()
    for row in saved.data:
        nodes.setdefault(row["treeID"], {})[row["nodeData"]["id"]] = row["nodeData"]
    weights = {row["_1"]: row["_3"] for row in saved.tables["treesMetadata"]}
    return [(nodes[number], weights[number]) for number in sorted(nodes)]


def _mean_of_trees(saved: _Saved) -> Apply:
    trees = _trees(saved)
    return _predicting(saved, lambda values: sum(_leaf(tree, values)["prediction"] for tree, _ in trees) / len(trees))


def _sum_of_trees(saved: _Saved) -> Number:
    trees = _trees(saved)
    return lambda values: sum(_leaf(tree, values)["prediction"] * weight for tree, weight in trees)


def _boosted(saved: _Saved) -> Apply:
    return _predicting(saved, _sum_of_trees(saved))


def _boosted_classes(saved: _Saved) -> Apply:
    margin = _sum_of_trees(saved)
    return _predicting(saved, lambda values: float(margin(values) > 0))


def _votes(saved: _Saved) -> Apply:
    trees = _trees(saved)

    def elected(values: Vector) -> float:
        votes = Vector()
        for tree, _ in trees:
            counts = _leaf(tree, values)["impurityStats"]
            whole = sum(counts)
            shares = [count / whole if whole else 0.0 for count in counts]
            votes = [a + b for a, b in zip(votes, shares, strict=True)] if votes else shares
        return _largest(votes)

    return _predicting(saved, elected)


_GREATEST_FLOAT = 3.4e38
_WRITTEN_OUT = range(-3, 7)
"""Exponents that Java writes no ``E`` for."""

_STAGES: dict[str, Callable[[_Saved], Apply]] = {
    "Bucketizer": _buckets,
    "DecisionTreeClassification": _votes,
    "DecisionTreeRegression": _mean_of_trees,
    "GBTClassification": _boosted_classes,
    "GBTRegression": _boosted,
    "IndexToString": _labels,
    "KMeans": _centres,
    "LinearRegression": _line,
    "LinearSVC": _margin,
    "LogisticRegression": _logistic,
    "MaxAbsScaler": _absolute,
    "MinMaxScaler": _ranged,
    "OneHotEncoder": _encoder,
    "RandomForestClassification": _votes,
    "RandomForestRegression": _mean_of_trees,
    "StandardScaler": _standard,
    "StringIndexer": _indexer,
    "VectorAssembler": _assembler,
}
"""Class of a stage, without ``Model`` -> how it is applied."""
