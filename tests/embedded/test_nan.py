"""Rows of NaN, which is greater than all numbers: whoever has written a log, conditions take them as in memory."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import BaseModel

import floodmark as fm
from floodmark.cli.asking.question import Question
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval, from_ms
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import last_values
from floodmark.lake.table.ranges import without_inexact
from floodmark.testing import Run
from floodmark.testing.lakes import as_written, outputs
from floodmark.testing.log import Log


class Inner(BaseModel):
    v: float | None


class Measured(fm.Contract):
    """Two numbers, and one in a part."""

    at: fm.EventTime
    v: float | None
    w: float
    inner: Inner | None


@fm.operator
def great(readings: fm.Stream[Measured]) -> fm.Stream:
    """All but one row pass."""
    return readings.filter("v > 5 OR v IS NULL OR v <> 2.5").select("v", "w", more="v + w")


@fm.operator
def inside(readings: fm.Stream[Measured]) -> fm.Stream:
    """As ``great``, of the number in the part."""
    return readings.filter("inner.v > 5 OR inner IS NULL").select("inner", "w")


@fm.operator
def sums(readings: fm.Stream[Measured]) -> fm.Stream:
    """Values that come out of those of a column."""
    made = readings.filter("NOT v <= 3").with_columns(k="if(isnan(v), 'nan', 'number')").key_by("k")
    return made.window(fm.Tumbling("1 s")).aggregate(n=fm.count(), most=fm.max("v"), least=fm.min("w"))


ROWS = [
    {"at": from_ms(n), "v": v, "w": 1.5, "inner": None if v is None else {"v": v}}
    for n, v in enumerate([math.nan, 2.5, math.nan, None, 2.5])
]


def written(operator: fm.Operator, path: str) -> None:
    """A log as delta-rs writes it: ranges without NaN in its files, and in its own entries."""
    log = Log(operator.inputs[0].schema)
    log.rows(ROWS, "at", 1000)
    log.end()
    write_deltalake(path, as_written(log.table()))
    assert pa.table(DeltaTable(path).get_add_actions(flatten=True))["max.v"].to_pylist() == [2.5]


def compare(engine: Computing, operator: fm.Operator, lake: Lake, mode: str = "bounded") -> None:
    """A run has the rows of one in memory."""
    if mode == "bounded":
        engine.run_bounded(operator, lake, Interval())
    else:
        engine.run_unbounded(operator, lake, until_caught_up=True)
    names, (output,) = [column.name for column in operator.outputs[0].schema.columns], operator.outputs
    found = [
        {name: row[name] for name in names}
        for row in outputs(lake, operator)[output.name].to_pylist()
        if row["_kind"] == 0
    ]
    (expected,) = Run("memory", mode)(operator, {"readings": ROWS}).values()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert found


@pytest.mark.parametrize(
    ("operator", "mode"),
    [(great, "bounded"), (sums, "bounded"), (inside, "bounded"), (inside, "unbounded")],
    ids=lambda given: getattr(given, "name", given),
)
def test_conditions_take_rows_of_nan_whatever_the_ranges_of_a_log_say(
    engine: Computing, tmp_path: Path, operator: fm.Operator, mode: str
) -> None:
    lake = Lake(str(tmp_path))
    written(operator, lake.input(operator.inputs[0]))
    compare(engine, operator, lake, mode)


@pytest.mark.parametrize("operator", [great, sums], ids=lambda operator: operator.name)
def test_conditions_take_rows_of_nan_whatever_the_ranges_of_a_file_say(
    engine: Computing, tmp_path: Path, operator: fm.Operator
) -> None:
    lake, elsewhere = Lake(str(tmp_path / "lake")), str(tmp_path / "log")
    written(operator, elsewhere)
    log = Path(lake.input(operator.inputs[0]))
    log.parent.mkdir(parents=True)
    assert without_inexact(elsewhere, 0, log) == (str(log), 0)
    compare(engine, operator, lake)


@fm.operator
def rolled(readings: fm.Stream[Measured]) -> fm.Stream:
    """With a table of last values."""
    return readings.with_columns(k="1").key_by("k").rolling(most=fm.max("v"), least=fm.min("w"))


def test_last_values_tell_no_ranges_of_floats(embedded: Computing, tmp_path: Path) -> None:
    lake, current = Lake(str(tmp_path)), rolled.outputs[0].current
    assert current is not None
    written(rolled, lake.input(rolled.inputs[0]))
    embedded.run_unbounded(rolled, lake, until_caught_up=True)
    merged, made = lake.output(current.table), str(tmp_path / "made")
    changelog = DeltaTable(lake.output(rolled.outputs[0].table))
    last_values.write(changelog.table_uri, changelog.version(), ["k"], made)
    for path in (merged, made):
        table = DeltaTable(path)
        assert table.to_pyarrow_table().select(["least"]).to_pylist() == [{"least": 1.5}]
        told = pa.table(table.get_add_actions(flatten=True))
        assert told["min.k"].to_pylist() == [1]
        assert {value for side in ("min", "max") for value in told[f"{side}.least"].to_pylist()} == {None}
        for name in table.file_uris():
            file = pq.ParquetFile(name)
            place = file.schema_arrow.names.index("least")
            assert not file.metadata.row_group(0).column(place).is_stats_set


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT w, MAX(v) AS most, MIN(v) AS least FROM readings GROUP BY w", [(1.5, math.nan, 2.5)]),
        ("SELECT MAX(v) AS most, COUNT(*) AS n FROM readings ORDER BY n LIMIT 1", [(math.nan, 5)]),
        ("SELECT MAX(v) AS most FROM readings WHERE w > 2", [(None,)]),
        ("SELECT w FROM readings WHERE v = (SELECT MIN(v) FROM readings) LIMIT 1", [(1.5,)]),
    ],
)
def test_extremes_of_a_question_take_nan_for_the_greatest_number(
    sail: Sail, tmp_path: Path, sql: str, expected: list[tuple[object, ...]]
) -> None:
    """As Spark and DuckDB do, though the plan of Sail itself takes it for none."""
    lake = Lake(str(tmp_path))
    written(great, lake.input(great.inputs[0]))
    readings = fm.Source("readings", contract=Measured, connector=fm.Files(str(tmp_path)), watermark=fm.Ascending())
    sail.begin()
    rows = Question(sql, fm.Workspace(sources=[readings], operators=[great]), lake, sail, "0 s").answer().to_pylist()
    assert [repr(tuple(row.values())) for row in rows] == [repr(row) for row in expected]
