"""One global window per asset partition: partition by partition, as a stream and in DuckDB the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from engines import embedded

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError, DefinitionError, LifecycleError
from floodmark.core.time import END, Interval, from_ms
from floodmark.engines.frames.fast import windows
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


@pytest.mark.feature("Z9")
@pytest.mark.parametrize(
    ("operator", "partitions", "hours"),
    [(sold_per_day, DAYS, 72), (sold_per_hour, HOURS, 14)],
    ids=["days", "hours"],
)
def test_asset_partitions_in_any_order_are_the_stream_and_a_group_by(
    engine: Computing, tmp_path: Path, operator: fm.Operator, partitions: fm.Daily | fm.Hourly, hours: int
) -> None:
    logs, rows = Lake(str(tmp_path / "logs")), sales(hours)
    watermark = fm.BoundedOutOfOrderness("1 hour")
    source = fm.Source("sales", contract=Sale, connector=fm.Rows(rows), watermark=watermark)
    embedded().land(source, logs, end=True)
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
def sold(sales: fm.Stream[Sale]) -> fm.Stream:
    """What each shop has sold: in all; over asset partitions in each, where late rows are dropped; of a run over an interval in that."""
    windowed = sales.key_by("shop").window(fm.Global())
    return windowed.aggregate(n=fm.count(), total=fm.sum("amount"), largest=fm.max("amount"))


sold_per_day_once = fm.operator_asset(sold, partitions=DAYS).operator


@fm.operator(name="sold")
def sold_per_declared_day(sales: fm.Stream[Sale]) -> fm.Stream:
    windowed = sales.key_by("shop").window(fm.Global.per(DAYS))
    return windowed.aggregate(n=fm.count(), total=fm.sum("amount"), largest=fm.max("amount"))


def test_global_over_asset_partitions_is_global_per_these_partitions() -> None:
    longer = fm.operator_asset(sold, partitions=fm.Daily("2001-01-01", timezone="America/New_York")).operator
    assert sold_per_day_once == longer == sold_per_declared_day != sold
    assert sold_per_day_once.partitions == DAYS
    assert sold_per_day_once.outputs[0].schema.names[:3] == ("shop", "window_start", "window_end")


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("Z9", "Z37")
def test_a_day_told_once_is_one_group_by_of_the_engine(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, planned, compute = Lake(str(tmp_path / "logs")), [], windows.compute

    def counted(step: Any, rows: Any, interval: Interval, *others: Any, **named: Any) -> Any:
        planned.append(interval)
        return compute(step, rows, interval, *others, **named)

    watermark = fm.BoundedOutOfOrderness("1 hour")
    embedded().land(
        fm.Source("sales", contract=Sale, connector=fm.Rows(sales(72)), watermark=watermark), logs, end=True
    )
    stream, parts = (Lake(str(tmp_path / name), logs=logs.root) for name in ("stream", "parts"))
    streamed = engine.run_unbounded(sold_per_day_once, stream, until_caught_up=True)
    monkeypatch.setattr(windows, "compute", counted)
    days = [interval for _, interval in split(DAYS, Interval(start=1362700800000, end=1363150800000))]
    dropped = sum(engine.run_bounded(sold_per_day_once, parts, day).dropped for day in reversed(days))
    assert written(parts, sold_per_day_once) == written(stream, sold_per_day_once)
    assert planned == days[::-1]
    assert dropped == streamed.dropped > 0


def test_a_reader_of_a_global_window_that_an_asset_divides_is_told_to_declare_it() -> None:
    @fm.operator(inputs={"totals": sold})
    def reader(totals: fm.Stream) -> fm.Stream:
        return totals.filter("n > 1")

    source = fm.Source("sales", contract=Sale, connector=fm.Rows([]), watermark=fm.Ascending())
    with pytest.raises(DefinitionError, match=r"DEFINITION-073 .*write Global.per\(PARTITIONS\) in sold"):
        fm.Workspace(sources=[source], operators=[fm.operator_asset(sold, partitions=DAYS), reader])


def of_interval(rows: list[dict[str, object]], interval: Interval) -> list[dict[str, object]]:
    """DuckDB's GROUP BY of the rows of an interval, at its last millisecond."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", pa.Table.from_pylist(rows))
    at, last = 'epoch_ms(CAST(rows."at" AS TIMESTAMPTZ))', min(interval.end - 1, END)
    return (
        connection.sql(
            f"SELECT {last} AS last, shop, count(*) AS n, CAST(sum(amount) AS BIGINT) AS total, max(amount) AS largest"
            f" FROM rows WHERE {at} >= {interval.start} AND {at} < {interval.end} GROUP BY shop ORDER BY shop"
        )
        .to_arrow_table()
        .to_pylist()
    )


def results(lake: Lake) -> list[dict[str, object]]:
    """The rows of ``sold`` with the millisecond of each."""
    table = DeltaTable(lake.output("sold")).to_pyarrow_table().filter(pc.field("_kind") == 0)
    last = pc.cast(pc.cast(table["_event_time"], pa.timestamp("ms")), pa.int64())
    table = table.append_column("last", last).select(["last", "shop", "n", "total", "largest"])
    return table.sort_by([("last", "ascending"), ("shop", "ascending")]).to_pylist()


