"""Upkeep of tables: compacts small files, and removes files and log entries that no reader needs. No JVM is needed.

Removed are replaced files, files left by killed writers, and old entries of the tables' logs. Retained regardless of age are files of the newest
version, of versions that savepoints restore, and files that a stream has yet to read. A log whose files are not in order is read commit by commit, so
all files and entries that its commits name are retained. Upkeep knows the needs of readers, Delta's own clean-up does not: if another program has
re-enabled Delta's clean-up in a table's properties, upkeep disables it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalake import DeltaTable

from floodmark.core.errors import FloodmarkError
from floodmark.lake.folder.locks import data_files
from floodmark.lake.folder.paths import QUARANTINE, Lake
from floodmark.lake.folder.storage import folders
from floodmark.lake.logs.log import remember
from floodmark.lake.maintenance import expiry
from floodmark.lake.maintenance.expiry import Expired, expire
from floodmark.lake.maintenance.vacuum import Vacuumed, vacuum
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.readers import Needs, bounded_reads, needs
from floodmark.lake.results import coverage
from floodmark.lake.table import changes, entries, history, origin
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.lost import note_lost
from floodmark.lake.table.outputs import KEPT
from floodmark.lake.table.sequences import in_order
from floodmark.lake.writing import compaction
from floodmark.lake.writing.writer import Writer

HOURS = 168
"""Hours for which replaced files are retained, so that running queries can finish."""
_PATIENCE_SECONDS = 60
"""Longest wait for a running graft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """The result of upkeep for one table.

    Args:
        table: name of the table; for a log ``logs/<name>``.
        before: number of data files of the newest version before upkeep.
        after: number of data files after upkeep; in a dry run, the number that upkeep would leave.
        removed: number of data files removed, or that a dry run would remove.
        versions: versions that savepoints restore, whose files were retained.
        hours: hours for which replaced files are retained.
        entries: number of log files removed, or that a dry run would remove.
        size: total size of the removed files, bytes.
        mended: True if the table's properties allowed Delta's own clean-up and were corrected.
        why: the reason why nothing was removed; empty otherwise.
    """

    table: str
    before: int
    after: int
    removed: int
    versions: tuple[int, ...]
    hours: int
    entries: int = 0
    size: int = 0
    mended: bool = False
    why: str = ""


def maintain(lake: Lake, *, hours: int = HOURS, dry_run: bool = False) -> list[MaintenanceResult]:
    """Compact and clean every log, quarantine and output of a lake. Streams and landings may be running.

    Args:
        lake: the lake to maintain.
        hours: hours for which replaced and uncommitted files are retained; 0 is safe only if no writer is running.
        dry_run: only report what would be merged and removed.

    Raises:
        LifecycleError: LIFECYCLE-003 a rebuild, rollback or fork is running, LIFECYCLE-004 every attempt conflicted with another writer,
            LIFECYCLE-060 a savepoint cannot be read, and nothing is done. If a checkpoint or a fork cannot be read, tables are only compacted, and
            ``MaintenanceResult.why`` gives the reason.
    """
    with data_files(lake, "upkeep, rebuild, rollback or fork", _PATIENCE_SECONDS):
        return _maintained(lake, hours, dry_run=dry_run)


def _maintained(lake: Lake, hours: int, *, dry_run: bool) -> list[MaintenanceResult]:
    savepoints.all_readable(lake)
    if not dry_run:
        savepoints.collect(lake)
    try:
        needed, compared, why = needs(lake), bounded_reads(lake), ""
    except FloodmarkError as error:
        needed, compared, why = Needs(), {}, str(error)
    work = _Work(lake, needed, compared, why, hours, dry_run=dry_run)
    logs = _tables(lake.log("x")) if lake.logs is None else ()
    return [
        *((work.quarantine if name.endswith(QUARANTINE) else work.log)(name) for name in logs),
        *(work.output(name) for name in _tables(lake.output("x"))),
    ]


