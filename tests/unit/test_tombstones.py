"""Upkeep's checkpoints say what a table consists of, and name no file that is gone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.lake.maintenance import tombstones
from floodmark.lake.table import entries


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table whose files were merged: of those that were replaced, the first one of each partition is gone."""
    place = str(tmp_path / "t")
    for number in range(4):
        rows = pa.table({"n": [number, number], "of": ["a b", "c%d"]})
        said = CommitProperties(app_transactions=[Transaction(f"app{number % 2}", number)])
        write_deltalake(place, rows, mode="append", partition_by="of", commit_properties=said)
    first = DeltaTable(place, version=0).file_uris()
    assert len(first) == 2
    DeltaTable(place).optimize.compact()
    for file in first:
        Path(file).unlink()
    return place


def told(path: str, version: int) -> tuple[set[str], int]:
    """Removed files that a checkpoint names, and how many it has that count."""
    with pq.ParquetFile(Path(path, entries.LOG, entries.checkpoint_of(version))) as file:
        actions = file.read().to_pylist()
    return {unquote(one["remove"]["path"]) for one in actions if one["remove"]}, sum(
        bool(one["add"]) for one in actions
    )


def test_a_checkpoint_names_the_replaced_files_that_are_there(path: str) -> None:
    before = DeltaTable(path)
    version, rows = before.version(), before.to_pyarrow_table().sort_by([("of", "ascending"), ("n", "ascending")])
    assert tombstones.checkpoint(path, version)
    removed, live = told(path, version)
    assert live == 2
    assert len(removed) == 6
    assert all(Path(path, name).is_file() for name in removed)
    for entry in Path(path, entries.LOG).glob("*.json"):
        entry.unlink()
    table = DeltaTable(path)
    assert table.version() == version == entries.checkpointed(path)
    assert table.to_pyarrow_table().sort_by([("of", "ascending"), ("n", "ascending")]) == rows
    assert [table.transaction_version(f"app{number}") for number in range(3)] == [2, 3, None]
    assert table.metadata().partition_columns == ["of"]


def test_the_next_checkpoint_of_delta_begins_with_it(path: str) -> None:
    tombstones.checkpoint(path, DeltaTable(path).version())
    removed, _ = told(path, DeltaTable(path).version())
    write_deltalake(path, pa.table({"n": [9], "of": ["a b"]}), mode="append")
    DeltaTable(path).create_checkpoint()
    assert told(path, DeltaTable(path).version()) == (removed, 3)


def test_a_checkpoint_that_is_there_stays_as_it_is_and_one_the_log_cannot_tell_is_not_made(path: str) -> None:
    DeltaTable(path).create_checkpoint()
    version = DeltaTable(path).version()
    file, note = (Path(path, entries.LOG, name) for name in (entries.checkpoint_of(version), "_last_checkpoint"))
    content = file.read_bytes()
    note.unlink()
    assert tombstones.checkpoint(path, version)
    assert file.read_bytes() == content
    assert entries.checkpointed(path) == version
    file.unlink()
    Path(path, entries.LOG, entries.entry_of(1)).unlink()
    assert not tombstones.checkpoint(path, version)
    assert not file.exists()
