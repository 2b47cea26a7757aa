"""Files: one for each delivery, or one in each folder of a division, written under another name until it is whole."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from floodmark.core import crash
from floodmark.core.errors import ConnectorError
from floodmark.core.host import host
from floodmark.deliveries import claims
from floodmark.deliveries.documents import document, plain
from floodmark.deliveries.sink import Altered, Away, Change, Changes, Sink
from floodmark.lake.folder import storage
from floodmark.lake.stream.delivered import Delivered
from floodmark.lake.table.files import NO_PARTITION
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_files import ToFiles

MANIFEST = "_floodmark.json"
"""The file that says which files count."""
CHANGE = "_change"
_OWNER = "owner"
"""Key in the manifest: the delivery and the lake that have claimed the folder; not in manifests of earlier releases."""
_DIVIDED = "partition_by"
"""Key in the manifest: the columns that divide the files."""
_NAME_BYTES = 255
"""Most bytes of the name of a folder."""
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""")
"""What Hive and Spark escape in the name of a folder."""
_SPECIAL = re.compile(r"""[",\r\n]""")
"""What a CSV has in quotes."""
_TOGETHER = 50_000
"""Most changes that are in memory at a time, to be divided among folders."""
_OWN = re.compile(r"\.?(\d{10})-\d+(\.\d+)?\.(parquet|csv|json)(\.draft)?")
"""Names of files, with their number."""


