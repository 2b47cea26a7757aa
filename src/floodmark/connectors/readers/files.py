"""Reader of the files of a folder or bucket, each landed once and whole."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import Any, ClassVar, Literal

from pyarrow.fs import FileSelector, FileType

from floodmark.connectors.entries import Entry, Form, Record, together
from floodmark.connectors.formats.cells import Cells
from floodmark.connectors.formats.documents import json_records
from floodmark.connectors.formats.tabular import Csv, csv_records, header_of, lines_of, parquet_columns, whole
from floodmark.connectors.formats.text import Lines, text_records
from floodmark.connectors.messages.debezium import file_records
from floodmark.connectors.unit import NOWHERE, OnDisk, Pending, Reader, Unit, Unsettled
from floodmark.core.errors import ConnectorError, SetupError, closest
from floodmark.lake.folder.storage import Hashed, digest_of, file_system, open_hashed
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landed
from floodmark.spec.rows.connector import Files
from floodmark.spec.rows.contract import Contract, inputs_of
from floodmark.spec.rows.source import Source

Format = Literal["csv", "json", "parquet", "avro", "text", "logfmt"]
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
"""Ending of a file's name -> the format that the file is read as without a ``format=``."""
_FORMS: dict[Format, Form] = {
    "csv": "text",
    "json": "json",
    "parquet": "python",
    "avro": "python",
    "text": "text",
    "logfmt": "text",
}
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".inprogress")
"""Endings that a writer gives to a file until the file is complete."""
_CHECKSUM = ".crc"
END_AGE = 5_000
"""Time for which a file on a file system must be unchanged before an end of input lands, ms, unless the source declares ``min_age``."""
_DIGEST_THREADS = 4
_IN_MEMORY = 64 << 20
"""Largest Parquet file, in bytes, that is copied to memory while it is read; a larger file is copied to the local disk."""
_WHOLE_SECONDS = 1.0
"""Time between two looks at the sizes and dates of all files of a folder, for a reader that glances."""


@dataclass(slots=True)
class _Glance:
    """What a reader has seen of a folder, whose files it does not look at one by one each time.

    Args:
        at: when it has looked at all files, monotonic.
        same: names of those that have landed and had not changed.
    """

    at: float = -math.inf
    same: set[str] = field(default_factory=set)

    def __reduce__(self) -> tuple[type[_Glance], tuple[()]]:
        """Workers do not look."""
        return _Glance, ()


