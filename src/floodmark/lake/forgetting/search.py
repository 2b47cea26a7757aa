"""Search of all files of a lake for keys: the proof that they are gone, or the list of the files that still have one."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from floodmark.lake.folder.storage import file_system
from floodmark.lake.forgetting.keys import ForgottenKey

_SHORT = 4
"""Length of a value below which only its column tells it from other texts."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search.

    Args:
        files: number of files searched.
        holding: paths below the searched folder of files that have a key.
        unread: paths of files whose content is compressed in a form that is not read here, such as Spark's state.
    """

    files: int
    holding: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def search(root: str, keys: Sequence[ForgottenKey]) -> Searched:
    """Search every file below a folder for keys: columns of Parquet and Arrow files, texts, documents, and the bytes of all others.

    A value that is a number, or shorter than four characters, counts where its column or a text as a whole word has it: as bytes it would be
    everywhere. Other values count wherever their bytes are.

    Args:
        root: the folder, or URI.
        keys: the keys.
    """
    system, base = file_system(root)
    needles, number, holding, unread = [_Needle.of(key) for key in keys], 0, list[str](), list[str]()
    for info in system.get_file_info(FileSelector(base, recursive=True)):
        if info.type != FileType.File:
            continue
        number += 1
        name = info.path[len(base.rstrip("/")) + 1 :]
        with system.open_input_file(info.path) as file:
            is_held = any(needle.text in name for needle in needles if needle.distinctive) or _holds(file, needles)
        if is_held:
            holding.append(name)
        elif _is_opaque(name):
            unread.append(name)
    return Searched(number, tuple(sorted(holding)), tuple(sorted(unread)))


@dataclass(frozen=True, slots=True)
class _Needle:
    """A key as the search looks for it."""

    column: str
    text: str
    word: re.Pattern[bytes]
    named: re.Pattern[bytes]
    distinctive: bool

    @staticmethod
    def of(key: ForgottenKey) -> _Needle:
        value, column = re.escape(key.value.encode()), re.escape(key.column.encode())
        quotes = rb'[\\"\']*'
        return _Needle(
            column=key.column,
            text=key.value,
            word=re.compile(rb"(?<![\w.-])" + value + rb"(?![\w-])(?!\.\d)"),
            named=re.compile(rb"\b" + column + quotes + rb"\s*[:=]\s*" + quotes + value + rb"(?![\w.])"),
            distinctive=len(key.value) >= _SHORT and not re.fullmatch(r"[-+\d.,:eE]+", key.value),
        )

    def in_bytes(self, content: bytes) -> bool:
        """True if a text or a binary file has the key."""
        return self.text.encode() in content if self.distinctive else self.named.search(content) is not None

    def in_cell(self, column: str, value: object) -> bool:
        """True if a cell has the key: as its value in a column of the key's name, as a word of a text, or in a nested value."""
        if isinstance(value, dict):
            return any(self.in_cell(name, inner) for name, inner in value.items())
        if isinstance(value, list | tuple):
            return any(self.in_cell(column, inner) for inner in value)
        if isinstance(value, bytes):
            return self.in_bytes(value)
        if isinstance(value, str):
            if value[:1] in {"{", "["} and not self.distinctive:
                return self.named.search(value.encode()) is not None
            return self.word.search(value.encode()) is not None
        return column == self.column and value is not None and str(value) == self.text


def _holds(file: pa.NativeFile, needles: Sequence[_Needle]) -> bool:
    """True if a file has a key. Columns are read batch by batch, everything else whole."""
    front = bytes(file.read(8))
    file.seek(0)
    if front.startswith(b"PAR1"):
        cells = _cells(pq.ParquetFile(file).iter_batches())
    elif front.startswith(b"ARROW1"):
        reader = pa.ipc.open_file(file)
        cells = _cells(reader.get_batch(number) for number in range(reader.num_record_batches))
    elif front.startswith(b"PK\x03\x04"):
        archive = zipfile.ZipFile(io.BytesIO(bytes(file.read())))
        cells = ((name, archive.read(name)) for name in archive.namelist())
    else:
        content = bytes(file.read())
        return any(needle.in_bytes(content) for needle in needles)
    return any(needle.in_cell(column, value) for column, value in cells for needle in needles)


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, object]]:
    for batch in batches:
        for column in batch.schema.names:
            values = batch[column]
            is_nested = pa.types.is_nested(values.type)
            yield from ((column, value) for value in (values if is_nested else values.unique()).to_pylist())


def _is_opaque(name: str) -> bool:
    """True for files of Spark's state store, whose blocks are compressed."""
    return "/state/" in f"/{name}" and name.rsplit(".", 1)[-1] in {"sst", "delta", "snapshot", "zip", "changelog"}
