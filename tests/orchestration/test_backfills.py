"""Asset partitions, ranges of them and the command line's bounded run write the same rows; what is covered is left alone."""

from __future__ import annotations

import shutil

import pytest
from dagster_runs import flights_workspace
from deltalake import DeltaTable
from flights import answer, same, source, versions

from definitions import workspace
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.frozen import freeze
from floodmark.lake.results.own_stream import left_to_stream
from floodmark.orchestration.partitions import definition, interval_of
from floodmark.spec.windowing.partitions import split

DAYS = ("2013-01-01", "2013-01-03")
CHAIN = ("hourly_departures", "hourly_departures__late", "busiest_hour")
ALL = (*CHAIN, "rolling_departures", "daily_carriers", "split_delays__severe", "split_delays__normal")


OPERATORS = [op for op in workspace().operators if op.name in {name.split("/")[0] for name in ALL}]


def days() -> Interval:
    cut = workspace().operator("hourly_departures").partitions
    windows = [interval_of(definition(cut).time_window_for_partition_key(day)) for day in DAYS]
    return Interval(start=windows[0].start, end=windows[1].end)


@pytest.mark.feature("X1", "Z37")
def test_three_days_of_everything_equal_the_command_lines_run_and_the_second_launch_does_nothing(
    engine, flights, flights_lake, landed_log, tmp_path
):
    first = flights.run(*ALL, partitions=DAYS)
    assert first.success, first.failures
    other = Lake(str(tmp_path / "other"), logs=landed_log.root)
    for operator in OPERATORS:
        engine.run_bounded(operator, other, days())
        same(flights_lake, other, operator)
    keys = {partition for asset, partition in first.materialized if asset == "hourly_departures"}
    assert keys == {"2013-01-01", "2013-01-02", "2013-01-03"}
    about = first.materialized["hourly_departures", "2013-01-03"]
    described = {column.name: column.description for column in about["dagster/column_schema"].columns}
    assert described["window_start"] == "from flights.scheduled", "as in the definition"
    assert about["computed"] is True
    assert about["stale stretches"] == 0
    assert "svg" in about["plot"]
    assert "svg" in about["partitions"]
    assert "3 missing; duration not known" in about["preview"]
    tag = flights.instance.get_runs(limit=1)[0].tags["floodmark/operator"]
    assert set(tag.split(", ")) == {*(operator.name for operator in OPERATORS), "split_delays"}
    rows = answer(flights_lake, workspace().operator("hourly_departures"), "").num_rows
    counts = [first.materialized["hourly_departures", key]["dagster/partition_row_count"] for key in sorted(keys)]
    assert sum(counts) == rows
    assert min(counts) > 20
    assert all(
        DeltaTable(flights_lake.output(o.table)).metadata().partition_columns for op in OPERATORS for o in op.outputs
    )

    before = versions(flights_lake)
    second = flights.run(*ALL, partitions=DAYS)
    assert second.success
    assert versions(flights_lake) == before
    assert second.materialized["busiest_hour", "2013-01-02"]["computed"] is False
    assert "covered already" in second.materialized["busiest_hour", "2013-01-02"]["why"]

    forced = flights.run(
        *CHAIN[:2], partitions="2013-01-02", config={"ops": {"hourly_departures": {"config": {"force": True}}}}
    )
    assert forced.success
    assert versions(flights_lake)["hourly_departures"] == before["hourly_departures"] + 1
    assert "asked for again (force)" in forced.materialized["hourly_departures", "2013-01-02"]["why"]
    same(flights_lake, other, workspace().operator("hourly_departures"))


@pytest.mark.feature("Z2")
def test_frozen_days_are_left_and_said_to_be(flights, flights_lake):
    force = {"ops": {"hourly_departures": {"config": {"force": True, "budget": "lag=1 hour"}}}}
    assert flights.run(*CHAIN[:2], partitions=DAYS).success
    operator = workspace().operator("hourly_departures")
    freeze(flights_lake, operator, days().end - 86_400_000)
    covered = flights.run(*CHAIN[:2], partitions=DAYS)
    assert covered.success
    assert not covered.observed, "what is covered is left as ever"
    before = versions(flights_lake)["hourly_departures"]
    forced = flights.run(*CHAIN[:2], partitions=DAYS, config=force)
    assert forced.success, forced.failures
    assert {key for asset, key in forced.materialized if asset == "hourly_departures"} == {"2013-01-03"}
    assert "are frozen since" in forced.observed["hourly_departures", "2013-01-01"]["not computed"]
    assert versions(flights_lake)["hourly_departures"] == before + 1
    alone = flights.run(*CHAIN[:2], partitions="2013-01-01", config=force)
    assert not alone.success
    assert "LIFECYCLE-201" in str(alone.failures)


