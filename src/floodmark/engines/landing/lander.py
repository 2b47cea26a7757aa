"""The writer of landing commits: writes quarantine, log and the list of landed units in this order, each unit whole or not at all."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable as Table

from floodmark.connectors.judging.validation import partition_key
from floodmark.connectors.unit import Moved, Reader, Unit
from floodmark.core import crash, errors
from floodmark.core.errors import ConnectorError, FloodmarkError, LifecycleError
from floodmark.core.time import END
from floodmark.engines.landing import judging, port
from floodmark.engines.landing.looks import Looks, Waiting
from floodmark.engines.landing.port import Blobs, Workers
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import Report
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import far, log, quarantines
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landed, Landing
from floodmark.lake.table.default_nulls import DefaultNulls
from floodmark.lake.table.left_out import LeftOut
from floodmark.semantics.time.delays import Delays
from floodmark.semantics.time.learning import next_bound
from floodmark.semantics.time.stretches import Stretch, joined
from floodmark.semantics.time.watermarks import (
    SourcePartition,
    WatermarkState,
    advance,
    decide,
    follow_clock,
    forget_idle,
    leave_idle,
    unclamped,
)
from floodmark.spec.rows.source import Learned, Source

_JUDGED_ROWS = 100
"""Rows of a commit below which the share of broken rows is not checked."""
_NAMED = 10
"""Most units that an error names."""
_QUIET_SECONDS = 1.0
"""Time without a commit after which a landing that goes on writes the list of landed units, for which the next unit would have to wait."""
_MANY_FILES = 100_000
"""More files than any commit has: the modification time of each file of a commit is a millisecond after the one before."""


def reader_of(source: Source, workspace: Path | None = None) -> Reader:
    """The reader of a source's connector."""
    return source.connector.located(workspace or Path.cwd()).reader(source)


