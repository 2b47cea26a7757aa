"""Every rule of time, broken on its own, is caught: chains and pairs of operators that agree under all cuts no longer do.

The rules are those of docs/concepts.md; what is broken is patched into the real kernels and hosts, so a rule that nothing needs would
show here too.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import simulation
from chains import chain, drive, equal, landed
from simulation import SimulatedRun, cuts, run_batch, settle

from floodmark import (
    AfterWatermark,
    Contract,
    EventTime,
    Every,
    ListState,
    ProcessFunction,
    Session,
    Stream,
    Tumbling,
    ValueState,
    count,
    operator,
    sum,
)
from floodmark.core.time import NEVER, from_ms
from floodmark.engines.embedded.memory import run as engine
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.kernels import columnar, revisions
from floodmark.semantics.kernels.arrivals import Waiting
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.panes import RecordWindowKernel
from floodmark.semantics.time.assignment import Lateness, classify_lateness
from floodmark.spec.graph.operator import Operator
from floodmark.spec.keyed.state import State
from floodmark.testing.log import Log

SEEDS = 40
Patch = pytest.MonkeyPatch


class Reading(Contract):
    """A number of a sensor."""

    at: EventTime
    sensor: str
    value: int


# ---- the worlds: each says whether a seed gives the same answer however it is cut


def chains_agree(seed: int) -> bool:
    """Three windowed operators, revisions and all, in random micro-batches of each link."""
    operators, rows = chain(seed), landed(seed)
    try:
        expected = drive(operators, rows, None)
        got = drive(operators, rows, random.Random(seed))
    except AssertionError:  # a retraction that takes back what was never said
        return False
    return all(equal(mine[0], theirs[0]) and mine[2] == theirs[2] for mine, theirs in zip(got, expected, strict=True))


def revisions_are_whole(seed: int) -> bool:
    """How many windows there are never goes down while their values are revised."""

    @operator
    def sums(readings: Stream[Reading]) -> Stream:
        windowed = readings.key_by("sensor").window(Tumbling("5ms"), allowed_lateness="30ms")
        return windowed.aggregate(total=sum("value"))

    @operator(inputs={"totals": sums})
    def counted(totals: Stream) -> Stream:
        return totals.window(Tumbling("20ms"), allowed_lateness="10ms").aggregate(windows=count(), total=sum("total"))

    rng, first, second = random.Random(seed), SimulatedRun(sums), SimulatedRun(counted)
    revised: list[Any] = []
    for batch in [*cuts(landed(seed), rng), None]:
        out = settle(first) if batch is None else run_batch(first, batch, rng)
        for piece in cuts(out, rng):
            revised += run_batch(second, piece, rng)
    seen: dict[Any, int] = {}
    for row in [*revised, *settle(second)]:
        if row["_kind"] == 0:
            if row["windows"] < seen.get(row["window_end"], 0):
                return False
            seen[row["window_end"]] = row["windows"]
    return bool(seen)


@operator
def relay(readings: Stream[Reading]) -> Stream:
    """Rows as they are, in another operator's table."""
    return readings.filter("value IS NOT NULL")


def visits(lateness: str) -> Operator:
    """Sessions over two inputs, which arrive as their operators happen to run."""

    @operator(name="visits", inputs={"left": relay, "right": relay})
    def body(left: Stream, right: Stream) -> Stream:
        windowed = left.union(right).key_by("sensor").window(Session("6ms"), allowed_lateness=lateness)
        return windowed.aggregate(total=sum("value"))

    return body


def written(seed: int, rows: int = 40) -> Log:
    """A log with much disorder and a bound of 3."""
    rng, log, top = random.Random(seed), Log(relay.inputs[0].schema), -1
    for place in range(rows):
        time = max(0, place + rng.choice([0, 0, 0, -2, -4, -9, -15, -30]))
        log.row({"at": from_ms(time), "sensor": rng.choice("ab"), "value": rng.randint(1, 9)}, time)
        top = max(top, time)
        log.watermark = max(log.watermark, top - 4)
    log.end()
    return log


