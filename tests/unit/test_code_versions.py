"""A changed operator is seen in Dagster before anything is computed; without Spark or a server."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster_runs import shown

from definitions import workspace
from floodmark.core.time import Interval
from floodmark.lifecycle.coverage import Entry, Segment
from floodmark.orchestration import build_definitions, versions
from floodmark.spec.assets.asset import OperatorAsset

DAY = 24 * 3_600_000
START = 1_357_016_400_000
HOURLY: OperatorAsset = next(o for o in workspace().operator_assets if o.operator.name == "hourly_departures")
NOW = HOURLY.operator.version


def segment(version: str, first: int, last: int) -> Segment:
    interval = Interval(start=START + first * DAY, end=START + last * DAY)
    entry = Entry(version=version, fingerprint=version, at="", late_rows="as_landed", interval=interval, inputs={})
    return Segment(interval=interval, entry=entry, stale="")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Segment]:
    """What bounded runs have computed of each operator."""
    found = list[Segment]()
    monkeypatch.setattr(versions, "coverage", lambda *_: found)
    return found


def test_days_of_an_older_version_fail_the_check_and_are_counted(computed: list[Segment], tmp_path: Path):
    computed += [segment("hourly_departures@old", 0, 5), segment(NOW, 5, 7)]
    passed, about = versions.compared(HOURLY, versions.StepWorkspace(workspace().at(str(tmp_path))))
    assert not passed
    assert about["code"] == NOW
    assert about["computed by hourly_departures@old"] == "5 daily partitions"
    assert about[f"computed by {NOW}"] == "2 daily partitions"


def test_days_of_the_codes_version_pass(computed: list[Segment], tmp_path: Path):
    computed.append(segment(NOW, 0, 7))
    assert versions.compared(HOURLY, versions.StepWorkspace(workspace().at(str(tmp_path))))[0]


def test_nothing_landed_is_nothing_of_another_version(tmp_path: Path):
    passed, about = versions.compared(HOURLY, versions.StepWorkspace(workspace().at(str(tmp_path))))
    assert passed
    assert "nothing yet" in about["computed"]


def test_the_sensor_reports_an_operator_once_when_its_code_has_changed(computed: list[Segment], tmp_path: Path):
    computed.append(segment("hourly_departures@old", 0, 5))
    sensor = build_definitions(workspace(), root=tmp_path).resolve_sensor_def("code_versions")
    with dg.DagsterInstance.ephemeral() as instance:
        first = sensor(dg.build_sensor_context(instance=instance))
        assert first.asset_events == []
        changed = json.dumps(json.loads(first.cursor) | {"hourly_departures": "hourly_departures@old"})
        second = sensor(dg.build_sensor_context(instance=instance, cursor=changed))
        assert [(e.asset_key.to_user_string(), e.passed) for e in second.asset_events] == [("hourly_departures", False)]
        third = sensor(dg.build_sensor_context(instance=instance, cursor=second.cursor))
        assert isinstance(third, dg.SkipReason)


def test_a_result_that_a_stream_has_overtaken_is_shown_and_one_that_is_made_good_turns_green(
    computed: list[Segment], tmp_path: Path
):
    computed.append(segment("hourly_departures@old", 0, 5))
    definitions = build_definitions(workspace().at(str(tmp_path)), root=tmp_path)
    sensor, key = definitions.resolve_sensor_def("code_versions"), dg.AssetKey("hourly_departures")
    check = dg.AssetCheckKey(key, versions.NAME)
    job = definitions.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:

        def look(cursor: str | None) -> tuple[list[bool], str | None]:
            found = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
            if isinstance(found, dg.SkipReason):
                return [], cursor
            for event in found.asset_events:
                instance.report_runless_asset_event(event)
            return [event.passed for event in found.asset_events], found.cursor

        only = job.get_subset(asset_selection=set(), asset_check_selection={check})
        assert only.execute_in_process(instance=instance).success
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="2013-01-02"))
        assert shown(instance, check) == "not evaluated"
        found, cursor = look(None)
        assert (found, shown(instance, check)) == ([False], "FAILED")
        assert look(cursor)[0] == []
        computed[:] = [segment(NOW, 0, 7)]
        assert look(cursor)[0] == [], "compared every ten minutes"
        before = json.loads(str(cursor))
        before[" compared"]["hourly_departures"] -= 601
        found, cursor = look(json.dumps(before))
        assert (found, shown(instance, check)) == ([True], "SUCCEEDED")
        assert look(cursor)[0] == []


def test_the_check_runs_by_itself_without_spark(tmp_path: Path):
    definitions = build_definitions(workspace().at(str(tmp_path)), root=tmp_path)
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = [dg.AssetCheckKey(dg.AssetKey(name), versions.NAME) for name in ("hourly_departures", "moving_median")]
    only = job.get_subset(asset_selection=set(), asset_check_selection=set(keys))
    with dg.DagsterInstance.ephemeral() as instance:
        done = only.execute_in_process(instance=instance)
    found = {e.asset_key.to_user_string(): e.passed for e in done.get_asset_check_evaluations()}
    assert found == {"hourly_departures": True, "moving_median": True}
