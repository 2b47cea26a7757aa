"""Pipelines of Spark ML without Java: the predictions that Spark has recorded (``tests/support/pipelines.py``)."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import CASES, FEATURES, rows_of

from floodmark.core.errors import DefinitionError, StateError
from floodmark.models.spark import check_labels
from floodmark.spec.keyed import fitted
from floodmark.spec.keyed.fitted import opened
from floodmark.spec.keyed.pipelines import ABOUT, read
from floodmark.spec.keyed.stages import STAGES, Saved, vector

PREDICTIONS: dict[str, list[Any]] = json.loads((CASES / "predictions.json").read_text("utf-8"))


@pytest.mark.feature("M1")
@pytest.mark.parametrize("name", sorted(PREDICTIONS))
def test_a_pipeline_predicts_without_java_what_spark_predicts(name: str) -> None:
    data, expected = (CASES / f"{name}.zip").read_bytes(), PREDICTIONS[name]
    measured = rows_of(name).select(list(FEATURES)).slice(150).to_pylist()
    pipeline = opened(data, hashlib.sha256(data).hexdigest(), name)
    made = pipeline.predict([pipeline.taken(list(row.values())) for row in measured])
    assert len(set(expected)) > 1
    assert made == [
        value if isinstance(value, str) else pytest.approx(value, rel=1e-9, nan_ok=True) for value in expected
    ]


@pytest.mark.feature("M1")
def test_a_text_that_no_row_had_counts_as_one_of_its_own_or_is_an_error() -> None:
    line = (CASES / "line.zip").read_bytes()
    (known, unknown) = read(line, "line").predict([[1.0, False, "ä"], [1.0, False, "new"]])
    assert known != unknown
    strict = read(_set(line, "StringIndexer", handleInvalid="error"), "line")
    with pytest.raises(ValueError, match="feature 'origin' is 'new', which no row had"):
        strict.predict([[1.0, False, "new"]])


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("stage", "settings", "code", "got"),
    [
        ("StringIndexer", {"handleInvalid": "skip"}, "STATE-077", "which would lose rows"),
        ("LogisticRegression", {"thresholds": [0.1, 0.9]}, "STATE-077", "LogisticRegression with thresholds"),
        ("LogisticRegression", {"predictionCol": None}, "STATE-078", "LogisticRegression"),
    ],
)
def test_what_is_not_applied_here_is_refused_by_its_name(
    stage: str, settings: dict[str, Any], code: str, got: str
) -> None:
    with pytest.raises(StateError, match=f"{code}.*{got}"):
        read(_set((CASES / "logistic.zip").read_bytes(), stage, **settings), "model 'm'")


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("double", 1, 1.0),
        ("double", "late", r"'late', which is no number: score\(..., type=str\)"),
        ("bigint", 2.0, 2),
        ("int", 2.5, "2.5, which is no whole number"),
        ("bigint", float("nan"), "nan, which is no whole number"),
        ("bigint", float("inf"), "inf, which is no whole number"),
        ("boolean", 1.0, True),
        ("boolean", 2.0, "neither true nor false"),
        ("string", "late", "late"),
    ],
)
def test_a_prediction_is_of_the_type_of_its_column_or_says_which_would_fit(
    type_: str, value: Any, expected: Any
) -> None:
    as_type = fitted._AS.get(type_, fitted._same)
    if isinstance(expected, str) and value != expected:
        with pytest.raises(ValueError, match=expected):
            as_type(value)
    else:
        assert as_type(value) == expected


@pytest.mark.feature("M1")
def test_zeros_that_spark_leaves_out_are_zeros() -> None:
    sparse = {"type": 0, "size": 4, "indices": [1, 3], "values": [2.0, 3.0]}
    assert vector(sparse) == [0.0, 2.0, 0.0, 3.0]
    line = (CASES / "three_classes.zip").read_bytes()
    values = [[n / 3 - 4, n % 2 == 0, "abä"[n % 3]] for n in range(60)]
    expected = read(line, "m").predict(values)
    for transposed in (False, True):
        assert read(_sparse(line, transposed=transposed), "m").predict(values) == expected


def _applied(kind: str, value: Any, params: dict[str, Any], **data: Any) -> Any:
    """What a stage makes of a column ``x``."""
    columns = {"x": value}
    settings = {"inputCol": "x", "outputCol": "y", "featuresCol": "x", "predictionCol": "y", **params}
    STAGES[kind](Saved(kind, settings, {}, {"data": [data]}))(columns)
    return columns["y"]


def _dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "values": list(values)}


@pytest.mark.feature("M1")
def test_scaled_values_are_sparks_to_the_last_digit() -> None:
    """Trees split in the middle between scaled values, where another last digit goes the other way: Spark multiplies by a scale."""
    assert _applied("MaxAbsScaler", [3.0], {}, maxAbs=_dense(5.0)) == [0.6000000000000001]
    ranged = {"originalMin": _dense(0.0, 7.0), "originalMax": _dense(10.0, 7.0)}
    assert _applied("MinMaxScaler", [3.0, 7.0], {"min": 0.0, "max": 1.0}, **ranged) == [0.30000000000000004, 0.5]


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("value", "label"),
    [
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (0.0001, "1.0E-4"),
        (-0.00025, "-2.5E-4"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e300, "1.0E300"),
        (-0.0, "-0.0"),
        (0.10000000149011612, "0.1"),
        (2**63 - 1, "9223372036854775807"),
        (True, "1"),
    ],
)
def test_a_number_has_the_label_that_java_writes(value: Any, label: str) -> None:
    """Of a double, else of a float, as a row has both as one; booleans are learned as 0 and 1. Source: ``Double.toString``."""
    assert _applied("StringIndexer", value, {"handleInvalid": "error"}, labelsArray=[["other", label]]) == 1.0


@pytest.mark.feature("M1")
def test_a_category_below_zero_is_as_one_that_was_not_fitted() -> None:
    with pytest.raises(ValueError, match="'x' is category -1, of 3"):
        _applied("OneHotEncoder", -1.0, {"handleInvalid": "error"}, categorySizes=[3])
    assert _applied("OneHotEncoder", -1.0, {"handleInvalid": "keep"}, categorySizes=[3]) == [0.0, 0.0, 0.0]


@pytest.mark.feature("M1")
def test_a_zero_below_zero_is_in_the_bucket_below_as_in_java() -> None:
    splits = {"splits": [-1.0, 0.0, 1.0]}
    assert [_applied("Bucketizer", value, splits) for value in (-1.0, -0.0, 0.0, 1.0)] == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.feature("M1")
def test_an_assembler_takes_null_and_nan_only_where_it_is_told_to_and_as_many_as_the_vector_has() -> None:
    sources = {"inputCols": ["x", "d"], "outputCol": "y"}
    assembler = STAGES["VectorAssembler"](Saved("VectorAssembler", sources, {}, {}))
    keeping = STAGES["VectorAssembler"](Saved("VectorAssembler", sources | {"handleInvalid": "keep"}, {}, {}))
    absent = _applied("OneHotEncoder", None, {"handleInvalid": "keep"}, categorySizes=[3])
    for value, width in ((None, 1), (math.nan, 1), (absent, 3)):
        columns: dict[str, Any] = {"x": value, "d": 7}
        keeping(columns)
        assert columns["y"] == pytest.approx([math.nan] * width + [7.0], nan_ok=True)
        with pytest.raises(ValueError, match="'x' is null or NaN.*handleInvalid='keep'"):
            assembler(columns)
    with pytest.raises(ValueError, match="'x' is null, which only a VectorAssembler takes"):
        _applied("MaxAbsScaler", absent, {}, maxAbs=_dense(5.0))


@pytest.mark.feature("M1")
@pytest.mark.parametrize(
    ("lefts", "number", "left"),
    [([0.0, 1.0, 2.0], 5, {0, 1, 2, 5, 1.5, -1, math.nan}), ([3.0], 5, {3}), ([0.0], 2, {0})],
)
def test_a_category_that_was_not_fitted_goes_with_the_larger_part_as_in_spark(
    lefts: list[float], number: int, left: set[float]
) -> None:
    """Answers of ``DecisionTreeClassificationModel.predict`` of Spark 4.2. Source: ``CategoricalSplit.shouldGoLeft``."""
    split = {"featureIndex": 0, "leftCategoriesOrThreshold": lefts, "numCategories": number}
    leaf = {"leftChild": -1, "rightChild": -1, "split": None}
    root = {"id": 0, "leftChild": 1, "rightChild": 2, "split": split, "prediction": 0.0}
    rows = [root, leaf | {"id": 1, "prediction": 1.0}, leaf | {"id": 2, "prediction": 2.0}]
    settings = {"featuresCol": "x", "predictionCol": "y"}
    tree = STAGES["DecisionTreeRegression"](Saved("DecisionTreeRegression", settings, {}, {"data": rows}))
    for value in (0, 1, 2, 3, 4, 5, 1.5, -1, math.nan):
        columns: dict[str, Any] = {"x": [float(value)]}
        tree(columns)
        assert (columns["y"] == 1.0) == (value in left), value


@pytest.mark.feature("M1")
def test_texts_that_are_named_in_another_order_than_they_are_numbered_are_refused() -> None:
    """``StringIndexer`` numbers the most frequent text 0: a late flight would be predicted as an early one, and measured as right."""
    check_labels(["late", "early"], [], "m")
    check_labels(["early", "late"], ["early", "late", "gone"], "m")
    for labels in (["early", "late"], ["late"], ["on time", "delayed"]):
        with pytest.raises(DefinitionError, match=r"DEFINITION-453.*late, early.*labels=\['late', 'early'\]"):
            check_labels(["late", "early"], labels, "m")


def _files(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert ABOUT in files
    return out.getvalue()


def _set(data: bytes, stage: str, **settings: Any) -> bytes:
    """A pipeline with other settings of a stage."""
    files = _files(data)
    (name,) = [name for name in files if stage in name and "/metadata/" in name]
    about = json.loads(files[name])
    about["paramMap"] |= settings
    return _zipped(files | {name: json.dumps(about).encode()})


def _sparse(data: bytes, *, transposed: bool) -> bytes:
    """A logistic regression whose matrix has each number with its position, by rows or by columns."""
    files = _files(data)
    (name,) = [name for name in files if "LogisticRegression" in name and name.endswith(".parquet")]
    table = pq.read_table(pa.BufferReader(files[name]))
    row = table.to_pylist()[0]
    matrix = row["coefficientMatrix"]
    high, wide, numbers = matrix["numRows"], matrix["numCols"], matrix["values"]
    assert matrix["isTransposed"]
    outer, inner = (high, wide) if transposed else (wide, high)
    values = [
        numbers[o * wide + i] if transposed else numbers[i * wide + o] for o in range(outer) for i in range(inner)
    ]
    row["coefficientMatrix"] = matrix | {
        "type": 0,
        "colPtrs": [inner * n for n in range(outer + 1)],
        "rowIndices": [*range(inner)] * outer,
        "values": values,
        "isTransposed": transposed,
    }
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([row], schema=table.schema), out)
    return _zipped(files | {name: out.getvalue().to_pybytes()})
