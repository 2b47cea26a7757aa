"""A range of asset partitions is divided by what its inputs lack; needs neither Spark nor a Dagster server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from definitions import workspace
from floodmark.core.errors import LifecycleError
from floodmark.core.time import NEVER, Interval
from floodmark.lake.results.own_stream import Shortfall
from floodmark.orchestration.completeness import divide, merge_results
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.values.run import RunResult
from floodmark.spec.windowing.partitions import split

HOUR = 3_600_000


def asset(name: str) -> OperatorAsset:
    return next(one for one in workspace().operator_assets if one.operator.name == name)


HOURLY = asset("hourly_departures")
BUSIEST = asset("busiest_hour")
WEEK = Interval(start=1_357_016_400_000, end=1_357_016_400_000 + 7 * 24 * HOUR)
DAYS = dict(split(HOURLY.partitions, WEEK))


def log_at(reached: int) -> Shortfall:
    return Shortfall(table="flights", reached=reached, missing=None, text=f"'flights' has reached {reached}")


def test_days_a_log_has_passed_are_computed_and_the_day_it_stands_in_is_named():
    last = DAYS["2013-01-07"]
    found = divide(HOURLY, WEEK, [log_at(last.end - 6 * HOUR)])
    assert found.complete == (Interval(start=WEEK.start, end=last.start),)
    assert list(found.incomplete) == ["2013-01-07"]
    assert "'flights' has reached" in found.incomplete["2013-01-07"]


def test_a_gap_in_an_upstream_output_divides_the_range_in_two():
    gap = DAYS["2013-01-03"]
    lacks = Shortfall(table="hourly_departures", reached=NEVER, missing=(gap,), text="not computed")
    found = divide(BUSIEST, WEEK, [lacks])
    assert list(found.incomplete) == ["2013-01-03"]
    assert found.complete == (Interval(start=WEEK.start, end=gap.start), Interval(start=gap.end, end=WEEK.end))


def stream_at(reached: int) -> Shortfall:
    return Shortfall(table="hourly_departures", reached=reached, missing=None, text="it is the stream's", own=True)


def test_days_that_the_stream_is_done_with_are_computed_and_the_others_left_to_it():
    found = divide(HOURLY, WEEK, [stream_at(DAYS["2013-01-05"].end)])
    assert found.complete == (Interval(start=WEEK.start, end=DAYS["2013-01-05"].end),)
    assert found.incomplete == dict.fromkeys(("2013-01-06", "2013-01-07"), "it is the stream's")


def test_a_range_that_is_all_the_streams_is_left_to_the_run_to_refuse():
    assert divide(HOURLY, WEEK, [stream_at(WEEK.start)]).complete == (WEEK,)


def test_a_range_without_a_complete_day_is_refused():
    with pytest.raises(LifecycleError) as error:
        divide(HOURLY, WEEK, [log_at(WEEK.start)])
    assert error.value.code == "LIFECYCLE-006"


def test_all_of_time_is_refused_as_a_whole():
    with pytest.raises(LifecycleError, match="LIFECYCLE-006"):
        divide(replace(HOURLY, partitions=None), Interval(), [log_at(WEEK.start)])


def test_results_of_stretches_add_up():
    result = RunResult(operator="a", version="a@1", mode="bounded", rows={"a": 2}, late=1, seconds=0.5, reasons=("x",))
    both = merge_results([result, replace(result, rows={"a": 3, "b": 1}, skipped=(WEEK,))], WEEK)
    assert (both.rows, both.late, both.seconds, both.reasons) == ({"a": 5, "b": 1}, 2, 1.0, ("x", "x"))
    assert both.skipped == (WEEK,)
    assert both.interval == WEEK
