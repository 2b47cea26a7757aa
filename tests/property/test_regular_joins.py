"""Regular joins over rows and retractions: rows minus retractions are the join by hand at every cut, and the bounded run gives it at once."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import changing
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from changing import (
    BEGIN,
    CHANGING,
    RIGHTS,
    History,
    answers,
    asked,
    bounded,
    counted,
    emitted,
    history,
    joined,
    remaining,
    source,
    tables,
)
from hypothesis import given

import floodmark as fm
from floodmark.core.time import to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.kernels.functions import regular, sides
from floodmark.semantics.kernels.functions.sides import JoinForm, Row
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION, ROW

KINDS = ["inner", "left", "right", "full", "semi", "anti"]
CONDITION = "a < r_b OR r_note = 'x'"
MINUTE = 60_000


def operator_of(kind: str, keys: tuple[str, ...], condition: str, ttl: str | None) -> Operator:
    """A regular join of the two changing tables."""

    @fm.operator(inputs=CHANGING)
    def both(lefts, rights):
        other = rights.select(*keys, *(f for f in ("k", "f") if f not in keys), "b", "note", "seen")
        return lefts.key_by(*keys).regular_join(other.key_by(*keys), kind=kind, on=condition, ttl=ttl, prefix="r_")

    return both


def makes_pair(
    left: Mapping[str, Any], right: Mapping[str, Any], keys: tuple[str, ...], condition: str, ttl: int | None
) -> bool:
    """Whether two rows make a pair, by hand."""
    for key in keys:
        if left[key] is None or right[key] is None or not same(left[key], right[key]):
            return False
    if ttl is not None and abs(to_ms(left["at"]) - to_ms(right["seen"])) > ttl:
        return False
    if not condition:
        return True
    return (left["a"] is not None and right["b"] is not None and left["a"] < right["b"]) or right["note"] == "x"


def same(a: Any, b: Any) -> bool:
    """Equality of SQL: NaN is NaN, 0.0 is -0.0."""
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def by_hand(rows: History, kind: str, keys: tuple[str, ...], condition: str, ttl: int | None) -> Any:
    """The join of what is left of the rows."""
    left = remaining(rows)
    if ttl is not None:  # no row of these is that late
        assert all(row["_event_time"] + ttl > row["_watermark"] for _, row in rows)
    pairs = joined(left["lefts"], left["rights"], kind, lambda a, b: makes_pair(a, b, keys, condition, ttl))
    mine = [name for name in ("at", "k", "f", "a", "price") if name not in keys]
    others = [*(name for name in ("k", "f") if name not in keys), "b", "note", "seen"]
    if kind in {"semi", "anti"}:
        others = []

    def row(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> tuple[Any, ...]:
        present = a if a is not None else b
        assert present is not None
        head = tuple(present[key] + 0.0 if isinstance(present[key], float) else present[key] for key in keys)
        return (*head, *((a or {}).get(name) for name in mine), *((b or {}).get(name) for name in others))

    return counted([row(a, b) for a, b in pairs])


@pytest.mark.feature("J6", "Q1")
@given(
    kind=st.sampled_from(KINDS),
    keys=st.sampled_from([("k",), ("f",), ("k", "f"), ()]),
    condition=st.sampled_from(["", CONDITION]),
    ttl=st.sampled_from([None, None, 60]),
    most=st.sampled_from([sides.MOST, 2]),
    seed=st.integers(0, 10_000),
)
def test_rows_minus_retractions_are_the_join_at_every_cut(
    kind: str, keys: tuple[str, ...], condition: str, ttl: int | None, most: int, seed: int
) -> None:
    """``most``: rows of a part of a side; of a key with more the state is many entries."""
    operator = (
        operator_of(kind, keys, condition, None if ttl is None else f"{ttl} minutes")
        if keys
        else crossed(kind, condition)
    )
    bound = ttl * MINUTE if ttl is not None and keys else None
    rows = history(seed)
    with patch.multiple(sides, MOST=most, FEWEST=1):
        for done, answer in answers(operator, rows, seed):
            assert answer == by_hand(rows[:done], kind, keys, condition, bound)
        answer, retractions = bounded(operator, rows)
    assert answer == by_hand(rows, kind, keys, condition, bound)
    assert not retractions, "a bounded run emits the final rows alone"


def crossed(kind: str, condition: str) -> Operator:
    """A join without keys."""

    @fm.operator(inputs=CHANGING)
    def all_pairs(lefts, rights):
        other = rights.select("k", "f", "b", "note", "seen")
        return lefts.regular_join(other, kind=kind, on=condition, prefix="r_")

    return all_pairs


JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
ON = [
    "l.k = r.k",
    "l.f = r.f AND l.k = r.k",
    "l.k = r.k AND l.a < r.b",
    "l.k = r.k AND r.note = 'x'",
    "l.k = r.k AND l.a > 0",
    "l.a + 1 = r.b + 1 AND l.price > 0",
    "l.f = r.k",
    "l.a >= r.b OR r.note IS NULL",
]
WHERE = ["", "WHERE l.a >= 0", "WHERE l.f IS NULL OR l.price IS NOT NULL"]


@pytest.mark.feature("J6", "Q1")
@given(
    join=st.sampled_from(JOINS),
    condition=st.sampled_from(ON),
    where=st.sampled_from(WHERE),
    seed=st.integers(0, 10_000),
)
def test_a_join_that_emits_changes_answers_as_duckdb_does_at_every_cut(
    join: str, condition: str, where: str, seed: int
) -> None:
    small = "l.a BETWEEN -1 AND 3" if "+ 1" in condition else "TRUE"  # 2^63 - 1 + 1 is an error in both
    one_sided = "SEMI" in join or "ANTI" in join
    columns = "l.k, l.a, l.price" if one_sided else "l.k, l.a, l.price, r.k AS other, r.b, r.note, r.f"
    few = "(SELECT * FROM rights WHERE b BETWEEN -1 AND 3)" if "+ 1" in condition else "rights"
    lefts = f"(SELECT * FROM lefts WHERE {small.replace('l.', '')})"
    sql = f"SELECT {columns} FROM {lefts} AS l {join} {few} AS r ON {condition} {where}"
    operator = fm.sql_operator("joined", f"{sql} EMIT CHANGES", inputs=CHANGING)
    rows, question = history(seed, 30), sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    for done, answer in answers(operator, rows, seed)[-4:]:
        assert answer == asked(question, rows[:done])


@pytest.mark.feature("J6")
@given(
    kind=st.sampled_from(["inner", "left", "full", "anti"]),
    retracted=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 10_000),
)
def test_a_row_comes_out_with_the_sign_of_its_own_zeros(kind: str, retracted: float, seed: int) -> None:
    operator, alike = operator_of(kind, ("k",), "", None), ("a", "price", "b", "note")
    rows = [
        (name, row | {part: None for part in alike if part in row} | {"at" if name == "lefts" else "seen": BEGIN})
        for name, row in history(seed, 30, retracted=retracted)
    ]

    def signed(outputs: Mapping[str, Any]) -> Any:
        table = outputs[""]
        for name in ("f", "r_f"):
            if name in table.column_names:
                texts = pa.array([None if f is None else str(f) for f in table[name].to_pylist()], pa.string())
                table = table.set_column(table.column_names.index(name), name, texts)
        return emitted({"": table})

    def expected(done: int) -> Any:
        some = [(name, row | {"f": None if row["f"] is None else str(row["f"])}) for name, row in rows[:done]]
        return by_hand(some, kind, ("k",), "", None)

    with patch.object(changing, "emitted", signed):
        for done, answer in answers(operator, rows, seed):
            assert answer == expected(done)
        assert bounded(operator, rows)[0] == expected(len(rows))


@pytest.mark.feature("J6")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_undoes_a_retraction_before_it_whose_zero_has_another_sign(kind: str) -> None:
    operator, time = operator_of(kind, ("k",), "", None), to_ms(BEGIN)

    def stored(zero: float) -> tuple[Any, bytes]:
        run, out = MemoryRun(operator), counted([])
        left, right = {"at": BEGIN, "a": 1, "price": None}, {"seen": BEGIN, "f": 1.5, "b": 2, "note": None}
        steps = [("rights", right, ROW), ("lefts", left | {"f": -0.0}, RETRACTION), ("lefts", left | {"f": zero}, ROW)]
        for number, (name, row, sign) in enumerate(steps):
            stamps = {"_event_time": time, "_watermark": time - 1, "_sequence": number, "_kind": sign}
            part = [(name, {"k": 1} | row | stamps)]
            out.update(emitted(run.batch(tables(operator, part, {"lefts": 0, "rights": 0}))))
        return {row: times for row, times in out.items() if times}, pickle.dumps(run.savepoint())

    assert stored(0.0) == stored(-0.0)


class Unsearched(dict[Any, Any]):
    """A part whose rows are not looked through."""

    def __iter__(self) -> Any:
        raise AssertionError

    items = __iter__


@pytest.mark.feature("J6")
def test_a_row_with_few_zeros_is_looked_up_and_not_searched_for() -> None:
    form = JoinForm(operator_of("left", ("k",), "", None).stages[0])  # type: ignore[arg-type]  # a keyed process
    for values in ((1, math.nan, 0, None), (1, 0.5, 0, None)):
        item = form.item(values, 7)
        assert regular._owed(Unsearched({item: None}), item, values) is item
    for zero, other in ((0.0, -0.0), (-0.0, 0.0), ([1.0, -0.0], [1.0, 0.0])):
        item, owed = form.item((1, zero), 7), form.item((1, other), 7)
        assert repr(regular._owed(Unsearched({owed: Row((1, other), -1, 0)}), item, (1, zero))) == repr(owed)
        assert regular._owed(Unsearched({owed: Row((1, other), 1, 0)}), item, (1, zero)) is item
    many = [(1, *signs) for signs in ((0.0,) * 5, (0.0,) * 4 + (-0.0,))]
    first, second = (form.item(values, 7) for values in many)
    assert regular._owed({second: Row(many[1], -1, 0)}, first, many[0]) == second


class Listed(fm.Contract):
    """Rows with numbers in a list."""

    at: fm.EventTime
    k: int | None = None
    xs: list[float] | None = None


@fm.operator(inputs={"lefts": source("lefts", Listed), "rights": RIGHTS})
def with_lists(lefts, rights):
    """Every row of the left side, with those of the right side or alone."""
    return lefts.key_by("k").regular_join(rights.select("k", "b").key_by("k"), kind="left", prefix="r_")


@pytest.mark.feature("J6")
@given(minutes=st.sampled_from([0, 5]), seed=st.integers(0, 10_000))
def test_rows_with_lists_are_taken_back_at_another_time(minutes: int, seed: int) -> None:
    rows = [
        (name, row | {"xs": None if row["f"] is None else [row["f"], 1.0], "at": BEGIN, "seen": BEGIN})
        for name, row in history(seed, 30)
        if row["k"] is not None  # rows of a null key are in no state: each goes out with its own time
    ]
    later = [
        (name, row | {"_event_time": row["_event_time"] + (minutes * MINUTE if row["_kind"] == RETRACTION else 0)})
        for name, row in rows
    ]

    def texts(outputs: Mapping[str, Any]) -> Any:
        table = outputs[""]
        lists = pa.array([None if xs is None else str(xs) for xs in table["xs"].to_pylist()], pa.string())
        return emitted({"": table.set_column(table.column_names.index("xs"), "xs", lists)})

    def expected(done: int) -> Any:
        left = remaining(rows[:done])
        pairs = joined(left["lefts"], left["rights"], "left", lambda a, b: a["k"] == b["k"])
        return counted([(a["k"], a["at"], a["xs"] and str(a["xs"]), b and b["b"]) for a, b in pairs if a])

    with patch.object(changing, "emitted", texts):
        for done, answer in answers(with_lists, later, seed):
            assert answer == expected(done)
        assert bounded(with_lists, later) == (expected(len(rows)), 0)


INNER = [
    "l.k IN (SELECT k FROM rights WHERE b > 0)",
    "l.k NOT IN (SELECT k FROM rights WHERE note = 'x')",
    "NOT l.a + 0 IN (SELECT b FROM rights WHERE k IS NOT NULL AND b IS NOT NULL)",
    "EXISTS (SELECT 1 FROM rights AS r WHERE r.k = l.k AND r.b > l.a)",
    "NOT EXISTS (SELECT * FROM rights AS r WHERE r.f = l.f AND r.note IS NOT NULL)",
    "NOT EXISTS (SELECT 1 FROM rights AS r)",
]


@pytest.mark.feature("J6", "Q1")
@given(condition=st.sampled_from(INNER), also=st.sampled_from(["", "AND l.price > 0"]), seed=st.integers(0, 10_000))
def test_a_subquery_in_where_is_a_join_whose_results_change(condition: str, also: str, seed: int) -> None:
    sql = f"SELECT l.k, l.a, l.price FROM (SELECT * FROM lefts WHERE a < 5 OR a IS NULL) AS l WHERE {condition} {also}"
    operator = fm.sql_operator("inner", f"{sql} EMIT CHANGES", inputs=CHANGING)
    rows = history(seed, 30)
    for done, answer in answers(operator, rows, seed)[-4:]:
        assert answer == asked(sql, rows[:done])


class Balance(fm.Contract):
    """A row more or less of a key, and how many were taken back before they came."""

    rows: int
    early: int


class Counting(fm.ProcessFunction):
    """Rows of a key, by their values."""

    known = fm.MapState(str, int)

    def on_element(self, row, ctx):
        yield from self.counted(row, 1)

    def on_retract(self, row, ctx):
        yield from self.counted(row, -1)

    def counted(self, row, sign):
        name = repr(sorted(row.items()))
        self.known.put(name, self.known.get(name, 0) + sign)
        values = list(self.known.values())
        yield {"rows": sign, "early": sum(value < 0 for value in values)}


@fm.operator(inputs=CHANGING)
def balanced(lefts, rights):
    """A process function behind a join whose rows are taken back."""
    few = lefts.select("k", "a").key_by("k").regular_join(rights.select("k", "b").key_by("k"), kind="left")
    return few.key_by("k").process(Counting(), schema=Balance)


@pytest.mark.feature("Q1")
@given(seed=st.integers(0, 10_000))
def test_a_process_function_is_never_told_of_a_retraction_before_its_row(seed: int) -> None:
    rows = history(seed, 30)
    once, cut = bounded(balanced, rows)[0], answers(balanced, rows, seed)[-1][1]
    assert not any(early for _, (_, _, early) in [*once, *cut])
    assert balances(once) == balances(cut)


def balances(answer: Any) -> dict[Any, int]:
    """Key -> how many rows of it there are in the end."""
    sums: dict[Any, int] = {}
    for (_, (key, change, _)), times in answer.items():
        sums[key] = sums.get(key, 0) + change * times
    return {key: rows for key, rows in sums.items() if rows}
