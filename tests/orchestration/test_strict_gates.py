"""Strict expectations in Dagster: a bounded run takes a partition in once its checks have judged it; the job of checks is what judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dagster_runs import Dagster, settings
from deltalake import DeltaTable
from events import Event, row, source

from floodmark import Expectation, Hourly, Stream, Tumbling, Workspace, count, operator, operator_asset, sum
from floodmark.control.processes.engine import Computing
from floodmark.control.state.messages import Messages
from floodmark.control.state.records import Deployment, StreamId, Watch
from floodmark.control.streams.fleet import Fleet
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates

HOURS = Hourly("2020-01-01T00:00", end="2020-01-01T03:00")
RANGE = ("2020-01-01-00:00", "2020-01-01-02:00")


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """The last hour has larger values."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count(), least=sum("value"))


@operator(inputs={"hours": per_hour})
def doubled(hours: Stream) -> Stream:
    """Reads it."""
    return hours.with_columns(twice="n * 2").select("key", "twice")


@pytest.mark.feature("Z8")
def test_what_was_not_judged_is_computed_by_no_reader_and_what_has_passed_is(
    embedded: Computing, tmp_path: Path, dagster_of: Callable[[Workspace, Path], Dagster]
) -> None:
    small = Expectation(
        "column_values_to_be_between", column="least", max_value=3000, name="small", blocking=True, strict=True
    )
    found = Workspace(
        sources=[source([row(minute) for minute in range(200)])],
        operators=[
            operator_asset(per_hour, partitions=HOURS, expectations=[small]),
            operator_asset(doubled, partitions=HOURS),
        ],
        settings=settings(embedded, lake="lake"),
    ).at(str(tmp_path))
    lake, dagster = Lake.of(found.settings), dagster_of(found, tmp_path)
    embedded.land(found.source("events"), lake, end=True)
    embedded.run_bounded(found.operator("per_hour"), lake, Interval())
    refused = dagster.run("doubled", partitions=RANGE[0]).failures["doubled"]
    assert "LIFECYCLE-006" in refused
    assert "waits for the checks of partition 2020-01-01T0000Z of 'per_hour', which is not judged" in refused

    store = Fleet(workspace=found, root=tmp_path).store
    about = {"root": str(tmp_path), "environment": "dev", "package": "p", "version": "per_hour@1", "desired": "stopped"}
    watch = Watch(table=lake.output("per_hour"), alerts=1)
    store.deploy(Deployment(operator="per_hour", lake=found.settings.lake, watch=watch, **about))
    checks = dagster.definitions.resolve_job_def("checks_per_hour")
    tags = {"dagster/asset_partition_range_start": RANGE[0], "dagster/asset_partition_range_end": RANGE[1]}
    checks.execute_in_process(instance=dagster.instance, tags=tags, raise_on_error=False)
    assert [one.partition for one in gates.closed(lake.output("per_hour"))] == [RANGE[1]]
    (message,) = Messages(store).of(StreamId("per_hour", found.settings.lake))
    told = message.change
    assert (told.asset, told.partition, told.expectation, told.level) == ("per_hour", RANGE[1], "small", "error")
    assert told.sample in told.reason
    done = dagster.run("doubled", partitions=RANGE)
    assert done.success
    assert "check 'small' failed" in done.observed["doubled", RANGE[1]]["not computed"]
    table = DeltaTable(lake.output("doubled")).to_pyarrow_table()
    assert len(set(table["_asset_partition"].to_pylist())) == 2
