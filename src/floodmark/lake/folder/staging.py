"""Staged files: new data files of a table in a bucket lie in a local folder until they are sent. On a local disk they are written in their place."""

from __future__ import annotations

import atexit
import shutil
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from floodmark.core.scratch import Scratch
from floodmark.lake.folder import bucket


def new_folder(path: str, *, make: bool = True) -> Path:
    """A new local folder for data files of a table.

    Args:
        path: path or URI of the table.
        make: create the folder; by default True. Some engines create it themselves.
    """
    folder = folder_of(path, uuid.uuid4().hex)
    if make:
        folder.mkdir()
    return folder


def folder_of(path: str, name: str) -> Path:
    """The local folder of that name for data files of a table."""
    return (_root() if bucket.is_bucket(path) else Path(path)) / name


def fetched(path: str, name: str, files: Sequence[str]) -> Path:
    """The local folder of data files that were sent before, perhaps by a process that was killed.

    Args:
        path: path or URI of the table.
        name: name of the folder.
        files: paths of the files in the folder.

    Raises:
        FileNotFoundError: a file is gone from a bucket.
    """
    folder = folder_of(path, name)
    if bucket.is_bucket(path) and not folder.exists():
        bucket.fetch((f"{path}/{name}/{file}", folder / file) for file in files)
    return folder


def release(path: str, folder: Path) -> None:
    """Remove a staged folder whose files are in the bucket."""
    if bucket.is_bucket(path):
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _root() -> Path:
    scratch = Scratch()
    atexit.register(scratch.remove)
    return scratch.path
