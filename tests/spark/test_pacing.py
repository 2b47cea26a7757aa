"""Streams whose micro-batches are apart, and how fast a run is beside live."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from engines import embedded
from events import START, Event, row, source
from flights import changelog

import floodmark as fm
from demo.comparison import compare
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ExecutionError
from floodmark.core.time import NEVER, Interval, to_ms
from floodmark.engines.pacing import within
from floodmark.lake.folder.paths import Lake
from floodmark.observe.replayed import Beginning
from floodmark.spec.values.run import BatchInfo

DAY = 24 * 60
SPACED = fm.Checkpoints(interval="600 ms", pause="200 ms", files=1)


@fm.operator
def hourly(events: fm.Stream[Event]) -> fm.Stream:
    """Numbers per key and hour."""
    return events.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count(), total=fm.sum("value"))


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("N4", "W11", "Z16")
def test_micro_batches_are_as_far_apart_as_asked_and_change_no_row(
    engine: Computing, lake: Lake, tmp_path: Path
) -> None:
    events = [row(minute) for minute in range(0, 10 * DAY, 97)]
    for share in (1, 2, 3):
        embedded().land(source(events[: len(events) * share // 3]), lake, end=share == 3)
    stop, ends = threading.Event(), list[float]()

    def told(_: BatchInfo) -> None:
        ends.append(time.monotonic())
        if len(ends) == 3:
            stop.set()

    began, beginning = time.monotonic(), Beginning.of_stream(hourly, lake)
    engine.run_unbounded(hourly, lake, stop=stop, on_batch=told, **SPACED.options)
    assert all(following - end >= 0.19 for end, following in pairwise(ends)), "the pause"
    assert ends[2] - ends[0] >= 0.59, (
        "the interval: the second begins behind the first end, the third that long after it"
    )
    result = engine.run_unbounded(hourly, lake, until_caught_up=True)
    truth = Lake(str(tmp_path / "truth"), logs=lake.root)
    embedded().run_bounded(hourly, truth, Interval())
    assert compare(changelog(truth, "hourly"), changelog(lake, "hourly")).differences == 0

    replayed = beginning.replayed(result.watermark, result.seconds)
    assert replayed is not None
    assert replayed.event_time == (len(events) - 1) * 97 * 60_000
    assert replayed.times_live > 9 * DAY * 60 / (time.monotonic() - began)
    assert Beginning.of_stream(hourly, lake).replayed(result.watermark, 1.0) is None, "nothing is left"


class Seen(fm.Contract):
    """A number that was seen."""

    value: int


class Held(fm.ProcessFunction):
    """Each number, once the file of that name is there."""

    def __init__(self, file: str) -> None:
        self.file = file

    def on_element(self, row: fm.Row, _: fm.Context) -> Iterator[fm.Row]:
        while not Path(self.file).exists():
            pass
        yield {"value": row["value"]}


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("N4")
def test_a_micro_batch_over_its_timeout_is_reported_while_it_runs(
    engine: Computing, lake: Lake, tmp_path: Path
) -> None:
    held = Held(f"{tmp_path}/over")

    @fm.operator
    def seen(events: fm.Stream[Event]) -> fm.Stream:
        """Each number."""
        return events.key_by("key").process(held, schema=Seen)

    over = list[str]()

    def overdue(error: ExecutionError, _: str) -> None:
        over.append(error.code)
        Path(held.file).touch()

    embedded().land(source([row(minute) for minute in range(3)]), lake, end=True)
    watched, took = within(fm.Checkpoints(timeout="1 s"), "seen", overdue), list[float]()

    @contextmanager
    def timed() -> Iterator[None]:
        began = time.monotonic()
        with watched():
            yield
        took.append(time.monotonic() - began)

    result = engine.run_unbounded(seen, lake, until_caught_up=True, within=timed)
    assert set(over) == {"EXECUTION-091"}
    assert len(over) <= sum(seconds > 1 for seconds in took), "and not of a micro-batch that has ended"
    assert result.rows == {"seen": 3}


def test_a_stream_that_waits_for_its_interval_stops_at_once(lake: Lake) -> None:
    embedded().land(source([row(minute) for minute in range(9)]), lake)
    stop, began = threading.Event(), time.monotonic()
    timer = threading.Timer(0.3, stop.set)

    def told(_: BatchInfo) -> None:
        timer.start()

    embedded().run_unbounded(hourly, lake, stop=stop, on_batch=told, **fm.Checkpoints(interval="1 hour").options)
    assert time.monotonic() - began < 600


def test_a_bounded_run_has_gone_through_the_part_of_its_interval_that_has_rows(lake: Lake) -> None:
    embedded().land(source([row(minute) for minute in range(0, 10 * DAY, 60)]), lake, end=True)
    first = to_ms(START)
    days = Interval(start=first + 8 * DAY * 60_000, end=first + 20 * DAY * 60_000)
    result = embedded().run_bounded(hourly, lake, days)
    replayed = Beginning(hourly, lake, NEVER, days).replayed(result.watermark, 2.0)
    assert replayed is not None
    assert f"{replayed}" == "replayed 1 d 23 h of event time, 84,600 times as fast as live"
