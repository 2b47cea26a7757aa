"""The log of an output, followed commit by commit: which changes come next behind a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.deliveries.results import Database, Results, Selection
from floodmark.deliveries.sink import Changes
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.stream.delivered import Delivered
from floodmark.lake.table import entries
from floodmark.lake.table.commits import decode, progress_of
from floodmark.lake.table.files import rows_of
from floodmark.lake.table.rows import row_schema
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import PARTITION

if TYPE_CHECKING:
    from pyarrow import dataset

_BYTES = 1 << 26
"""Bytes of files after which a delivery gets no further commit."""
_COMMITS = 1_000
"""Most commits of a delivery."""


@dataclass(slots=True)
class _Step:
    """What one commit does to the rows of a table.

    Args:
        entry: of the commit.
        added: paths of files with new rows.
        removed: paths of files whose rows are gone.
        size: bytes of the added files.
        progress: of the output; None if the commit tells of none.
        at: time of the commit, ms.
        by_hand: rows were deleted without a record, as when a stream begins that computes them anew.
    """

    entry: entries.Entry
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    size: int = 0
    progress: int | None = None
    at: int = 0
    by_hand: bool = False

    @staticmethod
    def of(path: str, entry: entries.Entry) -> _Step:
        step = _Step(entry)
        for action in entries.actions(entry):
            if (file := action.get("add")) is not None and file.get("dataChange", True):
                step.added.append(unquote(file["path"]))
                step.size += int(file["size"])
            elif (file := action.get("remove")) is not None and file.get("dataChange", True):
                step.removed.append(unquote(file["path"]))
        info = entries.commit_info(entry)
        record = decode(info.get("userMetadata"), f"commit {entry.version} of table {path}")
        step.progress, step.at = progress_of(record), int(info.get("timestamp", 0))
        step.by_hand = record is None and info.get("operation") == "DELETE"
        return step


@dataclass(slots=True)
class Log:
    """The log of the output of a delivery.

    Args:
        route: the delivery.
        lake: of the output.
        scratch: folder for what memory does not hold.
        commit_by_commit: whether changes are those of one commit only.
        takes_deletes: whether the difference to replaced rows is delivered; otherwise all results are.
    """

    route: Route
    lake: Lake
    scratch: Path
    commit_by_commit: bool = False
    takes_deletes: bool = True
    _database: Database = field(init=False)
    _seen: Delivered | None = None
    """The position behind commits without rows, which are not delivered."""

    def __post_init__(self) -> None:
        self._database = Database(self.scratch)

    def close(self) -> None:
        """Let go of the database that selects changes."""
        self._database.close()

    @property
    def path(self) -> str:
        """Path of the output's table."""
        return self.lake.written(self.route.operator, self.route.output.table)

    def newest(self) -> int | None:
        """Version of the newest commit; None if there is no table."""
        return entries.newest(self.path)

    def now(self) -> Delivered | None:
        """The position behind all that is there; None if there is no table."""
        newest = self.newest()
        return (
            None if newest is None else replace(self._whole(None, newest, entries.id_of(self.path)).position, number=-1)
        )

    def passed(self, at: Delivered | None) -> Delivered | None:
        """A position, or that behind the commits without rows that follow."""
        seen = self._seen
        is_behind = seen is not None and at is not None and (seen.table, seen.number) == (at.table, at.number)
        return seen if is_behind else at

    def next(self, at: Delivered | None, upto: Delivered | None = None) -> Changes | None:
        """The changes behind a position; None if there are none yet.

        Args:
            at: what is delivered; None for nothing.
            upto: position behind the changes, if they are to be those of a delivery that was cut short.

        Raises:
            FileNotFoundError: a file is gone; the position is then as one without a table.
        """
        newest = self.newest()
        if newest is None:
            return None
        table = entries.id_of(self.path)
        if at is None or at.table != table or at.version > newest:
            if upto is not None and upto.table == table and upto.version <= newest:
                return self._whole(at, upto.version, table)
            return self._whole(at, newest, table)
        start = self.passed(at)
        assert start is not None
        steps = self._steps(start, upto)
        if steps is None:
            return self._whole(at, newest, table)
        last = replace(start, name=self.route.output.table, lake=self.lake.root)
        for step in steps:
            reached = last.progress if step.progress is None else step.progress
            last = replace(last, version=step.entry.version, progress=reached, at=step.at)
        if not any(step.added or step.removed for step in steps):
            self._seen = last
            return None
        position = replace(last, number=at.number + 1)
        if steps[-1].removed and not self.takes_deletes:
            return self._whole(at, newest if upto is None else upto.version, table)
        if steps[-1].removed:
            try:
                return self._difference(steps[-1], at, position)
            except (DeltaError, FileNotFoundError):  # what was removed is gone from the disk, too
                return self._whole(at, newest, table)
        files = [f"{self.path}/{name}" for step in steps for name in step.added]
        rows = self._results.appended(self._files(files), position.version)
        return _changes(rows, position, at)

    def whole(self, version: int) -> Changes:
        """All results of a version, as changes behind nothing.

        Raises:
            FileNotFoundError, DeltaError: files or entries of the version are gone.
        """
        return self._whole(None, version, entries.id_of(self.path), staying=None)

    # ---- kinds of changes

    @property
    def _results(self) -> Results:
        return Results(self.route, self._database)

    def _whole(
        self, at: Delivered | None, version: int, table: str, staying: dataset.Dataset | EllipsisType | None = ...
    ) -> Changes:
        """All results of a version, and last values that stay: by default those of now."""
        position = Delivered(table=table, version=version, name=self.route.output.table, lake=self.lake.root)
        for entry in entries.backwards(self.path, version):
            step = _Step.of(self.path, entry)
            position = replace(position, at=position.at or step.at)
            if step.progress is not None:
                position = replace(position, progress=step.progress)
                break
        position = replace(position, number=0 if at is None else at.number + 1)
        staying = self._current() if staying is ... else staying
        rows = self._results.whole(self._version(version), version, staying)
        return _changes(rows, position, at, whole=True, taken_back=at is not None)

    def _difference(self, step: _Step, at: Delivered, position: Delivered) -> Changes:
        version = step.entry.version
        before, removed = DeltaTable(self.path, version=version - 1), set(step.removed)
        if not entries.all_there(self.path, (quote(name) for name in removed)):
            raise FileNotFoundError
        touched = {"gone": rows_of(before, lambda name: name in removed, self._schema)}
        if step.added:
            touched["come"] = self._files([f"{self.path}/{name}" for name in step.added])
        rows = self._results.difference(
            touched,
            before.to_pyarrow_dataset(schema=self._schema),
            self._version(version),
            version,
            self._current() if step.by_hand else None,
        )
        return _changes(rows, position, at, taken_back=True)

    # ---- the log

    def _steps(self, at: Delivered, upto: Delivered | None) -> list[_Step] | None:
        """The commits of the next changes: those that append rows, or one that replaces rows; None if commits are gone."""
        steps, size, most = list[_Step](), 0, upto.version if upto is not None and upto.table == at.table else None
        while len(steps) < _COMMITS and size < _BYTES and (most is None or at.version + len(steps) < most):
            entry = entries.entry(self.path, at.version + len(steps) + 1)
            if entry is None:
                break
            step = _Step.of(self.path, entry)
            if step.removed and any(one.added for one in steps):
                break
            steps.append(step)
            size += step.size
            if step.removed or (self.commit_by_commit and step.added):
                break
        if not steps and (newest := self.newest()) is not None and newest > at.version:
            return None if entries.entry(self.path, at.version + 1) is None else []
        return steps

    # ---- rows

    @property
    def _schema(self) -> pa.Schema:
        """Of rows in tables; with the column of asset partitions, by whose values a divided table skips files."""
        schema, output = row_schema(self.route.output.schema), self.route.output
        return schema if output.partitions is None else schema.append(pa.field(PARTITION, pa.string()))

    def _version(self, version: int) -> dataset.Dataset:
        return DeltaTable(self.path, version=version).to_pyarrow_dataset(schema=self._schema)

    def _current(self) -> dataset.Dataset | None:
        """The table of last values, where it shows committed values only."""
        current = self.route.output.current
        operator = self.route.operator
        if current is None or not isinstance(operator, Operator) or operator.isolation != "read_committed":
            return None
        try:
            return DeltaTable(self.lake.output(current.table)).to_pyarrow_dataset(schema=self._schema)
        except DeltaError:
            return None

    def _files(self, paths: Sequence[str]) -> dataset.Dataset:
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        files, first = file_system(paths[0])
        names = [first, *(file_system(path)[1] for path in paths[1:])]
        return dataset.dataset(names, schema=self._schema, format="parquet", filesystem=files)


def _changes(
    rows: Selection, position: Delivered, before: Delivered | None, *, whole: bool = False, taken_back: bool = False
) -> Changes:
    """The changes of a delivery, of selected rows."""
    return Changes(
        batches=rows.changes(),
        documents=rows.documents(),
        position=position,
        before=before,
        whole=whole,
        taken_back=taken_back,
        columns=rows.columns,
    )