def sessions_agree(seed: int) -> bool:
    return sessions(seed, None) == sessions(seed, random.Random(seed))


def sessions(seed: int, rng: random.Random | None) -> tuple[Any, int]:
    """Final sessions and late rows, of two relayed logs in random micro-batches, interleaved at random."""
    feeds = {}
    for side, name in enumerate(("left", "right")):
        log, run = written(2 * seed + side), MemoryRun(relay)
        tables = [run.batch({"readings": log.table(i, j)})[""] for i, j in cut(log, rng)]
        feeds[name] = [shuffled(table, rng) for table in tables]
    run, out = MemoryRun(visits("3ms" if seed % 2 else "0ms")), []
    while any(feeds.values()):
        name = (rng or random).choice([n for n in feeds if feeds[n]])
        if rng is None:
            taken = {n: pa.concat_tables(feeds[n]) for n in feeds}
            feeds = {n: [] for n in feeds}
        else:
            taken = {name: feeds[name].pop(0)}
        out += run.batch(taken)[""].to_pylist()
    return last_values(out, ("sensor", "window_start", "window_end"), "total"), run.state.dropped


def cut(log: Log, rng: random.Random | None) -> list[tuple[int, int]]:
    """(first, after last) entry of each micro-batch."""
    places = [0]
    while places[-1] < len(log.entries):
        size = rng.choice([1, 2, 5, 30]) if rng else len(log.entries)
        places.append(min(places[-1] + size, len(log.entries)))
    return list(itertools.pairwise(places))


def shuffled(table: pa.Table, rng: random.Random | None) -> pa.Table:
    """An operator's commit has no order inside; its marker comes last."""
    order = list(range(table.num_rows - 1))
    if rng:
        rng.shuffle(order)
    return table.take(pa.array([*order, table.num_rows - 1], pa.int64()))


def last_values(rows: list[dict[str, Any]], keys: tuple[str, ...], column: str) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        if row["_kind"] != 1:
            found[(*(row[k] for k in keys), row[column])] += 1 if row["_kind"] == 0 else -1
    return +found


@operator
def watched(readings: Stream[Reading]) -> Stream:
    """Event-time windows with early results every four ticks of the clock."""
    early = AfterWatermark().early(Every("4ms", time="processing"))
    return readings.key_by("sensor").window(Tumbling("10ms"), trigger=early).aggregate(n=count(), total=sum("value"))


def clocks_agree(seed: int) -> bool:
    """What a stream does at random ticks, one at the start of each micro-batch, is what a replay of its record does in one piece."""
    rng, log = random.Random(seed), written(seed)
    live, clock, out, record = MemoryRun(watched), 0, [], []
    for first, after in cut(log, rng):
        clock += rng.choice([1, 2, 3, 9])
        tick = {"_event_time": clock, "_kind": 2, "_watermark": live.progress, "_progress": live.progress}
        tick["_sequence"] = 2 * first - 1
        record.append(tick)
        out += live.batch({"readings": numbered(log, first, after, [tick])})[""].to_pylist()
    whole = MemoryRun(watched).batch({"readings": numbered(log, 0, len(log.entries), record)})[""].to_pylist()
    return panes(out) == panes(whole)


def numbered(log: Log, first: int, after: int, ticks: list[dict[str, Any]]) -> pa.Table:
    """Entries of a log and ticks; places of rows are even, so that ticks fit between them."""
    entries = [entry | {"_sequence": 2 * entry["_sequence"]} for entry in log.entries[first:after]]
    return pa.Table.from_pylist([*ticks, *entries], schema=log.table(0, 0).schema)


def panes(rows: list[dict[str, Any]]) -> Counter[Any]:
    """Every pane, with its stamp."""
    names = ("sensor", "window_end", "n", "total", "_watermark", "_kind")
    return Counter(tuple(row[name] for name in names) for row in rows if row["_kind"] != 1)


