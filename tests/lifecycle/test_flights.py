"""What savepoints are for, each use on real flights, against streams that nobody has touched."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from flights import changelog, land_all, write_small_inbox
from pyspark.sql import SparkSession

from floodmark import Calendar, Every, Global, Stream, Tumbling, count, max, mean, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.engines.spark.state import canonical
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.upgrading import rebuild, upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from operators.aircraft import connection_pairs, stranded_aircraft
from operators.flights import Flight, delay_sessions, hourly_departures, moving_median, rolling_departures

from .test_canonical import another

__all__ = ["another"]

NEW_YORK = "America/New_York"


def version(slow: int, of: str = "dep_delay") -> Operator:
    """Which hours were slow, in more minutes than these."""

    def slow_hours(flights: Stream[Flight]) -> Stream:
        windowed = (
            flights.filter("dep_delay IS NOT NULL")
            .key_by("origin")
            .window(Tumbling("1 hour"), allowed_lateness="2 hours")
        )
        return windowed.aggregate(departures=count(), delay=mean(of)).with_columns(slow=f"delay > {slow}")

    return operator(slow_hours)


def reader(upstream: Operator) -> Operator:
    """How many of a day's hours were slow."""

    def slow_days(hours: Stream) -> Stream:
        keyed = hours.with_columns(one="CASE WHEN slow THEN 1 ELSE 0 END").key_by("origin")
        return keyed.window(Calendar("day", NEW_YORK), allowed_lateness="1 day").aggregate(
            hours=count(), slow=sum("one")
        )

    return operator(slow_days, inputs={"hours": upstream})


WRONG, RIGHT = version(150), version(15)


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days, in eight files."""
    return write_small_inbox(tmp_path_factory.mktemp("flights"), days=2, pieces=4)


def run(engine: Computing, lake: Lake, *operators: Operator, clock: int | None = None) -> None:
    for one in operators:
        engine.run_unbounded(one, lake, until_caught_up=True, clock=clock)


@pytest.fixture(scope="module")
def half(engine: Computing, inbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The streams of the wrong version after half of the flights, with savepoints at one cut."""
    lake = Lake(str(tmp_path_factory.mktemp("half")))
    land_all(engine, inbox, lake, end=False, max_commits=4)
    run(engine, lake, WRONG, reader(WRONG))
    create_coordinated_savepoints("slow_hours", lake, why="half of them")
    return lake


@pytest.fixture(scope="module")
def truth(engine: Computing, inbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Operator], Lake]:
    """What an operator makes of all of it, in one go."""
    lake, done = Lake(str(tmp_path_factory.mktemp("truth"))), {}
    land_all(engine, inbox, lake, end=True)

    def of(one: Operator) -> Lake:
        if one.version not in done:
            done[one.version] = Lake(f"{lake.root}/{one.version}", logs=lake.root)
            run(engine, done[one.version], one)
        return done[one.version]

    return of


@pytest.fixture
def mine(half: Lake, tmp_path: Path) -> Lake:
    """A copy of it, to go on with."""
    return Lake(str(shutil.copytree(half.root, tmp_path / "lake")))


def rows(lake: Lake, table: str, without: tuple[str, ...] = ()) -> Counter[str]:
    """Every row and retraction with its stamps, as often as it is there."""
    found = changelog(lake, table)
    return Counter(str(row) for row in found.drop_columns(list(without)).to_pylist())


def standing(lake: Lake, table: str, without: tuple[str, ...] = ()) -> Counter[str]:
    """Every row that no retraction has taken back, without its stamps."""
    found = changelog(lake, table)
    table_rows = found.drop_columns([*without, "_watermark", "_kind"]).to_pylist()
    net = Counter[str]()
    for row, kind in zip(map(str, table_rows), found["_kind"].to_pylist(), strict=True):
        net[row] += 1 if kind == ROW else -1
    return Counter({row: n for row, n in net.items() if n})


def last_half(engine: Computing, inbox: Path, lake: Lake, *operators: Operator) -> None:
    land_all(engine, inbox, lake, end=True)
    run(engine, lake, *operators)


@pytest.mark.feature("V4")
def test_a_bug_is_mended_and_nobody_downstream_notices_anything_else(
    engine: Computing, inbox: Path, mine: Lake, truth: Callable[[Operator], Lake]
) -> None:
    before = rows(mine, "slow_hours")
    upgrade(RIGHT, mine, why="15 minutes, not 150")
    upgrade(reader(RIGHT), mine)
    last_half(engine, inbox, mine, RIGHT, reader(RIGHT))
    after = rows(mine, "slow_hours") - before
    assert standing(mine, "slow_hours", ("slow",)) == standing(truth(RIGHT), "slow_hours", ("slow",))
    assert before <= rows(truth(WRONG), "slow_hours")
    new = [row for row in changelog(mine, "slow_hours").to_pylist() if str(row) in after and not row["_kind"]]
    assert new
    assert all(row["slow"] == (row["delay"] > 15) for row in new)
    days = Counter(day["hours"] for day in changelog(mine, "slow_days").to_pylist())
    assert days, "the reader goes on"


@pytest.mark.feature("V4")
def test_a_bug_in_what_was_kept_is_mended_for_all_rows(
    engine: Computing, inbox: Path, mine: Lake, truth: Callable[[Operator], Lake]
) -> None:
    other = version(15, of="arr_delay")
    rebuild(engine.run_unbounded, other, mine)
    last_half(engine, inbox, mine, other)
    assert rows(mine, "slow_hours") == rows(truth(other), "slow_hours")


