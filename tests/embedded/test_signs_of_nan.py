"""NaN with a sign, which processors make of 0/0, in rows that are read: the embedded engine compares it as Spark does, as the greatest number, equal to itself."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.cli.asking.question import Question
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.values import values
from floodmark.engines.embedded.sail.session import Sail
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.values.schema import MARKER, Column, Schema
from floodmark.testing.embedded import EmbeddedCase
from floodmark.testing.log import Log

NEGATIVE = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
TYPES = {"f": "double", "g": "double", "h": "float", "z": "struct<x:double>", "d": "array<double>"}
SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))
ROW = {"f": NEGATIVE, "g": math.nan, "h": NEGATIVE, "z": {"x": NEGATIVE}, "d": [NEGATIVE]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f > 1", True),
        ("f <= -5", False),
        ("f < 0", False),
        ("f = g", True),
        ("f <> g", False),
        ("f < g", False),
        ("f <=> g", True),
        ("f IN (1.5, g)", True),
        ("f BETWEEN 1 AND 2", False),
        ("nullif(f, g) IS NULL", True),
        ("greatest(f, 1D) > 2", True),
        ("least(f, 1D)", 1.0),
        ("array(f) = array(g)", True),
        ("CASE f WHEN g THEN 1 ELSE 2 END", 1),
        ("h > 1", True),
        ("h = g", True),
        ("z.x > 1", True),
        ("d[0] > 1", True),
        ("exists(d, x -> x > 1)", True),
        ("abs(f) > 1", True),
    ],
)
def test_a_value_that_is_read_is_compared_as_the_one_nan(text: str, expected: object) -> None:
    kind = expression(text, SCHEMA, "one").type
    rows = pa.Table.from_pylist([ROW], schema=arrow_schema(SCHEMA))
    (column,) = values(rows, [Attempt(step="one", text=text, type=kind, schema=SCHEMA)])
    assert column[0].as_py() == expected


class Measured(fm.Contract):
    """A number."""

    at: fm.EventTime
    number: float
    n: int


@fm.operator
def large(rows: fm.Stream[Measured]) -> fm.Stream:
    """Rows with a large number."""
    return rows.filter("number > 1").select("n")


def log() -> Log:
    """Three large numbers among five."""
    made, numbers = Log(large.inputs[0].schema), [NEGATIVE, math.nan, 2.0, 1.0, -math.inf]
    made.rows([{"at": from_ms(n * 1000), "number": number, "n": n} for n, number in enumerate(numbers)], "at", 0)
    made.end()
    return made


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
def test_no_row_is_lost_in_a_condition(mode: str, tmp_path: Path) -> None:
    case = EmbeddedCase(large, str(tmp_path))
    case.land(log())
    case.run_bounded() if mode == "bounded" else case.run_unbounded()
    assert sorted(row["n"] for row in case.outputs()[""].to_pylist() if row["_kind"] < MARKER) == [0, 1, 2]


@pytest.mark.parametrize(
    ("condition", "expected"), [("number > 1", [0, 1, 2]), ("number = CAST('NaN' AS double)", [0, 1])]
)
def test_no_row_is_lost_in_a_question(sail: Sail, tmp_path: Path, condition: str, expected: list[int]) -> None:
    case = EmbeddedCase(large, str(tmp_path))
    case.land(log())
    rows = fm.Source("rows", contract=Measured, connector=fm.Files(str(tmp_path)), watermark=fm.Ascending())
    sail.begin()
    text = f"SELECT n FROM rows WHERE {condition} ORDER BY n"
    answer = Question(text, fm.Workspace(sources=[rows], operators=[large]), case.lake, sail, "0 s").answer()
    assert answer["n"].to_pylist() == expected
