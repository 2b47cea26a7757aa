"""Upgrades and rollbacks of streams that run by themselves: whoever asks for them is killed between any two steps; the next one makes it whole.

The streams' state and tables are real; their drivers only live and die, which is all an action sees of them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import local_driver
import pytest
from action_process import fleet
from background import in_background
from deltalake import write_deltalake
from events import START
from lifecycle_process import LARGEST, TOTALS, WIDER, largest
from processes import end_drivers
from supervised import forked_drivers
from test_lifecycle_crash import Streams, copy_of, die, seen, streams

from floodmark import operator
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Action, Driver
from floodmark.control.state.store import Store
from floodmark.control.streams import actions
from floodmark.control.streams.actions import roll_back
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.verification import Verification
from floodmark.core.errors import ExecutionError, LifecycleError, SetupError
from floodmark.engines.upgrading import upgrade as upgrade_stopped
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import prepare
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Restored
from floodmark.lake.writing.writer import Writer
from floodmark.lifecycle.steps import Stop, kind, recorded
from floodmark.spec.assets.restart import Restart
from floodmark.spec.graph.operator import Operator
from floodmark.testing.log import Log

if TYPE_CHECKING:
    pass

__all__ = ["streams"]

HERE = Path(__file__).parent
PROGRAM, FAKE = HERE / "action_process.py", HERE.parent / "support" / "fake_driver.py"

PATIENCE_SECONDS = 300
Begin = Callable[[Lake, str], AbstractContextManager[Fleet]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Both streams at work under a supervisor, in a workspace of its own."""

    @contextmanager
    def started(lake: Lake, crashes: str = "") -> Iterator[Fleet]:
        root = tmp_path / f"{Path(lake.root).name}-workspace"
        root.mkdir()
        (root / "code.py").write_text("before = True")
        found = fleet(root, lake.root, TOTALS, LARGEST)

        def command(driver: Driver) -> list[str]:
            return [sys.executable, str(FAKE), found.store.url, str(driver.id), crashes]

        supervisor = Supervisor(
            store=found.store,
            home=root,
            holder="test",
            command=command,
            say=lambda _: None,
            restart=Restart.exponential("100 ms"),
        )
        over = threading.Event()
        with forked_drivers():
            watch = in_background(supervisor.run, over)
            try:
                found.start((TOTALS, LARGEST))
                until(lambda: all((d := found.driver(n)) and d.state == "running" for n in ("totals", "largest")))
                (root / "code.py").write_text("before = False")
                yield found
            finally:
                over.set()
                watch.result(PATIENCE_SECONDS)
                for name in ("totals", "largest"):
                    end_drivers(found.store.drivers(found.stream(name)))

    return started


