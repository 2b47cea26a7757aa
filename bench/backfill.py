"""All 365 days of the three window operators as one backfill of Dagster's, against one bounded run of the year."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OPERATORS = ("hourly_departures", "rolling_departures", "daily_carriers")


def prepare(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """Land the year."""
    from definitions import workspace
    from demo.inbox import write_inbox
    from floodmark.engines.spark.landing.run import land
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.lake.folder.paths import Lake

    write_inbox(folder / "inbox")
    began = time.perf_counter()
    land(spark_session(), workspace().source("flights"), Lake(str(folder / "lake")), end=True, workspace=folder)
    return {"seconds": time.perf_counter() - began}


def bounded(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """Each operator over the whole year, tables divided by day as the backfill's."""
    from definitions import workspace
    from floodmark.core.time import Interval, to_ms
    from floodmark.engines.spark.bounded.run import run_bounded
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.lake.folder.paths import Lake

    spark, lake = spark_session(), Lake(str(out), logs=str(folder / "lake"))
    began = time.perf_counter()
    year = Interval(start=to_ms(datetime(2013, 1, 1, 5, tzinfo=UTC)), end=to_ms(datetime(2014, 1, 1, 5, tzinfo=UTC)))
    for name in OPERATORS:  # sliding windows of the last hour end in the next year, in no partition of the backfill
        run_bounded(spark, workspace().operator(name), lake, year)
    return {"seconds": time.perf_counter() - began}


def dagster(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """One run over the range of all partitions, without its checks; the start of Spark is part of it."""
    import dagster as dg

    from definitions import workspace
    from floodmark import Settings
    from floodmark.orchestration import build_definitions

    settings = Settings(lake=str(out), logs=str(folder / "lake"))
    definitions = build_definitions(workspace().having(settings), root=folder)
    keys = [dg.AssetKey(name) for name in OPERATORS] + [dg.AssetKey(["hourly_departures", "late"])]
    tags = {
        "dagster/asset_partition_range_start": "2013-01-01",
        "dagster/asset_partition_range_end": "2013-12-31",
    }
    began = time.perf_counter()
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance, asset_selection=keys, tags=tags)
    assert done.success
    return {"seconds": time.perf_counter() - began, "answer_equal": _equal(out, folder)}


def _equal(out: Path, folder: Path) -> bool:
    from deltalake import DeltaTable

    from definitions import workspace
    from demo.tables import final

    for name in OPERATORS:
        output = workspace().operator(name).outputs[0]
        mine, theirs = (
            final(DeltaTable(str(root / "outputs" / output.table)).to_pyarrow_table(), output)
            for root in (out, folder / "year")
        )
        order = [(column, "ascending") for column in theirs.column_names]
        if not mine.sort_by(order).equals(theirs.sort_by(order)):
            return False
    return True


SYSTEMS = {"land the year": prepare, "one bounded run": bounded, "one Dagster backfill": dagster}


def year(results: Any, place: Path, measured: Callable[..., dict[str, Any]]) -> None:
    """Land, run bounded, backfill; 336,776 flights."""
    folder = place / "flights"
    folder.mkdir()
    measured("land the year", folder, place / "none")
    told = measured("one bounded run", folder, folder / "year")
    results.add("backfill", "one bounded run", "bounded", told, keys=3, micro_batches=1, rows=336_776)
    told = measured("one Dagster backfill", folder, place / "backfilled")
    results.add("backfill", "one Dagster backfill", "backfill", told, keys=3, micro_batches=365, rows=336_776)
