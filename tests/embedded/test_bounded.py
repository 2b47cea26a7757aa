"""Bounded runs on the embedded engine: Spark's rows, the oracles' answers, and what happens when a process of the engine dies."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable
from flights import BOUND_MINUTES, against_oracle
from pyspark.sql import SparkSession

from demo.oracle import Oracle
from floodmark import Daily, operator_asset
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.session import shared
from floodmark.engines.spark.bounded import run as on_spark
from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.schema import PARTITION
from operators.flights import busiest_hour, daily_carriers, hourly_departures, rolling_departures, split_delays

OPERATORS = [hourly_departures, rolling_departures, daily_carriers, busiest_hour, split_delays]
PARTITIONS = Daily("2013-01-01", timezone="America/New_York")
DIVIDED = [operator_asset(one, partitions=PARTITIONS).operator for one in (hourly_departures, split_delays)]
OWN = ["_progress", "_sequence", "_ingest_time"]
"""Stamps in which two runs may differ: when, and in which order of equals."""


def rows(lake: Lake, table: str) -> list[dict[str, object]]:
    found = DeltaTable(lake.output(table)).to_pyarrow_table().drop_columns(OWN)
    return sorted(found.to_pylist(), key=repr)


@pytest.fixture(scope="module")
def embedded(landed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("embedded")), logs=landed.root)
    for operator in OPERATORS:
        run_bounded(shared(), operator, lake)
    return lake


@pytest.fixture(scope="module")
def spark_lake(spark: SparkSession, landed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("spark")), logs=landed.root)
    for operator in OPERATORS:
        on_spark.run_bounded(spark, operator, lake)
    return lake


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_table_is_spark_s(embedded: Lake, spark_lake: Lake, operator: Operator) -> None:
    for output in (table for o in operator.outputs for table in (o, o.current) if table is not None):
        theirs, mine = rows(spark_lake, output.table), rows(embedded, output.table)
        assert mine == theirs, output.table
        assert theirs or output.side, "an output without rows shows nothing"


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_the_answer_is_duckdb_s(embedded: Lake, operator: Operator, flights_inbox: Path) -> None:
    for comparison in against_oracle(embedded, operator, Oracle(flights_inbox, bound_minutes=BOUND_MINUTES)):
        assert comparison.differences == 0, comparison.examples


@pytest.mark.parametrize("operator", DIVIDED, ids=lambda o: o.name)
def test_one_engine_goes_on_where_the_other_one_has_begun(
    spark: SparkSession, landed: Lake, spark_lake: Lake, tmp_path: Path, operator: Operator
) -> None:
    lake = Lake(str(tmp_path), logs=landed.root)
    first, second = (PARTITIONS.around(PARTITIONS.midnight(date(2013, 1, day))) for day in (1, 2))
    on_spark.run_bounded(spark, operator, lake, first)
    run_bounded(shared(), operator, lake, Interval(start=second.start))
    run_bounded(shared(), operator, lake, Interval(end=first.start))
    both = run_bounded(shared(), operator, lake)
    assert both.skipped
    assert not both.rows, "neither engine leaves anything to do"
    assert operator.outputs[0].partitions is not None
    for output in operator.outputs:
        found = rows(lake, output.table)
        if output.partitions is not None:
            assert {PARTITIONS.key(to_ms(row["_event_time"])) == row.pop(PARTITION) for row in found} == {True}
        assert sorted(found, key=repr) == rows(spark_lake, output.table)
