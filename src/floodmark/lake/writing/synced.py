"""Writes rows in memory as files into a table's folder, and syncs them to disk, or sends them to the bucket, before a commit names them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.storage import sync_all
from floodmark.lake.table.files import NO_PARTITION, Written
from floodmark.spec.values.schema import PARTITION

ROWS_PER_FILE = 1_000_000


def written(path: str, rows: pa.Table, partition_by: tuple[str, ...] = ()) -> Written:
    """Write rows into a new folder of a table, durably. Returns the files for a commit.

    Args:
        path: path of the table.
        rows: rows in the order in which they are to be read. They have the asset partition column if the table is partitioned by it.
        partition_by: the table's partition columns.
    """
    folder = staging.new_folder(path)
    divided = bool(partition_by)
    paths: list[Path] = []
    for partition, part in _parts(rows, divided=divided):
        inner = folder / partition
        inner.mkdir(exist_ok=True)
        for number, first in enumerate(range(0, part.num_rows, ROWS_PER_FILE)):
            file = inner / f"part-{number:05d}.parquet"
            pq.write_table(
                part.slice(first, ROWS_PER_FILE),
                file,
                compression="zstd",
                use_dictionary=_dictionary_columns(part),
                version="2.6",
            )
            paths.append(file)
        paths.append(inner)
    files = Written(folder=folder, partition_by=partition_by)
    if is_bucket(path):
        return files.send(path)
    sync_all({*paths, folder, folder.parent})
    return files


def _dictionary_columns(rows: pa.Table) -> list[str]:
    """The columns for dictionary encoding: all except ``_sequence``, whose values are all distinct."""
    return [name for name in rows.column_names if name != "_sequence"]


def _parts(rows: pa.Table, *, divided: bool) -> list[tuple[str, pa.Table]]:
    if not divided:
        return [("", rows)]
    names = pc.unique(rows[PARTITION]).to_pylist()
    parts = []
    for name in names:
        same = pc.is_null(rows[PARTITION]) if name is None else pc.equal(rows[PARTITION], name)
        value = NO_PARTITION if name is None else quote(name, safe="")
        parts.append((f"{PARTITION}={value}", rows.filter(same).drop_columns([PARTITION])))
    return parts
