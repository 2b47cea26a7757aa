"""A Delta table that something else appends to, landed commit by commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from floodmark.connectors.storage import file_system
from floodmark.connectors.unit import Landed, Record, Unit
from floodmark.core.errors import ConnectorError
from floodmark.core.fingerprint import digest
from floodmark.spec.source import DeltaTable

_PREFIX = "version "
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """Reads the appends of a table, version by version; inside a version by file and row.

    Args:
        settings: as the author wrote them, with an absolute path.
        source: its name, for messages.
    """

    settings: DeltaTable
    source: str

    def pending(self, landed: Mapping[str, Landed]) -> tuple[list[Unit], list[Landed]]:
        """The versions behind the last that landed.

        Raises:
            ConnectorError: CONNECTOR-004 no such table, 005 the next version is gone.
        """
        done = max((int(name.removeprefix(_PREFIX)) for name in landed), default=self.settings.starting_version - 1)
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
        return [Unit(name=f"{_PREFIX}{version}") for version in versions if version > done], []

    @property
    def _where(self) -> str:
        return f"source '{self.source}'"

    def open(self, unit: Unit) -> _Version:
        """Open a version, in a worker."""
        version = int(unit.name.removeprefix(_PREFIX))
        files, path = file_system(self.settings.path)
        return _Version(self._actions(files, path, version), files, path, self._physical(files, path, version))

    def _actions(self, files: FileSystem, path: str, version: int) -> list[dict[str, Any]]:
        with files.open_input_stream(f"{path}/_delta_log/{version:020d}.json", compression=None) as opened:
            actions = [json.loads(line) for line in opened.read().splitlines() if line.strip()]
        added = [action["add"] for action in actions if action.get("add", {}).get("dataChange", False)]
        removed = [action for action in actions if action.get("remove", {}).get("dataChange", False)]
        vectors = [add for add in added if add.get("deletionVector")]
        if removed or vectors:
            made = next(
                (action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), "a change"
            )
            fix = (
                f"Land only appended tables. To go on behind it, use a new source name with starting_version={version + 1}; "
                "for changing rows, append the table's change feed to a table and land that."
            )
            got = f"version {version}, which deletes or updates rows ({made})"
            raise ConnectorError(self._where, f"only appends in {self.settings.path}", got, fix, code="CONNECTOR-006")
        return added

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


@dataclass(slots=True)
class _Version:
    added: list[dict[str, Any]]
    files: FileSystem
    path: str
    names: dict[str, str]
    form: Literal["python"] = field(default="python", init=False)
    replay: str | None = field(default='{"format": "python"}', init=False)

    def records(self) -> Iterator[Record]:
        number = 0
        for add in self.added:
            fixed = {self.names.get(name, name): value for name, value in add["partitionValues"].items()}
            for row in self._rows(unquote(add["path"])):
                number += 1
                yield Record(number, b"", {**fixed, **row})

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        location = name if "://" in name or name.startswith("/") else f"{self.path}/{name}"
        with self.files.open_input_file(location) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=_BATCH_ROWS):
                columns = [self.names.get(column, column) for column in batch.schema.names]
                yield from pa.RecordBatch.from_arrays(batch.columns, names=columns).to_pylist()

    def fingerprint(self) -> tuple[int, str]:
        return 0, digest([add["path"] for add in self.added])
