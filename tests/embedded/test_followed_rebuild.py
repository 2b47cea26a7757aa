"""A rebuild that readers follow as a difference: their results are those of readers that are computed anew, and nothing of them is computed anew."""

from __future__ import annotations

import random
import shutil
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from followed import (
    FOLLOWERS,
    READERS,
    SWITCH,
    current,
    differences,
    evens,
    half_days,
    hours,
    land_some,
    log,
    process,
    results,
    sums,
    timelines,
    totals,
)
from replica_process import ship
from restated import never_less_than_nothing, standing

from floodmark import Operator
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import Upgraded, check_rebuild, rebuild, rebuild_steps, upgrade
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import readers as reading_lakes
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.table import history
from floodmark.lake.writing.difference import Difference
from floodmark.lifecycle.steps import kind


@pytest.fixture(scope="module")
def sail() -> Iterator[Sail]:
    """One server for all tests."""
    found = Sail(memory=300)
    yield found
    found.close()


def run(sail: Sail, lake: Lake, *operators: Operator, anew: bool = False) -> None:
    for one in operators:
        run_unbounded(sail, one, lake, until_caught_up=True, files_per_batch=2, from_scratch=anew)


def all_readers() -> list[Operator]:
    return [define() for define in READERS.values()]


def rebuilt(sail: Sail, lake: Lake, version: str) -> Upgraded:
    return rebuild(partial(run_unbounded, sail), totals(version), lake)


def as_anew(sail: Sail, lake: Lake) -> None:
    """The results of the readers are those of readers that are computed anew, in a copy of the lake."""
    copy = Lake(shutil.copytree(lake.root, f"{lake.root}-{uuid.uuid4().hex}"))
    run(sail, copy, *all_readers(), anew=True)
    for name in FOLLOWERS:
        assert results(lake, name) == results(copy, name) != {}, name
    for name in ("sums", "pairs"):
        assert current(lake, name) == current(copy, name)


@pytest.mark.feature("V4")
@pytest.mark.parametrize("version", ["few", "wide", "double"])
@pytest.mark.few(1)
def test_readers_end_as_if_they_were_computed_anew(sail: Sail, lake: Lake, version: str) -> None:
    events = log()
    land_some(lake, events, 0, 110)
    run(sail, lake, totals("plain"), *all_readers())
    upgraded = rebuilt(sail, lake, version)
    assert (upgraded.followers, upgraded.readers, upgraded.because) == (FOLLOWERS, (), "")
    (appended,) = differences(lake)
    assert appended.rows > 0
    land_some(lake, events, 110, 150)
    run(sail, lake, totals(version), *all_readers())
    land_some(lake, events, 150, 201)
    run(sail, lake, totals(version), *all_readers())
    assert timelines(lake) == [0, 0, 0]
    as_anew(sail, lake)


