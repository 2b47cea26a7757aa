"""Versions of a table that a savepoint goes back to: the files each consists of, kept with the savepoint, and put back where the table's own log has lost it.

What is kept is a Delta log of one checkpoint, so that a version that is put back is one like any other: it can be read, restored and grafted.
"""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake.copies import copy, files_of
from floodmark.lake.entries import LOG, all_there, checkpoint_of, entry_of, log_files
from floodmark.lake.storage import file_system


def hold(path: str, version: int, folder: str) -> bool:
    """Keep in a folder what a version of a table consists of; the data files stay where they are.

    Args:
        path: of the table.
        version: of it.
        folder: new; it becomes a table with that one version, whose data files are elsewhere.

    Returns:
        False where the log does not tell, or tells in another way than in one checkpoint and the commits behind it: nothing is kept then.
    """
    there = log_files(path)
    last = max((at for name, (at, *_) in there.items() if at <= version and name == checkpoint_of(at)), default=-1)
    entries = [entry_of(number) for number in range(last + 1, version + 1)]
    if not set(entries) <= there.keys():
        return False
    for name in [*([checkpoint_of(last)] if last >= 0 else []), *entries]:
        copy(f"{path}/{LOG}/{name}", f"{folder}/{LOG}/{name}")
    if last < version:
        DeltaTable(folder).create_checkpoint()
    files, base = file_system(f"{folder}/{LOG}")
    for name in list(files_of(base)):
        if name != checkpoint_of(version):
            files.delete_file(f"{base}/{name}")
    return True


def files(path: str, version: int | None = None) -> set[str]:
    """The data files of a version of a table, or of the one that a folder holds, by their paths in the table: as files, and as commits name them.

    Raises:
        DeltaError: the log does not tell any more.
    """
    return named(DeltaTable(path, version=version))


def there(path: str, version: int) -> bool:
    """Whether the log tells of a version of a table, and none of its data files is gone."""
    try:
        actions = pa.table(DeltaTable(path, version=version).get_add_actions())
    except DeltaError:
        return False
    return all_there(path, actions["path"].to_pylist())


def named(table: DeltaTable) -> set[str]:
    """The same of a table that is opened."""
    files = pa.table(table.get_add_actions())["path"].to_pylist()
    return {name for file in files for name in (file, unquote(file))}


def put_back(path: str, version: int, folder: str) -> None:
    """Let a table have a version again that its log has lost, where a folder holds it; the newest version stays as it is.

    Args:
        path: of the table.
        version: of it.
        folder: of ``hold``; it need not be there.
    """
    name = checkpoint_of(version)
    if name in log_files(folder) and not _log_tells(path, version):
        copy(f"{folder}/{LOG}/{name}", f"{path}/{LOG}/{name}")


def _log_tells(path: str, version: int) -> bool:
    try:
        DeltaTable(path, version=version)
    except DeltaError:
        return False
    return True
