"""What a workspace's code becomes in Dagster, and that its windows are no matter of schedules."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from events import START, Event, row, source

from floodmark import (
    Daily,
    Expectation,
    Operator,
    Settings,
    Stream,
    Tumbling,
    Upgrades,
    Workspace,
    count,
    max,
    operator,
    operator_asset,
)
from floodmark.orchestration import build_definitions
from floodmark.testing import IN_MEMORY

DAYS = Daily("2020-01-01", end="2020-01-04")
PER_COUNTRY = """\
def per_country(events):
    keyed = events.key_by("key")
    windowed = keyed.window(Tumbling("1 hour"))
    return windowed.aggregate(n=count())
"""
"""Three others differ in a line."""
WINDOWS = ('Tumbling("1 hour")', 'Tumbling("30 minutes")', 'Session("40 minutes")')


def per_country(window: str, folder: Path) -> Operator:
    """The program with other windows, as a file of its own."""
    text = "from floodmark import Session, Stream, Tumbling, count\nfrom events import Event\n" + PER_COUNTRY.replace(
        "(events)", "(events: Stream[Event]) -> Stream"
    ).replace(WINDOWS[0], window)
    folder.mkdir()
    (folder / "per_country.py").write_text(text)
    spec = spec_from_file_location(f"per_country_{folder.name}", folder / "per_country.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return operator(module.per_country, name="per_country")


def scheduled(code: Operator, root: Path) -> dict[str, Any]:
    """What Dagster knows of the work: jobs with their steps, schedules with their times, sensors, assets with their partitions."""
    asset = operator_asset(code, partitions=DAYS, upgrades=Upgrades("0 3 * * *"))
    workspace = Workspace(sources=[source([])], operators=[asset], settings=Settings(lake="lake")).at(str(root))
    found = build_definitions(workspace, root=str(root))
    return {
        "jobs": {job.name: sorted(job.graph.node_dict) for job in found.resolve_all_job_defs()},
        "schedules": {one.name: (one.cron_schedule, one.job_name) for one in found.schedules or ()},
        "sensors": sorted(one.name for one in found.sensors or ()),
        "assets": {spec.key.to_user_string(): str(spec.partitions_def) for spec in found.resolve_all_asset_specs()},
    }


@pytest.mark.feature("W13", "O8")
def test_another_window_is_one_line_and_nothing_that_is_scheduled_changes(tmp_path: Path) -> None:
    rows = [
        {"at": START + timedelta(minutes=minute), "key": "ab"[minute % 3 == 0], "value": 0}
        for minute in (0, 3, 29, 30, 59, 60, 61, 100, 141, 150, 200)
    ]
    known = []
    for number, window in enumerate(WINDOWS):
        code = per_country(window, tmp_path / str(number))
        wanted = Counter[tuple[str, Any, Any, int]]()
        for key in "ab":
            minutes = [int((one["at"] - START).total_seconds() // 60) for one in rows if one["key"] == key]
            for start, end, n in by_hand(window, minutes):
                wanted[key, START + timedelta(minutes=start), START + timedelta(minutes=end), n] += 1
        for run in IN_MEMORY:
            found = run(code, {"events": rows})[""]
            assert Counter(tuple(one.values()) for one in found) == wanted
        known.append(scheduled(code, tmp_path / str(number)))
    assert known[0]["schedules"]
    assert known[0]["jobs"]
    assert known[0] == known[1] == known[2]


def by_hand(window: str, minutes: list[int]) -> list[tuple[int, int, int]]:
    """(start, end, rows) of each window."""
    if window.startswith("Tumbling"):
        size = 60 if "hour" in window else 30
        return [(start, start + size, n) for start, n in Counter(m - m % size for m in minutes).items()]
    found: list[list[int]] = []
    for minute in sorted(minutes):
        if found and minute <= found[-1][-1] + 40:
            found[-1].append(minute)
        else:
            found.append([minute])
    return [(one[0], one[-1] + 40, len(one)) for one in found]


@operator
def hourly(events: Stream[Event]) -> Stream:
    """Rows of an hour."""
    return events.key_by("key").window(Tumbling("1 hour"), late="side_output").aggregate(n=count())


@operator(inputs={"hours": hourly})
def busiest(hours: Stream) -> Stream:
    """The busiest hour of a day."""
    return hours.key_by("key").window(Tumbling("1 day")).aggregate(most=max("n"))


@pytest.mark.feature("Z1")
def test_code_becomes_assets_with_dependencies_columns_partitions_versions_and_checks(tmp_path: Path) -> None:
    check = Expectation("column_values_to_be_between", column="n", min_value=1)
    operators = [
        operator_asset(hourly, partitions=DAYS, expectations=[check]),
        operator_asset(busiest, partitions=DAYS),
    ]
    workspace = Workspace(sources=[source([row(0)])], operators=operators, settings=Settings(lake="lake"))
    found = build_definitions(workspace.at(str(tmp_path)), root=str(tmp_path))
    specs = {spec.key.to_user_string(): spec for spec in found.resolve_all_asset_specs()}
    specs = {name: specs[name] for name in ("events", "hourly", "hourly__late", "busiest")}
    depends = {name: {dep.asset_key.to_user_string() for dep in spec.deps} for name, spec in specs.items()}
    assert depends == {"events": set(), "hourly": {"events"}, "hourly__late": {"events"}, "busiest": {"hourly"}}
    assert {spec.code_version for spec in specs.values() if spec.key.to_user_string() != "events"} == {
        hourly.version,
        busiest.version,
    }
    days = specs["hourly"].partitions_def
    assert isinstance(days, dg.PartitionsDefinition)
    assert days.get_partition_keys() == ["2020-01-01", "2020-01-02", "2020-01-03"]
    assert [column.name for column in specs["busiest"].metadata["dagster/column_schema"].columns][:4] == [
        "key",
        "window_start",
        "window_end",
        "most",
    ]
    assert {key.asset_key.to_user_string() for key in found.resolve_asset_graph().asset_check_keys} >= {"hourly"}
