"""Expiry of the log of a table: entries that nobody needs go, so that neither a commit nor a start costs more with every commit there has been.

Delta lists all entries of a log at each commit. What of them counts for ever is kept in a file beside the log (``history``): bounded runs, what was
put in place of the table, and writes of others.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core import crash
from floodmark.lake import entries, history, tombstones
from floodmark.lake.entries import LOG, checkpoint_of, log_files
from floodmark.lake.storage import file_system
from floodmark.lake.writer import Writer

HOURS = 24
"""For which entries stay that no stream of a lake needs: a program that is not known may read the table commit by commit, and stop for so long."""
_HOUR_MS = 3_600_000
_APART = 5
"""Commits behind a checkpoint from which on a new one is written, so that these go."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What went of a log.

    Args:
        files: that are gone, or would be.
        size: of these, bytes.
    """

    files: int = 0
    size: int = 0


def expire(
    path: str, *, floor: int, hours: float = HOURS, dry_run: bool = False, writer: Writer | None = None
) -> Expired:
    """Remove the entries of a log before a version, and the checkpoints before; the caller holds the lock of the lake's data files.

    Every version from the floor on can still be read, and every commit behind it.

    Args:
        path: of the table.
        floor: the first version somebody needs; -1 where all are needed.
        hours: for which entries stay.
        dry_run: only say what would go.
        writer: of the table, where it is opened already.
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
        with suppress(DeltaError):  # somebody's clean-up has been there before, and has left less than is needed
            table = writer.table()
            newest = needed == table.version()
            table = table if newest else DeltaTable(path, version=needed)
            if not dry_run:
                _write_checkpoint(table, path, newest=newest)
            first = needed
    going = sorted((version, name) for name, (version, *_) in there.items() if version < first)
    if going and not dry_run:
        if not _begins_behind(writer, first):
            return Expired()
        history.keep(path, first)
        if going[0][0] == 0:
            entries.keep_id(path)
        crash.point("expiry.before_files")
        files, base = file_system(f"{path}/{LOG}")
        for _, name in going:  # the oldest first: what is left after a crash has no gap
            with suppress(FileNotFoundError):
                files.delete_file(f"{base}/{name}")
            crash.point("expiry.after_file")
    return Expired(len(going), sum(there[name][1] for _, name in going))


def _begins_behind(writer: Writer, first: int) -> bool:
    """Let whoever opens the table begin with a checkpoint that stays, the newest one; whether that is so."""
    _write_checkpoint(writer.table(), writer.path, newest=True)
    checkpoint = entries.checkpointed(writer.path)
    return checkpoint is not None and checkpoint >= first


def _write_checkpoint(table: DeltaTable, path: str, *, newest: bool) -> None:
    """The checkpoint of an opened version; whoever opens the table begins with that of the newest one."""
    if not (newest and tombstones.checkpoint(path, table.version())):
        table.create_checkpoint()
