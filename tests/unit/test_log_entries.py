"""The entries of a log as files say what an opened table says, and looking at the newest costs the same with any history."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from records import micro_batch, properties, restored
from small_lake import CHANGELOG, LOG, make

from floodmark.lake.results import coverage
from floodmark.lake.table import entries, history, outputs

SIZES = (1, 2, 3, 7, 8, 9, 40)


def write(path: str, numbers: range) -> None:
    for number in numbers:
        record = restored() if number == 4 else micro_batch(batch=number, progress=number)
        rows = pa.table({"n": [number]} | ({"later": ["x"]} if number >= 7 else {}))
        said = properties(record)
        said.app_transactions = [Transaction(f"app{number % 5}", number)]
        merge = "merge" if number == 7 else None
        write_deltalake(
            path, rows, mode="append", schema_mode=merge, commit_properties=said, configuration=outputs.KEPT
        )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Tables with so many commits, without checkpoints."""
    folder, made = tmp_path_factory.mktemp("tables"), dict[int, Path]()
    path = folder / "t"
    for size in SIZES:
        write(str(path), range(max(made, default=0), size))
        made[size] = Path(shutil.copytree(path, folder / str(size)))
    return made


def check(path: str) -> None:
    table = DeltaTable(path)
    assert entries.newest(path) == entries.version_of(path) == table.version()
    assert entries.id_of(path) == str(table.metadata().id)
    assert list(history.every(path)) == list(history._opened(table, path))
    fields = entries.fields_of(path).items()
    assert [(name, field["type"]) for name, field in fields] == [(f.name, f.type.type) for f in table.schema().fields]
    for app in ("app0", "app1", "app4", "another"):
        assert entries.transaction_of(path, app) == table.transaction_version(app)
    assert entries.is_table(path)
    actions = pa.table(table.get_add_actions()).sort_by("modification_time")
    assert entries.live_files(path) == actions["path"].to_pylist()


@pytest.mark.parametrize("size", SIZES)
def test_version_id_and_commits_are_those_of_the_opened_table(tables: dict[int, Path], size: int) -> None:
    check(str(tables[size]))


@pytest.mark.parametrize("at", [0, 3, 30, 39])
def test_the_same_from_a_checkpoint_on(tables: dict[int, Path], tmp_path: Path, at: int) -> None:
    path = str(shutil.copytree(tables[40], tmp_path / "t"))
    DeltaTable(path, version=at).create_checkpoint()
    check(path)


def test_the_same_where_the_first_entries_are_gone(tables: dict[int, Path], tmp_path: Path) -> None:
    path = str(shutil.copytree(tables[40], tmp_path / "t"))
    DeltaTable(path).create_checkpoint()
    write(path, range(40, 43))
    for version in range(39):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    check(path)
    assert len(list(history.every(path))) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": "x"}', b'{"version": 12}', b'{"version": 999}'])
def test_a_note_of_the_last_checkpoint_that_is_wrong_is_no_harm(
    tables: dict[int, Path], tmp_path: Path, content: bytes
) -> None:
    path = str(shutil.copytree(tables[40], tmp_path / "t"))
    Path(path, "_delta_log", "_last_checkpoint").write_bytes(content)
    assert entries.version_of(path) == 39
    assert len(list(history.every(path))) == 40


@pytest.mark.parametrize("checkpoint", [None, 1, 3, 5])
def test_files_that_were_replaced_are_not_among_those_of_the_newest_version(
    tmp_path: Path, checkpoint: int | None
) -> None:
    path = str(tmp_path / "t")
    for number in range(6):
        rows = pa.table({"n": [number], "of": ["a b"]})
        write_deltalake(path, rows, mode="overwrite" if number == 3 else "append", partition_by="of")
        if number == checkpoint:
            DeltaTable(path).create_checkpoint()
    files = [str(tmp_path / "t" / name) for name in entries.live_files(path) or []]
    assert [pa.table(pq.ParquetFile(file).read())["n"].to_pylist() for file in files] == [[3], [4], [5]]


def test_where_there_is_no_table(tmp_path: Path) -> None:
    for ask in (entries.version_of, entries.id_of, entries.fields_of, history.every):
        with pytest.raises(TableNotFoundError):
            ask(str(tmp_path / "none"))
    assert not list(history.standing(str(tmp_path / "none")))
    (tmp_path / "begun" / "_delta_log").mkdir(parents=True)
    assert not any(entries.is_table(str(tmp_path / name)) for name in ("none", "begun"))


@pytest.mark.parametrize("version", [0, 3, 39])
def test_commits_can_be_read_from_a_version_on(tables: dict[int, Path], version: int) -> None:
    path = str(tables[40])
    assert [one.version for one in history.every(path, 3, upto=version)] == list(
        range(version, max(-1, version - 3), -1)
    )


def test_looking_at_the_newest_opens_no_table_and_as_many_files_with_more_history(
    tables: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda file: opened.append(file.name) or real(file))
    monkeypatch.setattr(history, "DeltaTable", None)
    monkeypatch.setattr(entries, "DeltaTable", None)
    counts = set()
    for size in (7, 8, 9, 40):
        opened.clear()
        assert history.progress(str(tables[size])) == size - 1
        counts.add(len([name for name in opened if name.endswith(".json")]))
    assert counts == {1}


def test_what_is_kept_of_bounded_runs_is_found_without_opening_the_table(tmp_path: Path, monkeypatch) -> None:
    lake = make(tmp_path)
    monkeypatch.setattr(entries, "DeltaTable", None)
    coverage.keep(lake, CHANGELOG)
    assert not list(coverage.bounded_runs(lake, CHANGELOG))
    assert entries.version_of(lake.log(LOG)) == 1
