"""Reader of a Delta table that another program writes, landed commit by commit: its appends, or all its changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import NativeFile
from pyarrow.fs import FileSelector, FileSystem

from floodmark.connectors.entries import Record
from floodmark.connectors.judging.validation import CHANGE_TYPE
from floodmark.connectors.unit import NOWHERE, OnDisk, Pending, Reader, Unit, of_last_commit
from floodmark.core.errors import ConnectorError
from floodmark.core.fingerprint import digest
from floodmark.lake.folder.paths import is_local
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landed
from floodmark.semantics.encoding.dates import rows_of
from floodmark.spec.rows.connector import DeltaTable
from floodmark.spec.rows.source import Source

_PREFIX = "version "
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class DeltaReader(Reader):
    """Reads the appends or the changes of a table, version by version; inside a version by file and row.

    Args:
        settings: as the author wrote them, with an absolute path.
        source: name of the source, for messages.
    """

    settings: DeltaTable
    source: str

    def pending(
        self,
        landed: Mapping[str, Landed],
        positions: Mapping[str, str] = NOWHERE,
    ) -> Pending:
        """The versions after the last one that landed, as units. Their position is the id of the table's first version, which another table of that path does not have.

        Raises:
            ConnectorError: CONNECTOR-004 no such table, 005 the next version is gone, 009 the table was made anew.
        """
        last = [int(name.removeprefix(_PREFIX)) for name in of_last_commit(landed)]
        done = max(last, default=self.settings.starting_version - 1)
        versions = (self._behind(done) if last else None) or self._listed()
        if not versions:
            fix = "Correct the path in DeltaTable(...), or write the table first."
            raise ConnectorError(
                self._where, f"a Delta table at {self.settings.path}", "none", fix, code="CONNECTOR-004"
            )
        created = self._created()
        if last and (versions[-1] < done or created not in {"", positions.get("") or created}):
            raise self._made_anew(versions[-1], done)
        if versions[0] > done + 1:
            fix = (
                f"Land it from there with DeltaTable(..., starting_version={versions[0]}) under a new source name, "
                "or raise delta.logRetentionDuration of the table before it happens."
            )
            got = f"{versions[0]} as the oldest still kept"
            raise ConnectorError(
                self._where, f"version {done + 1} of {self.settings.path}", got, fix, code="CONNECTOR-005"
            )
        position = created or positions.get("", "")
        return Pending([Unit(name=f"{_PREFIX}{version}", position=position) for version in versions if version > done])

    def _behind(self, done: int) -> Sequence[int] | None:
        """The version that has landed last and those behind it, without a look at the whole log; None if only that can tell."""
        newest = entries.newest(self.settings.path)
        is_told = newest is not None and (newest == done or entries.has_entry(self.settings.path, done + 1))
        return range(done, newest + 1) if newest is not None and is_told else None

    def _listed(self) -> Sequence[int]:
        """The versions whose entries are in the log."""
        files, path = file_system(f"{self.settings.path}/_delta_log")
        names = (file.base_name for file in files.get_file_info(FileSelector(path, allow_not_found=True)))
        return sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def _created(self) -> str:
        """Id of the table in its first version; empty where the log no longer has that."""
        first = entries.entry(self.settings.path, 0)
        stated = (
            (action["metaData"]["id"] for action in entries.actions(first) if "metaData" in action) if first else ()
        )
        return str(next(iter(stated), ""))

    def _made_anew(self, newest: int, done: int) -> ConnectorError:
        got = f"another table, whose newest version is {newest}; {done} has landed"
        fix = (
            "It was deleted and made anew, or restored from a copy. Land it under a new source name, with a union of both for their readers; or put "
            "the table back that was there."
        )
        return ConnectorError(
            self._where, f"the table of {self.settings.path} that has landed so far", got, fix, code="CONNECTOR-009"
        )

    def on_disk(self, most: int) -> OnDisk | None:  # noqa: ARG002 - only the folder is looked for
        """As ``Reader``."""
        return OnDisk(self.settings.path, {}, is_table=True) if is_local(self.settings.path) else None

    @property
    def _where(self) -> str:
        return f"source '{self.source}'"

    def open(self, unit: Unit) -> _Version:
        """Open a version, in a worker."""
        version = int(unit.name.removeprefix(_PREFIX))
        files, path = file_system(self.settings.path)
        actions = self._actions(files, path, version)
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        commit_columns: dict[str, Any] = {}
        if self.settings.read == "events":
            at = datetime.fromtimestamp(int(info.get("inCommitTimestamp") or info["timestamp"]) / 1000, UTC)
            commit_columns = {"_commit_version": version, "_commit_timestamp": at}
        return _Version(
            self._files(actions, version, str(info.get("operation", "a change"))),
            files,
            path,
            self._columns(files, path, version),
            commit_columns,
            self.settings,
            self._where,
        )

    def _actions(self, files: FileSystem, path: str, version: int) -> list[dict[str, Any]]:
        with files.open_input_stream(f"{path}/_delta_log/{version:020d}.json", compression=None) as opened:
            return [json.loads(line) for line in opened.read().splitlines() if line.strip()]

    def _files(self, actions: list[dict[str, Any]], version: int, operation: str) -> list[_File]:
        """The files of a version to read, in the order of their rows.

        Raises:
            ConnectorError: CONNECTOR-006 the version deletes or updates rows and only appends are read,
                CONNECTOR-008 its deleted rows are in deletion vectors.
        """
        changed = [action["cdc"] for action in actions if "cdc" in action]
        added = [action["add"] for action in actions if action.get("add", {}).get("dataChange", False)]
        removed = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange", False)]
        vectors = [action for action in (*added, *removed) if action.get("deletionVector")]
        if self.settings.read != "appends":
            if changed:
                return [_File(action, None) for action in changed]
            if vectors:
                fix = (
                    "Set delta.enableDeletionVectors=false on the table, and use a new source name with "
                    f"starting_version={version + 1}."
                )
                got = f"version {version}, whose deleted rows are in deletion vectors ({operation})"
                expected = f"change files, or whole files, in {self.settings.path}"
                raise ConnectorError(self._where, expected, got, fix, code="CONNECTOR-008")
            return [_File(a, "delete") for a in removed] + [_File(a, "insert") for a in added]
        if removed or vectors:
            fix = (
                'Land the changes too: DeltaTable(..., read="changes"), under a new source name. To resume behind it, use a new '
                f"source name with starting_version={version + 1}."
            )
            got = f"version {version}, which deletes or updates rows ({operation})"
            raise ConnectorError(self._where, f"only appends in {self.settings.path}", got, fix, code="CONNECTOR-006")
        return [_File(add, None) for add in added]

    def _columns(self, files: FileSystem, path: str, version: int) -> dict[str, _Column]:
        """Column name in the files -> the column, by the newest schema at or before a version; empty if the log no longer has one.

        The schema of the version that was read last is remembered: very many versions may lie behind the last change of the schema.
        """
        known = _schemas.get(self.settings.path, _Schema(-1, "", {}))
        columns, created = dict[str, _Column](), self._created()
        for older in range(version, -1, -1):
            if older == known.version and created and known.created == created:
                columns = known.columns
                break
            try:
                with files.open_input_stream(f"{path}/_delta_log/{older:020d}.json", compression=None) as opened:
                    actions = [json.loads(line) for line in opened.read().splitlines() if b'"metaData"' in line]
            except FileNotFoundError:
                break
            stated = next((action["metaData"]["schemaString"] for action in actions if "metaData" in action), None)
            if stated is not None:
                columns = _columns_of(stated)
                break
        if columns:
            _schemas[self.settings.path] = _Schema(version, created, columns)
        return columns


def reader(settings: DeltaTable, source: Source) -> DeltaReader:
    """The reader of a source that is a table of others."""
    return DeltaReader(settings, source.name)


class _Column(NamedTuple):
    """A column of the table.

    Args:
        name: in the table.
        type: in Delta's JSON form.
    """

    name: str
    type: Any

    def typed(self, text: str | None) -> Any:
        """(value of a partition as the log has it) -> the value; the text itself where it is none of the type, for the contract to judge."""
        if text is None or (not text and self.type != "string"):  # Delta's text of a null
            return None
        if self.type == "boolean":
            return {"true": True, "false": False}.get(text.lower(), text)
        try:
            return _READ[str(self.type).partition("(")[0]](text)
        except (KeyError, ValueError, ArithmeticError):
            return text


def _columns_of(schema: str) -> dict[str, _Column]:
    """(schema in Delta's JSON form) -> (column name in the files -> the column)."""
    return {
        field["metadata"].get("delta.columnMapping.physicalName", field["name"]): _Column(field["name"], field["type"])
        for field in json.loads(schema)["fields"]
    }


class _Schema(NamedTuple):
    """The schema of a version.

    Args:
        version: of the table.
        created: id of the table in its first version.
        columns: column name in the files -> the column.
    """

    version: int
    created: str
    columns: dict[str, _Column]


_schemas: dict[str, _Schema] = {}
"""Path of a table -> the schema of the version that this process has read last."""
_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "decimal": Decimal,
}
"""Delta's type -> (text) -> the value; texts of other types are read as the contract reads them."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a version.

    Args:
        action: the file's action in the Delta log.
        change: what became of every row of the file; None if each row says it in ``CHANGE_TYPE``, or only appends are read.
    """

    action: dict[str, Any]
    change: str | None


