"""Expiry of a table's log: removes entries that no reader needs, so that commits and starts do not slow down with the number of past commits.

Delta lists all entries of a log at each commit. Facts that must outlive the entries are stored in a file beside the log (``history``): bounded runs,
restores, and writes of other programs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core import crash
from floodmark.lake.folder.storage import file_system
from floodmark.lake.maintenance import tombstones
from floodmark.lake.table import entries, history
from floodmark.lake.table.entries import LOG, checkpoint_of, log_files
from floodmark.lake.writing.writer import Writer

HOURS = 24
"""Hours for which entries are retained that no stream of a lake needs: an unknown program may read the table commit by commit, with pauses."""
_HOUR_MS = 3_600_000
_APART = 5
"""Commits after the last usable checkpoint at which a new checkpoint is written, so that their entries can be removed."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The files removed from a log.

    Args:
        files: number of files removed, or that a dry run would remove.
        size: their total size, bytes.
    """

    files: int = 0
    size: int = 0


def expire(
    path: str, *, floor: int, hours: float = HOURS, dry_run: bool = False, writer: Writer | None = None
) -> Expired:
    """Remove the entries and checkpoints of a log before a version. The caller holds the lock of the lake's data files.

    Every version from ``floor`` on, and every later commit, stays readable.

    Args:
        path: path of the table.
        floor: the first version that a reader needs; -1 if all are needed.
        hours: hours for which entries are retained; 24 by default.
        dry_run: only report what would be removed.
        writer: writer of the table, if the caller has one; reuses its opened table.
    """
    writer = Writer(path) if writer is None else writer
    before = time.time_ns() // 1_000_000 - int(hours * _HOUR_MS)
    there = log_files(path)
    young = min((version for version, _, at in there.values() if at >= before), default=None)
    needed = floor if young is None else min(floor, young)
    if needed < 0:
        return Expired()
    whole = {version for name, (version, *_) in there.items() if name == checkpoint_of(version)}
    first = max((version for version in whole if version <= needed), default=0)
    if needed - first >= _APART:
        with suppress(DeltaError):  # another program's clean-up removed entries that the checkpoint needs
            table = writer.table()
            newest = needed == table.version()
            table = table if newest else DeltaTable(path, version=needed)
            if not dry_run:
                _write_checkpoint(table, path, newest=newest)
            first = needed
    going = sorted((version, name) for name, (version, *_) in there.items() if version < first)
    if going and not dry_run:
        if not _points_to_checkpoint(writer, first):
            return Expired()
        history.keep(path, first)
        if going[0][0] == 0:
            entries.keep_id(path)
        crash.point("expiry.before_files")
        files, base = file_system(f"{path}/{LOG}")
        for _, name in going:  # oldest first: after a crash the remaining entries have no gap
            with suppress(FileNotFoundError):
                files.delete_file(f"{base}/{name}")
            crash.point("expiry.after_file")
    return Expired(len(going), sum(there[name][1] for _, name in going))


def _points_to_checkpoint(writer: Writer, first: int) -> bool:
    """Write a checkpoint of the newest version, so that readers start from it. Returns True if the table's checkpoint pointer is at least ``first``."""
    _write_checkpoint(writer.table(), writer.path, newest=True)
    checkpoint = entries.checkpointed(writer.path)
    return checkpoint is not None and checkpoint >= first


def _write_checkpoint(table: DeltaTable, path: str, *, newest: bool) -> None:
    """Write the checkpoint of an opened version."""
    if not (newest and tombstones.checkpoint(path, table.version())):
        table.create_checkpoint()
