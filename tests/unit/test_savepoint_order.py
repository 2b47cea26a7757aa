"""Savepoints are ordered by when they were made, whatever the clock says, in every list and for every choice of the newest."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import forked
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from events import source
from processes import failure
from seeds import seed_of
from small_lake import TOTALS, make

from floodmark import Settings, Workspace, operator_asset
from floodmark.control.delivery import promotion
from floodmark.control.processes import replay
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.saving import thin
from floodmark.core import crash
from floodmark.core.errors import LifecycleError, StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lifecycle.experiment import Experiment
from floodmark.lifecycle.savepoint_id import latest_of, new_id, operator_of
from floodmark.orchestration import automation, build_definitions
from floodmark.orchestration.listing import KEY, id_of

_FEW = 100
PROCESS = Path(__file__).parents[1] / "support" / "savepoint_process.py"


def ids(lake: Lake) -> list[str]:
    """The savepoints as lists show them."""
    return [one.id for one in savepoints.savepoints(lake, "totals")]


def test_savepoints_are_in_the_order_they_were_made_while_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, clock = make(tmp_path / "lake"), time.time_ns()
    jumps = iter([0, 0, 0, -1, -3_600, 0, -31_536_000, 0])
    monkeypatch.setattr(time, "time_ns", lambda: clock + next(jumps) * 1_000_000_000)
    made = [savepoints.create("totals", lake).id for _ in range(8)]
    assert ids(lake) == made == sorted(made)


def test_an_id_says_its_operator_and_its_time() -> None:
    draw = random.Random(1)
    times = sorted({draw.randrange(10**9, 4 * 10**12) for _ in range(200)} | set(range(10**12, 10**12 + 2000)))
    made = [new_id("of_all", at) for at in times]
    assert made == sorted(made, key=lambda name: name.removeprefix("of_all-"))
    assert [latest_of([name]) for name in made] == times
    assert latest_of([*made, "of_all-99999999T999999-zzzz", "zz"]) == times[-1]
    assert {operator_of(name) for name in made} == {"of_all"}


@pytest.mark.parametrize("name", ["7", "totals-7", "20250301", "totals-20250301T000000", "totals-20250301T000000-XY12"])
def test_a_number_is_no_id(lake: Lake, name: str) -> None:
    assert operator_of(name) is None
    assert latest_of([name]) == -1
    with pytest.raises(LifecycleError, match="LIFECYCLE-031"):
        savepoints.find(lake, name)


def test_savepoints_of_earlier_versions_are_before_those_of_the_same_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, clock = make(tmp_path / "lake"), 1_700_000_000_500
    old = savepoints.create("totals", lake)
    name = "totals-20231114T221320-ffff"
    manifest = Path(old.path, "manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"id": name, "at": clock + 400}))
    Path(old.path).rename(Path(old.path).with_name(name))
    monkeypatch.setattr(time, "time_ns", lambda: clock * 1_000_000)
    new = savepoints.create("totals", lake)
    assert ids(lake) == [name, new.id]
    assert savepoints.find(lake, name).manifest.at == clock + 400


@pytest.mark.parametrize("name", ["7", "../../elsewhere", "others-20231114T221320-ffff"])
def test_an_exported_savepoint_under_a_name_that_is_no_id_is_refused(tmp_path: Path, name: str) -> None:
    lake = make(tmp_path / "lake")
    made = savepoints.create("totals", lake)
    savepoints.export(made, str(tmp_path / "out"))
    manifest = tmp_path / "out" / made.id / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"id": name}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StateError, match=r"STATE-021 .*which is no id of a savepoint of 'totals'"):
        savepoints.import_savepoint(make(tmp_path / "other"), str(tmp_path / "out" / made.id))
    shutil.rmtree(tmp_path / "other")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_made_after_an_import_is_after_it_also_where_its_clock_was_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = make(tmp_path / "there"), make(tmp_path / "here")
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: 4_000_000_000 * 10**9)
        exported = savepoints.create("totals", there)
    savepoints.export(exported, str(tmp_path / "out"))
    imported = savepoints.import_savepoint(here, str(tmp_path / "out" / exported.id))
    made = savepoints.create("totals", here)
    assert ids(here) == [imported.id, made.id]


def test_the_making_of_a_savepoint_reads_no_other_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, read = make(tmp_path / "lake"), savepoints.read
    for _ in range(5):
        savepoints.create("totals", lake)
    opened: list[str] = []
    monkeypatch.setattr(savepoints, "read", lambda path: [opened.append(path), read(path)][1])
    savepoints.create("totals", lake)
    assert not [path for path in opened if path.endswith("manifest.json")]


def test_experiments_are_in_the_order_they_began_while_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, clock = make(tmp_path / "lake"), time.time_ns()
    for jump, name in ((0, "z"), (-3_600, "a"), (-3_600, "m"), (-7_200, "b")):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: clock + jump * 1_000_000_000)
        experiments.keep(lake, _experiment(name, experiments.next_start(experiments.known(lake))))
    assert [one.name for one in experiments.known(lake)] == ["z", "a", "m", "b"]


def test_the_promotion_of_an_arm_is_known_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """And not taken for that of an experiment of the same name."""
    fleet, ahead = _fleet(tmp_path, make(tmp_path / "lake")), time.time_ns() // 1_000_000 + 10**9
    old, new = _experiment("x", ahead), _experiment("x", ahead + 1)
    why = promotion._action_note(new, "b")
    begun = fleet.store.act(
        fleet.stream("totals"), kind="upgrade", who="a", why=why, step="rebuilding", old={}, version="v"
    )
    assert [one.id for one in promotion.attempts(fleet, new, "b")] == [begun.id]
    assert promotion.attempts(fleet, old, "b") == promotion.attempts(fleet, new, "c") == []


def _experiment(name: str, began_at: int) -> Experiment:
    return Experiment(
        name=name, operator="totals", savepoint="", arms=(), state="stopped", who="a", why="", began_at=began_at
    )


@pytest.mark.parametrize("many", [12, pytest.param(500, marks=pytest.mark.soak)])
def test_two_processes_under_a_clock_that_goes_back_make_one_order(tmp_path: Path, many: int) -> None:
    """They are killed on the way, at another point of a savepoint each, and started again; in ``make soak`` at all points."""
    lake, notes = make(tmp_path / "lake"), tmp_path / "notes"
    points = random.Random(seed_of(f"order {many}")).sample(crash.POINTS["savepoint"], 5 if many > _FEW else 2)
    shares = [points[0::2], points[1::2]]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda share: _write(lake, notes, many, share), shares))
    noted = notes.read_text().split()
    made = ids(lake)
    assert len(made) >= 2 * many - 3 * len(points)
    assert made == [
        name for name in noted if name in set(made)
    ]  # what was killed on the way has an id, and is no savepoint
    assert made == sorted(savepoints.names(lake))

    assert savepoints.of(lake, "totals", None).id == made[-1]
    assert replay._savepoint("totals", lake, 0).id == made[-1]
    fleet = _fleet(tmp_path, lake)
    assert _partitions(tmp_path, fleet) == made
    gone, stay = thin(fleet, "totals", "hourly", 3)
    assert (gone, stay, ids(lake)) == (made[:-3], {}, made[-3:])
    assert _partitions(tmp_path, fleet) == made[-3:]


def _write(lake: Lake, notes: Path, many: int, points: Sequence[str]) -> None:
    """Make savepoints, in one process after the other, each but the last killed at a point."""
    each = many // (len(points) + 1)
    for point in [*points, ""]:
        command = [
            sys.executable,
            str(PROCESS),
            lake.root,
            str(each),
            str(notes),
            f"{seed_of(f'clock {points}')} {point}",
        ]
        at = {crash.VARIABLE: f"{point}:{each}"} if point else {}
        done = forked.run(command, env={**os.environ, **at})
        assert done.returncode == (-signal.SIGKILL if point else 0), failure(done.stderr)


def _fleet(folder: Path, lake: Lake) -> Fleet:
    (folder / "pyproject.toml").write_text("")
    settings = Settings(lake=lake.root)
    workspace = Workspace(sources=[source([])], operators=[operator_asset(TOTALS)], settings=settings)
    fleet = Fleet(workspace=workspace, root=folder, say=lambda _: None)
    fleet.store.act(fleet.stream("totals"), kind="start", who="a", why="", step="done", old={}, version="v")
    return fleet


_INSTANCES: dict[Path, dg.DagsterInstance] = {}


@pytest.fixture(autouse=True)
def _instances_end() -> Iterator[None]:
    yield
    for instance in _INSTANCES.values():
        instance.dispose()
    _INSTANCES.clear()


def _look(folder: Path, fleet: Fleet) -> SensorExecutionData:
    """What a look of the sensor asks for."""
    if folder not in _INSTANCES:
        _INSTANCES[folder] = dg.DagsterInstance.ephemeral()
    instance, definitions = _INSTANCES[folder], build_definitions(fleet.workspace, root=folder)
    sensor = definitions.resolve_sensor_def("streams")
    with dg.build_sensor_context(instance=instance, definitions=definitions) as context:
        return sensor.evaluate_tick(context)


def _reported(folder: Path, fleet: Fleet) -> list[Mapping[str, Any]]:
    """What a look of the sensor tells of savepoints, and the daemon writes."""
    result, instance = _look(folder, fleet), _INSTANCES[folder]
    for event in result.asset_events:
        assert isinstance(event, dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation)
        instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests:
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        else:
            for key in request.partition_keys:
                instance.delete_dynamic_partition(request.partitions_def_name, key)
    return [event.metadata for event in result.asset_events if event.asset_key == KEY]


def _partitions(folder: Path, fleet: Fleet) -> list[str]:
    """The savepoints to select from in Dagster, after a look of the sensor; it lists the newest first, here the oldest is."""
    _reported(folder, fleet)
    return [id_of(key) for key in _INSTANCES[folder].get_dynamic_partitions("floodmark_savepoints")][::-1]


def test_the_sensor_lists_savepoints_that_are_made_between_its_looks(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    fleet, made = _fleet(tmp_path, lake), list[str]()
    for _ in range(3):
        made.append(savepoints.create("totals", lake).id)
        assert _partitions(tmp_path, fleet) == made
    savepoints.delete(savepoints.find(lake, made[1]))
    made = [made[0], made[2], savepoints.create("totals", lake).id]
    assert _partitions(tmp_path, fleet) == made, "one more and one less in one look"


def test_savepoints_of_a_look_that_fails_are_reported_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(tmp_path / "lake")
    fleet, gone = _fleet(tmp_path, lake), savepoints.create("totals", lake)
    assert _partitions(tmp_path, fleet) == [gone.id]
    savepoints.delete(gone)
    made = savepoints.create("totals", lake)

    def fails(*_: object) -> None:
        raise OSError("the store of the lake is away")

    with monkeypatch.context() as away:
        away.setattr(automation, "reports", fails)
        with pytest.raises(OSError, match="is away"):
            _look(tmp_path, fleet)
    of_savepoints = _reported(tmp_path, fleet)
    assert [metadata["savepoint"].value for metadata in of_savepoints if "savepoint" in metadata] == [made.id]
    assert [metadata["deleted"].value for metadata in of_savepoints if "deleted" in metadata] == [gone.id]
    assert not _reported(tmp_path, fleet)
    assert _partitions(tmp_path, fleet) == [made.id]