@pytest.mark.engines("spark")
@pytest.mark.feature("V5", "K13")
@pytest.mark.soak
def test_another_engine_goes_on(
    spark: SparkSession,
    engine: Computing,
    inbox: Path,
    mine: Lake,
    truth: Callable[[Operator], Lake],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Windows, a process function with timers, and the buffers of a join."""
    keyed = stranded_aircraft, connection_pairs
    run(engine, mine, *keyed)
    for one in keyed:
        savepoints.create(one.name, mine)
    made = savepoints.savepoints(mine)
    places = [canonical.export(spark, one, str(tmp_path / "out")) for one in made]
    request.getfixturevalue("another")
    for place in places:
        canonical.import_savepoint(spark, mine, place)
    for one in made:
        savepoints.delete(one)
    taken = {one.manifest.operator: one for one in savepoints.savepoints(mine)}
    for name in ("slow_hours", *(one.name for one in keyed)):
        roll_back(mine, taken[name])
    last_half(engine, inbox, mine, WRONG, reader(WRONG), *keyed)
    assert rows(mine, "slow_hours") == rows(truth(WRONG), "slow_hours")
    assert rows(mine, "slow_days") == undisturbed(engine, truth(WRONG))
    for one in keyed:
        assert rows(mine, one.name) == rows(truth(one), one.name)
        assert rows(mine, one.name)


def undisturbed(engine: Computing, upstream: Lake) -> Counter[str]:
    """What the reader makes of the rows of another lake."""
    lake = Lake(f"{upstream.root}-reader", logs=upstream.logs, upstream=upstream.root)
    run(engine, lake, reader(WRONG))
    return rows(lake, "slow_days")


@pytest.mark.feature("V6")
def test_paused_moved_to_another_folder_and_resumed(
    engine: Computing, inbox: Path, mine: Lake, truth: Callable[[Operator], Lake], tmp_path: Path
) -> None:
    shutil.copytree(mine.root, tmp_path / "far" / "away")
    shutil.rmtree(mine.root)
    moved = Lake(str(tmp_path / "far" / "away"))
    last_half(engine, inbox, moved, WRONG, reader(WRONG))
    assert rows(moved, "slow_hours") == rows(truth(WRONG), "slow_hours")
    assert rows(moved, "slow_days") == undisturbed(engine, truth(WRONG))


@pytest.mark.feature("V3", "V7", "V8")
def test_two_arms_from_one_savepoint_differ_in_what_was_changed_and_the_original_in_nothing(
    engine: Computing, inbox: Path, mine: Lake, truth: Callable[[Operator], Lake], tmp_path: Path
) -> None:
    savepoint = savepoints.savepoints(mine, "slow_hours")[-1]
    before = rows(mine, "slow_hours")
    arms = [fork(mine, savepoint, str(tmp_path / arm)) for arm in "ab"]
    upgrade(RIGHT, arms[1])
    land_all(engine, inbox, mine, end=True)
    for lake, one in zip(arms, (WRONG, RIGHT), strict=True):
        run(engine, lake, one)
    assert rows(mine, "slow_hours") == before, "what the arms do reaches nobody"
    run(engine, mine, WRONG, reader(WRONG))
    wanted = rows(truth(WRONG), "slow_hours")
    assert rows(mine, "slow_hours") == rows(arms[0], "slow_hours") == wanted
    assert rows(arms[1], "slow_hours") != wanted
    assert standing(arms[1], "slow_hours", ("slow",)) == standing(truth(WRONG), "slow_hours", ("slow",))
    assert rows(mine, "slow_days") == undisturbed(engine, truth(WRONG))


@operator
def so_far(flights: Stream[Flight]) -> Stream:
    """A window that never ends, told every six hours of event time."""
    return (
        flights.key_by("origin")
        .window(Global(), trigger=Every("6 hours"), accumulation="accumulating")
        .aggregate(n=count(), most=max("dep_delay"))
    )


@operator
def as_they_come(flights: Stream[Flight]) -> Stream:
    """Windows of processing time."""
    return flights.key_by("origin").window(Tumbling("1 hour"), time="processing").aggregate(n=count())


KINDS = {
    "slices and fired panes, timers, buffers": (hourly_departures, stranded_aircraft, connection_pairs),
    "overlapping slices, sessions, counts, windows without end, windows of the clock": (
        rolling_departures,
        delay_sessions,
        moving_median,
        so_far,
        as_they_come,
    ),
}


@pytest.mark.engines("spark")
@pytest.mark.soak
@pytest.mark.feature("K10", "K11", "K13", "V9")
@pytest.mark.parametrize("kinds", [pytest.param(kinds, id=name) for name, kinds in KINDS.items()])
def test_every_kind_of_state_is_divided_among_five_and_then_three(
    spark: SparkSession, engine: Computing, inbox: Path, tmp_path: Path, kinds: tuple[Operator, ...]
) -> None:
    lake, whole = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "whole"), logs=str(tmp_path / "lake"))
    for step, partitions in enumerate((5, 3, None)):
        land_all(engine, inbox, lake, end=partitions is None, max_commits=None if partitions is None else 3)
        clock = step * 3_600_000
        run(engine, lake, *kinds, clock=clock)
        run(engine, whole, *(one for one in kinds if partitions is None or one is as_they_come), clock=clock)
        for one in kinds if partitions else ():
            assert rescale(spark, lake, one.name, partitions or 0)
    for one in kinds:
        checkpoint = Timeline.current(lake, one.name).checkpoint
        assert checkpoint.partitions(checkpoint.last_committed()) == 3
        for output in one.outputs:
            assert rows(lake, output.table) == rows(whole, output.table), output.table
        assert DeltaTable(lake.output(one.name)).to_pyarrow_table().num_rows > 10, one.name
