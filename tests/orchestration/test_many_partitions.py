"""Ten thousand asset partitions that a stream has completed at once: looks of the sensor that reports them, and the judgement of an operator that reads them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster_runs import looked
from events import Event, row, source

from floodmark import Hourly, Settings, Stream, Tumbling, Workspace, count, operator, operator_asset, source_asset
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.streams.fleet import Fleet
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import build_definitions

COUNT = 10_000
START = datetime(2020, 1, 1, tzinfo=UTC)
HOURS = Hourly("2020-01-01T00:00", end=f"{START + timedelta(hours=COUNT):%Y-%m-%dT%H:%M}")
MOST_SECONDS = 5
"""Of processor time, that a look or a judgement may take."""


@operator
def hourly(events: Stream[Event]) -> Stream:
    """A stream."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@operator(inputs={"hours": hourly})
def of_hours(hours: Stream) -> Stream:
    """Computed once what it reads is complete."""
    return hours.filter("n > 0")


@pytest.mark.feature("Z7", "Z1")
def test_ten_thousand_completed_partitions_are_reported_and_judged_in_looks_of_less_than_five_seconds(
    embedded: Computing, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    workspace = Workspace(
        sources=[source_asset(source([row(0), row(60 * COUNT - 1)]))],
        operators=[
            operator_asset(hourly, partitions=HOURS),
            operator_asset(of_hours, partitions=HOURS, automation="complete"),
        ],
        settings=Settings(lake="lake", engine="embedded"),
    ).at(str(tmp_path))
    lake = Lake.of(workspace.settings)
    embedded.land(workspace.source("events"), lake, end=True)
    embedded.run_unbounded(workspace.operator("hourly"), lake, until_caught_up=True)
    fleet = Fleet(workspace=workspace, root=tmp_path, say=lambda _: None)
    fleet.start([workspace.operator("hourly")])
    fleet.store.lease(LEASE, "a supervisor", 1e6)
    definitions, cursor, seen, longest = build_definitions(workspace, root=tmp_path), None, list[str](), 0.0
    with dg.DagsterInstance.ephemeral() as instance:
        while len(seen) < COUNT:
            began = time.process_time()
            look = looked(definitions, instance, cursor)
            longest = max(longest, time.process_time() - began)
            new = [event.partition for event in look.asset_events if isinstance(event, dg.AssetMaterialization)]
            new = [partition for partition in new if partition is not None]
            assert 0 < len(new) <= 200, "so many a look"
            seen, cursor = seen + new, look.cursor
        assert seen == sorted(set(seen))
        assert not [event.partition for event in looked(definitions, instance, cursor).asset_events if event.partition]
        began = time.process_time()
        judged = dg.evaluate_automation_conditions(definitions, instance)
        longest = max(longest, time.process_time() - began)
    assert judged.get_num_requested(dg.AssetKey("of_hours")) == COUNT
    assert longest < MOST_SECONDS
