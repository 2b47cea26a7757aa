"""Intervals of operators whose results depend on all rows before them: exactly the part of the whole run, and of the stream, that lies there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from histories import (
    ALL_DAYS,
    DAYS,
    OPERATORS,
    START,
    Event,
    Text,
    day,
    dwelling,
    first_of_day,
    hourly,
    limited,
    of_hours,
    partitioned,
    rows,
    sorted_dwelling,
    sources,
    valid,
    written,
)
from seeds import seed_of

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake


def land(
    engine: Computing,
    lake: Lake,
    operator: fm.Operator,
    seed: int,
    part: float,
    *,
    late: float = 0.03,
    end: bool = False,
) -> None:
    """Land the first part of the rows of an operator's inputs."""
    events, rules = rows(seed, late)
    until = int(part * len(events))
    shown = [rule for rule in rules if rule["since"] <= max(event["at"] for event in events[:until])]
    landed = sources(events[:until], shown)
    for input_ in operator.inputs:
        engine.land(landed[input_.table], lake, end=end)


def whole(engine: Computing, lake: Lake, operator: fm.Operator, folder: Path) -> Lake:
    """A lake with the run over all of time, of the same logs."""
    other = Lake(str(folder), logs=lake.root)
    engine.run_bounded(operator, other, Interval(), force=True)
    return other


