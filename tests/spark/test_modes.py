"""One definition, two modes, one answer: every operator of the workspace, bounded and unbounded, against DuckDB."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from flights import BOUND_MINUTES, against_oracle, changelog
from pyspark.sql import SparkSession

from demo.comparison import compare
from demo.oracle import Oracle
from demo.tables import final
from floodmark import Daily, operator_asset
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval, to_ms
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import PARTITION
from operators.flights import busiest_hour, daily_carriers, hourly_departures, rolling_departures, split_delays

pytestmark = pytest.mark.usefixtures("compiled")

OPERATORS = [hourly_departures, rolling_departures, daily_carriers, busiest_hour, split_delays]
PARTITIONS = Daily("2013-01-01", timezone="America/New_York")
DIVIDED = [operator_asset(one, partitions=PARTITIONS).operator for one in (hourly_departures, split_delays)]
OWN = ["_progress", "_sequence", "_ingest_time"]
"""Stamps in which two runs may differ: when, and in which order of equals."""


@pytest.fixture(scope="module")
def oracle(flights_inbox: Path) -> Oracle:
    return Oracle(flights_inbox, bound_minutes=BOUND_MINUTES)


@pytest.fixture(scope="module")
def bounded(spark: SparkSession, landed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("bounded")), logs=landed.root)
    for operator in OPERATORS:
        run_bounded(spark, operator, lake)
    return lake


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(hourly_departures, marks=pytest.mark.feature("W1", "K3")),
        pytest.param(rolling_departures, marks=pytest.mark.feature("W2")),
        pytest.param(daily_carriers, marks=pytest.mark.feature("X2")),
        pytest.param(busiest_hour, marks=pytest.mark.feature("W19")),
        pytest.param(split_delays, marks=pytest.mark.feature("K1", "X8")),
    ],
    ids=lambda o: o.name,
)
def test_bounded_is_what_duckdb_says(bounded: Lake, operator: Operator, oracle: Oracle) -> None:
    for comparison in against_oracle(bounded, operator, oracle):
        assert comparison.differences == 0, comparison.examples
    if operator.stateful and operator is not busiest_hour:  # late rows of chains: tests/property/test_chains.py
        lateness = oracle.lateness(operator.name)
        assert lateness["late"], "nothing was late: the case is empty"


def rows(lake: Lake, table: str) -> list[dict[str, object]]:
    """Rows of an output with the stamps in which two runs may not differ, in any order."""
    found = DeltaTable(lake.output(table)).to_pyarrow_table().drop_columns(OWN)
    return sorted(found.to_pylist(), key=repr)


@pytest.fixture(scope="module")
def on_sail(embedded: Computing, landed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same on the embedded engine."""
    lake = Lake(str(tmp_path_factory.mktemp("embedded")), logs=landed.root)
    for operator in OPERATORS:
        embedded.run_bounded(operator, lake, Interval())
    return lake


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_table_of_the_embedded_engine_is_sparks(on_sail: Lake, bounded: Lake, operator: Operator) -> None:
    for output in (table for o in operator.outputs for table in (o, o.current) if table is not None):
        theirs, mine = rows(bounded, output.table), rows(on_sail, output.table)
        assert mine == theirs, output.table
        assert theirs or output.side, "an output without rows shows nothing"


@pytest.mark.parametrize(
    "operator", [DIVIDED[0], *(pytest.param(o, marks=pytest.mark.soak) for o in DIVIDED[1:])], ids=lambda o: o.name
)
def test_one_engine_goes_on_where_the_other_one_has_begun(
    spark: SparkSession, embedded: Computing, landed: Lake, bounded: Lake, tmp_path: Path, operator: Operator
) -> None:
    lake = Lake(str(tmp_path), logs=landed.root)
    first, second = (PARTITIONS.around(PARTITIONS.midnight(date(2013, 1, day))) for day in (1, 2))
    run_bounded(spark, operator, lake, first)
    embedded.run_bounded(operator, lake, Interval(start=second.start))
    embedded.run_bounded(operator, lake, Interval(end=first.start))
    both = embedded.run_bounded(operator, lake, Interval())
    assert both.skipped
    assert not both.rows, "neither engine leaves anything to do"
    assert operator.outputs[0].partitions is not None
    for output in operator.outputs:
        found = rows(lake, output.table)
        if output.partitions is not None:
            assert {PARTITIONS.key(to_ms(row["_event_time"])) == row.pop(PARTITION) for row in found} == {True}
        assert sorted(found, key=repr) == rows(bounded, output.table)


