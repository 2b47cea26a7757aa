"""Bounded runs beside the running stream of their operator: rows equal those of an undisturbed run, whatever the stream writes meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path

import forked
import pytest
from background import check, in_background
from deltalake import DeltaTable
from events import Event
from histories import DAYS, day, hourly, partitioned, rows, sources, written

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.locks import BOUNDED, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.own_stream import left_to_stream, unread
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import BoundedRun
from floodmark.spec.values.budget import Budget

SECONDS = 300


@fm.operator
def even(events: fm.Stream[Event]) -> fm.Stream:
    """Emits late rows as they come."""
    return events.filter("value % 2 = 0")


@fm.operator
def sums(events: fm.Stream[Event]) -> fm.Stream:
    """Revised within an hour, with rows that come too late beside them, and last values."""
    windowed = events.key_by("key").window(fm.Tumbling("1 hour"), allowed_lateness="1 hour", late="side_output")
    return windowed.aggregate(value=fm.sum("value"))


EVEN, SUMS = partitioned(even), partitioned(sums)


def land(engine: Computing, lake: Lake, part: float) -> None:
    events, _ = rows(7, late=0.1)
    engine.land(sources(events[: int(part * len(events))], [])["events"], lake, end=part == 1)


def until(done: Callable[[], bool], running: Future[object]) -> None:
    """Wait for a stream in another thread; what it fails with is raised."""
    for _ in range(SECONDS * 20):
        check(running)
        if done():
            return
        wait([running], 0.05)
    pytest.fail("the stream does not get there")


@contextmanager
def stream(
    engine: Computing, operator: fm.Operator, lake: Lake, on_batch: Callable[[object], object] | None = None
) -> Iterator[Future[object]]:
    """The stream of an operator in a thread, past its first micro-batch."""
    stop = threading.Event()
    running = in_background(engine.run_unbounded, operator, lake, stop=stop, on_batch=on_batch)
    try:
        until(lambda: not Timeline.current(lake, operator.name).fresh, running)
        yield running
    finally:
        stop.set()
        wait([running], SECONDS)
    running.result(0)


def undisturbed(engine: Computing, lake: Lake, operator: fm.Operator, folder: Path) -> Lake:
    other = Lake(str(folder), logs=lake.root)
    engine.run_bounded(operator, other, Interval())
    return other


@pytest.mark.feature("Z2")
@pytest.mark.parametrize("operator", [EVEN, SUMS], ids=lambda one: one.name)
def test_late_rows_that_a_stream_writes_while_a_bounded_run_computes_are_kept(
    engine: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    lake, said = Lake(str(tmp_path / "lake")), list[str]()
    land(engine, lake, 0.7)
    with stream(engine, operator, lake) as running:
        until(lambda: _done(operator, lake) >= day(1, 2).end, running)

        def on_step(text: str) -> None:
            said.append(text)
            if text.startswith("computing") and len([one for one in said if one.startswith("computing")]) == 1:
                land(engine, lake, 0.9)  # late rows of both days among them
                until(lambda: not unread(operator, lake, day(1, 2)), running)

        engine.run_bounded(operator, lake, day(1, 2), on_step=on_step)
        land(engine, lake, 1)
        until(lambda: _done(operator, lake) > day(DAYS).end, running)
    assert any("is computed again: its stream has written late rows" in text for text in said)
    other = undisturbed(engine, lake, operator, tmp_path / "other")
    assert written(lake, operator, Interval()) == written(other, operator, Interval())
    runs = [run.interval for _, run in history.standing_of(lake.output(operator.name), BoundedRun, None)]
    assert runs == [day(1, 2)] * 2


def _done(operator: fm.Operator, lake: Lake) -> int:
    own = left_to_stream(operator, lake)
    return -1 if own is None else own.reached + 1


def test_days_one_by_one_beside_the_stream_of_final_windows(engine: Computing, tmp_path: Path) -> None:
    operator, lake = partitioned(hourly), Lake(str(tmp_path / "lake"))
    land(engine, lake, 0.6)
    with stream(engine, operator, lake) as running:
        until(lambda: _done(operator, lake) >= day(0, 2).end, running)
        for number, part in ((1, 0.8), (0, 1)):
            engine.run_bounded(operator, lake, day(number), force=True)
            land(engine, lake, part)
        until(lambda: _done(operator, lake) > day(DAYS).end, running)
        with (
            exclusive(lake, "operators", operator.name, "run", file=BOUNDED),
            pytest.raises(LifecycleError, match="LIFECYCLE-003"),
        ):
            engine.run_bounded(operator, lake, day(0), force=True)
    other = undisturbed(engine, lake, operator, tmp_path / "other")
    assert written(lake, operator, Interval()) == written(other, operator, Interval())


_PROCESS = """
import sys
sys.path[:0] = {folders!r}
import engines
from test_beside import SUMS, day
from floodmark.lake.folder.paths import Lake
engines.embedded().run_bounded(SUMS, Lake({root!r}), day(1, 2))
"""
_KILLED = ("bounded.after_current", "bounded.after_side")


@pytest.mark.feature("Z2")
@pytest.mark.parametrize(
    "point", [p if p in _KILLED else pytest.param(p, marks=pytest.mark.soak) for p in crash.POINTS["bounded"]]
)
@pytest.mark.few(1)
def test_a_run_that_is_killed_beside_the_stream_is_right_when_it_is_run_again(
    embedded: Computing, tmp_path: Path, point: str
) -> None:
    lake, here = Lake(str(tmp_path / "lake")), Path(__file__).parent
    land(embedded, lake, 0.7)
    code = _PROCESS.format(folders=[str(here), str(here.parent / "support")], root=lake.root)
    with stream(embedded, SUMS, lake) as running:
        until(lambda: _done(SUMS, lake) >= day(1, 2).end, running)
        variables = dict(os.environ) | {crash.VARIABLE: point}
        killed = forked.run([sys.executable, "-c", code], env=variables, cwd=tmp_path)
        assert killed.returncode == -9, killed.stderr
        land(embedded, lake, 0.9)
        embedded.run_bounded(SUMS, lake, day(1, 2))
        land(embedded, lake, 1)
        until(lambda: _done(SUMS, lake) > day(DAYS).end, running)
    other = undisturbed(embedded, lake, SUMS, tmp_path / "other")
    assert written(lake, SUMS, Interval()) == written(other, SUMS, Interval())
    values = [DeltaTable(one.output("sums__current")).to_pyarrow_table().to_pylist() for one in (lake, other)]
    mine, theirs = ({(row["key"], row["window_end"]): row["value"] for row in rows_of} for rows_of in values)
    assert mine == theirs


def test_a_backfill_within_a_budget_waits_while_the_stream_lags(engine: Computing, tmp_path: Path) -> None:
    operator, lake, said = partitioned(hourly), Lake(str(tmp_path / "lake")), list[str]()
    going, held = threading.Event(), threading.Event()
    going.set()

    def on_batch(_: object) -> None:
        if not going.is_set():
            held.set()
            going.wait(SECONDS)

    def on_step(text: str) -> None:
        said.append(text)
        if text.startswith("waiting"):
            going.set()

    land(engine, lake, 0.6)
    with stream(engine, operator, lake, on_batch) as running:
        until(lambda: _done(operator, lake) >= day(0, 2).end, running)
        going.clear()
        land(engine, lake, 0.8)
        assert held.wait(SECONDS)
        land(engine, lake, 1)  # the stream does not go on to it
        engine.run_bounded(operator, lake, day(0, 2), on_step=on_step, budget=Budget(lag=3_600_000))
        assert _done(operator, lake) > day(DAYS - 1).start
    assert said[0].startswith("waiting: the stream of 'hourly' lags ")
    assert [text.split(" over ")[1] for text in said[1:]] == [str(day(0)), str(day(1))]


def test_a_bounded_run_of_all_of_time_and_a_run_from_scratch_stay_alone(engine: Computing, tmp_path: Path) -> None:
    operator, lake = partitioned(hourly), Lake(str(tmp_path / "lake"))
    land(engine, lake, 1)
    with (
        stream(engine, operator, lake),
        pytest.raises(LifecycleError, match="LIFECYCLE-003"),
    ):
        engine.run_bounded(operator, lake, Interval())
    with (
        exclusive(lake, "operators", operator.name, "run", file=BOUNDED),
        pytest.raises(LifecycleError, match="LIFECYCLE-003"),
    ):
        engine.run_unbounded(operator, lake, until_caught_up=True, from_scratch=True)
