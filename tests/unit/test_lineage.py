"""Column lineage, against what really changes: other values in a column of an input change no column that is not said to depend on it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import floodmark as fm
from floodmark.compiler.lineage import lineage
from floodmark.testing import Case

START = datetime(2020, 1, 1, tzinfo=UTC)


class Left(fm.Contract):
    """Rows of one input."""

    at: fm.EventTime
    k: str
    a: int
    b: int
    c: int


class Right(fm.Contract):
    """Rows of the other."""

    at: fm.EventTime
    k: str
    x: int
    y: int


class Out(fm.Contract):
    """What functions make."""

    sum_of_all: int
    number: int


def both(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"sum_of_all": row["a"] + row["b"] + row["c"], "number": 1}


def panes(pane: Any, rows: Any) -> Iterator[dict[str, Any]]:
    yield {"sum_of_all": sum(row["a"] + row["b"] + row["c"] for row in rows), "number": len(rows)}


class Running(fm.ProcessFunction):
    """Of all columns."""

    total = fm.ValueState(int)

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.total.update((self.total.get() or 0) + row["a"] + row["b"] + row["c"])
        yield {"sum_of_all": self.total.get(), "number": 1}


def of_left(body: Callable[[fm.Stream[Left]], fm.Stream]) -> fm.Operator:
    def results(left: fm.Stream[Left]) -> fm.Stream:
        return body(left)

    return fm.operator(name="results")(results)


def of_both(body: Callable[[fm.Stream[Left], fm.Stream[Right]], fm.Stream]) -> fm.Operator:
    def results(left: fm.Stream[Left], right: fm.Stream[Right]) -> fm.Stream:
        return body(left, right)

    return fm.operator(name="results")(results)


HOUR = fm.Tumbling("1 hour")
T, L, R = "at", "left", "right"
ALL = {"left.a", "left.b", "left.c", "left.at", "left.k"}
CASES: dict[str, tuple[fm.Operator, dict[str, set[str]]]] = {
    "expressions": (
        of_left(lambda left: left.filter("c > 3").select("k", sum="a + b", one="1", both="if(a > 2, b, a)")),
        {"k": {"left.k"}, "sum": {"left.a", "left.b"}, "one": set(), "both": {"left.a", "left.b"}},
    ),
    "a column under another's name": (
        of_left(lambda left: left.with_columns(a="b").with_columns(d="a * 2").select("a", "d", "c")),
        {"a": {"left.b"}, "d": {"left.b"}, "c": {"left.c"}},
    ),
    "union": (
        of_both(lambda left, right: left.select("k", "a").union(right.select("k", a="x"))),
        {"k": {"left.k", "right.k"}, "a": {"left.a", "right.x"}},
    ),
    "flat_map": (
        of_left(lambda left: left.flat_map(both, schema=Out)),
        {"sum_of_all": ALL, "number": ALL},
    ),
    "window": (
        of_left(
            lambda left: left.key_by("k").window(HOUR).aggregate(n=fm.count(), s=fm.sum("a + b"), m=fm.max_by("a", "c"))
        ),
        {
            "k": {"left.k"},
            "window_start": {"left.at"},
            "window_end": {"left.at"},
            "n": set(),
            "s": {"left.a", "left.b"},
            "m": {"left.a", "left.c"},
        },
    ),
    "function over aggregates": (
        of_left(
            lambda left: (
                left.select("at", "k", "a", "c")
                .key_by("k")
                .window(HOUR)
                .aggregate(total=fm.sum("a"), largest=fm.max("c"))
                .select("k", "total", twice="largest * 2")
            )
        ),
        {"k": {"left.k"}, "total": {"left.a"}, "twice": {"left.c"}},
    ),
    "function over a window": (
        of_left(lambda left: left.key_by("k").window(HOUR).process(panes, schema=Out)),
        {"k": {"left.k"}, "window_start": {"left.at"}, "window_end": {"left.at"}, "sum_of_all": ALL, "number": ALL},
    ),
    "process function": (
        of_left(lambda left: left.key_by("k").process(Running(), schema=Out)),
        {"k": {"left.k"}, "sum_of_all": ALL, "number": ALL},
    ),
    "expressions over windows": (
        of_left(
            lambda left: (
                left.key_by("k")
                .window(HOUR)
                .aggregate(a=fm.sum("a"), b=fm.sum("b"), c=fm.sum("c"))
                .select("k", "window_start", late="a + b")
            )
        ),
        {"k": {"left.k"}, "window_start": {"left.at"}, "late": {"left.a", "left.b"}},
    ),
    "deduplicate": (
        of_left(lambda left: left.key_by("k").deduplicate(within="10 minutes").select("k", "a", d="b")),
        {"k": {"left.k"}, "a": {"left.a"}, "d": {"left.b"}},
    ),
    "interval join": (
        of_both(
            lambda left, right: (
                left.select("at", "k", "a", "b")
                .key_by("k")
                .interval_join(right.key_by("k"), "-1 hour", "1 hour", prefix="r_")
                .select("k", "a", "b", "r_x", "r_y")
            )
        ),
        {"k": {"left.k", "right.k"}, "a": {"left.a"}, "b": {"left.b"}, "r_x": {"right.x"}, "r_y": {"right.y"}},
    ),
    "semi join": (
        of_both(
            lambda left, right: (
                left.key_by("k")
                .interval_join(right.key_by("k"), "-1 hour", "1 hour", kind="semi")
                .select("k", "a", "c")
            )
        ),
        {"k": {"left.k", "right.k"}, "a": {"left.a"}, "c": {"left.c"}},
    ),
    "window join": (
        of_both(
            lambda left, right: (
                left.key_by("k")
                .window_join(right.key_by("k"), HOUR, prefix="r_", kind="left")
                .select("k", "a", "b", "c", "r_x", "r_y")
            )
        ),
        {
            "k": {"left.k", "right.k"},
            "a": {"left.a"},
            "b": {"left.b"},
            "c": {"left.c"},
            "r_x": {"right.x"},
            "r_y": {"right.y"},
        },
    ),
    "temporal join": (
        of_both(
            lambda left, right: (
                left.key_by("k")
                .temporal_join(right.key_by("k"), kind="left", prefix="r_")
                .select("k", "a", "b", "c", "r_x", "r_y")
            )
        ),
        {
            "k": {"left.k", "right.k"},
            "a": {"left.a"},
            "b": {"left.b"},
            "c": {"left.c"},
            "r_x": {"right.x"},
            "r_y": {"right.y"},
        },
    ),
}


def fed(operator: fm.Operator, changed: str = "") -> dict[str, Counter[str]]:
    """Column of the result -> its values, over random rows; those of one column of an input are others where ``changed`` names it."""
    case, rng = Case(operator), random.Random(7)
    for name, columns in ((L, "abc"), (R, "xy")):
        rows: list[dict[str, Any]] = []
        for n in range(60):
            row: dict[str, Any] = {"at": START + timedelta(minutes=3 * n), "k": rng.choice("pq")}
            row |= {column: rng.randrange(10) for column in columns}
            other = {column: rng.randrange(10, 99) for column in columns}
            rows.append(
                {column: other[column] if f"{name}.{column}" == changed else value for column, value in row.items()}
            )
        if name in {one.name for one in operator.inputs}:
            case.feed(name, rows)
    results = case.end().results()
    assert results
    return {column: Counter(repr(row[column]) for row in results) for column in results[0]}


@pytest.mark.feature("Z1")
@pytest.mark.parametrize("name", CASES)
def test_a_column_depends_on_what_it_is_said_to_depend_on(name: str) -> None:
    operator, expected = CASES[name]
    columns = lineage(operator, {L: T, R: T})["results"]
    assert {
        column: {f"{table}.{source}" for table, source in origins} for column, origins in columns.items()
    } == expected
    before = fed(operator)
    for changed in ("left.a", "left.b", "right.x", "right.y"):
        after = fed(operator, changed)
        for column, origins in expected.items():
            if changed not in origins:
                assert after[column] == before[column], f"{column} depends on {changed}"
            elif name not in {"flat_map", "function over a window", "process function"}:
                assert after[column] != before[column], f"{column} does not depend on {changed}"


def test_outputs_that_share_steps_have_their_own() -> None:
    @fm.operator
    def split(left: fm.Stream[Left]) -> fm.Outputs:
        wide = left.with_columns(d="a + b")
        return fm.Outputs(low=wide.filter("d < 9").select("d"), high=wide.select("c", e="d * 2"))

    assert lineage(split, {}) == {
        "split__low": {"d": frozenset({("left", "a"), ("left", "b")})},
        "split__high": {"c": frozenset({("left", "c")}), "e": frozenset({("left", "a"), ("left", "b")})},
    }
