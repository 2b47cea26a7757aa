"""The ad views of the Yahoo streaming benchmark, small: rows per second against seconds per micro-batch, and DuckDB's answer at each size.

Events are made in this process, and nothing goes over a network. ``bench/run.py`` measures the same program with millions of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.run import BatchInfo

BENCH = Path(__file__).resolve().parents[2] / "bench"
EVENTS, FILES = 12_000, 2
Views = Counter[tuple[int, int, int]]


def views(lake: Lake) -> Views:
    """(campaign, begin of the ten seconds, views) that readers see, without the end of input's."""
    rows = DeltaTable(lake.output("views_per_campaign")).to_pyarrow_table().to_pylist()
    return Counter(
        (row["campaign"], int(row["window_start"].timestamp()), row["views"]) for row in rows if row["_kind"] == 0
    )


def truth(inbox: Path) -> Views:
    """DuckDB's answer."""
    query = f"""SELECT ad // 10, epoch(time_bucket(INTERVAL 10 seconds, "at"))::BIGINT, count(*) FROM '{inbox}/*.parquet'
        WHERE kind = 'view' GROUP BY ALL"""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return Counter(connection.sql(query).fetchall())


@pytest.mark.parametrize(
    "campaigns",
    [
        pytest.param(100, marks=pytest.mark.feature("H1", "H2", "H4")),
        pytest.param(1_000_000, marks=pytest.mark.feature("H6")),
    ],
)
def test_views_per_campaign_are_duckdbs_whatever_the_size_of_micro_batches(
    engine: Computing,
    embedded: Computing,
    campaigns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import data

    data.generate(tmp_path, EVENTS, campaigns, FILES)
    logs, expected = Lake(str(tmp_path / "logs")), truth(tmp_path / "inbox")
    embedded.land(data.source(tmp_path / "inbox"), logs, end=True)
    bounded = Lake(str(tmp_path / "bounded"), logs=logs.root)
    engine.run_bounded(data.views_per_campaign, bounded, Interval())
    assert views(bounded) == expected
    curve: list[tuple[int, float]] = []
    for each in (1, FILES) if campaigns == 100 else (FILES,):
        lake, batches = Lake(str(tmp_path / f"stream-{each}"), logs=logs.root), list[BatchInfo]()
        operator: fm.Operator = data.views_per_campaign
        ran = engine.run_unbounded(operator, lake, until_caught_up=True, files_per_batch=each, on_batch=batches.append)
        assert views(lake) == expected
        curve.append((round(EVENTS / ran.seconds), max(batch.seconds for batch in batches)))
    record_property(f"{engine.name}, {campaigns:,} campaigns: (rows/s, s of the longest micro-batch)", str(curve))
    assert all(rate > 0 and seconds > 0 for rate, seconds in curve)