@dataclass(slots=True)
class Lander:
    """Writes the landing commits of one source; the caller holds the source's lock.

    ``moved`` is the unit at which the last commit was broken off, as the source has moved on since it was looked at; empty for none.
    """

    workers: Workers
    source: Source
    lake: Lake
    clock: Callable[[], int]
    reader: Reader
    last: Landing
    landed: LandedUnits
    widen: bool
    looks: Looks
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    complete: bool = False
    moved: str = ""
    _committed_at: float = -math.inf
    """When the last commit was written, monotonic."""
    _clean: bool = False
    _behind: Mapping[str, int] | None = None

    @staticmethod
    def open(
        workers: Workers, source: Source, lake: Lake, *, clock: Callable[[], int], workspace: Path | None = None
    ) -> Lander:
        """A lander at the last commit of the log; the log is created if there is none.

        Raises:
            PlanError: PLAN-010, the source no longer fits its log.
        """
        path = lake.log(source.name)
        reader = reader_of(source, workspace)
        if not Table.is_deltatable(path):
            crash.point("landing.before_create")
            workers.create_log(source, path)
            crash.point("landing.after_create")
        last = log.newest(path) or Landing(source=source.name, set_aside=0)
        if last.set_aside < 0:
            last = replace(last, set_aside=_counted(lake.quarantine(source.name), last.ordinal))
        widen = log.check_fits(source, last.definition)
        if isinstance(source.watermark, Learned) and not last.ended:
            bound, was = next_bound(source.watermark, last.state.learned), log.bound_of(last.definition)
            source = source.with_bound(bound)
            state = decide(last.state, bound=bound, was=was, sequence=last.next_sequence)
            last = replace(last, state=state)
        landed = LandedUnits.load(lake, last)
        return Lander(workers, source, lake, clock, reader, last, landed, widen, Looks(reader))

    def close(self) -> None:
        """Write the list of landed units, which is only complete in memory until then."""
        self.landed.flush()
        log.remember(self.lake.log(self.source.name), self.last)

    def write_in_pause(self, seconds: float) -> None:
        """Write the list of landed units if there is time for it: before a long pause, if nothing has landed for a while, or if the list is due.

        Args:
            seconds: until the next look at the source.
        """
        quiet = max(seconds, time.monotonic() - self._committed_at) >= _QUIET_SECONDS
        if quiet or self.landed.due:
            self.close()

    def pending(self) -> list[Unit]:
        """The units that can land now.

        Raises:
            LifecycleError: LIFECYCLE-011, there are units and the source has ended.
        """
        units = [unit for unit in self.left() if unit.name not in self.waiting]
        if self.last.ended:
            refuse_ended(self.source, units)
        self.waiting |= {unit.name: waiting for unit in units if (waiting := self.looks.too_young(unit)) is not None}
        return [unit for unit in units if unit.name not in self.waiting]

    def left(self) -> list[Unit]:
        """All units that have not landed, also those that wait."""
        pending = self.reader.pending(self.landed, self.last.positions)
        self._behind, self.complete = dict(pending.behind), pending.complete
        if pending.begun and not self.last.ended:
            self._begin(pending.begun)
        if pending.touched:
            self.landed.add(replace(unit, ordinal=self.last.ordinal) for unit in pending.touched)
        return list(pending.units)

    def _begin(self, begun: Mapping[str, str]) -> None:
        """Land, as a marker, where the reading of new source partitions begins. They hold the watermark back until they have rows or are idle."""
        now, source = self.clock(), self.source
        state = self.last.state
        if source.partition_by is None and source.connector.partitioned:
            new = {partition_key(name): SourcePartition(seen=now) for name in begun}
            state = replace(state, partitions=new | state.partitions)
        self._write_marker(replace(self.next(), state=state, positions={**self.last.positions, **begun}), now)

    def commit(self, units: Sequence[Unit]) -> Landing | None:
        """Land units as one commit; None if all of them are still being written.

        Raises:
            ConnectorError: one unit cannot be landed, the units before it are; CONNECTOR-012, too many rows would be quarantined, and
                no row of the commit is written.
            ExecutionError: EXECUTION-090, rows do not meet an expectation with ``on_fail="stop"``, and no row of the commit is written.
        """
        now = self.clock()
        blobs = self.workers.parsed(self.reader, units, self.source, now)
        try:
            reports = blobs.reports
            broken_off = next((report for report in reports if report.error is not None), None)
            done = reports if broken_off is None else reports[: broken_off.unit]
            decided = [report for report in done if report.status != "changing"]
            for report in (report for report in done if report.status == "changing"):
                unit = units[report.unit]
                self.waiting[unit.name] = self.looks.unstable(unit, report)
            landing = None
            refuse_share(self.source, units, decided)
            unmet = judging.check_met(self.source, [report for report in decided if report.status == "landed"])
            if decided:
                landing = replace(self._prepared(units, decided), unmet=unmet)
                self._write_quarantine(blobs, units, decided, landing, now)
                landing = self.write(
                    blobs, {r.unit: r for r in decided if r.status == "landed"}, landing, now, last=len(units) - 1
                )
                self.landed.add(landing.units)
        finally:
            blobs.release()
        self._break_off(units, broken_off)
        return landing

    def _break_off(self, units: Sequence[Unit], report: Report | None) -> None:
        """Raise the error in a report, unless the source has moved on from the last look: ``moved`` then names the unit, and the next look lists the units anew."""
        if report is None or report.error is None:
            self.moved = ""
        elif report.error["kind"] == Moved.__name__ and self.moved != units[report.unit].name:
            self.moved = units[report.unit].name
        else:
            raise _error_of(report.error)

    def idle(self, now: int) -> Landing | None:
        """Land a marker if idle source partitions, or the clock, let the watermark advance. Called when no unit is pending.

        Args:
            now: the clock before the source was looked at, ms.
        """
        state = leave_idle(self.last.state, now=now, idle_timeout=self.source.idle_timeout)
        if self.source.when_idle == "clock" and self.source.idle_timeout:
            state = follow_clock(state, now=now, idle_timeout=self.source.idle_timeout)
        if state.learned is not None:
            apart = leave_idle(unclamped(self.last.state), now=now, idle_timeout=self.source.idle_timeout)
            state = replace(state, learned=state.learned.measured(apart.watermark, Delays()))
        if self.last.ended or state.watermark <= self.last.state.watermark:
            return None
        return self._write_marker(replace(self.next(), state=state), now)

    def end(self) -> Landing:
        """Land the end of input."""
        crash.point("landing.before_end")
        landing = replace(self.next(), state=replace(self.last.state, watermark=END), ended=True)
        landing = self._write_marker(landing, self.clock())
        crash.point("landing.after_end")
        return landing

    def reopen(self) -> Landing | None:
        """Take the end of input back; None if the log has none.

        Raises:
            LifecycleError: LIFECYCLE-013, a stream or a savepoint has read the end; LIFECYCLE-003, a stream that reads the log runs.
        """
        from floodmark.lake.restore import ending  # noqa: PLC0415 - imports streams and savepoints, which other landings do not need

        end = ending.end_of(self.lake.log(self.source.name), self.source.name)
        if end is None:
            return None
        with ending.unread(self.lake, self.source.name, end):
            landing = replace(self.next(), state=end.before.state, next_sequence=self.last.next_sequence)
            landing = replace(landing, modified=self.last.modified)
            crash.point("reopen.before_log")
            ending.reopen(end, landing)
            crash.point("reopen.after_log")
        if not self.lake.is_local:
            self._check_mine(landing)
        self.last = landing
        return landing

    def write(
        self,
        blobs: Blobs,
        reports: Mapping[int, Report],
        landing: Landing,
        now: int,
        *,
        last: int,
        again: bool = False,
    ) -> Landing:
        """Append rows and marker to the log; state, sequence and counts of rows are added to ``landing`` here.

        Args:
            blobs: of the units.
            reports: of the units that land.
            landing: the commit.
            now: the landing clock, ms.
            last: the unit behind which the marker stands.
            again: whether the rows come from the quarantine, so that their delay says nothing about the source.
        """
        plan, state = self._walked(self.last.state, reports, now, last)
        if state.learned is not None:
            measuring, after = self._walked(unclamped(self.last.state), reports, now, last)
            delays = Delays() if again else blobs.measured(measuring)
            state = replace(state, learned=state.learned.measured(after.watermark, delays))
        landing = replace(
            landing,
            state=state,
            next_sequence=plan.marker + 1,
            rows=plan.marker - self.last.next_sequence,
            event_times=joined(far.known_before(self.last), self._times(reports)),
            left_out=reduce(LeftOut.plus, (report.left_out for _, report in sorted(reports.items())), LeftOut()),
            default_nulls=reduce(
                DefaultNulls.plus, (report.default_nulls for _, report in sorted(reports.items())), DefaultNulls()
            ),
        )
        return self._append(blobs, landing, plan)

    def _times(self, reports: Mapping[int, Report]) -> tuple[Stretch, ...]:
        """Stretches of event time of the rows of a commit."""
        times: tuple[Stretch, ...] = ()
        for _, report in sorted(reports.items()):
            times = joined(times, report.times)
        if self.source.granularity == "row":
            return times
        rows = sum(stretch.rows for stretch in times)  # no row of a commit is late because of another row of the commit
        return tuple(replace(stretch, earlier=rows - stretch.rows) for stretch in times)

    def _walked(
        self, state: WatermarkState, reports: Mapping[int, Report], now: int, last: int
    ) -> tuple[Stamping, WatermarkState]:
        """The stamps of a commit (each unit's starting watermark state and sequence), and the watermark state after the last row."""
        idle_timeout, starts = self.source.idle_timeout, {}
        state, sequence = leave_idle(state, now=now, idle_timeout=idle_timeout), self.last.next_sequence
        before = state.watermark
        for unit, report in sorted(reports.items()):
            starts[unit] = state, sequence
            sequence += report.rows
            state = advance(state, report.trace, now=now, idle_timeout=idle_timeout)[1] if report.trace else state
        plan = Stamping(
            starts=starts,
            last=last,
            after=state.watermark,
            marker=sequence,
            now=now,
            idle_timeout=idle_timeout,
            partition_by=self.source.partition_by,
            by_commit=before if self.source.granularity == "commit" else None,
        )
        return plan, state

    def recover(self) -> None:
        """Delete the rows that a landing without a log commit has left in the quarantine."""
        if not self._clean:
            quarantines.undo_uncommitted(
                self.lake.quarantine(self.source.name), self.source.name, self.last.ordinal + 1
            )
            self._clean = True

    def next(self) -> Landing:
        """The record of the next commit, without its units and rows."""
        return Landing(
            source=self.source.name,
            ordinal=self.last.ordinal + 1,
            next_sequence=self.last.next_sequence + 1,
            state=self.last.state,
            positions=self.last.positions,
            behind=self.last.behind if self._behind is None else self._behind,
            set_aside=self.last.set_aside,
            event_times=self.last.event_times,
            definition=self.source.canonical(),
            fingerprint=self.source.fingerprint,
            run=self.run,
        )

    def _prepared(self, units: Sequence[Unit], decided: Sequence[Report]) -> Landing:
        """The record of the next commit with its units, before its rows are stamped."""
        landing = self.next()
        done = tuple(
            Landed(
                name=units[report.unit].name,
                size=report.size,
                modified=units[report.unit].modified,
                digest=report.digest,
                status=report.status,
                ordinal=landing.ordinal,
            )
            for report in decided
        )
        behind = [(units[report.unit], report) for report in decided if units[report.unit].position]
        partition_of = self.source.connector.partition_of
        positions = {partition_of(unit.name): report.position or unit.position for unit, report in behind}
        left = dict(landing.behind)
        for unit in (units[report.unit] for report in decided):
            if (partition := partition_of(unit.name)) in left:
                left[partition] = max(0, left[partition] - unit.rows)
        self._behind = left
        quarantined = sum(report.broken if report.status == "landed" else 1 for report in decided)
        return replace(
            landing,
            units=done,
            positions={**landing.positions, **positions},
            behind=left,
            quarantined=quarantined,
            set_aside=landing.set_aside + quarantined,
        )

    def _write_quarantine(
        self, blobs: Blobs, units: Sequence[Unit], decided: Sequence[Report], landing: Landing, now: int
    ) -> None:
        self.recover()
        if landing.quarantined:
            crash.point("landing.before_quarantine")
            names = [unit.name for unit in units]
            by_unit = {report.unit: report for report in decided}
            path = self.lake.quarantine(self.source.name)
            self._clean = False  # until the landing commit is there
            blobs.set_aside(path, names, by_unit, source=self.source.name, ordinal=landing.ordinal, now=now)
            crash.point("landing.after_quarantine")

    def _write_marker(self, landing: Landing, now: int) -> Landing:
        self.recover()
        plan = Stamping(
            starts={},
            last=0,
            after=landing.state.watermark,
            marker=self.last.next_sequence,
            now=now,
            idle_timeout=self.source.idle_timeout,
            partition_by=self.source.partition_by,
            by_commit=None,
        )
        return self._append(None, landing, plan)

    def _append(self, blobs: Blobs | None, landing: Landing, plan: Stamping) -> Landing:
        path, schema = self.lake.log(self.source.name), self.source.schema
        files = 1 if self.last.rows <= port.ONE_FILE_ROWS else _MANY_FILES
        modified = max(time.time_ns() // 1_000_000, self.last.modified + files)
        landing = replace(landing, state=forget_idle(landing.state), modified=modified)
        crash.point("landing.before_log")
        if blobs is None:
            self.workers.append_marker(path, landing, schema, plan, modified=modified, widen=self.widen)
        else:
            blobs.append(path, landing, schema, plan, modified=modified, widen=self.widen)
        self.widen, self._clean = False, True
        crash.point("landing.after_log")
        if not self.lake.is_local:
            self._check_mine(landing)
        self.last, self._committed_at = landing, time.monotonic()
        return landing

    def _check_mine(self, landing: Landing) -> None:
        newest = log.newest(self.lake.log(self.source.name))
        if newest is None or newest.run != landing.run:
            fix = "Keep one landing per source; this one has written nothing and can be started again when the other has ended."
            where = f"source '{self.source.name}' in {self.lake.root}"
            raise LifecycleError(where, "no other landing", "a commit of another one", fix, code="LIFECYCLE-010")


def _counted(quarantine: str, ordinal: int) -> int:
    """Rows that the landing commits up to one have quarantined, for a log whose commits do not record the number."""
    if not Table.is_deltatable(quarantine):
        return 0
    return int(Table(quarantine).to_pyarrow_dataset().count_rows(filter=pc.field("_landing") <= ordinal))


def refuse_share(source: Source, units: Sequence[Unit], decided: Sequence[Report]) -> None:
    """Raise ConnectorError CONNECTOR-012 if a commit would quarantine a larger share of its rows than the source allows."""
    landed = [report for report in decided if report.status == "landed"]
    broken = sum(report.broken for report in landed)
    rows = broken + sum(report.rows for report in landed)
    if rows < _JUDGED_ROWS or broken <= source.max_quarantine_share * rows:
        return
    report = next(report for report in landed if report.broken)
    shown = "; ".join(report.examples)
    raise ConnectorError(
        f"source '{source.name}'",
        f"at most {source.max_quarantine_share:.0%} of the rows of a commit to break the contract",
        f"{broken:,} of {rows:,}, in {units[report.unit].name}: {shown}",
        f"Correct {source.contract.__name__} (or how Files(...) reads them) and land again; nothing of this commit was written. "
        "To set them all aside: Source(..., max_quarantine_share=1).",
        code="CONNECTOR-012",
    )


def refuse_ended(source: Source, waiting: Sequence[Unit]) -> None:
    """Raise LifecycleError LIFECYCLE-011 if units wait to land at a source whose log has its end of input."""
    if waiting:
        names = ", ".join(unit.name for unit in waiting[:_NAMED]) + ", ..." * (len(waiting) > _NAMED)
        where, got = f"source '{source.name}'", f"{len(waiting)} more to land: {names}"
        fix = (
            f"The watermark is at its end, so every row would be late. Take the end back, if no stream has read it: floodmark land {source.name} "
            "--reopen. Otherwise land under a new source name, or into a new lake."
        )
        raise LifecycleError(where, "nothing after its end of input", got, fix, code="LIFECYCLE-011")


def _error_of(problem: dict[str, str]) -> FloodmarkError:
    """The error that stopped the check of a unit in a worker, from ``Report.error``."""
    parts = dict(problem)
    kind: type[FloodmarkError] = getattr(errors, parts.pop("kind"), ConnectorError)
    code = parts.pop("code")
    return kind(**parts, code=code)
