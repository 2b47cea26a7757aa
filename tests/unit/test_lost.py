"""A data file that somebody removed: which one, which rows, what they came from, and the commands that are left."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake
from records import properties

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
)
from floodmark.core.errors import ExecutionError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.table import lost
from floodmark.lake.table.commits import Landed, Landing
from floodmark.lake.table.lost import found_lost, known_lost, lost_files, note_lost
from floodmark.observe.status import status


class Event(Contract):
    """Something that happened."""

    at: EventTime
    key: str


@operator
def hourly(events: Stream[Event]) -> Stream:
    """Events per key and hour."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


EVENTS = Source("events", contract=Event, connector=Files("."), watermark=BoundedOutOfOrderness("1 minute"))


def _land(path: str, ordinal: int, first: int, hour: int, unit: str) -> None:
    """Two rows and a marker, as a landing commit writes them."""
    times = [datetime(2025, 1, 1, hour, minute, tzinfo=UTC) for minute in (1, 59)]
    columns = {
        "at": pa.array([*times, None], pa.timestamp("us", "UTC")),
        "key": ["a", "b", None],
        "_event_time": pa.array([*times, None], pa.timestamp("us", "UTC")),
        "_sequence": [first, first + 1, first + 2],
        "_kind": pa.array([0, 0, 1], pa.int32()),
    }
    units = tuple(
        Landed(name=name, size=1, modified=1, digest="d", status=status, ordinal=ordinal)
        for name, status in ((unit, "landed"), (f"{unit}.cut", "unreadable"))
    )
    landing = Landing(source="events", ordinal=ordinal, next_sequence=first + 3, rows=2, units=units)
    write_deltalake(path, pa.table(columns), mode="append", commit_properties=properties(landing))


def actions(path: str) -> list[dict[str, Any]]:
    """The files a table's log names."""
    found: list[dict[str, Any]] = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A log of three commits, the file of the second of which is gone."""
    found = Lake(str(tmp_path / "lake"))
    path, before = found.log("events"), set[Path]()
    for ordinal in range(3):
        _land(path, ordinal, 3 * ordinal, 8 + ordinal, f"events_{ordinal}.csv")
        files = set(Path(path).glob("*.parquet"))
        if ordinal == 1:
            (gone,) = files - before
        before = files
    gone.unlink()
    return found


def test_the_file_its_rows_and_what_they_came_from_are_named(lake: Lake) -> None:
    (found,) = lost_files(lake.log("events"))
    assert (found.rows, found.sequences, found.units) == (3, (3, 5), ("events_1.csv",))
    assert found.describe().endswith(
        "3 rows, _sequence 3 to 5, event time 2025-01-01T09:01:00Z to 2025-01-01T09:59:00Z, landed from events_1.csv"
    )


def test_a_file_that_is_cut_short_is_named_with_what_is_left_of_it(lake: Lake) -> None:
    (gone,) = lost_files(lake.log("events"))
    Path(gone.path).write_bytes(b"PAR1")
    (found,) = lost_files(lake.log("events"))
    assert found.describe().startswith(f"{gone.path} (damaged: 4 of ")
    assert found.describe().endswith(gone.describe().removeprefix(gone.path))


def test_a_table_with_all_its_files_has_lost_none(lake: Lake, tmp_path: Path) -> None:
    _land(str(tmp_path / "whole"), 0, 0, 8, "a.csv")
    assert lost_files(str(tmp_path / "whole")) == []


def test_a_look_sees_the_files_of_the_newest_commits_and_those_upkeep_has_missed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = lake.log("events"), list[str]()
    (gone,) = lost_files(path)
    there = lost._is_there
    monkeypatch.setattr(lost, "_is_there", lambda table, name: asked.append(name) or there(table, name))
    monkeypatch.setattr(lost, "NEWEST", 1)
    assert known_lost(path) == []
    assert len(asked) == 1
    note_lost(path)
    assert known_lost(path) == [gone]
    action = next(a for a in actions(path) if gone.path.endswith(a["path"]))
    Path(gone.path).write_bytes(bytes(action["size_bytes"]))
    assert known_lost(path) == []
    note_lost(path)
    Path(gone.path).unlink()
    assert known_lost(path) == []
    monkeypatch.setattr(lost, "NEWEST", 2)
    assert known_lost(path) == [gone]


def test_files_that_were_merged_and_removed_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "log")
    for ordinal in range(3):
        _land(path, ordinal, 3 * ordinal, 8, f"{ordinal}.csv")
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(list(Path(path).glob("*.parquet"))) == 1
    monkeypatch.setattr(lost, "lost_files", lambda _: pytest.fail("looks at all files"))
    assert known_lost(path) == []


def test_a_run_that_fails_for_it_says_what_can_be_done(lake: Lake) -> None:
    (gone,) = lost_files(lake.log("events"))
    spark = ExecutionError(
        "a run", "to get through", f"[FAILED_READ_FILE] {gone.path}", "Mend it.", code="EXECUTION-003"
    )
    with pytest.raises(ExecutionError) as caught, found_lost(hourly, lake, "floodmark run hourly"):
        raise spark
    error = caught.value
    assert (error.code, error.where) == ("EXECUTION-060", f"log 'events' in {lake.root}")
    assert error.got.startswith(f"1 gone: {gone.path}, 3 rows, _sequence 3 to 5, ")
    for command in (
        "then: floodmark run hourly.",
        "floodmark land events --lake FOLDER",
        "floodmark run hourly --to 2025-01-01T09:01:00Z",
    ):
        assert command in error.fix


def test_a_run_that_fails_for_something_else_says_that(lake: Lake) -> None:
    error = ExecutionError("a run", "to get through", "division by zero", "Mend it.", code="EXECUTION-003")
    with pytest.raises(ExecutionError, match="EXECUTION-003"), found_lost(hourly, lake, "floodmark run hourly"):
        raise error


def test_status_says_so_before_anybody_runs_into_it(lake: Lake) -> None:
    workspace = Workspace(sources=[EVENTS], operators=[hourly])
    source, _ = status(workspace, lake)
    assert source["state"].startswith("1 of its files gone, 3 rows: ")
    assert source["lost"][0]["units"] == ("events_1.csv",)


def test_status_knows_what_landed_when_somebodys_clean_up_has_removed_the_entry(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    path = lake.log("events")
    landing = Landing(source="events", ordinal=4, next_sequence=25, rows=5, ended=True)
    written = properties(landing)
    written.app_transactions = [Transaction(log.application("events"), 4)]
    rows = pa.table({"_sequence": [24]})
    write_deltalake(path, rows, mode="append", commit_properties=written)
    log.remember(path, landing)
    for _ in range(3):
        write_deltalake(path, rows.slice(1), mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    source, _ = status(Workspace(sources=[EVENTS], operators=[hourly]), lake)
    assert (source["state"], source["commits"], source["rows"], source["ended"]) == ("ended", 5, 20, True)
    assert "last_run" not in source
