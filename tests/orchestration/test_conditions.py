"""When Dagster materializes by itself: partitions whose inputs are complete, each once, and none that a stream, a run or a failure has taken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_runs import Dagster, settings
from events import START, Event, source

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import DefinitionError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import frozen, gates
from floodmark.spec.windowing.partitions import named

DAYS = fm.Daily("2020-01-01", end="2020-01-06")


@fm.operator
def sums(events: fm.Stream[Event]) -> fm.Stream:
    """Hourly sums per key."""
    return events.key_by("key").window(fm.Tumbling("1 hour")).aggregate(total=fm.sum("value"))


@fm.operator(inputs={"sums": sums})
def most(sums: fm.Stream) -> fm.Stream:
    """The largest hour of a key and day."""
    return sums.key_by("key").window(fm.Tumbling("1 day")).aggregate(largest=fm.max("total"))


def rows(days: float) -> list[dict[str, Any]]:
    """An event each ten minutes, from the first day on; one of hour 30 is no number that can be divided by."""
    return [
        {"at": (START + timedelta(minutes=10 * n)).isoformat(), "key": "ab"[n % 2], "value": n}
        for n in range(int(days * 144))
    ]


def requested(dagster: Dagster, cursor: Any = None) -> dict[str, list[str]]:
    """Asset -> the partitions that a look of the sensor asks for."""
    looked = dg.evaluate_automation_conditions(dagster.definitions, dagster.instance, cursor=cursor)
    by_asset: dict[str, list[str]] = {}
    for result in looked.results:
        keys = sorted(result.true_subset.expensively_compute_partition_keys())
        by_asset[result.key.to_user_string()] = keys
    return by_asset


@pytest.mark.feature("Z1")
def test_each_day_is_requested_once_when_its_input_is_complete(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[fm.Workspace, Path], Dagster]
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    assets = [fm.operator_asset(one, partitions=DAYS, automation="complete") for one in (sums, most)]
    events = source(rows(2.5))
    dagster = dagster_of(
        fm.Workspace(sources=[events], operators=assets, settings=settings(engine, lake=lake.root)), tmp_path
    )
    assert requested(dagster) == {"sums": [], "most": []}, "nothing has landed"
    engine.land(events, lake)
    assert requested(dagster) == {"sums": ["2020-01-01", "2020-01-02"], "most": []}
    assert dagster.run("sums", partitions=("2020-01-01", "2020-01-02")).success
    assert requested(dagster) == {"sums": [], "most": ["2020-01-01", "2020-01-02"]}
    assert dagster.run("most", partitions="2020-01-01").success
    assert requested(dagster) == {"sums": [], "most": ["2020-01-02"]}
    engine.land(source(rows(5)), lake, end=True)
    assert requested(dagster) == {"sums": ["2020-01-03", "2020-01-04", "2020-01-05"], "most": ["2020-01-02"]}


@pytest.mark.feature("Z1")
def test_hours_are_requested_by_the_names_that_dagster_has_for_them(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[fm.Workspace, Path], Dagster]
) -> None:
    lake, events = Lake(str(tmp_path / "lake")), source(rows(3.4 / 24))
    asset = fm.operator_asset(
        sums, partitions=fm.Hourly("2020-01-01-00:00", end="2020-01-01-05:00"), automation="complete"
    )
    workspace = fm.Workspace(sources=[events], operators=[asset], settings=settings(engine, lake=lake.root))
    dagster = dagster_of(workspace, tmp_path)
    engine.land(events, lake)
    assert requested(dagster) == {"sums": ["2020-01-01-00:00", "2020-01-01-01:00", "2020-01-01-02:00"]}
    assert dagster.run("sums", partitions="2020-01-01-01:00").success
    assert requested(dagster) == {"sums": ["2020-01-01-00:00", "2020-01-01-02:00"]}


@pytest.mark.feature("Z1", "Z8")
def test_a_day_behind_a_closed_gate_waits_until_it_is_released_and_a_frozen_one_until_it_is_thawed(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[fm.Workspace, Path], Dagster]
) -> None:
    lake, events = Lake(str(tmp_path / "lake")), source(rows(3.5))
    asset = fm.operator_asset(most, partitions=DAYS, automation="complete")
    upstream = fm.operator_asset(sums, partitions=DAYS)
    workspace = fm.Workspace(sources=[events], operators=[upstream, asset], settings=settings(engine, lake=lake.root))
    dagster = dagster_of(workspace, tmp_path)
    engine.land(events, lake)
    assert dagster.run("sums", partitions=("2020-01-01", "2020-01-03")).success
    path, second = lake.output("sums"), named(DAYS, "2020-01-02", "day")
    gates.close(path, gates.gate("sums", "2020-01-02", second, "a check", "it failed"))
    assert requested(dagster) == {"most": ["2020-01-01", "2020-01-03"]}
    frozen.freeze(lake, most, second.start)
    assert requested(dagster) == {"most": ["2020-01-03"]}
    gates.release(path, gates.closed(path), who="somebody", why="it is right")
    frozen.thaw(lake, "most")
    assert requested(dagster) == {"most": ["2020-01-01", "2020-01-02", "2020-01-03"]}


@pytest.mark.feature("Z1")
def test_what_a_stream_writes_is_left_to_it(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[fm.Workspace, Path], Dagster]
) -> None:
    lake, events = Lake(str(tmp_path / "lake")), source(rows(2.5))
    asset = fm.operator_asset(sums, partitions=DAYS, automation="complete")
    dagster = dagster_of(
        fm.Workspace(sources=[events], operators=[asset], settings=settings(engine, lake=lake.root)), tmp_path
    )
    engine.land(events, lake)
    engine.run_unbounded(asset.operator, lake, until_caught_up=True)
    engine.land(source(rows(5)), lake)
    assert requested(dagster) == {"sums": []}, "the stream reads them when it goes on"


@pytest.mark.feature("Z1")
def test_a_day_whose_run_failed_waits_for_a_person(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[fm.Workspace, Path], Dagster]
) -> None:
    @fm.operator
    def shares(events: fm.Stream[Event]) -> fm.Stream:
        """Fails on the second day."""
        return (
            events.with_columns(share="1000 div (value - 200)")
            .key_by("key")
            .window(fm.Tumbling("1 hour"))
            .aggregate(total=fm.sum("share"))
        )

    lake, events = Lake(str(tmp_path / "lake")), source(rows(3.5))
    asset = fm.operator_asset(shares, partitions=DAYS, automation="complete")
    dagster = dagster_of(
        fm.Workspace(sources=[events], operators=[asset], settings=settings(engine, lake=lake.root)), tmp_path
    )
    engine.land(events, lake)
    assert not dagster.run("shares", partitions="2020-01-02").success
    assert requested(dagster) == {"shares": ["2020-01-01", "2020-01-03"]}


def test_conditions_of_dagster_are_the_assets_own(tmp_path: Path) -> None:
    daily = dg.AutomationCondition.on_cron("@daily")
    asset = fm.operator_asset(sums, automation=daily)
    landed = fm.source_asset(source([]), automation=daily)
    built = fm_definitions(fm.Workspace(sources=[landed], operators=[asset]), tmp_path)
    graph = built.resolve_asset_graph()
    assert {key: graph.get(dg.AssetKey(key)).automation_condition for key in ("events", "sums")} == {
        "events": daily,
        "sums": daily,
    }
    sensor = built.resolve_sensor_def("automation")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


def fm_definitions(workspace: fm.Workspace, root: Path) -> dg.Definitions:
    """Of a workspace."""
    from floodmark.orchestration import build_definitions

    return build_definitions(workspace, root=root)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fm.operator_asset(sums, automation="eager"), "or \"complete\", got 'eager'"),
        (lambda: fm.operator_asset(sums, automation="complete"), 'asset partitions, for automation="complete"'),
        (lambda: fm.source_asset(source([]), automation="complete"), "one of Dagster's AutomationConditions"),
    ],
)
def test_what_is_no_automation_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-301") as refused:
        make()
    assert says in str(refused.value)
