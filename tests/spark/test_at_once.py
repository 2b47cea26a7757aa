"""Small micro-batches of stateless steps, written in one job of Spark, beside the same ones that are counted, judged and written one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from every_type import NINE, Everything
from judged_readings import BEGIN, Reading, between, expecting, warm
from pyspark.sql import SparkSession

import floodmark as fm
from floodmark.core.errors import ExecutionError
from floodmark.engines.spark.unbounded import at_once, sink
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

COUNTED = (
    between("quarantine", "celsius"),
    fm.Expectation("column_values_to_not_be_null", column="fahrenheit", on_fail="warn", mostly=0.1),
    fm.Expectation("column_values_to_match_regex", column="sensor", regex="^a$", on_fail="warn"),
    fm.Expectation("table_row_count_to_be_between", min_value=2, on_fail="warn"),
)
"""Expectations that count rows, and one whose rows are set aside."""


@fm.operator
def everything(rows: fm.Stream[Everything]) -> fm.Stream:
    """A column of every type, and some that are computed."""
    return rows.filter("whole IS NULL OR whole % 5 <> 0").with_columns(
        more="real * 2", first="size(tags)", note="'ü' || key"
    )


@fm.operator
def divided(readings: fm.Stream[Reading]) -> fm.Stream:
    """A quotient; rows for which it fails are set aside."""
    return readings.select("at", "sensor", share="100 / CAST(celsius AS int)", on_error="quarantine")


@fm.operator
def joined(readings: fm.Stream[Reading]) -> fm.Stream:
    """Rows that come together again: the micro-batch is read once per branch."""
    return readings.filter("celsius < 10").union(readings.filter("celsius >= 10"))


@fm.operator
def halted(readings: fm.Stream[Reading]) -> fm.Stream:
    """A quotient; the stream stops at a row for which the quotient fails."""
    return readings.select("at", "sensor", share="100 / CAST(celsius AS int)")


def values(number: int) -> dict[str, Any]:
    return {
        "at": NINE + timedelta(seconds=number),
        "key": f"k{number}",
        "yes": number % 2 == 0,
        "whole": 2**63 - 1 - number,
        "real": (-0.0, float("nan"), float("inf"), 0.1)[number % 4],
        "exact": Decimal("12345678.90") + number,
        "day": date(2024, 2, 29) - timedelta(days=number * 365),
        "moment": datetime(1999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC) - timedelta(days=1_000 * number),
        "raw": b"\x00\xff" * number,
        "tags": ["a", ""][: number % 3],
        "labels": {"one": 1, "two": number} if number % 2 else {},
        "address": {"city": "Köln", "zip": None},
        "nothing": None if number % 3 else number,
    }


def readings(number: int) -> dict[str, Any]:
    celsius = (1.0, 99.0, None, 50.0, 3.0, -273.15, 0.4, 20.0)[number % 8]
    return {"at": BEGIN + timedelta(minutes=10 * number), "sensor": "ab"[number % 2], "celsius": celsius}


def streamed(
    spark: SparkSession, code: fm.Operator, row: Callable[[int], dict[str, Any]], lake: Lake
) -> tuple[list[BatchInfo], dict[str, list[str]], int]:
    """(micro-batches, rows of each output, jobs of Spark) of a stream that reads four commits one by one; the third has no row."""
    log, batches, jobs = Log(code.inputs[0].schema), list[BatchInfo](), list[int]()
    for piece in (range(3), range(3, 14), (), (5, 5)):
        first = len(log.entries)
        log.rows([row(number) for number in piece], "at", 60_000)
        if not piece:
            log.move(log.watermark + 1)
        land(lake, code, log, first)

    def told(batch: BatchInfo) -> None:
        batches.append(batch)
        jobs.append(int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId()))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink, "PROGRESS_SECONDS", 1e9)  # no marker of a quarantine without rows, on a slow machine too
        run_unbounded(spark, code, lake, until_caught_up=True, files_per_batch=1, on_batch=told)
    rows = {}
    for output in code.outputs:
        path = lake.output(output.table)
        whole = DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []
        rows[output.name] = sorted(repr({**one, "_ingest_time": None}) for one in whole)  # as NaN equals nothing
    return batches, rows, jobs[-1] - jobs[0]


@contextmanager
def one_after_the_other() -> Iterator[None]:
    """No micro-batch is written at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_once, "allows", lambda *_: False)
        yield


@pytest.mark.feature("Z11", "Z32")
@pytest.mark.parametrize(
    ("code", "row"),
    [
        pytest.param(everything, values, id="every type"),
        pytest.param(expecting(warm, *COUNTED), readings, id="expectations"),
        pytest.param(divided, readings, id="quotients"),
        pytest.param(joined, readings, id="union", marks=pytest.mark.soak),
        pytest.param(expecting(warm, between("warn", "fahrenheit")), readings, id="warned", marks=pytest.mark.soak),
    ],
)
def test_rows_and_counts_are_those_of_micro_batches_that_are_counted_first(
    spark: SparkSession, tmp_path: Path, code: fm.Operator, row: Callable[[int], dict[str, Any]]
) -> None:
    batches, rows, jobs = streamed(spark, code, row, Lake(str(tmp_path / "at_once")))
    with one_after_the_other():
        others, wanted, more = streamed(spark, code, row, Lake(str(tmp_path / "apart")))
    assert rows == wanted
    assert any(f"'_kind': {ROW}" in one for one in rows[""])
    assert [_counts(one) for one in batches] == [_counts(one) for one in others]
    assert (jobs < more) is at_once.allows(code, str(tmp_path))


def _counts(batch: BatchInfo) -> tuple[Any, ...]:
    read = {name: at._replace(table="") for name, at in batch.read.items()}
    return batch.batch_id, batch.rows_in, batch.rows, batch.unmet, batch.progress, read


def test_a_stream_that_stops_at_an_expectation_commits_nothing_and_names_rows(spark: SparkSession, lake: Lake) -> None:
    code = expecting(warm, between("stop", "celsius"))
    log = Log(code.inputs[0].schema)
    for first, last in ((0, 1), (4, 5), (0, 4)):
        entries = len(log.entries)
        log.rows([readings(number) for number in range(first, last)], "at", 60_000)
        land(lake, code, log, entries)
    with pytest.raises(ExecutionError, match="EXECUTION-090") as stopped:
        run_unbounded(spark, code, lake, until_caught_up=True, files_per_batch=1)
    assert "2 of 3 rows, for example 99.0" in stopped.value.got
    written = DeltaTable(lake.output("warm")).to_pyarrow_table().filter(pc.field("_kind") == ROW).to_pylist()
    assert sorted(one["celsius"] for one in written) == [1.0, 3.0]


def test_a_stream_that_stops_at_an_expression_names_the_row_and_commits_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    errors = []
    for lake, patch in (
        (Lake(str(tmp_path / "at_once")), nullcontext()),
        (Lake(str(tmp_path / "apart")), one_after_the_other()),
    ):
        log = Log(halted.inputs[0].schema)
        for numbers in ((0,), (4,), (0, 6, 4)):
            entries = len(log.entries)
            log.rows([readings(number) for number in numbers], "at", 60_000)
            land(lake, halted, log, entries)
        with patch, pytest.raises(ExecutionError, match="EXECUTION-050") as stopped:
            run_unbounded(spark, halted, lake, until_caught_up=True, files_per_batch=1)
        errors.append(str(stopped.value))
        written = DeltaTable(lake.output("halted")).to_pyarrow_table().filter(pc.field("_kind") == ROW)
        assert len(written) == 2
    assert errors[0] == errors[1]
