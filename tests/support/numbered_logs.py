"""Logs of numbered rows in commits of one file or several, written without an engine."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.lake.table.commits import Landing
from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer

SCHEMA = pa.schema(
    [
        ("price", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))),
        ("_event_time", pa.timestamp("us", tz="UTC")),
        ("_sequence", pa.int64()),
        ("_kind", pa.int32()),
        ("_progress", pa.int64()),
    ]
)


def rows(sequences: Sequence[int]) -> pa.Table:
    values = [
        {
            "price": None if n % 3 else Decimal(n) / 100,
            "tags": [{"name": f"tag {n}"}] * (n % 4),
            "_event_time": datetime.fromtimestamp(n, UTC),
            "_sequence": n,
            "_kind": 0,
            "_progress": n,
        }
        for n in sequences
    ]
    return pa.Table.from_pylist(values, SCHEMA)


def land(path: Path, ordinal: int, files: Sequence[Sequence[int]], *, modified: int) -> None:
    """A landing commit with these sequences in its files."""

    def write() -> Written:
        folder = path / uuid.uuid4().hex
        folder.mkdir()
        for number, sequences in enumerate(files):
            pq.write_table(rows(sequences), folder / f"part-{number:05d}.parquet")
        return Written(folder=folder)

    assert Writer(str(path)).append(write, Landing(source="s", ordinal=ordinal), ("land/s", ordinal), modified=modified)


def log(path: Path, draw: random.Random, commits: int) -> int:
    """A log of so many commits, with a file or several each; its last sequence."""
    DeltaTable.create(str(path), SCHEMA, configuration={"delta.checkpointInterval": "7"})
    numbers, modified = itertools.count(), 1_000
    for ordinal in range(commits):
        modified += draw.choice([1, 1, 50])
        sizes = [draw.choice([1, 2, 30])] * draw.choice([1, 1, 1, 3])
        land(path, ordinal, [list(itertools.islice(numbers, size)) for size in sizes], modified=modified)
        modified += len(sizes)
    return next(numbers) - 1
