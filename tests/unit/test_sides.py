"""Regular joins of a key with many rows: a micro-batch reads and writes parts of its state; other versions, key groups and questions see whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from changing import BEGIN, CHANGING, tables

import floodmark as fm
from floodmark.core.time import END, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.kernels.functions.sides import MOST, states_of
from floodmark.semantics.kernels.regrouping import join, pieces
from floodmark.semantics.kernels.stage import stage_of
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing.proof import Answer, tally


def joined(columns: str = "l.a, r.b", kind: str = "LEFT JOIN", on: str = "", within: str = "") -> Operator:
    sql = f"SELECT {columns} FROM lefts AS l {kind} rights AS r ON l.k = r.k {on} EMIT CHANGES"
    return fm.sql_operator("both", sql, inputs=CHANGING, **({"within": within} if within else {}))


def entry(table: str, number: int, kind: int = ROW, **values: Any) -> tuple[str, dict[str, Any]]:
    """A row of a table, which comes as the number-th."""
    at = BEGIN + timedelta(seconds=number)
    row = {"k": 1, "f": None, "at" if table == "lefts" else "seen": at} | values
    return table, row | {"_event_time": to_ms(at), "_watermark": 0, "_sequence": number, "_kind": kind}


def fed(run: MemoryRun, rows: list[tuple[str, dict[str, Any]]]) -> Answer:
    """What a micro-batch emits."""
    out = run.batch(tables(run.operator, rows, dict.fromkeys(CHANGING, 0)))[""]
    return tally("", out.select([*run.operator.outputs[0].schema.names, "_kind"]))


MANY = [entry("lefts", number, a=number) for number in range(60 * MOST)]


def stored(run: MemoryRun) -> dict[int, bytes]:
    """All chunks of state, of the key group with the most."""
    return max((store.chunks for store in run.state.stores.values()), key=len)


@pytest.mark.feature("J6")
def test_one_more_row_of_a_key_with_many_writes_a_part_of_its_state() -> None:
    run = MemoryRun(joined())
    fed(run, MANY)
    before = dict(stored(run))
    fed(run, [entry("lefts", 10**6, a=-1)])
    written = {number: chunk for number, chunk in stored(run).items() if before.get(number) != chunk}
    assert sum(map(len, written.values())) < sum(map(len, before.values())) / 5
    assert sum(fed(run, [entry("rights", 10**6 + 1, b=7)]).values()) == 0  # each row on its own becomes a pair
    assert len(stored(run)) > 4


@pytest.mark.feature("J6")
@pytest.mark.parametrize("within", ["", "30 days"])
def test_rows_of_many_parts_are_taken_back_one_by_one_and_leave_nothing(within: str) -> None:
    run, total = MemoryRun(joined(within=within)), Answer()
    total.update(fed(run, [*MANY, entry("rights", 10**6, b=7)]))
    assert sum(total.values()) == len(MANY)
    for start in range(0, len(MANY), 960):
        gone = [
            (name, row | {"_kind": RETRACTION, "_sequence": row["_sequence"] + 10**7})
            for name, row in MANY[start : start + 960]
        ]
        total.update(fed(run, gone))
    assert not +total
    total.update(fed(run, [entry("rights", 2 * 10**6, RETRACTION, b=7)]))
    assert not any(
        len(KeyGroup.open(store).get((1,)).value[2])
        for store in run.state.stores.values()
        if KeyGroup.open(store).get((1,))
    )
    assert not any(store.chunks for store in run.state.stores.values())


@pytest.mark.feature("J6")
def test_a_version_that_reads_other_columns_finds_rows_of_many_parts() -> None:
    run = MemoryRun(joined("l.a, r.b"))
    fed(run, MANY)
    later = MemoryRun(joined("l.a, l.price, r.b"), run.savepoint())
    gone = [(name, row | {"_kind": RETRACTION, "_sequence": 10**7}) for name, row in MANY[:3]]
    assert fed(later, gone) == Answer({("", (row["a"], None, None)): -1 for _, row in MANY[:3]})


@pytest.mark.feature("J6")
def test_rows_of_many_parts_move_to_other_key_groups_and_are_seen_whole() -> None:
    run = MemoryRun(joined(on="AND l.a < r.b"))
    fed(run, [*MANY, entry("rights", 10**6, b=100), entry("lefts", 10**6, k=2, a=1)])
    stage, target = stage_of(run.operator), MemoryStore()
    assert stage is not None
    for store in run.state.stores.values():
        for piece in pieces(stage, store):
            chosen = np.asarray(piece.keys["k0"].to_pylist()) == 1
            join(stage, target, [piece.part(chosen)] if chosen.any() else [])
    group = KeyGroup.open(target)
    whole = group.get((1,))
    assert whole is not None
    assert len(states_of(whole, group)["left"]) == len(MANY)
    assert [row[2] for row in states_of(whole, group)["right"]] == [100]
    moved = MemoryRun(run.operator, run.savepoint())
    moved.state.stores = {next(n for n, store in run.state.stores.items() if KeyGroup.open(store).get((1,))): target}
    ends = dict.fromkeys(CHANGING, END)
    assert not tally_of(moved.batch(tables(run.operator, [], ends)))
    change = fed(moved, [entry("rights", 3 * 10**6, RETRACTION, b=100)])
    assert sum(times for times in change.values() if times > 0) == 100


def tally_of(outputs: Mapping[str, pa.Table]) -> Answer:
    """The rows of a result."""
    return tally("", outputs[""].select(["a", "b", "_kind"]))


@pytest.mark.feature("J6")
def test_a_row_that_is_taken_back_with_the_other_zero_leaves_nothing() -> None:
    operator = joined("l.f, r.b", on="AND r.b > 0")
    rows = [entry("lefts", 1, f=-0.0), entry("lefts", 1, RETRACTION, f=0.0, _sequence=2)]

    def emitted(*parts: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, int]]:
        run = MemoryRun(operator)
        tables_of = [run.batch(tables(operator, part, dict.fromkeys(CHANGING, END)))[""] for part in parts]
        return [(str(r["f"]), r["_kind"]) for t in tables_of for r in t.to_pylist() if r["_kind"] in (ROW, RETRACTION)]

    assert emitted(rows) == []
    assert emitted(rows[:1], rows[1:]) == [("-0.0", ROW), ("-0.0", RETRACTION)]
