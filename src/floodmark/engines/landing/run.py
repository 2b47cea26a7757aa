"""Landing: from a source into its log, each unit once, in commits that carry the state from which the next commit resumes.

The log commit decides: quarantined rows are written before it, and deleted by the next landing if that commit is missing; the list of
landed units is written after it, and completed from the metadata of log commits if that list is behind.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Protocol, TypedDict

from floodmark.connectors.files import FileReader
from floodmark.core.errors import LifecycleError, StateError
from floodmark.engines.landing.lander import Lander, reader_of, refuse_ended
from floodmark.engines.landing.port import Workers
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.logs.far import FarRows, newly_far
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.default_nulls import DefaultNulls
from floodmark.lake.table.left_out import LeftOut
from floodmark.spec.rows.source import Source

_NAMED = 5
"""Most units of a kind that an error names."""


class Stop(Protocol):
    """The part of ``threading.Event`` that a landing uses."""

    def is_set(self) -> bool:
        """True if the landing should end after its current commit."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for the timeout, s, at most until the event is set; True if it is set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One landing commit.

    Args:
        source: name of the source.
        ordinal: of the commit; 0 is the first of the log.
        units: files (or versions, or lists) that landed or were reported.
        rows: landed.
        quarantined: entries.
        watermark: after the commit, ms.
        pending: units already seen that are still to land.
        seconds: duration of the commit.
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
    """The result of a landing.

    Args:
        source: name of the source.
        commits: written.
        units: landed or reported.
        rows: landed.
        quarantined: entries.
        watermark: of the log now, ms.
        waiting: names of files that are still being written; the next landing reads them.
        ended: whether the log has its end of input.
        far: groups of few rows of this landing that are far from all other rows of the log, or that have made rows of this landing late.
        left_out: fields of the rows that the contract does not name and has no rule for.
        default_nulls: texts that were read as null by default.
    """

    source: str
    commits: int = 0
    units: int = 0
    rows: int = 0
    quarantined: int = 0
    watermark: int
    waiting: tuple[str, ...] = ()
    ended: bool = False
    far: tuple[FarRows, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    default_nulls: DefaultNulls = field(default_factory=DefaultNulls)


class How(TypedDict, total=False):
    """The arguments of ``land`` by name."""

    until_caught_up: bool
    end: bool
    reopen: bool
    on_commit: Callable[[Committed], None] | None
    stop: Stop | None
    max_commits: int | None
    clock: Callable[[], int]
    poll_seconds: float
    workspace: Path | None


def land(  # noqa: PLR0913 - each is one decision of the caller's, by name
    workers: Workers,
    source: Source,
    lake: Lake,
    *,
    until_caught_up: bool = True,
    end: bool = False,
    reopen: bool = False,
    on_commit: Callable[[Committed], None] | None = None,
    stop: Stop | None = None,
    max_commits: int | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    poll_seconds: float = 1.0,
    workspace: Path | None = None,
) -> LandingResult:
    """Land the pending units of a source.

    Args:
        workers: of an engine.
        source: contract, connector, watermark strategy.
        lake: where the log is.
        until_caught_up: end when nothing is pending; otherwise look again every ``poll_seconds`` until ``stop``.
        end: land the end of input last, if a look at the source just before finds nothing left to land: the watermark advances to its
            maximum, every window fires, and no unit can land after that. If ``stop`` is set, the end does not land.
        reopen: first take back the end of input, if there is one.
        on_commit: called after each commit.
        stop: checked between commits.
        max_commits: most commits to write.
        clock: the moment of landing, ms UTC.
        poll_seconds: seconds between two looks at the source.
        workspace: the folder relative paths start from; the current one by default.

    Raises:
        CapabilityError: CAPABILITY-031 and 033, only the other engine can land the source.
        ConnectorError: CONNECTOR-001..011, the input is missing or has another shape; the units before it have landed.
        PlanError: PLAN-010, the source no longer fits its log.
        LifecycleError: LIFECYCLE-003 another landing runs, or with ``reopen`` a stream that reads the log; 011 the source has ended,
            012 the log is another lake's, 013 a stream or a savepoint has read the end that should be taken back; 185 with ``end``,
            units are left to land, the others have landed.
    """
    workers.check(source, lake)
    with locked(lake, source):
        check_start(source, lake, workspace, reopen=reopen)
        landing = Lander.open(workers, source, lake, clock=clock, workspace=workspace)
        session = _Session(landing, on_commit, stop, max_commits)
        with workers.boundary(f"landing of '{source.name}'", f"floodmark land {source.name}"):
            if reopen:
                session.count(landing.reopen())
            session.run(until_caught_up=until_caught_up, poll_seconds=poll_seconds)
            if end and not landing.last.ended and not session.is_stopped():
                _check_complete(landing, session)
                session.count(landing.end())
            landing.close()  # after an error the next landing catches up from the log
        return session.result()


def _check_complete(landing: Lander, session: _Session) -> None:
    """Land what has appeared meanwhile, until a new look at the source finds nothing left to land.

    Raises:
        LifecycleError: LIFECYCLE-185, units are left: still being written, or behind the limit of commits.
    """
    while left := landing.left():
        writing = [unit.name for unit in left if unit.name in landing.waiting]
        if not session.is_over() and len(writing) < len(left):
            session.run(until_caught_up=True, poll_seconds=0)
            continue
        if session.is_stopped():
            return
        name, units = landing.source.name, [unit.name for unit in left if unit.name not in landing.waiting]
        parts = [
            f"{len(names):,} {why}: {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)}"
            for names, why in ((writing, "still being written"), (units, "left by the limit of commits"))
            if names
        ]
        landing.close()
        raise LifecycleError(
            f"source '{name}'",
            "nothing left to land before its end of input",
            "; ".join(parts),
            f"The end of input has not landed, all other units have. Once the source is complete: floodmark land {name} --end",
            code="LIFECYCLE-185",
        )


def check_start(source: Source, lake: Lake, workspace: Path | None = None, *, reopen: bool = False) -> None:
    """The checks of a landing that need no engine.

    Args:
        source: that shall land.
        lake: where the log is.
        workspace: the folder relative paths start from; the current one by default.
        reopen: whether an end of input is taken back first.

    Raises:
        ConnectorError: CONNECTOR-002 the folder is missing, CONNECTOR-003 it is a file.
        PlanError: PLAN-010, the source no longer fits its log.
        LifecycleError: LIFECYCLE-011 the source has ended and has more to land, LIFECYCLE-012 the log is another lake's.
        StateError: STATE-010, files have landed in a log that has no landing commit.
    """
    _check_own(lake, source)
    reader, path = reader_of(source, workspace), lake.log(source.name)
    if isinstance(reader, FileReader):
        reader.check_there()
    last = log.newest(path) if entries.is_table(path) else None
    if last is None:
        _check_not_lost(lake, source)
    else:
        log.check_fits(source, last.definition)
        if last.ended and not reopen:
            refuse_ended(source, reader.pending(LandedUnits.load(lake, last))[0])


def _check_not_lost(lake: Lake, source: Source) -> None:
    """Refuse a log without a landing commit although files have landed: what lands now would be all there is."""
    units = LandedUnits.load(lake, Landing(source=source.name))
    if units:
        fix = f"Put its folder _delta_log back from a copy. Without one, land all files again into a new lake: floodmark land {source.name} --lake lake-anew."
        raise StateError(
            f"log {lake.log(source.name)}",
            f"the rows of the files that have landed: {len(units):,}",
            "no landing commit",
            fix,
            code="STATE-010",
        )


def _check_own(lake: Lake, source: Source) -> None:
    if lake.logs is not None and lake.logs != lake.root:
        fix = "Land with the lake that owns the log, or leave out `logs` to land into this one."
        raise LifecycleError(
            f"source '{source.name}'", "a log of this lake", f"one of {lake.logs}", fix, code="LIFECYCLE-012"
        )


@contextlib.contextmanager
def locked(lake: Lake, source: Source) -> Iterator[None]:
    """Lock the source of a lake for this process. In a bucket there is no lock: the first of two log commits wins, the other fails."""
    _check_own(lake, source)
    with exclusive(lake, "sources", source.name, "landing"):
        yield


@dataclass(slots=True)
class _Session:
    """Counts and ends one call of ``land``."""

    landing: Lander
    on_commit: Callable[[Committed], None] | None
    stop: Stop | None
    max_commits: int | None
    done: list[Landing] = field(default_factory=list)
    _before: Landing = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.landing.last

    def run(self, *, until_caught_up: bool, poll_seconds: float) -> None:
        while not self.is_over():
            now, begun = self.landing.clock(), time.monotonic()
            units = self.landing.pending()
            if not units:
                self.count(self.landing.idle(now), begun=begun)
                if until_caught_up:
                    return
                self.landing.close()
                self.landing.waiting.clear()
                if self._wait(poll_seconds):
                    return
            while units and not self.is_over():
                size = self.landing.source.files_per_commit
                begun = time.monotonic()
                first, units = units[:size], units[size:]
                self.count(self.landing.commit(first), pending=len(units), begun=begun)

    def is_over(self) -> bool:
        """True if ``stop`` is set or ``max_commits`` is reached."""
        return self.is_stopped() or (self.max_commits is not None and len(self.done) >= self.max_commits)

    def is_stopped(self) -> bool:
        """True if ``stop`` is set."""
        return self.stop is not None and self.stop.is_set()

    def count(self, landing: Landing | None, *, pending: int = 0, begun: float | None = None) -> None:
        """Record a commit and call ``on_commit``."""
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
        """The sum of the commits."""
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
            far=newly_far(self.landing.source, self._before, last),
            left_out=reduce(LeftOut.plus, (landing.left_out for landing in self.done), LeftOut()),
            default_nulls=reduce(DefaultNulls.plus, (landing.default_nulls for landing in self.done), DefaultNulls()),
        )

    def _wait(self, seconds: float) -> bool:
        if self.stop is not None:
            return self.stop.wait(seconds)
        time.sleep(seconds)
        return False
