"""A chain of three windowed operators, each link cut into random micro-batches of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

from simulation import Row, SimulatedRun, cuts, final, marker, run_batch, settle

from floodmark import Contract, EventTime, Sliding, Stream, Tumbling, count, max, mean, operator, sum
from floodmark.core.time import END
from floodmark.spec.graph.operator import Operator


class Reading(Contract):
    """A number of a sensor."""

    at: EventTime
    sensor: str
    value: int


def chain(seed: int) -> list[Operator]:
    """Different lateness and aggregates per seed; the second can be revised by the first, the third by the second."""
    pick = random.Random(seed).choice

    @operator
    def first(readings: Stream[Reading]) -> Stream:
        keyed = readings.key_by("sensor")
        windowed = keyed.window(Tumbling("5ms"), allowed_lateness=pick(["0ms", "4ms", "30ms"]), late="side_output")
        return windowed.aggregate(total=sum("value"), n=count(), high=max("value"))

    @operator(inputs={"totals": first})
    def second(totals: Stream) -> Stream:
        window = pick([Tumbling("10ms"), Sliding("15ms", "5ms")])
        keyed = totals.key_by("sensor")
        return keyed.window(window, allowed_lateness=pick(["0ms", "2ms", "10ms"]), late="side_output").aggregate(
            total=sum("total"), high=max("total"), middle=mean("high")
        )

    @operator(inputs={"highs": second})
    def third(highs: Stream) -> Stream:
        return highs.window(Tumbling("20ms"), allowed_lateness=pick(["0ms", "6ms"]), late="side_output").aggregate(
            high=max("high"), total=sum("total"), windows=count()
        )

    return [first, second, third]


def landed(seed: int, n: int = 70) -> list[Row]:
    """Rows stamped as landing stamps them, a marker after each commit, the end of input last."""
    rng, rows, top, bound = random.Random(seed), [], -1, 3
    for i in range(n):
        time = i + rng.choice([0, 0, 0, -2, -4, -9, -15, -30])
        stamp = top - bound - 1
        payload = {"sensor": rng.choice("abc"), "value": rng.randint(-9, 9)}
        rows.append(
            payload | {"_event_time": time, "_watermark": stamp, "_progress": stamp, "_sequence": i, "_kind": 0}
        )
        top = top if top > time else time
        if rng.random() < 0.1:
            rows.append(marker(top - bound - 1))
    return [*rows, marker(END)]


def drive(
    operators: list[Operator], rows: list[Row], rng: random.Random | None
) -> list[tuple[dict[Any, Any], list[str], dict[int, int], int]]:
    """Run a chain; links are interleaved at random."""
    runs = [SimulatedRun(op) for op in operators]
    queues: list[list[list[Row]]] = [cuts(rows, rng), *([] for _ in operators)]
    emitted: list[list[Row]] = [[] for _ in operators]
    while any(queues[: len(runs)]):
        link = (rng or random).choice([i for i in range(len(runs)) if queues[i]])
        batch = queues[link].pop(0)
        out = run_batch(runs[link], batch, rng)
        if not queues[link] and (link == 0 or not any(queues[:link])):
            out += settle(runs[link])
        emitted[link] += out
        if rng is None:  # one micro-batch per link
            queues[link + 1] = [[*(queues[link + 1][0] if queues[link + 1] else []), *out]]
        else:
            queues[link + 1] += cuts(out, rng)
    found = []
    for run, out in zip(runs, emitted, strict=True):
        names = run.step.schema.names
        keys = [n for n in names if n in (*run.step.keys, "window_start", "window_end")]
        assert not any(store.chunks for store in run.stores.values()), "all state is freed at the end"
        late = sum_(row["_kind"] == -1 for row in out) + len(run.side)
        found.append((final(out, [n for n in names if n not in keys], keys), sorted(run.side), dict(run.dropped), late))
    return found


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def sum_(values: Iterable[bool]) -> int:
    return len([v for v in values if v])
