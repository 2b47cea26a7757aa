"""The writer of a Delta table: all of floodmark's commits to a table of a lake, each with a record, exactly once.

Engines write Parquet files and pass their names. A commit takes 10 ms, because delta-rs does not compute the whole state of the table for it, as Spark
does for a commit with a transaction id (0.6 s of a 1 s append of 6,500 rows, measured). Protocol, conflict rules and transaction ids are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Compacted, Record, encode
from floodmark.lake.table.files import Written, inside, split
from floodmark.lake.table.ranges import unmeasured
from floodmark.lake.writing.checkpointer import Checkpointer, write_checkpoint
from floodmark.lake.writing.confirmed import confirmed
from floodmark.lake.writing.conflicts import interrupted, retried
from floodmark.lake.writing.tail import Tail

FENCE = 1 << 62
"""Transaction version that ends a timeline (``fence``)."""


def check_open(path: str, app: str, number: int, done: int | None) -> bool:
    """Check whether a transaction is still to be committed.

    Args:
        path: path of the table.
        app: application id of the transaction.
        number: version of the transaction.
        done: last transaction version the application committed to the table; None for none.

    Returns:
        True if the transaction is new; False if the application committed this or a later version.

    Raises:
        LifecycleError: LIFECYCLE-057, a rollback or a rebuild has fenced the application.
    """
    if done is not None and done >= FENCE:
        fix = "This process can go. See which one the stream is now: floodmark status"
        where, got = f"transaction '{app}' of table {path}", "one that was ended by a rollback or a rebuild"
        raise LifecycleError(where, "the current timeline", got, fix, code="LIFECYCLE-057")
    return done is None or done < number


def committed(path: str, app: str) -> int | None:
    """Last transaction version that an application id committed to a table; None if it committed none or there is no table."""
    return entries.transaction_of(path, app) if entries.is_table(path) else None


@dataclass(slots=True)
class Writer:
    """Commits to one table.

    Args:
        path: path of an existing table.
        checkpointer: writes due checkpoints in the background; by default an append writes its checkpoint itself.
    """

    path: str
    checkpointer: Checkpointer | None = None
    _table: DeltaTable | None = field(default=None, init=False)
    _tail: Tail | None = field(default=None, init=False)

    def committed(self, app: str) -> int | None:
        """Last transaction version that an application id committed; None for none."""
        return entries.transaction_of(self.path, app)

    def append(
        self,
        write: Callable[[], Written],
        record: Record,
        once: tuple[str, int],
        *,
        modified: int | None = None,
    ) -> bool:
        """Append files exactly once.

        Args:
            write: () -> written files; called only if the transaction is new.
            record: record of the commit.
            once: (application id, version) of the transaction; versions increase.
            modified: modification time of the first file in the commit, ms; each further file is 1 ms later. By default the current time.

        Returns:
            True if the files were committed; False if the application had committed this or a later version, and nothing was written.

        Raises:
            LifecycleError: LIFECYCLE-004 the commit conflicted with another writer, LIFECYCLE-057 a rollback has fenced the application.
        """
        tail = self._followed(once[0])
        if not check_open(self.path, *once, self._done(once[0], tail)):
            return False
        written = write().send(self.path)
        files = written.actions(modified)
        while tail is not None and tail.can_append(files):
            if tail.commit(files, encode(record), written.partition_by, once):
                staging.release(self.path, written.folder)
                if tail.due:
                    self._checkpoint(tail.version)
                return True
            tail = self._followed(once[0])
            if not check_open(self.path, *once, self._done(once[0], tail)):
                raise interrupted(self.path, "one of the same application")
        try:
            self._commit(self.table(), files, record, [Transaction(*once)], partition_by=written.partition_by)
        except CommitFailedError as error:
            raise interrupted(self.path, f"one: {error}") from error
        if tail is not None:
            self._table = None  # the opened table holds all file names, and is seldom needed
        return True

    def append_wider(self, rows: pa.RecordBatchReader, record: Record, once: tuple[str, int]) -> bool:
        """Append rows exactly once, and add columns that the table lacks in the same commit.

        Args:
            rows: rows in order, written as one file.
            record: record of the commit.
            once: (application id, version) of the transaction.

        Raises:
            LifecycleError: as ``append``.
        """
        table = self.table()
        if not check_open(self.path, *once, table.transaction_version(once[0])):
            return False

        def commit(properties: CommitProperties) -> None:
            write_deltalake(
                table,
                rows,
                mode="append",
                schema_mode="merge",
                commit_properties=properties,
                writer_properties=unmeasured(rows.schema),
            )

        try:
            confirmed(
                table,
                self.path,
                commit,
                metadata={"userMetadata": encode(record)},
                transactions=[Transaction(*once)],
                repeatable=False,  # the rows are read once
            )
        except CommitFailedError as error:
            raise interrupted(self.path, f"one: {error}") from error
        self._table = None
        return True

    def widen(self, columns: Schema) -> None:
        """Add the columns that the table lacks, in a commit of its own. They are null in existing rows.

        Args:
            columns: columns the table shall have.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> None:
            table = self.table()
            there = {field.name for field in table.schema().fields}
            lacking = [
                Field(field.name, field.type, nullable=True) for field in columns.fields if field.name not in there
            ]
            if lacking:
                confirmed(
                    table,
                    self.path,
                    lambda properties: table.alter.add_columns(lacking, commit_properties=properties),
                )

        retried(attempt, self.path)
        self._table = None

    def replace(self, written: Written, first: datetime, last: datetime, record: Record) -> bool:
        """Replace the files with event times in [first, last] by written files, in one commit.

        Args:
            written: the new files.
            first: first event time of the range.
            last: last event time of the range, inclusive.
            record: record of the commit.

        Returns:
            True if the files were replaced; False if a file lies only partly in the range or has markers. Nothing is done then; use ``replace_rows``.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> bool:
            table = self.table()
            old = inside(table, first, last)
            if old is None:
                return False
            self._commit(table, [*old, *written.send(self.path).actions()], record, partition_by=written.partition_by)
            return True

        return retried(attempt, self.path)

    def renew(self, written: Written, schema: Schema, record: Record) -> None:
        """Replace all files and columns of the table, in one commit.

        Args:
            written: the new files.
            schema: the new columns.
            record: record of the commit.
        """
        self._commit(
            self.table(),
            written.send(self.path).actions(),
            record,
            mode="overwrite",
            schema=schema,
            partition_by=written.partition_by,
        )

    def replace_rows(self, written: Written, first: datetime, last: datetime, record: Record) -> None:
        """Replace the rows with event times in [first, last] by written files, in one commit. Other rows of affected files are rewritten.

        Args:
            written: the new files. Files with the remaining rows are added to their folder.
            first: first event time of the range.
            last: last event time of the range, inclusive.
            record: record of the commit.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> None:
            table = self.table()
            old = split(table, self.path, written, first, last)
            self._commit(table, [*old, *written.send(self.path).actions()], record, partition_by=written.partition_by)

        retried(attempt, self.path)

    def rewrite(self, old: Sequence[RemoveAction], new: Sequence[AddAction], record: Record | None = None) -> bool:
        """Replace files by files with the same rows, or without rows that are forgotten, with ``dataChange=false``.

        Args:
            old: the files to remove.
            new: the files to add.
            record: record of the commit; by default that of a compaction.

        Returns:
            True if the files were replaced; False if an old file is no longer in the table, and nothing was done.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> bool:
            table = self.table()
            there = {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}
            if not {file.path for file in old} <= there:
                return False
            self._commit(table, [*old, *new], Compacted(files=len(old)) if record is None else record)
            return True

        return retried(attempt, self.path)

    def take_out(
        self,
        change: Callable[[DeltaTable], tuple[Sequence[RemoveAction], Sequence[AddAction]]],
        record: Record,
        once: tuple[str, int],
    ) -> None:
        """Replace files with ``dataChange`` as given by their actions, and with a record.

        Args:
            change: table -> (files to remove, files to add). Called again after a conflict with another writer.
            record: record of the commit.
            once: (application id, version) of the transaction.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> None:
            table = self.table()
            old, new = change(table)
            self._commit(table, [*old, *new], record, [Transaction(*once)])

        retried(attempt, self.path)

    def note(self, record: Record, once: tuple[str, int] | None = None, fences: Sequence[Transaction] = ()) -> None:
        """Commit a record without files.

        Args:
            record: record of the commit.
            once: (application id, version) of the transaction; by default none.
            fences: further transactions of the commit.
        """
        transactions = _transactions(once, fences)

        def attempt() -> None:
            self._commit(self.table(), [], record, transactions)

        if is_bucket(self.path):  # where a commit fails also if it could stand beside another one
            retried(attempt, self.path)
        else:
            attempt()

    def extend(
        self,
        version: int,
        files: Sequence[AddAction],
        record: Record,
        once: tuple[str, int],
        fences: Sequence[Transaction],
    ) -> None:
        """Append files that are in the table's folder to a known version of the table.

        Args:
            version: the newest version of the table.
            files: the files, in the order in which readers read them.
            record: record of the commit.
            once: (application id, version) of the transaction.
            fences: transactions of other writers, which are to commit nothing any more.

        Raises:
            LifecycleError: LIFECYCLE-004, another writer has committed to the table since that version.
        """
        table = self.table()
        if table.version() != version:
            raise interrupted(self.path, f"one that has committed version {version + 1}")
        try:
            self._commit(table, files, record, _transactions(once, fences))
        except CommitFailedError as error:
            raise interrupted(self.path, f"one: {error}") from error

    def become(
        self,
        files: Sequence[AddAction],
        record: Record,
        once: tuple[str, int],
        fences: Sequence[Transaction] = (),
        *,
        schema: Schema | None = None,
        partition_by: Sequence[str] | None = None,
    ) -> None:
        """Replace all files, and optionally the columns, of the table in one commit.

        Args:
            files: the new files; without files the table becomes empty.
            record: record of the commit.
            once: (application id, version) of the transaction.
            fences: further transactions of the commit.
            schema: the new columns; by default unchanged.
            partition_by: the new partition columns; by default unchanged.
        """
        transactions = _transactions(once, fences)
        self._commit(
            self.table(), files, record, transactions, mode="overwrite", schema=schema, partition_by=partition_by
        )

    def restore(self, version: int, record: Record, once: tuple[str, int], fences: Sequence[Transaction] = ()) -> None:
        """Restore the table to a version. If that is the newest version, only commits the record.

        Args:
            version: the version to restore.
            record: record of the commit.
            once: (application id, version) of the transaction.
            fences: further transactions of the commit.
        """
        table = self.table()
        if version < table.version():
            confirmed(
                table,
                self.path,
                lambda properties: table.restore(version, commit_properties=properties),
                metadata={"userMetadata": encode(record)},
                transactions=_transactions(once, fences),
            )
        else:
            self.note(record, once, fences)

    def set_properties(self, properties: Mapping[str, str]) -> bool:
        """Set those properties of the table that differ. Returns True if any did.

        Raises:
            LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
        """

        def attempt() -> bool:
            table = self.table()
            there = table.metadata().configuration
            other = {name: value for name, value in properties.items() if there.get(name) != value}
            if other:
                confirmed(
                    table, self.path, lambda commit: table.alter.set_table_properties(other, commit_properties=commit)
                )
            return bool(other)

        return retried(attempt, self.path)

    def _checkpoint(self, version: int) -> None:
        """Write the checkpoint of a version that was just committed."""
        if self.checkpointer is None:
            write_checkpoint(self.path, version)
        else:
            self.checkpointer.start(self.path, version)

    def _followed(self, app: str) -> Tail | None:
        """The current end of the log, with the last transaction version of an application; None if commits need the opened table."""
        if self._tail is None or app not in self._tail.done or not self._tail.follow():
            self._tail = Tail.of(self.path)
            if self._tail is not None:
                self._tail.done[app] = entries.transaction_of(self.path, app)
        return self._tail

    def _done(self, app: str, tail: Tail | None) -> int | None:
        return self.table().transaction_version(app) if tail is None else tail.done[app]

    def table(self) -> DeltaTable:
        """The table, opened or updated to its newest version."""
        if self._table is None:
            self._table = DeltaTable(self.path)
        else:
            self._table.update_incremental()
        return self._table

    def _commit(
        self,
        table: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        record: Record | None = None,
        transactions: Sequence[Transaction] = (),
        *,
        mode: str = "append",
        schema: Schema | None = None,
        partition_by: Sequence[str] | None = None,
    ) -> None:
        divided = table.metadata().partition_columns if partition_by is None else list(partition_by)
        columns = table.schema() if schema is None else schema
        confirmed(
            table,
            self.path,
            lambda properties: table.create_write_transaction(
                list(actions), mode, columns, divided, commit_properties=properties
            ),
            metadata=None if record is None else {"userMetadata": encode(record)},
            transactions=transactions,
        )


def _transactions(once: tuple[str, int] | None, fences: Sequence[Transaction]) -> list[Transaction]:
    return [*([Transaction(*once)] if once else []), *fences]
