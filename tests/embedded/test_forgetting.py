"""Forgetting: rows of a key leave logs, results, state, savepoints and files; all else stays as it was, whatever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import forked
import pyarrow.compute as pc
import pytest
import sinks
from deltalake import DeltaTable, write_deltalake
from forget_process import OPERATORS, PERSONS, STREAMS, forgotten, sites, source, spent, write

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.time import Interval
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lake.forgetting.plan import look
from floodmark.lake.forgetting.search import search
from floodmark.lake.replicas.replication import Replication, replicate
from floodmark.lake.restore import readers, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.results import frozen
from floodmark.spec.assets.delivery import routes
from floodmark.spec.values.schema import MARKER, STAMPS

PERSON = PERSONS[1]
KEY = f"person={PERSON}"
EACH = ("forget.after_rows", "step.restore_table", "forget.after_statistics")
POINTS = [point if point in EACH else pytest.param(point, marks=pytest.mark.soak) for point in crash.POINTS["forget"]]
PROCESS = str(Path(__file__).parents[1] / "support" / "forget_process.py")


def rows(path: str) -> Counter[str]:
    """The rows of a table without markers."""
    table = DeltaTable(path).to_pyarrow_table()
    return Counter(map(str, table.filter(pc.not_equal(table["_kind"], MARKER)).to_pylist()))


def results(lake: Lake, name: str) -> Counter[str]:
    """The rows of an output without stamps, as far as they are results."""
    table = DeltaTable(lake.output(name)).to_pyarrow_table()
    own = table.filter(pc.not_equal(table["_kind"], MARKER)).drop_columns([n for n in STAMPS if n != "_kind"])
    return Counter(map(str, own.to_pylist()))


def prepared(engine: Computing, root: Path, commits: int = 4, lake: Lake | None = None) -> tuple[Lake, Path]:
    """A lake in which all has a person: four commits, a savepoint in the middle, a bounded run, and a rollback."""
    lake, inbox = lake or Lake(str(root / "lake")), root / "inbox"
    for number in range(commits):
        write(inbox, number)
        engine.land(source(inbox), lake)
        for code in STREAMS:
            engine.run_unbounded(code, lake, until_caught_up=True)
        if number == 1:
            savepoints.create("large", lake, why="early")
    savepoints.create("spent", lake)
    roll_back(lake, savepoints.create("large", lake))
    engine.run_bounded(sites, lake, Interval())
    return lake, inbox


def holding(lake: Lake) -> tuple[str, ...]:
    """Files of the lake that have the person."""
    return search(lake.root, [ForgottenKey.parse(KEY)]).holding


def check(engine: Computing, lake: Lake, log: Counter[str], root: Path) -> None:
    """The log is what it was without the person; all results are those of the log; no file has the person."""
    assert rows(lake.log("visits")) == Counter({row: n for row, n in log.items() if PERSON not in row})
    assert holding(lake) == ()
    other = Lake(str(root / "other"), logs=lake.root)
    for code in STREAMS:
        engine.run_unbounded(code, other, until_caught_up=True)
    engine.run_bounded(sites, other, Interval())
    for code in OPERATORS:
        for output in code.outputs:
            names = [output.table, *([output.current.table] if output.current else [])]
            for name in names:
                assert results(lake, name) == results(other, name), name
    shutil.rmtree(other.root)
    readers.forget(lake, other.root)


def test_a_person_is_gone_from_all_files_and_others_keep_what_they_had(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path)
    log, before = rows(lake.log("visits")), results(lake, "spent__current")
    kinds = {name.split("/")[0 if name.startswith(("logs", "outputs")) else 1] for name in holding(lake)}
    unread = {"operators"} if engine.name == "spark" else set[str]()  # its state is compressed
    assert kinds == {"logs", "outputs", "operators", "savepoints"} - unread

    done = forgotten(lake, inbox, [KEY], engine)

    assert done.rows == {"visits": 8, "visits__quarantine": 4}
    assert done.searched.holding == ()
    assert bool(done.searched.unread) is (engine.name == "spark")
    assert set(done.operators) == {"spent", "most", "sites", "large"}
    assert len(done.deleted) == 3
    assert [name.rsplit("-", 2)[0] for name in done.made] == ["spent", "large"]
    check(engine, lake, log, tmp_path)
    assert results(lake, "spent__current") == Counter({row: n for row, n in before.items() if PERSON not in row})


def test_streams_resume_and_roll_back_to_the_new_savepoint(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path)
    made = forgotten(lake, inbox, [KEY], engine).made
    write(inbox, 4)
    engine.land(source(inbox), lake)
    after = {code.name: results(lake, code.name) for code in STREAMS}
    for code in STREAMS:
        took = list[int]()
        engine.run_unbounded(
            code, lake, until_caught_up=True, on_batch=lambda info, took=took: took.append(info.rows_in)
        )
        assert 0 < sum(took) <= 13, (code.name, took)  # the new file alone
    roll_back(lake, savepoints.find(lake, made[1]))
    assert results(lake, "large") == after["large"]
    for code in STREAMS:
        engine.run_unbounded(code, lake, until_caught_up=True)
    log = rows(lake.log("visits"))
    forgotten(lake, inbox, [KEY], engine)
    check(engine, lake, log, tmp_path)


@pytest.mark.engines("embedded")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.few(1)
def test_after_a_kill_the_same_command_finishes(engine: Computing, tmp_path: Path, point: str) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=2)
    log = rows(lake.log("visits"))
    command = [sys.executable, PROCESS, lake.root, str(inbox), KEY]
    ended = forked.run(command, env={**os.environ, crash.VARIABLE: point})
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr)
    journal = Path(lake.internal("forget.json"))
    unfinished = journal.exists()
    assert unfinished is (point not in {"step.erase", "forget.before_journal"})
    if unfinished:
        assert PERSON not in journal.read_text()
        with pytest.raises(LifecycleError, match="LIFECYCLE-291 .*floodmark forget person=\\.\\.\\."):
            forgotten(lake, inbox, [f"person={PERSONS[0]}"], engine)
    done = forgotten(lake, inbox, [KEY], engine)
    assert done.rows["visits"] == 4
    check(engine, lake, log, tmp_path)
    assert forgotten(lake, inbox, [KEY], engine).operators == ()


def test_a_delivery_takes_the_key_out_of_its_table(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=2)
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    (route,) = routes(spent, [fm.ToSql(url)], "spent")
    deliver(route, lake, until_caught_up=True)
    before = [row["person"] for row in sinks.rows(url, "spent")]
    forgotten(lake, inbox, [KEY], engine)
    assert PERSON in {row["person"] for row in sinks.rows(url, "spent")}
    deliver(route, lake, until_caught_up=True)
    after = [row["person"] for row in sinks.rows(url, "spent")]
    assert sorted(after) == sorted(person for person in before if person != PERSON) != sorted(before)


def test_where_only_the_quarantine_has_a_key_nothing_is_computed_anew(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=2)
    before = rows(lake.log("visits"))
    done = forgotten(lake, inbox, ["number=9"], engine)
    assert done.rows == {"visits": 0, "visits__quarantine": 1}
    assert (done.operators, done.deleted) == ((), ())
    assert rows(lake.log("visits")) == before


def test_a_key_of_nobody_changes_nothing(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=1)
    version = DeltaTable(lake.log("visits")).version()
    assert forgotten(lake, inbox, ["visits.person=nobody@example.org"], engine).rows == {
        "visits": 0,
        "visits__quarantine": 0,
    }
    assert DeltaTable(lake.log("visits")).version() == version


def test_a_file_that_still_has_the_key_is_named(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=1)
    Path(lake.internal("notes.txt")).write_text(f"call {PERSON} back")
    write_deltalake(lake.output("by_hand"), DeltaTable(lake.log("visits")).to_pyarrow_table().select(["person"]))
    done = forgotten(lake, inbox, [KEY], engine)
    assert {name.rsplit("/", 1)[0] for name in done.searched.holding} == {
        "_floodmark",
        "outputs/by_hand",
    }


def refused(lake: Lake, inbox: Path, key: str, code: str) -> None:
    """Forgetting is refused, and nothing has changed."""
    before = rows(lake.log("visits"))
    with pytest.raises(FloodmarkError, match=code):
        forgotten(lake, inbox, [key])
    assert rows(lake.log("visits")) == before
    assert not Path(lake.internal("forget.json")).exists()


def test_what_cannot_be_forgotten_is_refused_before_anything_changes(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=1)
    refused(lake, inbox, "person", "LIFECYCLE-290")
    refused(lake, inbox, "visits.persn=a", "LIFECYCLE-292 .*Did you mean 'visits.person'")
    refused(lake, inbox, "number=many", "LIFECYCLE-293 key number: expected a value of type int64")
    (first, *_) = savepoints.savepoints(lake, "large")
    savepoints.pin(first, pinned=True)
    refused(lake, inbox, KEY, f"LIFECYCLE-300 .*floodmark savepoint pin {first.id} --off")
    savepoints.pin(first, pinned=False)
    frozen.freeze(lake, sites, 1)
    refused(lake, inbox, KEY, "LIFECYCLE-201")
    frozen.thaw(lake, "sites")
    with pytest.raises(LifecycleError, match="LIFECYCLE-298 .*stream 'large'"):
        look([source(inbox)], (spent,), lake, [ForgottenKey.parse(KEY)])
    other = fork(lake, savepoints.savepoints(lake, "spent")[0], str(tmp_path / "fork"))
    refused(lake, inbox, KEY, "LIFECYCLE-295 .*fork")
    with pytest.raises(LifecycleError, match=f"LIFECYCLE-294 .*--lake {lake.root}"):
        forgotten(other, inbox, [KEY])


def test_logs_that_streams_read_commit_by_commit_and_replicas_are_refused(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = Lake(str(tmp_path / "lake")), tmp_path / "inbox"
    write(inbox, 0)
    engine.land(source(inbox), lake)
    write_deltalake(lake.log("visits"), DeltaTable(lake.log("visits")).to_pyarrow_table(), mode="append")  # again
    with pytest.raises(LifecycleError, match="LIFECYCLE-297"):
        look([source(inbox)], (), lake, [ForgottenKey.parse(KEY)])
    home, there = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there"))
    engine.land(source(inbox), home)
    replication = Replication.of(source(inbox), home, there)
    replication.begin()
    replicate([replication], until_caught_up=True, stop=threading.Event())
    with pytest.raises(LifecycleError, match="LIFECYCLE-296"):
        look([source(inbox)], (), there, [ForgottenKey.parse(KEY)])
    assert PERSON in str(rows(there.log("visits")))


def test_a_running_stream_is_named(engine: Computing, tmp_path: Path) -> None:
    lake, inbox = prepared(engine, tmp_path, commits=1)
    with exclusive(lake, "operators", "large", "run"), pytest.raises(LifecycleError, match="LIFECYCLE-003"):
        forgotten(lake, inbox, [KEY], engine)
    assert PERSON in str(rows(lake.log("visits")))
    assert forgotten(lake, inbox, [KEY], engine).searched.holding == ()
