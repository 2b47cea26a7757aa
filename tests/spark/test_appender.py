"""Appends committed by delta-rs must be what Spark's own would be: same rows, same skipping, same transaction ids."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, Transaction

from floodmark.core.errors import LifecycleError
from floodmark.engines.spark.delta import appender as appending
from floodmark.engines.spark.delta.appender import Appender, append_by_spark, committed_by_spark
from floodmark.lake.table.commits import Ticked, encode
from floodmark.lake.writing.writer import FENCE, Writer

RECORD, OTHER = Ticked(operator="totals", batch=1), Ticked(operator="totals", batch=2)
DDL = "n bigint, t timestamp, s string, x double, b boolean, d date, p string"


@pytest.fixture(scope="module")
def rows(spark):
    """Values statistics get wrong: nulls, NaN, long texts, microseconds, both ends of time."""
    rng = random.Random(5)
    times = [
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1969, 12, 31, 23, 59, 59, 1),
    ]
    times += [dt.datetime(2013, 1, rng.randint(1, 28), 5, 0, 0, rng.randint(0, 999_999)) for _ in range(40)]
    data = [
        (
            rng.choice([None, rng.randint(-(2**62), 2**62)]),
            rng.choice([None, rng.choice(times)]),
            rng.choice([None, "", "é" * rng.randint(1, 60), "a", "zz"]),
            rng.choice([None, float("nan"), float("-inf"), rng.random()]),
            rng.choice([None, True, False]),
            rng.choice([None, dt.date(2013, 1, rng.randint(1, 28))]),
            rng.choice([None, "2013-01-01", "2013-01-02"]),
        )
        for _ in range(300)
    ]
    return spark.createDataFrame(data, DDL)


def tables(spark, tmp_path, rows, *, partition_by=()):
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (ours, theirs):
        rows.limit(0).write.format("delta").partitionBy(*partition_by).save(path)
    parts = [rows.filter("n % 2 = 0"), rows.filter("n % 2 <> 0 OR n IS NULL"), rows.filter("t IS NULL").coalesce(1)]
    appender = Appender(ours)
    for number, part in enumerate(parts):
        assert appender.append(part, "app", number, RECORD, partition_by=partition_by)
        append_by_spark(part, theirs, "app", number, RECORD)
    return ours, theirs


@pytest.fixture(scope="module", params=[pytest.param((), marks=pytest.mark.soak), ("p",)], ids=["whole", "divided"])
def both(spark, rows, request, tmp_path_factory):
    """The rows as delta-rs and as Spark have appended them, in tables that are divided or not."""
    paths = tables(spark, tmp_path_factory.mktemp("both"), rows, partition_by=request.param)
    return tuple(spark.read.format("delta").load(path) for path in paths)


def test_the_rows_are_those_of_sparks_own_append(both):
    ours, theirs = both
    assert ours.count() == theirs.count() > 300
    assert ours.exceptAll(theirs).isEmpty()
    assert theirs.exceptAll(ours).isEmpty()


def test_no_row_is_skipped_that_a_filter_wants(both):
    ours, theirs = both
    wanted = [
        "t > '9999-01-01'",
        "t < '0002-01-01'",
        "t BETWEEN '2013-01-05 05:00:00.000001' AND '2013-01-05 05:00:00.999999'",
    ]
    wanted += [
        "s >= 'é'",
        "s = ''",
        "s IS NULL",
        "x = double('NaN')",
        "x > 0.5",
        "b",
        "d = '2013-01-03'",
        "n < 0",
        "n IS NULL",
    ]
    wanted += [
        f"t = timestamp'{row.t}'"
        for row in theirs.filter("t IS NOT NULL").selectExpr("CAST(t AS STRING) AS t").distinct().limit(1).collect()
    ]
    counts = theirs.selectExpr(*(f"count_if({condition}) AS `{n}`" for n, condition in enumerate(wanted))).first()
    for condition, count in zip(wanted, counts, strict=True):
        assert ours.filter(condition).count() == count, condition
    assert max(counts) > 0


def test_files_out_of_range_are_skipped(spark, tmp_path):
    path = str(tmp_path / "t")
    days = spark.range(10).selectExpr("timestampadd(DAY, id, timestamp'2013-01-01') AS t")
    days.limit(0).write.format("delta").save(path)
    for number in range(10):
        Appender(path).append(days.filter(f"day(t) = {number + 1}").coalesce(1), "app", number, RECORD)
    assert len(spark.read.format("delta").load(path).filter("t >= '2013-01-09'").inputFiles()) == 2


@pytest.mark.feature("E5")
def test_the_same_number_is_appended_once_whoever_comes_second(spark, tmp_path):
    path, row = str(tmp_path / "t"), spark.range(1)
    row.limit(0).write.format("delta").save(path)
    assert Appender(path).append(row, "app", 7, RECORD)
    assert not Appender(path).append(row, "app", 7, RECORD)
    assert not Appender(path).append(row, "app", 3, RECORD)
    append_by_spark(row, path, "app", 7, RECORD)
    append_by_spark(row, path, "app", 8, RECORD)
    assert not Appender(path).append(row, "app", 8, RECORD)
    assert Appender(path).append(row, "other", 8, OTHER)
    assert spark.read.format("delta").load(path).count() == 3
    assert SparkTable.forPath(spark, path).history(1).collect()[0].userMetadata == encode(OTHER)


def test_an_appender_sees_what_others_have_committed(spark, tmp_path):
    path, row = str(tmp_path / "t"), spark.range(1)
    row.limit(0).write.format("delta").save(path)
    ours = Appender(path)
    ours.append(row, "app", 0, RECORD)
    append_by_spark(row, path, "app", 1, RECORD)
    SparkTable.forPath(spark, path).delete("id = 0")
    assert not ours.append(row, "app", 1, RECORD)
    assert ours.append(row, "app", 2, RECORD)
    assert DeltaTable(path).to_pyarrow_table().num_rows == spark.read.format("delta").load(path).count() == 1


def test_partition_values_that_need_quoting_come_back(spark, tmp_path):
    path = str(tmp_path / "t")
    rows = spark.createDataFrame([(1, "a b"), (2, "x/y=z%41:é"), (3, None)], "n bigint, p string")
    rows.limit(0).write.format("delta").partitionBy("p").save(path)
    Appender(path).append(rows, "app", 0, RECORD, partition_by=("p",))
    found = {row.n: row.p for row in spark.read.format("delta").load(path).collect()}
    assert found == {1: "a b", 2: "x/y=z%41:é", 3: None}
    assert {r["n"]: r["p"] for r in DeltaTable(path).to_pyarrow_table().to_pylist()} == found


def stamped(spark, *days: int):
    """A row at noon of each day of January 2013; a marker for day 0."""
    found = [(day, dt.datetime(2013, 1, day, 12) if day else None, 0 if day else 1) for day in days]
    return spark.createDataFrame(found, "n bigint, _event_time timestamp, _kind int")


def between(first: int, last: int) -> tuple[dt.datetime, dt.datetime]:
    zone = dt.UTC
    return dt.datetime(2013, 1, first, tzinfo=zone), dt.datetime(2013, 1, last, 23, 59, 59, 999000, tzinfo=zone)


def days_of(spark, path: str) -> list[int]:
    return sorted(row.n for row in spark.read.format("delta").load(path).collect())


def test_whole_files_are_replaced_and_nothing_else(spark, tmp_path):
    path = str(tmp_path / "t")
    stamped(spark, 1).limit(0).write.format("delta").save(path)
    table = Appender(path)
    for number, day in enumerate((1, 2, 3, 0)):
        table.append(stamped(spark, day).coalesce(1), "app", number, RECORD)
    written = table.write(stamped(spark, 2, 2, 2))
    assert written.kinds() == {0: 3}
    assert table.replace(written, *between(2, 3), RECORD)
    assert days_of(spark, path) == [0, 1, 2, 2, 2]
    assert SparkTable.forPath(spark, path).history(1).collect()[0].userMetadata == encode(RECORD)


def test_a_file_that_holds_more_than_the_interval_is_not_replaced_whole(spark, tmp_path):
    path = str(tmp_path / "t")
    stamped(spark, 1).limit(0).write.format("delta").save(path)
    table = Appender(path)
    table.append(stamped(spark, 1, 2).coalesce(1), "app", 0, RECORD)
    assert not table.replace(table.write(stamped(spark, 2, 2)), *between(2, 2), RECORD)
    table.append(stamped(spark, 5, 0).coalesce(1), "app", 1, RECORD)
    assert not table.replace(table.write(stamped(spark, 5, 5)), *between(5, 5), RECORD)
    assert days_of(spark, path) == [0, 1, 2, 5]


def test_replacing_by_nothing_takes_the_rows_away_and_leaves_its_mark(spark, tmp_path):
    path = str(tmp_path / "t")
    stamped(spark, 1).limit(0).write.format("delta").save(path)
    table = Appender(path)
    table.append(stamped(spark, 1).coalesce(1), "app", 0, RECORD)
    for record in (RECORD, OTHER):
        assert table.replace(table.write(stamped(spark, 1).limit(0)), *between(1, 1), record)
        assert SparkTable.forPath(spark, path).history(1).collect()[0].userMetadata == encode(record)
    assert days_of(spark, path) == []


def test_a_writer_that_comes_in_between_is_waited_for(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    stamped(spark, 1).limit(0).write.format("delta").save(path)
    ours, theirs = Appender(path), Appender(path)
    ours.append(stamped(spark, 1).coalesce(1), "app", 0, RECORD)
    written, other = ours.write(stamped(spark, 1, 1)), theirs.write(stamped(spark, 1, 1, 1))
    stale, looks = DeltaTable(path), []
    assert theirs.replace(other, *between(1, 1), RECORD)

    def first_too_old(_) -> DeltaTable:
        looks.append(0)
        return stale if len(looks) == 1 else DeltaTable(path)

    monkeypatch.setattr(Writer, "table", first_too_old)
    assert ours.replace(written, *between(1, 1), RECORD)
    assert len(looks) == 2
    assert days_of(spark, path) == [1, 1]


def test_a_fence_is_seen_on_every_file_system(spark, tmp_path, rows, monkeypatch):
    path = str(tmp_path / "table")
    rows.limit(0).write.format("delta").save(path)
    monkeypatch.setattr(appending, "is_reached", lambda _: False)
    appender = Appender(path)
    assert committed_by_spark(spark, path, "app") is None
    assert appender.append(rows, "app", 3, RECORD)
    assert committed_by_spark(spark, path, "app") == 3
    assert not appender.append(rows, "app", 3, RECORD)
    table = DeltaTable(path)
    fence = CommitProperties(app_transactions=[Transaction("app", FENCE)])
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=fence)
    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        appender.append(rows, "app", 4, RECORD)
    assert spark.read.format("delta").load(path).count() == 300
