"""Ranges of floats that the log of a table tells: they leave NaN out."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import s3_server
from deltalake import DeltaTable, write_deltalake

from floodmark.core.errors import CapabilityError
from floodmark.lake.table.ranges import unmeasured, without_inexact

ROWS = pa.table(
    {
        "k": [1, 2, 3, 4],
        "v": [math.nan, 2.5, math.nan, None],
        "s": pa.array([1.0, math.nan, 1.0, 1.0], pa.float32()),
        "day": [date(2020, 1, 1), date(2020, 1, 1), None, date(1, 1, 1)],
        "word": ["a b", "c%d/e", None, "é"],
        "n": [{"x": math.nan}, {"x": 1.0}, {"x": math.nan}, None],
    }
)


def rows(table: DeltaTable) -> list[str]:
    """Its rows, NaN as they are."""
    return sorted(repr(row) for row in table.to_pyarrow_table().select(ROWS.column_names).to_pylist())


@pytest.mark.parametrize("partition_by", [[], ["day"], ["word", "day"]])
def test_a_copy_has_the_rows_of_the_version_and_no_range_of_floats(tmp_path: Path, partition_by: list[str]) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, ROWS.slice(0, 3), partition_by=partition_by)
    write_deltalake(path, ROWS.slice(3), mode="append")
    write_deltalake(path, ROWS, mode="overwrite")
    copied, version = without_inexact(path, 1, tmp_path / "copy")
    assert (copied, version) == (str(tmp_path / "copy"), 0)
    copy = DeltaTable(copied)
    assert rows(copy) == rows(DeltaTable(path, version=1)) == sorted(map(repr, ROWS.to_pylist()))
    assert copy.metadata().partition_columns == partition_by
    told = pa.table(copy.get_add_actions(flatten=True))
    ranges = [name for name in told.column_names if name.startswith(("min.", "max."))]
    assert {name.split(".")[1] for name in ranges if told[name].null_count < len(told)} <= {"k", "day", "word"}
    assert sorted(told["min.k"].to_pylist()) == sorted(
        pa.table(DeltaTable(path, version=1).get_add_actions(flatten=True))["min.k"].to_pylist()
    )


def test_the_files_of_a_table_in_a_bucket_are_fetched(
    s3: s3_server.Server, s3_proxy: s3_server.Proxy, tmp_path: Path
) -> None:
    """No link leads there."""
    path = f"{s3.bucket()}/table"
    write_deltalake(path, ROWS, partition_by=["word"])
    copied, _ = without_inexact(path, 0, tmp_path / "copy")
    s3_proxy.plan(s3_server.Plan(fault="refused"))
    assert rows(DeltaTable(copied)) == sorted(map(repr, ROWS.to_pylist()))


def test_a_table_without_such_ranges_is_read_itself(tmp_path: Path) -> None:
    path, plain = str(tmp_path / "table"), ROWS.drop_columns(["n"])
    write_deltalake(path, plain, writer_properties=unmeasured(plain.schema))
    assert without_inexact(path, 0, tmp_path / "copy") == (path, 0)
    assert not (tmp_path / "copy").exists()


def test_ranges_of_decimals_of_many_digits_are_not_trusted(tmp_path: Path) -> None:
    """delta-rs writes their bounds as 64-bit numbers."""
    path, written = str(tmp_path / "table"), str(tmp_path / "written")
    few = pa.array([Decimal("1.25")], pa.decimal128(9, 2))
    values = pa.table({"d": pa.array([Decimal(10**30)], pa.decimal128(38, 0)), "e": few})
    write_deltalake(path, values)
    assert _greatest(path, "d") == [Decimal(2**63 - 1)]
    copied, _ = without_inexact(path, 0, tmp_path / "copy")
    write_deltalake(written, values, writer_properties=unmeasured(values.schema))
    assert _greatest(copied, "d") == _greatest(written, "d") == [None]
    assert _greatest(written, "e") == [Decimal("1.25")]
    assert without_inexact(written, 0, tmp_path / "other") == (written, 0)


def _greatest(path: str, column: str) -> list[object]:
    """The greatest value of a column in each file, by the log."""
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    name = f"max.{column}"
    return actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows


def test_files_that_are_not_all_of_a_table_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, ROWS.select(["k", "v"]), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(CapabilityError, match="deletionVectors") as error:
        without_inexact(path, 0, tmp_path / "copy")
    assert error.value.code == "CAPABILITY-038"
