"""A table's changes as an input: what a table holds in the end is what an operator over its changes says, however they came."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable as Table
from deltalake import DeltaTable as Stored
from deltalake import write_deltalake
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


@pytest.fixture(scope="module", params=["delta-rs", pytest.param("spark", marks=[pytest.mark.soak, pytest.mark.spark])])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with files of changes, by one writer or another."""
    path = tmp_path_factory.mktemp("written") / "orders"
    if request.param == "spark":
        write(request.getfixturevalue("spark"), path, change_files=True)
    else:
        write_by_delta_rs(path)
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


def write_by_delta_rs(path: Path) -> None:
    """The same lives by another writer, with small files that are compacted."""
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("shop", pa.string()), ("cents", pa.int64())]
    )
    settings = {"delta.enableChangeDataFeed": "true"}
    Stored.create(str(path), schema, partition_by=["shop"], configuration=settings)

    def some(first: int, last: int, factor: int) -> pa.Table:
        rows = [
            {"at": START + timedelta(minutes=n), "id": n, "shop": "ab"[n % 2], "cents": n * factor}
            for n in range(first, last)
        ]
        return pa.Table.from_pylist(rows, schema=schema)

    for first in (0, 100):
        write_deltalake(str(path), some(first, first + 100, 10), mode="append")
    table = Stored(str(path))
    table.update(updates={"cents": "cents + 1"}, predicate="id % 10 = 3")
    table.update(updates={"at": "at + interval '90 minutes'"}, predicate="id = 20")
    table.delete("id % 7 = 0")
    merge = table.merge(some(150, 260, 7), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    write_deltalake(str(path), some(260, 264, 7), mode="append")
    table = Stored(str(path))
    assert table.optimize.compact()["numFilesAdded"]
    table.update(updates={"shop": "'c'"}, predicate="shop = 'a' AND id < 40")
    replaced = some(100, 320, 5)
    replaced = replaced.filter(pc.equal(replaced["shop"], "b"))
    write_deltalake(str(path), replaced, mode="overwrite", predicate="shop = 'b'")
    Stored(str(path)).delete("shop = 'c' AND id > 30")


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


@pytest.fixture(scope="module")
def updated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of Spark's, whose writer puts both halves of an update side by side."""
    path = tmp_path_factory.mktemp("updated") / "orders"
    at = f"timestampadd(MINUTE, id, timestamp'{START:%Y-%m-%d}') AS at"
    frame = spark.range(40).selectExpr(at, "id", "'b' AS shop", "id AS cents")
    spark.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
    frame.write.format("delta").save(str(path))
    spark.conf.unset("spark.databricks.delta.properties.defaults.enableChangeDataFeed")
    Table.forPath(spark, str(path)).update("id % 10 = 3", {"cents": "cents + 1"})
    return path


@pytest.mark.engines("embedded", "spark")
def test_an_update_is_one_change_and_both_halves_are_judged_alike(engine, lake, updated) -> None:
    engine.land(orders(updated), lake)
    log = Stored(lake.log("orders")).to_pyarrow_table().sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    halves = [row for row in log.to_pylist() if row["id"] is not None and row["id"] % 10 == 3]
    pairs = [(was, now) for was, now in pairwise(halves) if was["_sequence"] == now["_sequence"]]
    assert len(pairs) == 4
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
def test_the_history_of_a_table_has_what_it_held_at_every_version(engine, lake, path, tmp_path) -> None:
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
    kept = Stored(lake.output("order_history__current")).to_pyarrow_table().to_pylist()
    assert {row["change"] for row in kept} == {"insert", "update_postimage"}
    for commit in Stored(str(path)).history():
        if commit["operation"] in {"UPDATE", "DELETE", "MERGE"}:
            at = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
            held = Stored(str(path), version=commit["version"]).to_pyarrow_table().to_pylist()
            valid = [r for r in kept if r["valid_from"] <= at and (r["valid_to"] is None or at < r["valid_to"])]
            assert sorted((r["id"], r["shop"], r["cents"]) for r in valid) == sorted(
                (r["id"], r["shop"], r["cents"]) for r in held
            )
    bounded = Lake(str(tmp_path / "bounded"), logs=lake.root)
    engine.run_bounded(operator, bounded, Interval())
    again = Stored(bounded.output("order_history__current")).to_pyarrow_table().to_pylist()
    columns = ("id", "shop", "cents", "valid_from", "valid_to")
    assert Counter(tuple(r[c] for c in columns) for r in again) == Counter(tuple(r[c] for c in columns) for r in kept)


def test_a_broken_row_that_is_deleted_is_set_aside_twice_and_both_can_be_replayed(engine, lake, tmp_path) -> None:
    path = tmp_path / "orders"
    rows = [{"at": START, "id": 1, "shop": None, "cents": 5}, {"at": START, "id": 2, "shop": "a", "cents": 7}]
    settings = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(path), pa.Table.from_pylist(rows), configuration=settings)
    Stored(str(path)).delete("id = 1")
    engine.land(orders(path), lake)
    found = quarantine.show("orders", lake)
    assert [entry.reason for entry in found.newest] == ["shop: expected a valid string, got null"] * 2

    class Lenient(Order):
        shop: str | None = None

    lenient = Source("orders", contract=Lenient, connector=orders(path).connector, watermark=orders(path).watermark)
    assert engine.replay(lenient, lake).landed == 2
    landed = Stored(lake.log("orders")).to_pyarrow_table().sort_by("_sequence").to_pylist()
    assert [row["_kind"] for row in landed if row["id"] == 1] == [0, -1]


def test_what_cannot_be_taken_back_exactly_is_refused(engine, lake, path) -> None:
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


def test_rows_that_deletion_vectors_take_out_are_refused(engine, lake, path) -> None:
    """As a writer says so in the log."""
    entries = sorted((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    newest = [action["add"] for action in actions if "add" in action][-1]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 36, "cardinality": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "changeDataFeed"]}
    removed = {"path": newest["path"], "dataChange": True, "deletionTimestamp": 0, "partitionValues": {}}
    written = [
        {"commitInfo": {"timestamp": int(START.timestamp() * 1000), "operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": removed},
        {"add": newest | {"deletionVector": vector | {"offset": 1}}},
    ]
    entry = path / "_delta_log" / f"{len(entries):020}.json"
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in written))
    with pytest.raises(ConnectorError, match=r"CONNECTOR-008 .*deletion vectors \(DELETE\)"):
        engine.land(orders(path), lake)


@pytest.mark.soak
def test_rows_that_deletion_vectors_of_spark_take_out_are_refused(engine, spark, path, tmp_path) -> None:
    hidden = tmp_path / "hidden"
    spark.sql(f"CREATE TABLE delta.`{hidden}` USING delta AS SELECT * FROM delta.`{path}`")
    spark.sql(f"ALTER TABLE delta.`{hidden}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM delta.`{hidden}` WHERE id = 301")
    with pytest.raises(ConnectorError, match=r"CONNECTOR-008 .*deletion vectors \(DELETE\)"):
        engine.land(orders(hidden), Lake(str(tmp_path / "other")))