def until(what: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def done(found: Fleet, lake: Lake, action: str, *names: str) -> str:
    """The same again, to its end; the turn of the one that was killed is over."""
    end_turns(found)
    command = [sys.executable, str(PROGRAM), action, lake.root, str(found.root), *names]
    told = forked.run(command)
    assert told.returncode == 0, told.stderr
    return told.stdout


def end_turns(found: Fleet) -> None:
    """The turns of an action that was killed are over, as they are after a while."""
    for lease in (found.stream("totals").action, found.stream("largest").action):
        found.store.release(lease, found.store.holder(lease) or "")


def deployed(lake: Lake) -> str:
    found = Timeline.current(lake, "totals").identity.deployed()
    assert found is not None
    return found.version


def last(found: Fleet) -> Action:
    return found.store.actions(found.stream("totals"))[0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("step.define", "step.verify"), marks=pytest.mark.feature("V4")),
        pytest.param(("step.save", "step.widen", "step.deploy"), marks=pytest.mark.soak),
    ],
)
def test_an_upgrade_whose_applier_is_killed_is_undone_and_done_again_or_verified_again(
    streams: Streams, begin: Begin, tmp_path: Path, points: tuple[str, ...]
) -> None:
    before = seen(streams.lake)
    for point in points:
        lake = copy_of(streams, tmp_path / point)
        with begin(lake, "") as found:
            package = found.deployments(["totals"])["totals"].package
            assert not die(point, "upgrade", lake, str(found.root), program=PROGRAM), point
            assert last(found).ended_at is None
            assert (deployed(lake) == WIDER.version) == (point in {"step.widen", "step.deploy", "step.verify"}), point
            told = done(found, lake, "upgrade")
            assert "was killed in" in told, point
            assert told.splitlines()[-1].startswith("done"), told
            stays = point in {"step.deploy", "step.verify"}
            steps = [one.step for one in found.store.actions(found.stream("totals"))]
            assert steps == (["done"] if stays else ["done", "rolled back"]), point
            now = found.deployments(["totals"])["totals"]
            assert (now.version, now.desired, now.package != package) == (WIDER.version, "running", True)
            assert deployed(lake) == WIDER.version
            until(lambda one=found: (d := one.driver("totals")).version == WIDER.version and d.state == "running")
            assert found.deployments(["largest"])["largest"].desired == "running"
        assert {
            name: [row.replace(", 'double': None", "") for row in rows] for name, rows in seen(lake).items()
        } == before


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "points",
    [
        pytest.param((("", 1), ("step.deploy", 2)), marks=pytest.mark.feature("V4", "F8")),
        (("switch.before_journal", 1),),
    ],
)
def test_a_version_that_crashes_is_taken_back_also_when_whoever_does_it_is_killed(
    streams: Streams, begin: Begin, tmp_path: Path, points: tuple[tuple[str, int], ...]
) -> None:
    for point, nth in points:
        lake = copy_of(streams, tmp_path / (point or "whole"))
        with begin(lake, WIDER.version) as found:
            package = found.deployments(["totals"])["totals"].package
            if point:
                assert not die(point, "upgrade", lake, str(found.root), time=nth, program=PROGRAM), point
                assert last(found).step == "rolling back"
            told = done(found, lake, "upgrade").splitlines()[-1]
            assert told == "rolled back: it crashed: EXECUTION-004 something is missing", told
            assert {one.step for one in found.store.actions(found.stream("totals"))} == {"rolled back"}
            for name, version in (("totals", TOTALS.version), ("largest", LARGEST.version)):
                now = found.deployments([name])[name]
                assert (now.version, now.desired, now.package) == (version, "running", package), point
            assert deployed(lake) == TOTALS.version
            until(lambda one=found: (d := one.driver("totals")).version == TOTALS.version and d.state == "running")
        assert seen(lake) == seen(streams.lake), "the savepoint was made where both streams stood"


