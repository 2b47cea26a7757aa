"""Looks of a watch at what lake and control store know: what takes a promotion back, across looks that share nothing but the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_fleet import fleet_of
from small_lake import TOTALS, make

from floodmark import PromoteWhen, Rollout
from floodmark.control.delivery import experiments, rollouts, standing
from floodmark.control.state.rollout import Record, Rollouts, State
from floodmark.control.streams import actions
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.saving import check_unneeded
from floodmark.core.errors import LifecycleError
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lifecycle.watch import LAG, STREAM, Memory
from floodmark.spec.assets.restart import BUDGET

pytestmark = pytest.mark.clock

DECLARED = Rollout(watch="1 day", catch_up="10 minutes", promote=PromoteWhen(lag="30 s"))
MINUTE = 60_000


class Watched:
    """A stream that was promoted, and what a look sees of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        make(folder / "lake")
        self.fleet = fleet_of(folder)
        self.fleet.deploy("totals", "p", TOTALS.version, "running")
        self.before = savepoints.create("totals", self.fleet.lake)
        self.now, self.lag, self.restored = 0, 0, list[str]()
        patch.setattr(standing, "now", lambda: self.now)
        patch.setattr(experiments, "lag", lambda *_: self.lag)
        patch.setattr(actions, "roll_back", self._restore)
        known = Rollouts(self.fleet.store)
        record = known.begin(
            self.fleet.stream("totals"),
            declared=DECLARED,
            state="promoting",
            root=str(folder),
            environment="dev",
            kind="rollout",
            experiment="",
            arm="new",
            package="p",
            version=TOTALS.version,
            who="ann",
            why="",
        )
        memory = Memory(after=1, share=0.0)
        self.record = known.transition(record, "watching", savepoint=self.before.manifest.id, memory=memory)

    def _restore(self, fleet: Fleet, savepoint: Savepoint) -> None:
        self.restored.append(savepoint.manifest.id)
        back = savepoint.manifest
        action = actions.begin(fleet, "rollback", "totals", back.version, {}, step="stopping", savepoint=back.id)
        fleet.store.close(action.id, "done", "")

    def look(self) -> Record:
        return rollouts.look(self.fleet, self.record.id)

    def ends(self, before: State = "taking back") -> str:
        """Why the promotion is taken back by the looks that follow; as often as they are repeated, once."""
        looked = self.look()
        assert looked.state == before, looked
        ended = self.look()
        assert (ended.state, self.look().state) == ("taken back", "taken back")
        assert self.restored == [self.before.manifest.id]
        return ended.reason

    def crash(self, reason: str) -> None:
        driver = self.fleet.store.begin(self.fleet.deployments(["totals"])["totals"], "log")
        self.fleet.store.end(driver.id, "crashed", reason)

    def verdict(self, guardrail: str) -> str:
        return next(one.verdict for one in self.look().guardrails if one.name == guardrail)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_stream_that_its_supervisor_gives_up_is_taken_back_and_not_before(watched: Watched) -> None:
    for _ in range(BUDGET - 1):
        watched.crash("killed by SIGKILL")
        assert watched.verdict(STREAM) == "holds"
    assert not watched.restored
    watched.crash("killed by SIGKILL")
    told = f"sees it has crashed {BUDGET} times: killed by SIGKILL"
    assert watched.ends() == f"watch: stream: wants a stream that runs, {told}"


def test_a_crash_that_no_restart_mends_is_enough(watched: Watched) -> None:
    watched.crash("STATE-003 checkpoint: another version")
    assert "it cannot go on: STATE-003 checkpoint" in watched.ends()


def test_crashes_of_the_version_before_do_not_count(watched: Watched) -> None:
    for _ in range(BUDGET):
        watched.crash("no memory")
    watched.fleet.deploy("totals", "p", TOTALS.version, "running")
    assert watched.verdict(STREAM) == "holds"
    assert watched.look().state == "watching"


