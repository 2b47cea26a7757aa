"""Savepoints, rollbacks and upgrades are killed with SIGKILL between any two of their writes; the next one finds all of it or nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from borrowed import lend, take_back
from deltalake import DeltaTable
from engines import embedded
from flights import changelog
from lifecycle_process import LARGEST, TOTALS, WIDER
from operator_process import source
from processes import failure
from pyspark.sql import SparkSession

from demo.comparison import compare
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints, switch
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork, move
from floodmark.lake.restore.rollback import prepare, roll_back
from floodmark.lake.restore.switch import pending, refuse_moved, refuse_while_pending
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.writing.writer import FENCE, committed
from floodmark.lifecycle.steps import kind
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Settings

PROGRAM = Path(__file__).with_name("lifecycle_process.py")
TABLES = ("totals", "totals__late", "largest", "totals__current")


@dataclass(frozen=True)
class Streams:
    """Streams that have gone on behind a savepoint of all."""

    lake: Lake
    savepoint: str
    then: dict[str, list[str]]
    truth: Lake


@pytest.fixture(scope="module")
def streams(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return gone_on(engine, tmp_path_factory, TOTALS, LARGEST)


@pytest.fixture(scope="module")
def alone(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    """The first of them, without its reader."""
    return gone_on(engine, tmp_path_factory, TOTALS)


def gone_on(engine: Computing, folders: pytest.TempPathFactory, *codes: Operator) -> Streams:
    """Streams behind a savepoint, and what both would have come to."""
    lake, truth = (Lake(str(folders.mktemp(name) / "lake")) for name in ("streams", "truth"))
    for commits in (1, 2, 3):
        embedded().land(source(commits), truth, end=commits == 3)
    run(embedded(), truth)
    embedded().land(source(1), lake)
    run(engine, lake, *codes)
    made = create_coordinated_savepoints("totals", lake)
    then = seen(lake)
    embedded().land(source(2), lake)
    run(engine, lake, *codes)
    assert seen(lake) != then
    return Streams(lake, made[0].manifest.id, then, truth)


def run(engine: Computing, lake: Lake, *codes: Operator) -> None:
    for one in codes or (TOTALS, LARGEST):
        engine.run_unbounded(one, lake, until_caught_up=True)


def seen(lake: Lake) -> dict[str, list[str]]:
    """What readers find in the tables."""
    there = [table for table in TABLES if DeltaTable.is_deltatable(lake.output(table))]
    return {table: sorted(map(repr, changelog(lake, table).to_pylist())) for table in there}


def die(
    point: str,
    action: str,
    lake: Lake,
    *names: str,
    time: int = 1,
    program: Path = PROGRAM,
    java: SparkSession | None = None,
) -> str:
    """Let the program kill itself at a point, and its Java, unless that is lent; what it said if it did not."""
    command = [sys.executable, str(program), action, lake.root, *names]
    environment = {**os.environ, crash.VARIABLE: f"{point}:{time}", **(lend(java) if java else {})}
    if action == "rescale" and java is None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    else:
        done = forked.run(command, env=environment)
    if java:
        take_back(java)
    killed = done.returncode == -signal.SIGKILL
    return "" if killed else f"{point} was never reached: exit {done.returncode} {failure(done.stderr)}"


def copy_of(streams: Streams, path: Path) -> Lake:
    shutil.copytree(streams.lake.root, path)
    return Lake(str(path))


@pytest.mark.feature("V1")
@pytest.mark.timeout(900)
def test_a_savepoint_is_there_whole_or_not_at_all(alone: Streams, tmp_path: Path) -> None:
    for point in crash.POINTS["savepoint"]:
        lake = copy_of(alone, tmp_path / point)
        assert not die(point, "savepoint", lake), point
        made = savepoints.savepoints(lake, "totals")
        assert len(made) == 1 + (point == "savepoint.after_rename"), point
        assert not [wrong for one in made for wrong in savepoints.verify(one)], point
        again = savepoints.create("totals", lake)
        assert not savepoints.verify(again), point
        assert not list((tmp_path / point).rglob("*.draft")), f"{point}: what was left over is cleaned up"


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.feature("K11")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whole", [False, True])
def test_a_rescaling_killed_anywhere_has_changed_nothing_and_is_done_again(
    spark: SparkSession, engine: Computing, alone: Streams, tmp_path: Path, whole: bool
) -> None:
    """At one point after the other; where it is killed as a whole, its Java is killed too."""
    before, lake = seen(alone.lake), copy_of(alone, tmp_path / "lake")
    old = Timeline.current(lake, "totals")
    for point in crash.POINTS["rescale"]:
        assert not die(point, "rescale", lake, "3", java=None if whole else spark), point
        number = Timeline.current(lake, "totals").number  # those that were begun before are not used again
        assert (number > old.number) == (point == "step.fence"), point
        assert seen(lake) == before, point
    assert rescale(spark, lake, "totals", 3) is None, "it was done at the last point"
    for table in TABLES[:2]:
        assert committed(lake.output(table), old.app(table)) == FENCE, "the old timeline can write nothing"
    embedded().land(source(3), lake, end=True)
    run(engine, lake)
    new = Timeline.current(lake, "totals").checkpoint
    assert new.partitions(new.last_committed()) == 3
    assert seen(lake) == seen(alone.truth)


@pytest.mark.feature("K10")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("rescale.before_regroup", "step.fence"), id="two"),
        pytest.param(crash.POINTS["regroup"], id="each", marks=pytest.mark.soak),
    ],
)
def test_key_groups_divided_anew_and_killed_anywhere_are_divided_by_the_next_one(
    request: pytest.FixtureRequest, engine: Computing, alone: Streams, tmp_path: Path, points: tuple[str, ...]
) -> None:
    java = request.getfixturevalue("spark") if engine.name == "spark" else None
    before, lake = seen(alone.lake), copy_of(alone, tmp_path / "lake")
    for point in points:
        assert not die(point, "regroup", lake, "300", engine.name, java=java), point
        groups = Timeline.current(lake, "totals").identity.key_groups()
        assert groups == (300 if point == "step.fence" else 128), point
        assert seen(lake) == before, point
    assert len(savepoints.savepoints(lake, "totals")) == 2, "each goes on with that of the one before"
    assert engine.regroup(TOTALS, lake, 300) is None, "it was done at the last point"
    embedded().land(source(3), lake, end=True)
    run(engine, lake)
    assert seen(lake) == seen(alone.truth)


@pytest.mark.feature("V1", "F8")
@pytest.mark.timeout(1800)
def test_a_rollback_killed_anywhere_is_finished_by_the_next_one(
    engine: Computing, streams: Streams, tmp_path: Path
) -> None:
    before, met = seen(streams.lake), Counter[str]()
    would = prepare(streams.lake, savepoints.find(streams.lake, streams.savepoint), keep=False)
    between = [f"step.{kind(step)}" for step in switch.steps(streams.lake, would.switch)]
    assert len(between) > len(set(between)), "two streams take some of them"
    for number, point in enumerate(["switch.before_journal", *between, "step.done", "switch.after_journal"]):
        met[point] += 1
        time = met[point]
        lake = copy_of(streams, tmp_path / str(number))
        assert not die(point, "rollback", lake, streams.savepoint, time=time), point
        begun = pending(lake)
        assert (begun is None) == (point in {"switch.before_journal", "switch.after_journal"}), point
        if begun is None:
            assert seen(lake) == (before if point == "switch.before_journal" else streams.then), point
        else:
            for name in ("totals", "largest"):
                with pytest.raises(
                    LifecycleError, match=f"LIFECYCLE-034 .*floodmark rollback totals --to {streams.savepoint}"
                ):
                    refuse_while_pending(lake, name)
        if point != "switch.after_journal":
            roll_back(lake, savepoints.find(lake, streams.savepoint))
        assert pending(lake) is None
        assert seen(lake) == streams.then, point
        assert {Timeline.current(lake, name).number for name in ("totals", "largest")} == {1}, point
    for commits in (2, 3):
        engine.land(source(commits), lake, end=commits == 3)
    run(engine, lake)
    for table in TABLES:
        found = compare(changelog(lake, table), changelog(streams.truth, table), names=("killed", "truth"))
        assert found.differences == 0, (table, found.examples)


@pytest.mark.feature("V4")
@pytest.mark.timeout(900)
def test_an_upgrade_killed_anywhere_is_done_by_the_next_one(
    engine: Computing, streams: Streams, tmp_path: Path
) -> None:
    for point in crash.POINTS["upgrade"]:
        lake = copy_of(streams, tmp_path / point)
        assert not die(point, "upgrade", lake), point
        left = Timeline.current(lake, "totals").identity.deployed()
        assert left is not None
        assert (left.version == WIDER.version) == (point != "step.define"), point
        made = savepoints.create("totals", lake)  # of what the kill left: it goes on with the code it names
        forked = fork(lake, made, str(tmp_path / f"{point}-fork"))
        engine.run_unbounded(WIDER if left.version == WIDER.version else TOTALS, forked, until_caught_up=True)
        assert (upgrade(WIDER, lake).savepoint is None) == (left.version == WIDER.version), point
        again = Timeline.current(lake, "totals").identity.deployed()
        assert again is not None
        assert again.version == WIDER.version
        engine.run_unbounded(WIDER, lake, until_caught_up=True)
        assert "double" in {field.name for field in DeltaTable(lake.output("totals")).schema().fields}


@pytest.mark.feature("V7")
@pytest.mark.timeout(900)
def test_a_fork_killed_anywhere_is_finished_by_the_next_one(streams: Streams, tmp_path: Path) -> None:
    for point in crash.POINTS["fork"]:
        target = str(tmp_path / point)
        assert not die(point, "fork", streams.lake, streams.savepoint, target), point
        done = point == "fork.after_state"
        assert (Timeline.current(Lake(target), "totals").identity.deployed() is not None) == done, point
        if done:
            continue
        found = fork(streams.lake, savepoints.find(streams.lake, streams.savepoint), target)
        for table in TABLES[:2]:
            assert sorted(map(repr, changelog(found, table).to_pylist())) == streams.then[table], point


@pytest.mark.feature("V6")
@pytest.mark.timeout(900)
def test_a_move_killed_anywhere_is_finished_by_the_next_one(
    engine: Computing, streams: Streams, tmp_path: Path
) -> None:
    for point in (*crash.POINTS["move"], *crash.POINTS["fork"]):
        lake, target = copy_of(streams, tmp_path / point), str(tmp_path / f"{point}-target")
        assert not die(point, "move", lake, target), point
        if point == "step.leave":
            refuse_moved(lake, "largest")  # nothing has happened yet
        else:
            with pytest.raises(LifecycleError, match=r"LIFECYCLE-042 .*floodmark run largest --unbounded --lake"):
                refuse_moved(lake, "largest")
            with pytest.raises(LifecycleError, match="LIFECYCLE-042"):
                move(lake, "largest", f"{target}-other")
        found, _ = move(lake, "largest", target)
        assert move(lake, "largest", target)[0] == found, "as often as one likes"
        now = sorted(map(repr, changelog(found, "largest").to_pylist()))
        assert now == seen(lake)["largest"], point
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-043 .*read by largest"):
        move(copy_of(streams, tmp_path / "read"), "totals", str(tmp_path / "nowhere"))
    for commits in (2, 3):
        engine.land(source(commits), lake, end=commits == 3)
    engine.run_unbounded(TOTALS, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-042"):
        engine.run_unbounded(LARGEST, lake, until_caught_up=True)
    shutil.rmtree(lake.output("largest"))
    engine.run_unbounded(LARGEST, Lake.of(Settings(lake=found.root)), until_caught_up=True)
    moved = compare(changelog(found, "largest"), changelog(streams.truth, "largest"), names=("moved", "truth"))
    assert moved.differences == 0, moved.examples
