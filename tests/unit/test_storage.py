"""Files that are replaced whole: by several writers at once, and after writers that were killed."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from floodmark.lake.folder.storage import create, folders, read, write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writers_at_once_leave_the_whole_content_of_one_and_no_draft(tmp_path: Path) -> None:
    contents = [bytes([number]) * 200_000 for number in range(16)]
    path = str(tmp_path / "pointer.json")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda content: write(path, content), contents))
    assert read(path) in contents
    assert names(tmp_path) == ["pointer.json"]


def test_a_disk_without_hard_links_has_a_file_created_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert create(str(tmp_path / "file"), b"first")
    assert not create(str(tmp_path / "file"), b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert read(str(tmp_path / "file")) == b"first"


def test_a_draft_of_a_killed_creation_goes_with_the_next_one(tmp_path: Path) -> None:
    draft = tmp_path / f"file.{'0' * 32}.draft"
    draft.write_bytes(b"")
    os.utime(draft, (0, 0))
    assert create(str(tmp_path / "file"), b"")
    assert not draft.exists()


def test_of_writers_that_create_a_file_at_once_one_does(tmp_path: Path) -> None:
    contents = [bytes([number]) * 200_000 for number in range(16)]
    path = tmp_path / "new" / "pointer.json"
    with ThreadPoolExecutor(16) as pool:
        created = list(pool.map(lambda content: create(str(path), content), contents))
    assert [read(str(path))] == [content for content, is_mine in zip(contents, created, strict=True) if is_mine]
    assert names(path.parent) == ["pointer.json"]


def test_the_draft_of_a_writer_that_was_killed_goes_with_the_next_write(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in ("a.json.1.draft", "a.json.2.draft", "b.json.3.draft"))
    for draft in (old, young, other):
        draft.write_bytes(b"half")
    for draft in (old, other):
        os.utime(draft, (time.time() - 7200,) * 2)
    write(str(tmp_path / "a.json"), b"whole")
    assert names(tmp_path) == ["a.json", "a.json.2.draft", "b.json.3.draft"]


def test_a_clock_ahead_of_the_files_removes_no_draft_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = tmp_path / "a.json.2.draft"
    young.write_bytes(b"half")
    monkeypatch.setattr(time, "time", lambda: young.stat().st_mtime + 7200)
    write(str(tmp_path / "a.json"), b"whole")
    assert names(tmp_path) == ["a.json", "a.json.2.draft"]


def test_a_write_that_fails_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write(str(tmp_path / "taken"), b"whole")
    assert names(tmp_path) == ["taken"]


def test_folders_are_those_that_somebody_made_on_purpose(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert folders(str(tmp_path)) == ["a", "b"]
    assert folders(str(tmp_path / "nowhere")) == []
