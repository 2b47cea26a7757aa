"""A table's changes as an input: what a table holds in the end is what an operator over its changes says, however they came."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable as Table
from deltalake import DeltaTable as Stored
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
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ConnectorError, DefinitionError, PlanError
from floodmark.core.time import Interval
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake

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


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with files of changes."""
    path = tmp_path_factory.mktemp("written") / "orders"
    write(spark, path, change_files=True)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """The test's own copy of the table; its files are as old as the written ones."""
    shutil.copytree(written, tmp_path / "orders")
    return tmp_path / "orders"


def write(spark: SparkSession, path: Path, *, change_files: bool) -> None:
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


def truth(path: Path) -> Counter[tuple[object, ...]]:
    """The hours of the table as it stands, by Arrow."""
    rows = Stored(str(path)).to_pyarrow_table()
    hours = rows.append_column("hour", pc.floor_temporal(rows["at"], unit="hour")).group_by(["shop", "hour"])
    found = hours.aggregate([([], "count_all"), ("cents", "sum"), ("cents", "max")])
    return Counter(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def standing(lake: Lake) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for row in Stored(lake.output("totals")).to_pyarrow_table().to_pylist():
        if row["_kind"] <= 0:
            values = tuple(row[name] for name in ("shop", "window_start", "n", "cents", "dearest"))
            found[values] += 1 if row["_kind"] == 0 else -1
    assert all(n >= 0 for n in found.values())
    return +found


@pytest.mark.soak
def test_the_changes_of_a_table_without_files_of_changes_come_to_what_it_holds(engine, spark, lake, tmp_path) -> None:
    write(spark, tmp_path / "orders", change_files=False)
    holds(engine, lake, tmp_path)


@pytest.mark.feature("J5")
def test_the_changes_of_a_table_come_to_what_it_holds(engine, lake, path) -> None:
    holds(engine, lake, path.parent)


def holds(engine: Computing, lake: Lake, folder: Path) -> None:
    """Both modes over the changes of the folder's table give what Arrow says of the table."""
    path = folder / "orders"
    source, apart = orders(path), Lake(str(folder / "apart"), logs=lake.root)
    totals = hourly(source)
    assert totals.inputs[0].revisable
    assert engine.land(source, lake, end=True).commits > 5
    engine.run_bounded(totals, lake, Interval())
    engine.run_unbounded(totals, apart, until_caught_up=True, files_per_batch=2)
    expected = truth(path)
    assert len(expected) > 8
    assert standing(lake) == expected
    assert standing(apart) == expected


@pytest.mark.engines("embedded", "spark")
def test_an_update_is_one_change_and_both_halves_are_judged_alike(engine, spark, lake, path) -> None:
    engine.land(orders(path), lake)
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
def test_the_history_of_a_table_has_what_it_held_at_every_version(engine, spark, lake, path, tmp_path) -> None:
    source = Source(
        "changes",
        contract=Change,
        connector=DeltaTable(str(path), read="events"),
        watermark=Ascending(),
        future_limit=None,
    )
    operator = history(source)
    engine.land(source, lake, end=True)
    engine.run_unbounded(operator, lake, until_caught_up=True)
    kept = spark.read.format("delta").load(lake.output("order_history__current")).collect()
    assert {row["change"] for row in kept} == {"insert", "update_postimage"}
    for commit in Table.forPath(spark, str(path)).history().select("version", "timestamp", "operation").collect():
        if commit["operation"] in {"UPDATE", "DELETE", "MERGE"}:
            at = commit["timestamp"]
            held = Stored(str(path), version=commit["version"]).to_pyarrow_table().to_pylist()
            valid = [r for r in kept if r["valid_from"] <= at and (r["valid_to"] is None or at < r["valid_to"])]
            assert sorted((r["id"], r["shop"], r["cents"]) for r in valid) == sorted(
                (r["id"], r["shop"], r["cents"]) for r in held
            )
    bounded = Lake(str(tmp_path / "bounded"), logs=lake.root)
    engine.run_bounded(operator, bounded, Interval())
    again = spark.read.format("delta").load(bounded.output("order_history__current")).collect()
    columns = ("id", "shop", "cents", "valid_from", "valid_to")
    assert Counter(tuple(r[c] for c in columns) for r in again) == Counter(tuple(r[c] for c in columns) for r in kept)


def test_a_broken_row_that_is_deleted_is_set_aside_twice_and_both_can_be_replayed(
    engine, spark, lake, tmp_path
) -> None:
    path = tmp_path / "orders"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (at timestamp, id bigint, shop string, cents bigint) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(
        f"INSERT INTO delta.`{path}` VALUES (timestamp '{START:%F %T}', 1, NULL, 5), (timestamp '{START:%F %T}', 2, 'a', 7)"
    )
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    engine.land(orders(path), lake)
    found = quarantine.show("orders", lake)
    assert [entry.reason for entry in found.newest] == ["shop: expected a valid string, got null"] * 2

    class Lenient(Order):
        shop: str | None = None

    lenient = Source("orders", contract=Lenient, connector=orders(path).connector, watermark=orders(path).watermark)
    assert engine.replay(lenient, lake).landed == 2
    rows = spark.read.format("delta").load(lake.log("orders")).where("id = 1").orderBy("_sequence").collect()
    assert [row["_kind"] for row in rows] == [0, -1]


def test_what_cannot_be_taken_back_exactly_is_refused(engine, spark, lake, path, tmp_path) -> None:
    with pytest.raises(ConnectorError, match=r'CONNECTOR-006 .*DeltaTable\(\.\.\., read="changes"\)'):
        engine.land(orders(path, read="appends"), lake)
    with pytest.raises(PlanError, match="PLAN-010 .*read was None and is changes"):
        engine.land(orders(path), lake)

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
        engine.land(orders(hidden), Lake(str(tmp_path / "other")))
