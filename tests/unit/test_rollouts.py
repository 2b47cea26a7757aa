"""Rollouts in the control store: one of an operator at once, states that change only from what they were, a look whose cost follows what is due."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from events import Event
from small_fleet import fleet_of
from small_lake import TOTALS, make

from floodmark import (
    Operator,
    PromoteWhen,
    Rollout,
    Stream,
    Tumbling,
    Within,
    count,
    operator,
    operator_asset,
    sum,
)
from floodmark.control.delivery import promotion, rollouts
from floodmark.control.delivery.rollouts import await_due
from floodmark.control.processes.looks import Looks
from floodmark.control.state.records import StreamId
from floodmark.control.state.rollout import Record, Rollouts, State
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.lake.restore import experiments as kept
from floodmark.lake.restore import savepoints
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.guardrails import Guardrail
from floodmark.lifecycle.watch import Memory
from floodmark.spec.graph.stream import WindowedStream

STREAM = StreamId("totals", "/lake")
DECLARED = Rollout(
    ramp=(0.1,), promote=PromoteWhen(match=0.9, columns={"total": Within(0.5)}, soak="2 hours", approve=True)
)


@pytest.fixture
def known(tmp_path: Path) -> Rollouts:
    return Rollouts(Store(f"sqlite:///{tmp_path}/control.db"))


def begun(known: Rollouts, stream: StreamId = STREAM, **values: Any) -> Record:
    given: dict[str, Any] = {"declared": DECLARED, "state": "waiting", "root": "/", "environment": "dev"}
    given |= {
        "kind": "rollout",
        "experiment": "",
        "arm": "new",
        "package": "p",
        "version": "v2",
        "who": "ann",
        "why": "",
    }
    return known.begin(stream, **(given | values))


def test_what_is_declared_and_seen_comes_back_as_it_was(known: Rollouts) -> None:
    record = begun(known)
    guardrails = (Guardrail(name="lag", wants="30 s", sees="31 s", verdict="waits"),)
    known.note(record, guardrails=guardrails, held_since=5, judged_at=1.0)
    found = Rollouts(Store(known.store.url)).open(STREAM)
    assert found is not None
    assert (found.declared, found.guardrails, found.held_since) == (DECLARED, guardrails, 5)


def test_an_operator_has_one_rollout_at_once(known: Rollouts) -> None:
    record = begun(known)
    with pytest.raises(LifecycleError, match="LIFECYCLE-100.*rollout 1 of 'totals', which is waiting"):
        begun(known)
    begun(known, StreamId("totals", "/other"))
    known.end(record, "stopped", "why not")
    assert known.open(STREAM) is None
    assert begun(known).id != record.id


def test_a_state_changes_only_from_what_it_was(known: Rollouts) -> None:
    record = begun(known)
    assert known.transition(record, "shadowing").state == "shadowing"
    assert known.transition(record, "promoting").state == "shadowing", "somebody was faster"
    assert [one.state for one in known.find(record.id).steps] == ["waiting", "shadowing"]


def test_approval_of_something_else_and_at_another_time_is_refused(known: Rollouts, tmp_path: Path) -> None:
    streams = fleet_of(tmp_path)
    with pytest.raises(LifecycleError, match="LIFECYCLE-102"):
        rollouts.going(streams, "totals")
    record = begun(known, streams.stream("totals"))
    with pytest.raises(LifecycleError, match="LIFECYCLE-103.*awaits approval, got one that is waiting"):
        rollouts.approve(streams, record)
    record = known.transition(record, "awaiting approval")
    with pytest.raises(LifecycleError, match="LIFECYCLE-103.*expected version v2, got v1"):
        rollouts.approve(streams, record, "v1")
    assert not known.find(record.id).approved
    assert rollouts.approve(streams, record, "v2").approved
    record = known.transition(record, "promoting")
    with pytest.raises(LifecycleError, match="LIFECYCLE-104.*got one that is promoting"):
        rollouts.abort(streams, record)


def test_a_rollout_needs_a_stream_and_what_declares_it(tmp_path: Path) -> None:
    streams, asset = fleet_of(tmp_path), operator_asset(TOTALS, rollout=Rollout())
    with pytest.raises(LifecycleError, match="LIFECYCLE-101"):
        rollouts.start(streams, replace(asset, rollout=None))
    with pytest.raises(LifecycleError, match="LIFECYCLE-050"):
        rollouts.start(streams, asset)
    streams.deploy("totals", "p", TOTALS.version, "running")
    with pytest.raises(LifecycleError, match="LIFECYCLE-030.*expected a stream that has committed a micro-batch"):
        rollouts.start(streams, asset)


@pytest.fixture
def running(tmp_path: Path) -> Fleet:
    """A stream of totals that has committed micro-batches, as far as lake and control store know."""
    make(tmp_path / "lake")
    streams = fleet_of(tmp_path)
    streams.deploy("totals", "p", TOTALS.version, "running")
    return streams


def changed(aggregates: Callable[[WindowedStream], Stream], key: str = "key", size: str = "10 minutes") -> Operator:
    """Another version of totals."""

    @operator
    def totals(events: Stream[Event]) -> Stream:
        keyed = events.with_columns(other="key").key_by(key)
        return aggregates(keyed.window(Tumbling(size), allowed_lateness="15 minutes", late="side_output"))

    return totals


def sums(windowed: WindowedStream) -> Stream:
    return windowed.aggregate(n=count(), total=sum("value"))


def with_mean(windowed: WindowedStream) -> Stream:
    return sums(windowed).with_columns(mean="total / n")


def halves(windowed: WindowedStream) -> Stream:
    return windowed.aggregate(n=count(), total=sum("value / 2"))


@pytest.mark.parametrize(
    ("version", "rule", "words"),
    [
        (changed(sums, key="other"), PromoteWhen(), "got rows per other, and not rows per key"),
        (changed(sums, size="20 minutes"), PromoteWhen(), "of which no window is one of Tumbling(size=10 minutes)"),
        (changed(halves), PromoteWhen(), "got 'total' of 'totals' as double, and not bigint"),
        (changed(with_mean), PromoteWhen(columns={"mean": Within(1)}), "a rule about 'mean'"),
    ],
)
def test_a_version_that_the_rule_can_never_promote_is_refused_before_anything_is_kept(
    running: Fleet, version: Operator, rule: PromoteWhen, words: str
) -> None:
    with pytest.raises(LifecycleError) as refused:
        rollouts.start(running, operator_asset(version, rollout=Rollout(promote=rule)))
    assert refused.value.code == "LIFECYCLE-112"
    assert words in str(refused.value)
    assert "floodmark apply totals" in refused.value.fix
    assert not Rollouts(running.store).of(running.stream("totals"))
    assert not kept.known(running.lake)
    assert not savepoints.savepoints(running.lake, "totals")


def arms(streams: Fleet, record: Record, code: str = "@current") -> Experiment:
    """The experiment of a rollout, of which no arm has begun."""
    return kept.keep(
        streams.lake,
        Experiment(
            name=record.named,
            operator="totals",
            savepoint="s",
            arms=tuple(
                Arm(name=name, code=one, package=package, version=version, root=str(streams.root / name))
                for name, one, package, version in (
                    ("old", code, "p", TOTALS.version),
                    ("new", "p2", "p2", record.version),
                )
            ),
            state="running",
            who="",
            why="",
            began_at=0,
        ),
    )


@pytest.mark.parametrize("state", ["shadowing", "judging", "awaiting approval", "promoting"])
def test_a_rollout_ends_where_the_stream_has_become_another_version_meanwhile(running: Fleet, state: State) -> None:
    """It would put an older version in the place of the newer one."""
    known = Rollouts(running.store)
    record = known.transition(begun(known, running.stream("totals")), state)
    made = arms(running, record)
    running.deploy("totals", "p3", "totals@3", "running")
    looked = rollouts.look(running, record.id)
    assert looked.state == "stopping"
    told = f"the stream runs totals@3 now, and no longer {TOTALS.version}, with which it is compared"
    assert looked.steps[-1].why == told
    assert running.deployments(["totals"])["totals"].version == "totals@3"
    assert not running.store.actions(running.stream("totals"))
    kept.keep(running.lake, replace(made, state="stopped"))
    assert (rollouts.look(running, record.id).state, known.find(record.id).reason) == ("stopped", told)


def test_a_rule_waits_while_the_stream_is_another_version_and_goes_on_then(running: Fleet) -> None:
    known = Rollouts(running.store)
    given = begun(known, running.stream("totals"), kind="experiment", experiment="mine")
    record = known.transition(given, "promoting")
    arms(running, record)
    running.deploy("totals", "p3", "totals@3", "running")
    assert rollouts.look(running, record.id).state == "judging"
    assert "the stream runs totals@3 now" in rollouts.look(running, record.id).waits
    running.deploy("totals", "p", TOTALS.version, "running")
    looked = rollouts.look(running, record.id)
    assert looked.state == "judging"
    assert "the stream runs" not in looked.waits


@pytest.mark.parametrize(("code", "state"), [("LIFECYCLE-115", "judging"), ("LIFECYCLE-096", "stopping")])
def test_an_arm_that_is_killed_as_it_is_promoted_is_judged_again_and_one_that_stays_behind_ends(
    running: Fleet, monkeypatch: pytest.MonkeyPatch, code: str, state: str
) -> None:
    """A supervisor starts a killed driver again: that says nothing of the version."""

    def refused(*_: object) -> None:
        raise LifecycleError("arm 'new'", "an arm that is there", "none", "Wait.", code=code)

    monkeypatch.setattr(promotion, "promote", refused)
    known = Rollouts(running.store)
    record = known.transition(begun(known, running.stream("totals")), "promoting")
    arms(running, record)
    looked = rollouts.look(running, record.id)
    assert looked.state == state
    assert code in looked.steps[-1].why


@pytest.mark.clock
@pytest.mark.parametrize(("version", "package"), [(TOTALS.version, "p3"), ("totals@3", "p")])
def test_a_restart_of_the_same_code_is_no_other_version(running: Fleet, version: str, package: str) -> None:
    """The same version in another package, or the same package whose version another release of floodmark calls otherwise."""
    known = Rollouts(running.store)
    record = known.transition(begun(known, running.stream("totals")), "judging")
    arms(running, record)
    running.deploy("totals", package, version, "running")
    assert rollouts.look(running, record.id).state == "judging"


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/lake/x"), "judging", "SETUP-052"),
        (OSError(errno.EIO, "Input/output error", "/lake/x"), "judging", "SETUP-056"),
        (LifecycleError("savepoint", "the only one", "another", "Wait.", code="LIFECYCLE-003"), "judging", "another"),
        (ExecutionError("diff", "to get through", "Out of Memory", "", code="EXECUTION-003"), "judging", "of Memory"),
        (LifecycleError("arms", "one grain", "two", "Say which.", code="LIFECYCLE-082"), "stopping", "LIFECYCLE-082"),
    ],
)
def test_a_look_that_the_machine_refuses_waits_and_another_refusal_ends_the_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, words: str
) -> None:
    streams = fleet_of(tmp_path)
    known = Rollouts(streams.store)
    record = known.transition(begun(known, streams.stream("totals")), "judging")

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(rollouts, "_experiment", refused)
    looked = rollouts.look(streams, record.id)
    assert looked.state == state
    assert words in (looked.waits or looked.steps[-1].why)


def test_a_rollout_of_an_older_store_is_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    record = begun(Rollouts(Store(url)))
    with Store(url).transaction() as connection:
        connection.execute(sa.text("ALTER TABLE floodmark_rollouts DROP COLUMN memory"))
    known = Rollouts(Store(url))
    assert known.find(record.id) == record
    assert known.note(record, memory=Memory(after=3, share=0.5)).memory == Memory(after=3, share=0.5)


@pytest.mark.clock
def test_what_ended_long_ago_is_forgotten_but_the_newest(known: Rollouts) -> None:
    for _ in range(5):
        known.end(begun(known), "done", "")
    going = begun(known, StreamId("other", "/lake"))
    assert known.forget(time.time() + 1, dry_run=True) == 4
    assert known.forget(time.time() + 1) == 4
    assert [one.id for one in known.of(STREAM)] == [5]
    assert known.open(going.stream) == going


@pytest.mark.clock
def test_a_look_for_what_is_due_costs_the_same_after_many_rollouts(known: Rollouts) -> None:
    """Rows the database visits, by its own plan: an index of what is open, not the table."""
    for _ in range(200):
        known.end(begun(known), "done", "")
    begun(known)
    query = "EXPLAIN QUERY PLAN SELECT id, package FROM floodmark_rollouts WHERE open IS NOT NULL AND due <= 1"
    with known.store.transaction() as connection:
        plan = " ".join(str(row) for row in connection.execute(sa.text(query)))
    assert "SEARCH floodmark_rollouts USING INDEX" in plan, plan
    assert [number for number, _ in known.due()] == [201]


@pytest.mark.clock
def test_looks_start_what_is_due_once_and_again_when_it_died(known: Rollouts, tmp_path: Path) -> None:
    (tmp_path / "packages" / "p").mkdir(parents=True)
    record, seen, dies = begun(known), tmp_path / "seen", tmp_path / "dies"
    program = f"""
