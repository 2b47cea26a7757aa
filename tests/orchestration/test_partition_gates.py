"""Gates in Dagster and on the command line: a partition whose blocking check has failed is taken in by no reader until it is released."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dagster_runs import Dagster, settings
from deltalake import DeltaTable
from events import Event, row, source

from floodmark import Expectation, Hourly, Stream, Tumbling, Workspace, count, operator, operator_asset, sum
from floodmark.control.processes.engine import Computing
from floodmark.control.streams.gating import release
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates

HOURS = Hourly("2020-01-01T00:00", end="2020-01-01T03:00")
RANGE = ("2020-01-01-00:00", "2020-01-01-02:00")
MIDDLE = "2020-01-01-01:00"


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """The first hour has fewer."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count(), least=sum("value"))


@operator(inputs={"hours": per_hour})
def doubled(hours: Stream) -> Stream:
    """Reads it."""
    return hours.with_columns(twice="n * 2").select("key", "twice")


def workspace(engine: Computing, root: Path, most: int) -> Workspace:
    """Its check of the sum of values fails for hours whose values are large."""
    check = Expectation("column_values_to_be_between", column="least", max_value=most, name="small", blocking=True)
    return Workspace(
        sources=[source([row(minute) for minute in range(200)])],
        operators=[
            operator_asset(per_hour, partitions=HOURS, expectations=[check]),
            operator_asset(doubled, partitions=HOURS),
        ],
        settings=settings(engine, lake="lake"),
    ).at(str(root))


def hours_of(lake: Lake) -> set[str]:
    """The partitions that the reader has."""
    path = lake.output("doubled")
    table = DeltaTable(path).to_pyarrow_table() if DeltaTable.is_deltatable(path) else None
    return set() if table is None else set(table["_asset_partition"].to_pylist())


@pytest.mark.feature("Z8")
def test_a_failed_blocking_check_closes_a_gate_that_readers_respect_until_it_is_released(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[Workspace, Path], Dagster]
) -> None:
    found = workspace(engine, tmp_path, 2000)
    (tmp_path / "pyproject.toml").write_text("")
    lake, dagster = Lake.of(found.settings), dagster_of(found, tmp_path)
    engine.land(found.source("events"), lake, end=True)
    dagster.run("per_hour", partitions=RANGE)
    table = lake.output("per_hour")
    closed = gates.closed(table)
    assert [(one.check, one.partition) for one in closed] == [("small", "2020-01-01-02:00"), ("small", MIDDLE)][::-1]
    assert closed[0].reason == "2 of 2 rows, for example 2670, 2700"

    done = dagster.run("doubled", partitions=RANGE)
    assert done.success
    assert len(hours_of(lake)) == 1
    assert "check 'small' failed" in done.observed["doubled", MIDDLE]["not computed"]
    refused = dagster.run("doubled", partitions=MIDDLE, config={"ops": {"doubled": {"config": {"behind": "run"}}}})
    assert "LIFECYCLE-006" in refused.failures["doubled"]
    with pytest.raises(
        LifecycleError, match="LIFECYCLE-197 operator 'doubled' over .*floodmark gate release per_hour --partition"
    ):
        engine.run_bounded(found.operator("doubled"), lake, closed[0].interval)
    with pytest.raises(LifecycleError, match="LIFECYCLE-197"):
        engine.run_bounded(found.operator("doubled"), lake, Interval(), force=True)

    asset = found.asset("per_hour")
    with pytest.raises(LifecycleError, match="LIFECYCLE-198"):
        release(asset, lake, MIDDLE, " ")
    with pytest.raises(
        LifecycleError, match="LIFECYCLE-199 gate of operator 'per_hour': .* got 2020-01-01-00:00; closed are"
    ):
        release(asset, lake, "2020-01-01-00:00", "none")
    job = dagster.definitions.resolve_job_def("release_gate")
    config = {"operator": "per_hour", "partition": MIDDLE, "reason": "known"}
    given = {"ops": {"release_gate_of": {"config": config}}}
    assert job.execute_in_process(instance=dagster.instance, run_config=given).success
    assert [one.partition for one in gates.closed(table)] == ["2020-01-01-02:00"]
    (kept,) = (Path(table) / "_floodmark" / "gates_released").iterdir()
    assert {name: json.loads(kept.read_text())[name] for name in ("partition", "why")} == {
        "partition": MIDDLE,
        "why": "known",
    }
    assert dagster.run("doubled", partitions=MIDDLE).success
    assert len(hours_of(lake)) == 2

    mended = dagster_of(workspace(engine, tmp_path, 100_000), tmp_path)
    checks = mended.definitions.resolve_job_def("checks_per_hour")
    tags = {"dagster/asset_partition_range_start": RANGE[0], "dagster/asset_partition_range_end": RANGE[1]}
    assert checks.execute_in_process(instance=mended.instance, tags=tags).success
    assert gates.closed(table) == [], "the check passes now"
    assert mended.run("doubled", partitions=RANGE).success
    assert len(hours_of(lake)) == 3