class Recent(ProcessFunction):
    """What a key has seen in 9 ms."""

    last = ValueState(int, ttl="9ms")
    recent = ListState(int, ttl="9ms")

    def on_element(self, row: Any, ctx: Any) -> Any:
        yield {"seen": f"{row['value']} {self.last.get()} {self.recent.get()}"}
        self.last.update(row["value"])
        self.recent.append(row["value"])


class Seen(Contract):
    """A text."""

    seen: str


@operator
def recent(readings: Stream[Reading]) -> Stream:
    """State with a time to live, in order of arrival."""
    return readings.key_by("sensor").process(Recent(), schema=Seen)


def keys_are_alone(seed: int) -> bool:
    """Of rows on time, the answer for a key is the same with and without the rows of other keys."""
    rng = random.Random(seed)
    times = sorted((n * 5 + rng.randrange(20), n) for n in range(40))
    rows = [(time, number, rng.choice("ab")) for time, number in sorted(times, key=lambda row: row[1])]
    return seen_of("a", rows) == seen_of("a", [row for row in rows if row[2] == "a"])


def seen_of(sensor: str, rows: list[tuple[int, int, str]]) -> Counter[Any]:
    """What is said of a sensor; the watermark is 21 ms behind."""
    log = Log(recent.inputs[0].schema)
    for time, value, key in rows:
        log.row({"at": from_ms(time), "sensor": key, "value": value}, time)
        log.watermark = max(log.watermark, time - 21)
    log.end()
    found = MemoryRun(recent).batch({"readings": log.table(0, len(log.entries))})[""].to_pylist()
    return Counter((row["_event_time"], row["seen"]) for row in found if row["sensor"] == sensor)


# ---- the rules, broken one by one


def judged_by_progress(patch: Patch) -> None:
    """Lateness by how far the run has got, not by the row's own stamp."""
    table = SimulatedRun._table

    def broken(self: SimulatedRun, rows: Any) -> pa.RecordBatch:
        return table(self, [row | {"_watermark": self.now} for row in rows])

    patch.setattr(SimulatedRun, "_table", broken)


def stamped_by_batch(patch: Patch) -> None:
    """Results say the progress of the micro-batch they came in, not that of their cause."""
    row = SimulatedRun._row
    patch.setattr(SimulatedRun, "_row", lambda self, found, base: row(self, found, base) | {"_watermark": self.now})


def late_rows_on_time(patch: Patch) -> None:
    """A late row within the lateness enters the on-time pane, if that is not out yet."""

    def broken(assigner: Any, lateness: int, times: Any, stamps: Any) -> Lateness:
        lenient = classify_lateness(assigner, 0, times, stamps - lateness)
        return Lateness(*[getattr(lenient, name) for name in Lateness.__slots__])

    patch.setattr(columnar, "classify_lateness", broken)


def progress_too_new(patch: Patch) -> None:
    """A commit says the progress that its own micro-batch has reached."""

    def broken(run: SimulatedRun, rows: Any, rng: random.Random | None = None) -> Any:
        run._said = max(run.now, *(row["_progress"] for row in rows), NEVER) if rows else run.now
        return run.batch(rows, rng)

    patch.setattr(simulation, "run_batch", broken)
    patch.setitem(drive.__globals__, "run_batch", broken)


def pairs_apart(patch: Patch) -> None:
    """A retraction and what replaces it are two units, so that there is a pane between them."""

    def broken(ids: Any, sequences: Any) -> Any:
        return turns(ids, np.arange(len(sequences)))

    turns = revisions._turns
    patch.setattr(revisions, "_turns", broken)


def maximum_progress(patch: Patch) -> None:
    """The fastest input decides."""
    fastest = property(lambda self: max(self.state.progress.get(i.name, NEVER) for i in self.operator.inputs))
    patch.setattr(MemoryRun, "progress", fastest)


