"""A checkpoint whose newest file is garbage: which file, and what can still be done."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

from floodmark import Contract, EventTime, Stream, operator
from floodmark.core.errors import StateError
from floodmark.engines.spark.unbounded.run import check_logs
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline

OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{"reservoirId":"t","reservoirVersion":1,"index":-1,"isStartingVersion":false}'
COMMITS = 'v1\n{"nextBatchWatermarkMs":0}'


class Event(Contract):
    """Something that happened."""

    at: EventTime


@operator
def same(events: Stream[Event]) -> Stream:
    """The rows as they are."""
    return events.filter("true")


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    """A stream that has committed micro-batch 0 and planned the next one."""
    lake = Lake(str(tmp_path))
    timeline = Timeline(lake, "same")
    timeline.identity.deploy(same)
    DeltaTable.create(lake.output("same"), Schema.from_arrow(pa.schema([("a", pa.int32())])))
    _write(lake.output("same"), timeline.app("same"), 0)
    for log, text in (("offsets", OFFSETS), ("commits", COMMITS)):
        _put(timeline, f"{log}/0", text)
    _put(timeline, "offsets/1", OFFSETS)
    return timeline


def _write(path: str, app: str, batch: int) -> None:
    table = DeltaTable(path)
    properties = CommitProperties(app_transactions=[Transaction(app, batch)])
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=properties)


def _put(timeline: Timeline, name: str, text: str) -> None:
    file = Path(timeline.checkpoint.path, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_whole_checkpoint_is_fine(timeline: Timeline) -> None:
    check_logs(timeline, clocked=False)


@pytest.mark.parametrize("garbage", ["", "\0" * 100, "v1", "v1\n{}\n\ufffd", "v1\n{\n{}", "v1\n[]"])
def test_a_garbled_file_of_a_committed_micro_batch_is_named_with_what_is_left(timeline: Timeline, garbage: str) -> None:
    Path(timeline.checkpoint.path, "offsets", "1").unlink()
    for file in ("offsets/0", "commits/0"):
        _put(timeline, file, garbage)
        with pytest.raises(StateError) as caught:
            check_logs(timeline, clocked=False)
        assert caught.value.code == "STATE-036"
        assert caught.value.where == f"file {timeline.checkpoint.path}/{file}"
        assert "floodmark rollback same --to SAVEPOINT" in caught.value.fix
        assert "floodmark run same --unbounded --from-scratch" in caught.value.fix
        _put(timeline, file, OFFSETS if file == "offsets/0" else COMMITS)


def test_a_garbled_file_of_the_micro_batch_before_is_named_too(timeline: Timeline) -> None:
    _put(timeline, "commits/1", COMMITS)
    _put(timeline, "offsets/0", "garbage")
    with pytest.raises(StateError, match=r"STATE-036 file .*/offsets/0: .*rollback same --to SAVEPOINT"):
        check_logs(timeline, clocked=False)


def test_a_garbled_plan_of_a_micro_batch_nobody_has_rows_of_can_go(timeline: Timeline) -> None:
    _put(timeline, "offsets/1", "")
    _put(timeline, "offsets/.1.crc", "crc")
    with pytest.raises(
        StateError, match=r"STATE-036 .*an empty file.*Remove the file and its checksum: rm -f "
    ) as caught:
        check_logs(timeline, clocked=False)
    subprocess.run(caught.value.fix.split("checksum: ")[1], shell=True, check=True)  # noqa: S602 - as a person does
    assert sorted(file.name for file in Path(timeline.checkpoint.path, "offsets").iterdir()) == ["0"]
    check_logs(timeline, clocked=False)


def test_a_garbled_plan_of_a_micro_batch_that_was_written_stays(timeline: Timeline) -> None:
    _put(timeline, "offsets/1", "")
    with pytest.raises(StateError, match="rollback same --to"):
        check_logs(timeline, clocked=True)  # its clock may be recorded
    _write(timeline.lake.output("same"), timeline.app("same"), 1)
    with pytest.raises(StateError, match="rollback same --to"):
        check_logs(timeline, clocked=False)


def test_a_garbled_identity_is_named(timeline: Timeline) -> None:
    _put(timeline, "floodmark.json", "}")
    with pytest.raises(StateError, match=r"STATE-036 file .*/floodmark.json"):
        timeline.identity.deployed()
