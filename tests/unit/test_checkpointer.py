"""Delta's checkpoints that are written beside the next commits: which come, what is read around them, what a failure of one does."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from appended import append, checkpoints, create, numbers
from deltalake import DeltaTable

from floodmark.core.errors import ExecutionError
from floodmark.lake.maintenance.expiry import expire
from floodmark.lake.table import entries
from floodmark.lake.table.entries import LOG, checkpoint_of, entry_of
from floodmark.lake.writing import checkpointer
from floodmark.lake.writing.checkpointer import Checkpointer
from floodmark.lake.writing.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> str:
    """An empty table with a checkpoint each ten commits."""
    found = str(tmp_path / "t")
    create(found)
    return found


def occupy(path: str, version: int) -> Path:
    """Put a folder in the place of a checkpoint, so that it cannot be written."""
    place = Path(path, LOG, checkpoint_of(version))
    place.mkdir()
    return place


def expected(last: int) -> list[tuple[int, str | None]]:
    return [(n, "2024-01-01" if n % 2 else None) for n in range(last + 1)]


def test_checkpoints_come_and_every_version_around_them_is_read(path: str) -> None:
    with Checkpointer() as beside:
        writer = Writer(path, beside)
        assert all(append(writer, number) for number in range(35))
    assert beside.failures() == ()
    assert checkpoints(path) == [9, 19, 29]
    assert entries.checkpointed(path) == 29
    assert numbers(path) == expected(34)
    for version in range(8, 32):
        assert numbers(path, version) == expected(version - 1)
        assert DeltaTable(path, version=version).transaction_version("app") == version - 1
    for version in range(29):  # from the checkpoint alone
        Path(path, LOG, entry_of(version)).unlink()
    assert numbers(path) == expected(34)


def test_a_table_has_one_checkpoint_at_work_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, busy, versions = checkpointer.write_checkpoint, threading.Lock(), list[int]()

    def alone(where: str, version: int) -> None:
        assert busy.acquire(blocking=False), "another one is at work"
        write(where, version)
        versions.append(version)
        busy.release()

    monkeypatch.setattr(checkpointer, "write_checkpoint", alone)
    with Checkpointer() as beside:
        for version in range(1, 31):
            append(Writer(path), version)
            beside.start(path, version)
    assert beside.failures() == ()
    assert versions == list(range(1, 31))


def test_a_failure_is_told_once_and_the_next_checkpoint_makes_up_for_it(path: str) -> None:
    place = occupy(path, 9)
    with Checkpointer() as beside:
        writer = Writer(path, beside)
        assert all(append(writer, number) for number in range(12))
    (told,) = beside.failures()
    assert told.startswith(f"no checkpoint was written of table {path} at version 9: ")
    assert "No row is lost" in told
    assert beside.failures() == ()
    beside.check()
    assert numbers(path) == expected(11)
    assert entries.checkpointed(path) == 0
    with beside:
        assert all(append(writer, number) for number in range(12, 25))
    assert beside.failures() == ()
    assert entries.checkpointed(path) == 19
    place.rmdir()
    assert numbers(path) == expected(24)


def test_failures_one_after_the_other_are_refused(path: str) -> None:
    places = [occupy(path, version) for version in (9, 19)]
    with Checkpointer() as beside:
        writer = Writer(path, beside)
        assert all(append(writer, number) for number in range(25))
    assert len(beside.failures()) == 2
    with pytest.raises(
        ExecutionError, match=r"EXECUTION-062 table .*/t: .* 2 failures in a row.* version 19: .*_delta_log"
    ):
        beside.check()
    assert numbers(path) == expected(24)
    for place in places:
        place.rmdir()
    with beside:
        assert all(append(writer, number) for number in range(25, 30))
    beside.check()
    assert checkpoints(path) == [29]


def test_without_threads_to_spare_the_failure_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Checkpointer() as beside:
        assert all(append(Writer(path, beside), number) for number in range(10))
    assert [text.split(": ")[1].split(".")[0] for text in beside.failures()] == ["can't start new thread"]


def test_upkeep_that_comes_before_a_checkpoint_has_made_up_for_it(path: str) -> None:
    for number in range(15):
        append(Writer(path), number)
    assert expire(path, floor=15, hours=0).files
    with Checkpointer() as beside:
        beside.start(path, 9)
    assert beside.failures() == ()
    assert (entries.checkpointed(path), checkpoints(path)) == (15, [15])
    assert numbers(path) == expected(14)


def test_a_writer_without_a_checkpointer_waits_for_its_checkpoint(path: str) -> None:
    writer = Writer(path)
    for number in range(9):
        append(writer, number)
    assert checkpoints(path) == [9]


def test_what_a_killed_process_leaves_of_a_checkpoint_is_no_part_of_the_table(path: str) -> None:
    """Delta-rs writes a draft beside the checkpoint, puts it in its place, and names it: dead before any of these."""
    assert all(append(Writer(path), number) for number in range(19))
    log, kept = Path(path, LOG), Path(path).with_name("kept")
    shutil.copytree(path, kept)
    whole = (log / checkpoint_of(19)).read_bytes()
    named = (log / "_last_checkpoint").read_bytes()
    for dead in ("draft", "unnamed"):
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        (log / "_last_checkpoint").write_bytes(named.replace(b'"version":19', b'"version":9'))
        if dead == "draft":
            (log / checkpoint_of(19)).unlink()
            (log / f"{checkpoint_of(19)}#1").write_bytes(whole[: len(whole) // 2])
        assert entries.checkpointed(path) == 9
        assert entries.version_of(path) == 19
        assert numbers(path) == expected(18)
        writer = Writer(path)
        assert writer.committed("app") == 18
        assert all(append(writer, number) for number in range(19, 30))
        assert numbers(path) == expected(29)
        assert expire(path, floor=25, hours=0).files
        assert numbers(path) == expected(29)
        assert not list(log.glob("*#1"))


def test_entries_that_a_table_lets_expire_go_with_its_checkpoint(tmp_path: Path) -> None:
    """As with a commit of delta-rs; of logs and outputs none expires."""
    for properties, oldest in (({"delta.logRetentionDuration": "interval 0 days"}, 9), ({}, 0)):
        path = str(tmp_path / f"oldest {oldest}")
        create(path)
        DeltaTable(path).alter.set_table_properties(properties or {"delta.logRetentionDuration": "interval 36500 days"})
        assert all(append(Writer(path), number) for number in range(8))
        assert checkpoints(path) == [9]
        assert min(int(file.stem) for file in Path(path, LOG).glob("*.json")) == oldest
