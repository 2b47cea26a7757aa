"""Grafts: replaces the contents of one table by those of another table at a version, in one commit.

Files are linked or copied, not referenced, so that a clean-up of one table does not remove files of the other: a shallow clone breaks with its
original. The caller holds the lock of the target lake's data files (``locks.data_files``), because upkeep removes files that no commit names.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction

from floodmark.core import crash
from floodmark.lake.folder.copies import copy
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table.commits import Record
from floodmark.lake.table.files import statistics
from floodmark.lake.writing.confirmed import create_table
from floodmark.lake.writing.cutover import Part
from floodmark.lake.writing.writer import Writer


def graft(
    source: str,
    target: str,
    app: str,
    record: Record,
    version: int | None = None,
    fences: Sequence[Transaction] = (),
    also: Part | None = None,
) -> int:
    """Replace the rows and columns of a table by those of another. Does nothing if ``app`` has committed to the target before.

    Args:
        source: path of the table to copy from.
        target: path of the table to replace. It is created if missing, and keeps its id otherwise.
        app: application id of the transaction.
        record: record of the commit.
        version: version of the source; by default the newest.
        fences: fences to include in the commit.
        also: further files to copy, of another table or of the target.

    Returns:
        The version of the target after the commit.
    """
    source_table = DeltaTable(source, version=version)
    partition_by, schema = source_table.metadata().partition_columns, source_table.schema()
    if not DeltaTable.is_deltatable(target):
        create_table(target, schema, partition_by=partition_by, properties=source_table.metadata().configuration)
    writer = Writer(target)
    if writer.committed(app) is not None:
        return int(writer.table().version())
    crash.point("graft.before_files")
    added = list(linked(source, source_table, target))
    if also is not None:
        added += linked(also.path, DeltaTable(also.path, version=also.version), target, also.files)
    crash.point("graft.before_commit")
    writer.become(added, record, (app, 1), fences, schema=schema, partition_by=partition_by)
    return int(writer.table().version())


def linked(source: str, table: DeltaTable, target: str, only: Collection[str] | None = None) -> Iterator[AddAction]:
    """Link or copy files of a table into a new folder of the target table. Yields their add actions.

    Args:
        source: path of the source table.
        table: the opened source table.
        target: path of the target table.
        only: paths of the files to copy; by default all.
    """
    folder, now = uuid.uuid4().hex, time.time_ns() // 1_000_000
    for action in pa.table(table.get_add_actions()).to_pylist():
        path = unquote(action["path"])
        if only is not None and path not in only:
            continue
        name = f"{folder}/{uuid.uuid4().hex}-{path.rsplit('/', 1)[-1]}"
        copy(f"{source}/{path}", f"{target}/{name}", touch=True)
        files, file_path = file_system(f"{target}/{name}")
        with files.open_input_file(file_path) as stream:
            stats = statistics(pq.read_metadata(stream))
        yield AddAction(name, action["size_bytes"], action.get("partition") or {}, now, True, stats)
