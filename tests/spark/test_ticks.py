"""Processing time on a real engine: the machine's clock fires what nothing else would, and a bounded run repeats what it did."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from events import START, Event, row, source
from flights import changelog

from demo.comparison import compare
from floodmark import (
    AfterWatermark,
    Every,
    Operator,
    Stream,
    Tumbling,
    count,
    operator,
    sum,
)
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError
from floodmark.core.time import Interval, parse_instant
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

PATIENCE_SECONDS = 300
MINUTES = (0, 1, 2, 3, 5, 7, 9)


@operator
def early(events: Stream[Event]) -> Stream:
    """Hours of event time, and what is known of them every second of the clock."""
    windowed = events.key_by("key").window(
        Tumbling("1 hour"), trigger=AfterWatermark().early(Every("1 second", time="processing"))
    )
    return windowed.aggregate(n=count(), total=sum("value"))


@operator
def by_the_clock(events: Stream[Event]) -> Stream:
    """Seconds of processing time."""
    return events.key_by("key").window(Tumbling("1 second"), time="processing").aggregate(n=count(), total=sum("value"))


def replay(engine: Computing, what: Operator, lake: Lake, folder: Path) -> Lake:
    """The same bounded, in a lake that holds nothing but the record of the clock."""
    found = Lake(str(folder), logs=lake.root)
    shutil.copytree(ticks.folder(what, lake), ticks.folder(what, found))
    engine.run_bounded(what, found, Interval())
    return found


@pytest.mark.feature("T17", "L4")
@pytest.mark.engines("spark", soak=("embedded",))
def test_the_clock_alone_fires_early_results_and_a_replay_repeats_them(engine: Computing, tmp_path: Path) -> None:
    fired(engine, tmp_path, early)


@pytest.mark.feature("W4")
def test_the_clock_alone_fires_windows_of_its_own_and_a_replay_repeats_them(engine: Computing, tmp_path: Path) -> None:
    fired(engine, tmp_path, by_the_clock)


def fired(engine: Computing, tmp_path: Path, what: Operator) -> None:
    """A running stream writes rows while nothing lands, and a bounded run of the recorded clock writes the same."""
    lake, stop = Lake(str(tmp_path / "stream")), threading.Event()
    log = Log(what.inputs[0].schema)
    log.rows([{"at": START + timedelta(minutes=n), "key": "ab"[n % 2], "value": n} for n in MINUTES], "at", 60_000)
    log.end()
    land(lake, what, log, 0, 4)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.run_unbounded, what, lake, stop=stop, interval_seconds=0.2)
        try:
            first = waited(lake, what.name, 2, running)
            land(lake, what, log, 4, len(MINUTES))
            waited(lake, what.name, first + 1, running)
        finally:
            stop.set()
        running.result(timeout=PATIENCE_SECONDS)
    land(lake, what, log, len(MINUTES))
    engine.run_unbounded(what, lake, until_caught_up=True)
    stream = changelog(lake, what.name)
    again = changelog(replay(engine, what, lake, tmp_path / "replay"), what.name)
    found = compare(again, stream, names=("replay", "stream"))
    assert found.differences == 0, found.examples
    assert stream.num_rows > 2


def waited(lake: Lake, table: str, rows: int, running) -> int:
    """Rows of the changelog, once they are as many; nothing lands meanwhile."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and not running.done():
        path = lake.output(table)
        found = changelog(lake, table).num_rows if DeltaTable.is_deltatable(path) else 0
        if found >= rows:
            return found
        time.sleep(0.2)
    if running.done():
        running.result()
    pytest.fail(f"no {rows} rows in {PATIENCE_SECONDS} s: the clock did not fire")


def test_without_a_record_windows_of_the_clock_are_no_bounded_question(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    engine.land(source([row(minute) for minute in range(3)]), lake, end=True)
    with pytest.raises(CapabilityError, match="CAPABILITY-004") as error:
        engine.run_bounded(by_the_clock, lake, Interval())
    assert "floodmark run by_the_clock --unbounded" in str(error.value)
    hour = Interval(start=parse_instant("2020-01-01", "from"), end=parse_instant("2020-01-02", "to"))
    with pytest.raises(CapabilityError, match="CAPABILITY-002"):
        engine.run_bounded(by_the_clock, lake, hour)
    engine.run_bounded(early, lake, Interval())
    assert sorted(changelog(lake, "early")["n"].to_pylist()) == [1, 2], (
        "early results need a clock, the answer does not"
    )
