"""Commits that delta-rs makes, once each: in a bucket with an id of their own, by which a commit is found whose answer was lost.

delta-rs would take its own commit for that of another writer then, and commit a second time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError

from floodmark.lake.folder.bucket import attempts, is_bucket
from floodmark.lake.table import entries
from floodmark.lake.writing.conflicts import retried

_ID = "floodmark"


def confirmed(
    table: DeltaTable,
    path: str,
    commit: Callable[[CommitProperties], object],
    *,
    metadata: Mapping[str, str] | None = None,
    transactions: Sequence[Transaction] = (),
    repeatable: bool = True,
) -> None:
    """Make a commit.

    Args:
        table: the opened table, at the version that the commit follows.
        path: path of the table.
        commit: (properties of the commit) -> anything; commits with delta-rs.
        metadata: further fields of the commit's information.
        transactions: of the commit.
        repeatable: True if ``commit`` may be called again after a failure; by default True.

    Raises:
        CommitFailedError: another writer has committed since the version of ``table``. In a bucket this is so also if both commits could stand.
    """
    if not is_bucket(path):
        commit(
            CommitProperties(custom_metadata=dict(metadata or {}) or None, app_transactions=list(transactions) or None)
        )
        return
    own, version = uuid.uuid4().hex, table.version()
    properties = CommitProperties(
        custom_metadata={**(metadata or {}), _ID: own},
        app_transactions=list(transactions) or None,
        max_commit_retries=0,
    )
    for again in attempts():
        try:
            commit(properties)
        except (DeltaError, OSError):
            if _is_there(path, version + 1, own):
                return
            if not (again and repeatable) or entries.entry(path, version + 1) is not None:
                raise
        else:
            return


def revise(path: str, commit: Callable[[DeltaTable, CommitProperties], object]) -> None:
    """Change a table as it is now, once; anew, up to four times, if another writer commits first.

    Args:
        path: path of the table.
        commit: (the newest version, properties of the commit) -> anything; commits with delta-rs, or finds nothing to change.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
    """

    def attempt() -> None:
        table = DeltaTable(path)
        confirmed(table, path, lambda properties: commit(table, properties))

    retried(attempt, path)


def create_table(
    path: str,
    columns: Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    must_be_new: bool = False,
) -> None:
    """Create an empty table unless it exists.

    Args:
        path: path of the table.
        columns: columns of the table.
        partition_by: partition columns.
        properties: properties of the table, also those that only floodmark knows.
        must_be_new: True if an existing table is an error.

    Raises:
        DeltaError: the table exists and ``must_be_new``, or delta-rs could not create it.
    """
    own = uuid.uuid4().hex
    # a second commit of the creation would be another table's metadata
    once = CommitProperties(custom_metadata={_ID: own}, max_commit_retries=0) if is_bucket(path) else None
    for again in attempts():
        try:
            DeltaTable.create(
                path,
                columns,
                mode="error" if must_be_new else "ignore",
                partition_by=list(partition_by),
                configuration=dict(properties or {}),
                raise_if_key_not_exists=False,
                commit_properties=once,
            )
        except (DeltaError, OSError):
            if once is None:
                raise
            there = entries.entry(path, 0)
            if there is not None and own.encode() in there.content:
                return
            if there is not None or entries.newest(path) is not None:
                if must_be_new:
                    raise
                return
            if not again:
                raise
        else:
            return


def _is_there(path: str, version: int, own: str) -> bool:
    """True if an entry from ``version`` on has an id."""
    while (entry := entries.entry(path, version)) is not None:
        if own.encode() in entry.content:
            return True
        version += 1
    return False