@dataclass(frozen=True, slots=True)
class FileReader(Reader):
    """Reads the files that ``Files`` names.

    Args:
        settings: as the author wrote them, with an absolute path.
        contract: what a row is.
        source: name of the source, for messages.
        glance: of a reader of ``glancing``.
    """

    vanishing: ClassVar[bool] = True

    settings: Files
    contract: type[Contract]
    source: str
    glance: _Glance | None = field(default=None, compare=False, repr=False)

    def glancing(self) -> Reader:
        """As ``Reader``, of a folder on a file system: the size and the date of each of very many files cost more than all else of a look."""
        _, pattern = self._base_and_pattern()
        return replace(self, glance=_Glance()) if self.is_local and pattern is None else self

    def pending(
        self,
        landed: Mapping[str, Landed],
        positions: Mapping[str, str] = NOWHERE,  # noqa: ARG002 - its units have names
    ) -> Pending:
        """New files and files whose content has changed since they landed, as units; and landed files of which only the date has changed.

        Raises:
            ConnectorError: CONNECTOR-002, the folder is missing.
        """
        new, seen = [], []
        for unit in self._changed(landed):
            known = landed.get(unit.name)
            if known is None or known.status == "unreadable":
                new.append(unit)
            else:
                seen.append((unit, known))
        touched = []
        with ThreadPoolExecutor(_DIGEST_THREADS) as pool:
            digests = pool.map(lambda pair: digest_of(self.location(pair[0].name)), seen)
            for (unit, known), digest in zip(seen, digests, strict=True):
                if digest == known.digest:
                    touched.append(replace(known, size=unit.size, modified=unit.modified))
                else:
                    new.append(replace(unit, replaces=True))
        by_date = self.settings.order_by == "modified"
        return Pending(sorted(new, key=lambda unit: (unit.modified if by_date else 0, unit.name)), touched)

    def open(self, unit: Unit) -> _File:
        """Open a file, in a worker."""
        return _File(self, unit.name)

    def location(self, name: str) -> str:
        """The path or URI of a unit."""
        return f"{self._base_and_pattern()[0]}/{name}"

    def format_of(self, name: str) -> Format | None:
        """The format that a file is read as; None if its ending names none."""
        return self.settings.format or ENDINGS.get(PurePosixPath(name.removesuffix(".gz")).suffix.lower())

    def _base_and_pattern(self) -> tuple[str, str | None]:
        parts = self.settings.path.rstrip("/").split("/")
        first_wildcard = next((n for n, part in enumerate(parts) if any(c in part for c in "*?[")), None)
        return (
            ("/".join(parts), None)
            if first_wildcard is None
            else ("/".join(parts[:first_wildcard]), "/".join(parts[first_wildcard:]))
        )

    @property
    def folder(self) -> str:
        """The folder, or URI, in and below which the source's files are."""
        return self._base_and_pattern()[0]

    def lands(self, path: Path) -> bool:
        """Whether this source lands a file of this machine."""
        base = Path(self.folder)
        return path.is_relative_to(base) and self._takes(path.relative_to(base).as_posix())

    def _takes(self, name: str) -> bool:
        _, pattern = self._base_and_pattern()
        hidden = any(part.startswith((".", "_")) for part in name.split("/")) or name.endswith(
            (*_UNFINISHED, _CHECKSUM)
        )
        matches = re.fullmatch(_expression(pattern), name) is not None if pattern else "/" not in name
        return matches and not hidden and self.format_of(name) is not None

    def is_unfinished(self, name: str) -> bool:
        """True if the source lands the file once its writer has taken an ending such as ``.part`` from its name."""
        return any(name.endswith(ending) and self._takes(name.removesuffix(ending)) for ending in _UNFINISHED)

    def is_hidden(self, name: str) -> bool:
        """True if the source would land the file without its leading dot, and perhaps its ending: ``.orders.csv.Xy12ab``, a copy in progress."""
        folder, slash, last = name.rpartition("/")
        visible = last.lstrip(".")
        return last.startswith(".") and any(
            self._takes(f"{folder}{slash}{stem}") for stem in (visible, visible.rpartition(".")[0])
        )

    def check_there(self) -> None:
        """Make sure that the source's folder exists.

        Raises:
            ConnectorError: CONNECTOR-002 the folder is missing, CONNECTOR-003 it is a file.
        """
        base, _ = self._base_and_pattern()
        files, path = file_system(base)
        info = files.get_file_info(path)
        if info.type == FileType.NotFound:
            parent, _, name = path.rstrip("/").rpartition("/")
            known = [f.base_name for f in files.get_file_info(FileSelector(parent or "/", allow_not_found=True))]
            fix = f"{closest(name, known)}Create it, or correct the path in Files(...)."
            raise ConnectorError(f"source '{self.source}'", f"a folder {base}", "none there", fix, code="CONNECTOR-002")
        self.refuse_file()

    def refuse_file(self) -> None:
        """Raise ConnectorError CONNECTOR-003 when a file stands where a folder should."""
        base, _ = self._base_and_pattern()
        files, path = file_system(base)
        if files.get_file_info(path).type == FileType.File:
            got, fix = f"the file {base}", f'Name its folder, or a glob: "{path.rpartition("/")[0]}/*.csv".'
            raise ConnectorError(f"source '{self.source}'", "a folder or a glob", got, fix, code="CONNECTOR-003")

    def _changed(self, landed: Mapping[str, Landed]) -> Iterator[Unit]:
        """Files that are new, or have another size or time than when they landed. Only the listing is read: files may be very many."""
        same = landed.same if isinstance(landed, LandedUnits) else partial(_same, landed)
        glance = self.glance
        whole_look = glance is None or time.monotonic() - glance.at >= _WHOLE_SECONDS
        if glance is not None and whole_look:
            glance.at = time.monotonic()
            glance.same.clear()
        for name, size, modified in self.listed() if whole_look else self._listed_but(glance.same if glance else ()):
            if same(name, size, modified):
                if glance is not None:
                    glance.same.add(name)
            elif self._takes(name):
                yield Unit(name=name, size=size, modified=modified)

    def _listed_but(self, known: Collection[str]) -> Iterator[tuple[str, int, int]]:
        """``listed`` of a folder on a file system, without the files of some names, and without those that the source does not land."""
        self.check_there()
        folder = file_system(self.folder)[1]
        try:
            names = os.listdir(folder)  # noqa: PTH208 - of very many files, of which only the names are asked for
        except FileNotFoundError:  # the folder has gone since
            self.check_there()
            names = os.listdir(folder)  # noqa: PTH208 - as above
        for name in names:
            if name in known or not self._takes(name):
                continue
            file = self.look(name)
            if file is not None:
                yield name, file.size, file.modified

    def listed(self) -> Iterator[tuple[str, int, int]]:
        """(name, size, modification time in ns) of all files in the source's folder, also those that the source does not land."""
        self.check_there()
        base, pattern = self._base_and_pattern()
        files, path = file_system(base)
        deep = pattern is not None and ("/" in pattern or "**" in pattern)
        before = len(path.rstrip("/")) + 1
        selector = FileSelector(path, recursive=deep)
        try:
            listing = files.get_file_info(selector)
        except FileNotFoundError:  # the folder, or one in it, has gone since
            self.check_there()
            listing = files.get_file_info(selector)
        for file in listing:
            if file.type == FileType.File:
                yield file.path[before:], file.size, file.mtime_ns or 0

    def look(self, name: str) -> Unit | None:
        """The file of a name as it is now; None if it is gone."""
        files, path = file_system(self.location(name))
        file = files.get_file_info(path)
        return Unit(name=name, size=file.size, modified=file.mtime_ns or 0) if file.type == FileType.File else None

    def min_age(self, *, ending: bool) -> int:
        """As ``Reader``: as declared; by default of files of a file system ``END_AGE`` where an end of input is to land."""
        declared = self.settings.min_age_ms
        if declared is not None:
            return declared
        return END_AGE if ending and self.is_local else 0

    def unsettled(self) -> Iterator[Unsettled]:
        """As ``Reader``: all files in the folder."""
        for name, size, modified in self.listed():
            unit = Unit(name=name, size=size, modified=modified)
            yield Unsettled(unit, unfinished=self.is_unfinished(name), hidden=self.is_hidden(name))

    def on_disk(self, most: int) -> OnDisk | None:
        """As ``Reader``."""
        if not self.is_local:
            return None
        folder = self.folder.removeprefix("file://")
        return OnDisk(folder, {f"{folder}/{name}": size for name, size, _ in islice(self.listed(), most)})

    @property
    def is_local(self) -> bool:
        """True if the files are on a file system, where a reader can see a file that is half written; an object appears whole."""
        return self.folder.partition("://")[0] in {self.folder, "file"}


