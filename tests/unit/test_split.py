"""Rows of an interval are replaced where files hold others too, without an engine."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.time import Interval
from floodmark.lake.table.commits import BoundedRun
from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
RUN = BoundedRun(
    operator="o", version="o@1", fingerprint="1", table="o", interval=Interval(), late_rows="as_landed", inputs={}
)
minutes = st.one_of(st.none(), st.integers(0, 59))


def table(rows: list[int | None], day: bool) -> pa.Table:
    moments = pa.array([None if m is None else BEGIN + timedelta(minutes=m) for m in rows], pa.timestamp("us", "UTC"))
    found = pa.table({"_event_time": moments, "_kind": pa.array([1 if m is None else 0 for m in rows], pa.int32())})
    return found.append_column("_partition", pa.array(["2020-01-01T0500Z"] * len(rows))) if day else found


def content(path: str) -> list[int | None]:
    rows = DeltaTable(path).to_pyarrow_table()["_event_time"].to_pylist()
    return sorted((None if at is None else int((at - BEGIN) / timedelta(minutes=1)) for at in rows), key=repr)


@settings(max_examples=15, deadline=None)
@given(
    commits=st.lists(st.lists(minutes, min_size=1, max_size=6), min_size=1, max_size=3),
    new=st.lists(st.integers(20, 39), max_size=4),
    divided=st.booleans(),
)
def test_the_interval_is_replaced_and_markers_stay(tmp_path_factory: pytest.TempPathFactory, commits, new, divided):
    path, by = str(tmp_path_factory.mktemp("table") / "t"), ("_partition",) if divided else ()
    for rows in commits:
        write_deltalake(path, table(rows, divided), mode="append", partition_by=list(by) or None)
    folder = Path(path) / uuid.uuid4().hex
    target = folder / "_partition=2020-01-01T0500Z" if divided else folder
    target.mkdir(parents=True)
    pq.write_table(table(new, day=False), target / "part-0.parquet")
    first, last = BEGIN + timedelta(minutes=20), BEGIN + timedelta(minutes=39, seconds=59)
    Writer(path).replace_rows(Written(folder=folder, partition_by=by), first, last, RUN)
    stays = [m for rows in commits for m in rows if m is None or not 20 <= m <= 39]
    assert content(path) == sorted([*stays, *new], key=repr)
    if divided:
        assert set(DeltaTable(path).to_pyarrow_table()["_partition"].to_pylist()) <= {"2020-01-01T0500Z"}
