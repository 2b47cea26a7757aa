"""The difference between two contents of a table: what is in it, how it is numbered, and its commit."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake

from floodmark.core.errors import LifecycleError
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import MicroBatch, Restored, Revised, decode, encode
from floodmark.lake.table.rows import row_schema
from floodmark.lake.writing.difference import Difference, append, holds_bounded_runs, rows_that_come
from floodmark.lake.writing.writer import FENCE, Writer
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW, Column, Schema

SCHEMA = Schema((Column(name="key", type="string"), Column(name="value", type="double")))
START = datetime(2020, 1, 1, tzinfo=UTC)


def row(
    key: str, value: float | None, sequence: int, kind: int = ROW, hours: int = 0, progress: int | None = 0
) -> dict[str, Any]:
    stamps = {
        "_event_time": START + timedelta(hours=hours),
        "_watermark": 0,
        "_progress": progress,
        "_ingest_time": START,
    }
    return {"key": key, "value": value, **stamps, "_sequence": sequence, "_kind": kind}


def put(path: str, *rows: dict[str, Any]) -> None:
    write_deltalake(path, pa.Table.from_pylist(list(rows), row_schema(SCHEMA)), mode="append")


def difference(folder: Path, **values: Any) -> Difference:
    standing, coming = (str(folder / name) for name in ("standing", "coming"))
    about = {"first": 100, "keys": ("key",), "reached": 5, "progress": 9, "now": 1_600_000_000_123}
    return Difference(
        standing=(standing, DeltaTable(standing).version()),
        coming=(coming, DeltaTable(coming).version()),
        **(about | values),
    )


def written(folder: Path) -> list[tuple[Any, ...]]:
    names = ("_kind", "key", "value", "_sequence", "_watermark", "_progress")
    rows = DeltaTable(str(folder / "scratch")).to_pyarrow_table().to_pylist()
    return [tuple(one[name] for name in names) for one in rows]


def test_rows_that_both_have_are_left_alone_nan_and_null_and_revised_ones_too(tmp_path: Path) -> None:
    old = [row("a", math.nan, 1), row("b", None, 2), row("c", 1.0, 3), row("c", 1.0, 4, RETRACTION), row("c", 2.0, 4)]
    put(str(tmp_path / "standing"), *old)
    put(str(tmp_path / "coming"), row("c", 2.0, 1), row("b", None, 7), row("a", math.nan, 9))
    assert difference(tmp_path).write(str(tmp_path / "scratch")) == 0
    assert written(tmp_path) == [(MARKER, None, None, None, 9, 9)]


def test_what_goes_is_taken_back_before_what_comes_in_its_place(tmp_path: Path) -> None:
    put(str(tmp_path / "standing"), row("b", 1.0, 1), row("a", 1.0, 2, hours=1), row("z", 0.0, 3))
    put(str(tmp_path / "coming"), row("b", 2.0, 1), row("a", 1.0, 2, hours=2), row("n", 3.0, 3))
    assert difference(tmp_path).write(str(tmp_path / "scratch")) == 6
    assert written(tmp_path) == [
        (RETRACTION, "b", 1.0, 100, 5, 5),
        (ROW, "b", 2.0, 101, 5, 5),
        (ROW, "n", 3.0, 102, 5, 5),
        (RETRACTION, "z", 0.0, 103, 5, 5),
        (RETRACTION, "a", 1.0, 104, 5, 5),
        (ROW, "a", 1.0, 105, 5, 5),
        (MARKER, None, None, None, 9, 9),
    ]
    assert rows_that_come(str(tmp_path / "scratch")) == 3


def test_what_a_result_was_goes_before_it_comes_with_an_earlier_event_time(tmp_path: Path) -> None:
    put(str(tmp_path / "standing"), row("a", 1.0, 1, hours=3), row("b", 1.0, 2, hours=2))
    put(str(tmp_path / "coming"), row("a", 2.0, 1, hours=1), row("b", 1.0, 2, hours=4))
    difference(tmp_path).write(str(tmp_path / "scratch"))
    assert [one[:3] for one in written(tmp_path)] == [
        (RETRACTION, "a", 1.0),
        (ROW, "a", 2.0),
        (RETRACTION, "b", 1.0),
        (ROW, "b", 1.0),
        (MARKER, None, None),
    ]
    difference(tmp_path, keys=()).write(str(tmp_path / "scratch"))
    assert [one[:2] for one in written(tmp_path)] == [
        (ROW, "a"),
        (RETRACTION, "b"),
        (RETRACTION, "a"),
        (ROW, "b"),
        (MARKER, None),
    ]


def test_rows_without_progress_are_those_of_bounded_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "standing")
    write_deltalake(path, row_schema(SCHEMA).empty_table())
    assert not holds_bounded_runs(DeltaTable(path))
    put(path, row("a", 1.0, 1))
    assert not holds_bounded_runs(DeltaTable(path))
    put(path, row("a", 1.0, 2, progress=None), row("b", 1.0, 3))
    assert holds_bounded_runs(DeltaTable(path))


def test_rows_are_counted_and_those_of_bounded_runs_are_not(tmp_path: Path) -> None:
    put(str(tmp_path / "standing"), row("a", 1.0, 1), row("a", 1.0, 2), row("b", 1.0, 3, progress=None))
    put(str(tmp_path / "coming"), row("a", 1.0, 1), row("a", 1.0, 2), row("a", 1.0, 3), row("c", 1.0, 4))
    difference(tmp_path).write(str(tmp_path / "scratch"))
    assert [one[:3] for one in written(tmp_path)] == [(ROW, "a", 1.0), (ROW, "c", 1.0), (MARKER, None, None)]


def record() -> MicroBatch:
    version = {"operator": "totals", "version": "totals@1", "table": "totals", "timeline": 0}
    return MicroBatch(**version, batch=3, progress=9, restated=True)  # type: ignore[arg-type]  # names and numbers


def test_it_is_one_commit_that_fences_who_has_written_the_table(tmp_path: Path) -> None:
    path, scratch = str(tmp_path / "standing"), str(tmp_path / "scratch")
    put(path, row("a", 1.0, 1))
    put(str(tmp_path / "coming"), row("a", 2.0, 1))
    difference(tmp_path).write(scratch)
    append(scratch, (path, 0), "totals/1/totals/difference", record(), [Transaction("totals/0/totals", FENCE)])
    assert next(history.every(path)).record == record()
    assert entries.transaction_of(path, "totals/0/totals") == FENCE
    assert entries.transaction_of(path, "totals/1/totals/difference") == 1
    assert DeltaTable(path).to_pyarrow_table().num_rows == 4
    with pytest.raises(LifecycleError, match="LIFECYCLE-004"):
        append(scratch, (path, 0), "totals/2/totals/difference", record(), [])
    assert DeltaTable(path).version() == 1


def test_its_records_are_read_as_they_were_written() -> None:
    about = {
        "operator": "totals",
        "version": "totals@1",
        "timeline": 1,
        "table": "totals",
        "restored": -1,
        "savepoint": "",
        "batch": 3,
    }
    restored = Restored(mode="rebuild", progress=9, difference=4, followers=("sums@2",), **about)  # type: ignore[arg-type]
    for one in (restored, Revised(operator="totals", version="totals@1")):
        assert decode(encode(one), "commit 1") == one
    assert restored.follows("sums@2", 3)
    assert not restored.follows("sums@3", 3)
    assert restored.follows("sums@3", 4), "it has read the difference, and was upgraded since"
    assert not restored.follows("others@2", 4)


def test_a_rollback_takes_back_that_rows_of_any_time_may_be_taken_back(tmp_path: Path) -> None:
    path = str(tmp_path / "standing")
    put(path, row("a", 1.0, 1))
    history.will_be_revised(path)
    assert not history.revised(path)
    Writer(path).note(Revised(operator="totals", version="totals@1"), ("totals/1/sums/revised", 1))
    assert history.revised(path)
    assert not history.revised(path, 0)
    back = {
        "operator": "sums",
        "version": "sums@1",
        "timeline": 1,
        "table": "sums",
        "restored": 0,
        "savepoint": "",
        "batch": 0,
    }
    Writer(path).restore(0, Restored(mode="rollback", progress=0, **back), ("sums/1/sums/switch", 1))  # type: ignore[arg-type]
    assert not history.revised(path)
    assert history.revised(path, 1)
