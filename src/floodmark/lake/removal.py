"""What upkeep removes: each thing whole or not at all, with its files and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.lake.copies import remove
from floodmark.lake.storage import file_system, folders

GOING = ".going"
"""The ending of a folder that is being removed: nobody looks for one of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Something that is gone, or would be.

    Args:
        kind: what it is: ``timeline``, ``rebuild``, ``package``, ``logs of drivers``.
        name: which one.
        files: of it.
        size: of these, bytes. What a savepoint has links to stays on the disk with it.
    """

    kind: str
    name: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What a folder holds.

    Args:
        files: in it and below.
        size: of them, bytes.
        newest: time of the newest file or folder, s since 1970; of an empty folder its own.
    """

    files: int
    size: int
    newest: float


def contents(folder: str) -> Contents:
    """Of a folder that is there."""
    files, base = file_system(folder)
    infos = [*files.get_file_info(FileSelector(base, recursive=True)), files.get_file_info(base)]
    held = [info for info in infos if info.type == FileType.File]
    newest = max((info.mtime_ns or 0) for info in infos) / 1e9
    return Contents(len(held), sum(info.size for info in held), newest)


def take_away(folder: str) -> None:
    """Remove a folder: it is there whole, or gone. What a killed process leaves of it, ``clear`` removes."""
    files, path = file_system(folder)
    crash.point("removal.before_rename")
    files.move(path, f"{path}{GOING}")
    crash.point("removal.after_rename")
    remove(f"{folder}{GOING}")


def clear(home: str) -> None:
    """Remove what a killed process has left of folders in this one."""
    for name in folders(home):
        if name.endswith(GOING):
            remove(f"{home}/{name}")