@dataclass
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
    _lake: str = field(default="", init=False)
    """Root of the lake whose claim the folder has."""
    _unfinished: bool = field(default=True, init=False)
    """There may be files of the next number, of a delivery that was cut short."""
    _named: set[str] = field(default_factory=set, init=False)
    """Folders whose names are on the disk as they were asked for."""

    @property
    def takes_deletes(self) -> bool:
        """Only as changes; otherwise all rows are written anew when some are gone."""
        return self.settings.changes

    @property
    def takeover(self) -> str:
        """As ``Sink``."""
        return f"remove {self.settings.folder}/{MANIFEST}, which delivers all anew"

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            ConnectorError: DELIVERY-025, it lies in the folder of another delivery, which divides its files.
        """
        files, path = self._opened()
        with self._reaching():
            # in a bucket the other one looks, as what lies above may not be this one's to read
            if isinstance(files, LocalFileSystem):
                for parent in Path(path).parents:
                    content = storage.read(f"{parent}/{MANIFEST}")
                    if content is not None and json.loads(content).get(_DIVIDED):
                        raise self._nested(path, f"{parent}")
            files.create_dir(path)
        self._named.clear()

    def claim(self, lake: str) -> None:
        """Write a manifest unless there is one.

        Raises:
            ConnectorError: DELIVERY-025, another delivery has a folder within.
        """
        self._lake = lake
        path = f"{self.settings.folder}/{MANIFEST}"
        claim = self._manifest(0, Delivered(name=self.route.output.table, lake=lake))
        with self._reaching():
            content = storage.read(path)
            if content is None:
                self._remove(lambda _: False)  # refuses before there is a manifest, which others would meet
                storage.create(path, claim)
            elif content != claim and self._may_replace(json.loads(content)):
                storage.write(path, claim)

    def position(self) -> Delivered | None:
        """As the manifest says. Files that do not count are removed: a delivery that was killed has left them, and the next one may have other changes.

        Raises:
            Altered: the manifest is gone.
            ConnectorError: DELIVERY-022, another delivery or another output has the folder; DELIVERY-025, another delivery has a folder within; DELIVERY-026, files there are divided by other columns.
        """
        with self._reaching():
            manifest = self._read_manifest()
            at = Delivered(**manifest["position"]) if "position" in manifest else Delivered()
            self._check(manifest, at)
            self._first, self._unfinished = manifest["first"], True
            # what is there stays until all is delivered anew
            self._remove(lambda number: at.number >= 0 and not self._first <= number <= at.number)
        return at

    def deliver(self, changes: Changes, number: int) -> None:
        """Write the file, then the manifest; then remove files that count no more."""
        with self._reaching():
            if self._read_manifest().get(_OWNER, self._owner) != self._owner:
                msg = f"{self._where}: the folder {self.settings.folder} was taken over by another delivery"
                raise Altered(msg)
            if self._unfinished:
                self._remove(lambda other: other == number)
            self._unfinished = True
            files, path = self._opened()
            name = f"{number:010d}-{changes.position.version}"
            if self._columns:
                self._write_divided(files, path, name, changes.batches)
            else:
                self._write(files, f"{path}/{name}.{self.settings.format}", changes.batches)
            crash.point("delivery.before_position")
            first = number if changes.whole else self._first
            storage.write(f"{self.settings.folder}/{MANIFEST}", self._manifest(first, changes.position))
            crash.point("delivery.after_commit")
            self._first, self._unfinished = first, False
            if changes.whole:
                self._remove(lambda other: other != number)

    # ---- the manifest

    def _read_manifest(self) -> dict[str, Any]:
        content = storage.read(f"{self.settings.folder}/{MANIFEST}")
        if content is None:
            msg = f"{self._where}: the folder {self.settings.folder} was removed"
            raise Altered(msg)
        manifest: dict[str, Any] = json.loads(content)
        return manifest

    def _manifest(self, first: int, position: Delivered) -> bytes:
        about = {"first": first, "number": position.number, _DIVIDED: self._columns, _OWNER: self._owner}
        about |= {claims.HOST: host()} if position.number < 0 else {}
        return json.dumps({**about, "position": asdict(position)}).encode()

    def _may_replace(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a manifest is a claim without a delivery behind it that is this delivery's, or nobody's any more."""
        owner = manifest.get(_OWNER, self._owner)
        is_claim = manifest.get("number", 0) < 0 and tuple(manifest.get(_DIVIDED, ())) == self._columns
        return is_claim and (
            owner == self._owner or claims.is_left(owner["lake"], owner["delivery"], manifest.get(claims.HOST, ""))
        )

    @property
    def _owner(self) -> dict[str, str]:
        return {"delivery": self.route.name, "lake": self._lake}

    def _check(self, manifest: Mapping[str, Any], at: Delivered) -> None:
        """Refuse a folder of another delivery or another output, and one that is divided otherwise."""
        folder = self.settings.folder
        if (owner := manifest.get(_OWNER, self._owner)["delivery"]) != self.route.name:
            fix = (
                "Give each delivery a folder of its own: ToFiles(...). If the other one was renamed or is gone, remove "
                f"{folder}/{MANIFEST}: all results are then delivered anew, and the files there go once they are."
            )
            expected, got = "a folder of its own", f"{folder}, which delivery '{owner}' fills"
            raise ConnectorError(self._where, expected, got, fix, code="DELIVERY-022")
        if at.name not in {"", self.route.output.table}:
            expected = f"a folder of '{self.route.output.table}', or a new one"
            got = f"{folder}, which has the results of '{at.name}'"
            fix = (
                "Give each delivery a folder of its own: ToFiles(...). If the output was renamed, remove "
                f"{folder}/{MANIFEST}: all results are then delivered anew, and the files there go once they are."
            )
            raise ConnectorError(self._where, expected, got, fix, code="DELIVERY-022")
        divided = tuple(manifest.get(_DIVIDED, ()))
        if divided != self._columns:
            expected = f"a folder whose files are {_described(self._columns)}, or a new one"
            got = f"{folder}, whose files are {_described(divided)}"
            fix = (
                "Give the delivery a new folder, or remove this one: all results are then delivered anew. "
                "Or take partition_by back to what it was."
            )
            raise ConnectorError(self._where, expected, got, fix, code="DELIVERY-026")

    def _nested(self, inner: str, outer: str) -> ConnectorError:
        fix = "Give each delivery a folder of its own, beside the other one: ToFiles(...)."
        got = f"{inner} in {outer}, whose files are divided: what reads them reads both"
        return ConnectorError(self._where, "folders that do not lie within each other", got, fix, code="DELIVERY-025")

    # ---- writing

    def _write_divided(self, files: FileSystem, path: str, name: str, batches: Iterator[list[Change]]) -> None:
        """Write a file in the folder of each division that has rows; several where there are very many rows."""
        for part, changes in enumerate(_portions(batches)):
            divided: dict[str, list[Change]] = defaultdict(list)
            for change in changes:
                divided[self._division(change)].append(change)
            file = f"{name}.{part}" if part else name
            for folder in divided:
                files.create_dir(f"{path}/{folder}")
            if isinstance(files, LocalFileSystem):
                self._check_names(path, divided)
            for folder, some in divided.items():
                self._write(files, f"{path}/{folder}/{file}.{self.settings.format}", iter([some]))
            if isinstance(files, LocalFileSystem):
                storage.sync_all(
                    {
                        parent
                        for folder in divided
                        for parent in Path(path, folder).parents
                        if parent.is_relative_to(path)
                    }
                )

    def _check_names(self, path: str, divisions: Iterable[str]) -> None:
        """Refuse texts that are one on this disk, as where case is ignored: their folder would have the name of one of them.

        Raises:
            ConnectorError: DELIVERY-027.
        """
        there: dict[str, frozenset[str]] = {}
        for division in divisions:
            parent = path
            for folder in division.split("/"):
                if (full := f"{parent}/{folder}") not in self._named:
                    if parent not in there:
                        there[parent] = frozenset(storage.folders(parent))
                    if folder not in there[parent]:
                        expected = "texts that name folders of their own"
                        got = f"{folder!r:.100}, which is the folder of another text on this disk"
                        fix = (
                            "Deliver to a disk that tells case and accents apart, or divide by a column in one case, "
                            'with_columns(country="upper(country)"), into a new folder.'
                        )
                        raise ConnectorError(self._where, expected, got, fix, code="DELIVERY-027")
                    self._named.add(full)
                parent = full

    def _division(self, change: Change) -> str:
        """The folder of a change: ``country=NL/year=2025``.

        Raises:
            ConnectorError: DELIVERY-023, a text that names no folder.
        """
        row, folders = change.values if change.row is None else change.row, []
        for column in self._columns:
            value = row[column]
            text = json.dumps(value) if isinstance(value, bool) else f"{plain(value)}"
            folder = f"{_escaped(column)}={NO_PARTITION if value is None else _escaped(text)}"
            if value in {"", NO_PARTITION} or len(folder.encode()) > _NAME_BYTES:
                expected = f"a value of '{column}' that names a folder: not empty, and of at most {_NAME_BYTES} bytes with the name of the column"
                fix = (
                    f"Divide by another column, such as with_columns(part=\"coalesce(nullif(left({column}, 50), ''), 'none')\"), into a new folder, and "
                    f"restart the delivery: floodmark restart {self.route.name}"
                )
                raise ConnectorError(self._where, expected, f"{value!r:.100}", fix, code="DELIVERY-023")
            folders.append(folder)
        return "/".join(folders)

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
    def _columns(self) -> tuple[str, ...]:
        """Those that divide the files."""
        return tuple(self.settings.partition_by)

    @property
    def _where(self) -> str:
        return f"delivery '{self.route.name}'"

    @property
    def _names(self) -> tuple[str, ...]:
        return self.route.output.schema.names

    @cached_property
    def _schema(self) -> pa.Schema:
        """Columns of the files: those that name folders are not among them."""
        schema = pa.schema(
            column for column in arrow_schema(self.route.output.schema) if column.name not in self.settings.partition_by
        )
        return schema.append(pa.field(CHANGE, pa.string())) if self.settings.changes else schema

    def _head(self) -> bytes:
        return _csv(self._schema.names) if self.settings.format == "csv" else b""

    def _line(self, row: Mapping[str, Any]) -> bytes:
        if self.settings.format == "json":
            return f"{document({name: row[name] for name in self._schema.names})}\n".encode()
        return _csv([_cell(row[name]) for name in self._schema.names])

    def _remove(self, goes: Callable[[int], bool]) -> None:
        """Remove files of this delivery, some or none, by their number: those with names of its own, as deep as it divides them.

        Raises:
            ConnectorError: DELIVERY-025, another delivery has a folder within this one.
        """
        files, path = self._opened()
        starts = [f"{_escaped(column)}=" for column in self._columns]
        for info in files.get_file_info(FileSelector(path, allow_not_found=True, recursive=bool(starts))):
            *folders, name = info.path.removeprefix(path).strip("/").split("/")
            if folders and name == MANIFEST:
                raise self._nested("/".join([path, *folders]), path)
            own = _OWN.fullmatch(name) if info.type == FileType.File else None
            is_deep = len(folders) == len(starts) and all(map(str.startswith, folders, starts))
            if own is not None and is_deep and goes(int(own[1])):
                files.delete_file(info.path)

    def _opened(self) -> tuple[FileSystem, str]:
        return storage.file_system(self.settings.folder)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Errors of a disk or a store as what a delivery does about them. A file of the output that is missing is no error of the sink."""
        try:
            yield
        except FileNotFoundError as error:
            files, path = self._opened()
            if files.get_file_info(path).type == FileType.Directory:
                raise
            raise Altered(f"{self._where}: the folder {self.settings.folder} was removed") from error
        except OSError as error:
            fix = "It goes on once there is room, and the folder can be written."
            got = f"{type(error).__name__}: {error}"
            raise Away(self._where, "a folder that takes files", got, fix, code="DELIVERY-001") from error


def _portions(batches: Iterator[list[Change]]) -> Iterator[list[Change]]:
    """Changes in larger lists."""
    portion: list[Change] = []
    for batch in batches:
        portion += batch
        if len(portion) >= _TOGETHER:
            yield portion
            portion = []
    if portion:
        yield portion


def _described(columns: tuple[str, ...]) -> str:
    return f"divided by {', '.join(columns)}" if columns else "not divided"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _csv(cells: Sequence[Any]) -> bytes:
    """A line. A text that is empty stands in quotes, so that a null is another one; so does a null that stands alone, as readers skip empty lines."""
    if [*cells] == [None]:
        return b'""\n'
    return f"{','.join(map(_quoted, cells))}\n".encode()


def _quoted(cell: Any) -> str:
    if cell is None:
        return ""
    text = str(cell)
    return text if text and not _SPECIAL.search(text) else '"' + text.replace('"', '""') + '"'


def _cell(value: Any) -> Any:
    """A value as a CSV has it: null is nothing, what is nested is JSON."""
    value = plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
