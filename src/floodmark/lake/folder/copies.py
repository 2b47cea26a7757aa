"""Copies of files and folders. On one local disk copies are hard links, which is safe because Spark and Delta never modify a written file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyarrow.fs import FileSelector, FileType, LocalFileSystem, copy_files

from floodmark.lake.folder import bucket
from floodmark.lake.folder.storage import file_system

_DRAFTS = (".tmp", ".draft")


def files_of(location: str) -> Iterator[str]:
    """Relative paths of all files below a folder, except hidden files and drafts. Yields nothing if the folder does not exist."""
    files, base = file_system(location)
    for info in files.get_file_info(FileSelector(base, allow_not_found=True, recursive=True)):
        path = info.path.removeprefix(base).lstrip("/")
        hidden = any(part.startswith(".") for part in path.split("/"))
        if info.type == FileType.File and not hidden and not path.endswith(_DRAFTS):
            yield path


def size_of(location: str) -> int | None:
    """Total size of the files below a folder, bytes; None if the folder does not exist. Files may be removed meanwhile."""
    if bucket.is_bucket(location):
        sizes = [stat.size for stat in bucket.below(location)]
        return sum(sizes) if sizes else None
    if not Path(location).is_dir():
        return None
    size = 0
    for parent, _, names in os.walk(location):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(parent, name).stat().st_size
    return size


def copy(source: str, target: str, *, link: bool = True, touch: bool = False) -> None:
    """Copy a file, by a hard link if requested and possible.

    Args:
        source: path or URI of the file.
        target: path or URI of the copy.
        link: use a hard link if both paths are on one local disk; True by default.
        touch: set the modification time of a link to now; False by default. A hard link has the age of its file, and clean-ups remove old files that
            no commit names.

    Raises:
        FileNotFoundError: the source file does not exist.
    """
    if bucket.is_bucket(source) and bucket.is_bucket(target):
        bucket.copy(source, target)
        return
    (files, origin), (others, destination) = file_system(source), file_system(target)
    others.create_dir(destination.rsplit("/", 1)[0])
    if isinstance(files, LocalFileSystem) and isinstance(others, LocalFileSystem):
        Path(destination).unlink(missing_ok=True)
        try:
            if link:
                os.link(origin, destination)
                if touch:
                    os.utime(destination)
                return
        except FileNotFoundError:
            raise
        except OSError:  # another disk, or a file system without hard links
            pass
        shutil.copyfile(origin, destination)
        return
    copy_files(origin, destination, source_filesystem=files, destination_filesystem=others)


def remove(location: str) -> None:
    """Remove a folder and its contents if it exists."""
    files, path = file_system(location)
    if files.get_file_info(path).type == FileType.Directory:
        files.delete_dir(path)
