"""A file of state: the changes of one micro-batch, or of several merged ones, written once and never changed.

``FMSTATE2``, the length of the header, the header as JSON, the directory, the values. The directory has a row per value: key group, number
of the chunk (the least 64-bit number for the index of the group), offset in the values, length (-1 if the chunk is removed).
In ``FMSTATE1`` the index has the number -1; no chunk in such a file has that number. ``FMSTATE3`` is a file of a state in which a group below
0 stands for others (``store.stand_in``), so that a release that does not read such groups refuses the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from floodmark.core.errors import StateError
from floodmark.lake.folder import bucket
from floodmark.lake.folder.storage import sync
from floodmark.lake.stream.checkpoint import garbage

Key = tuple[int, int]
"""Key group; number of the chunk, INDEX for the index."""
INDEX = -(1 << 63)
_FIRST_INDEX = -1
REMOVED = -1
_ROWS = 8_192
"""Rows of a directory that are converted to Python's numbers at a time."""
_NONE = np.zeros((0, 4), dtype="<i8")
_MAGIC = b"FMSTATE"
_FIRST, FORMAT, STANDING = 1, 2, 3
"""Formats of files: before the number of an index was changed; of now; with groups that stand for others."""
_FRONT_BYTES = 1 << 16
"""Bytes of a file in a bucket that are read at first for its header."""
_FRONT = struct.Struct("<8sIIQ")
"""Magic, length of the header, checksum of header and directory, entries of the directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value on disk.

    Args:
        file: of state, relative to the checkpoint.
        offset: in the file.
        length: bytes.
    """

    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The front of a file: everything but the values.

    Args:
        file: of state, relative to the checkpoint.
        header: JSON.
        directory: a row per value: key group, number of the chunk, offset in the values, length.
        begin: of the values, in the file.
        size: bytes of the file.
        format: ``FORMAT`` or ``STANDING``.
    """

    file: str
    header: dict[str, Any]
    directory: np.ndarray
    begin: int
    size: int
    format: int = FORMAT

    @property
    def entries(self) -> dict[Key, Place | None]:
        """Key -> place of its value; None for a removed value."""
        return {
            (group, number): None if length == REMOVED else Place(self.file, offset, length)
            for group, number, offset, length in self.rows()
        }

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """(key group, number of the chunk, offset in the file, length) of each value."""
        for first in range(0, len(self.directory), _ROWS):
            for group, number, offset, length in self.directory[first : first + _ROWS].tolist():
                yield group, number, self.begin + offset, length

    def only(self, wanted: np.ndarray) -> Segment:
        """Some of the values.

        Args:
            wanted: a boolean per row of the directory.
        """
        return replace(self, directory=self.directory[wanted])


def write(
    root: str, file: str, header: Mapping[str, Any], values: Mapping[Key, bytes | None], least: int = FORMAT
) -> Segment:
    """Write a file atomically and durably.

    Args:
        root: folder of the checkpoint.
        file: relative to the checkpoint.
        header: JSON.
        values: key -> value; None for a removed value.
        least: format of the file. A file with a value of a group below 0 has ``STANDING`` anyway.
    """
    directory = np.zeros((len(values), 4), dtype="<i8")
    for row, ((group, number), value) in enumerate(values.items()):
        directory[row] = group, number, 0, REMOVED if value is None else len(value)
    return _written(root, file, header, directory, (value for value in values.values() if value), least)


def copy(root: str, file: str, header: Mapping[str, Any], parts: Sequence[Segment], least: int = FORMAT) -> Segment:
    """Write the values of several files into one file, value by value, so that they may be larger than memory.

    Args:
        root: folder of the checkpoint.
        file: relative to the checkpoint; it may replace one of ``parts``.
        header: JSON.
        parts: files.
        least: as of ``write``.

    Raises:
        StateError: STATE-036, a file has been cut.
    """
    directory = np.concatenate([part.directory for part in parts])
    return _written(root, file, header, directory, (value for part in parts for value in _values(root, part)), least)


def _written(
    root: str, file: str, header: Mapping[str, Any], directory: np.ndarray, values: Iterable[bytes], least: int
) -> Segment:
    version = STANDING if (directory[:, 0] < 0).any() else least
    lengths = directory[:, 3].clip(min=0)
    directory[:, 2] = lengths.cumsum() - lengths
    text = json.dumps(header, separators=(",", ":")).encode()
    checksum = zlib.crc32(directory.data, zlib.crc32(text)) if len(directory) else zlib.crc32(text)
    path = Path(root, file)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as stream:
        stream.write(_FRONT.pack(b"%b%d" % (_MAGIC, version), len(text), checksum, len(directory)) + text)
        stream.write(directory.data)
        stream.writelines(values)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    sync(path.parent)
    begin = _FRONT.size + len(text) + directory.nbytes
    return Segment(file, dict(header), directory, begin, begin + int(lengths.sum()), version)


def read(root: str, file: str, *, header_only: bool = False) -> Segment:
    """Read the front of a file.

    Raises:
        FileNotFoundError: the file does not exist.
        StateError: STATE-001 a newer release has written the file, STATE-036 the file is damaged.
    """
    path = Path(root, file)
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(_FRONT.size)
        version = _format(root, file, start)
        _, length, checksum, count = _FRONT.unpack(start)
        text = stream.read(length)
        if header_only:
            try:
                return Segment(file, json.loads(text), _NONE, 0, size, version)
            except ValueError:
                raise garbage(root, file, text) from None
        listed = stream.read(count * 32)
    directory = np.frombuffer(listed, dtype="<i8").reshape(-1, 4) if len(listed) == count * 32 else None
    begin = _FRONT.size + length + count * 32
    if directory is None or zlib.crc32(listed, zlib.crc32(text)) != checksum:
        raise garbage(root, file, start + text)
    if size != begin + int(directory[:, 3].clip(min=0).sum()):
        raise garbage(root, file, start + text)
    if version == _FIRST:
        directory = directory.copy()
        directory[directory[:, 1] == _FIRST_INDEX, 1] = INDEX
    return Segment(file, json.loads(text), directory, begin, size, max(version, FORMAT))


def header(root: str, file: str) -> Segment:
    """A file in a bucket without its directory, by one request if its header is not very long.

    Raises:
        FileNotFoundError: the file does not exist.
        StateError: STATE-001 a newer release has written the file, STATE-036 the file is damaged.
    """
    location = f"{root}/{file}"
    content = bucket.read_range(location, 0, _FRONT_BYTES)
    version = _format(root, file, content)
    length = int(_FRONT.unpack(content[: _FRONT.size])[1])
    if _FRONT.size + length > len(content):
        content = bucket.read_range(location, 0, _FRONT.size + length)
    try:
        return Segment(file, json.loads(content[_FRONT.size : _FRONT.size + length]), _NONE, 0, 0, version)
    except ValueError:
        raise garbage(root, file, content) from None


def value(root: str, at: Place) -> bytes:
    """Read a value.

    Raises:
        StateError: STATE-036, the file of the value has been cut.
    """
    with Path(root, at.file).open("rb") as stream:
        return _read(root, at, stream.fileno())


def _values(root: str, segment: Segment) -> Iterator[bytes]:
    """The values of a file, one by one."""
    with Path(root, segment.file).open("rb") as stream:
        for _, _, offset, length in segment.rows():
            if length > 0:
                yield _read(root, Place(segment.file, offset, length), stream.fileno())


def _read(root: str, at: Place, descriptor: int) -> bytes:
    content = os.pread(descriptor, at.length, at.offset)
    if len(content) < at.length:
        raise garbage(root, at.file, content)
    return content


def _format(root: str, file: str, start: bytes) -> int:
    """The format of a file, from its first bytes.

    Raises:
        StateError: STATE-001 a newer release has written the file, STATE-036 the file is damaged.
    """
    digit = start[len(_MAGIC) : len(_MAGIC) + 1]
    if len(start) < _FRONT.size or not start.startswith(_MAGIC) or not digit.isdigit():
        raise garbage(root, file, start)
    if int(digit) > STANDING:
        fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
        raise StateError(
            f"file {root}/{file}", f"format {STANDING} or older", f"format {int(digit)}", fix, code="STATE-001"
        )
    return int(digit)
