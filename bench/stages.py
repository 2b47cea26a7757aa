"""What stages cost: micro-batches of an operator of one, two and three stages on the embedded engine.

    python bench/stages.py [--batches 40] [--rows 1000 10000] [--rounds 3]

Milliseconds per micro-batch: the median that the stream reports, and CPU time of all processes; of several rounds the least. ``hour``: the stages behind the first have rows now and then, as in hours of
minutes; ``each``: every stage has results in every micro-batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

import numpy as np
import psutil
import pyarrow as pa

from floodmark import Contract, EventTime, Operator, Stream, Tumbling, count, operator, sum
from floodmark import max as greatest
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import append

WARM, KEYS = 5, 1000
_START = 1_704_067_200_000
SIZES = {"hour": ("10 seconds", "1 minute", "10 minutes"), "each": ("10 seconds", "10 seconds", "10 seconds")}


class Event(Contract):
    """A number of a key in a group."""

    at: EventTime
    key: str
    part: str
    value: int


def staged(stages: int, sizes: tuple[str, ...]) -> Operator:
    """An operator of some windows, one after the other."""

    def body(events: Stream[Event]) -> Stream:
        stream = events.key_by("key", "part").window(Tumbling(sizes[0])).aggregate(n=count(), total=sum("value"))
        for keys, size in list(zip((["part"], []), sizes[1:], strict=False))[: stages - 1]:
            keyed = stream.key_by(*keys) if keys else stream
            stream = keyed.window(Tumbling(size)).aggregate(n=sum("n"), total=greatest("total"))
        return stream

    return operator(body, name=f"staged_{stages}")


def commit(code: Operator, number: int, rows: int) -> pa.Table:
    """The rows of one micro-batch: ten seconds of event time."""
    rng, places = np.random.default_rng(number), np.arange(rows)
    times = _START + number * 10_000 + places * 10_000 // rows
    keys = rng.integers(0, KEYS, rows)
    stamps = {
        "_event_time": times,
        "_watermark": times - 1,
        "_progress": np.full(rows, times[0] - 1),
        "_sequence": number * rows + places,
        "_kind": np.zeros(rows, dtype=np.int32),
    }
    schema = arrow_schema(code.inputs[0].schema)
    columns = {
        "at": pa.array(times * 1000, pa.int64()).cast(schema.field("at").type),
        "key": pa.array([f"key {n}" for n in keys]),
        "part": pa.array([f"part {n % 10}" for n in keys]),
        "value": pa.array(rng.integers(0, 1000, rows), pa.int64()),
    }
    return pa.table({**columns, **{name: pa.array(values) for name, values in stamps.items()}})


def measured(sail: Sail, code: Operator, batches: int, rows: int) -> tuple[float, float]:
    """(median, CPU) milliseconds of a micro-batch."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, seconds, busy = Lake(folder), list[float](), list[float]()
        for number in range(batches):
            append(lake.input(code.inputs[0]), commit(code, number, rows))

        def note(batch: BatchInfo) -> None:
            seconds.append(batch.seconds)
            busy.append(_cpu())

        run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1, on_batch=note)
        assert len(seconds) >= batches
        cpu = (busy[-1] - busy[WARM]) / (len(busy) - WARM - 1)
        return statistics.median(seconds[WARM:]) * 1000, cpu * 1000


def _cpu() -> float:
    """CPU seconds of this process and all below it."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    options, sail = parser.parse_args(), Sail()
    for kind, sizes in SIZES.items():
        for rows in options.rows:
            rounds = [
                [measured(sail, staged(stages, sizes), options.batches, rows) for stages in (1, 2, 3)]
                for _ in range(options.rounds)
            ]
            best = [[min(measures[place][what] for measures in rounds) for place in range(3)] for what in range(2)]
            for what, times in zip(("wall", "CPU"), best, strict=True):
                texts = ", ".join(f"{stages}: {time:.0f} ms" for stages, time in enumerate(times, 1))
                print(
                    f"{kind}, {rows:,} rows, {what}: {texts}; three take {times[2] / times[0]:.2f} of one", flush=True
                )
    sail.close()


if __name__ == "__main__":
    main()