def covered(skipped: Sequence[Interval], wanted: Interval) -> bool:
    return not wanted.minus(list(skipped))


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(dwelling, marks=pytest.mark.feature("Z3")),
        *(pytest.param(one, marks=pytest.mark.soak) for one in OPERATORS if one.name != "dwelling"),
    ],
    ids=lambda o: o.name,
)
def test_days_in_any_order_are_the_parts_of_the_whole_run_and_of_the_stream(
    engine: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    lake = Lake(str(tmp_path / "days"))
    land(engine, lake, operator, 1, 1, end=True)
    answer = whole(engine, lake, operator, tmp_path / "whole")
    numbers = list(range(-2, DAYS + 4))
    random.Random(2).shuffle(numbers)
    late = dropped = 0
    for number in numbers:
        result = engine.run_bounded(operator, lake, day(number))
        assert written(lake, operator, day(number)) == written(answer, operator, day(number))
        late, dropped = late + result.late, dropped + result.dropped
    assert written(lake, operator, ALL_DAYS) == written(answer, operator, ALL_DAYS)
    known = engine.run_bounded(operator, Lake(str(tmp_path / "again"), logs=lake.root), Interval())
    assert (late, dropped) == (known.late, known.dropped)
    assert late + dropped > 3
    stream = Lake(str(tmp_path / "stream"), logs=lake.root)
    engine.run_unbounded(operator, stream, until_caught_up=True, files_per_batch=1)
    assert written(stream, operator, day(0, DAYS - 1)) == written(lake, operator, day(0, DAYS - 1))
    assert written(lake, operator, day(0)).total() > 10


@pytest.mark.parametrize(
    ("operator", "late"),
    [
        pytest.param(dwelling, 0.03, marks=pytest.mark.feature("Z3")),
        pytest.param(valid, 0.0, marks=pytest.mark.feature("Z3")),
        *(
            pytest.param(one, late, marks=pytest.mark.soak)
            for one in OPERATORS
            for late in (0.0, 0.03)
            if (one.name, late) not in {("dwelling", 0.03), ("valid", 0.0)}
        ),
    ],
    ids=lambda value: value.name if isinstance(value, fm.Operator) else None,
)
@pytest.mark.few(1)
def test_whatever_lands_what_counts_as_covered_is_what_the_whole_run_says(
    engine: Computing, tmp_path: Path, operator: fm.Operator, late: float
) -> None:
    seed, divided, skipped = seed_of(f"history {operator.name}"), partitioned(operator), 0
    lake = Lake(str(tmp_path / "days"))
    for part in (0.3, 0.55, 0.6, 0.8, 1):
        land(engine, lake, operator, seed, part, late=late)
        skipped += len(engine.run_bounded(divided, lake, ALL_DAYS).skipped)
        answer = whole(engine, lake, operator, tmp_path / "whole")
        assert written(lake, operator, ALL_DAYS) == written(answer, operator, ALL_DAYS), part
    assert skipped > 0 or late


@pytest.mark.feature("Z3")
def test_rows_of_later_days_leave_a_complete_day_covered_and_rows_before_it_do_not(
    engine: Computing, tmp_path: Path
) -> None:
    lake, (events, _) = Lake(str(tmp_path)), rows(3, late=0)
    complete, later = [e for e in events if e["at"] < day_text(3)], [e for e in events if e["at"] >= day_text(3)]
    operator = partitioned(dwelling)
    engine.land(sources(complete, [])["events"], lake)
    engine.run_bounded(operator, lake, day(0, 3))
    engine.land(sources(complete + later, [])["events"], lake)
    again = engine.run_bounded(operator, lake, day(0, 3))
    assert covered(again.skipped, day(0, 2))
    assert not covered(again.skipped, day(2)), "its last rows had landed, but its watermark had not passed its end"
    early = {"at": (START + timedelta(days=1, hours=3)).isoformat(), "key": "a", "value": 5}
    engine.land(sources([*complete, *later, early], [])["events"], lake)
    stale = engine.run_bounded(operator, lake, day(0, 3))
    assert covered(stale.skipped, day(0))
    assert not covered(stale.skipped, day(1))
    assert not covered(stale.skipped, day(2))
    assert "its input 'events' has changed since" in " ".join(stale.reasons)


def day_text(number: float) -> str:
    return (START + timedelta(days=number)).isoformat()


@pytest.mark.feature("Z3")
def test_a_late_row_that_a_later_rule_of_a_slower_log_may_reach_keeps_its_day_open(
    engine: Computing, tmp_path: Path
) -> None:
    """The late row waits for both logs to pass its stamp, so a rule of the third day is in order before it."""
    operator, lake = partitioned(limited), Lake(str(tmp_path / "days"))
    at = [{"at": day_text(number), "key": "a", "value": 50} for number in (0, 1, 2, 3)]
    late = {"at": day_text(0.5), "key": "a", "value": 70}
    rules = [{"since": day_text(number), "device": "a", "limit": limit} for number, limit in ((0, 80), (1.5, 80))]
    landed = sources([*at, late], rules)
    for name in ("events", "rules"):
        engine.land(landed[name], lake)
    engine.run_bounded(operator, lake, day(0))
    assert written(lake, operator, day(0)).total() == 0
    engine.land(sources([], [*rules, {"since": day_text(2), "device": "a", "limit": 60}])["rules"], lake)
    again = engine.run_bounded(operator, lake, day(0))
    assert again.skipped == ()
    assert [row[1][1] for row in written(lake, operator, day(0))] == ["'70 over 60, at most 70'"]
    answer = whole(engine, lake, limited, tmp_path / "whole")
    assert written(lake, operator, day(0)) == written(answer, limited, day(0))


@pytest.mark.feature("Z3")
def test_days_of_a_chain_are_the_whole_run_and_a_day_more_upstream_leaves_earlier_days_covered(
    engine: Computing, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "days"))
    upstream, operator = partitioned(hourly), partitioned(of_hours)
    land(engine, lake, hourly, 4, 1, late=0)
    for number in range(-1, DAYS - 1):
        engine.run_bounded(upstream, lake, day(number))
        engine.run_bounded(operator, lake, day(number))
    again = engine.run_bounded(operator, lake, day(-1, DAYS))
    assert covered(again.skipped, day(-1, DAYS))
    other = Lake(str(tmp_path / "whole"), logs=lake.root)
    engine.run_bounded(hourly, other, Interval())
    engine.run_bounded(of_hours, other, Interval())
    assert written(lake, operator, day(-1, DAYS)) == written(other, operator, day(-1, DAYS))
    engine.run_bounded(upstream, lake, day(1), force=True)
    stale = engine.run_bounded(operator, lake, day(-1, DAYS))
    assert [*stale.skipped] == [day(-1), day(0)]


