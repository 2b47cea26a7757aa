"""Merges of last values into a table of them, ``<output>__current``, by delta-rs. A repeated merge changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.table.ranges import unmeasured
from floodmark.lake.writing import conflicts
from floodmark.lake.writing.confirmed import confirmed
from floodmark.lake.writing.writer import check_open
from floodmark.spec.values.schema import RETRACTION, ROW


def merge(
    path: str,
    values: pa.Table,
    keys: Sequence[str],
    opened: dict[str, DeltaTable] | None = None,
    once: tuple[str, int] | None = None,
) -> None:
    """Merge the last row of each key; a retraction removes the key.

    Args:
        path: of the table of last values.
        values: one row per key, with the columns of the table.
        keys: columns that identify a value.
        opened: path -> table that an earlier call has opened in a bucket, where to open a table takes requests for all of its log.
        once: (application id, version) of the transaction, for a writer that may be fenced: a version that is committed is not merged again.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer; LIFECYCLE-057, a rollback has fenced the application.
    """
    same = " AND ".join(_same(values, key) for key in keys)
    transactions = [] if once is None else [Transaction(*once)]

    def attempt() -> None:
        table = opened_table(path, {} if opened is None else opened)
        if once is not None and not check_open(path, *once, table.transaction_version(once[0])):
            return
        written = unmeasured(values.schema)

        def commit(properties: CommitProperties) -> None:
            merger = table.merge(
                values,
                same,
                source_alias="s",
                target_alias="t",
                writer_properties=written,
                commit_properties=properties,
            )
            merger = merger.when_matched_delete(f"s.`_kind` = {RETRACTION}").when_matched_update_all()
            merger.when_not_matched_insert_all(f"s.`_kind` = {ROW}").execute()

        confirmed(table, path, commit, transactions=transactions)

    conflicts.retried(attempt, path)


def opened_table(path: str, opened: dict[str, DeltaTable]) -> DeltaTable:
    """The newest version of a table; in a bucket one that is opened already goes on from there."""
    if not is_bucket(path):
        return DeltaTable(path)
    if path in opened:
        opened[path].update_incremental()
    else:
        opened[path] = DeltaTable(path)
    return opened[path]


def _same(values: pa.Table, key: str) -> str:
    """SQL condition: a key column is equal in both tables. delta-rs fails for IS NOT DISTINCT FROM, and joins by hash only for a plain ``=``."""
    equal = f"t.`{key}` = s.`{key}`"
    return f"({equal} OR (t.`{key}` IS NULL AND s.`{key}` IS NULL))" if values[key].null_count else equal
