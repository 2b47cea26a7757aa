"""Folders that only work on this machine, such as those that DuckDB writes into, of a lake in a bucket: fetched, changed here, and sent back.

Files are sent under new keys, then a list of them replaces the list that was fetched, by a conditional put: readers see all changes or none, and of two
processes that change a folder at the same time one is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from floodmark.lake.folder import bucket

_LIST = "files.json"
_OWN = "lock"
"""A lock works on one machine: it is not sent."""


class ChangedMeanwhileError(Exception):
    """Another process has changed the folder since it was fetched. Nothing was sent that a reader sees."""


@contextmanager
def mirrored(location: str) -> Iterator[str]:
    """A folder on this machine with the files of ``location``; ``location`` itself if it is on this machine.

    Changes are sent at the end, unless the block raises. Unchanged files are not sent again.

    Args:
        location: path of the folder, or its URI in a bucket. It need not exist.

    Raises:
        ChangedMeanwhileError: another process has changed the folder.
    """
    if not bucket.is_bucket(location):
        yield location
        return
    with TemporaryDirectory(prefix="floodmark-") as scratch:
        keys, tag = _fetched(location, Path(scratch))
        fetched = _stamps(scratch)
        yield scratch
        stamps = _stamps(scratch)
        changed = {name: f"{uuid.uuid4().hex}/{name}" for name, stamp in stamps.items() if fetched.get(name) != stamp}
        if not changed and keys.keys() == stamps.keys():
            return
        bucket.send((Path(scratch, name), f"{location}/{key}") for name, key in changed.items())
        known = {name: changed.get(name) or keys[name] for name in stamps}
        content = json.dumps({"files": known, "id": uuid.uuid4().hex}).encode()
        if not bucket.swap(f"{location}/{_LIST}", content, tag):
            bucket.remove(f"{location}/{key}" for key in changed.values())
            raise ChangedMeanwhileError
        bucket.remove(f"{location}/{key}" for key in set(keys.values()) - set(known.values()))


def _fetched(location: str, folder: Path) -> tuple[dict[str, str], str | None]:
    """Fetch all files. Returns (name -> key, ETag of the list); the tag is None if there is no list."""
    while True:
        listed = bucket.tagged(f"{location}/{_LIST}")
        if listed is None:
            return {}, None
        content, tag = listed
        keys: dict[str, str] = json.loads(content)["files"]
        try:
            bucket.fetch((f"{location}/{key}", folder / name) for name, key in keys.items())
        except FileNotFoundError:
            if bucket.tagged(f"{location}/{_LIST}") == listed:
                raise
            shutil.rmtree(folder)  # another process has replaced the files meanwhile
            folder.mkdir()
            continue
        return keys, tag


def _stamps(folder: str) -> dict[str, tuple[int, int, int]]:
    """Name of each file below a folder -> (inode, date, size), which change when a file is replaced."""
    stamps = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(parent, name), folder)  # noqa: PTH118 - os.walk gives text
            if path != _OWN:
                info = Path(folder, path).stat()
                stamps[path] = (info.st_ino, info.st_mtime_ns, info.st_size)
    return stamps
