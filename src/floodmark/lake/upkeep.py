"""Upkeep of tables: small files become large ones, and what nobody can need any more is removed. No JVM is needed.

What was replaced, what killed writers have left behind, and entries of the tables' logs go. Kept, whatever its age: what the newest version has, what
a savepoint goes back to, and what a stream has yet to read. Of a log whose files have no order a stream reads every commit, so nothing goes of it that a
commit names, and no entry. Upkeep knows who needs which entry, Delta's own clean-up does not: where somebody has set a table's properties back, so that
it would remove entries, they are set again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalake import DeltaTable

from floodmark.core.errors import FloodmarkError
from floodmark.lake import changes, compaction, coverage, entries, expiry, history, savepoints
from floodmark.lake.commits import Landing
from floodmark.lake.conflicts import retried
from floodmark.lake.expiry import Expired, expire
from floodmark.lake.locks import data_files
from floodmark.lake.log import remember
from floodmark.lake.lost import note_lost
from floodmark.lake.outputs import keep_history
from floodmark.lake.paths import QUARANTINE, Lake
from floodmark.lake.readers import Needs, bounded_reads, needs
from floodmark.lake.sequences import in_order
from floodmark.lake.storage import folders
from floodmark.lake.vacuum import Vacuumed, vacuum
from floodmark.lake.writer import Writer

HOURS = 168
"""For which files that were replaced are kept: whoever reads a table meanwhile has so long."""
_PATIENCE_SECONDS = 60
"""For a graft that is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was done to a table.

    Args:
        table: its name; of a log ``logs/<name>``.
        before: data files of its newest version.
        after: the same afterwards, or as it would be.
        removed: data files that are gone, or would be.
        versions: that savepoints go back to, and that were kept whole.
        hours: files replaced within these are there.
        entries: files of the table's log that are gone, or would be.
        size: of all files that are gone, bytes.
        mended: the table's properties let Delta remove commits, and now do no more.
        why: nothing was removed, and why.
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


def maintain(lake: Lake, *, hours: int = HOURS, dry_run: bool = False) -> list[Kept]:
    """Compact and clean every log, quarantine and output of a lake; streams and landings may be at work.

    Args:
        lake: any.
        hours: for which files that were replaced are kept, and those that a writer has yet to commit: 0 only where none is at work.
        dry_run: only say what would be merged and removed.

    Raises:
        LifecycleError: LIFECYCLE-003 a rebuild, rollback or fork is at work, LIFECYCLE-004 another writer came in between every time,
            LIFECYCLE-060 a savepoint cannot be read: nothing is done. Where a checkpoint or a fork cannot be read, nothing is removed, and each
            table says so.
    """
    with data_files(lake, "upkeep, rebuild, rollback or fork", _PATIENCE_SECONDS):
        return _maintained(lake, hours, dry_run=dry_run)


def _maintained(lake: Lake, hours: int, *, dry_run: bool) -> list[Kept]:
    savepoints.all_readable(lake)
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
    """What is done to each table of a lake.

    Args:
        lake: the one.
        needed: what others need of its tables.
        compared: path of a table -> versions that bounded runs have read.
        why: nothing may be removed, and why.
        hours: for which files that were replaced stay.
        dry_run: only say what would be removed.
    """

    lake: Lake
    needed: Needs
    compared: dict[str, set[int]]
    why: str
    hours: int
    dry_run: bool

    def log(self, name: str) -> Kept:
        """Make a log few large files."""
        path = self.lake.log(name)
        writer = Writer(path)
        work = _Table(writer, before=len(writer.table().file_uris()))
        if not self.dry_run:
            work.mended = retried(lambda: keep_history(writer.table()), path)
        self._compact(work, compaction.of_log(writer.table()))
        _, landing = next(history.standing_of(path, Landing), (None, None))
        if landing is not None and not self.dry_run:
            remember(path, landing)
        ordered = in_order(writer.table()) is not None  # otherwise a stream begins with the first commit
        floor = self.needed.floors.get(path) if ordered else -1
        cleaned = self._cleaned("logs", name, work, floor=floor, ordered=ordered)
        if not self.dry_run:
            note_lost(path)
        return cleaned

    def quarantine(self, name: str) -> Kept:
        """Make the quarantine of a source few large files; nobody reads its commits one by one."""
        writer = Writer(self.lake.log(name))
        work = _Table(writer, before=len(writer.table().file_uris()))
        self._compact(work, compaction.of_quarantine(writer.table()))
        return self._cleaned("logs", name, work, floor=None, read=False)

    def output(self, name: str) -> Kept:
        """Make an output few large files, and remove what nobody needs of it."""
        path, current = self.lake.output(name), name.endswith("__current")
        writer = Writer(path)
        work = _Table(writer, before=len(writer.table().file_uris()))
        if not self.dry_run and not current:
            coverage.keep(self.lake, name)
            work.mended = retried(lambda: keep_history(writer.table()), path)
        self._compact(work, compaction.of_output(writer.table()))
        return self._cleaned("outputs", name, work, floor=self.needed.floors.get(path))

    def _compact(self, work: _Table, plan: compaction.Plan) -> None:
        work.fewer = plan.fewer if self.dry_run else compaction.carry_out(work.writer, plan)

    def _cleaned(
        self, kind: str, name: str, work: _Table, *, floor: int | None, ordered: bool = True, read: bool = True
    ) -> Kept:
        """Remove files and entries; no entry of a log whose files have no order.

        Args:
            kind: ``logs`` or ``outputs``.
            name: of the table.
            work: on it.
            floor: the version up to which its slowest reader has read; None without one.
            ordered: its files have an order.
            read: streams or bounded runs may read it.
        """
        path = work.writer.path
        versions = self.needed.restorable.get(path, {})
        gone, expired = Vacuumed(why=self.why), Expired()
        if not self.why:
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
            history.keep(path, entries.version_of(path) + 1)  # somebody's clean-up may come before this one
        if not gone.why:
            reached = history.reached_by(path) if read else None
            needed = [upto, reached, self.needed.entries.get(path), None if ordered else -1]
            first = min([one for one in needed if one is not None], default=entries.version_of(path))
            hours = min(self.hours, expiry.HOURS)
            expired = expire(path, floor=first, hours=hours, dry_run=self.dry_run, writer=work.writer)
        return Kept(
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
    """A table upkeep is at.

    Args:
        writer: of it; it is opened once.
        before: its data files at first.
        mended: its properties were set again.
        fewer: files it has by compaction, or would have.
    """

    writer: Writer
    before: int
    mended: bool = False
    fewer: int = 0


def _tables(beside: str) -> Iterator[str]:
    """Names of the tables in the folder of a table."""
    folder = beside.rsplit("/", 1)[0]
    return (name for name in folders(folder) if DeltaTable.is_deltatable(f"{folder}/{name}"))
