"""File lists of table versions that savepoints restore, stored with the savepoint, and put back if the table's log has lost the version.

A file list is stored as a Delta log with one checkpoint, so that a version that was put back can be read, restored and grafted like any other.
"""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake.folder.copies import copy, files_of
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table.entries import LOG, all_there, checkpoint_of, entry_of, log_files


def hold(path: str, version: int, folder: str) -> bool:
    """Store the file list of a table version in a folder. The data files are not copied.

    Args:
        path: path of the table.
        version: version of the table.
        folder: folder to create; its log has this one version, without data files.

    Returns:
        True if the list was stored; False if the log is not one checkpoint file and the entries after it, and nothing was stored.
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
    """Paths of the data files of a table version, in decoded and in URL-encoded form.

    Args:
        path: path of the table, or a folder of ``hold``.
        version: version of the table; None for the newest, which is the one of a folder of ``hold``.

    Raises:
        DeltaError: the log does not retain the version.
    """
    return named(DeltaTable(path, version=version))


def there(path: str, version: int) -> bool:
    """True if the log retains a version of a table and all its data files exist."""
    try:
        actions = pa.table(DeltaTable(path, version=version).get_add_actions())
    except DeltaError:
        return False
    return all_there(path, actions["path"].to_pylist())


def named(table: DeltaTable) -> set[str]:
    """Paths of the data files of an opened table, in decoded and in URL-encoded form."""
    files = pa.table(table.get_add_actions())["path"].to_pylist()
    return {name for file in files for name in (file, unquote(file))}


def put_back(path: str, version: int, folder: str) -> None:
    """Put a version back into a table's log if the log has lost it and a folder holds it. The newest version is unchanged.

    Args:
        path: path of the table.
        version: version of the table.
        folder: folder of ``hold``; need not exist.
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
