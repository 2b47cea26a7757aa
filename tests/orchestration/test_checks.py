"""Expectations as checks: numbers per expectation and asset partition; a bad day fails and keeps its downstream from running."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Literal

import dagster as dg
import pytest
from dagster_runs import settings, shown
from pydantic import Field

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    Daily,
    EventTime,
    Expectation,
    Rows,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    mean,
    operator,
    operator_asset,
    source_asset,
)
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import assets
from floodmark.spec.rows.contract import expectations as of_contract
from floodmark.spec.rows.expectation import distinct


class Reading(
    Contract,
    key=("at", "sensor"),
    expectations=(Expectation("table_row_count_to_be_between", min_value=1, max_value=100),),
):
    at: EventTime
    sensor: Literal["north", "south"]
    celsius: float = Field(ge=-80, lt=60)
    note: str | None = None


@operator
def hourly_mean(readings: Stream[Reading]) -> Stream:
    """Mean temperature per sensor and hour."""
    return readings.key_by("sensor").window(Tumbling("1 hour")).aggregate(n=count(), mean=mean("celsius"))


@operator(inputs={"means": hourly_mean})
def daily_count(means: Stream) -> Stream:
    """Hours per sensor and day."""
    return means.key_by("sensor").window(Tumbling("1 day")).aggregate(hours=count())


def rows(day: int, celsius: float) -> list[dict]:
    return [
        {"at": f"2013-01-0{day}T{hour:02d}:30:00Z", "sensor": sensor, "celsius": celsius}
        for hour in range(24)
        for sensor in ("north", "south")
    ]


@pytest.fixture
def place(engine, tmp_path, dagster_of):
    """Three days of readings, the second one impossibly hot."""
    given = Rows(rows(1, 4.0) + rows(2, 59.0) + rows(3, 5.0))
    source = Source("readings", contract=Reading, connector=given, watermark=BoundedOutOfOrderness("1 minute"))
    days = Daily("2013-01-01", end="2013-01-04")
    cool = Expectation("column_values_to_be_between", column="mean", max_value=40, blocking=True, name="cool")
    many = Expectation("column_min_to_be_between", column="n", min_value=2, name="many")
    workspace = Workspace(
        sources=[source_asset(source, owners=["team:weather"])],
        operators=[
            operator_asset(hourly_mean, partitions=days, expectations=[cool, many]),
            operator_asset(daily_count, partitions=days),
        ],
        settings=settings(engine, lake=str(tmp_path / "lake")),
    )
    found = dagster_of(workspace, tmp_path)
    landed = found.run("readings", config={"ops": {"land_readings": {"config": {"end": True}}}})
    assert landed.success, landed.failures
    return found, landed, Lake(str(tmp_path / "lake"))


def test_a_bad_day_fails_and_blocks_its_downstream_and_the_others_do_not(place):
    dagster, _, lake = place
    done = dagster.run("hourly_mean", "daily_count", partitions=("2013-01-01", "2013-01-03"))
    assert not done.success
    assert {key: passed for key, (passed, _) in done.checked.items()} == {
        ("cool", "2013-01-01"): True,
        ("cool", "2013-01-02"): False,
        ("cool", "2013-01-03"): True,
        ("many", "2013-01-01"): False,
        ("many", "2013-01-02"): False,
        ("many", "2013-01-03"): False,
    }
    assert done.summed_up == {"cool": (False, "2013-01-02"), "many": (False, "2013-01-01, 2013-01-02, 2013-01-03")}
    for name, day in (("cool", "2013-01-02"), ("many", "2013-01-03")):
        key = dg.AssetCheckKey(dg.AssetKey("hourly_mean"), name)
        assert shown(dagster.instance, key) == "FAILED", "beside the asset, though the last day is cool"
        about = dagster.instance.get_latest_asset_check_evaluation_record(key).evaluation.metadata
        assert about["numbers of"].value == day
        assert done.checked[name, day][1].items() <= {label: one.value for label, one in about.items()}.items()
    numbers = done.checked["cool", "2013-01-02"][1]
    assert (numbers["element_count"], numbers["unexpected_count"]) == (48, 48)
    assert numbers["unexpected, for example"].startswith("59.0, 59.0")
    assert done.checked["many", "2013-01-01"][1]["observed_value"] == 1
    assert ("hourly_mean", "2013-01-02") in done.materialized
    assert not any(asset == "daily_count" for asset, _ in done.materialized)
    assert "cool" in done.failures["check_hourly_mean"]
    good = dagster.run("hourly_mean", "daily_count", partitions="2013-01-03")
    assert good.success, good.failures
    assert good.materialized["daily_count", "2013-01-03"]["dagster/partition_row_count"] == 2
    del lake


@pytest.mark.parametrize(
    ("selection", "follows"),
    [(None, True), ([dg.AssetCheckKey(dg.AssetKey("readings"), "many")], True), ([], False)],
    ids=["all checks", "one", "none"],
)
def test_great_expectations_is_imported_beside_the_work_if_checks_follow(place, monkeypatch, selection, follows):
    dagster, _, _ = place
    begun: list[str] = []
    monkeypatch.setattr(assets, "begin_import", lambda: begun.append(threading.current_thread().name))
    asked = dg.DagsterRun(job_name="x", asset_check_selection=None if selection is None else frozenset(selection))
    readings = SimpleNamespace(expectations=of_contract(Reading))
    assert assets._is_checked(SimpleNamespace(run=asked), readings, [dg.AssetKey("readings")]) is follows
    monkeypatch.setattr(assets, "_is_checked", lambda *_: follows)
    assert dagster.run("hourly_mean", partitions="2013-01-03").success
    assert begun == [], "its expectations compile"
    monkeypatch.setattr(assets, "uncompiled", lambda *_: True)
    assert dagster.run("hourly_mean", partitions="2013-01-01").success
    assert begun == ["floodmark-work"] * follows


@pytest.mark.feature("Z1")
def test_a_landing_is_checked_against_what_its_contract_says(place):
    dagster, landed, _ = place
    about = landed.materialized["readings", None]
    assert (about["rows landed"], about["quarantined"], about["ended"]) == (144, 0, True)
    found = {name: passed for (name, _), (passed, _) in landed.checked.items()}
    assert found == {
        "table_row_count_to_be_between": False,  # 144 are more than 100
        "column_values_to_not_be_null_at": True,
        "column_values_to_not_be_null_sensor": True,
        "column_values_to_not_be_null_celsius": True,
        "column_values_to_be_in_set_sensor": True,
        "column_values_to_be_between_celsius": True,
        "compound_columns_to_be_unique_at_sensor": True,
    }
    again = dagster.run("readings")
    assert again.success
    assert again.materialized["readings", None]["commits"] == 0


def test_a_contract_becomes_a_suite():
    kinds = {one.name: one.values for one in of_contract(Reading)}
    assert kinds["column_values_to_be_between_celsius"] == {
        "column": "celsius",
        "min_value": -80,
        "max_value": 60,
        "strict_max": True,
    }
    assert kinds["column_values_to_be_in_set_sensor"]["value_set"] == ["north", "south"]
    assert "column_values_to_not_be_null_note" not in kinds


def test_expectations_of_one_kind_and_column_get_names_of_their_own():
    two = (Expectation("column_mean_to_be_between", column="n", min_value=i) for i in (1, 2))
    first, second = distinct(tuple(two))
    assert first.name == "column_mean_to_be_between_n"
    assert second.name.startswith("column_mean_to_be_between_n_")
