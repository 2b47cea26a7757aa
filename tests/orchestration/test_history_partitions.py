"""Days of a process function as Dagster's partitions: a backfill writes what one run over all of time has there, and late rows make later days stale."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster_runs import Dagster, settings
from events import Event
from histories import DAYS, START, day, dwelling, rows, sources, written

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import DefinitionError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake


def shop(engine: Computing, events: list[dict[str, Any]], lake: Lake) -> fm.Workspace:
    """A workspace of one process function, partitioned by day."""
    asset = fm.operator_asset(dwelling, partitions=fm.Daily("2020-01-01", end="2020-01-06"))
    landed = fm.source_asset(sources(events, [])["events"])
    return fm.Workspace(sources=[landed], operators=[asset], settings=settings(engine, lake=lake.root))


@pytest.mark.feature("Z3")
def test_a_backfill_of_a_process_function_and_a_late_row(engine: Computing, tmp_path: Path, dagster_of: Any) -> None:
    lake, (events, _) = Lake(str(tmp_path / "lake")), rows(5)
    dagster: Dagster = dagster_of(shop(engine, events, lake), tmp_path)
    assert dagster.run("events").success
    whole = Lake(str(tmp_path / "whole"), logs=lake.root)
    engine.run_bounded(dwelling, whole, Interval())
    one = dagster.run("dwelling", "dwelling__fifth", partitions="2020-01-03")
    assert one.success, one.failures
    assert written(lake, dwelling, day(0, DAYS)) == written(whole, dwelling, day(2))
    backfill = dagster.run("dwelling", "dwelling__fifth", partitions=("2020-01-01", "2020-01-05"))
    assert backfill.success, backfill.failures
    assert written(lake, dwelling, day(0, 4)) == written(whole, dwelling, day(0, 4))
    assert written(lake, dwelling, day(4)).total() == 0
    assert "has reached 2020-01-05T" in backfill.observed["dwelling", "2020-01-05"]["not computed"]

    late = {"at": (START + timedelta(hours=30)).isoformat(), "key": "a", "value": 1000}
    engine.land(sources([*events, late], [])["events"], lake)
    again = dagster.run("dwelling", "dwelling__fifth", partitions=("2020-01-01", "2020-01-04"))
    assert again.success, again.failures
    why = again.materialized["dwelling", "2020-01-02"]["why"]
    assert "[2020-01-01T00:00:00Z, 2020-01-02T00:00:00Z) is covered already" in why
    for stale in (2, 3, 4):
        assert f"[2020-01-0{stale}T00:00:00Z, 2020-01-0{stale + 1}T00:00:00Z) is computed again: its input" in why
    engine.run_bounded(dwelling, whole, Interval())
    assert written(lake, dwelling, day(0, 4)) == written(whole, dwelling, day(0, 4))


def test_partitions_of_rows_that_a_later_day_takes_back_are_refused() -> None:
    @fm.operator
    def versions(events: fm.Stream[Event]) -> fm.Stream:
        return events.select("key", "value").key_by("key").scd2()

    with pytest.raises(
        DefinitionError, match="DEFINITION-092 .*History, which takes back rows of earlier intervals. Leave"
    ):
        fm.operator_asset(versions, partitions=fm.Daily("2020-01-01"))