def test_one_output_may_be_asked_for_and_all_are_written(flights, flights_lake):
    done = flights.run("hourly_departures__late", partitions="2013-01-02")
    assert done.success, done.failures
    assert set(done.materialized) == {("hourly_departures", "2013-01-02"), ("hourly_departures__late", "2013-01-02")}
    assert {"hourly_departures", "hourly_departures__late", "hourly_departures__current"} <= versions(
        flights_lake
    ).keys()


@pytest.mark.feature("T19")
def test_days_one_by_one_in_any_order_equal_the_range(engine, flights, flights_lake, landed_log, tmp_path):
    for day in ("2013-01-02", "2013-01-03", "2013-01-01"):
        assert flights.run("rolling_departures", partitions=day).success
    other = Lake(str(tmp_path / "other"), logs=landed_log.root)
    operator = workspace().operator("rolling_departures")
    engine.run_bounded(operator, other, days())
    same(flights_lake, other, operator)


def test_a_day_of_a_chain_makes_only_that_day_stale_downstream(flights, flights_lake):
    assert flights.run(*CHAIN, partitions=DAYS).success
    force = {"ops": {"hourly_departures": {"config": {"force": True}}}}
    assert flights.run(*CHAIN[:2], partitions="2013-01-02", config=force).success
    before = DeltaTable(flights_lake.output("busiest_hour")).version()
    again = flights.run("busiest_hour", partitions=DAYS)
    assert again.success
    assert DeltaTable(flights_lake.output("busiest_hour")).version() == before + 1
    why = again.materialized["busiest_hour", "2013-01-02"]["why"]
    assert (
        "[2013-01-02T05:00:00Z, 2013-01-03T05:00:00Z) is computed again: its input 'hourly_departures' has changed"
        in why
    )
    assert "[2013-01-01T05:00:00Z, 2013-01-02T05:00:00Z) is covered already" in why
    assert "[2013-01-03T05:00:00Z, 2013-01-04T05:00:00Z) is covered already" in why


def test_a_deleted_output_table_is_computed_again(flights, flights_lake):
    assert flights.run("daily_carriers", partitions="2013-01-01").success
    rows = answer(flights_lake, workspace().operator("daily_carriers"), "").num_rows
    for name in ("daily_carriers", "daily_carriers__current"):
        shutil.rmtree(flights_lake.output(name))
    again = flights.run("daily_carriers", partitions="2013-01-01")
    assert again.success
    assert again.materialized["daily_carriers", "2013-01-01"]["computed"] is True
    assert answer(flights_lake, workspace().operator("daily_carriers"), "").num_rows == rows > 10


@pytest.mark.parametrize("name", [pytest.param("hourly_departures", marks=pytest.mark.soak), "split_delays"])
def test_every_row_lies_in_the_partition_of_its_event_time(flights, flights_lake, name):
    operator = workspace().operator(name)
    assert flights.run(*(o.table for o in operator.outputs), partitions=DAYS).success
    for output in operator.outputs:
        table = DeltaTable(flights_lake.output(output.table)).to_pyarrow_table(
            columns=["_event_time", "_asset_partition"]
        )
        for row in table.to_pylist():
            moment = int(row["_event_time"].timestamp() * 1000)
            assert row["_asset_partition"] == operator.partitions.key(moment)
    assert [key for key, _ in split(operator.partitions, days())] == ["2013-01-01", "2013-01-02", "2013-01-03"]


def test_a_range_past_the_stream_is_computed_as_far_as_the_stream_is_done(
    engine, embedded, inbox, dagster_of, tmp_path
):
    lake, flights = Lake(str(tmp_path / "lake")), source(inbox)
    operator, tables = workspace().operator("hourly_departures"), CHAIN[:2]
    embedded.land(flights, lake, max_commits=3)
    engine.run_unbounded(operator, lake, until_caught_up=True)
    done = left_to_stream(operator, lake)
    embedded.land(flights, lake, end=True)
    dagster = dagster_of(flights_workspace(engine, inbox, lake), inbox.parent)
    backfill = dagster.run(*tables, partitions=DAYS)
    assert backfill.success, backfill.failures
    computed = {key for asset, key in backfill.materialized if asset == "hourly_departures"}
    left = {key for asset, key in backfill.observed if asset == "hourly_departures"}
    assert (
        computed == {key for key, piece in split(operator.partitions, days()) if piece.end - 1 <= done.reached} != set()
    )
    assert computed | left == {"2013-01-01", "2013-01-02", "2013-01-03"}
    assert "the stream's, which is done with up to" in backfill.observed["hourly_departures", DAYS[1]]["not computed"]

    engine.run_unbounded(operator, lake, until_caught_up=True)
    other = Lake(str(tmp_path / "other"), logs=lake.root)
    engine.run_bounded(operator, other, Interval())
    same(lake, other, operator)
    again = dagster.run(*tables, partitions=DAYS)
    assert again.success, again.failures
    assert not again.observed
    same(lake, other, operator)
