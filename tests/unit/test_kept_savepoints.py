"""Retention of savepoints that a schedule makes: the newest, what is pinned, and what something at work needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from events import source
from filelock import FileLock
from small_lake import TOTALS, make

from floodmark import Savepoints, Settings, Workspace, operator_asset
from floodmark.control.state.rollout import Rollouts
from floodmark.control.streams import saving
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.saving import thin
from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.experiment import Experiment
from floodmark.orchestration import build_definitions
from floodmark.spec.assets.rollout import Rollout

NOTE = "hourly"


def fleet_of(folder: Path, **asset: Any) -> Fleet:
    lake = make(folder / "lake")
    settings = Settings(lake=lake.root, control=f"sqlite:///{folder}/control.db")
    workspace = Workspace(sources=[source([])], operators=[operator_asset(TOTALS, **asset)], settings=settings)
    return Fleet(workspace=workspace, root=folder, say=lambda _: None)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return fleet_of(tmp_path)


def made(fleet: Fleet, why: str = NOTE, many: int = 1) -> list[str]:
    return [savepoints.create("totals", fleet.lake, why=why).manifest.id for _ in range(many)]


def there(fleet: Fleet) -> set[str]:
    return savepoints.names(fleet.lake)


def an_experiment(fleet: Fleet, savepoint: str) -> None:
    record = Experiment(
        name="x", operator="totals", savepoint=savepoint, arms=(), state="stopped", who="a", why="", began_at=1
    )
    experiments.keep(fleet.lake, record)


def an_action(fleet: Fleet, savepoint: str) -> None:
    values = {"kind": "rollback", "who": "a", "why": "", "step": "x", "old": {}, "version": "v", "savepoint": savepoint}
    fleet.store.act(fleet.stream("totals"), **values)


def a_rollout(fleet: Fleet, savepoint: str) -> None:
    values = {"root": "/", "environment": "dev", "kind": "rollout", "experiment": "", "arm": "new", "package": "p"}
    known = Rollouts(fleet.store)
    record = known.begin(
        fleet.stream("totals"), declared=Rollout(), state="watching", version="v", who="a", why="", **values
    )
    known.note(record, savepoint=savepoint)


@pytest.mark.parametrize("needs", [an_experiment, an_action, a_rollout])
def test_what_something_at_work_needs_is_retained(fleet: Fleet, needs: Callable[[Fleet, str], None]) -> None:
    first, second, third = made(fleet, many=3)
    needs(fleet, first)
    gone, stay = thin(fleet, "totals", NOTE, 1)
    assert gone == [second]
    assert list(stay) == [first]
    assert there(fleet) == {first, third}


def test_other_savepoints_and_pinned_ones_are_left_alone(fleet: Fleet) -> None:
    by_hand, upgrade = made(fleet, ""), made(fleet, "before an upgrade")
    pinned, second, third = made(fleet, many=3)
    savepoints.pin(savepoints.find(fleet.lake, pinned), pinned=True)
    assert thin(fleet, "totals", NOTE, 1) == ([second], {pinned: "it is pinned"})
    assert there(fleet) == {*by_hand, *upgrade, pinned, third}
    with pytest.raises(LifecycleError, match="LIFECYCLE-105"):
        thin(fleet, "totals", "", 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_newest_are_retained_whatever_is_made_in_between(fleet: Fleet, seed: int) -> None:
    """Against a list that is cut by hand."""
    random_, wanted, others = random.Random(seed), list[str](), list[str]()
    for _ in range(8):
        if random_.random() < 0.3:
            others += made(fleet, "by hand")
            continue
        keep = random_.randrange(1, 4)
        wanted = [*wanted, *made(fleet)][-keep:]
        thin(fleet, "totals", NOTE, keep)
        assert there(fleet) == {*wanted, *others}


def test_a_fork_that_is_on_its_way_keeps_what_it_begins_with(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made(fleet, many=2)
    monkeypatch.setattr(saving, "_PATIENCE_SECONDS", 0.1)
    lock = Path(fleet.lake.internal("actions", "files", "lock"))
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock), pytest.raises(LifecycleError, match="LIFECYCLE-003"):
        thin(fleet, "totals", NOTE, 1)
    assert there(fleet) == {first, second}
    fork(fleet.lake, savepoints.find(fleet.lake, first), str(tmp_path / "fork"))
    assert thin(fleet, "totals", NOTE, 1)[0] == [first], "it has all it needs"


@pytest.mark.feature("Z5")
def test_the_schedule_makes_one_and_retains_the_newest(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, savepoints=Savepoints("0 * * * *", keep=2))
    definitions = build_definitions(fleet.workspace, root=tmp_path)
    schedule = definitions.resolve_schedule_def("savepoints_totals")
    assert schedule.cron_schedule == "0 * * * *"
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(4):
            (request,) = schedule.evaluate_tick(dg.build_schedule_context(instance=instance)).run_requests or []
            job = definitions.resolve_job_def("savepoint")
            assert job.execute_in_process(instance=instance, run_config=request.run_config).success
    found = savepoints.savepoints(fleet.lake, "totals")
    assert [one.manifest.why for one in found] == ["by the schedule savepoints_totals"] * 2


def test_a_schedule_of_savepoints_is_refused_when_it_is_made() -> None:
    for given, code in ((Savepoints("hourly"), "098"), (Savepoints("0 * * * *", keep=0), "097"), ("hourly", "097")):
        with pytest.raises(DefinitionError, match=f"DEFINITION-{code}"):
            operator_asset(TOTALS, savepoints=given)  # type: ignore[arg-type]