@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param(2, marks=pytest.mark.feature("W11", "Q7", "B1", "B9", "E6", "Y5")),
        *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 5)),
    ],
)
def test_unbounded_is_bounded_whatever_the_cuts_and_state_partitions(
    spark: SparkSession, landed: Lake, bounded: Lake, tmp_path: Path, partitions: int
) -> None:
    lake, rng = Lake(str(tmp_path), logs=landed.root), random.Random(partitions)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    chosen = OPERATORS if partitions == 5 else [hourly_departures, busiest_hour]
    try:
        for operator in chosen:
            result = run_unbounded(spark, operator, lake, until_caught_up=True, files_per_batch=rng.randint(6, 11))
            assert result.micro_batches >= 1
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    for operator in chosen:
        for output in operator.outputs:
            mine, theirs = changelog(lake, output.table), changelog(bounded, output.table)
            if operator is busiest_hour:  # on an operator's output only the last values are promised
                mine, theirs = (
                    final(DeltaTable(x.output(output.table)).to_pyarrow_table(), output) for x in (lake, bounded)
                )
            found = compare(mine, theirs, names=("unbounded", "bounded"))
            assert found.differences == 0, (output.table, found.examples)
            if output.current:
                current = DeltaTable(lake.output(output.current.table)).to_pyarrow_table()
                last = final(DeltaTable(lake.output(output.table)).to_pyarrow_table(), output)
                assert compare(current.select(last.column_names), last, keys=output.keys).differences == 0


@pytest.mark.soak
@pytest.mark.feature("W11", "B9")
def test_stepwise_landing_and_restarts_change_nothing(
    engine: Computing, embedded: Computing, flights_inbox: Path, bounded: Lake, tmp_path: Path
) -> None:
    """Land some, run the chain, land more: every run is a restart, and the chain's second link sees every cut of the first."""
    from flights import land_all

    lake, rng = Lake(str(tmp_path)), random.Random(7)
    rest = 20
    while rest:
        step = min(rest, rng.choice([7, 8]))
        rest -= step
        land_all(embedded, flights_inbox, lake, end=rest == 0, max_commits=step if rest else None)
        for operator in (hourly_departures, busiest_hour):
            engine.run_unbounded(operator, lake, until_caught_up=True, files_per_batch=rng.choice([None, 2]))
    for operator in (hourly_departures, busiest_hour):
        output = operator.outputs[0]
        mine, theirs = (final(DeltaTable(x.output(output.table)).to_pyarrow_table(), output) for x in (lake, bounded))
        assert compare(mine, theirs, keys=output.keys).differences == 0
    late = hourly_departures.output("late").table
    assert compare(changelog(lake, late), changelog(bounded, late)).differences == 0


def test_output_rows_say_no_more_progress_than_is_true(engine: Computing, landed: Lake, tmp_path: Path) -> None:
    """Every on-time row of a commit has an event time after the progress that commit says is complete."""
    lake = Lake(str(tmp_path), logs=landed.root)
    engine.run_unbounded(rolling_departures, lake, until_caught_up=True, files_per_batch=3)
    rows = DeltaTable(lake.output("rolling_departures")).to_pyarrow_table()
    on_time = rows.filter(pc.equal(rows["_kind"], 0))
    assert on_time.num_rows
    ms = pc.divide(pc.cast(on_time["_event_time"], "int64"), 1000)
    assert pc.all(pc.greater(ms, on_time["_progress"])).as_py()
