"""Keys that are NaN, of either sign, and zeros of either sign: one key each, as in SQL's GROUP BY, in both modes."""

from __future__ import annotations

import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fast_paths import case_on

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.spec.values.schema import MARKER, RETRACTION
from floodmark.testing.log import Log

NEGATIVE = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
"""What processors make of 0/0: NaN whose sign is set."""
KEYS = [math.nan, NEGATIVE, 0.0, -0.0, 1.5, None, NEGATIVE, math.nan, -0.0, 0.0]


class Keyed(fm.Contract):
    """A number as a key."""

    at: fm.EventTime
    k: float | None
    v: int


class Counting(fm.ProcessFunction):
    """How many rows of the key there are so far."""

    n = fm.ValueState(int)

    def on_element(self, row: Any, ctx: Any) -> Any:
        self.n.update(self.n.get(0) + 1)
        yield {"n": self.n.get()}


class Counted(fm.Contract):
    """Rows so far."""

    n: int


@fm.operator
def windowed(rows: fm.Stream[Keyed]) -> fm.Stream:
    """A window of all rows."""
    return rows.key_by("k").window(fm.Tumbling("1 day")).aggregate(n=fm.count(), total=fm.sum("v"))


@fm.operator
def ranked(rows: fm.Stream[Keyed]) -> fm.Stream:
    """A window of all rows, ranked."""
    return rows.key_by("k").window(fm.Tumbling("1 day")).aggregate(n=fm.count(), most=fm.max_by("v", "v"))


@fm.operator
def sessions(rows: fm.Stream[Keyed]) -> fm.Stream:
    """One session."""
    return rows.key_by("k").window(fm.Session("1 hour")).aggregate(n=fm.count())


@fm.operator
def processed(rows: fm.Stream[Keyed]) -> fm.Stream:
    """A process function."""
    return rows.key_by("k").process(Counting(), schema=Counted)


GROUPED = fm.sql_operator(
    "grouped", "SELECT k, COUNT(*) AS n FROM rows GROUP BY k EMIT CHANGES", inputs={"rows": Keyed}
)
JOINED = fm.sql_operator(
    "joined",
    "SELECT a.k, a.v AS v, b.v AS w FROM rows a JOIN others b ON a.k = b.k EMIT CHANGES",
    inputs={"rows": Keyed, "others": Keyed},
)
DISTINCT = fm.sql_operator("apart", "SELECT DISTINCT k FROM rows EMIT CHANGES", inputs={"rows": Keyed})

KEY = {"nan": 4, "0.0": 4, "1.5": 1, "None": 1}
"""Rows of each key."""
MOST = {"nan": 7, "0.0": 9, "1.5": 4, "None": 5}
EXPECTED: dict[str, tuple[fm.Operator, Counter[tuple[Any, ...]]]] = {
    "windowed": (windowed, Counter((key, n) for key, n in KEY.items())),
    "ranked": (ranked, Counter((key, n, MOST[key]) for key, n in KEY.items())),
    "sessions": (sessions, Counter((key, n) for key, n in KEY.items())),
    "processed": (processed, Counter((key, k + 1) for key, n in KEY.items() for k in range(n))),
    "grouped": (GROUPED, Counter((key, n) for key, n in KEY.items())),
    "apart": (DISTINCT, Counter((key,) for key in KEY)),
    "joined": (JOINED, Counter({(key,): n * n for key, n in KEY.items() if key != "None"})),
}
"""What is left of the rows when those that are taken back are subtracted: the key, and values beside it."""
CASES = [("embedded", mode, name) for mode in ("unbounded", "bounded") for name in EXPECTED]


def log(operator: fm.Operator) -> Log:
    """Rows of all keys."""
    made = Log(operator.inputs[0].schema)
    made.rows([{"at": from_ms(n * 1000), "k": key, "v": n} for n, key in enumerate(KEYS)], "at", 20_000)
    made.end()
    return made


def named(key: float | None) -> str:
    """NaN is not equal to itself, and -0.0 is equal to 0.0."""
    return "nan" if key is not None and math.isnan(key) else repr(key)


@pytest.mark.parametrize(
    ("case_of", "mode", "name"),
    [
        *CASES,
        pytest.param("spark", "unbounded", "grouped", marks=pytest.mark.spark),
        pytest.param("spark", "bounded", "windowed", marks=pytest.mark.spark),
    ],
)
def test_nan_is_one_key_whatever_its_sign(
    case_of: str, mode: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    operator, expected = EXPECTED[name]
    case = case_on(case_of, request, operator, tmp_path / "lake")
    for input_ in operator.inputs:
        case.land(log(operator), name=input_.name)
    case.run_unbounded() if mode == "unbounded" else case.run_bounded()
    left: Counter[tuple[Any, ...]] = Counter()
    columns = [column for column in ("n", "most") if column in operator.outputs[0].schema.names]
    for row in case.outputs()[""].to_pylist():
        if row["_kind"] < MARKER:
            left[named(row["k"]), *(row[column] for column in columns)] += -1 if row["_kind"] == RETRACTION else 1
    assert +left == expected
