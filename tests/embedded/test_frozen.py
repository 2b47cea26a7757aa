"""Frozen results: nothing rewrites them until they are thawed, and late rows of them are left out and can be taken in afterwards."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import forked
import pytest
from events import Event
from histories import day, hourly, partitioned, rows, sources, written

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.time import Interval
from floodmark.engines.upgrading import check_rebuild
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import move
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.switch import check_frozen
from floodmark.lake.results import frozen
from floodmark.lake.results.preview import preview
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.lifecycle.cutover import CutoverPlan
from floodmark.lifecycle.switch import Target

HOURLY = partitioned(hourly)


@fm.operator
def even(events: fm.Stream[Event]) -> fm.Stream:
    """Emits late rows as they come."""
    return events.filter("value % 2 = 0")


EVEN = partitioned(even)


def land(engine: Computing, lake: Lake, part: float) -> None:
    events, _ = rows(7, late=0.1)
    engine.land(sources(events[: int(part * len(events))], [])["events"], lake, end=part == 1)


def refused(code: str) -> pytest.RaisesExc[LifecycleError]:
    return pytest.raises(LifecycleError, match=code)


def test_a_bounded_run_leaves_what_is_frozen_until_it_is_thawed(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.5)
    engine.run_bounded(HOURLY, lake, day(0, 2))
    before = written(lake, HOURLY, day(0, 2))
    frozen.freeze(lake, HOURLY, day(1).end, "audited")
    land(engine, lake, 1)

    with refused("LIFECYCLE-201 .*are frozen since .*: audited. Choose later event time"):
        engine.run_bounded(HOURLY, lake, day(0, 3))
    with refused("LIFECYCLE-201"):
        engine.run_bounded(HOURLY, lake, Interval(), force=True)
    engine.run_bounded(HOURLY, lake, day(2), force=True)
    made = preview(HOURLY, lake, day(0, 4), engine=engine.name)
    assert made.partitions == {"missing": 1, "covered": 1, "frozen": 2}
    assert made.missing == (day(3),)
    assert written(lake, HOURLY, day(0, 2)) == before

    with refused("LIFECYCLE-203 .*floodmark thaw hourly --from"):
        frozen.freeze(lake, HOURLY, day(0).start)
    assert frozen.thaw(lake, "hourly") is None
    with refused("LIFECYCLE-203"):
        frozen.thaw(lake, "hourly")
    engine.run_bounded(HOURLY, lake, day(0, 2))
    other = Lake(str(tmp_path / "other"), logs=lake.root)
    engine.run_bounded(HOURLY, other, Interval())
    assert written(lake, HOURLY, day(0, 2)) == written(other, HOURLY, day(0, 2))


def test_a_stream_leaves_out_late_rows_of_frozen_days_and_a_bounded_run_takes_them_in_after_the_thaw(
    engine: Computing, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.5)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    with refused("LIFECYCLE-202 .*a stream of 'even' that is done with what lies before"):
        frozen.freeze(lake, EVEN, day(4).start)
    kept = frozen.freeze(lake, EVEN, day(0, 2).end)
    before = written(lake, EVEN, day(-1, 3))
    land(engine, lake, 1)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    assert written(lake, EVEN, day(-1, 3)) == before
    left_out = sum(batch.frozen for _, batch in history.standing_of(lake.output("even"), MicroBatch))
    assert left_out == frozen.left_out(lake, EVEN, kept.at) > 0

    assert frozen.thaw(lake, "even", day(0).start) == frozen.Frozen(before=day(0).start, at=kept.at)
    with refused("LIFECYCLE-201"):
        engine.run_bounded(EVEN, lake, day(-1, 3), force=True)
    frozen.thaw(lake, "even")
    engine.run_bounded(EVEN, lake, Interval(end=day(0, 2).end), force=True)
    other = Lake(str(tmp_path / "other"), logs=lake.root)
    engine.run_bounded(EVEN, other, Interval())
    assert written(lake, EVEN, Interval()) == written(other, EVEN, Interval())
    more = sum((written(lake, EVEN, day(-1, 3)) - before).values())
    assert more == left_out


def test_what_computes_all_anew_is_refused_and_so_is_a_rollback_over_frozen_changes(
    engine: Computing, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.4)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    early = savepoints.create("even", lake)
    land(engine, lake, 0.8)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    late = savepoints.create("even", lake)
    frozen.freeze(lake, EVEN, day(0, 2).end)
    land(engine, lake, 1)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    with refused("LIFECYCLE-201 .*a run from scratch"):
        engine.run_unbounded(EVEN, lake, until_caught_up=True, from_scratch=True)
    with refused("LIFECYCLE-201 .*table 'even' would be put back"):
        roll_back(lake, early)
    before = written(lake, EVEN, day(-1, 3))
    roll_back(lake, late)
    assert written(lake, EVEN, day(-1, 3)) == before

    other = Lake(str(tmp_path / "other"), logs=lake.root)
    engine.run_bounded(EVEN, other, day(0))
    frozen.freeze(other, EVEN, day(0).end)
    with refused("LIFECYCLE-201 .*the start of a stream"):
        engine.run_unbounded(EVEN, other, until_caught_up=True)


def test_a_rebuild_and_a_promotion_are_refused_before_anything_is_computed(engine: Computing, tmp_path: Path) -> None:
    @fm.operator(name="even")
    def changed(events: fm.Stream[Event]) -> fm.Stream:
        return events.filter("value % 4 = 0")

    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.6)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    frozen.freeze(lake, EVEN, day(0, 2).end)
    with refused("LIFECYCLE-201 .*a rebuild over all of time"):
        check_rebuild(partitioned(changed), lake)
    manifest = savepoints.create("even", lake).manifest
    onto = partial(Target.onto, manifest, timeline=1, ends=0, source=str(tmp_path / "arm"))
    with refused("LIFECYCLE-201"):
        check_frozen(lake, [onto()])
    with refused("LIFECYCLE-201"):
        check_frozen(lake, [onto(cutover=CutoverPlan(at=day(1).start, since=None, staying={}))])
    check_frozen(lake, [onto(cutover=CutoverPlan(at=day(2).start, since=None, staying={}))])


def test_what_is_frozen_moves_with_its_stream(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.6)
    engine.run_unbounded(EVEN, lake, until_caught_up=True)
    kept = frozen.freeze(lake, EVEN, day(0, 2).end, "reported")
    there, _ = move(lake, "even", str(tmp_path / "there"))
    assert frozen.frozen(there, "even") == kept
    with refused("LIFECYCLE-201"):
        engine.run_bounded(EVEN, there, day(0), force=True)


_PROCESS = """
import sys
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import frozen
sys.path[:0] = {folders!r}
from test_frozen import EVEN, day
lake = Lake({root!r})
{act}
"""


@pytest.mark.feature("Z2")
@pytest.mark.parametrize("point", crash.POINTS["freeze"])
def test_a_freeze_or_thaw_that_is_killed_is_whole_or_not_there_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    lake, here = Lake(str(tmp_path / "lake")), Path(__file__).parent
    freezes = point.startswith("freeze")
    if not freezes:
        frozen.freeze(lake, EVEN, day(0).end)
    act = "frozen.freeze(lake, EVEN, day(0).end)" if freezes else "frozen.thaw(lake, 'even')"
    folders = [str(here), str(here.parent / "support")]
    code = _PROCESS.format(folders=folders, root=lake.root, act=act)
    killed = forked.run([sys.executable, "-c", code], env={crash.VARIABLE: point})
    assert killed.returncode == -9
    is_frozen = frozen.frozen(lake, "even") is not None
    assert is_frozen is (point in {"freeze.after_write", "thaw.before_write"})
    if freezes:
        frozen.freeze(lake, EVEN, day(0).end)
    elif is_frozen:
        frozen.thaw(lake, "even")
    assert (frozen.frozen(lake, "even") is not None) is freezes


def test_a_malformed_record_protects_all(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    frozen.freeze(lake, EVEN, day(0).end)
    Path(lake.internal("frozen", "even.json")).write_text("{")
    with pytest.raises(StateError, match="STATE-036"):
        frozen.check(lake, "even", [day(5)], "a bounded run")
