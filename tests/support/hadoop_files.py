"""Checksums that Hadoop keeps beside the files of a disk, as it writes and as it judges them."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from floodmark.lake.folder.checksums import checksum_of

_MAGIC, _CHUNK = b"crc\0", 512


def _sums(content: bytes) -> bytes:
    sums = (crc32(content[at : at + _CHUNK]) for at in range(0, len(content), _CHUNK))
    return _MAGIC + struct.pack(">I", _CHUNK) + b"".join(struct.pack(">I", number) for number in sums)


def write_checksum(file: Path) -> None:
    """Write the checksum of a file beside it."""
    Path(checksum_of(str(file))).write_bytes(_sums(file.read_bytes()))


def check(folder: Path) -> None:
    """Make sure that Hadoop can read all files below a folder: where there is a checksum, it is that of the file."""
    for file in folder.rglob("*"):
        checksum = Path(checksum_of(str(file)))
        if checksum.exists():
            assert checksum.read_bytes() == _sums(file.read_bytes()), f"Hadoop refuses {file}"
