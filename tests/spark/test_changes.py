"""A table's changes as an input: what a table holds in the end is what an operator over its changes says, however they came."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from delta.tables import DeltaTable as Table
from pydantic import Field
from pyspark.sql import SparkSession

from floodmark import (
    Ascending,
    BoundedOutOfOrderness,
    Contract,
    DeltaTable,
    EventTime,
    Source,
    Stream,
    Tumbling,
    count,
    max,
    operator,
    sum,
)
from floodmark.core.errors import ConnectorError, DefinitionError, PlanError
from floodmark.engines.landing import quarantine
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.landing.run import land, replay
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.paths import Lake

START = datetime(2026, 3, 1, tzinfo=UTC)


class Order(Contract):
    at: EventTime
    id: int
    shop: str
    cents: int | None = None


def orders(path: Path, **settings: object) -> Source:
    connector = DeltaTable(str(path), **{"read": "changes", **settings})  # type: ignore[arg-type]  # tests pass whatever fits
    bound = BoundedOutOfOrderness("2 days")
    return Source("orders", contract=Order, connector=connector, watermark=bound, files_per_commit=1)


def hourly(source: Source):
    @operator(inputs={"orders": source})
    def totals(orders: Stream[Order]) -> Stream:
        shops = orders.key_by("shop").window(Tumbling("1 hour"))
        return shops.aggregate(n=count(), cents=sum("cents"), dearest=max("cents"))

    return totals


def written(spark: SparkSession, path: Path, *, change_files: bool) -> None:
    """A table of many lives: appended, updated, merged, deleted from, overwritten in part, compacted."""
    table = Table.create(spark).location(str(path)).addColumn("at", "timestamp").addColumn("id", "bigint")
    table = table.addColumn("shop", "string").addColumn("cents", "bigint").partitionedBy("shop")
    table.property("delta.enableChangeDataFeed", str(change_files).lower()).execute()
    target = Table.forPath(spark, str(path))

    def some(first: int, last: int, factor: int) -> object:
        rows = [(START + timedelta(minutes=n), n, "ab"[n % 2], n * factor) for n in range(first, last)]
        return spark.createDataFrame(rows, "at timestamp, id bigint, shop string, cents bigint")

    some(0, 200, 10).write.format("delta").mode("append").save(str(path))
    target.update("id % 10 = 3", {"cents": "cents + 1"})
    target.update("id = 20", {"at": "at + interval 90 minutes"})
    target.delete("id % 7 = 0")
    merge = target.alias("t").merge(some(150, 260, 7).alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    target.optimize().executeCompaction()
    target.update("shop = 'a' AND id < 40", {"shop": "'c'"})
    replaced = some(100, 320, 5).where("shop = 'b'").write.format("delta").mode("overwrite")
    replaced.option("replaceWhere", "shop = 'b'").save(str(path))
    target.delete("shop = 'c' AND id > 30")


def truth(spark: SparkSession, path: Path) -> Counter[tuple[object, ...]]:
    """The hours of the table as it stands, by Spark SQL."""
    hours = "SELECT shop, date_trunc('hour', at) AS h, count(*), sum(cents), max(cents) FROM delta.`{}` GROUP BY 1, 2"
    return Counter(tuple(row) for row in spark.sql(hours.format(path)).collect())


def standing(spark: SparkSession, lake: Lake) -> Counter[tuple[object, ...]]:
    rows = spark.read.format("delta").load(lake.output("totals")).where("_kind <= 0")
    kept = rows.selectExpr("shop", "window_start", "n", "cents", "dearest", "IF(_kind = 0, 1, -1) AS sign").collect()
    found: Counter[tuple[object, ...]] = Counter()
    for *values, sign in kept:
        found[tuple(values)] += sign
    assert all(n >= 0 for n in found.values())
    return +found


@pytest.mark.feature("J5")
@pytest.mark.parametrize("change_files", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_changes_of_a_table_come_to_what_it_holds(spark, lake, tmp_path, change_files) -> None:
    path = tmp_path / "orders"
    written(spark, path, change_files=change_files)
    source, apart = orders(path), Lake(str(tmp_path / "apart"), logs=lake.root)
    totals = hourly(source)
    assert totals.inputs[0].revisable
    assert land(spark, source, lake, end=True).commits > 5
    run_bounded(spark, totals, lake)
    run_unbounded(spark, totals, apart, until_caught_up=True, files_per_batch=2)
    expected = truth(spark, path)
    assert len(expected) > 8
    assert standing(spark, lake) == expected
    assert standing(spark, apart) == expected


def test_an_update_is_one_change_and_both_halves_are_judged_alike(spark, lake, tmp_path) -> None:
    path = tmp_path / "orders"
    written(spark, path, change_files=True)
    land(spark, orders(path), lake)
    log = spark.read.format("delta").load(lake.log("orders"))
    updated = (
        log.where("id % 10 = 3 AND id < 150 AND id % 7 != 0 AND shop = 'b'").orderBy("_sequence", "_kind").collect()
    )
    pairs = [(was, now) for was, now in pairwise(updated) if was["_sequence"] == now["_sequence"]]
    assert pairs
    assert all((was["_kind"], now["_kind"], now["cents"] - was["cents"]) == (-1, 0, 1) for was, now in pairs)
    assert all(was["_watermark"] == now["_watermark"] for was, now in pairs)


class Change(Contract):
    at: EventTime = Field(alias="_commit_timestamp")
    change: str = Field(alias="_change_type")
    version: int = Field(alias="_commit_version")
    id: int
    shop: str
    cents: int | None = None


def history(source: Source):
    @operator(inputs={"changes": source})
    def order_history(changes: Stream[Change]) -> Stream:
        kept = changes.filter("change <> 'update_preimage'").select("at", "change", "id", "shop", "cents")
        return kept.key_by("id").scd2(deleted="change = 'delete'", track=["shop", "cents"])

    return order_history


@pytest.mark.feature("J5")
def test_the_history_of_a_table_has_what_it_held_at_every_version(spark, lake, tmp_path) -> None:
    path = tmp_path / "orders"
    written(spark, path, change_files=True)
    source = Source(
        "changes",
        contract=Change,
        connector=DeltaTable(str(path), read="events"),
        watermark=Ascending(),
        future_limit=None,
    )
    operator = history(source)
    land(spark, source, lake, end=True)
    run_unbounded(spark, operator, lake, until_caught_up=True)
    kept = spark.read.format("delta").load(lake.output("order_history__current")).collect()
    assert {row["change"] for row in kept} == {"insert", "update_postimage"}
    for commit in Table.forPath(spark, str(path)).history().select("version", "timestamp", "operation").collect():
        if commit["operation"] in {"UPDATE", "DELETE", "MERGE"}:
            at = commit["timestamp"]
            held = spark.read.format("delta").option("versionAsOf", commit["version"]).load(str(path)).collect()
            valid = [r for r in kept if r["valid_from"] <= at and (r["valid_to"] is None or at < r["valid_to"])]
            assert sorted((r["id"], r["shop"], r["cents"]) for r in valid) == sorted(
                (r["id"], r["shop"], r["cents"]) for r in held
            )
    bounded = Lake(str(tmp_path / "bounded"), logs=lake.root)
    run_bounded(spark, operator, bounded)
    again = spark.read.format("delta").load(bounded.output("order_history__current")).collect()
    columns = ("id", "shop", "cents", "valid_from", "valid_to")
    assert Counter(tuple(r[c] for c in columns) for r in again) == Counter(tuple(r[c] for c in columns) for r in kept)


def test_a_broken_row_that_is_deleted_is_set_aside_twice_and_both_can_be_replayed(spark, lake, tmp_path) -> None:
    path = tmp_path / "orders"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (at timestamp, id bigint, shop string, cents bigint) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(
        f"INSERT INTO delta.`{path}` VALUES (timestamp '{START:%F %T}', 1, NULL, 5), (timestamp '{START:%F %T}', 2, 'a', 7)"
    )
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    land(spark, orders(path), lake)
    found = quarantine.show("orders", lake)
    assert [entry.reason for entry in found.newest] == ["shop: expected a valid string, got null"] * 2

    class Lenient(Order):
        shop: str | None = None

    lenient = Source("orders", contract=Lenient, connector=orders(path).connector, watermark=orders(path).watermark)
    assert replay(spark, lenient, lake).landed == 2
    rows = spark.read.format("delta").load(lake.log("orders")).where("id = 1").orderBy("_sequence").collect()
    assert [row["_kind"] for row in rows] == [0, -1]


def test_what_cannot_be_taken_back_exactly_is_refused(spark, lake, tmp_path) -> None:
    path = tmp_path / "orders"
    written(spark, path, change_files=True)
    with pytest.raises(ConnectorError, match=r'CONNECTOR-006 .*DeltaTable\(\.\.\., read="changes"\)'):
        land(spark, orders(path, read="appends"), lake)
    with pytest.raises(PlanError, match="PLAN-010 .*read was None and is changes"):
        land(spark, orders(path), lake)

    class Arrived(Contract, event_time="ingestion"):
        id: int

    with pytest.raises(DefinitionError, match='DEFINITION-017 .*got event_time="ingestion"'):
        Source(
            "arrived",
            contract=Arrived,
            connector=DeltaTable("x", read="changes"),
            watermark=BoundedOutOfOrderness("1 day"),
        )
    hidden = tmp_path / "hidden"
    spark.sql(f"CREATE TABLE delta.`{hidden}` USING delta AS SELECT * FROM delta.`{path}`")
    spark.sql(f"ALTER TABLE delta.`{hidden}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM delta.`{hidden}` WHERE id = 301")
    with pytest.raises(ConnectorError, match=r"CONNECTOR-008 .*deletion vectors \(DELETE\)"):
        land(spark, orders(hidden), Lake(str(tmp_path / "other")))
