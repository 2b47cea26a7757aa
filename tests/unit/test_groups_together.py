"""Several key groups in one call of a kernel: the rows, counts, timers and bytes of state of one call per group."""

from __future__ import annotations

import itertools
import random
from builtins import sum as total
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from events import START, Event
from streams import CLOCKED, ONCE, VISITS, WATCHED

from floodmark import (
    AfterCount,
    BroadcastProcessFunction,
    BroadcastState,
    Contract,
    Counter,
    Gauge,
    ListState,
    Operator,
    ProcessFunction,
    Session,
    Stream,
    Timer,
    Tumbling,
    ValueState,
    count,
    operator,
    sum,
)
from floodmark.core.time import END, NEVER, to_ms
from floodmark.engines.embedded.memory.rows import Rows
from floodmark.semantics.encoding.columns import decode
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage, arrived
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.keyed import KeyedKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.keyed.metric import Part, merge
from floodmark.testing.log import Log

GROUPS, ROWS = 16, 300


class Told(Contract):
    """A value and how many there were."""

    value: int
    seen: int


class Telling(ProcessFunction):
    """Counts, fails now and then, sends rows aside, takes rows back."""

    seen, odd, last = ValueState(int), Counter(), Gauge()
    later = Timer()

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Tell of a row."""
        self.seen.update(self.seen.get(0) + 1)
        self.last.set(row["value"])
        self.later.set(ctx.timestamp + 600_000)
        if row["value"] % 17 == 0:
            raise ValueError(row["value"])
        told = {"value": row["value"], "seen": self.seen.get()}
        if row["value"] % 3:
            self.odd.add(1)
            ctx.output("aside", told)
        if row["value"] % 5 == 0:
            ctx.retract(told)
        else:
            yield told

    def on_timer(self, timer: str, ctx: Any) -> Iterator[dict[str, Any]]:
        """Tell of the end."""
        yield {"value": -1, "seen": self.seen.get(0)}


def _telling(order: str) -> Operator:
    def code(events: Stream[Event]) -> Stream:
        keyed = events.key_by("key")
        return keyed.process(Telling(), schema=Told, sides={"aside": Told}, on_error="quarantine", order=order)  # type: ignore[arg-type]

    return operator(code, name=f"telling_{order}")


def _counted(events: Stream[Event]) -> Stream:
    """Early panes that are revised, and rows that are too late, set aside."""
    windowed = events.key_by("key").window(
        Tumbling("10 minutes"), trigger=AfterCount(2), allowed_lateness="5 minutes", late="side_output"
    )
    return windowed.aggregate(n=count(), total=sum("value"))


def _final(events: Stream[Event]) -> Stream:
    """Sessions that fire once."""
    return events.key_by("key").window(Session("4 minutes")).aggregate(n=count(), total=sum("value"))


class Ruling(BroadcastProcessFunction):
    """Adds what a rule says, and forgets rules."""

    rules, last = BroadcastState(str, int), ListState(int)

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        """Tell of a row."""
        self.last.update([*list(self.last.get())[-2:], row["value"]])
        yield {"value": row["value"] + (self.rules.get("more") or 0), "seen": len(list(self.last.get()))}

    def on_broadcast(self, row: Any, ctx: Any) -> None:
        """A rule comes, or the rules go."""
        if row["value"] % 4 == 0:
            self.rules.remove("more")
        else:
            self.rules.put("more", row["value"])


def _ruled(events: Stream[Event]) -> Stream:
    """Rows and rules, in order of event time."""
    rules = events.filter("value % 29 = 0")
    return events.filter("value % 7 = 1").key_by("key").connect(rules.broadcast()).process(Ruling(), schema=Told)


RULED: Operator = operator(_ruled, name="ruled")


KINDS = (
    WATCHED,
    VISITS,
    ONCE,
    CLOCKED,
    _telling("arrival"),
    _telling("event_time"),
    operator(_counted, name="counted"),
    operator(_final, name="final"),
    RULED,
)


def _rows(code: Operator, stage: ElementStage | ProcessStage, seed: int) -> pa.Table:
    """Rows of 60 keys, up to 24 minutes late, as the stage gets them."""
    rng, log = random.Random(seed), Log(code.inputs[0].schema)
    start = to_ms(START)
    for n in range(ROWS):
        event = start + (n - rng.randrange(25)) * 20_000
        log.rows([{"at": event, "key": f"k{rng.randrange(60)}", "value": n}], "at", 60_000)
    table = log.table()
    rows = Rows()
    return rows.of_stage(stage, rows.of(stage.step.parent, {code.inputs[0].name: table}))


def _one_by_one(
    stage: ElementStage | ProcessStage,
    stores: Mapping[int, MemoryStore],
    rows: pa.Table,
    progress: int,
    ticks: list[Tick],
) -> tuple[list[Emission], dict[int, tuple[int | None, int | None]]]:
    parts, emissions, waits = stage.pack(rows.to_batches()), [], {}
    for group, store in stores.items():
        emission = kernel_of(stage, store).advance([parts.get(group, {})], progress, ticks)
        waits[group] = emission.deadline, emission.tick
        emissions.append(emission)
    return emissions, waits


def _numbered(emissions: list[Emission]) -> dict[str, list[dict[str, Any]]]:
    """All rows by output, numbered over all emissions."""
    rows: dict[str, list[dict[str, Any]]] = {}
    offset = 0
    for emission in emissions:
        tables = {"": emission.results, **emission.sides}
        orders = [pc.max(table["_order"]).as_py() for table in tables.values() if table.num_rows]
        for name, table in tables.items():
            found = [row | {"_order": row["_order"] + offset} for row in table.to_pylist()]
            rows.setdefault(name, []).extend(found)
        offset += max(orders) + 1 if orders else 0
    for name in ("side", "failed"):
        tables = [table for emission in emissions if (table := getattr(emission, name)) is not None]
        rows[f"{name} rows"] = [row for table in tables for row in table.to_pylist()]
    return {name: found for name, found in rows.items() if found}


def _chunks(store: MemoryStore) -> dict[int, object]:
    """The chunks, those of waiting rows as tables: the same rows may have other bytes where they were part of a larger table."""
    return {number: decode(chunk) if number < 0 else chunk for number, chunk in store.chunks.items()}


def _metrics(emissions: list[Emission]) -> Mapping[str, Part]:
    return merge([emission.metrics for emission in emissions])


@pytest.mark.feature("K10")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
@pytest.mark.few(9)
def test_groups_of_one_call_have_what_each_has_alone(code: Operator, seed: int) -> None:
    stage = stage_of(code.grouped(GROUPS))
    assert isinstance(stage, (ElementStage, ProcessStage))
    rows = _rows(code, stage, seed)
    alone, together = ({group: MemoryStore() for group in range(GROUPS)} for _ in range(2))
    cuts, rng, emitted = [0, 70, 71, 71, 180, rows.num_rows, rows.num_rows], random.Random(seed), 0
    progress, clock = NEVER, to_ms(START)
    for number, (first, stop) in enumerate(itertools.pairwise(cuts)):
        batch = rows.slice(first, stop - first)
        progress = END if number == len(cuts) - 2 else max(progress, pc.max(batch["w"]).as_py() or NEVER)
        clock += rng.choice([0, 700, 5_000])
        ticks = [Tick(clock)] if stage.step.clocked else []
        each, waits = _one_by_one(stage, alone, batch, progress, ticks)
        kernel = kernel_of(stage, together[0])
        assert isinstance(kernel, KeyedKernel)
        nothing = rows.slice(0, 0)
        turns = kernel.advance_all(
            together, arrived(batch.to_batches(), stage.keys).get("rows", nothing), progress, ticks
        )
        assert turns.waits == waits
        got = _numbered([turns.emission])
        assert got == _numbered(each)
        assert (turns.emission.late, turns.emission.dropped) == tuple(
            total(getattr(emission, name) for emission in each) for name in ("late", "dropped")
        )
        assert _metrics([turns.emission]) == _metrics(each)
        assert [(store.head, _chunks(store)) for store in together.values()] == [
            (store.head, _chunks(store)) for store in alone.values()
        ]
        emitted += len(got.get("", ()))
    assert emitted


@pytest.mark.feature("K10")
def test_a_rule_is_computed_once_for_all_groups_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(RULED.grouped(500))
    assert isinstance(stage, ProcessStage)
    rows, turns, turn = _rows(RULED, stage, 5), list[int](), KeyedKernel._turn
    monkeypatch.setattr(KeyedKernel, "_turn", lambda *given: (turns.append(1), turn(*given))[1])
    alone, together = ({group: MemoryStore() for group in range(500)} for _ in range(2))
    keys, tagged = set(), 0
    for first, stop in ((0, rows.num_rows // 2), (rows.num_rows // 2, rows.num_rows), (0, 0)):
        batch = rows.slice(first, stop - first)
        progress = pc.max(batch["w"]).as_py() if stop else END
        _, waits = _one_by_one(stage, alone, batch, progress, [])
        turns.clear()
        kernel = kernel_of(stage, together[0])
        assert isinstance(kernel, KeyedKernel)
        assert (
            kernel.advance_all(together, arrived(batch.to_batches(), stage.keys).get("rows"), progress).waits == waits
        )
        assert [(s.head, _chunks(s)) for s in together.values()] == [(s.head, _chunks(s)) for s in alone.values()]
        keys |= {row["k0"] for row in batch.to_pylist() if row["v0"] != stage.step.broadcast}
        tagged += total(row["v0"] == stage.step.broadcast for row in batch.to_pylist())
        assert len(turns) <= len(keys) + 1
    assert len(keys) < 60
    assert tagged > 500
