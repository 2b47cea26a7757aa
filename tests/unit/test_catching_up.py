"""A stream that is far behind goes on with the files that are there now; stopped while that is written down, it does the same again."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import forked
import hadoop_files
import pyarrow.parquet as pq
import pytest
import shorten_process
from deltalake import DeltaTable
from numbered_logs import SCHEMA, land, log
from processes import paths
from shorten_process import READER
from streams import PLAIN

from floodmark.core import crash
from floodmark.engines.embedded.unbounded import inputs as embedded
from floodmark.engines.embedded.unbounded.inputs import Reader
from floodmark.engines.spark.state.checkpoint import Checkpoint
from floodmark.engines.spark.unbounded import inputs
from floodmark.lake.folder import storage
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.canonical import Passed
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.table.sequences import in_order, last_read
from floodmark.lake.writing.compaction import compact
from floodmark.lifecycle.savepoint import TableVersion


def plan(checkpoint: Checkpoint, batch: int, version: int, file: int, table: str) -> None:
    """The offsets of a micro-batch, as Spark writes them."""
    place = {"reservoirVersion": version + 1, "index": file, "isStartingVersion": False}
    offset = json.dumps({"sourceVersion": 1, "reservoirId": table, **place})
    header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    target = Path(checkpoint.path, "offsets", str(batch))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"v1\n{header}\n{offset}")


@pytest.fixture
def behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, TableVersion, int]:
    """A stream that has read two of the three files of a commit; much has come since, and was merged. With the last sequence it has read."""
    lake = Lake(str(tmp_path / "lake"))
    path = Path(lake.log("s"))
    last = log(path, random.Random(1), 5)
    version = DeltaTable(str(path)).version()
    land(path, 5, [range(last + 1, last + 4), range(last + 4, last + 8), range(last + 8, last + 9)], modified=5_000)
    for more in range(8):
        land(path, 6 + more, [range(last + 9 + 30 * more, last + 39 + 30 * more)], modified=6_000 + more)
    compact(str(path), 30_000)
    table = str(DeltaTable(str(path)).metadata().id)
    timeline = shorten_process.timeline(lake.root, str(tmp_path / "checkpoint"))
    for batch in (3, 4):
        plan(timeline.checkpoint, batch, version, 1, table)
    monkeypatch.setattr(inputs, "FAR_BEHIND", shorten_process.FAR_BEHIND)
    monkeypatch.setattr(inputs, "positions_at", lambda one, n: {"s": one.checkpoint.positions(n)[0]})
    return timeline, TableVersion(table="s", id=table, version=version, file=1), last + 7


def shortened(timeline: Any, reading: TableVersion) -> None:
    inputs.shorten(READER, timeline, 4, {"s": reading})


def test_it_reads_what_is_behind_its_last_row(behind: tuple[Any, TableVersion, int]) -> None:
    timeline, reading, read = behind
    table = DeltaTable(timeline.lake.log("s"))
    assert last_read(timeline.lake.log("s"), reading.version, reading.file) == read
    shortened(timeline, reading)
    at = timeline.checkpoint.positions(4)[0]
    assert timeline.checkpoint.positions(3)[0] == at
    assert at.version == reading.version
    assert at.snapshot == table.version()
    assert timeline.checkpoint.passed() == {reading.id: Passed(read, reading.version)}
    files = in_order(table) or []
    assert all(file.last <= read for file in files[: at.file + 1])
    assert files[at.file + 1].first <= read < files[at.file + 1].last, "a file holds what is read, and what is not"


@pytest.mark.parametrize("writes", range(3))
def test_stopped_between_two_writes_it_ends_the_same(
    behind: tuple[Any, TableVersion, int], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    timeline, reading, _ = behind
    write, done = storage.write, []

    def failing(path: str, content: bytes) -> None:
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path)
        write(path, content)

    monkeypatch.setattr(storage, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        shortened(timeline, reading)
    monkeypatch.setattr(storage, "write", write)
    shortened(timeline, reading)
    at = timeline.checkpoint.positions(4)[0]
    assert timeline.checkpoint.positions(3)[0] == at
    assert at.snapshot == DeltaTable(timeline.lake.log("s")).version()


@pytest.mark.parametrize("point", [*crash.POINTS["shorten"], "rewrite.after_checksum:2"])
@pytest.mark.few(2)
def test_killed_between_two_of_its_steps_it_ends_the_same(
    behind: tuple[Any, TableVersion, int], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    timeline, reading, read = behind
    plan(timeline.checkpoint, 5, reading.version + 1, -1, reading.id)
    offsets = Path(timeline.checkpoint.path, "offsets")
    for batch in (3, 4, 5):
        hadoop_files.write_checksum(offsets / str(batch))  # as Spark does on a local disk
    place = [timeline.lake.root, timeline.checkpoint.path, reading.id, str(reading.version), str(reading.file)]
    command = [sys.executable, shorten_process.__file__, *place]
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: point}
    assert forked.run(command, env=environment).returncode == -signal.SIGKILL
    hadoop_files.check(offsets)
    shortened(timeline, reading)
    at = timeline.checkpoint.positions(4)[0]
    assert timeline.checkpoint.positions(3)[0] == at
    assert at.snapshot == DeltaTable(timeline.lake.log("s")).version()
    assert timeline.checkpoint.passed() == {reading.id: Passed(read, reading.version)}
    left = sorted(file.name for file in offsets.iterdir())
    assert left == ["3", "4"], "it is planned again, and no checksum is in the way"


def test_what_is_planned_is_left_where_a_table_has_rows_of_it(
    behind: tuple[Any, TableVersion, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, reading, _ = behind
    plan(timeline.checkpoint, 5, reading.version + 1, -1, reading.id)
    checksum = Path(timeline.checkpoint.path, "offsets", ".5.crc")
    checksum.write_bytes(b"crc")  # as Spark does on a local disk
    before = timeline.checkpoint.positions(4)
    timeline.newest_written = 5
    shortened(timeline, reading)
    assert timeline.checkpoint.positions(4) == before
    timeline.newest_written = 4
    shortened(timeline, reading)
    assert timeline.checkpoint.positions(4)[0].snapshot is not None
    assert timeline.checkpoint.batches("offsets") == [3, 4], "it is planned again"
    assert not checksum.exists(), "Spark cannot write a file beside the checksum of an older one"


def test_a_position_is_written_as_it_is_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    plan(checkpoint, 0, 3, 2, "t")
    for position in (Position(7, 2, "t"), Position(-1, 4, "t", 9)):
        checkpoint.set_position(0, 0, position)
        assert checkpoint.positions(0) == [position]
    checkpoint.set_position(0, 0, Position(5, 4, "t", 9), Passed(17, 5))
    assert checkpoint.positions(0) == [Position(5, 4, "t", 9)]


@pytest.mark.parametrize("behind", [-1, 17])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_stream_before_the_first_file_of_a_version_goes_on_with_those_that_are_there(
    tmp_path: Path, behind: int, *, forgotten: bool
) -> None:
    """On the embedded engine: one that another engine has begun, or that was stopped when it went over to files, has read none of them."""
    lake = Lake(str(tmp_path / "lake"))
    path = Path(lake.log("s"))
    DeltaTable.create(str(path), SCHEMA)
    for ordinal in range(8):
        land(path, ordinal, [range(10 * ordinal, 10 * ordinal + 10)], modified=1_000 + ordinal)
    table = DeltaTable(str(path))
    at = Position(-1 if behind < 0 else 2, -1, str(table.metadata().id), table.version())

    def read() -> list[int]:
        """Sequences in the files, from the first that is taken to the end."""
        reader, place, found = Reader(PLAIN, READER.inputs[0], lake, 1, str(tmp_path / "none"), behind), at, list[int]()
        while (take := reader.next(place)) is not None and take.files:
            for file in take.files:
                rows = pq.read_table(path / file.path)["_sequence"].to_pylist()
                found += [n for n in rows if n > max(take.behind, behind)]
            place = take.position
        return found

    assert read() == list(range(behind + 1, 80))
    compact(str(path), 30_000)
    DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    if forgotten:
        DeltaTable(str(path)).create_checkpoint()
        for entry in (path / "_delta_log").glob("*.json"):
            if int(entry.name.split(".")[0]) <= table.version():
                entry.unlink()
    assert len(DeltaTable(str(path)).file_uris()) < 8
    assert read() == list(range(behind + 1, 80))


def test_a_micro_batch_looks_at_no_more_files_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the embedded engine: however many a stream has before it that begins."""
    lake = Lake(str(tmp_path / "lake"))
    path = Path(lake.log("s"))
    DeltaTable.create(str(path), SCHEMA)
    for ordinal in range(30):
        land(path, ordinal, [range(10 * ordinal, 10 * ordinal + 10)], modified=1_000 + ordinal)
    looked = list[str]()

    def unquoted(name: str) -> str:
        looked.append(name)
        return unquote(name)

    monkeypatch.setattr(embedded, "unquote", unquoted)
    reader, place, taken = Reader(PLAIN, READER.inputs[0], lake, 2, str(tmp_path / "none")), None, 0
    while (take := reader.next(place)) is not None and take.files:
        taken, place = taken + len(take.files), take.position
    assert taken == 30
    assert len(looked) <= 30 + 15, "one more for each micro-batch, which does not fit"
