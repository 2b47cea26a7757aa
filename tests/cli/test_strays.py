"""Verbs in a lake with stray files everywhere, and with savepoints that cannot be read. No JVM starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_lake import make

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork

from .conftest import Verb

STRAYS = (".DS_Store", "Thumbs.db", "0~", "notes.txt", "empty/", "12abc/", "Übung 1/", "1.tmp")


@pytest.fixture
def lake(shop: Path, tmp_path: Path) -> Lake:
    return make(tmp_path / "lake")


def test_stray_files_in_every_folder_mean_nothing_to_verbs(verb: Verb, shop: Path, lake: Lake) -> None:
    made = savepoints.create("totals", lake)
    control = shop / ".floodmark" / "control"
    for folder in ("packages", "logs/totals"):
        (control / folder).mkdir(parents=True)
    inside = [path for root in (control, Path(lake.root)) for path in root.rglob("*") if path.is_dir()]
    for path, stray in ((home / stray, stray) for home in [control, Path(lake.root), *inside] for stray in STRAYS):
        path.mkdir() if stray.endswith("/") else path.write_text("of somebody's")
    expected = {
        ("status",): "hourly_sales",
        ("savepoint", "list"): made.id,
        ("savepoint", "show", made.id): "micro-batch 1",
        ("savepoint", "verify", made.id): "files are as they were written",
        ("maintain", "--dry-run"): "totals__current",
        ("maintain",): "totals__current",
        ("savepoint", "delete", made.id): "deleted",
    }
    for arguments, text in expected.items():
        result = verb(*arguments, "--lake", lake.root)
        assert result.exit_code == 0, (arguments, result.stderr)
        assert text in result.stdout, arguments


@pytest.mark.parametrize(("content", "reason"), [(b'{"format": 99}', "format 99"), (b"", "cannot be read")])
def test_a_savepoint_that_cannot_be_read_is_listed_and_can_be_deleted(
    verb: Verb, lake: Lake, content: bytes, reason: str
) -> None:
    made = savepoints.create("totals", lake)
    Path(made.path, "manifest.json").write_bytes(content)
    there = ("--lake", lake.root)
    listed = verb("savepoint", "list", *there)
    assert listed.exit_code == 0
    assert f"unreadable: {made.id}: " in listed.stdout
    assert reason in listed.stdout
    (document,) = json.loads(verb("savepoint", "list", "--json", *there).stdout)["damaged"]
    assert (document["id"], document["pinned"]) == (made.id, False)
    for arguments in (("savepoint", "delete", made.id), ("savepoint", "show", made.id)):
        assert verb(*arguments, *there).stderr.startswith("STATE-02")
    refused = verb("maintain", *there)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("LIFECYCLE-060")
    assert verb("savepoint", "delete", made.id, "--unreadable", *there).exit_code == 0
    assert verb("maintain", *there).exit_code == 0


def test_a_lake_that_is_there_is_not_forgotten(verb: Verb, lake: Lake, tmp_path: Path) -> None:
    forked = fork(lake, savepoints.create("totals", lake), str(tmp_path / "fork"))
    maintain = ("maintain", "--lake", lake.root, "--forget", forked.root)
    refused = verb(*maintain)
    assert refused.exit_code == 1
    assert "LIFECYCLE-188" in refused.stderr
    assert verb(*maintain, "--dry-run").exit_code == 2
    shutil.rmtree(forked.root)
    assert "LIFECYCLE-063" in verb("maintain", "--lake", lake.root).stdout
    assert verb(*maintain).exit_code == 0
    assert "LIFECYCLE-063" not in verb("maintain", "--lake", lake.root).stdout