@pytest.mark.feature("Z9")
def test_an_interval_of_a_global_window_is_one_group_by_of_its_rows(engine: Computing, tmp_path: Path) -> None:
    lake, rows, drawn = Lake(str(tmp_path)), sales(72), random.Random(3)
    watermark = fm.BoundedOutOfOrderness("1 hour")
    embedded().land(fm.Source("sales", contract=Sale, connector=fm.Rows(rows), watermark=watermark), lake, end=True)
    hour, start = 3_600_000, int(SPRING.timestamp() * 1000)

    def hours(low: int, high: int) -> Interval:
        return Interval(start=start + low * hour, end=start + high * hour)

    asked = [hours(0, 10), hours(10, 20), hours(0, 20), hours(5, 10), hours(20, 30), Interval(), hours(10, 20)]
    if engine.name == "embedded":
        asked += [hours(*sorted(drawn.sample(range(-12, 72, 6), 2))) for _ in range(8)]
        asked += [Interval(start=start), Interval(end=start + 30 * hour)]
    standing: list[Interval] = []
    for interval in [*asked[:1], *asked]:  # the first one twice
        ran = engine.run_bounded(sold, lake, interval)
        assert ran.skipped == ((interval,) if interval in standing else ()), (interval, standing)
        overlapped = [o for o in standing if o.start < interval.end and interval.start < o.end]
        assert all(
            any(f"{o}: its result is removed" in reason for reason in ran.reasons) for o in overlapped if o != interval
        )
        standing = [interval, *(o for o in standing if o not in overlapped)]
        expected = [row for o in sorted(standing, key=lambda o: o.end) for row in of_interval(rows, o)]
        assert results(lake) == expected


@pytest.mark.feature("Z9")
def test_an_interval_of_a_global_window_is_computed_again_when_rows_of_it_land(
    tmp_path: Path, embedded: Computing
) -> None:
    lake, rows = Lake(str(tmp_path)), sales(24)
    watermark = fm.BoundedOutOfOrderness("1 hour")

    def landed(some: list[dict[str, object]]) -> None:
        embedded.land(fm.Source("sales", contract=Sale, connector=fm.Rows(some), watermark=watermark), lake)

    landed(rows[:36])
    first = Interval(start=int((SPRING - timedelta(hours=6)).timestamp() * 1000), end=int(SPRING.timestamp() * 1000))
    second = Interval(start=first.end, end=first.end + 30 * 3_600_000)
    for interval in (first, second):
        embedded.run_bounded(sold, lake, interval)
    assert all(datetime.fromisoformat(str(row["at"])) >= SPRING for row in rows[36:])
    landed(rows)
    assert embedded.run_bounded(sold, lake, first).skipped == (first,)
    again = embedded.run_bounded(sold, lake, second)
    assert "its input 'sales' has changed since" in again.reasons[0]
    assert results(lake) == of_interval(rows, first) + of_interval(rows, second)


class Largest(fm.Contract):
    """The largest amounts."""

    amounts: list[int]


def largest(pane: fm.Pane, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The three largest; the function fails for a pane that has an end."""
    assert pane.end is None
    yield {"amounts": sorted((row["amount"] for row in rows), reverse=True)[:3]}


@fm.operator
def largest_sales(sales: fm.Stream[Sale]) -> fm.Stream:
    """A shop's rows, told by a function of the user's at the end of input."""
    return sales.key_by("shop").window(fm.Global(), trigger=fm.Purging(fm.EndOfInput())).process(largest, Largest)


@pytest.mark.feature("Z9")
def test_a_function_over_a_global_window_gets_the_rows_of_the_interval(embedded: Computing, tmp_path: Path) -> None:
    lake, rows = Lake(str(tmp_path)), sales(24)
    source = fm.Source("sales", contract=Sale, connector=fm.Rows(rows), watermark=fm.BoundedOutOfOrderness("1 hour"))
    embedded.land(source, lake)
    start = int(SPRING.timestamp() * 1000)
    embedded.run_bounded(largest_sales, lake, Interval(start=start, end=start + 12 * 3_600_000))
    table = DeltaTable(lake.output("largest_sales")).to_pyarrow_table().filter(pc.field("_kind") == 0)
    inside = [r for r in rows if SPRING <= datetime.fromisoformat(str(r["at"])) < SPRING + timedelta(hours=12)]
    assert {row["shop"]: row["amounts"] for row in table.to_pylist()} == {
        shop: sorted((r["amount"] for r in inside if r["shop"] == shop), reverse=True)[:3] for shop in "ab"
    }
    assert set(table["_event_time"].to_pylist()) == {SPRING + timedelta(hours=12) - timedelta(milliseconds=1)}


def test_beside_a_stream_a_global_window_has_no_interval_and_a_stream_removes_those_before_it(
    embedded: Computing, tmp_path: Path
) -> None:
    lake, rows = Lake(str(tmp_path)), sales(24)
    source = fm.Source("sales", contract=Sale, connector=fm.Rows(rows), watermark=fm.BoundedOutOfOrderness("1 hour"))
    embedded.land(source, lake, end=True)
    start = int(SPRING.timestamp() * 1000)
    day = Interval(start=start, end=start + 24 * 3_600_000)
    embedded.run_bounded(sold, lake, day)
    assert results(lake) == of_interval(rows, day)
    embedded.run_unbounded(sold, lake, until_caught_up=True)
    assert results(lake) == of_interval(rows, Interval())
    with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*all of time, over which its stream writes one result"):
        embedded.run_bounded(sold, lake, day)


def test_a_global_window_that_fires_before_its_end_has_no_intervals(embedded: Computing, tmp_path: Path) -> None:
    @fm.operator
    def early(sales: fm.Stream[Sale]) -> fm.Stream:
        return sales.key_by("shop").window(fm.Global(), trigger=fm.AfterCount(2)).aggregate(n=fm.count())

    lake = Lake(str(tmp_path))
    source = fm.Source("sales", contract=Sale, connector=fm.Rows(sales(1)), watermark=fm.Ascending())
    embedded.land(source, lake)
    with pytest.raises(CapabilityError, match="CAPABILITY-002 .*or leave out its trigger"):
        embedded.run_bounded(early, lake, Interval(end=0))