def test_rows_that_both_versions_have_are_not_touched_and_nothing_is_taken_back_twice(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    path = lake.output("totals")
    before, version = standing(path), DeltaTable(path).version()
    rebuilt(sail, lake, "few")
    after, difference = standing(path), DeltaTable(path, version=version + 1)
    rows = difference.to_pyarrow_table().to_pylist()
    gone, come = before - after, after - before
    assert gone
    assert come
    assert len(rows) - DeltaTable(path, version=version).to_pyarrow_table().num_rows == gone.total() + come.total() + 1
    assert before & after
    run(sail, lake, evens())
    never_less_than_nothing(lake.output("evens"))


def test_a_rebuild_that_changes_nothing_of_a_table_is_followed_by_a_marker(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    before = results(lake, "evens")
    assert rebuilt(sail, lake, "same").followers == ("evens",)
    assert [one.rows for one in differences(lake)] == [0]
    run(sail, lake, evens())
    assert results(lake, "evens") == before


def test_two_rebuilds_are_followed_one_after_the_other(sail: Sail, lake: Lake) -> None:
    events = log(3)
    land_some(lake, events, 0, 80)
    run(sail, lake, totals("plain"), *all_readers())
    rebuilt(sail, lake, "few")
    refused = rebuilt(sail, lake, "wide")
    assert "has not read all of 'totals'" in refused.because
    run(sail, lake, *all_readers(), anew=True)
    land_some(lake, events, 80, 140)
    run(sail, lake, totals("wide"), *all_readers())
    for version in ("double", "plain"):
        assert rebuilt(sail, lake, version).followers == FOLLOWERS
        run(sail, lake, totals(version), *all_readers())
    as_anew(sail, lake)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_drawn_rebuilds_are_followed_as_if_all_was_computed_anew(sail: Sail, lake: Lake, seed: int) -> None:
    draw = random.Random(seed)
    events, version, read = log(seed, 160), "plain", 0
    for until in sorted(draw.sample(range(20, 161), 3)):
        land_some(lake, events, read, until, pieces=draw.randint(1, 3))
        read = until
        run(sail, lake, totals(version), *all_readers())
        version = draw.choice([one for one in ("plain", "few", "wide", "double") if one != version])
        upgraded = rebuilt(sail, lake, version)
        assert upgraded.followers == FOLLOWERS, upgraded.because
        if draw.random() < 0.5:
            run(sail, lake, totals(version), *all_readers())
        else:
            run(sail, lake, *all_readers())
    land_some(lake, events, read, 161)
    run(sail, lake, totals(version), *all_readers())
    as_anew(sail, lake)


def test_a_rollback_takes_the_readers_back_and_they_go_on_from_there(sail: Sail, lake: Lake) -> None:
    events = log()
    land_some(lake, events, 0, 110)
    run(sail, lake, totals("plain"), *all_readers())
    before = {name: results(lake, name) for name in ("totals", *FOLLOWERS)}
    upgraded = rebuilt(sail, lake, "few")
    run(sail, lake, totals("few"), *all_readers())
    later = create_coordinated_savepoints("totals", lake)[0].manifest.id
    assert upgraded.savepoint is not None
    roll_back(lake, savepoints.find(lake, upgraded.savepoint))
    assert before == {name: results(lake, name) for name in ("totals", *FOLLOWERS)}
    land_some(lake, events, 110, 150)
    run(sail, lake, totals("plain"), *all_readers())
    as_anew(sail, lake)
    roll_back(lake, savepoints.find(lake, later))
    land_some(lake, events, 150, 201)
    run(sail, lake, totals("few"), *all_readers())
    as_anew(sail, lake)


def test_upkeep_before_the_readers_resume_leaves_what_they_follow(sail: Sail, lake: Lake) -> None:
    events = log()
    land_some(lake, events, 0, 110)
    run(sail, lake, totals("plain"), *all_readers())
    rebuilt(sail, lake, "wide")
    maintain(lake, hours=0)
    land_some(lake, events, 110, 201)
    run(sail, lake, totals("wide"), *all_readers())
    maintain(lake, hours=0)
    run(sail, lake, *all_readers())
    as_anew(sail, lake)


def test_a_reader_that_is_taken_back_alone_follows_once_more_and_says_so_again(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    before = savepoints.create("evens", lake)
    rebuilt(sail, lake, "few")
    run(sail, lake, evens())
    roll_back(lake, before)
    assert not history.revised(lake.output("evens"))
    run(sail, lake, evens(), sums())
    assert history.revised(lake.output("evens"))
    with pytest.raises(LifecycleError, match="LIFECYCLE-045"):
        run(sail, lake, half_days())
    after = results(lake, "evens")
    run(sail, lake, evens(), anew=True)
    assert after == results(lake, "evens")


def test_a_replica_of_a_table_whose_stream_has_followed_says_so_too(sail: Sail, lake: Lake) -> None:
    there = Lake(f"{lake.root}-there")
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    ship(evens(), lake, there)
    assert not history.revised(there.output("evens"))
    rebuilt(sail, lake, "few")
    run(sail, lake, evens())
    ship(evens(), lake, there)
    assert history.revised(there.output("evens"))


def test_a_bounded_run_waits_until_the_stream_has_followed(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 201)
    run(sail, lake, totals("plain"), evens(), sums())
    rebuilt(sail, lake, "few")
    run(sail, lake, evens())
    with pytest.raises(LifecycleError, match="rows of it that have landed in 'evens' since"):
        run_bounded(sail, sums(), lake)
    run(sail, lake, sums())
    after = results(lake, "sums")
    run_bounded(sail, sums(), lake)
    assert after == results(lake, "sums")


# ---- where readers cannot follow


def test_windows_are_computed_anew_and_so_is_everybody_else(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens(), hours())
    because = "'hours' cannot: results of step 'hours' depend on event time"
    would = check_rebuild(totals("few"), lake)
    assert (would.readers, would.followers, would.because) == (("evens", "hours"), (), because)
    assert "append_difference" not in map(kind, rebuild_steps(totals("few"), lake))
    done = rebuilt(sail, lake, "few")
    assert (done.readers, done.followers, done.because) == (("evens", "hours"), (), because)
    assert not differences(lake)
    for reader in (evens(), hours()):
        with pytest.raises(LifecycleError, match="LIFECYCLE-038"):
            run(sail, lake, reader)


def test_a_reader_that_takes_rows_for_final_is_computed_anew(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("final"), evens("final"))
    assert check_rebuild(totals("few"), lake).because == "'evens' cannot: it takes the rows of 'totals' for final"


def test_a_reader_that_was_upgraded_in_place_is_computed_anew(sail: Sail, lake: Lake) -> None:
    """Rows that its old code has written would be taken back as the new code writes them."""
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    upgrade(evens(divisor=3), lake, forward_only=True)
    because = "'evens' has results of more than one version of its code"
    assert check_rebuild(totals("few"), lake).because == because
    run(sail, lake, evens(divisor=3), anew=True)
    assert check_rebuild(totals("few"), lake).followers == ("evens",)


def test_other_columns_and_bounded_runs_are_not_followed(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 150)
    run(sail, lake, totals("plain"), evens())
    assert check_rebuild(totals("more"), lake).because == "'evens' cannot: 'totals' gets other columns"
    assert check_rebuild(totals("few"), lake).followers == ("evens",)
    first = min(row[0] for row in standing(lake.output("totals")))
    run_bounded(sail, totals("plain"), lake, interval=Interval(end=first + 1))
    assert "others than its stream have written 'totals'" in check_rebuild(totals("few"), lake).because


def test_without_room_to_compute_the_difference_readers_are_computed_anew(
    sail: Sail, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise duckdb.OutOfMemoryException("failed to allocate data of size 1.0 GiB")

    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    monkeypatch.setattr(Difference, "write", fails)
    done = rebuilt(sail, lake, "few")
    assert (done.followers, done.readers) == ((), ("evens",))
    assert done.because.startswith("there is no room to compute the difference of 'totals': failed to allocate")


def test_a_lake_that_may_read_it_and_is_not_there_hinders_no_rebuild(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    reading_lakes.forked(lake, f"{lake.root}-gone")
    assert check_rebuild(totals("few"), lake).because.endswith("is not there")
    assert rebuilt(sail, lake, "few").readers == ("evens",)


def test_who_starts_later_and_depends_on_event_time_asks_for_the_follower_anew(sail: Sail, lake: Lake) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    rebuilt(sail, lake, "few")
    run(sail, lake, evens())
    run(sail, lake, sums())
    with pytest.raises(LifecycleError, match="LIFECYCLE-045") as refused:
        run(sail, lake, half_days())
    assert "floodmark run evens --unbounded --from-scratch --until-caught-up" in str(refused.value)
    with pytest.raises(LifecycleError, match="LIFECYCLE-045"):
        run_bounded(sail, half_days(), lake)
    run(sail, lake, evens(), anew=True)
    run(sail, lake, half_days())


def test_a_fork_of_a_stream_that_has_followed_is_no_input_of_windows_either(
    sail: Sail, lake: Lake, tmp_path: Path
) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    rebuilt(sail, lake, "few")
    run(sail, lake, totals("few"), evens())
    there = fork(lake, savepoints.create("evens", lake), str(tmp_path / "fork"))
    assert results(there, "evens") == results(lake, "evens")
    assert history.revised(there.output("evens"))


def test_a_stream_that_would_leave_rows_out_by_their_numbers_does_not_follow(
    sail: Sail, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), evens())
    assert rebuilt(sail, lake, "few").followers == ("evens",)
    monkeypatch.setattr(Checkpoint, "skipped", lambda *_: {"totals"})
    with pytest.raises(LifecycleError, match="LIFECYCLE-038"):
        run(sail, lake, evens())


# ---- kills


def test_killed_at_each_step_of_the_switch_it_is_followed_once(sail: Sail, lake: Lake) -> None:
    events = log()
    land_some(lake, events, 0, 110)
    run(sail, lake, totals("plain"), *all_readers())
    first = min(row[0] for row in standing(lake.output("totals")))
    for point in SWITCH:
        assert process(lake, "rebuild", "few", at=point) == -signal.SIGKILL, point
        if point == "step.note_revision":
            with pytest.raises(LifecycleError, match="LIFECYCLE-034"):
                run_bounded(sail, totals("plain"), lake, interval=Interval(end=first + 1))
            with exclusive(lake, "operators", "sums", "run"), pytest.raises(LifecycleError, match="LIFECYCLE-003"):
                rebuilt(sail, lake, "few")
    assert process(lake, "rebuild", "few") == 0
    assert len(differences(lake)) == 1
    assert not history.revised(lake.output("totals"))
    assert history.revised(lake.output("sums"))
    land_some(lake, events, 110, 201)
    run(sail, lake, totals("few"), *all_readers())
    assert timelines(lake) == [0, 0, 0]
    as_anew(sail, lake)


@pytest.mark.parametrize(
    "point",
    [
        "embedded.after_state",
        "embedded.before_files",
        "embedded.after_files",
        "embedded.after_commit",
    ],
)
@pytest.mark.few(1)
def test_a_reader_that_is_killed_while_it_follows_resumes(sail: Sail, lake: Lake, point: str) -> None:
    land_some(lake, log(), 0, 110)
    run(sail, lake, totals("plain"), *all_readers())
    rebuilt(sail, lake, "double")
    for name in ("evens", "sums"):
        assert process(lake, "run", name, at=point) == -signal.SIGKILL
        assert process(lake, "run", name) == 0
    run(sail, lake, *all_readers())
    as_anew(sail, lake)
