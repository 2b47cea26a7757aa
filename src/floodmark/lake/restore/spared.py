"""Hard links to data files that only savepoints need, in a folder beside the table that a VACUUM by another program ignores.

Upkeep links files that a compaction, a rollback or a rebuild removed from a table, and removes the links with the last savepoint that needs them.
A link takes no space while the file itself exists. On file systems without hard links there are no links.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import is_local
from floodmark.lake.table.entries import beside

_FOLDER = "spared"


def spare(path: str, names: Collection[str]) -> None:
    """Make the links of a table match a set of its files. Existing links to files in the set are retained even if the file itself was removed.

    Args:
        path: path of the table.
        names: paths of the files in the table's folder.
    """
    if not is_local(path):
        return
    folder = Path(beside(path, _FOLDER))
    linked = set(files_of(str(folder)))
    for name in set(names) - linked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # the file was removed already, or the file system has no hard links
            os.link(Path(path, name), folder / name)
    for name in linked.difference(names):
        (folder / name).unlink(missing_ok=True)


def put_back(path: str, names: Collection[str]) -> None:
    """Restore removed files of a table from their links. Files without a link stay missing.

    Args:
        path: path of the table.
        names: paths of the files in the table's folder.
    """
    folder = Path(beside(path, _FOLDER))
    for name in set(files_of(str(folder))).intersection(names) if is_local(path) else ():
        file = Path(path, name)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process restores it too
                os.link(folder / name, file)
