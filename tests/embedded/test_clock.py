"""Processing time on the embedded engine: the clock fires what nothing else would, and a bounded run repeats what the stream did."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

import forked
import pytest
from deltalake import DeltaTable
from events import START, Event
from streams import CLOCKED

from floodmark import Stream, Tumbling, count, operator
from floodmark.core import crash
from floodmark.core.errors import ExecutionError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

NOON = to_ms(START)


@pytest.fixture
def log() -> Log:
    """Forty rows of three keys, and their end."""
    found = Log(CLOCKED.inputs[0].schema)
    found.rows([{"at": START + timedelta(minutes=n), "key": "abc"[n % 3], "value": n} for n in range(40)], "at", 60_000)
    found.end()
    return found


def replayed(sail: Sail, lake: Lake, folder: Path) -> list[dict[str, object]]:
    """The rows of a bounded run in a lake that holds nothing but the record of the clock."""
    again = Lake(str(folder), logs=lake.root)
    shutil.copytree(ticks.folder(CLOCKED, lake), ticks.folder(CLOCKED, again))
    run_bounded(sail, CLOCKED, again)
    return final([outputs(again, CLOCKED)[""]])


def test_the_clock_alone_fires_and_a_replay_repeats_it(sail: Sail, log: Log, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "stream"))
    for number, (first, last) in enumerate([(0, 10), (10, 11), (11, 11), (11, 30)]):
        land(lake, CLOCKED, log, first, last)
        run_unbounded(sail, CLOCKED, lake, until_caught_up=True, clock=NOON + 700 * number)
    counts = [row["n"] for row in final([outputs(lake, CLOCKED)[""]])]
    assert sum(counts) == 11, "the second of the first two micro-batches is over; that of the last one is not"
    land(lake, CLOCKED, log, 30)
    run_unbounded(sail, CLOCKED, lake, until_caught_up=True, clock=NOON + 2800)
    stream = final([outputs(lake, CLOCKED)[""]])
    assert sum(row["n"] for row in stream) == 40
    assert replayed(sail, lake, tmp_path / "replay") == stream
    rows = DeltaTable(ticks.folder(CLOCKED, lake)).to_pyarrow_table().sort_by("batch")
    assert rows["clock"].to_pylist() == [NOON + 700 * n for n in range(rows.num_rows)]


def test_a_running_stream_waits_for_the_clock(sail: Sail, log: Log, tmp_path: Path) -> None:
    lake, stop, seen = Lake(str(tmp_path)), threading.Event(), list[BatchInfo]()
    land(lake, CLOCKED, log, 0, 9)

    def told(batch: BatchInfo) -> None:
        seen.append(batch)
        if sum(sum(one.rows.values()) for one in seen) == 3:
            stop.set()

    run_unbounded(sail, CLOCKED, lake, stop=stop, trigger_seconds=0.01, on_batch=told)
    assert [batch.rows_in for batch in seen] == [9, *[0] * (len(seen) - 1)]
    assert len(seen) > 1


def _shared(events: Stream[Event]) -> Stream:
    """Fails for the window of one key, and names no column but the key."""
    counted = events.key_by("key").window(Tumbling("1 second"), time="processing").aggregate(n=count())
    return counted.with_columns(share="12 DIV (n - 3)")


def test_a_window_that_the_clock_fires_stops_the_stream_by_a_value_that_its_row_lacks(
    sail: Sail, log: Log, tmp_path: Path
) -> None:
    """The micro-batch is computed a second time, over all columns of the input: the same windows fire."""
    shared, lake = operator(_shared, name="shared"), Lake(str(tmp_path))
    land(lake, shared, log, 0, 9)
    run_unbounded(sail, shared, lake, until_caught_up=True, clock=NOON)
    assert not final([outputs(lake, shared)[""]])
    for _ in range(2):
        with pytest.raises(ExecutionError, match="EXECUTION-050") as raised:
            run_unbounded(sail, shared, lake, until_caught_up=True, clock=NOON + 5000)
        assert '"n": 3' in raised.value.got


@pytest.mark.parametrize("point", ["tick.before_record", "tick.after_record"])
@pytest.mark.few(1)
def test_killed_around_the_record_of_the_clock(sail: Sail, log: Log, tmp_path: Path, point: str) -> None:
    lake, here = Lake(str(tmp_path / "stream")), Path(__file__).parent
    land(lake, CLOCKED, log, 0, 20)
    command = [sys.executable, str(here / "stream_process.py"), lake.root, CLOCKED.name, str(NOON)]
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL
    land(lake, CLOCKED, log, 20)
    run_unbounded(sail, CLOCKED, lake, until_caught_up=True, clock=NOON + 5000)
    stream = final([outputs(lake, CLOCKED)[""]])
    assert sum(row["n"] for row in stream) == 40
    assert len(stream) == 6
    assert replayed(sail, lake, tmp_path / "replay") == stream
