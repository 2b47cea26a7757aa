"""Rows of NaN, which is greater than all numbers: whoever has written a log, conditions take them as in memory."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import floodmark as fm
from floodmark.control.engine import Computing
from floodmark.core.time import Interval, from_ms
from floodmark.lake.paths import Lake
from floodmark.lake.ranges import without_floats
from floodmark.testing import Run
from floodmark.testing.lakes import as_written, outputs
from floodmark.testing.log import Log


class Measured(fm.Contract):
    """Two numbers."""

    at: fm.EventTime
    v: float | None
    w: float


@fm.operator
def great(readings: fm.Stream[Measured]) -> fm.Stream:
    """All but one row pass."""
    return readings.filter("v > 5 OR v IS NULL OR v <> 2.5").select("v", "w", more="v + w")


@fm.operator
def sums(readings: fm.Stream[Measured]) -> fm.Stream:
    """Values that come out of those of a column."""
    made = readings.filter("NOT v <= 3").with_columns(k="if(isnan(v), 'nan', 'number')").key_by("k")
    return made.window(fm.Tumbling("1 s")).aggregate(n=fm.count(), most=fm.max("v"), least=fm.min("w"))


ROWS = [{"at": from_ms(n), "v": v, "w": 1.5} for n, v in enumerate([math.nan, 2.5, math.nan, None, 2.5])]


def written(operator: fm.Operator, path: str) -> None:
    """A log as delta-rs writes it: ranges without NaN in its files, and in its own entries."""
    log = Log(operator.inputs[0].schema)
    log.rows(ROWS, "at", 1000)
    log.end()
    write_deltalake(path, as_written(log.table()))
    assert pa.table(DeltaTable(path).get_add_actions(flatten=True))["max.v"].to_pylist() == [2.5]


def compare(engine: Computing, operator: fm.Operator, lake: Lake) -> None:
    """A bounded run has the rows of one in memory."""
    engine.run_bounded(operator, lake, Interval())
    names, (output,) = [column.name for column in operator.outputs[0].schema.columns], operator.outputs
    found = [{name: row[name] for name in names} for row in outputs(lake, operator)[output.name].to_pylist()]
    (expected,) = Run("memory", "bounded")(operator, {"readings": ROWS}).values()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert found


@pytest.mark.parametrize("operator", [great, sums], ids=lambda operator: operator.name)
def test_conditions_take_rows_of_nan_whatever_the_ranges_of_a_file_say(
    engine: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    lake, elsewhere = Lake(str(tmp_path / "lake")), str(tmp_path / "log")
    written(operator, elsewhere)
    log = Path(lake.input(operator.inputs[0]))
    log.parent.mkdir(parents=True)
    assert without_floats(elsewhere, 0, log) == (str(log), 0)
    compare(engine, operator, lake)


@pytest.mark.parametrize("operator", [great, sums], ids=lambda operator: operator.name)
def test_conditions_take_rows_of_nan_whatever_the_ranges_of_a_log_say(
    embedded: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    lake = Lake(str(tmp_path))
    written(operator, lake.input(operator.inputs[0]))
    compare(embedded, operator, lake)
