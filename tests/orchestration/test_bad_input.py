"""What people get wrong, and what they are told."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import dagster as dg
import pytest
from background import in_background
from dagster_runs import flights_workspace, settings

from definitions import workspace
from floodmark import (
    BoundedOutOfOrderness,
    Calendar,
    Contract,
    Daily,
    EndOfInput,
    EventTime,
    Expectation,
    Files,
    Global,
    Hourly,
    Rows,
    Sliding,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
    operator_asset,
    source_asset,
    sum,
)
from floodmark.connectors.readers.files import FileReader
from floodmark.core.errors import DefinitionError
from floodmark.engines.landing.session import Session
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.own_stream import Shortfall
from floodmark.orchestration import completeness
from operators.flights import hourly_departures


class Reading(Contract, key=("at", "sensor")):
    at: EventTime
    sensor: str


@operator
def per_hour(readings: Stream[Reading]) -> Stream:
    return readings.key_by("sensor").window(Tumbling("1 hour")).aggregate(n=count())


@operator
def at_the_end(readings: Stream[Reading]) -> Stream:
    return readings.key_by("sensor").window(Global(), trigger=EndOfInput()).aggregate(n=count())


@operator
def so_far(readings: Stream[Reading]) -> Stream:
    return readings.key_by("sensor").rolling(n=count())


@operator
def by_the_clock(readings: Stream[Reading]) -> Stream:
    return readings.key_by("sensor").window(Tumbling("1 hour"), time="processing").aggregate(n=count())


@operator
def per_new_york_day(readings: Stream[Reading]) -> Stream:
    return readings.key_by("sensor").window(Calendar("day", "America/New_York")).aggregate(n=count())


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: operator_asset(at_the_end, partitions=Daily("2013-01-01")), "DEFINITION-034", "Leave the trigger out"),
        (lambda: operator_asset(so_far, partitions=Daily("2013-01-01")), "DEFINITION-092", "Global, whose results"),
        (
            lambda: operator_asset(by_the_clock, partitions=Daily("2013-01-01")),
            "DEFINITION-092",
            "processing-time Tumbling",
        ),
        (lambda: operator_asset(per_new_york_day, partitions=Daily("2013-01-01")), "DEFINITION-092", "same time zone"),
        (
            lambda: operator_asset(per_hour, partitions=dg.WeeklyPartitionsDefinition("2013-01-01")),
            "DEFINITION-095",
            "Daily(",
        ),
        (lambda: operator_asset(per_hour, partitions="daily"), "DEFINITION-095", "Daily("),
        (lambda: Daily("yesterday"), "DEFINITION-090", "2013-01-01"),
        (lambda: Daily("2013-01-01T00:00+01:00"), "DEFINITION-090", "without an offset"),
        (lambda: Daily("2013-01-02", end="2013-01-01"), "DEFINITION-090", "The end"),
        (lambda: Daily("20130101"), "DEFINITION-090", "expected a date"),
        (lambda: Daily("2013-01-01", end="2013-01-02T12:00"), "DEFINITION-090", "expected a date"),
        (lambda: Daily(20130101), "DEFINITION-090", "expected a date"),
        (lambda: Hourly("2013-01-01T00:30"), "DEFINITION-090", "a full hour"),
        (
            lambda: operator_asset(
                per_hour, partitions=dg.DailyPartitionsDefinition("2013-01-01", exclusions=["0 0 * * 6"])
            ),
            "DEFINITION-095",
            "exclusions",
        ),
        (
            lambda: operator_asset(per_hour, partitions=dg.DailyPartitionsDefinition(datetime(2013, 1, 1, 6))),
            "DEFINITION-095",
            "begin at a full day",
        ),
        (lambda: operator_asset(per_hour, wait="-1 hour"), "DEFINITION-097", "wait='-1 hour'"),
        (lambda: operator_asset(per_hour, behind="never"), "DEFINITION-097", "behind='never'"),
        (lambda: operator_asset(per_hour, isolation="serializable"), "DEFINITION-097", "isolation='serializable'"),
        (lambda: operator_asset(per_hour, isolation="read_uncommitted"), "DEFINITION-099", "allowed_lateness"),
        (lambda: operator_asset(per_hour, expectations=["n > 0"]), "DEFINITION-094", "'n > 0'"),
        (lambda: Daily("2013-01-01", timezone=None), "DEFINITION-002", "IANA"),
        (lambda: Daily("2013-01-01", timezone="New York"), "DEFINITION-002", "IANA"),
        (lambda: Hourly("2013-01-01", timezone="Australia/Lord_Howe"), "DEFINITION-091", "by day"),
        (
            lambda: operator_asset(per_hour, expectations=[Expectation("column_values_to_not_be_null", column="nn")]),
            "DEFINITION-094",
            "Columns: ",
        ),
        (lambda: Expectation("column_values_to_be_in_set", column="n", value_set={1, 2}), "DEFINITION-093", "JSON"),
        (
            lambda: Workspace(
                operators=[operator_asset(per_hour), operator_asset(per_hour, partitions=Daily("2013-01-01"))]
            ),
            "DEFINITION-070",
            "2 named 'per_hour'",
        ),
    ],
)
def test_a_wrong_asset_is_refused_when_it_is_defined(make, code, words):
    with pytest.raises(DefinitionError) as error:
        make()
    assert error.value.code == code
    assert words in str(error.value)


def test_dagsters_own_partitions_are_understood():
    ours = operator_asset(per_hour, partitions=Daily("2013-01-01", timezone="America/New_York"))
    theirs = operator_asset(
        per_hour, partitions=dg.DailyPartitionsDefinition("2013-01-01", timezone="America/New_York")
    )
    assert ours.partitions.around(1_357_020_000_000) == theirs.partitions.around(1_357_020_000_000)
    hours = operator_asset(
        per_hour, partitions=dg.HourlyPartitionsDefinition("2013-01-01-05:00", timezone="Asia/Kolkata")
    )
    assert hours.partitions == Hourly("2013-01-01T05:00", timezone="Asia/Kolkata")


@pytest.fixture
def open_log(engine, inbox, tmp_path) -> Lake:
    """Two files of flights have landed, and no end."""
    lake = Lake(str(tmp_path / "open"))
    source = workspace().source("flights")
    engine.land(source, lake, max_commits=1, workspace=inbox.parent)
    return lake


def test_a_partition_the_log_has_not_reached_fails_with_the_watermark_named(engine, inbox, open_log, dagster_of):
    flights = dagster_of(flights_workspace(engine, inbox, open_log), inbox.parent)
    done = flights.run("daily_carriers", partitions="2013-06-01")
    assert not done.success
    told = done.failures["daily_carriers"]
    assert "LIFECYCLE-006" in told
    assert "'flights' has reached 2013-01-0" in told
    assert "behind: wait" in told


def test_a_range_with_an_incomplete_day_computes_the_others_and_names_that_day(engine, inbox, open_log, dagster_of):
    flights = dagster_of(flights_workspace(engine, inbox, open_log), inbox.parent)
    done = flights.run(
        "hourly_departures", "hourly_departures__late", "busiest_hour", partitions=("2013-01-01", "2013-01-04")
    )
    assert done.success, done.failures
    days = {"2013-01-01", "2013-01-02", "2013-01-03"}
    for asset in ("hourly_departures", "hourly_departures__late", "busiest_hour"):
        assert {partition for name, partition in done.materialized if name == asset} == days
    assert done.materialized["hourly_departures", "2013-01-03"]["dagster/partition_row_count"] > 20
    assert "'flights' has reached" in done.observed["hourly_departures", "2013-01-04"]["not computed"]
    assert "2013-01-04T05:00:00Z, 2013-01-05" in done.observed["busiest_hour", "2013-01-04"]["not computed"]
    assert {partition for _, partition in done.checked} == days
    checked = {name for name, _ in done.checked}
    assert done.summed_up == dict.fromkeys(checked, (True, "none")), "not that of the day that was not computed"
    assert done.current == {"hourly_departures": True, "busiest_hour": True}


def test_waiting_for_the_log_ends_when_it_has_got_there(engine, inbox, tmp_path, dagster_of, monkeypatch):
    lake = Lake(str(tmp_path / "waiting"))
    engine.land(workspace().source("flights"), lake, max_commits=1, workspace=inbox.parent)
    flights = dagster_of(flights_workspace(engine, inbox, lake), inbox.parent)

    looked, shortfalls = threading.Event(), completeness.shortfalls

    def looking(*given: Any, **options: Any) -> list[Shortfall]:
        looked.set()
        return shortfalls(*given, **options)

    monkeypatch.setattr(completeness, "shortfalls", looking)
    monkeypatch.setattr(completeness, "_POLL_SECONDS", 0.1)

    def land_the_rest() -> None:
        assert looked.wait(600)
        engine.land(workspace().source("flights"), lake, end=True, workspace=inbox.parent)

    later = in_background(land_the_rest)
    config = {"ops": {"daily_carriers": {"config": {"behind": "wait", "wait_seconds": 600}}}}
    done = flights.run("daily_carriers", partitions="2013-01-04", config=config)
    later.result(600)
    assert done.success, done.failures
    assert done.materialized["daily_carriers", "2013-01-04"]["dagster/partition_row_count"] > 5


def test_a_day_whose_upstream_is_not_computed_names_it(flights):
    done = flights.run("busiest_hour", partitions="2013-01-02")
    assert not done.success
    assert "'hourly_departures' is not computed by hourly_departures@" in done.failures["busiest_hour"]


def test_another_output_of_what_is_read_is_not_enough_to_be_computed_after_it(flights):
    done = flights.run("hourly_departures__late", "busiest_hour", partitions="2013-01-02")
    assert not done.success
    assert "LIFECYCLE-008" in done.failures["busiest_hour"]
    assert "Choose 'hourly_departures' too" in done.failures["busiest_hour"]


def test_a_chain_is_computed_as_its_input_was(flights):
    every = {"ops": {name: {"config": {"late_rows": "all"}} for name in ("hourly_departures", "busiest_hour")}}
    done = flights.run(
        "hourly_departures", "hourly_departures__late", "busiest_hour", partitions="2013-01-02", config=every
    )
    assert done.success, done.failures
    other = flights.run("busiest_hour", partitions="2013-01-02")
    assert "is not computed by hourly_departures@" in other.failures["busiest_hour"]
    alone = {"ops": {"busiest_hour": every["ops"]["busiest_hour"]}}
    again = flights.run("busiest_hour", partitions="2013-01-02", config=alone)
    assert again.materialized["busiest_hour", "2013-01-02"]["computed"] is False


@operator(inputs={"departures": hourly_departures})
def two_days(departures: Stream) -> Stream:
    """Windows that reach back before the first partition."""
    return departures.key_by("origin").window(Sliding("2 days", "1 day")).aggregate(n=sum("departures"))


def test_the_first_day_of_a_chain_needs_nothing_before_it(engine, flights_lake, inbox, dagster_of):
    whole = flights_workspace(engine, inbox, flights_lake)
    late = operator_asset(two_days, partitions=Daily("2013-01-01", timezone="America/New_York"))
    one = Workspace(sources=whole.source_assets, operators=[*whole.operator_assets, late], settings=whole.settings)
    flights = dagster_of(one, inbox.parent)
    done = flights.run("hourly_departures", "hourly_departures__late", "two_days", partitions="2013-01-01")
    assert done.success, done.failures
    assert done.materialized["two_days", "2013-01-01"]["dagster/partition_row_count"] > 0


def test_a_partition_that_does_not_exist_and_a_wrong_config_are_refused(flights):
    for day in ("2019-01-01", "2039-01-01", "2012-12-31"):
        done = flights.run("daily_carriers", partitions=day)
        assert not done.success
        assert "LIFECYCLE-007" in done.failures["daily_carriers"]
        assert "2013-01-01 to 2013-12-31" in done.failures["daily_carriers"]
    with pytest.raises(dg.DagsterInvalidConfigError, match="forse"):
        flights.run(
            "daily_carriers", partitions="2013-01-01", config={"ops": {"daily_carriers": {"config": {"forse": True}}}}
        )


def test_an_expectation_nobody_knows_is_named(engine, tmp_path, dagster_of):
    rows = Rows([{"at": "2013-01-01T00:10:00Z", "sensor": "a"}])
    source = Source("readings", contract=Reading, connector=rows, watermark=BoundedOutOfOrderness("1 minute"))
    lake = Lake(str(tmp_path / "lake"))
    engine.land(source, lake, end=True)
    asset = operator_asset(per_hour, expectations=[Expectation("column_values_to_be_even", column="n")])
    found = dagster_of(
        Workspace(sources=[source], operators=[asset], settings=settings(engine, lake=lake.root)), tmp_path
    )
    done = found.run("per_hour")
    assert "DEFINITION-096" in done.failures["check_per_hour"]
    assert "column_values_to_be_even" in done.failures["check_per_hour"]


def test_an_archive_does_not_end_while_one_of_its_files_is_being_written(embedded, tmp_path, dagster_of, monkeypatch):
    file, opened = tmp_path / "inbox" / "a.csv", FileReader.open
    file.parent.mkdir()
    file.write_text("at,sensor\n2013-01-01T00:10:00Z,a\n")

    def appended(reader, unit):
        with file.open("a") as writer:
            writer.write("2013-01-01T00:20:00Z,a\n")
        return opened(reader, unit)

    monkeypatch.setattr(FileReader, "open", appended)
    files = Files(str(file.parent))
    source = Source("readings", contract=Reading, connector=files, watermark=BoundedOutOfOrderness("1 minute"))
    lake = Lake(str(tmp_path / "lake"))
    shop = Workspace(sources=[source_asset(source, ends=True)], settings=settings(embedded, lake=lake.root))
    done = dagster_of(shop, tmp_path).run("readings")
    assert not done.success
    assert "LIFECYCLE-185" in done.failures["land_readings"]
    assert "1 still being written: a.csv" in done.failures["land_readings"]
    monkeypatch.undo()
    assert dagster_of(shop, tmp_path).run("readings").materialized["readings", None]["ended"]


def test_a_step_waits_for_a_file_that_is_unfinished_as_declared(embedded, tmp_path, dagster_of, monkeypatch):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    unfinished = inbox / "a.csv.part"
    unfinished.write_text("at,sensor\n2013-01-01T00:10:00Z,a\n")
    source = Source(
        "readings", contract=Reading, connector=Files(str(inbox)), watermark=BoundedOutOfOrderness("1 minute")
    )
    asset = source_asset(source, ends=True, incomplete="wait", wait="1 hour")
    shop = Workspace(sources=[asset], settings=settings(embedded, lake=str(tmp_path / "lake")))
    waits, wait = [], Session.wait

    def renamed(session, seconds):
        waits.append(seconds)
        unfinished.rename(inbox / "a.csv")
        return wait(session, 0)

    monkeypatch.setattr(Session, "wait", renamed)
    done = dagster_of(shop, tmp_path).run("readings")
    assert done.materialized["readings", None]["ended"]
    assert done.materialized["readings", None]["rows landed"] == 1
    assert len(waits) == 1


@pytest.mark.parametrize("declared", [{"incomplete": "go"}, {"wait": "-1 hour"}])
def test_what_a_step_does_on_an_incomplete_source_is_fail_or_wait(declared):
    source = Source("readings", contract=Reading, connector=Rows([]), watermark=BoundedOutOfOrderness("1 minute"))
    with pytest.raises(DefinitionError, match=r"DEFINITION-097 .*incomplete is \"fail\" or \"wait\""):
        source_asset(source, ends=True, **declared)
