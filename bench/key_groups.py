"""What many key groups cost: micro-batches of 1,000 rows with 64 and with 32,768 key groups, which lie in 64 bundles.

    python bench/key_groups.py [--engine embedded | spark] [--batches 60] [--keys 10 1000] [--groups 64 32768] [OPERATOR...]

Milliseconds per micro-batch: the median that the stream reports, and CPU time of all processes. A prime number such as 32,749 has no bundles: rows of
1,000 keys touch up to 1,000 of so many key groups and all of few, so that ``--groups 64 32749`` says what touched ones cost.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from floodmark import (
    BroadcastProcessFunction,
    BroadcastState,
    Contract,
    EventTime,
    Operator,
    ProcessFunction,
    Session,
    Stream,
    Tumbling,
    ValueState,
    count,
    operator,
    sum,
)
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import append

ROWS, WARM = 1_000, 5
GROUPS = (64, 1 << 15)
_START = 1_704_067_200_000


class Event(Contract):
    """A number of a key."""

    at: EventTime
    key: str
    value: int


class Seen(Contract):
    """What was seen of a key."""

    seen: int


class Seeing(ProcessFunction):
    """Counts rows of a key; every tenth says so."""

    seen = ValueState(int)

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - as it is called
        """Count a row."""
        self.seen.update(self.seen.get(0) + 1)
        if self.seen.get() % 10 == 0:
            yield {"seen": self.seen.get()}


class Ruled(BroadcastProcessFunction):
    """Counts with a rule."""

    rules, seen = BroadcastState(str, int), ValueState(int)

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - as it is called
        """Count a row."""
        self.seen.update(self.seen.get(0) + (self.rules.get("by") or 1))
        if self.seen.get() % 10 == 0:
            yield {"seen": self.seen.get()}

    def on_broadcast(self, row: Any, ctx: Any) -> None:  # noqa: ARG002 - as it is called
        """Keep a rule."""
        self.rules.put("by", 1)


@operator
def windowed(events: Stream[Event]) -> Stream:
    """Sums in columns."""
    return (
        events.key_by("key").window(Tumbling("10 seconds"), allowed_lateness="20 seconds").aggregate(total=sum("value"))
    )


@operator
def sessions(events: Stream[Event]) -> Stream:
    """Row by row."""
    return events.key_by("key").window(Session("15 seconds")).aggregate(n=count())


@operator
def process(events: Stream[Event]) -> Stream:
    """A process function."""
    return events.key_by("key").process(Seeing(), schema=Seen)


@operator
def once(events: Stream[Event]) -> Stream:
    """First rows."""
    return events.key_by("key").deduplicate("15 seconds")


@operator
def joined(events: Stream[Event]) -> Stream:
    """Each row with later ones."""
    keyed = events.filter("value % 10 = 0").key_by("key")
    return keyed.interval_join(keyed, "1 ms", "2 seconds", kind="left", prefix="next_")


@operator
def clocked(events: Stream[Event]) -> Stream:
    """Windows of processing time, which look at every key group with state."""
    return events.key_by("key").window(Tumbling("1 second"), time="processing").aggregate(n=count())


@operator
def ruled(events: Stream[Event]) -> Stream:
    """A rule in each micro-batch, which every key group gets."""
    return events.key_by("key").connect(events.filter("value = 1").broadcast()).process(Ruled(), schema=Seen)


OPERATORS = {code.name: code for code in (windowed, sessions, process, once, joined, clocked, ruled)}


def commit(number: int, keys: int) -> pa.Table:
    """The rows of one micro-batch: ten seconds of event time."""
    rng, places = np.random.default_rng(number), np.arange(ROWS)
    times = _START + number * 10_000 + places * 10
    stamps = {
        "_event_time": times,
        "_watermark": times - 1,
        "_progress": np.full(ROWS, times[0] - 1),
        "_sequence": number * ROWS + places,
        "_kind": np.zeros(ROWS, dtype=np.int32),
    }
    schema = arrow_schema(windowed.inputs[0].schema)
    columns = {
        "at": pa.array(times * 1000, pa.int64()).cast(schema.field("at").type),
        "key": pa.array([f"key {n}" for n in rng.integers(0, keys, ROWS)]),
        "value": pa.array(np.where(places == 0, 1, rng.integers(2, 1000, ROWS)), pa.int64()),
    }
    return pa.table({**columns, **{name: pa.array(values) for name, values in stamps.items()}})


def measured(run: Callable[..., Any], code: Operator, batches: int, keys: int) -> tuple[float, float]:
    """(median, CPU) milliseconds of a micro-batch."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, seconds, busy = Lake(folder), list[float](), list[float]()
        for number in range(batches):
            append(lake.input(code.inputs[0]), commit(number, keys))

        def note(batch: BatchInfo) -> None:
            seconds.append(batch.seconds)
            busy.append(_cpu())

        began = _cpu()
        run(code, lake, until_caught_up=True, files_per_batch=1, on_batch=note)
        assert len(seconds) >= batches, (len(seconds), began)
        cpu = (busy[-1] - busy[WARM]) / (len(busy) - WARM - 1)
        return statistics.median(seconds[WARM:]) * 1000, cpu * 1000


def _cpu() -> float:
    """CPU seconds of this process and all below it that live."""
    total = 0.0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def engine(name: str) -> Callable[..., Any]:
    """``run_unbounded`` of an engine."""
    if name == "embedded":
        from floodmark.engines.embedded.sail.session import Sail
        from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded

        sail = Sail()
        return lambda *args, **options: run_embedded(sail, *args, **options)
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.engines.spark.unbounded.run import run_unbounded as run_on_spark

    spark = spark_session()
    return lambda *args, **options: run_on_spark(spark, *args, interval_seconds=0, **options)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["embedded", "spark"], default="embedded")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--keys", type=int, nargs="*", default=[10, 1000])
    parser.add_argument("--groups", type=int, nargs="*", default=list(GROUPS))
    parser.add_argument("names", nargs="*", default=list(OPERATORS))
    options = parser.parse_args()
    run = engine(options.engine)
    for name in options.names:
        for keys in options.keys:
            results = [
                measured(run, OPERATORS[name].grouped(groups), options.batches, keys) for groups in options.groups
            ]
            texts = [
                f"{groups:,}: {wall:.0f} ms, CPU {cpu:.0f}"
                for groups, (wall, cpu) in zip(options.groups, results, strict=True)
            ]
            ratios = [after / before for before, after in zip(*(results[0], results[-1]), strict=True)]
            print(
                f"{options.engine} {name}, {keys} keys: {'; '.join(texts)}; ratios {ratios[0]:.2f}, {ratios[1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
