"""Delta checkpoints without obsolete tombstones.

A checkpoint lists each file removed within the last week, so that Delta's VACUUM spares files that may still be read. A stream that commits every five
seconds removes 100,000 files a week, and opening the table, or writing its next checkpoint, reads all these tombstones. Upkeep has deleted most of the
files, so their tombstones are dropped.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from floodmark.core import crash
from floodmark.lake.folder.copies import copy, remove
from floodmark.lake.folder.paths import is_local
from floodmark.lake.folder.storage import file_system, write
from floodmark.lake.restore import versions
from floodmark.lake.table import entries
from floodmark.lake.table.entries import LOG, checkpoint_of, log_files

_DRAFT = "checkpoint.draft"
"""Folder beside a table's log in which its checkpoint is prepared."""


def checkpoint(path: str, version: int) -> bool:
    """Write the checkpoint of a table version without tombstones of deleted files, and point ``_last_checkpoint`` to it.

    An existing checkpoint of that version is not changed, as it may be being read.

    Args:
        path: path of the table.
        version: newest version of the table.

    Returns:
        True if the checkpoint is in place; False if the log lacks entries of the version (``versions.hold``), and nothing was done.
    """
    name, draft = checkpoint_of(version), entries.beside(path, _DRAFT)
    location = f"{path}/{LOG}/{name}"
    if name not in log_files(path):
        remove(draft)  # left by a killed process
        if not versions.hold(path, version, draft):
            return False
        made = f"{draft}/{LOG}/{name}"
        _drop_tombstones(made, path)
        crash.point("expiry.before_checkpoint")
        with suppress(FileExistsError):
            os.link(made, location) if is_local(path) else copy(made, location)
        remove(draft)
        crash.point("expiry.after_checkpoint")
    files, base = file_system(location)
    with files.open_input_file(base) as content:
        actions = pq.ParquetFile(content).read(columns=["add.path"])
    size, live = files.get_file_info(base).size, len(actions) - actions["add"].null_count
    last = {"version": version, "size": len(actions), "sizeInBytes": size, "numOfAddFiles": live}
    write(f"{path}/{LOG}/_last_checkpoint", json.dumps(last, separators=(",", ":")).encode())
    return True


def _drop_tombstones(file: str, path: str) -> None:
    """Rewrite a checkpoint file without the tombstones of files that are missing from a table's folder."""
    files, checkpoint_path = file_system(file)
    actions = pq.read_table(checkpoint_path, filesystem=files, partitioning=None)
    if "remove" not in actions.column_names or actions["remove"].null_count == len(actions):
        return
    removed = pc.struct_field(actions["remove"], "path").to_pylist()
    stay = [name is None or one for name, one in zip(removed, _exist(path, removed), strict=True)]
    pq.write_table(actions.filter(pa.array(stay)), checkpoint_path, filesystem=files)


def _exist(path: str, names: list[str | None]) -> list[bool]:
    """For each path as in a commit, True if the file exists in a table's folder; False for None."""
    files, base = file_system(path)
    asked = sorted({f"{base}/{form}" for name in names if name is not None for form in (name, unquote(name))})
    present = {info.path for info in files.get_file_info(asked) if info.type == FileType.File}
    return [
        name is not None and not present.isdisjoint((f"{base}/{name}", f"{base}/{unquote(name)}")) for name in names
    ]
