"""Landing: from a source into its log, once each, in commits that carry the state from which the next one goes on.

The log commit is the moment of truth: quarantined rows are written before it and taken back when it never came; the list of
landed units is written after it and caught up from its metadata.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from delta.tables import DeltaTable as Table
from filelock import FileLock, Timeout
from pyspark import StorageLevel

from floodmark.connectors.delta import DeltaReader
from floodmark.connectors.files import FileReader
from floodmark.connectors.memory import MemoryReader
from floodmark.connectors.unit import Landed, Reader, Unit
from floodmark.connectors.validation import Rules
from floodmark.core import crash, errors
from floodmark.core.errors import ConnectorError, FloodmarkError, LifecycleError
from floodmark.core.time import END
from floodmark.engines.spark import log, shipping, units
from floodmark.engines.spark.lake import Lake, absolute
from floodmark.engines.spark.landed import LandedUnits
from floodmark.engines.spark.log import Landing
from floodmark.engines.spark.units import Report, Stamping
from floodmark.semantics.watermarks import advance, leave_idle
from floodmark.spec.source import DeltaTable, Files, Punctuated, Rows, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ONE_FILE_ROWS = 1_000_000
"""Up to so many rows a commit is one file."""


class Stop(Protocol):
    """What ``threading.Event`` is."""

    def is_set(self) -> bool:
        """True when the landing should end after the commit it is in."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep, at most until it is set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One landing commit.

    Args:
        source: its name.
        ordinal: 0 is the first of the log.
        units: files (or versions, or lists) that landed or were reported.
        rows: landed.
        quarantined: entries.
        watermark: after it, ms.
        pending: units already seen that are still to land.
        seconds: it took.
    """

    source: str
    ordinal: int
    units: int
    rows: int
    quarantined: int
    watermark: int
    pending: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingResult:
    """What a landing did.

    Args:
        source: its name.
        commits: written.
        units: landed or reported.
        rows: landed.
        quarantined: entries.
        watermark: of the log now, ms.
        waiting: names of files that are still being written; the next landing takes them.
        ended: the log has its end of input.
    """

    source: str
    commits: int = 0
    units: int = 0
    rows: int = 0
    quarantined: int = 0
    watermark: int
    waiting: tuple[str, ...] = ()
    ended: bool = False


def land(  # noqa: PLR0913 - each is one decision of the caller's, by name
    spark: SparkSession,
    source: Source,
    lake: Lake,
    *,
    until_caught_up: bool = True,
    end: bool = False,
    on_commit: Callable[[Committed], None] | None = None,
    stop: Stop | None = None,
    max_commits: int | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    poll_seconds: float = 1.0,
    workspace: Path | None = None,
) -> LandingResult:
    """Land what is pending at a source.

    Args:
        spark: a session of ``spark_session``.
        source: contract, connector, watermark strategy.
        lake: where the log is.
        until_caught_up: end when nothing is pending; otherwise look again every ``poll_seconds`` until ``stop``.
        end: then land the end of input: the watermark goes to its maximum, every window fires, nothing can land any more.
        on_commit: called after each commit.
        stop: asked between commits.
        max_commits: at most so many commits.
        clock: the moment of landing, ms UTC.
        poll_seconds: between two looks at the source.
        workspace: the folder relative paths start from; the current one by default.

    Raises:
        ConnectorError: CONNECTOR-001..011, the input is missing or has another shape; what came before it has landed.
        PlanError: PLAN-010, the source no longer fits its log.
        LifecycleError: LIFECYCLE-010 another landing is at work, 011 the source has ended, 012 the log is another lake's.
    """
    with locked(lake, source):
        landing = Lander.open(spark, source, lake, clock=clock, workspace=workspace)
        session = _Session(landing, on_commit, stop, max_commits)
        try:
            session.run(until_caught_up=until_caught_up, poll_seconds=poll_seconds)
            if end and not landing.last.ended and not session.is_over():
                session.count(landing.end())
        finally:
            landing.close()
        return session.result()


@contextlib.contextmanager
def locked(lake: Lake, source: Source) -> Iterator[None]:
    """Hold the source of a lake for this process. In a bucket there is no lock: the log's own commit decides."""
    if lake.logs is not None and lake.logs != lake.root:
        fix = "Land with the lake that owns the log, or leave out `logs` to land into this one."
        raise LifecycleError(f"source '{source.name}'", "a log of this lake", f"one of {lake.logs}", fix, code="LIFECYCLE-012")
    if not lake.is_local:
        yield
        return
    path = Path(lake.internal("sources", source.name, "lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_name("lock.holder")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid = holder.read_text() if holder.exists() else "unknown"
        fix = f"Wait until it is done, or stop it: kill {pid}."
        where = f"source '{source.name}' in {lake.root}"
        raise LifecycleError(where, "no other landing", f"one by process {pid}", fix, code="LIFECYCLE-010") from None
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def reader_of(source: Source, workspace: Path | None = None) -> Reader:
    """The reader of a source's connector."""
    settings = source.connector
    match settings:
        case Files():
            path = _located(settings.path, workspace)
            return FileReader(replace(settings, path=path), source.contract, source.name)
        case DeltaTable():
            return DeltaReader(replace(settings, path=_located(settings.path, workspace)), source.name)
        case Rows():
            return MemoryReader(settings, source.name)
        case _:
            assert_never(settings)


def _located(path: str, workspace: Path | None) -> str:
    return path if "://" in path else absolute(str((workspace or Path.cwd()) / path))


@dataclass(slots=True)
class Lander:
    """Writes the landing commits of one source; the caller holds its lock."""

    spark: SparkSession
    source: Source
    lake: Lake
    clock: Callable[[], int]
    reader: Reader
    last: Landing
    landed: LandedUnits
    widen: bool
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    waiting: set[str] = field(default_factory=set)
    _clean: bool = False

    @staticmethod
    def open(
        spark: SparkSession, source: Source, lake: Lake, *, clock: Callable[[], int], workspace: Path | None = None
    ) -> Lander:
        """Read where the log stands; create it when there is none."""
        path = lake.log(source.name)
        reader = reader_of(source, workspace)
        if not log.exists(spark, path):
            crash.point("landing.before_create")
            log.create(spark, path, source)
            crash.point("landing.after_create")
        last = next(log.landings(spark, path), Landing(source=source.name))
        widen = log.check_fits(source, last.definition)
        shipping.by_value(source.contract)
        landed = LandedUnits.load(spark, lake, source.name)
        return Lander(spark, source, lake, clock, reader, last, landed, widen)

    def close(self) -> None:
        """Write down what landed."""
        self.landed.flush(self.last.ordinal)

    def pending(self) -> list[Unit]:
        """What can land now.

        Raises:
            LifecycleError: LIFECYCLE-011, there is something and the source has ended.
        """
        found, touched = self.reader.pending(self.landed.known)
        self.landed.touch((replace(unit, ordinal=self.last.ordinal) for unit in touched), self.last.ordinal)
        found = [unit for unit in found if unit.name not in self.waiting]
        if found and self.last.ended:
            got = f"{len(found)} more to land, first {found[0].name}"
            fix = "The watermark is at its end, so every row would be late. Land it under a new source name, or into a new lake."
            raise LifecycleError(f"source '{self.source.name}'", "nothing after its end of input", got, fix, code="LIFECYCLE-011")
        return found

    def commit(self, found: Sequence[Unit]) -> Landing | None:
        """Land units as one commit; None when all of them have to wait.

        Raises:
            ConnectorError: one of them cannot be landed; those before it are.
        """
        now = self.clock()
        rules = Rules(self.source, now)
        blobs = units.parsed(self.spark, self.reader, found, rules)
        if isinstance(self.source.watermark, Punctuated):
            blobs = units.punctuated(blobs, self.source)
        blobs = blobs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            reports = units.reports_of(blobs)
            problem = next((report.error for report in reports if report.error is not None), None)
            done = reports[: next((report.unit for report in reports if report.error is not None), len(reports))]
            decided = [report for report in done if report.status != "changing"]
            self.waiting |= {found[report.unit].name for report in done if report.status == "changing"}
            landing = None
            if decided:
                landing = self._prepared(found, decided)
                self._write_quarantine(blobs, found, decided, landing, now)
                landing = self.write(blobs, {r.unit: r for r in decided if r.status == "landed"}, landing, now, last=len(found) - 1)
                self.landed.add(landing.units, landing.ordinal)
        finally:
            blobs.unpersist()
        if problem is not None:
            raise _raised(problem)
        return landing

    def idle(self) -> Landing | None:
        """Land a marker when source partitions that went idle let the watermark move."""
        now = self.clock()
        state = leave_idle(self.last.state, now=now, idle_timeout=self.source.idle_timeout)
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

    def write(
        self, blobs: DataFrame, reports: Mapping[int, Report], landing: Landing, now: int, *, last: int
    ) -> Landing:
        """Append rows and marker to the log; ``landing`` knows everything but what the rows do to state and sequence."""
        idle_timeout, starts = self.source.idle_timeout, {}
        state, sequence = leave_idle(self.last.state, now=now, idle_timeout=idle_timeout), self.last.next_sequence
        before = state.watermark
        for unit, report in sorted(reports.items()):
            starts[unit] = state, sequence
            sequence += report.rows
            state = advance(state, report.trace, now=now, idle_timeout=idle_timeout)[1] if report.trace else state
        landing = replace(landing, state=state, next_sequence=sequence + 1, rows=sequence - self.last.next_sequence)
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
        if landing.rows <= _ONE_FILE_ROWS:
            blobs = blobs.coalesce(1).sortWithinPartitions("_unit", "_part")
        return self._append(units.stamped(blobs, self.source.schema, plan), landing)

    def recover(self) -> None:
        """Take back what a landing that never came has left in the quarantine."""
        path, due = self.lake.quarantine(self.source.name), self.last.ordinal + 1
        if self._clean:
            return
        if log.exists(self.spark, path):
            stale = f"_landing >= {due} OR _replayed >= {due}"
            if not self.spark.read.format("delta").load(path).where(stale).isEmpty():
                crash.point("landing.before_recover")
                table = Table.forPath(self.spark, path)
                table.delete(f"_landing >= {due}")
                table.update(f"_replayed >= {due}", {"_replayed": "NULL"})
                crash.point("landing.after_recover")
        self._clean = True

    def next(self) -> Landing:
        """The coming commit, before anything is known of its rows."""
        return Landing(
            source=self.source.name,
            ordinal=self.last.ordinal + 1,
            next_sequence=self.last.next_sequence + 1,
            state=self.last.state,
            definition=self.source.canonical(),
            run=self.run,
        )

    def _prepared(self, found: Sequence[Unit], decided: Sequence[Report]) -> Landing:
        landing = self.next()
        done = tuple(
            Landed(
                name=found[report.unit].name,
                size=report.size,
                modified=found[report.unit].modified,
                digest=report.digest,
                status=report.status,
                ordinal=landing.ordinal,
            )
            for report in decided
        )
        quarantined = sum(report.broken if report.status == "landed" else 1 for report in decided)
        return replace(landing, units=done, quarantined=quarantined)

    def _write_quarantine(
        self, blobs: DataFrame, found: Sequence[Unit], decided: Sequence[Report], landing: Landing, now: int
    ) -> None:
        self.recover()
        if landing.quarantined:
            crash.point("landing.before_quarantine")
            by_unit = {report.unit: report for report in decided}
            rows = units.quarantined(blobs, found, by_unit, source=self.source.name, ordinal=landing.ordinal, now=now)
            rows.coalesce(1).write.format("delta").mode("append").save(self.lake.quarantine(self.source.name))
            crash.point("landing.after_quarantine")

    def _write_marker(self, landing: Landing, now: int) -> Landing:
        sequence, watermark = self.last.next_sequence, landing.state.watermark
        frame = units.only_marker(self.spark, self.source.schema, watermark=watermark, sequence=sequence, now=now)
        return self._append(frame, landing)

    def _append(self, frame: DataFrame, landing: Landing) -> Landing:
        path = self.lake.log(self.source.name)
        options = {
            "txnAppId": f"land/{self.source.name}",
            "txnVersion": str(landing.ordinal),
            "userMetadata": landing.metadata(self.source.fingerprint),
            "mergeSchema": str(self.widen).lower(),
        }
        crash.point("landing.before_log")
        frame.write.format("delta").mode("append").options(**options).save(path)
        crash.point("landing.after_log")
        if not self.lake.is_local:
            self._check_mine(landing)
        self.last = landing
        return landing

    def _check_mine(self, landing: Landing) -> None:
        newest = next(log.landings(self.spark, self.lake.log(self.source.name)), None)
        if newest is None or newest.run != landing.run:
            fix = "Keep one landing per source; this one has written nothing and can be started again when the other has ended."
            where = f"source '{self.source.name}' in {self.lake.root}"
            raise LifecycleError(where, "no other landing", "a commit of another one", fix, code="LIFECYCLE-010")


@dataclass(slots=True)
class _Session:
    """Counts and ends one call of ``land``."""

    landing: Lander
    on_commit: Callable[[Committed], None] | None
    stop: Stop | None
    max_commits: int | None
    done: list[Landing] = field(default_factory=list)

    def run(self, *, until_caught_up: bool, poll_seconds: float) -> None:
        while not self.is_over():
            found = self.landing.pending()
            if not found:
                if until_caught_up:
                    return
                begun = time.monotonic()
                self.count(self.landing.idle(), begun=begun)
                self.landing.close()
                self.landing.waiting.clear()
                if self._wait(poll_seconds):
                    return
            while found and not self.is_over():
                size = self.landing.source.files_per_commit
                begun = time.monotonic()
                first, found = found[:size], found[size:]
                self.count(self.landing.commit(first), pending=len(found), begun=begun)

    def is_over(self) -> bool:
        """True when asked to stop or at the limit of commits."""
        stopped = self.stop is not None and self.stop.is_set()
        return stopped or (self.max_commits is not None and len(self.done) >= self.max_commits)

    def count(self, landing: Landing | None, *, pending: int = 0, begun: float | None = None) -> None:
        """Note a commit and tell the caller."""
        if landing is None:
            return
        self.done.append(landing)
        if self.on_commit is not None:
            self.on_commit(
                Committed(
                    source=landing.source,
                    ordinal=landing.ordinal,
                    units=len(landing.units),
                    rows=landing.rows,
                    quarantined=landing.quarantined,
                    watermark=landing.state.watermark,
                    pending=pending,
                    seconds=0.0 if begun is None else time.monotonic() - begun,
                )
            )

    def result(self) -> LandingResult:
        """The sum of it."""
        last = self.landing.last
        return LandingResult(
            source=last.source,
            commits=len(self.done),
            units=sum(len(landing.units) for landing in self.done),
            rows=sum(landing.rows for landing in self.done),
            quarantined=sum(landing.quarantined for landing in self.done),
            watermark=last.state.watermark,
            waiting=tuple(sorted(self.landing.waiting)),
            ended=last.ended,
        )

    def _wait(self, seconds: float) -> bool:
        if self.stop is not None:
            return self.stop.wait(seconds)
        time.sleep(seconds)
        return False


def _raised(problem: dict[str, str]) -> FloodmarkError:
    parts = dict(problem)
    kind = getattr(errors, parts.pop("kind"), ConnectorError)
    code = parts.pop("code")
    return kind(**parts, code=code)  # type: ignore[no-any-return]  # a FloodmarkError by construction
