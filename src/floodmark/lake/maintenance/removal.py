"""Atomic removal of folders by upkeep, with counts of their files and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.storage import file_system, folders

GOING = ".going"
"""Suffix of a folder that is being removed. No reader opens folders with this suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """An object that upkeep removed, or would remove in a dry run.

    Args:
        kind: kind of object: ``timeline``, ``rebuild``, ``package``, ``logs of drivers``.
        name: name of the object.
        files: number of its files.
        size: their total size, bytes. Files that a savepoint links to stay on the disk.
    """

    kind: str
    name: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Size and age of a folder's contents.

    Args:
        files: number of files in the folder and below.
        size: their total size, bytes.
        newest: newest modification time of the folder and everything in it, s since 1970.
    """

    files: int
    size: int
    newest: float


def contents(folder: str) -> Contents:
    """The contents of an existing folder."""
    files, base = file_system(folder)
    infos = [*files.get_file_info(FileSelector(base, recursive=True)), files.get_file_info(base)]
    held = [info for info in infos if info.type == FileType.File]
    newest = max((info.mtime_ns or 0) for info in infos) / 1e9
    return Contents(len(held), sum(info.size for info in held), newest)


def take_away(folder: str) -> None:
    """Remove a folder atomically, by a rename and a deletion. ``clear`` removes what a killed process leaves.

    In a bucket the files are deleted one after the other: what a killed process leaves is found, and removed, by the next upkeep.
    """
    if is_bucket(folder):
        crash.point("removal.before_rename")
        remove(folder)
        crash.point("removal.after_rename")
        return
    files, path = file_system(folder)
    crash.point("removal.before_rename")
    files.move(path, f"{path}{GOING}")
    crash.point("removal.after_rename")
    remove(f"{folder}{GOING}")


def clear(home: str) -> None:
    """Remove the remains of folders that a killed process was removing."""
    for name in folders(home):
        if name.endswith(GOING):
            remove(f"{home}/{name}")