@dataclass(slots=True)
class _Version:
    """An opened version.

    Args:
        data_files: of the version, in the order of their rows.
        files: the file system of the table.
        path: of the table in the file system.
        columns: column name in the files -> the column.
        commit_columns: column -> value that every row of the version gets.
        settings: as the author wrote them.
        where: for messages.
    """

    data_files: list[_File]
    files: FileSystem
    path: str
    columns: dict[str, _Column]
    commit_columns: dict[str, Any]
    settings: DeltaTable
    where: str
    form: Literal["python"] = field(default="python", init=False)
    replay: str | None = field(default='{"format": "python"}', init=False)
    left_out: None = field(default=None, init=False)
    position: str = field(default="", init=False)
    default_nulls: Mapping[str, int] = field(default_factory=dict, init=False)

    def records(self) -> Iterator[Record]:
        number = 0
        for file in self.data_files:
            values = (file.action.get("partitionValues") or {}).items()
            named = ((self._column(name), value) for name, value in values)
            fixed = {column.name: column.typed(value) for column, value in named}
            if file.change is not None:
                fixed[CHANGE_TYPE] = file.change
            for row in self._rows(unquote(file.action["path"])):
                number += 1
                yield Record(number, b"", {**fixed, **row, **self.commit_columns})

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        location = name if "://" in name or name.startswith("/") else f"{self.path}/{name}"
        with self._opened(location) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=_BATCH_ROWS):
                names = [self._column(name).name for name in batch.schema.names]
                yield from rows_of(pa.RecordBatch.from_arrays(batch.columns, names=names))

    def _column(self, name: str) -> _Column:
        return self.columns.get(name) or _Column(name, "string")

    def _opened(self, location: str) -> NativeFile:
        try:
            return self.files.open_input_file(location)
        except FileNotFoundError as error:
            fix = (
                "Land a table before VACUUM removes what it has replaced, and keep delta.deletedFileRetentionDuration longer than "
                "the landing may stand still. Land what is there now under a new source name."
            )
            expected = f"the files of the version in {self.settings.path}"
            raise ConnectorError(self.where, expected, f"no {location}", fix, code="CONNECTOR-005") from error

    def fingerprint(self) -> tuple[int, str]:
        return 0, digest([file.action["path"] for file in self.data_files])