@pytest.mark.feature("V1", "F8")
@pytest.mark.timeout(900)
def test_a_rollback_stops_what_runs_and_starts_it_again(streams: Streams, begin: Begin, tmp_path: Path) -> None:
    for point in ("switch.before_journal", "step.deploy"):
        lake = copy_of(streams, tmp_path / point)
        with begin(lake, "") as found:
            assert not die(point, "rollback", lake, str(found.root), streams.savepoint, program=PROGRAM), point
            with pytest.raises(LifecycleError, match="LIFECYCLE-054 .*totals.*expected no other action at work"):
                roll_back(found, savepoints.find(lake, streams.savepoint))
            assert done(found, lake, "rollback", streams.savepoint).splitlines()[-1].startswith("done")
            assert {one.step for one in found.store.actions(found.stream("totals"))} == {"done"}
            for made in (one.manifest for one in savepoints.savepoints(lake, "largest")):
                if made.why == f"before {streams.savepoint}":  # made for the rollback
                    assert made.code == {"package": found.deployments(["largest"])["largest"].package}
            assert {one.desired for one in found.store.deployments()} == {"running"}
            until(lambda one=found: all(one.driver(n).state == "running" for n in ("totals", "largest")))
        assert seen(lake) == streams.then


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_rebuild_that_fails_once_the_streams_are_stopped_lets_them_run_again(
    streams: Streams, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    lake = copy_of(streams, tmp_path / "lake")

    def fails(*_: object, pause: Callable[[list[str]], Savepoint], **__: object) -> None:
        made = pause(["totals", "largest"]).manifest
        assert made.code == {"package": before["totals"].package}
        assert any(one.manifest.why == made.why for one in savepoints.savepoints(lake, "largest")), "at one cut"
        assert {one.desired for one in found.deployments(["totals", "largest"]).values()} == {"stopped"}
        if killed:
            raise KeyboardInterrupt  # as good as a kill: nothing cleans up after it
        raise ExecutionError("rebuild", "room on the disk", "none", "Make room.", code="EXECUTION-009")

    monkeypatch.setattr(actions, "rebuild_beside", fails)
    with begin(lake, "") as found:
        before = found.deployments(["totals", "largest"])
        with pytest.raises(KeyboardInterrupt if killed else ExecutionError):
            actions.rebuild(found, fails, WIDER)
        if killed:
            assert {one.desired for one in found.deployments(["totals", "largest"]).values()} == {"stopped"}
            assert done(found, lake, "rollback", streams.savepoint).splitlines()[-1].startswith("done")
            assert [one.step for one in found.store.actions(found.stream("totals"))] == ["done", "refused"]
        else:
            assert last(found).step == "refused"
            after = found.deployments(["totals", "largest"])
            assert {n: (d.package, d.version) for n, d in after.items()} == {
                n: (d.package, d.version) for n, d in before.items()
            }
        until(lambda: all((d := found.driver(n)) and d.state == "running" for n in ("totals", "largest")))
        assert {one.desired for one in found.store.deployments()} == {"running"}


@pytest.mark.feature("V4", "V1")
def test_what_runs_takes_the_steps_that_were_listed(streams: Streams, begin: Begin, tmp_path: Path) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        now, verification = (
            fleet(found.root, lake.root, WIDER, operator(largest, inputs={"totals": WIDER})),
            Verification(patience=300, soak=0.5),
        )
        would = actions.upgrade_steps(now, WIDER, "", verification)
        assert [kind(step) for step in would] == ["stop", "save", "define", "widen", "deploy", "verify"]
        with recorded() as taken:
            _, action = actions.upgrade(now, WIDER, verification=verification)
        assert taken == would
        assert action is not None
        back = savepoints.find(lake, str(action.savepoint))
        would = actions.rollback_steps(found, prepare(lake, back, keep=False))
        assert would[0] == Stop(operators=("totals", "largest"))
        assert [kind(step) for step in would[-2:]] == ["deploy", "deploy"]
        with recorded() as taken:
            actions.roll_back(found, back)
        assert taken == would


@pytest.mark.soak
@pytest.mark.feature("V4", "F8")
def test_an_upgrade_that_was_killed_once_it_ran_is_left_where_it_cannot_be_taken_back(
    streams: Streams, begin: Begin, tmp_path: Path
) -> None:
    """Its savepoint is gone, or a partition was computed again since: what is asked next is done all the same."""
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        assert not die("step.verify", "upgrade", lake, str(found.root), program=PROGRAM)
        savepoints.delete(savepoints.find(lake, last(found).savepoint or ""))
        assert done(found, lake, "upgrade").splitlines()[-1] == "nothing"
        assert last(found).step == "refused"
        assert "it cannot be taken back: LIFECYCLE-031" in (last(found).reason or "")
        until(lambda: (d := found.driver("totals")).version == WIDER.version and d.state == "running")
        until(lambda: found.driver("largest").state == "running")
        assert deployed(lake) == WIDER.version


@pytest.mark.feature("V4", "F8")
def test_an_upgrade_whose_applier_was_killed_and_that_has_run_since_is_kept(
    streams: Streams, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        assert not die("step.verify", "upgrade", lake, str(found.root), program=PROGRAM)
        until(lambda: (d := found.driver("totals")).version == WIDER.version and d.state == "running")
        end_turns(found)
        monkeypatch.setattr(actions, "_RUNS_SECONDS", 0.0)  # as if it had been an hour
        streams_now = fleet(found.root, lake.root, WIDER)
        plan, action = actions.upgrade(streams_now, WIDER)
        assert (plan.changes, action) == ((), None)
        assert last(found).step == "done"
        assert deployed(lake) == WIDER.version


@pytest.mark.soak
@pytest.mark.feature("V1", "F8")
def test_a_rollback_takes_the_place_of_an_upgrade_that_was_killed(
    streams: Streams, begin: Begin, tmp_path: Path
) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        package = found.deployments(["totals"])["totals"].package
        assert not die("step.verify", "upgrade", lake, str(found.root), program=PROGRAM)
        assert done(found, lake, "rollback", streams.savepoint).splitlines()[-1].startswith("done")
        assert [(one.kind, one.step) for one in found.store.actions(found.stream("totals"))] == [
            ("rollback", "done"),
            ("upgrade", "refused"),
        ]
        now = found.deployments(["totals"])["totals"]
        assert (now.version, now.package, now.desired) == (TOTALS.version, package, "running")
        until(lambda: all(found.driver(n).state == "running" for n in ("totals", "largest")))
    assert seen(lake) == streams.then


class Killed(BaseException):
    """In the stead of SIGKILL."""


@pytest.mark.soak
@pytest.mark.feature("V1")
def test_a_rollback_that_leaves_its_readers_and_is_killed_once_it_has_switched_leaves_them_when_it_is_finished(
    streams: Streams, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    for one in savepoints.savepoints(lake, "largest"):
        savepoints.delete(one)  # no cut with the reader
    with begin(lake, "") as found:
        with pytest.raises(LifecycleError, match="LIFECYCLE-035"):
            roll_back(found, savepoints.find(lake, streams.savepoint))

        def dies(*_: object) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(actions, "running", dies)
            with pytest.raises(Killed):
                roll_back(found, savepoints.find(lake, streams.savepoint), alone=True)
        assert (last(found).step, last(found).ended_at) == ("rolling back", None)
        actions.recover(found, "totals", lambda: None)
        assert last(found).step == "done"
        assert [found.deployments([name])[name].desired for name in ("totals", "largest")] == ["running", "stopped"]
        until(lambda: found.driver("totals").state == "running")
    assert deployed(lake) == TOTALS.version


@pytest.mark.feature("V4")
def test_a_rebuild_that_was_killed_once_it_was_done_runs(streams: Streams, begin: Begin, tmp_path: Path) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        before = found.deployments(["totals"])["totals"]
        found.stop(["totals", "largest"])
        upgrade_stopped(WIDER, lake)  # to the store it is all the same how the checkpoint came to be of another version
        old = {"totals": {"package": before.package, "version": before.version, "desired": "running", "next": "other"}}
        found.store.act(
            found.stream("totals"), kind="upgrade", who="me", why="", version=WIDER.version, old=old, step="rebuilding"
        )
        plan, action = actions.upgrade(fleet(found.root, lake.root, WIDER), WIDER)
        assert (plan.changes, action) == ((), None)
        assert last(found).step == "done"
        now = found.deployments(["totals"])["totals"]
        assert (now.version, now.package, now.desired) == (WIDER.version, "other", "running")


@pytest.mark.parametrize("followed", [True, False])
def test_a_reader_runs_again_behind_a_rebuild_where_it_follows_the_difference(
    streams: Streams, begin: Begin, tmp_path: Path, followed: bool
) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    with begin(lake, "") as found:
        before = found.deployments(["totals", "largest"])
        found.stop(["totals", "largest"])
        upgrade_stopped(WIDER, lake)
        path = lake.output("totals")
        about = {"version": WIDER.version, "timeline": 1, "savepoint": "", "batch": 0, "progress": 0, "restored": -1}
        replaced = Restored(
            mode="rebuild",
            operator="totals",
            table="totals",
            difference=entries.version_of(path) if followed else -1,
            followers=(before["largest"].version,),
            **about,  # type: ignore[arg-type]  # numbers and texts
        )
        Writer(path).note(replaced)
        old = {
            name: {"package": one.package, "version": one.version, "desired": "running"} for name, one in before.items()
        }
        old["totals"]["next"] = "other"
        stream, values = found.stream("totals"), {"who": "me", "why": "", "version": WIDER.version, "old": old}
        found.store.act(stream, kind="upgrade", step="rebuilding", **values)
        actions.upgrade(fleet(found.root, lake.root, WIDER), WIDER)
        now = found.deployments(["totals", "largest"])
        assert now["totals"].desired == "running"
        assert now["largest"].desired == ("running" if followed else "stopped")


@pytest.mark.feature("F8")
def test_a_reader_that_is_at_work_is_waited_for(
    streams: Streams, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copy_of(streams, tmp_path / "lake")
    monkeypatch.setattr(actions, "_READERS_SECONDS", {"rollback": 0.0})
    with begin(lake, "") as found:
        assert found.store.lease(found.stream("largest").action, "somebody", 3600) is not None
        with pytest.raises(LifecycleError, match=r"LIFECYCLE-054 operator 'largest'.*one of somebody"):
            roll_back(found, savepoints.find(lake, streams.savepoint))
        assert {one.desired for one in found.store.deployments()} == {"running"}
        assert last(found).step == "refused"


def test_code_that_a_rollback_has_led_to_is_what_runs_once_it_is_restored(
    streams: Streams, begin: Begin, tmp_path: Path
) -> None:
    with begin(copy_of(streams, tmp_path / "lake"), "") as found:
        found.stop(["totals"])
        kept = found.deployments(["totals"])["totals"].package
        found.deploy("totals", kept, WIDER.version, "stopped")  # as a rollback leaves it that does not find the code
        plan, action = actions.upgrade(found, TOTALS)
        assert (plan.changes, action) == ((), None), "the state is that of the code"
        now = found.deployments(["totals"])["totals"]
        assert (now.version, now.desired, now.package != kept) == (TOTALS.version, "stopped", True)
        found.want("totals", "running")
        until(lambda: (d := found.driver("totals")).version == TOTALS.version and d.state == "running")


def unbegun(tmp_path: Path) -> tuple[Lake, Fleet]:
    """A stream that should run, has a row to read, and no micro-batch yet; nobody is at work."""
    lake, root = Lake(str(tmp_path / "lake")), tmp_path / "workspace"
    root.mkdir()
    (root / "code.py").write_text("")
    log = Log(TOTALS.inputs[0].schema)
    log.rows([{"at": START, "key": "a", "value": 1}], "at", bound=0)
    write_deltalake(lake.log("events"), log.table())
    found = fleet(root, lake.root, TOTALS)
    found.start([TOTALS])
    return lake, found


def commit(version: Operator, lake: Lake) -> None:
    """One micro-batch of a version."""
    batches = iter([False, True])
    local_driver.run(version, lake, lambda: next(batches), lambda _: None)


@pytest.mark.feature("F8", "V4")
def test_a_stream_whose_first_micro_batch_is_committed_while_it_stops_is_upgraded_with_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was there when the upgrade looked; deployed as a stream without state, the new version would refuse the state of the old one."""
    lake, found = unbegun(tmp_path)
    root = found.root
    stop = Fleet.stop

    def committed(fleet: Fleet, names: Sequence[str]) -> object:
        commit(TOTALS, lake)
        return stop(fleet, names)

    monkeypatch.setattr(Fleet, "stop", committed)
    with pytest.raises(LifecycleError, match="LIFECYCLE-053"):  # nobody would start it again
        actions.upgrade(fleet(root, lake.root, WIDER), WIDER)
    assert deployed(lake) == TOTALS.version
    now = found.deployments(["totals"])["totals"]
    assert (now.version, now.desired) == (TOTALS.version, "running"), "as it was"


@pytest.mark.feature("F8", "V4")
@pytest.mark.parametrize("fails", ["pack", "stop", "deploy", "close"])
def test_an_upgrade_before_the_first_micro_batch_that_ends_early_leaves_a_stream_that_should_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The code cannot be packed, or it is killed: once the stream is stopped, before the new version is deployed, or behind that."""
    lake, found = unbegun(tmp_path)
    wider = fleet(found.root, lake.root, WIDER)
    owner = Store if fails == "close" else Fleet
    method = getattr(owner, fails)

    def ends(*values: object) -> None:
        if fails == "pack":
            raise SetupError("the code", "files that can be read", "none", "Make them readable.", code="SETUP-010")
        if fails == "stop":
            method(*values)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, fails, ends)
        with pytest.raises(SetupError if fails == "pack" else Killed):
            actions.upgrade(wider, WIDER)
    now = found.deployments(["totals"])["totals"]
    assert now.version == (WIDER if fails == "close" else TOTALS).version
    assert now.desired == ("running" if fails in {"pack", "close"} else "stopped")
    plan, action = actions.upgrade(wider, WIDER)
    now = found.deployments(["totals"])["totals"]
    assert (plan.changes, action, now.version, now.desired) == ((), None, WIDER.version, "running")
    assert last(found).step == "done"
    assert found.store.unfinished(found.stream("totals")) is None
    commit(WIDER, lake)


@pytest.mark.feature("F8", "V4")
def test_an_upgrade_before_the_first_micro_batch_that_was_killed_behind_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version has state of its own by then, which the old one would refuse."""
    lake, found = unbegun(tmp_path)

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Store, "close", dies)
        with pytest.raises(Killed):
            actions.upgrade(fleet(found.root, lake.root, WIDER), WIDER)
    commit(WIDER, lake)
    actions.recover(found, "totals", lambda: None)
    assert last(found).step == "done"
    now = found.deployments(["totals"])["totals"]
    assert (now.version, now.desired) == (WIDER.version, "running")
