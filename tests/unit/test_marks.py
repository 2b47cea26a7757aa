"""The records of starts and of the clock stay few files, and a savepoint has those up to its micro-batch. No JVM starts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from small_lake import batch, make, row

from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.maintenance import retention
from floodmark.lake.maintenance.retention import merge_marks
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import marks
from floodmark.lake.stream.timeline import STARTS, TICKS, Timeline
from floodmark.lake.table.commits import Ticked, encode
from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are many."""
    monkeypatch.setattr(retention, "_MOST_FILES", 3)


TICK = ("batch", "clock", "progress", "sequence", "reached")


def ticking(root: Path, batches: int) -> Lake:
    """A lake whose stream has recorded the clock, with the records of starts beside its input."""
    lake = make(root)
    for number in range(2, batches):
        batch(lake, number, [row("a", number, 10 + number)])
    for number in range(batches):
        tick(lake, number)
    path = folder(lake, STARTS)
    for _ in range(batches):
        write_deltalake(path, pa.table({"input": ["events"], "progress": [0]}), mode="append")
    timeline, starts = Timeline.current(lake, "totals"), str(DeltaTable(path).metadata().id)
    for number in range(batches):  # a micro-batch reads one of them
        at = {"sourceVersion": 1, "reservoirId": starts, "reservoirVersion": number + 1, "index": -1}
        place = f"{timeline.checkpoint.path}/offsets/{number}"
        offsets = (read(place) or b"").decode() + "\n" + json.dumps(at | {"isStartingVersion": False})
        write(place, offsets.encode())
    return lake


def folder(lake: Lake, name: str) -> str:
    return Timeline.current(lake, "totals").folder(name)


def tick(lake: Lake, number: int) -> None:
    properties = CommitProperties(
        custom_metadata={"userMetadata": encode(Ticked(operator="totals", batch=number))},
        app_transactions=[Transaction("totals/ticks", number)],
    )
    values = pa.table({name: [number] for name in TICK})
    write_deltalake(folder(lake, TICKS), values, mode="append", commit_properties=properties)


def batches(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["batch"].to_pylist())


def test_they_are_merged_and_what_a_stream_can_go_back_to_stays(tmp_path: Path) -> None:
    lake = ticking(tmp_path, 6)
    assert marks.reached(folder(lake, TICKS)) == 5
    assert not merge_marks(lake, hours=1)
    for name in (STARTS, TICKS):
        assert len(DeltaTable(folder(lake, name)).file_uris()) == 1
    assert marks.reached(folder(lake, TICKS)) == 5
    tick(lake, 6)
    for number in range(4):  # Spark keeps the newest hundred
        for log in ("offsets", "commits"):
            Path(Timeline.current(lake, "totals").checkpoint.path, log, str(number)).unlink()
    time.sleep(0.002)
    would = merge_marks(lake, hours=0, dry_run=True)
    gone = merge_marks(lake, hours=0)
    assert [(one.kind, one.files) for one in gone] == [(TICKS, 6)], "the markers of the starts are behind what was read"
    assert would == gone
    assert batches(folder(lake, TICKS)) == list(range(7))
    made = savepoints.create("totals", lake)
    assert not savepoints.verify(made)
    assert batches(f"{made.path}/{TICKS}") == list(range(6)), "not the one of the micro-batch behind it"
    assert DeltaTable(f"{made.path}/{TICKS}").transaction_version("totals/ticks") == 5
    roll_back(lake, made)
    tick(lake, 6)
    assert marks.reached(folder(lake, TICKS)) == 6
    assert batches(folder(lake, TICKS)) == list(range(7))


def test_savepoints_of_every_micro_batch_that_is_kept_are_whole_after_upkeep(tmp_path: Path) -> None:
    lake = ticking(tmp_path, 5)
    for _ in range(2):
        merge_marks(lake, hours=0)
        time.sleep(0.002)
    for number in (1, 3, 4):
        made = savepoints.create("totals", lake, batch=number)
        assert batches(f"{made.path}/{TICKS}") == list(range(number + 1))
        savepoints.delete(made)


def test_a_stream_records_the_clock_while_its_records_are_merged(tmp_path: Path) -> None:
    lake = ticking(tmp_path, 4)
    path = folder(lake, TICKS)
    writer = Writer(path)
    writer.table()  # as it was before
    merge_marks(lake, hours=0)

    def written() -> Written:
        target = Path(path) / "new"
        target.mkdir()
        pq.write_table(pa.table({name: [4] for name in TICK}), target / "a.parquet")
        return Written(folder=target)

    assert writer.append(written, Ticked(operator="totals", batch=4), ("totals/ticks", 4))
    assert batches(path) == list(range(5))


@pytest.mark.parametrize("statistics", [True, False])
def test_what_ticks_have_reached_is_known_without_statistics_too(tmp_path: Path, statistics: bool) -> None:
    path = str(tmp_path / "ticks")
    values = pa.table({name: [7, 5] for name in TICK})
    configuration = {} if statistics else {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(path, values, configuration=configuration)
    assert marks.reached(path) == 7
    write_deltalake(str(tmp_path / "empty"), values.slice(0, 0))
    assert marks.reached(str(tmp_path / "empty")) is None
