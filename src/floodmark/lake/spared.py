"""Data files of a table that only savepoints need, linked beside it: a VACUUM of somebody else passes over the links.

Upkeep makes them of what a compaction, a rollback or a rebuild has taken out of a table, and removes them with the last savepoint that needs them.
A link takes no room while the file itself is there. A file system without hard links has none.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from floodmark.lake.copies import files_of
from floodmark.lake.entries import beside
from floodmark.lake.paths import is_local

_FOLDER = "spared"


def spare(path: str, names: Collection[str]) -> None:
    """Let the links of a table be those of some of its files; what is linked already stays where its file is gone.

    Args:
        path: of the table.
        names: of the files, in its folder.
    """
    if not is_local(path):
        return
    folder = Path(beside(path, _FOLDER))
    linked = set(files_of(str(folder)))
    for name in set(names) - linked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # it is gone already, or nothing can be linked here
            os.link(Path(path, name), folder / name)
    for name in linked.difference(names):
        (folder / name).unlink(missing_ok=True)


def put_back(path: str, names: Collection[str]) -> None:
    """Let files be there again that somebody has removed, where they are linked.

    Args:
        path: of the table.
        names: of the files, in its folder.
    """
    folder = Path(beside(path, _FOLDER))
    for name in set(files_of(str(folder))).intersection(names) if is_local(path) else ():
        file = Path(path, name)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(folder / name, file)
