"""Files that Hadoop reads too: beside a file of a disk there may be Hadoop's checksum of it, by which a changed file would be a damaged one.

Hadoop keeps ``.NAME.crc`` beside ``NAME``. A file without one is read as it is; one whose checksum does not fit is refused. So a checksum goes before its
file changes: a process that is killed in between leaves the old file without a checksum, never a file with a wrong one.
"""

from __future__ import annotations

from pathlib import Path

from pyarrow.fs import LocalFileSystem

from floodmark.core import crash
from floodmark.lake.folder import storage


def checksum_of(path: str) -> str:
    """Path of the checksum that Hadoop keeps of a file of a disk."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def write(location: str, content: bytes) -> None:
    """Create or replace a file that Hadoop reads too, atomically. Hadoop's checksum of an older file is removed first.

    Args:
        location: path or URI. Where Hadoop has no checksums, as in buckets, this is ``storage.write``.
        content: of the file.
    """
    if drop(location):
        crash.point("rewrite.after_checksum")
    storage.write(location, content)


def drop(location: str) -> bool:
    """Remove Hadoop's checksum of a file, if there is one; whether there was."""
    files, path = storage.file_system(location)
    if not isinstance(files, LocalFileSystem):
        return False
    checksum = Path(checksum_of(path))
    is_there = checksum.exists()
    checksum.unlink(missing_ok=True)
    return is_there
