"""A small lake with a stream in it, made without Spark: a log, a changelog with its side output and last values, and a checkpoint."""

from __future__ import annotations

import json
import shutil
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from events import Event

from floodmark import Operator, Stream, Tumbling, count, operator, sum
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.commits import MicroBatch, encode
from floodmark.lake.table.rows import row_schema
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW


def _totals(events: Stream[Event]) -> Stream:
    """Results that are revised, and rows that are too late."""
    windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


TOTALS: Operator = operator(_totals, name="totals")
LOG, CHANGELOG, LATE, CURRENT = "events", "totals", "totals__late", "totals__current"
_START = datetime(2020, 1, 1, tzinfo=UTC)


def schema(output: Output) -> pa.Schema:
    """The columns of an output's table."""
    return row_schema(output.schema)


def row(key: str | None, total: int, sequence: int, kind: int = ROW) -> dict[str, Any]:
    """A result of one window."""
    return {"key": key, "n": 1, "total": total, "window_start": _START, "window_end": _START} | {
        "_event_time": _START,
        "_watermark": 0,
        "_progress": 0,
        "_sequence": sequence,
        "_ingest_time": _START,
        "_kind": kind,
    }


MARK = dict.fromkeys(row("a", 1, 1)) | {"_kind": MARKER, "_progress": 0}


def batch(lake: Lake, number: int, rows: list[dict[str, Any]]) -> None:
    """A micro-batch: its input, its rows in every output, its files in the checkpoint, and what the follower makes of it."""
    code = TOTALS
    timeline = Timeline.current(lake, code.name)
    write_deltalake(lake.log(LOG), pa.table({"value": [number]}), mode="append")
    log = DeltaTable(lake.log(LOG))
    if timeline.identity.deployed() is None:
        timeline.identity.deploy(code)
        write(f"{timeline.checkpoint.path}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    offset = {
        "sourceVersion": 1,
        "reservoirId": str(log.metadata().id),
        "reservoirVersion": log.version() + 1,
        "index": -1,
    }
    marks = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "2"}}
    source = json.dumps(offset | {"isStartingVersion": False})
    write(f"{timeline.checkpoint.path}/offsets/{number}", "\n".join(["v1", json.dumps(marks), source]).encode())
    for output in reversed(code.outputs):
        record = MicroBatch(
            operator=code.name,
            version=code.version,
            timeline=timeline.number,
            table=output.table,
            batch=number,
            progress=number * 60_000,
            rows=len(rows),
        )
        own = [r for r in rows if not output.side] + [MARK]
        names = schema(output)
        write_deltalake(
            lake.output(output.table),
            pa.Table.from_pylist([{name: r.get(name) for name in names.names} for r in own], schema=names),
            mode="append",
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": encode(record)},
                app_transactions=[Transaction(timeline.app(output.table), number)],
            ),
        )
    write(f"{timeline.checkpoint.path}/commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
    last = {r["key"]: r for r in _all(lake) if r["_kind"] != MARKER}
    values = pa.Table.from_pylist([r for r in last.values() if r["_kind"] == ROW], schema=schema(code.outputs[0]))
    write_deltalake(lake.output(CURRENT), values, mode="overwrite")


def _all(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(lake.output(CHANGELOG)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda r: (r["_sequence"] or 0, r["_kind"]))


def make(root: Path, *, times: int = 1) -> Lake:
    """A lake after two micro-batches: 'a' was revised, 'b' is as it was first, 'c' was retracted; ``times`` every total.

    Lakes of one process are copies, so their tables have the ids of the same tables in others with these ``times``.
    """
    shutil.copytree(_original(times).name, root, dirs_exist_ok=True)
    return Lake(str(root))


@cache
def _original(times: int) -> TemporaryDirectory[str]:
    """A lake that is copied; gone with the process."""
    folder = TemporaryDirectory()
    lake = Lake(folder.name)
    batch(lake, 0, [row("a", 1 * times, 1), row("b", 2 * times, 2), row("c", 3 * times, 3)])
    batch(lake, 1, [row("a", 1, 4, RETRACTION), row("a", 10 * times, 5), row("c", 3, 6, RETRACTION)])
    return folder


def totals(lake: Lake, table: str = CURRENT) -> dict[str | None, int]:
    """What people read: key -> value."""
    rows = DeltaTable(lake.output(table)).to_pyarrow_table().to_pylist()
    return {r["key"]: r["total"] for r in rows if r["_kind"] == ROW}


def versions(lake: Lake, *tables: str) -> tuple[TableVersion, ...]:
    """Tables as they are now."""
    opened = {table: DeltaTable(lake.output(table)) for table in tables}
    return tuple(TableVersion(table=n, id=str(t.metadata().id), version=t.version()) for n, t in opened.items())
