"""What a worker of Spark does with a small micro-batch: it writes good rows, in order, with a marker behind them, and counts; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import every_type
import pyarrow as pa
import pyarrow.parquet as pq
from every_type import NINE
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from floodmark.engines.spark.unbounded import at_once
from floodmark.lake.table.rows import marker, row_schema
from floodmark.spec.values.schema import FAILED, MARKER, RETRACTION, ROW, Column, Schema

SCHEMA = Schema((Column(name="n", type="bigint"), Column(name="tags", type="array<string>")))


class Frame:
    """Stands for a frame of Spark, whose rows have their flags already."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches, self.asked = batches, tuple[str, ...]()

    def selectExpr(self, *texts: str) -> Self:  # noqa: N802 - of Spark
        self.asked = texts
        return self

    def coalesce(self, tasks: int) -> Self:
        assert tasks == 1
        return self

    def mapInArrow(self, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Self:  # noqa: N802 - of Spark
        self.batches = list(run(iter(self.batches))) if self.batches else []
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]


def batch(first: int, *kinds: int) -> pa.RecordBatch:
    """Rows of some kinds, with null stamps; every second one has the flag, as Spark gives lists: with a name of its own, in another order."""
    count = len(kinds)
    columns: dict[str, pa.Array] = {
        "_kind": pa.array(kinds, pa.int32()),
        "tags": pa.array([["a"] * (n % 3) for n in range(count)], pa.list_(pa.field("element", pa.string()))),
        "n": pa.array(range(first, first + count), pa.int64()),
        "_flag_0": pa.array([kind == ROW for kind in kinds], pa.bool_()),
        "_flag_1": pa.array([kind == ROW and n % 2 == 0 for n, kind in enumerate(kinds)], pa.bool_()),
    }
    others = [field for field in row_schema(SCHEMA) if field.name not in columns]
    columns |= {field.name: pa.nulls(count, field.type) for field in others}
    return pa.RecordBatch.from_pydict(columns)


def written(batches: list[pa.RecordBatch], path: Path) -> tuple[at_once.Rows, pa.Table, Frame]:
    """(what is told, rows of the file, the frame) of some batches."""
    path.mkdir()
    mark = pa.Table.from_batches([marker(SCHEMA, watermark=7, sequence=None, now=0)])
    frame: Any = Frame(batches)
    rows = at_once.write(frame, ["true", "n > 1"], mark, str(path))
    (file,) = rows.written.files
    return rows, pq.read_table(file), frame


def test_rows_that_failed_are_counted_and_not_written_and_the_marker_is_the_last_row(tmp_path: Path) -> None:
    batches = [batch(0, ROW, FAILED, RETRACTION, ROW), batch(4), batch(4, FAILED, ROW)]
    rows, table, frame = written(batches, tmp_path / "table")
    assert rows.kinds == Counter({ROW: 3, FAILED: 2, RETRACTION: 1})
    assert rows.counts == (3, 1)
    assert table["n"].to_pylist() == [0, 2, 3, 5, None]
    assert table["_kind"].to_pylist() == [ROW, RETRACTION, ROW, ROW, MARKER]
    assert table["tags"].to_pylist() == [[], ["a", "a"], [], ["a"], None]
    assert table.schema.equals(row_schema(SCHEMA))
    assert [text.partition(" AS ")[2] for text in frame.asked] == ["", "_flag_0", "_flag_1"]
    assert rows.written.kinds()[ROW] == 3


def test_a_micro_batch_without_a_file_to_read_is_a_marker(tmp_path: Path) -> None:
    rows, table, _ = written([], tmp_path / "table")
    assert (rows.kinds, rows.counts) == (Counter(), (0, 0))
    assert table["_kind"].to_pylist() == [MARKER]
    assert len(list((tmp_path / "table").iterdir())) == 1


def test_columns_of_every_type_are_written_as_spark_sends_them(tmp_path: Path) -> None:
    """As its own Arrow types are: other names and nullability inside of lists, maps and structs than those of a table."""
    schema = every_type.passing.inputs[0].schema
    structure = from_arrow_schema(row_schema(schema).append(pa.field("_flag_0", pa.bool_())))
    values = {
        "at": NINE,
        "key": "k",
        "yes": True,
        "whole": 2**63 - 1,
        "real": -0.5,
        "exact": Decimal("12345678.90"),
        "day": date(2024, 2, 29),
        "moment": datetime(1999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
        "raw": b"\x00\xff",
        "tags": ["a", "", None],
        "labels": [("one", 1), ("none", None)],
        "address": {"city": "Köln", "zip": None},
        "nothing": None,
    }
    stamps = {"_event_time": NINE, "_watermark": 1, "_progress": 2, "_sequence": 3, "_ingest_time": NINE, "_kind": ROW}
    sent = pa.RecordBatch.from_pylist(
        [{**values, **stamps, "_flag_0": True}], schema=to_arrow_schema(structure, timezone="UTC")
    )
    path = tmp_path / "table"
    path.mkdir()
    frame: Any = Frame([sent])
    mark = pa.Table.from_batches([marker(schema, watermark=7, sequence=None, now=0)])
    rows = at_once.write(frame, ["true"], mark, str(path))
    table = pq.read_table(rows.written.files[0])
    assert table.schema.equals(row_schema(schema))
    assert table.to_pylist()[0] == {**values, **stamps}
    assert (rows.counts, rows.kinds) == ((1,), Counter({ROW: 1}))
