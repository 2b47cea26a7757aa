"""Grafts: a table becomes what another one is at a version, in one commit.

Files are linked or copied, never shared by reference, so that the clean-up of neither table takes them from the other: a shallow clone
breaks with its original. Whoever grafts into a lake holds the lock of its data files (``lock.data_files``), because upkeep takes files
that no commit names yet for leftovers.
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
from floodmark.lake.commits import Record
from floodmark.lake.copies import copy
from floodmark.lake.cutover import Part
from floodmark.lake.files import statistics
from floodmark.lake.storage import file_system
from floodmark.lake.writer import Writer


def graft(
    source: str,
    target: str,
    app: str,
    record: Record,
    version: int | None = None,
    fences: Sequence[Transaction] = (),
    also: Part | None = None,
) -> int:
    """Put the rows and columns of one table in place of those of another, once.

    Args:
        source: path of the table to take them from.
        target: path of the table to change; it is made where there is none, and keeps its id where there is one.
        app: application id of the transaction; nothing is done when it has committed to the target before.
        record: of the commit.
        version: of the source; by default the newest.
        fences: further transactions of the commit.
        also: files of another table to take as well; it may be the target.

    Returns:
        The version of the target.
    """
    source_table = DeltaTable(source, version=version)
    partition_by, schema = source_table.metadata().partition_columns, source_table.schema()
    if not DeltaTable.is_deltatable(target):
        DeltaTable.create(
            target,
            schema,
            mode="ignore",
            partition_by=partition_by,
            configuration=source_table.metadata().configuration,
        )
    writer = Writer(target)
    if writer.committed(app) is not None:
        return int(writer.table().version())
    crash.point("graft.before_files")
    added = list(_linked(source, source_table, target))
    if also is not None:
        added += _linked(also.path, DeltaTable(also.path, version=also.version), target, also.files)
    crash.point("graft.before_commit")
    writer.become(added, record, (app, 1), fences, schema=schema, partition_by=partition_by)
    return int(writer.table().version())


def _linked(source: str, table: DeltaTable, target: str, only: Collection[str] | None = None) -> Iterator[AddAction]:
    """Link or copy files of a table into a folder of another one's, as a commit names them."""
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
