"""A restatement of one table: what is taken back, what comes, and where both are numbered."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.core.time import to_ms
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.table.rows import row_schema
from floodmark.lake.writing.restatement import Restatement
from floodmark.lake.writing.writer import FENCE, Writer
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW, SEQUENCES, Column, Schema, first_sequence

SCHEMA = Schema((Column(name="key", type="string"), Column(name="value", type="double")))
START = datetime(2020, 1, 1, tzinfo=UTC)
AT = to_ms(START)


def row(key: str, value: float | None, sequence: int, kind: int = ROW, hours: int = 0) -> dict[str, Any]:
    stamps = {"_event_time": START + timedelta(hours=hours), "_watermark": 0, "_progress": 0, "_ingest_time": START}
    return {"key": key, "value": value, **stamps, "_sequence": sequence, "_kind": kind}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), row_schema(SCHEMA))


def restatement(path: str, keys: tuple[str, ...] = ("key",)) -> Restatement:
    output = Output(name="", table="totals", schema=SCHEMA, revisable=True, keys=keys)
    return Restatement(output=output, path=path, app="totals/0/totals/restate", instants=[AT])


def record(batch: int = 3) -> MicroBatch:
    version = {"operator": "totals", "version": "totals@1", "table": "totals", "timeline": 0}
    return MicroBatch(**version, batch=batch, progress=60_000, restated=True)  # type: ignore[arg-type]  # names and numbers


def changes(one: Restatement, stated: pa.Table) -> list[tuple[object, ...]]:
    found = one.difference(one.standing(), stated).to_pylist()
    return [(each["_kind"], each["key"], each["value"], each["_place"]) for each in found]


def test_what_stays_the_same_is_left_alone_nan_and_null_too(tmp_path):
    path, first = str(tmp_path), first_sequence(3)
    old = [row("a", math.nan, first), row("b", None, first + 1), row("c", 1.0, first + 2), row("d", 2.0, first + 3)]
    write_deltalake(path, table(*old, row("z", 9.0, first + 4, hours=1)))
    stated = [row("a", math.nan, 0), row("b", None, 0), row("d", 5.0, 0), row("e", 6.0, 0)]
    one = restatement(path)
    assert changes(one, table(*old)) == []
    assert changes(one, table(*stated)) == [
        (RETRACTION, "c", 1.0, 0),
        (RETRACTION, "d", 2.0, 1),
        (ROW, "d", 5.0, 1),
        (ROW, "e", 6.0, 2),
    ]
    without = restatement(path, keys=())
    assert changes(without, table(*stated)) == [
        (RETRACTION, "c", 1.0, 0),
        (RETRACTION, "d", 2.0, 1),
        (ROW, "d", 5.0, 2),
        (ROW, "e", 6.0, 3),
    ]


def test_rows_that_are_there_twice_and_rows_that_were_taken_back_count_as_often_as_they_are_there(tmp_path):
    path, first = str(tmp_path), first_sequence(3)
    twice = [row("a", 1.0, first), row("a", 1.0, first + 1)]
    back = [row("b", 1.0, first + 2), row("b", 1.0, first + 3, RETRACTION), row("b", 2.0, first + 3)]
    write_deltalake(path, table(*twice, *back))
    assert [one[:3] for one in changes(restatement(path), table(row("b", 2.0, 0)))] == 2 * [(RETRACTION, "a", 1.0)]


def test_it_is_numbered_behind_what_its_micro_batch_has_written_and_a_second_one_behind_that(tmp_path):
    path, first, one = str(tmp_path), first_sequence(3), restatement(str(tmp_path))
    write_deltalake(path, table(row("a", 1.0, first_sequence(2)), row("b", 2.0, first + 7)))
    for value in (3.0, 4.0):
        changed = one.difference(one.standing(), table(row("a", value, 0), row("b", 2.0, 0)))
        one.commit(changed, record(), now=1)
    found = DeltaTable(path).to_pyarrow_table().sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    said = [(each["_sequence"] - first, each["_kind"], each["value"]) for each in found.to_pylist()[:-2]]
    assert said[1:] == [(7, ROW, 2.0), (8, RETRACTION, 1.0), (8, ROW, 3.0), (9, RETRACTION, 3.0), (9, ROW, 4.0)]
    marks = [each for each in found.to_pylist() if each["_kind"] == MARKER]
    assert [each["_progress"] for each in marks] == [60_000, 60_000]
    assert {each["_progress"] for each in found.to_pylist() if each["_sequence"] and each["_sequence"] > first + 7} == {
        60_000
    }
    assert history.progress(path) == 60_000


def test_a_micro_batch_that_has_no_sequence_left_is_left_as_it_is(tmp_path):
    path, one = str(tmp_path), restatement(str(tmp_path))
    write_deltalake(path, table(row("a", 1.0, first_sequence(3) + SEQUENCES - 1)))
    changed = one.difference(one.standing(), table(row("a", 2.0, 0)))
    with pytest.raises(ExecutionError, match=r"EXECUTION-061 .*at most 0 rows, got 1 rows"):
        one.commit(changed, record(), now=1)
    assert DeltaTable(path).version() == 0


def test_a_timeline_that_a_rollback_has_ended_restates_nothing(tmp_path):
    path, one = str(tmp_path), restatement(str(tmp_path))
    write_deltalake(path, table(row("a", 1.0, first_sequence(3))))
    Writer(path).note(record(), (one.app, FENCE))
    changed = one.difference(one.standing(), table(row("a", 2.0, 0)))
    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        one.commit(changed, record(), now=1)
    assert DeltaTable(path).version() == 1