@dataclass(frozen=True, slots=True)
class _Work:
    """The upkeep of each table of a lake.

    Args:
        lake: the lake to maintain.
        needed: versions, entries and files that readers and savepoints need.
        compared: path of a table -> versions that bounded runs have read.
        why: the reason why nothing may be removed; empty otherwise.
        hours: hours for which replaced files are retained.
        dry_run: only report what would be removed.
    """

    lake: Lake
    needed: Needs
    compared: dict[str, set[int]]
    why: str
    hours: int
    dry_run: bool

    def log(self, name: str) -> MaintenanceResult:
        """Compact and clean a log."""
        path = self.lake.log(name)
        writer = Writer(path)
        work = _Table(writer, before=len(writer.table().file_uris()), replica=origin.is_replica(path))
        if not self.dry_run and not work.replica:
            work.mended = writer.set_properties(KEPT)
        self._compact(work, compaction.of_log(writer.table()))
        _, landing = next(history.standing_of(path, Landing), (None, None))
        if landing is not None and not self.dry_run:
            remember(path, landing)
        ordered = in_order(writer.table()) is not None  # otherwise a new stream reads from the first commit
        floor = self.needed.floors.get(path) if ordered else -1
        cleaned = self._cleaned("logs", name, work, floor=floor, ordered=ordered)
        if not self.dry_run:
            note_lost(path)
        return cleaned

    def quarantine(self, name: str) -> MaintenanceResult:
        """Compact and clean the quarantine of a source, which is never read commit by commit."""
        writer = Writer(self.lake.log(name))
        work = _Table(writer, before=len(writer.table().file_uris()), replica=origin.is_replica(writer.path))
        self._compact(work, compaction.of_quarantine(writer.table()))
        return self._cleaned("logs", name, work, floor=None, read=False)

    def output(self, name: str) -> MaintenanceResult:
        """Compact and clean an output."""
        path, current = self.lake.output(name), name.endswith("__current")
        writer = Writer(path)
        work = _Table(writer, before=len(writer.table().file_uris()), replica=origin.is_replica(path))
        if not self.dry_run and not current:
            coverage.keep(self.lake, name)
            work.mended = not work.replica and writer.set_properties(KEPT)
        self._compact(work, compaction.of_output(writer.table()))
        return self._cleaned("outputs", name, work, floor=self.needed.floors.get(path))

    def _compact(self, work: _Table, plan: compaction.Plan) -> None:
        if work.replica:  # its files are merged at its home, and the merge is replicated
            return
        work.fewer = plan.fewer if self.dry_run else compaction.carry_out(work.writer, plan)

    def _cleaned(
        self, kind: str, name: str, work: _Table, *, floor: int | None, ordered: bool = True, read: bool = True
    ) -> MaintenanceResult:
        """Remove files and entries that no reader needs. Retains all entries of a log whose files are not in order.

        Args:
            kind: ``logs`` or ``outputs``.
            name: name of the table.
            work: the table's writer and results so far.
            floor: the version up to which the slowest reader has read; None without readers.
            ordered: True if the files are in order of their sequences.
            read: True if streams or bounded runs may read the table.
        """
        path = work.writer.path
        versions = self.needed.restorable.get(path, {})
        why = self.why
        if work.replica and not history.rewritten(
            path
        ):  # the first removal is recorded in the table, which its home does
            why = why or "it is a replica, and its home has removed nothing yet"
        gone, expired = Vacuumed(why=why), Expired()
        if not why:
            upto = (
                None
                if self.dry_run or not read
                else changes.keep(path, self.compared.get(path, ()), log=kind == "logs")
            )
            seen_at = self.lake.internal("upkeep", kind, f"{name}.json")
            owed = self.needed.owed.get(path, set())
            gone = vacuum(
                path,
                seen_at,
                floor=floor,
                restorable=versions,
                owed=owed,
                hours=self.hours,
                dry_run=self.dry_run,
                writer=work.writer,
            )
        if not self.dry_run:
            history.keep(
                path, entries.version_of(path) + 1
            )  # another program's clean-up may remove entries before the next upkeep
        if not gone.why:
            reached = history.reached_by(path) if read else None
            needed = [upto, reached, self.needed.entries.get(path), None if ordered else -1]
            first = min([one for one in needed if one is not None], default=entries.version_of(path))
            hours = min(self.hours, expiry.HOURS)
            expired = expire(path, floor=first, hours=hours, dry_run=self.dry_run, writer=work.writer)
        return MaintenanceResult(
            table=f"logs/{name}" if kind == "logs" else name,
            before=work.before,
            after=work.before - work.fewer if self.dry_run else len(work.writer.table().file_uris()),
            removed=gone.files,
            entries=expired.files,
            size=gone.size + expired.size,
            versions=tuple(sorted(versions)),
            hours=self.hours,
            mended=work.mended,
            why=gone.why,
        )


@dataclass(slots=True)
class _Table:
    """A table during its upkeep.

    Args:
        writer: writer of the table, so that the table is opened once.
        before: number of data files before upkeep.
        mended: True if the table's properties were corrected.
        fewer: number of files by which compaction shrank the table, or would in a dry run.
        replica: True if the table's commits are made in another lake: upkeep commits nothing then.
    """

    writer: Writer
    before: int
    mended: bool = False
    fewer: int = 0
    replica: bool = False


def _tables(beside: str) -> Iterator[str]:
    """Names of all tables in the folder that contains a table path."""
    folder = beside.rsplit("/", 1)[0]
    return (name for name in folders(folder) if DeltaTable.is_deltatable(f"{folder}/{name}"))
