"""Bounded runs over parts: what they write, what they leave alone, and why."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from deltalake import DeltaTable
from engines import embedded
from flights import changelog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.comparison import compare
from floodmark import (
    BoundedOutOfOrderness,
    Calendar,
    Contract,
    EventTime,
    Global,
    Outputs,
    Rows,
    Session,
    Sliding,
    Source,
    Stream,
    Tumbling,
    count,
    last,
    max,
    operator,
    sum,
)
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.core.time import Interval, parse_instant
from floodmark.lake.folder.paths import Lake

ZONE = "America/New_York"


class Event(Contract):
    """A keyed number."""

    at: EventTime
    key: str
    value: int


def events(start: datetime, days: int) -> list[dict[str, object]]:
    """One every 20 minutes, every seventh of them ten hours late."""
    found = []
    for i in range(days * 72):
        at = start + timedelta(minutes=20 * i)
        at -= timedelta(hours=10) if i % 7 == 0 else timedelta(0)
        found.append({"at": at.isoformat(), "key": "ab"[i % 2], "value": i})
    return found


@operator
def sliding(events: Stream[Event]) -> Stream:
    """Sliding windows, late rows dropped."""
    return events.key_by("key").window(Sliding("3 hours", "1 hour")).aggregate(n=count(), high=max("value"))


@operator
def daily(events: Stream[Event]) -> Stream:
    """Local days that are revised."""
    return (
        events.key_by("key")
        .window(Calendar("day", ZONE), allowed_lateness="5 hours")
        .aggregate(n=count(), total=sum("value"))
    )


@operator
def visits(events: Stream[Event]) -> Stream:
    """Sessions that late rows lengthen and join."""
    return (
        events.filter("value % 11 < 8")
        .key_by("key")
        .window(Session("50 minutes"), allowed_lateness="5 hours")
        .aggregate(n=count(), total=sum("value"))
    )


@operator
def totals(events: Stream[Event]) -> Stream:
    """All of a key, at the end of input."""
    return events.key_by("key").window(Global()).aggregate(n=count(), total=sum("value"), high=max("value"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("events")))
    rows = events(datetime(2013, 3, 8, tzinfo=UTC), 6) + events(datetime(2013, 11, 1, tzinfo=UTC), 6)
    embedded().land(source_of(rows), lake)
    return lake


def source_of(rows: list[dict[str, object]]) -> Source:
    return Source("events", contract=Event, connector=Rows(rows), watermark=BoundedOutOfOrderness("1 hour"))


def day(text: str, until: str) -> Interval:
    return Interval(start=parse_instant(text, "from", ZONE), end=parse_instant(until, "to", ZONE))


@pytest.mark.engines("embedded", "spark")
@pytest.mark.parametrize(
    "op",
    [
        pytest.param(sliding, marks=pytest.mark.feature("T19")),
        pytest.param(daily, marks=pytest.mark.soak),
        pytest.param(visits, marks=pytest.mark.engines("embedded", soak=("spark",))),
    ],
    ids=lambda o: o.name,
)
def test_three_days_one_by_one_or_together_are_those_days_of_the_whole(
    engine: Computing, log: Lake, tmp_path_factory, op
) -> None:
    lakes = {name: Lake(str(tmp_path_factory.mktemp(name)), logs=log.root) for name in ("single", "together", "whole")}
    days = ["2013-03-09", "2013-03-10", "2013-03-11", "2013-03-12"]
    for start, until in itertools.pairwise(days):
        engine.run_bounded(op, lakes["single"], day(start, until))
    engine.run_bounded(op, lakes["together"], day(days[0], days[-1]))
    engine.run_bounded(op, lakes["whole"], Interval())
    tables = {name: changelog(lake, op.name) for name, lake in lakes.items()}
    whole = tables["whole"].to_pylist()
    low, high = (datetime.fromisoformat(d).replace(tzinfo=ZoneInfo(ZONE)) for d in (days[0], days[-1]))
    part = [row for row in whole if low <= row["_event_time"] < high]
    assert len(part) > 3
    assert len(part) < len(whole)
    expected = tables["whole"].schema.empty_table().from_pylist(part, schema=tables["whole"].schema)
    for name in ("single", "together"):
        found = compare(tables[name], expected, names=(name, "whole"))
        assert found.differences == 0, found.examples


def test_rows_on_the_edge_of_an_interval_are_in_one_session_and_late_ones_in_every_window(
    engine: Computing, tmp_path
) -> None:
    @operator
    def touching(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Session("1 hour")).aggregate(n=count())

    @operator
    def latest(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Sliding("3 hours", "1 hour")).aggregate(value=last("value"))

    logs = Lake(str(tmp_path / "logs"))
    hours = ["2013-03-09T23:00", "2013-03-10T00:00", "2013-03-10T00:05", "2013-03-09T22:30", "2013-03-11T09:00"]
    rows: list[dict[str, object]] = [{"at": f"{at}:00+00:00", "key": "k", "value": n} for n, at in enumerate(hours)]
    embedded().land(source_of(rows), logs)
    parts = [Interval(end=parse_instant("2013-03-10", "to")), Interval(start=parse_instant("2013-03-10", "from"))]
    for op in (touching, latest):
        days, whole = (Lake(str(tmp_path / op.name / name), logs=logs.root) for name in ("days", "whole"))
        for part in parts:
            engine.run_bounded(op, days, part)
        engine.run_bounded(op, whole, Interval())
        found = compare(changelog(days, op.name), changelog(whole, op.name), names=("days", "whole"))
        assert found.differences == 0, found.examples
        assert changelog(whole, op.name).num_rows > 1


def test_a_session_longer_than_what_is_read_around_an_interval_is_refused_by_key(
    engine: Computing, log: Lake, tmp_path
) -> None:
    @operator
    def endless(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Session("2 hours", longest="6 hours")).aggregate(n=count())

    lake = Lake(str(tmp_path), logs=log.root)
    with pytest.raises(ExecutionError) as error:
        engine.run_bounded(endless, lake, day("2013-03-10", "2013-03-20"))
    assert "EXECUTION-007" in str(error.value)
    assert "expected sessions of at most Session(longest=6 hours)" in str(error.value)
    assert engine.run_bounded(endless, lake, Interval()).rows["endless"] > 0


@pytest.mark.parametrize("late", [0, 3])
def test_dropped_rows_are_counted_also_where_nothing_else_is(engine: Computing, tmp_path, late: int) -> None:
    @operator
    def hourly(events: Stream[Event]) -> Outputs:
        counted = events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())
        return Outputs(all=counted, some=counted.filter("key = 'k'"))

    times = ["2013-03-12T00:00", *(f"2013-03-09T1{n}:00" for n in range(late)), "2013-03-12T00:30"]
    rows: list[dict[str, object]] = [{"at": f"{at}:00+00:00", "key": "k", "value": n} for n, at in enumerate(times)]
    lake = Lake(str(tmp_path))
    embedded().land(source_of(rows), lake)
    nothing = engine.run_bounded(hourly, lake, day("2013-03-09", "2013-03-10"))
    assert (nothing.dropped, nothing.rows) == (late, {"hourly__all": 0, "hourly__some": 0})
    whole = engine.run_bounded(hourly, lake, Interval(), force=True)
    assert (whole.dropped, whole.rows) == (late, {"hourly__all": 1, "hourly__some": 1})
    told = json.loads(DeltaTable(lake.output("hourly__all")).history(1)[0]["userMetadata"])["floodmark"]
    assert told["dropped"] == late


def test_local_days_have_23_24_or_25_hours(engine: Computing, log: Lake, tmp_path) -> None:
    lake = Lake(str(tmp_path), logs=log.root)
    engine.run_bounded(daily, lake, Interval())
    rows = changelog(lake, "daily").to_pylist()
    local = ZoneInfo(ZONE)
    hours = {
        r["window_start"].astimezone(local).strftime("%m-%d"): (r["window_end"] - r["window_start"])
        / timedelta(hours=1)
        for r in rows
    }
    assert hours["03-10"] == 23
    assert hours["11-03"] == 25
    assert hours["03-11"] == 24
    whole = [r for r in rows if r["_kind"] == 0 and r["window_start"].astimezone(local).strftime("%m-%d") == "11-03"]
    assert {r["n"] for r in whole} <= set(range(30, 39)), "25 hours hold about 75 events of two keys"


def test_a_second_run_commits_nothing_and_says_what_is_covered(engine: Computing, log: Lake, tmp_path) -> None:
    lake, week = Lake(str(tmp_path), logs=log.root), day("2013-03-09", "2013-03-11")
    first = engine.run_bounded(sliding, lake, week)
    version = DeltaTable(lake.output("sliding")).version()
    second = engine.run_bounded(sliding, lake, week)
    assert first.rows["sliding"] > 0
    assert DeltaTable(lake.output("sliding")).version() == version
    assert second.skipped == (week,)
    assert second.reasons[0].startswith(f"{week} is covered already: by {sliding.version} at ")
    third = engine.run_bounded(sliding, lake, day("2013-03-10", "2013-03-12"))
    assert third.skipped == (day("2013-03-10", "2013-03-11"),), "only the rest is computed"
    assert DeltaTable(lake.output("sliding")).version() == version + 1


def test_changed_code_is_computed_again_and_says_why(engine: Computing, log: Lake, tmp_path) -> None:
    lake, week = Lake(str(tmp_path), logs=log.root), day("2013-03-09", "2013-03-11")

    @operator(name="sliding")
    def changed(events: Stream[Event]) -> Stream:
        return (
            events.filter("value > 10")
            .key_by("key")
            .window(Sliding("3 hours", "1 hour"))
            .aggregate(n=count(), high=max("value"))
        )

    engine.run_bounded(sliding, lake, week)
    again = engine.run_bounded(changed, lake, week)
    assert again.skipped == ()
    assert again.reasons == (
        f"{week} is computed again: the code changed: it was computed by {sliding.version}, now it is {changed.version}",
    )


def test_new_rows_in_the_interval_are_a_reason_too(engine: Computing, tmp_path) -> None:
    lake, rows = Lake(str(tmp_path)), events(datetime(2013, 3, 8, tzinfo=UTC), 3)
    embedded().land(source_of(rows), lake)
    one, two = day("2013-03-08", "2013-03-09"), day("2013-03-09", "2013-03-10")
    engine.run_bounded(sliding, lake, one)
    engine.run_bounded(sliding, lake, two)
    more = {"at": "2013-03-09T12:00:00+00:00", "key": "a", "value": 1}
    embedded().land(source_of([*rows, more]), lake)
    assert engine.run_bounded(sliding, lake, one).skipped == (one,)
    again = engine.run_bounded(sliding, lake, two)
    assert again.skipped == ()
    assert "its input 'events' has changed since" in again.reasons[0]


@pytest.mark.feature("W9", "B1")
def test_global_closed_by_the_end_of_input_is_a_plain_group_by(
    spark: SparkSession, engine: Computing, log: Lake, tmp_path
) -> None:
    lake = Lake(str(tmp_path), logs=log.root)
    engine.run_bounded(totals, lake, Interval())
    rows = spark.read.format("delta").load(log.log("events")).filter("_kind = 0")
    plain = rows.groupBy("key").agg(
        F.count(F.lit(1)).alias("n"), F.sum("value").alias("total"), F.max("value").alias("high")
    )
    mine = (
        spark.read.format("delta").load(lake.output("totals")).filter("_kind = 0").select("key", "n", "total", "high")
    )
    assert sorted(mine.collect()) == sorted(plain.collect())


def test_global_without_an_end_says_that_it_will_never_fire(engine: Computing, tmp_path) -> None:
    lake, rows = Lake(str(tmp_path)), events(datetime(2013, 3, 8, tzinfo=UTC), 1)
    embedded().land(source_of(rows), lake)
    open_ended = engine.run_unbounded(totals, lake, until_caught_up=True)
    assert open_ended.rows == {"totals": 0}
    assert "it will never fire while its input has no end" in open_ended.warnings[0]
    assert "floodmark land events --end" in open_ended.warnings[0]
    embedded().land(source_of(rows), lake, end=True)
    closed = engine.run_unbounded(totals, lake, until_caught_up=True)
    assert closed.rows == {"totals": 2}
    assert closed.warnings == ()


def test_a_log_that_has_not_reached_the_interval_is_a_warning(engine: Computing, log: Lake, tmp_path) -> None:
    result = engine.run_bounded(sliding, Lake(str(tmp_path), logs=log.root), day("2013-11-05", "2014-01-01"))
    assert "'events' has reached 2013-11-06T" in result.warnings[0]


@pytest.mark.engines("embedded", "spark")
def test_missing_input_and_reversed_interval(engine: Computing, tmp_path) -> None:
    with pytest.raises(
        ExecutionError, match=r"EXECUTION-002 input 'events' of operator 'sliding'.*floodmark land events"
    ):
        engine.run_bounded(sliding, Lake(str(tmp_path)), Interval())
    with pytest.raises(LifecycleError, match="LIFECYCLE-001 interval: expected a start before its end"):
        day("2013-03-11", "2013-03-09")
