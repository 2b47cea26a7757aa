"""Savepoints, upkeep and switches on a small lake, without Spark: nothing that is needed goes, and what people read switches too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import forked
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from events import source
from filelock import FileLock
from records import restored
from small_lake import CHANGELOG, CURRENT, LATE, LOG, TOTALS, batch, make, row, totals
from switch_process import rebuild

from floodmark import Workspace, operator_asset, source_asset
from floodmark.core import crash
from floodmark.core.errors import ExecutionError, LifecycleError, StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import prepare, roll_back
from floodmark.lake.restore.switch import pending
from floodmark.lake.stream import last_values
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.writing.graft import graft
from floodmark.lifecycle.savepoint import MANIFEST
from floodmark.observe.status import status

THEN = {"a": 10, "b": 2}
NEWER = json.dumps({"format": 99, "id": "x"}).encode()
UNREADABLE = {
    "newer": NEWER,
    "garbage": b"\xff\xfe\x00",
    "cut": b'{"format": 1, "id"',
    "empty": b"",
    "other": b"[1, 2]",
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make(tmp_path / "lake")


def broken(lake: Lake, content: bytes) -> savepoints.Savepoint:
    """A savepoint whose manifest holds something else now."""
    made = savepoints.create("totals", lake)
    Path(made.path, MANIFEST).write_bytes(content)
    return made


def data(lake: Lake) -> set[str]:
    return {str(path) for path in Path(lake.root, "outputs").rglob("*.parquet")}


# ---- upkeep


@pytest.mark.feature("V1")
@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_upkeep_removes_nothing_while_a_savepoint_cannot_be_read(lake: Lake, content: bytes) -> None:
    made, pinned = broken(lake, content), content is NEWER
    savepoints.pin(made, pinned=pinned)
    batch(lake, 2, [row("b", 7, 7)])
    before = data(lake)
    with pytest.raises(
        LifecycleError, match=f"LIFECYCLE-060 .*{made.id}.*floodmark savepoint delete {made.id}"
    ) as told:
        maintain(lake, hours=0)
    assert data(lake) == before
    assert ("--off" in told.value.fix) == pinned
    savepoints.pin(savepoints.find_any(lake, made.id), pinned=False)
    savepoints.delete(savepoints.find_any(lake, made.id))
    assert maintain(lake, hours=0)


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_savepoint_that_cannot_be_read_is_listed_with_its_reason(lake: Lake, content: bytes) -> None:
    made = broken(lake, content)
    readable, unreadable = savepoints.survey(lake)
    assert not readable
    assert [one.id for one in unreadable] == [made.id]
    code = "STATE-020" if content is NEWER else "STATE-021"
    with pytest.raises(StateError, match=code):
        savepoints.find(lake, made.id)
    another = savepoints.create("totals", lake)
    roll_back(lake, another)
    assert totals(lake) == THEN


@pytest.mark.feature("V1")
def test_upkeep_leaves_the_files_of_a_graft_that_has_yet_to_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Lake(f"{lake.root}-target")
    make(Path(target.root))
    month = time.time() - 30 * 86_400
    for path in data(lake):
        os.utime(path, (month, month))
    monkeypatch.setattr(crash, "point", lambda name: name == "graft.before_commit" and maintain(target))
    graft(lake.output(CURRENT), target.output(CURRENT), "app", restored(mode="rebuild"))
    assert totals(target) == THEN


@pytest.mark.feature("V1")
def test_upkeep_and_grafts_wait_for_each_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.lake.maintenance.upkeep._PATIENCE_SECONDS", 0)
    monkeypatch.setattr("floodmark.lake.restore.switch._UPKEEP_SECONDS", 0)
    monkeypatch.setattr("floodmark.lake.restore.fork._PATIENCE_SECONDS", 0)
    made = savepoints.create("totals", lake)
    with FileLock(lake.internal("actions", "files", "lock")):
        for act in (
            lambda: maintain(lake),
            lambda: roll_back(lake, made),
            lambda: fork(lake, made, f"{lake.root}-fork"),
        ):
            with pytest.raises(LifecycleError, match="LIFECYCLE-003"):
                act()
    assert pending(lake) is None
    assert maintain(lake)


@pytest.mark.feature("V1")
@pytest.mark.parametrize("act", ["rollback", "fork"])
@pytest.mark.parametrize("anew", [True, False])
def test_a_table_that_is_not_the_savepoints_is_left_as_it_is(lake: Lake, act: str, anew: bool) -> None:
    """The savepoint holds what a version of its table consists of: that is not put into the log of another table, or where none is."""
    path = lake.output(CHANGELOG)
    made = savepoints.create("totals", lake)
    assert made.holds(CHANGELOG)
    shutil.rmtree(path)
    if anew:
        write_deltalake(path, pa.table({"_kind": [1]}))
    with pytest.raises(
        LifecycleError if anew else ExecutionError, match=r"LIFECYCLE-036 .*made since" if anew else "EXECUTION-002"
    ):
        roll_back(lake, made) if act == "rollback" else fork(lake, made, f"{lake.root}-fork")
    assert DeltaTable.is_deltatable(path) == anew
    if anew:
        assert DeltaTable(path).to_pyarrow_table().to_pydict() == {"_kind": [1]}


# ---- what people read


@pytest.mark.feature("V1", "F8")
def test_a_rollback_takes_the_last_values_back_too(lake: Lake) -> None:
    made = savepoints.create("totals", lake)
    batch(lake, 2, [row("b", 7, 7), row("d", 8, 8)])
    assert totals(lake) == {"a": 10, "b": 7, "d": 8}
    roll_back(lake, made)
    assert totals(lake) == THEN
    timeline = Timeline.current(lake, "totals")
    assert last_values.follows_from(timeline, CHANGELOG) == DeltaTable(lake.output(CHANGELOG)).version() + 1
    assert not Path(timeline.folder("switching")).exists()


PROGRAM = Path(__file__).parent.parent / "crash" / "switch_process.py"


def die(point: str, action: str, *arguments: str) -> bool:
    """Whether the program was killed at the point."""
    name, _, time_ = point.partition(":")
    command = [sys.executable, str(PROGRAM), action, *arguments]
    done = forked.run(command, env={**os.environ, crash.VARIABLE: f"{name}:{time_ or 1}"})
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode == -signal.SIGKILL


KILLED = [
    *crash.POINTS["switch"],
    *crash.POINTS["graft"],
    "graft.before_commit:2",
    "graft.before_commit:3",
]


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=pytest.mark.feature("V1", "V4")) for point in KILLED[::6]),
        *(pytest.param(point, marks=pytest.mark.soak) for n, point in enumerate(KILLED) if n % 6),
    ],
)
def test_a_rebuild_killed_anywhere_leaves_each_reader_the_old_or_the_new_and_ends_with_the_new(
    lake: Lake, tmp_path: Path, point: str
) -> None:
    beside = make(tmp_path / "beside", times=100)
    files = data(beside)
    month = time.time() - 30 * 86_400
    for path in files:
        os.utime(path, (month, month))
    new = {"a": 1000, "b": 200}
    assert die(point, "rebuild", lake.root, beside.root)
    seen = totals(lake)
    assert seen in (THEN, new), "each reader finds one of them, whole"
    maintain(lake, hours=0)
    assert totals(lake) == seen
    rebuild(lake, beside)
    assert totals(lake) == new
    changelog = DeltaTable(lake.output(CHANGELOG)).to_pyarrow_table().to_pylist()
    assert len(changelog) == 8
    assert pending(lake) is None


@pytest.mark.parametrize(
    "point",
    [
        *(
            pytest.param(point, marks=pytest.mark.feature("V1", "V4"))
            for point in ("step.restore_values", "switch.after_journal")
        ),
        *(
            pytest.param(point, marks=pytest.mark.soak)
            for point in crash.POINTS["switch"]
            if point not in {"step.restore_values", "switch.after_journal"}
        ),
    ],
)
def test_a_rollback_killed_anywhere_leaves_last_values_of_the_old_or_the_new_state(lake: Lake, point: str) -> None:
    made = savepoints.create("totals", lake)
    batch(lake, 2, [row("b", 7, 7)])
    assert die(point, "rollback", lake.root, made.id)
    assert totals(lake) in (THEN, {"a": 10, "b": 7})
    maintain(lake, hours=0)
    if point != "switch.after_journal":
        roll_back(lake, made)
    assert totals(lake) == THEN
    batch(lake, 2, [row("b", 9, 9)])
    assert totals(lake) == {"a": 10, "b": 9}


@pytest.mark.feature("V1")
def test_a_rebuild_that_writes_an_output_no_more_empties_it(lake: Lake, tmp_path: Path) -> None:
    beside = make(tmp_path / "beside", times=100)
    checkpoint = Timeline.current(beside, "totals").checkpoint
    identity = Path(checkpoint.path, "floodmark.json")
    known = json.loads(identity.read_text())
    known["tables"].pop(LATE)
    identity.write_text(json.dumps(known | {"keys": {}}))
    rebuild(lake, beside)
    assert totals(lake, CHANGELOG)
    for table in (CURRENT, LATE):
        assert not DeltaTable(lake.output(table)).to_pyarrow_table().num_rows, table
        assert next(history.every(lake.output(table), 1)).record.restored == -1


def test_a_rollback_says_that_last_values_go_where_the_savepoint_does_not_know_their_keys(lake: Lake) -> None:
    identity = Path(Timeline.current(lake, "totals").checkpoint.path, "floodmark.json")
    text = identity.read_text()
    assert not prepare(lake, savepoints.create("totals", lake)).emptied
    identity.unlink()  # savepoints link to it
    identity.write_text(json.dumps({name: value for name, value in json.loads(text).items() if name != "keys"}))
    made = savepoints.create("totals", lake)
    identity.unlink()
    identity.write_text(text)
    assert prepare(lake, made).emptied == (CURRENT,)
    assert roll_back(lake, made).emptied == (CURRENT,)
    assert not DeltaTable(lake.output(CURRENT)).to_pyarrow_table().num_rows
    assert totals(lake, CHANGELOG)


# ---- pieces of savepoints


@pytest.mark.feature("V1")
def test_a_savepoint_that_was_killed_while_it_was_deleted_or_imported_is_gone_and_so_are_its_files(
    lake: Lake, tmp_path: Path
) -> None:
    made = savepoints.create("totals", lake)
    savepoints.export(made, str(tmp_path / "elsewhere"))
    for action, arguments in {"delete": [made.id], "import": [str(tmp_path / "elsewhere" / made.id)]}.items():
        assert die(crash.POINTS[action][0], action, lake.root, *arguments)
        assert savepoints.survey(lake) == ([], []), action
    assert savepoints.import_savepoint(lake, str(tmp_path / "elsewhere" / made.id)).id == made.id
    roll_back(lake, savepoints.find(lake, made.id))
    savepoints.delete(savepoints.find(lake, made.id))
    assert not [path for path in Path(lake.internal("savepoints", "totals")).iterdir() if path.is_dir()]


# ---- checkpoints


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_garbage_in_the_newest_file_of_a_checkpoint_names_the_file_and_a_rollback_ends_it(lake: Lake, log: str) -> None:
    made = savepoints.create("totals", lake)
    batch(lake, 2, [row("b", 7, 7)])
    checkpoint = Timeline.current(lake, "totals").checkpoint
    Path(checkpoint.path, log, "2").write_text("v1\nhello")
    for act in (checkpoint.check_newest, lambda: savepoints.create("totals", lake)):
        with pytest.raises(StateError, match=rf"STATE-036 .*/{log}/2: .*floodmark rollback totals --to {made.id}"):
            act()
    roll_back(lake, savepoints.find(lake, made.id))
    Timeline.current(lake, "totals").checkpoint.check_newest()
    assert totals(lake) == THEN


def test_a_pointer_that_cannot_be_read_names_the_newest_timeline(lake: Lake) -> None:
    roll_back(lake, savepoints.create("totals", lake))
    pointer = Path(lake.internal("operators", "totals", "timeline.json"))
    pointer.write_text("")
    with pytest.raises(StateError, match=r'STATE-030 .*Write \{"timeline": 1\} into it'):
        Timeline.current(lake, "totals")


# ---- stray files


STRAYS = (".DS_Store", "Thumbs.db", "0~", "#1#", "notes.txt", ".empty/", "empty/", "12abc/", "Übung 1/", "1.tmp", "٣/")


@pytest.mark.feature("V1")
def test_stray_files_in_every_folder_fail_and_change_nothing(lake: Lake) -> None:
    first = savepoints.create("totals", lake)
    batch(lake, 2, [row("b", 7, 7)])
    homes = [Path(lake.root), *(path for path in Path(lake.root).rglob("*") if path.is_dir())]
    for path, stray in ((home / stray, stray) for home in homes for stray in STRAYS):
        path.mkdir() if stray.endswith("/") else path.write_text("something of somebody's")
    assert [one.id for one in savepoints.survey(lake)[0]] == [first.id]
    assert not savepoints.verify(first)
    assert Timeline.current(lake, "totals").next().number == 1
    assert Timeline.current(lake, "totals").checkpoint.last_committed() == 2
    second = savepoints.create("totals", lake)
    assert not savepoints.verify(second)
    assert prepare(lake, second, keep=False).switch.targets[0].batch == 2
    assert {one.table for one in maintain(lake, hours=1)} == {f"logs/{LOG}", CHANGELOG, LATE, CURRENT}
    roll_back(lake, first)
    assert totals(lake) == THEN
    for one in (first, second):
        savepoints.delete(one)
    assert savepoints.survey(lake) == ([], [])
    assert TOTALS.name == Timeline.current(lake, "totals").operator


def outputs(workspace: Workspace, lake: Lake) -> list[dict[str, Any]]:
    return [one for one in status(workspace, lake) if one["kind"] == "output"]


@pytest.mark.feature("V1")
def test_status_says_how_far_a_stream_is_after_a_rollback_and_after_a_rebuild(lake: Lake, tmp_path: Path) -> None:
    workspace = Workspace(sources=[source_asset(source([]))], operators=[operator_asset(TOTALS)])
    before = {one["table"]: one["progress"] for one in outputs(workspace, lake)}
    made = savepoints.create("totals", lake)
    roll_back(lake, made)
    after = {one["table"]: one for one in outputs(workspace, lake)}
    assert before.keys() == after.keys()
    assert all(one["progress"] and one["mode"] == "rollback" for one in after.values())
    rebuild(lake, make(tmp_path / "beside", times=100))
    assert all(one["progress"] and one["mode"] == "rebuild" for one in outputs(workspace, lake))
    Path(Timeline.current(lake, "totals").checkpoint.path, "commits", "1").write_text("")
    kept = savepoints.savepoints(lake, "totals")
    ways_back = {f"cannot resume, commits/1 is damaged: floodmark rollback totals --to {one.id}" for one in kept}
    assert {one["state"] for one in outputs(workspace, lake)} <= ways_back
    for one in kept:
        savepoints.delete(one)
    anew = "cannot resume, commits/1 is damaged: floodmark run totals --unbounded --from-scratch"
    assert {one["state"] for one in outputs(workspace, lake)} == {anew}
