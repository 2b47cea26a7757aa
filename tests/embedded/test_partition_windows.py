"""One global window per asset partition: partition by partition, as a stream and in DuckDB the same rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval, from_ms
from floodmark.engines.frames import fast
from floodmark.lake.folder.paths import Lake
from floodmark.spec.windowing.partitions import split
from floodmark.testing.runs import final

DAYS = fm.Daily("2013-03-08", timezone="America/New_York")
HOURS = fm.Hourly("2013-03-08T00:00", timezone="Asia/Kolkata")
SPRING = datetime(2013, 3, 9, 5, tzinfo=UTC)


class Sale(fm.Contract):
    """An amount sold."""

    at: fm.EventTime
    shop: str
    amount: int


def sales(hours: int) -> list[dict[str, object]]:
    """One every 20 minutes from the day before the clocks change, out of order by up to an hour, every seventh ten hours late."""
    drawn, found = random.Random(9), []
    for i in range(hours * 3):
        at = SPRING + timedelta(minutes=20 * i + drawn.randrange(-30, 30))
        at -= timedelta(hours=10) if i % 7 == 0 else timedelta(0)
        found.append({"at": at.isoformat(), "shop": drawn.choice("ab"), "amount": i})
    return found


@fm.operator
def sold_per_day(sales: fm.Stream[Sale]) -> fm.Stream:
    """A day's sales, told early and revised."""
    return (
        sales.key_by("shop")
        .window(
            fm.Global.per(DAYS),
            trigger=fm.AfterWatermark().early(fm.AfterCount(20)),
            allowed_lateness="12 hours",
        )
        .aggregate(n=fm.count(), total=fm.sum("amount"))
    )


@fm.operator
def sold_per_hour(sales: fm.Stream[Sale]) -> fm.Stream:
    """An hour's sales of a zone half an hour off, revised."""
    return (
        sales.key_by("shop")
        .window(fm.Global.per(HOURS), allowed_lateness="12 hours")
        .aggregate(n=fm.count(), total=fm.sum("amount"))
    )


def grouped(rows: list[dict[str, object]], partitions: fm.Daily | fm.Hourly) -> list[dict[str, object]]:
    """DuckDB's GROUP BY of the local date, or hour."""
    unit = "day" if isinstance(partitions, fm.Daily) else "hour"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", pa.Table.from_pylist(rows))
    local = f"date_trunc('{unit}', timezone('{partitions.timezone}', CAST(rows.\"at\" AS TIMESTAMPTZ)))"
    return (
        connection.sql(
            f"SELECT shop, timezone('{partitions.timezone}', begun) AS window_start,"
            f" timezone('{partitions.timezone}', begun + INTERVAL 1 {unit}) AS window_end,"
            " count(*) AS n, CAST(sum(amount) AS BIGINT) AS total"
            f" FROM (SELECT *, {local} AS begun FROM rows) GROUP BY shop, begun ORDER BY ALL"
        )
        .to_arrow_table()
        .to_pylist()
    )


def written(lake: Lake, operator: fm.Operator) -> list[dict[str, object]]:
    """The rows that are not taken back."""
    table = DeltaTable(lake.output(operator.name)).to_pyarrow_table()
    if "_asset_partition" in table.column_names:
        table = table.drop_columns(["_asset_partition"])
    return final([table.sort_by("_sequence")])


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("Z9")
@pytest.mark.parametrize(
    ("operator", "partitions", "hours"),
    [
        (sold_per_day, DAYS, 72),
        pytest.param(sold_per_hour, HOURS, 14, marks=pytest.mark.engines("embedded", soak=("spark",))),
    ],
    ids=["days", "hours"],
)
def test_asset_partitions_in_any_order_are_the_stream_and_a_group_by(
    engine: Computing, tmp_path: Path, operator: fm.Operator, partitions: fm.Daily | fm.Hourly, hours: int
) -> None:
    logs, rows = Lake(str(tmp_path / "logs")), sales(hours)
    watermark = fm.BoundedOutOfOrderness("1 hour")
    source = fm.Source("sales", contract=Sale, connector=fm.Rows(rows), watermark=watermark)
    engine.land(source, logs, end=True)
    expected = grouped(rows, partitions)
    stream, parts = (Lake(str(tmp_path / name), logs=logs.root) for name in ("stream", "parts"))
    engine.run_unbounded(operator, stream, until_caught_up=True)
    assert written(stream, operator) == expected
    times = [datetime.fromisoformat(str(row["at"])) for row in rows]
    start, end = (int(moment.timestamp() * 1000) for moment in (min(times), max(times)))
    cuts = [interval for _, interval in split(partitions, Interval(start=start, end=end + 1))]
    random.Random(4).shuffle(cuts)
    for cut in cuts:
        engine.run_bounded(operator, parts, cut)
    assert written(parts, operator) == expected
    assert {(from_ms(cut.start), from_ms(cut.end)) for cut in cuts} >= {
        (row["window_start"], row["window_end"]) for row in expected
    }


@fm.operator
def sold_per_day_once(sales: fm.Stream[Sale]) -> fm.Stream:
    """A day's sales, told when it is over; late rows are dropped."""
    windowed = sales.key_by("shop").window(fm.Global.per(DAYS))
    return windowed.aggregate(n=fm.count(), total=fm.sum("amount"), largest=fm.max("amount"))


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("Z9", "Z37")
def test_a_day_told_once_is_one_group_by_of_the_engine(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, planned, compute = Lake(str(tmp_path / "logs")), [], fast.compute

    def counted(step: Any, rows: Any, interval: Interval, *others: Any) -> Any:
        planned.append(interval)
        return compute(step, rows, interval, *others)

    watermark = fm.BoundedOutOfOrderness("1 hour")
    engine.land(fm.Source("sales", contract=Sale, connector=fm.Rows(sales(72)), watermark=watermark), logs, end=True)
    stream, parts = (Lake(str(tmp_path / name), logs=logs.root) for name in ("stream", "parts"))
    streamed = engine.run_unbounded(sold_per_day_once, stream, until_caught_up=True)
    monkeypatch.setattr(fast, "compute", counted)
    days = [interval for _, interval in split(DAYS, Interval(start=1362700800000, end=1363150800000))]
    dropped = sum(engine.run_bounded(sold_per_day_once, parts, day).dropped for day in reversed(days))
    assert written(parts, sold_per_day_once) == written(stream, sold_per_day_once)
    assert planned == days[::-1]
    assert dropped == streamed.dropped > 0
