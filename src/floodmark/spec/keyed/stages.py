"""Stages of fitted pipelines of Spark ML, applied to a row without Java.

Source: ``pyspark.ml`` 4.2: what a stage makes of null, NaN and numbers out of range, too.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import copysign, inf, isfinite, isnan, log, nan
from typing import Any

Vector = list[float]
Node = Mapping[str, Any]
Tree = Mapping[int, Node]
Columns = dict[str, Any]
Apply = Callable[[Columns], None]
"""(columns of a row, those that a stage adds included) -> adds the columns of the stage."""
Number = Callable[[Vector], float]
"""Features -> prediction."""


@dataclass(frozen=True, slots=True)
class Saved:
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


@dataclass(frozen=True, slots=True)
class Absent:
    """A vector that is null.

    Args:
        width: how many numbers it would have.
    """

    width: int


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


def _present(columns: Columns, name: str) -> Vector:
    value: Vector | Absent = columns[name]
    if isinstance(value, Absent):
        msg = f"'{name}' is null, which only a VectorAssembler takes"
        raise ValueError(msg)  # noqa: TRY004 - of the row's values
    return value


def _each(saved: Saved, changed: Callable[[Vector], Vector]) -> Apply:
    """A stage that makes another vector of a vector."""
    (source,), (target,) = saved.columns()

    def apply(columns: Columns) -> None:
        columns[target] = changed(_present(columns, source))

    return apply


def _assembler(saved: Saved) -> Apply:
    sources, target = saved.params["inputCols"], saved.params["outputCol"]
    keeps = saved.params.get("handleInvalid") == "keep"

    def apply(columns: Columns) -> None:
        whole = Vector()
        for name in sources:
            value = columns[name]
            if isinstance(value, list):
                whole.extend(value)
                continue
            if value is not None and not isinstance(value, Absent) and not isnan(value):
                whole.append(float(value))
                continue
            if not keeps:
                msg = f"'{name}' is null or NaN, which a VectorAssembler takes with handleInvalid='keep' alone"
                raise ValueError(msg)
            whole.extend([nan] * (value.width if isinstance(value, Absent) else 1))
        columns[target] = whole

    return apply


def _indexer(saved: Saved) -> Apply:
    sources, targets = saved.columns()
    numbers = [{label: float(n) for n, label in enumerate(labels)} for labels in saved.data[0]["labelsArray"]]
    keeps = saved.params.get("handleInvalid") == "keep"

    def apply(columns: Columns) -> None:
        for source, target, of in zip(sources, targets, numbers, strict=True):
            label, *others = [None] if columns[source] is None else _texts(columns[source])
            label = next((text for text in others if text in of), label) if label not in of else label
            if label not in of and not keeps:
                msg = f"feature '{source}' is {label!r}, which no row had that the model was fitted to"
                raise ValueError(msg)
            columns[target] = float(len(of)) if label is None else of.get(label, float(len(of)))

    return apply


def _texts(value: Any) -> Iterator[str]:
    """What Spark may have cast a value to: a number with a fraction is a double, or a float, whose text is shorter. Booleans are fitted as 0 and 1."""
    if isinstance(value, float) and not isfinite(value):
        yield "NaN" if isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        return
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


def _encoder(saved: Saved) -> Apply:
    sources, targets = saved.columns()
    sizes, params = saved.data[0]["categorySizes"], saved.params
    keeps, drops = params.get("handleInvalid") == "keep", params.get("dropLast", True)

    def apply(columns: Columns) -> None:
        for source, target, size in zip(sources, targets, sizes, strict=True):
            category, whole = columns[source], [0.0] * (size + keeps - drops)
            if category is None:
                columns[target] = Absent(len(whole))
                continue
            if not 0 <= category < size and not keeps:
                msg = f"'{source}' is category {category:g}, of {size} that the model was fitted to"
                raise ValueError(msg)
            position = int(category) if 0 <= category < size else size
            if position < len(whole):
                whole[position] = 1.0
            columns[target] = whole

    return apply


def _standard(saved: Saved) -> Apply:
    mean, deviation = (vector(saved.data[0][name]) for name in ("mean", "std"))
    shift = mean if saved.params.get("withMean") else [0.0] * len(mean)
    scale = [1 / s if s else 0.0 for s in deviation] if saved.params.get("withStd", True) else [1.0] * len(mean)
    return _each(saved, lambda values: [(v - m) * s for v, m, s in zip(values, shift, scale, strict=True)])


def _ranged(saved: Saved) -> Apply:
    least, greatest = (vector(saved.data[0][name]) for name in ("originalMin", "originalMax"))
    low, high = saved.params["min"], saved.params["max"]
    scales = [(high - low) / (b - a) if b != a else 0.0 for a, b in zip(least, greatest, strict=True)]

    def changed(values: Vector) -> Vector:
        parts = zip(values, least, scales, strict=True)
        return [(v - a) * scale + low if scale else (low + high) / 2 for v, a, scale in parts]

    return _each(saved, changed)


def _absolute(saved: Saved) -> Apply:
    scales = [1 / (size or 1.0) for size in vector(saved.data[0]["maxAbs"])]
    return _each(saved, lambda values: [v * scale for v, scale in zip(values, scales, strict=True)])


def _buckets(saved: Saved) -> Apply:
    sources, targets = saved.columns()
    whole = saved.params.get("splitsArray") or [saved.params["splits"]]
    splits = [[float(split) for split in of] for of in whole]
    keeps = saved.params.get("handleInvalid") == "keep"

    def apply(columns: Columns) -> None:
        for source, target, of in zip(sources, targets, splits, strict=True):
            if columns[source] is None:
                columns[target] = None
                continue
            value = float(columns[source])
            if isnan(value) and keeps:
                columns[target] = float(len(of) - 1)
                continue
            if not of[0] <= value <= of[-1]:
                msg = f"'{source}' is {value:g}, outside of the splits {of[0]:g} to {of[-1]:g}"
                raise ValueError(msg)
            below = (
                bisect_left if value == 0 and copysign(1, value) < 0 else bisect_right
            )  # to Java -0.0 is less than 0.0
            columns[target] = float(max(min(below(of, value), len(of) - 1), 1) - 1)

    return apply


def _labels(saved: Saved) -> Apply:
    (source,), (target,) = saved.columns()
    labels = saved.params["labels"]

    def apply(columns: Columns) -> None:
        columns[target] = labels[int(columns[source])]

    return apply


def _predicting(saved: Saved, number: Number) -> Apply:
    source, target = saved.params["featuresCol"], saved.params["predictionCol"]

    def apply(columns: Columns) -> None:
        columns[target] = number(_present(columns, source))

    return apply


def _line(saved: Saved) -> Apply:
    weights, intercept = vector(saved.data[0]["coefficients"]), saved.data[0]["intercept"]
    return _predicting(saved, lambda values: _dot(weights, values) + intercept)


def _margin(saved: Saved) -> Apply:
    weights, intercept = vector(saved.data[0]["coefficients"]), saved.data[0]["intercept"]
    threshold = saved.params["threshold"]
    return _predicting(saved, lambda values: float(_dot(weights, values) + intercept > threshold))


def _logistic(saved: Saved) -> Apply:
    fitted = saved.data[0]
    rows, intercepts = _matrix(fitted["coefficientMatrix"]), vector(fitted["interceptVector"])
    if fitted["isMultinomial"]:
        pairs = list(zip(rows, intercepts, strict=True))
        return _predicting(saved, lambda values: _largest([_dot(row, values) + b for row, b in pairs]))
    threshold = saved.params["threshold"]
    least = log(threshold / (1 - threshold)) if 0 < threshold < 1 else inf if threshold else -inf
    return _predicting(saved, lambda values: float(_dot(rows[0], values) + intercepts[0] > least))


def _centres(saved: Saved) -> Apply:
    rows = sorted(saved.data, key=lambda row: row["clusterIdx"])
    centres = [vector(row["clusterCenter"]) for row in rows]

    def nearest(values: Vector) -> float:
        if any(map(isnan, values)):
            msg = "a feature is NaN, which is near no centre"
            raise ValueError(msg)
        return _largest([-sum((a - b) ** 2 for a, b in zip(centre, values, strict=True)) for centre in centres])

    return _predicting(saved, nearest)


def _is_left(category: float, lefts: Vector, number: int) -> bool:
    """Of NaN and categories that were not fitted, too, which go with the larger part: Spark looks for a category in the smaller one."""
    return category in lefts or (len(lefts) > number // 2 and category not in range(number))


def _leaf(tree: Tree, values: Vector) -> Node:
    """The leaf of a row."""
    node = tree[0]
    while node["leftChild"] >= 0:
        split = node["split"]
        value, bounds = values[split["featureIndex"]], split["leftCategoriesOrThreshold"]
        left = value <= bounds[0] if split["numCategories"] < 0 else _is_left(value, bounds, split["numCategories"])
        node = tree[node["leftChild" if left else "rightChild"]]
    return node


def _trees(saved: Saved) -> list[tuple[Tree, float]]:
    """Trees and their weights."""
    if "treesMetadata" not in saved.tables:
        return [({row["id"]: row for row in saved.data}, 1.0)]
    nodes = dict[int, dict[int, Node]]()
    for row in saved.data:
        nodes.setdefault(row["treeID"], {})[row["nodeData"]["id"]] = row["nodeData"]
    weights = {row["_1"]: row["_3"] for row in saved.tables["treesMetadata"]}
    return [(nodes[number], weights[number]) for number in sorted(nodes)]


def _mean_of_trees(saved: Saved) -> Apply:
    trees = _trees(saved)
    return _predicting(saved, lambda values: sum(_leaf(tree, values)["prediction"] for tree, _ in trees) / len(trees))


def _sum_of_trees(saved: Saved) -> Number:
    trees = _trees(saved)
    return lambda values: sum(_leaf(tree, values)["prediction"] * weight for tree, weight in trees)


def _boosted(saved: Saved) -> Apply:
    return _predicting(saved, _sum_of_trees(saved))


def _boosted_classes(saved: Saved) -> Apply:
    margin = _sum_of_trees(saved)
    return _predicting(saved, lambda values: float(margin(values) > 0))


def _votes(saved: Saved) -> Apply:
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


KEEPING = frozenset({"Bucketizer", "OneHotEncoder", "StringIndexer", "VectorAssembler"})
"""Stages that take null and NaN with ``handleInvalid="keep"``."""
_GREATEST_FLOAT = 3.4e38
_WRITTEN_OUT = range(-3, 7)
"""Exponents that Java writes no ``E`` for."""

STAGES: dict[str, Callable[[Saved], Apply]] = {
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