import os, pathlib, sys, time
parent = os.getppid()
open({str(seen)!r}, "a").write(sys.argv[1] + "\\n")
while not pathlib.Path({str(dies)!r}).exists() and os.getppid() == parent:
    time.sleep(0.01)
"""
    looks = Looks(known.store, tmp_path, command=(sys.executable, "-c", program))
    looks.look()
    first = dict(looks._children)
    assert [*first] == [record.id]
    for _ in range(3):
        looks._began.clear()
        looks.look()
        assert looks._children == first, "it is at work"
    dies.touch()
    ended = time.monotonic() + 300
    while not (seen.exists() and seen.read_text().startswith("1\n1\n")):
        assert time.monotonic() < ended, seen.read_text() if seen.exists() else "nothing"
        looks.look()
        time.sleep(0.05)
    known.note(record, due=time.time() + 1000)
    looks._began.clear()
    for child in looks._children.values():
        child.wait()
    before = seen.read_text()
    looks.look()
    assert not looks._children
    assert seen.read_text() == before


def test_a_process_waits_for_a_look_that_is_due_soon_while_its_supervisor_lives(known: Rollouts) -> None:
    record, parent = begun(known), os.getppid()
    assert await_due(known, record.id, parent), "it is due"
    known.note(record, due=time.time() + 0.6)
    assert await_due(known, record.id, parent)
    assert time.time() >= known.find(record.id).due
    known.note(record, due=time.time() + 1000)
    assert not await_due(known, record.id, parent), "another process looks then"
    known.note(record, due=time.time() + 5)
    assert not await_due(known, record.id, parent + 1), "its supervisor has ended"


def test_a_package_that_is_gone_does_not_end_the_supervisor(known: Rollouts, tmp_path: Path) -> None:
    record = begun(known)
    Looks(known.store, tmp_path).look()
    assert "cannot be started" in known.find(record.id).waits
