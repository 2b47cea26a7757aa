"""Files that Spark's workers write: all rows in order, in few row groups, under a name of their own only once they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.engines.spark.delta import parquet
from floodmark.lake.table.files import Written

SCHEMA = pa.schema([("n", pa.int64()), ("_kind", pa.int32()), ("_sequence", pa.int64())])


def batches(sizes: list[int]) -> Iterator[pa.RecordBatch]:
    first = 0
    for size in sizes:
        numbers = pa.array(range(first, first + size), pa.int64())
        yield pa.RecordBatch.from_arrays([numbers, pa.nulls(size, pa.int32()).fill_null(0), numbers], schema=SCHEMA)
        first += size


@pytest.mark.parametrize("sizes", [[1], [0, 3, 0, 4], [150, 60, 7, 300, 1]])
def test_all_rows_are_there_in_order_in_row_groups_of_many_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 200)
    assert parquet.filed(tmp_path / "part-00000.parquet", batches(sizes), SCHEMA) == sum(sizes)
    (file,) = Written(folder=tmp_path).files
    assert pq.read_table(file)["n"].to_pylist() == list(range(sum(sizes)))
    assert pq.read_metadata(file).num_row_groups <= sum(sizes) // 200 + 2
    assert Written(folder=tmp_path).kinds() == {0: sum(sizes)}


def test_no_rows_leave_no_file(tmp_path: Path) -> None:
    assert parquet.filed(tmp_path / "part-00000.parquet", batches([0, 0]), SCHEMA) == 0
    assert not list(tmp_path.iterdir())


def test_a_task_that_failed_and_is_repeated_leaves_one_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches([3])
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        parquet.filed(tmp_path / "part-00000.parquet", broken(), SCHEMA)
    assert not Written(folder=tmp_path).files
    parquet.filed(tmp_path / "part-00000.parquet", batches([3]), SCHEMA)
    parquet.filed(tmp_path / "part-00000.parquet", batches([3]), SCHEMA)
    (file,) = Written(folder=tmp_path).files
    assert pq.read_metadata(file).num_rows == 3


def test_batches_of_another_nullability_are_cast(tmp_path: Path) -> None:
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    rows = (pa.RecordBatch.from_arrays(batch.columns, schema=strict) for batch in batches([2, 2]))
    parquet.filed(tmp_path / "part-00000.parquet", rows, SCHEMA)
    assert pq.read_schema(tmp_path / "part-00000.parquet").equals(SCHEMA)
