"""A file of state: what one micro-batch has changed, or several have, written once and never again.

``FMSTATE2``, the length of the header, the header as JSON, the directory, the values. The directory has a row per value: key group, number
of the chunk (the least number there is for the index of the group), offset in the values, length (-1 where the chunk is no longer there).
In ``FMSTATE1`` the index has the number -1, which is that of a chunk too: such files hold no chunk of that number.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from floodmark.lake.checkpoint import garbage
from floodmark.lake.storage import sync

Key = tuple[int, int]
"""Key group; number of the chunk, INDEX for the index."""
INDEX = -(1 << 63)
_FIRST_INDEX = -1
REMOVED = -1
_MAGIC, _FIRST_MAGIC = b"FMSTATE2", b"FMSTATE1"
_FRONT = struct.Struct("<8sIIQ")
"""Magic, length of the header, checksum of header and directory, entries of the directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies.

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
    """What is in the front of a file.

    Args:
        header: JSON.
        entries: key -> place; None where it is no longer there.
        size: bytes of the file.
    """

    header: dict[str, Any]
    entries: dict[Key, Place | None]
    size: int


def write(root: str, file: str, header: Mapping[str, Any], values: Mapping[Key, bytes | Place | None]) -> Segment:
    """Write a file, whole or not at all, also where the machine goes down.

    Args:
        root: folder of the checkpoint.
        file: relative to it.
        header: JSON.
        values: key -> value, or where it lies in another file, from which it is copied; None for one that is no longer there.
    """
    directory = np.zeros((len(values), 4), dtype="<i8")
    offset = 0
    for row, ((group, number), value) in enumerate(values.items()):
        length = REMOVED if value is None else value.length if isinstance(value, Place) else len(value)
        directory[row] = group, number, offset, length
        offset += max(length, 0)
    text, listed = json.dumps(header, separators=(",", ":")).encode(), directory.tobytes()
    front = _FRONT.pack(_MAGIC, len(text), zlib.crc32(text + listed), len(values)) + text + listed
    path = Path(root, file)
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as stream:
        stream.write(front)
        stream.writelines(_copied(root, values))
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    sync(path.parent)
    return Segment(dict(header), _entries(file, directory, len(front)), len(front) + offset)


def read(root: str, file: str, *, header_only: bool = False) -> Segment:
    """What is in the front of a file.

    Raises:
        FileNotFoundError: it is not there.
        StateError: STATE-036, it is not what this engine writes.
    """
    path = Path(root, file)
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(_FRONT.size)
        if len(start) < _FRONT.size or not start.startswith((_MAGIC, _FIRST_MAGIC)):
            raise garbage(root, file, start)
        _, length, checksum, count = _FRONT.unpack(start)
        text = stream.read(length)
        if header_only:
            try:
                return Segment(json.loads(text), {}, size)
            except ValueError:
                raise garbage(root, file, text) from None
        listed = stream.read(count * 32)
    directory = np.frombuffer(listed, dtype="<i8").reshape(-1, 4) if len(listed) == count * 32 else None
    begin = _FRONT.size + length + count * 32
    if directory is None or zlib.crc32(text + listed) != checksum:
        raise garbage(root, file, start + text)
    if size != begin + int(directory[:, 3].clip(min=0).sum()):
        raise garbage(root, file, start + text)
    if start.startswith(_FIRST_MAGIC):
        directory = directory.copy()
        directory[directory[:, 1] == _FIRST_INDEX, 1] = INDEX
    return Segment(json.loads(text), _entries(file, directory, begin), size)


def value(root: str, place: Place) -> bytes:
    """A value.

    Raises:
        StateError: STATE-036, its file has been cut.
    """
    with Path(root, place.file).open("rb") as stream:
        return _read(root, place, stream.fileno())


def _copied(root: str, values: Mapping[Key, bytes | Place | None]) -> Iterator[bytes]:
    """Values one by one, so that a state larger than memory is copied too."""
    with ExitStack() as opened:
        files = dict[str, int]()
        for value in values.values():
            if isinstance(value, Place):
                if value.file not in files:
                    files[value.file] = opened.enter_context(Path(root, value.file).open("rb")).fileno()
                yield _read(root, value, files[value.file])
            elif value:
                yield value


def _read(root: str, place: Place, descriptor: int) -> bytes:
    found = os.pread(descriptor, place.length, place.offset)
    if len(found) < place.length:
        raise garbage(root, place.file, found)
    return found


def _entries(file: str, directory: Any, begin: int) -> dict[Key, Place | None]:
    return {
        (group, number): None if length == REMOVED else Place(file, begin + offset, length)
        for group, number, offset, length in directory.tolist()
    }
