"""Rollouts in the control store: one of an operator at once, states that change only from what they were, a look whose cost follows what is due."""

from __future__ import annotations

import errno
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from events import Event
from small_lake import TOTALS

from floodmark import Ascending, Files, PromoteWhen, Rollout, Settings, Source, Within, Workspace, operator_asset
from floodmark.control import rollouts
from floodmark.control.fleet import Fleet
from floodmark.control.looks import Looks
from floodmark.control.rollout import Record, Rollouts
from floodmark.control.store import Store, StreamId
from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.lifecycle.gates import Gate
from floodmark.lifecycle.watch import Memory

STREAM = StreamId("totals", "/lake")
DECLARED = Rollout(promote=PromoteWhen(match=0.9, columns={"total": Within(0.5)}, soak="2 hours", approve=True))


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


def fleet(tmp_path: Path) -> Fleet:
    settings = Settings(lake=str(tmp_path / "lake"), control=f"sqlite:///{tmp_path}/control.db")
    return Fleet(
        workspace=Workspace(
            sources=[Source("events", contract=Event, connector=Files("inbox"), watermark=Ascending())],
            operators=[TOTALS],
            settings=settings,
        ),
        root=tmp_path,
    )


def test_what_is_declared_and_seen_comes_back_as_it_was(known: Rollouts) -> None:
    record = begun(known)
    gates = (Gate(name="lag", wants="30 s", sees="31 s", verdict="waits"),)
    known.note(record, gates=gates, held_since=5, judged_at=1.0)
    found = Rollouts(Store(known.store.url)).open(STREAM)
    assert found is not None
    assert (found.declared, found.gates, found.held_since) == (DECLARED, gates, 5)


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
    assert known.come_to(record, "shadowing").state == "shadowing"
    assert known.come_to(record, "promoting").state == "shadowing", "somebody was faster"
    assert [one.state for one in known.find(record.id).steps] == ["waiting", "shadowing"]


def test_approval_of_something_else_and_at_another_time_is_refused(known: Rollouts, tmp_path: Path) -> None:
    streams = fleet(tmp_path)
    with pytest.raises(LifecycleError, match="LIFECYCLE-102"):
        rollouts.going(streams, "totals")
    record = begun(known, streams.stream("totals"))
    with pytest.raises(LifecycleError, match="LIFECYCLE-103.*awaits approval, got one that is waiting"):
        rollouts.approve(streams, record)
    record = known.come_to(record, "awaiting approval")
    with pytest.raises(LifecycleError, match="LIFECYCLE-103.*expected version v2, got v1"):
        rollouts.approve(streams, record, "v1")
    assert not known.find(record.id).approved
    assert rollouts.approve(streams, record, "v2").approved
    record = known.come_to(record, "promoting")
    with pytest.raises(LifecycleError, match="LIFECYCLE-104.*got one that is promoting"):
        rollouts.abort(streams, record)


def test_a_rollout_needs_a_stream_and_what_declares_it(tmp_path: Path) -> None:
    streams, asset = fleet(tmp_path), operator_asset(TOTALS, rollout=Rollout())
    with pytest.raises(LifecycleError, match="LIFECYCLE-101"):
        rollouts.start(streams, replace(asset, rollout=None))
    with pytest.raises(LifecycleError, match="LIFECYCLE-050"):
        rollouts.start(streams, asset)
    streams.deploy("totals", "p", TOTALS.version, "running")
    with pytest.raises(LifecycleError, match="LIFECYCLE-030.*expected a stream that has committed a micro-batch"):
        rollouts.start(streams, asset)


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
    streams = fleet(tmp_path)
    known = Rollouts(streams.store)
    record = known.come_to(begun(known, streams.stream("totals")), "judging")

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


def test_what_ended_long_ago_is_forgotten_but_the_newest(known: Rollouts) -> None:
    for _ in range(5):
        known.end(begun(known), "done", "")
    going = begun(known, StreamId("other", "/lake"))
    assert known.forget(time.time() + 1, dry_run=True) == 4
    assert known.forget(time.time() + 1) == 4
    assert [one.id for one in known.of(STREAM)] == [5]
    assert known.open(going.stream) == going


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


def test_looks_start_what_is_due_once_and_again_when_it_died(known: Rollouts, tmp_path: Path) -> None:
    (tmp_path / "packages" / "p").mkdir(parents=True)
    record, seen = begun(known), tmp_path / "seen"
    program = f"import sys; open({str(seen)!r}, 'a').write(sys.argv[1] + '\\n')"
    looks = Looks(known.store, tmp_path, command=(sys.executable, "-c", program))
    looks.look()
    looks.look()
    ended = time.monotonic() + 300
    while not (seen.exists() and seen.read_text() == "1\n1\n"):
        assert time.monotonic() < ended, seen.read_text() if seen.exists() else "nothing"
        looks.look()
        time.sleep(0.05)
    known.note(record, due=time.time() + 1000)
    looks._began.clear()
    before = seen.read_text()
    for child in looks._children.values():
        child.wait()
    looks.look()
    assert not looks._children
    assert seen.read_text() == before


def test_a_package_that_is_gone_does_not_end_the_supervisor(known: Rollouts, tmp_path: Path) -> None:
    record = begun(known)
    Looks(known.store, tmp_path).look()
    assert "cannot be started" in known.find(record.id).waits
