"""Large numbers that a workspace may reach: each operation once, in seconds."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

UNITS, PARTITIONS, SAVEPOINTS, LATE_ROWS = 300_000, 100_000, 2_000, 10_000
MOST_SECONDS = 2.0
"""That an operation may take."""

Timed = Iterator[tuple[str, Callable[[], Any]]]


def units(root: Path) -> Timed:
    """A source of which very many files have landed; they are still in the folder."""
    from aged import source

    from floodmark.engines.landing.lander import reader_of
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.logs.landed import LandedUnits
    from floodmark.lake.table.commits import Landed, Landing

    inbox, lake = root / "many", Lake(str(root / "many-lake"))
    inbox.mkdir()
    at = 10**18
    for number in range(UNITS):
        file = inbox / f"{number:09d}.csv"
        file.touch()
        os.utime(file, ns=(at + number, at + number))
    landed = [
        Landed(name=f"{n:09d}.csv", size=0, modified=at + n, digest=f"{n:064x}", status="landed", ordinal=n)
        for n in range(UNITS)
    ]
    made = LandedUnits(lake.internal("sources", "readings", "files"))
    made.add(landed)
    made.flush()
    last, reader = Landing(source="readings", ordinal=UNITS - 1), reader_of(source(inbox))
    yield f"open the list of {UNITS:,} landed files", lambda: LandedUnits.load(lake, last)
    known = LandedUnits.load(lake, last)
    yield f"look at a folder of {UNITS:,} landed files", lambda: reader.pending(known)


def partitions() -> Timed:
    """A landing commit of a row, of a source with very many source partitions that are active."""
    import numpy as np

    from floodmark.lake.table.commits import Landing, decode, encode
    from floodmark.semantics.time.watermarks import SourcePartition, Trace, WatermarkState, advance, forget_idle

    many = {f"device-{n}": SourcePartition(watermark=n, seen=n) for n in range(PARTITIONS)}
    landing = Landing(source="readings", state=WatermarkState(partitions=many))

    def commit() -> None:
        _, state = advance(landing.state, Trace(np.array([5 * PARTITIONS]), ["device-7"]), now=1)
        text = encode(replace(landing, state=forget_idle(state)))
        assert decode(text, "commit") is not None

    yield f"state of a landing commit, {PARTITIONS:,} active source partitions", commit


def savepoints(root: Path) -> Timed:
    """Very many savepoints of a stream."""
    from aged import Aged

    from floodmark.lake.restore import savepoints
    from floodmark.lifecycle.savepoint import MANIFEST

    aged = Aged(root / "savepoints")
    for _ in range(5):
        aged.land()
        aged.batch()
    aged.move_checkpoints()
    first = savepoints.create("minutes", aged.lake)
    for number in range(SAVEPOINTS - 1):
        copied = Path(first.path).with_name(f"minutes-20200101T{number // 60:04d}{number % 60:02d}-{number:04d}")
        shutil.copytree(first.path, copied, copy_function=os.link)
        text = (copied / MANIFEST).read_text().replace(first.id, copied.name)
        (copied / MANIFEST).unlink()
        (copied / MANIFEST).write_text(text)
    yield f"names of {SAVEPOINTS:,} savepoints", lambda: savepoints.names(aged.lake)
    yield f"list of {SAVEPOINTS:,} savepoints", lambda: savepoints.savepoints(aged.lake)
    yield f"one of {SAVEPOINTS:,} savepoints", lambda: savepoints.find(aged.lake, first.id)
    yield f"one more beside {SAVEPOINTS:,} savepoints", lambda: savepoints.create("minutes", aged.lake)


def hours() -> Timed:
    """Asset partitions of ten years, by the hour."""
    from aged import minutes

    from floodmark import Hourly, operator_asset
    from floodmark.orchestration import automation

    asset = operator_asset(minutes, partitions=Hourly("2013-01-01T00:00"))
    now, hour = int(datetime(2023, 1, 1, tzinfo=UTC).timestamp() * 1000), 3_600_000
    yield (
        "look of the sensor, 10 years of hours, the first one",
        lambda: list(automation._complete(asset, -(2**60), now)),  # noqa: SLF001 - a look of the sensor without Dagster
    )
    yield (
        "look of the sensor, 10 years of hours, one is new",
        lambda: list(automation._complete(asset, now - hour - 1, now)),  # noqa: SLF001 - the same
    )


def late() -> Timed:
    """Rows of one key and window that come late, each of which revises a result; and as many that are on time."""
    from aged import Reading

    from floodmark import Stream, Tumbling, count, operator
    from floodmark.core.time import span
    from floodmark.engines.embedded.memory.run import MemoryRun
    from floodmark.testing.log import Log
    from floodmark.testing.rows import rows_of

    @operator
    def counted(readings: Stream[Reading]) -> Stream:
        windowed = readings.key_by("device").window(Tumbling("1 hour"), allowed_lateness="2 days")
        return windowed.aggregate(n=count())

    start = datetime(2023, 11, 14, tzinfo=UTC)

    def run(rows: list[dict[str, Any]]) -> Callable[[], Any]:
        log = Log(counted.inputs[0].schema)
        log.rows(rows_of(rows), "at", span("0 s", "delay"))
        table = log.table()
        return lambda: MemoryRun(counted).batch({"readings": table})

    newest = {"at": start.replace(day=15), "device": "a", "value": 1}
    of_one = [{"at": start, "device": "a", "value": n} for n in range(LATE_ROWS)]
    of_many = [{"at": start, "device": f"d{n}", "value": n} for n in range(LATE_ROWS)]
    yield f"{LATE_ROWS:,} late rows of one key", run([newest, *of_one])
    yield f"{LATE_ROWS:,} late rows of as many keys", run([newest, *of_many])


def table(root: Path) -> tuple[str, list[str]]:
    """The table in Markdown, and what takes too long."""
    lines, slow = ["| operation | seconds |", "| --- | --- |"], list[str]()
    for timed in (units(root), partitions(), savepoints(root), hours(), late()):
        for name, operation in timed:
            began = time.process_time()
            operation()
            seconds = time.process_time() - began
            lines.append(f"| {name} | {seconds:.2f} |")
            slow += [name] if seconds > MOST_SECONDS else []
    return "\n".join(lines), slow
