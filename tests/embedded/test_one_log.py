"""One log read three times: a live view, current values, and a replay."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
import search_server
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import routes

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


@fm.operator(inputs={"totals": total})
def busiest(totals: fm.Stream) -> fm.Stream:
    """A stage behind it, from table to table."""
    windows = totals.key_by("key").window(fm.Global())
    return windows.aggregate(result=fm.max("result"))


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


@pytest.mark.feature("D10", "R10")
def test_a_live_view_a_search_index_of_current_values_and_a_replay_read_one_log_and_no_source(
    embedded: Computing, inbox: Path, lake: Lake, search: search_server.Server
) -> None:
    land_all(embedded, inbox, lake)
    shutil.rmtree(inbox)
    log = DeltaTable(lake.log("readings")).version()
    embedded.run_unbounded(total, lake, until_caught_up=True)
    assert results(lake, "total") == results(lake, "total__current") == truth(total)
    deliver(routes(total, [fm.ToSearch(search.url, index="one_log")], "test")[0], lake, until_caught_up=True)
    documents = search_server.documents(search.url, "one_log")
    found = [(one["key"], datetime.fromisoformat(one["window_start"]), one["result"]) for one in documents]
    assert Counter(found) == truth(total)

    embedded.run_unbounded(highest, lake, until_caught_up=True)
    assert results(lake, "highest") == truth(highest), "what is thought of later reads from the first row on"
    other = Lake(f"{lake.root}-replayed", logs=lake.root)
    embedded.run_bounded(total, other, Interval())
    assert results(other, "total") == truth(total)
    assert DeltaTable(lake.log("readings")).version() == log, "readers write nothing to it"


@pytest.mark.feature("R3")
def test_every_stage_is_a_table_and_history_is_a_replay_of_the_log_by_the_same_engine(
    embedded: Computing, inbox: Path, lake: Lake
) -> None:
    land_all(embedded, inbox, lake)
    shutil.rmtree(inbox)
    replayed = Lake(f"{lake.root}-replayed", logs=lake.root)
    for stage in (total, busiest):
        embedded.run_unbounded(stage, lake, until_caught_up=True)
        embedded.run_bounded(stage, replayed, Interval())
    expected = {key: max(n for found, _, n in truth(total) if found == key) for key in "ab"}
    for stages in (lake, replayed):
        assert results(stages, "total") == truth(total)
        rows = DeltaTable(stages.output("busiest")).to_pyarrow_table().filter(pc.field("_kind") == 0)
        assert dict(zip(rows["key"].to_pylist(), rows["result"].to_pylist(), strict=True)) == expected
