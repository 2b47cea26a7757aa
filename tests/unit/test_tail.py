"""Appends that are committed without opening the table: what Delta reads of them, and of those of other writers in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from appended import append, checkpoints, create, numbers, written
from deltalake import DeltaTable
from records import micro_batch

from floodmark.core.errors import LifecycleError
from floodmark.lake.table import history
from floodmark.lake.table.commits import Fenced
from floodmark.lake.table.files import Written
from floodmark.lake.writing.tail import Tail
from floodmark.lake.writing.writer import FENCE, Writer


@pytest.fixture
def path(tmp_path: Path) -> str:
    """An empty table with a checkpoint each ten commits."""
    found = str(tmp_path / "t")
    create(found)
    return found


def test_delta_reads_what_was_appended_and_checkpoints_come(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, of = list[str](), Tail.of
    monkeypatch.setattr(Tail, "of", lambda where: looked.append(where) or of(where))
    writer = Writer(path)
    assert all(append(writer, number) for number in range(35))
    assert len(looked) < 6
    assert numbers(path) == [(n, "2024-01-01" if n % 2 else None) for n in range(35)]
    assert DeltaTable(path).transaction_version("app") == 34
    assert checkpoints(path) == [9, 19, 29]
    assert [commit.record for commit in history.every(path, 1)] == [micro_batch(batch=34)]
    assert not list(Path(path, "_delta_log").glob("*.tmp"))
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    assert actions["num_records"].to_pylist() == [1] * 35
    assert sorted(actions["min.n"].to_pylist()) == list(range(35))


def test_writers_at_once_lose_nothing_and_write_nothing_twice(path: str) -> None:
    def work(app: str) -> None:
        writer = Writer(path)
        for number in range(12):
            assert append(writer, number, app)
            assert not append(Writer(path), number, app)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, "abcd"))
    assert [n for n, _ in numbers(path)] == [n for n in range(12) for _ in range(4)]
    assert DeltaTable(path).version() == 48


def test_a_fence_that_comes_while_files_are_written_ends_the_writer(path: str) -> None:
    writer = Writer(path)
    assert append(writer, 0)

    def fenced() -> Written:
        Writer(path).note(Fenced(operator="o", timeline=0), ("app", FENCE))
        return written(path, 1)

    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        writer.append(fenced, micro_batch(batch=1), ("app", 1))
    assert numbers(path) == [(0, None)]


def test_columns_that_change_meanwhile_are_kept(path: str) -> None:
    writer = Writer(path)
    assert append(writer, 0)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "3"})
    assert all(append(writer, number) for number in range(1, 6))
    assert len(numbers(path)) == 6
    assert list(Path(path, "_delta_log").glob("*5.checkpoint.parquet"))


def test_a_disk_without_links_is_written_by_delta(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    writer = Writer(path)
    assert all(append(writer, number) for number in range(3))
    assert len(numbers(path)) == 3