@pytest.mark.feature("Z3")
def test_a_day_that_the_stream_of_the_same_lake_has_yet_to_write_is_refused(engine: Computing, tmp_path: Path) -> None:
    for operator in (dwelling, sorted_dwelling):
        lake = Lake(str(tmp_path / operator.name))
        land(engine, lake, operator, 1, 0.7)
        engine.run_unbounded(operator, lake, until_caught_up=True)
        before = written(lake, operator, day(0, 2))
        engine.run_bounded(operator, lake, day(0, 2))
        assert written(lake, operator, day(0, 2)) == before
        with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*an interval its stream is done with"):
            engine.run_bounded(operator, lake, day(0, DAYS))
        events, _ = rows(1)
        late = {"at": (START + timedelta(hours=30)).isoformat(), "key": "a", "value": 1000}
        engine.land(sources([*events[: int(0.7 * len(events))], late], [])["events"], lake)
        with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*have landed in 'events' since"):
            engine.run_bounded(operator, lake, day(1))
        engine.run_unbounded(operator, lake, until_caught_up=True)
        if operator is sorted_dwelling:
            with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*late rows of it in 'events', which its stream"):
                engine.run_bounded(operator, lake, day(1))
            assert engine.run_bounded(operator, lake, day(0)).skipped == (day(0),)
            land_rest = [*events[: int(0.7 * len(events))], late, *events[int(0.7 * len(events)) :]]
            engine.land(sources(land_rest, [])["events"], lake)
            engine.run_unbounded(operator, lake, until_caught_up=True)
        before = written(lake, operator, day(0, 2))
        assert engine.run_bounded(operator, lake, day(0, 2)).skipped != (day(0, 2),)
        assert written(lake, operator, day(0, 2)) == before


def test_intervals_whose_results_are_no_part_of_the_whole_are_refused(engine: Computing, tmp_path: Path) -> None:
    class Waking(fm.ProcessFunction):
        wake = fm.Timer("processing")

        def on_element(self, row, ctx):
            self.wake.set(ctx.clock + 1000)

        def on_timer(self, timer, ctx):
            yield {"text": timer}

    @fm.operator
    def waking(events: fm.Stream[Event]):
        return events.key_by("key").process(Waking(), schema=Text)

    @fm.operator
    def versions(events: fm.Stream[Event]):
        return events.select("key", "value").key_by("key").scd2()

    lake = Lake(str(tmp_path))
    land(engine, lake, dwelling, 1, 0.2)
    for operator, why in (
        (waking, "process function Waking, whose processing-time timers write at the event time of the newest row"),
        (versions, "process function History, which takes back rows of earlier intervals"),
    ):
        with pytest.raises(CapabilityError, match=f"CAPABILITY-002 .*all of time for a {why}"):
            engine.run_bounded(operator, lake, day(0))
    with pytest.raises(CapabilityError, match="CAPABILITY-002 .*late rows as they landed .* in order of arrival"):
        engine.run_bounded(first_of_day, lake, day(0), late_rows="all")
    assert engine.run_bounded(sorted_dwelling, lake, day(0), late_rows="all").late == 0
    assert engine.run_bounded(replace(first_of_day), lake, day(0)).rows["first_of_day"] > 0


@pytest.mark.parametrize("operator", [first_of_day, dwelling, sorted_dwelling], ids=lambda o: o.name)
def test_late_rows_all_changes_nothing_where_no_row_is_late(
    engine: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    landed = Lake(str(tmp_path / "landed"))
    land(engine, landed, operator, 3, 1.0, late=0.0, end=True)
    on_time = Lake(str(tmp_path / "all"), logs=landed.root)
    assert engine.run_bounded(operator, landed, Interval()).late == 0
    engine.run_bounded(operator, on_time, Interval(), late_rows="all")
    assert written(on_time, operator, ALL_DAYS) == written(landed, operator, ALL_DAYS)