def as_they_arrive(patch: Patch) -> None:
    """Rows of several inputs are taken in the order in which they happen to come."""
    staged = engine.stage_of

    def broken(what: Operator) -> Any:
        stage = staged(what)
        return ElementStage(stage.step, by_time=False) if isinstance(stage, ElementStage) else stage

    patch.setattr(engine, "stage_of", broken)


def judged_as_stamped(patch: Patch) -> None:
    """Rows sorted by effective time are judged by the stamp they came with, not by their place."""
    ordered = Waiting.ordered

    def broken(self: Waiting, rows: pa.Table | None, progress: int) -> Any:
        stamps = {} if rows is None else dict(zip(rows["s"].to_pylist(), rows["w"].to_pylist(), strict=True))
        arrivals, spans = ordered(self, rows, progress)
        table = arrivals.table
        if table.num_rows:
            own = [stamps.get(s, w) for s, w in zip(table["s"].to_pylist(), table["w"].to_pylist(), strict=True)]
            arrivals.table = table.set_column(table.column_names.index("w"), "w", pa.array(own, pa.int64()))
        return arrivals, spans

    patch.setattr(Waiting, "ordered", broken)


def ticks_after_rows(patch: Patch) -> None:
    """A tick is taken after the rows of its micro-batch, wherever it stood."""
    rows_and_ticks = RecordWindowKernel._rows_and_ticks

    def broken(self: RecordWindowKernel, arrivals: Any, start: int, stop: int, moves: Any) -> None:
        rows_and_ticks(self, arrivals, start, stop, [])

    patch.setattr(RecordWindowKernel, "_rows_and_ticks", broken)


def ticks_for_rows_only(patch: Patch) -> None:
    """Only key groups with rows of their own see the clock move."""
    reach = RecordWindowKernel._reach

    def broken(self: RecordWindowKernel, progress: int, clock: int) -> None:
        reach(self, progress, clock if self.keys else self.now.clock)

    patch.setattr(RecordWindowKernel, "_reach", broken)


def ticks_without_progress(patch: Patch) -> None:
    """A replayed tick does not wait for the timers that had fired before it."""
    reach = RecordWindowKernel._reach

    def broken(self: RecordWindowKernel, progress: int, clock: int) -> None:
        reach(self, progress if clock == self.now.clock or progress > 10**12 else NEVER, clock)

    patch.setattr(RecordWindowKernel, "_reach", broken)


def expires_by_progress(patch: Patch) -> None:
    """A row sees state until progress frees it, however far apart their times are."""
    patch.setattr(State, "_visible", lambda self: self._cell().raw)


RULES: dict[Callable[[Patch], None], Callable[[int], bool]] = {
    judged_by_progress: chains_agree,
    stamped_by_batch: chains_agree,
    late_rows_on_time: chains_agree,
    progress_too_new: chains_agree,
    pairs_apart: revisions_are_whole,
    maximum_progress: sessions_agree,
    as_they_arrive: sessions_agree,
    judged_as_stamped: sessions_agree,
    ticks_after_rows: clocks_agree,
    ticks_for_rows_only: clocks_agree,
    ticks_without_progress: clocks_agree,
    expires_by_progress: keys_are_alone,
}


@pytest.mark.feature("W11", "T14", "L4")
@pytest.mark.parametrize(
    "world", [chains_agree, revisions_are_whole, sessions_agree, clocks_agree, keys_are_alone], ids=lambda w: w.__name__
)
def test_with_all_rules_every_cut_agrees(world: Callable[[int], bool]) -> None:
    assert [seed for seed in range(12) if not world(seed)] == []


@pytest.mark.parametrize("broken", RULES, ids=lambda b: b.__name__)
def test_each_rule_broken_on_its_own_is_caught(broken: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken(monkeypatch)
    assert any(not RULES[broken](seed) for seed in range(SEEDS)), f"nothing needs the rule: {broken.__doc__}"
