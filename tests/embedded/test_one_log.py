"""One log, several programs: a spike waits in it, what is thought of later needs no source any more, each program's state is its own."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline

HOUR = timedelta(hours=1)
START = datetime(2020, 1, 1, tzinfo=UTC)
CALM, SPIKE = 60, 3000
"""Rows of the hour before the spike, one a minute; rows of the hour of the spike."""

Result = tuple[str, datetime, int]


class Reading(fm.Contract):
    at: fm.EventTime
    key: str
    value: int


@fm.operator
def total(readings: fm.Stream[Reading]) -> fm.Stream:
    """A live view."""
    windows = readings.key_by("key").window(fm.Tumbling("1 hour"), allowed_lateness="1 hour")
    return windows.aggregate(result=fm.sum("value"))


@fm.operator
def highest(readings: fm.Stream[Reading]) -> fm.Stream:
    """Thought of later."""
    return readings.key_by("key").window(fm.Tumbling("1 hour")).aggregate(result=fm.max("value"))


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def moment(value: int) -> datetime:
    return START + value * HOUR / CALM if value < CALM else START + HOUR + (value - CALM) * HOUR / SPIKE


def land(engine: Computing, inbox: Path, lake: Lake, values: range, *, end: bool = False) -> None:
    """One more file, and one more commit of the log."""
    lines = [f"{moment(value).isoformat()},{'ab'[value % 2]},{value}" for value in values]
    (inbox / f"{values.start:05}.csv").write_text("\n".join(["at,key,value", *lines]) + "\n")
    watermark = fm.BoundedOutOfOrderness("10 minutes")
    source = fm.Source("readings", contract=Reading, connector=fm.Files(str(inbox)), watermark=watermark)
    engine.land(source, lake, end=end, workspace=inbox.parent)


def land_all(engine: Computing, inbox: Path, lake: Lake) -> None:
    """The calm hour, and the spike in six files."""
    land(engine, inbox, lake, range(CALM))
    for first in range(CALM, CALM + SPIKE, 500):
        land(engine, inbox, lake, range(first, first + 500), end=first + 500 == CALM + SPIKE)


def results(lake: Lake, table: str) -> Counter[Result]:
    """The rows of a table that count."""
    found = DeltaTable(lake.output(table)).to_pyarrow_table()
    rows = found.filter(pc.equal(found["_kind"], 0)).select(["key", "window_start", "result"]).to_pylist()
    return Counter((row["key"], row["window_start"], row["result"]) for row in rows)


def truth(code: fm.Operator) -> Counter[Result]:
    """By plain Python."""
    values: dict[tuple[str, datetime], list[int]] = {}
    for value in range(CALM + SPIKE):
        hour = START + (moment(value) - START) // HOUR * HOUR
        values.setdefault(("ab"[value % 2], hour), []).append(value)
    fold = sum if code is total else max
    return Counter((key, hour, fold(some)) for (key, hour), some in values.items())


@pytest.mark.feature("D4")
def test_a_spike_waits_in_the_log_and_its_results_are_right_later(embedded: Computing, inbox: Path, lake: Lake) -> None:
    land(embedded, inbox, lake, range(CALM))
    embedded.run_unbounded(total, lake, until_caught_up=True)
    for first in range(CALM, CALM + SPIKE, 500):  # nobody reads meanwhile
        land(embedded, inbox, lake, range(first, first + 500), end=first + 500 == CALM + SPIKE)
    sizes = list[int]()
    embedded.run_unbounded(
        total, lake, until_caught_up=True, files_per_batch=1, on_batch=lambda batch: sizes.append(batch.rows_in)
    )
    assert len(sizes) >= SPIKE // 500, "it is taken in pieces, not at once"
    assert 500 <= max(sizes) < SPIKE
    assert results(lake, "total") == truth(total)


@pytest.mark.feature("D10", "R10")
def test_a_live_view_current_values_and_a_replay_read_one_log_and_no_source(
    embedded: Computing, inbox: Path, lake: Lake
) -> None:
    land_all(embedded, inbox, lake)
    shutil.rmtree(inbox)
    log = DeltaTable(lake.log("readings")).version()
    embedded.run_unbounded(total, lake, until_caught_up=True)
    assert results(lake, "total") == results(lake, "total__current") == truth(total)

    embedded.run_unbounded(highest, lake, until_caught_up=True)
    assert results(lake, "highest") == truth(highest), "what is thought of later reads from the first row on"
    other = Lake(f"{lake.root}-replayed", logs=lake.root)
    embedded.run_bounded(total, other, Interval())
    assert results(other, "total") == truth(total)
    assert DeltaTable(lake.log("readings")).version() == log, "readers write nothing to it"


@pytest.mark.feature("R5")
def test_state_belongs_to_one_program_and_comes_back_from_the_log(embedded: Computing, inbox: Path, lake: Lake) -> None:
    land_all(embedded, inbox, lake)
    for code in (total, highest):
        embedded.run_unbounded(code, lake, until_caught_up=True)
    mine, other = (Timeline.current(lake, name).checkpoint for name in ("total", "highest"))
    assert mine.path != other.path
    kept = {path: path.read_bytes() for path in Path(other.path).rglob("*") if path.is_file()}
    shutil.rmtree(mine.path)
    embedded.run_unbounded(total, lake, until_caught_up=True, from_scratch=True)
    assert results(lake, "total") == truth(total)
    assert kept == {path: path.read_bytes() for path in Path(other.path).rglob("*") if path.is_file()}
    assert results(lake, "highest") == truth(highest)