def reader(settings: Files, source: Source) -> FileReader:
    """The reader of a source of files."""
    return FileReader(settings, source.contract, source.name)


def _same(landed: Mapping[str, Landed], name: str, size: int, modified: int) -> bool:
    known = landed.get(name)
    return known is not None and (known.size, known.modified) == (size, modified)


def _expression(pattern: str) -> str:
    """A glob as a regular expression: ``*`` stays inside a folder, ``**/`` is any number of folders."""
    expression = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern):
        special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part)
        if special is None:
            special = part.replace("[!", "[^", 1) if part.startswith("[") and part.endswith("]") else re.escape(part)
        expression += special
    return expression


@dataclass(slots=True)
class _File:
    reader: FileReader
    name: str
    replay: str | None = None
    left_out: tuple[str, ...] | None = None
    position: str = ""
    default_nulls: Counter[str] = field(default_factory=Counter)
    _stream: Hashed = field(init=False)

    def __post_init__(self) -> None:
        self._stream = open_hashed(self.reader.location(self.name))

    @property
    def form(self) -> Form:
        if self.reader.settings.envelope is not None:
            return "python"
        return _FORMS[self.reader.format_of(self.name) or "csv"]

    def records(self) -> Iterator[Entry]:
        form, envelope = self.reader.format_of(self.name), self.reader.settings.envelope
        if form == "avro":
            self.replay = json.dumps({"format": "python"})
            rows = (Record(number, b"", row) for number, row in enumerate(self._avro_rows(), 1))
            yield from rows if envelope is None else file_records(rows, envelope)
            return
        if form == "parquet":
            self.replay = json.dumps({"format": "python"})
            with SpooledTemporaryFile(
                max_size=_IN_MEMORY
            ) as copied:  # a copy, as Parquet is read from its end and the digest in one pass from the beginning
                self._stream.copy_to(copied)
                yield from parquet_columns(copied)
            return
        with whole():
            lines = lines_of(self._stream, self.name, self.reader.settings.encoding)
            if form == "json" and envelope is not None:
                self.replay = json.dumps({"format": "python"})
                yield from file_records(json_records(lines), envelope)
            elif form == "json":
                self.replay = json.dumps({"format": "json"})
                yield from together(json_records(lines))
            elif form in {"text", "logfmt"}:
                read = Lines(cells=self._cells(), pattern=self.reader.settings.pattern, where=self._where())
                read.check()
                self.replay = json.dumps(read.as_json())
                yield from text_records(lines, read, default_nulls=self.default_nulls)
            else:
                settings = self.settings()
                names, line = header_of(lines, settings)
                known = inputs_of(self.reader.contract)
                self.left_out = tuple(name for name in names if name and name not in known)
                self.replay = json.dumps({"format": "csv", "header": names, **settings.as_json()})
                yield from csv_records(lines, names, settings, first_line=line, default_nulls=self.default_nulls)

    def _avro_rows(self) -> Iterator[dict[str, Any]]:
        """The rows of a file of Avro. Raises SetupError SETUP-110, its library is not installed."""
        try:
            from floodmark.connectors.messages import avro  # noqa: PLC0415 - an extra
        except ImportError as error:
            fix = "Install it where floodmark runs and on workers of a cluster: pip install 'floodmark[avro]'"
            raise SetupError(self._where(), "the package fastavro", "none", fix, code="SETUP-110") from error
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as copied:
            self._stream.copy_to(copied)
            yield from avro.file_rows(copied)

    def settings(self) -> Csv:
        """How to read the file as CSV."""
        files = self.reader.settings
        delimiter = (
            "\t" if files.delimiter == "," and self.name.removesuffix(".gz").endswith(".tsv") else files.delimiter
        )
        return Csv(cells=self._cells(), delimiter=delimiter, where=self._where(), header=files.header, skip=files.skip)

    def _cells(self) -> Cells:
        files = self.reader.settings
        return Cells(
            contract=self.reader.contract,
            null_values=files.null_values,
            missing_values=files.missing_values,
            decimal=files.decimal,
        )

    def _where(self) -> str:
        return f"source '{self.reader.source}', file {self.reader.location(self.name)}"

    def fingerprint(self) -> tuple[int, str]:
        return self._stream.finish()
