"""A durable micro-batch of the embedded engine: 1,000 rows of 100 keys, a windowed sum, everything synced before the commit.

    python bench/micro_batch.py [MICRO_BATCHES] [--profile | --swaps]

Every micro-batch closes the windows of the one before it, so that each writes 100 results. ``two`` also writes the rows that came too late,
one in a hundred. Seconds are those the stream itself reports of each micro-batch, the first twenty left out; the medians of the first and the last quarter
show whether anything grows. With ``--swaps`` the server is replaced every twenty micro-batches: what the first micro-batch on a new server takes, those
while one starts beside them, and all others.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa

from floodmark import Contract, EventTime, Operator, Stream, Tumbling, operator, sum
from floodmark.core.time import to_ms
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import append

ROWS, KEYS, WINDOW = 1_000, 100, timedelta(seconds=10)
WARM = 20
USES = 20
"""Of a server, with ``--swaps``."""
_START = datetime(2024, 1, 1, tzinfo=UTC)


class Event(Contract):
    """A number of a key."""

    at: EventTime
    key: str
    value: int


@operator
def one(events: Stream[Event]) -> Stream:
    """Sums."""
    return events.key_by("key").window(Tumbling(WINDOW)).aggregate(total=sum("value"))


@operator
def two(events: Stream[Event]) -> Stream:
    """Sums, and the rows that came too late for them."""
    return events.key_by("key").window(Tumbling(WINDOW), late="side_output").aggregate(total=sum("value"))


def commit(number: int) -> pa.Table:
    """The rows of one micro-batch: ten seconds of event time, one row in a hundred a minute behind."""
    rng, places = np.random.default_rng(number), np.arange(ROWS)
    start = to_ms(_START) + number * 10_000
    times = start + places * 10
    watermarks = np.maximum.accumulate(times) - 1
    times[places % 100 == 50] -= 60_000
    stamps = {
        "_event_time": times,
        "_watermark": watermarks,
        "_progress": np.full(ROWS, watermarks[-1]),
        "_sequence": number * ROWS + places,
        "_kind": np.zeros(ROWS, dtype=np.int32),
    }
    schema = arrow_schema(one.inputs[0].schema)
    columns = {
        "at": pa.array(times * 1000, pa.int64()).cast(schema.field("at").type),
        "key": pa.array([f"key {n}" for n in rng.integers(0, KEYS, ROWS)]),
        "value": pa.array(rng.integers(0, 1000, ROWS), pa.int64()),
    }
    return pa.table({**columns, **{name: pa.array(values) for name, values in stamps.items()}})


def measured(
    code: Operator,
    sail: Sail,
    count: int,
    profile: cProfile.Profile | None,
    look: Callable[[], None] = lambda: None,
) -> tuple[list[float], float]:
    """Seconds of each micro-batch but the first ones, in order, and seconds of this process's time per micro-batch.

    Args:
        code: what runs.
        sail: it runs on.
        count: of micro-batches.
        profile: of the run.
        look: called behind each micro-batch.
    """
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, seconds = Lake(folder), list[float]()
        for number in range(count):
            append(lake.input(code.inputs[0]), commit(number))

        def told(batch: BatchInfo) -> None:
            seconds.append(batch.seconds)
            look()

        busy = time.process_time()
        if profile is not None:
            profile.enable()
        run_unbounded(
            sail,
            code,
            lake,
            until_caught_up=True,
            files_per_batch=1,
            on_batch=told,
        )
        if profile is not None:
            profile.disable()
        busy = time.process_time() - busy
        assert len(seconds) == count
    return seconds[WARM:], busy / count


def swaps(count: int) -> None:
    """Measure micro-batches on servers that are replaced."""
    sail, numbers, starting = Sail(most_uses=USES), list[int](), list[bool]()

    def look() -> None:
        current = sail._current  # noqa: SLF001 - lending counts as a use, and may be what swaps
        assert current is not None
        numbers.append(current.number)
        starting.append(sail.started > current.number)

    seconds, _ = measured(one, sail, count, None, look)
    numbers, starting = numbers[WARM - 1 :], starting[WARM:]
    new = [second for second, (before, after) in zip(seconds, pairwise(numbers), strict=True) if before != after]
    kinds = list(zip(seconds, pairwise(numbers), starting, strict=True))
    beside = [second for second, (before, after), ahead in kinds if before == after and ahead]
    rest = [second for second, (before, after), ahead in kinds if before == after and not ahead]
    print(f"{sail.started} servers")
    for what, part in (("first on a server", new), ("while one starts or waits", beside), ("others", rest)):
        found = sorted(part)
        times = ", ".join(f"{name} {found[int(len(found) * share)] * 1000:.0f}" for name, share in _PARTS)
        print(f"{what}: {times}, longest {found[-1] * 1000:.0f} ms of {len(found)}")
    sail.close()


def main() -> None:
    """Measure both operators."""
    numbers = [int(text) for text in sys.argv[1:] if text.isdecimal()]
    if "--swaps" in sys.argv:
        swaps((numbers or [600])[0])
        return
    count, sail = (numbers or [300])[0], Sail()
    profile = cProfile.Profile() if "--profile" in sys.argv else None
    for code in (one, two):
        seconds, busy = measured(code, sail, count, profile)
        found, quarter = sorted(seconds), len(seconds) // 4
        first, last = (statistics.median(part) * 1000 for part in (seconds[:quarter], seconds[-quarter:]))
        times = ", ".join(f"{name} {found[int(len(found) * part)] * 1000:.0f}" for name, part in _PARTS)
        print(
            f"{code.name}: {times} ms per micro-batch; {busy * 1000:.0f} ms of this process's time; quarters: {first:.0f}, {last:.0f}"
        )
    if profile is not None:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
    sail.close()


_PARTS = (("least", 0.0), ("median", 0.5), ("p99", 0.99))

if __name__ == "__main__":
    main()
