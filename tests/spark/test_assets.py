"""Assets of Dagster on either engine: defined in code, landed, computed and checked; another window changes their rows, and nothing that is scheduled."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_runs import Dagster, settings
from events import START, Event, source

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import build_definitions
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import outputs
from floodmark.testing.runs import final

DAYS = fm.Daily("2020-01-01", end="2020-01-03")
MINUTES = (0, 3, 29, 30, 59, 60, 61, 100, 141, 150, 200, 1439, 1500)
"""The last one is of the next day."""


def per_country(window: fm.Window) -> Operator:
    """The program with another window."""

    @fm.operator
    def per_country(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(window).aggregate(n=fm.count())

    return per_country


def scheduled(definitions: dg.Definitions) -> dict[str, Any]:
    """What Dagster knows of the work: jobs with their steps, schedules with their times, sensors, assets with their partitions."""
    return {
        "jobs": {job.name: sorted(job.graph.node_dict) for job in definitions.resolve_all_job_defs()},
        "schedules": {one.name: (one.cron_schedule, one.job_name) for one in definitions.schedules or ()},
        "sensors": sorted(one.name for one in definitions.sensors or ()),
        "assets": {
            spec.key.to_user_string(): str(spec.partitions_def) for spec in definitions.resolve_all_asset_specs()
        },
    }


def by_hand(window: fm.Window) -> Counter[tuple[str, int, int, int]]:
    """(key, beginning and end in minutes, rows) of the windows of the first day."""
    wanted = Counter[tuple[str, int, int, int]]()
    for key in "ab":
        mine = [minute for minute in MINUTES if "ab"[minute % 2] == key]
        if isinstance(window, fm.Tumbling):
            size = window.size // 60_000
            counts = Counter(minute // size * size for minute in mine)
            wanted.update((key, start, start + size, n) for start, n in counts.items() if start + size <= 1440)
            continue
        sessions: list[list[int]] = []
        for minute in mine:
            if sessions and minute <= sessions[-1][-1] + 40:
                sessions[-1].append(minute)
            else:
                sessions.append([minute])
        wanted.update((key, one[0], one[-1] + 40, len(one)) for one in sessions if one[-1] + 40 <= 1440)
    return wanted


@pytest.mark.feature("Z1", "O8", "W13")
def test_another_window_is_one_line_and_nothing_that_is_scheduled_changes(engine: Computing, tmp_path: Path) -> None:
    rows = [
        {"at": (START + timedelta(minutes=minute)).isoformat(), "key": "ab"[minute % 2], "value": minute}
        for minute in MINUTES
    ]
    check = fm.Expectation("column_values_to_be_between", column="n", min_value=1)
    windows = (fm.Tumbling("1 hour"), fm.Tumbling("30 minutes"), fm.Session("40 minutes"))
    known = list[dict[str, Any]]()
    for number, window in enumerate(windows if engine.name == "embedded" else windows[1:]):
        code, root = per_country(window), tmp_path / str(number)
        root.mkdir()
        asset = fm.operator_asset(code, partitions=DAYS, upgrades=fm.Upgrades("0 3 * * *"), expectations=[check])
        given = fm.Workspace(sources=[source(rows)], operators=[asset], settings=settings(engine, lake="lake"))
        definitions = build_definitions(given.at(str(root)), root=str(root))
        known.append(scheduled(definitions))
        with dg.DagsterInstance.ephemeral() as instance:
            runs = Dagster(definitions, instance)
            landed = runs.run("events")
            assert landed.success, landed.failures
            computed = runs.run("per_country", partitions="2020-01-01")
            assert computed.success, computed.failures
        assert {passed for passed, _ in computed.checked.values()} == {True}
        assert ("per_country", "2020-01-01") in computed.materialized
        said = Counter(
            (
                row["key"],
                *((row[edge] - START) // timedelta(minutes=1) for edge in ("window_start", "window_end")),
                row["n"],
            )
            for row in final([outputs(Lake(str(root / "lake")), code)[""]])
        )
        assert said == by_hand(window), window
    assert known[0]["schedules"]
    assert known[0]["jobs"]
    assert all(one == known[0] for one in known[1:])
