"""Files: one for each delivery, written under another name until it is whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from floodmark.core import crash
from floodmark.deliveries.documents import document, plain
from floodmark.deliveries.sink import Altered, Away, Change, Changes, Sink
from floodmark.lake.folder import storage
from floodmark.lake.stream.delivered import Delivered
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_files import ToFiles

MANIFEST = "_floodmark.json"
"""The file that says which files count."""
CHANGE = "_change"


@dataclass(slots=True)
class FilesSink(Sink):
    """A folder of files.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    remembers: ClassVar[bool] = True
    commit_by_commit: ClassVar[bool] = True

    settings: ToFiles
    route: Route
    _first: int = field(default=0, init=False)

    @property
    def takes_deletes(self) -> bool:
        """Only as changes; otherwise all rows are written anew when some are gone."""
        return self.settings.changes

    def prepare(self) -> None:
        """Make the folder."""
        files, path = self._opened()
        with self._reaching():
            files.create_dir(path)

    def position(self) -> Delivered | None:
        """As the manifest says."""
        with self._reaching():
            content = storage.read(f"{self.settings.folder}/{MANIFEST}")
        if content is None:
            return None
        manifest = json.loads(content)
        self._first = int(manifest["first"])
        return Delivered(**manifest["position"])

    def deliver(self, changes: Changes, number: int) -> None:
        """Write the file, then the manifest; then remove files that count no more."""
        with self._reaching():
            files, path = self._opened()
            name = f"{number:010d}-{changes.position.version}.{self.settings.format}"
            self._write(files, f"{path}/{name}", changes.batches)
            crash.point("delivery.before_position")
            first = number if changes.whole else self._first
            manifest = {"first": first, "number": number, "position": json.loads(changes.position.to_json())}
            storage.write(f"{self.settings.folder}/{MANIFEST}", json.dumps(manifest).encode())
            crash.point("delivery.after_commit")
            self._first = first
            if changes.whole:
                self._remove(files, path, first)

    def _write(self, files: FileSystem, target: str, batches: Iterator[list[Change]]) -> None:
        """Write a file whole or not at all. A file without rows is written too, so that numbers have no gap."""
        directory, _, name = target.rpartition("/")
        is_disk = isinstance(files, LocalFileSystem)
        draft = f"{directory}/.{name}.draft" if is_disk else target  # an object appears once it is complete
        schema = self._schema
        with files.open_output_stream(draft) as stream:
            if self.settings.format == "parquet":
                with pq.ParquetWriter(stream, schema) as writer:
                    for batch in batches:
                        writer.write_batch(pa.RecordBatch.from_pylist([*map(self._row, batch)], schema=schema))
                        crash.point("delivery.after_batch")
            else:
                stream.write(self._head())
                for batch in batches:
                    stream.write(b"".join(self._line(self._row(change)) for change in batch))
                    crash.point("delivery.after_batch")
        if is_disk:
            storage.sync(Path(draft))
            files.move(draft, target)
            storage.sync(Path(directory))

    def _row(self, change: Change) -> dict[str, Any]:
        row = dict(change.row) if change.row is not None else {**dict.fromkeys(self._names), **change.values}
        return row | {CHANGE: "delete" if change.row is None else "upsert"} if self.settings.changes else row

    @property
    def _names(self) -> tuple[str, ...]:
        return self.route.output.schema.names

    @property
    def _schema(self) -> pa.Schema:
        schema = pa.schema(arrow_schema(self.route.output.schema))
        return schema.append(pa.field(CHANGE, pa.string())) if self.settings.changes else schema

    def _head(self) -> bytes:
        return _csv(self._schema.names) if self.settings.format == "csv" else b""

    def _line(self, row: Mapping[str, Any]) -> bytes:
        if self.settings.format == "json":
            return f"{document(row)}\n".encode()
        return _csv([_cell(row[name]) for name in self._schema.names])

    def _remove(self, files: FileSystem, path: str, first: int) -> None:
        for info in files.get_file_info(FileSelector(path)):
            number, _, _ = info.base_name.lstrip(".").partition("-")
            if info.type == FileType.File and number.isdecimal() and int(number) < first:
                files.delete_file(info.path)

    def _opened(self) -> tuple[FileSystem, str]:
        return storage.file_system(self.settings.folder)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Errors of a disk or a store as what a delivery does about them. A file of the output that is missing is no error of the sink."""
        where = f"delivery '{self.route.name}'"
        try:
            yield
        except FileNotFoundError as error:
            files, path = self._opened()
            if files.get_file_info(path).type == FileType.Directory:
                raise
            raise Altered(f"{where}: the folder {self.settings.folder} was removed") from error
        except OSError as error:
            fix = "It goes on once there is room, and the folder can be written."
            got = f"{type(error).__name__}: {error}"
            raise Away(where, "a folder that takes files", got, fix, code="DELIVERY-001") from error


def _csv(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value as a CSV has it: null is nothing, what is nested is JSON."""
    value = plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
