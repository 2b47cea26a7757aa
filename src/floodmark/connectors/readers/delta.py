"""Reader of a Delta table that another program writes, landed commit by commit: its appends, or all its changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
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
from floodmark.lake.table.commits import Landed
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
        positions: Mapping[str, str] = NOWHERE,  # noqa: ARG002 - its units have names
    ) -> Pending:
        """The versions after the last one that landed, as units.

        Raises:
            ConnectorError: CONNECTOR-004 no such table, 005 the next version is gone.
        """
        last = (int(name.removeprefix(_PREFIX)) for name in of_last_commit(landed))
        done = max(last, default=self.settings.starting_version - 1)
        files, path = file_system(f"{self.settings.path}/_delta_log")
        names = (file.base_name for file in files.get_file_info(FileSelector(path, allow_not_found=True)))
        versions = sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        if not versions:
            fix = "Correct the path in DeltaTable(...), or write the table first."
            raise ConnectorError(
                self._where, f"a Delta table at {self.settings.path}", "none", fix, code="CONNECTOR-004"
            )
        if versions[0] > done + 1:
            fix = (
                f"Land it from there with DeltaTable(..., starting_version={versions[0]}) under a new source name, "
                "or raise delta.logRetentionDuration of the table before it happens."
            )
            got = f"{versions[0]} as the oldest still kept"
            raise ConnectorError(
                self._where, f"version {done + 1} of {self.settings.path}", got, fix, code="CONNECTOR-005"
            )
        return Pending([Unit(name=f"{_PREFIX}{version}") for version in versions if version > done])

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
            self._physical(files, path, version),
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

    def _physical(self, files: FileSystem, path: str, version: int) -> dict[str, str]:
        """Column names in the files to their names in the table: the newest schema at or before a version."""
        for older in range(version, -1, -1):
            try:
                with files.open_input_stream(f"{path}/_delta_log/{older:020d}.json", compression=None) as opened:
                    actions = [json.loads(line) for line in opened.read().splitlines() if b'"metaData"' in line]
            except FileNotFoundError:
                break
            for action in actions:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                return {f["metadata"].get("delta.columnMapping.physicalName", f["name"]): f["name"] for f in fields}
        return {}


def reader(settings: DeltaTable, source: Source) -> DeltaReader:
    """The reader of a source that is a table of others."""
    return DeltaReader(settings, source.name)


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
        names: column name in the files -> name in the table.
        commit_columns: column -> value that every row of the version gets.
        settings: as the author wrote them.
        where: for messages.
    """

    data_files: list[_File]
    files: FileSystem
    path: str
    names: dict[str, str]
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
            fixed = {self.names.get(name, name): value for name, value in values}
            if file.change is not None:
                fixed[CHANGE_TYPE] = file.change
            for row in self._rows(unquote(file.action["path"])):
                number += 1
                yield Record(number, b"", {**fixed, **row, **self.commit_columns})

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        location = name if "://" in name or name.startswith("/") else f"{self.path}/{name}"
        with self._opened(location) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=_BATCH_ROWS):
                columns = [self.names.get(column, column) for column in batch.schema.names]
                yield from pa.RecordBatch.from_arrays(batch.columns, names=columns).to_pylist()

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