def test_lag_that_lasts_is_taken_back_and_time_that_was_made_up_does_not_count(watched: Watched) -> None:
    watched.lag = 31_000
    assert watched.verdict(LAG) == "waits"
    watched.now = 9 * MINUTE
    assert watched.verdict(LAG) == "waits"
    watched.lag = 30_000
    assert watched.verdict(LAG) == "holds"
    watched.lag, watched.now = 3_600_000, 15 * MINUTE
    assert watched.verdict(LAG) == "waits"
    watched.now = 25 * MINUTE - 1
    assert watched.verdict(LAG) == "waits"
    watched.now = 25 * MINUTE
    told = watched.ends()
    assert told.startswith("watch: lag: wants at most 30 seconds behind its input")
    assert told.endswith("sees 1 hour behind, more than that for 10 minutes")


@pytest.mark.parametrize("stop", [True, False])
def test_a_stream_that_somebody_stopped_is_not_late(watched: Watched, *, stop: bool) -> None:
    watched.lag = 3_600_000
    if stop:
        watched.fleet.want("totals", "stopped")
    assert watched.verdict(LAG) == ("holds" if stop else "waits")
    watched.now = 10 * MINUTE
    assert watched.look().state == ("watching" if stop else "taking back")


def test_an_abort_and_a_failure_at_once_are_one_return(watched: Watched) -> None:
    watched.crash("STATE-003 checkpoint: another version")
    rollouts.abort(watched.fleet, watched.record, "too slow")
    assert "too slow" in watched.ends()


def test_a_return_that_was_killed_is_finished_and_not_done_once_more(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, finished = watched.fleet, list[int]()
    Rollouts(fleet.store).transition(watched.record, "taking back")
    back = watched.before.manifest
    killed = actions.begin(fleet, "rollback", "totals", back.version, {}, step="rolling back", savepoint=back.id)
    monkeypatch.setattr(actions, "_rolled_back", lambda _, action, *__: finished.append(action.id))
    assert watched.look().state == "taken back"
    assert finished == [killed.id]
    assert not watched.restored
    assert fleet.store.action(killed.id).step == "done"


def test_the_savepoint_that_a_watch_may_go_back_to_is_not_deleted(watched: Watched) -> None:
    with pytest.raises(
        LifecycleError, match="LIFECYCLE-113.*got rollout 1 of 'totals' may go back to it.*rollout abort"
    ):
        check_unneeded(watched.fleet.lake, watched.before, watched.fleet)
    Rollouts(watched.fleet.store).end(watched.record, "done", "")
    check_unneeded(watched.fleet.lake, watched.before, watched.fleet)


def test_a_return_that_is_refused_is_asked_for_again_until_somebody_has_made_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For bounded runs since the promotion, which only a person may undo."""

    def refused(*_: object) -> None:
        fix = "Undo them too: floodmark rollback totals --to S --undo-backfills"
        raise LifecycleError("rollback", "no bounded run since", "one", fix, code="LIFECYCLE-035")

    monkeypatch.setattr(actions, "roll_back", refused)
    watched.crash("STATE-003 checkpoint: another version")
    watched.look()
    for _ in range(2):
        looked = watched.look()
        assert looked.state == "taking back"
        assert "--undo-backfills" in looked.waits
    watched._restore(watched.fleet, watched.before)
    assert watched.look().state == "taken back"


def test_a_way_back_that_is_gone_ends_the_rollout_and_another_may_begin(watched: Watched) -> None:
    shutil.rmtree(watched.before.path)
    watched.crash("STATE-003 checkpoint: another version")
    assert watched.look().state == "taking back"
    ended = watched.look()
    assert ended.state == "stopped"
    assert "its promotion stays, as it cannot be taken back: LIFECYCLE-031" in ended.reason
    assert not watched.restored
    assert Rollouts(watched.fleet.store).open(watched.fleet.stream("totals")) is None
