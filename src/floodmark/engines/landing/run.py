"""Landing: from a source into its log, each unit once, in commits that carry the state from which the next commit resumes.

The log commit decides: quarantined rows are written before it, and deleted by the next landing if that commit is missing; the list of
landed units is written after it, and completed from the metadata of log commits if that list is behind.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypedDict

from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.patience import patient
from floodmark.engines.landing import closing
from floodmark.engines.landing.lander import Lander, reader_of, refuse_ended
from floodmark.engines.landing.port import Workers
from floodmark.engines.landing.session import Committed, LandingResult, Session, Stop, waits
from floodmark.lake.folder.locks import STREAM, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table import origin
from floodmark.lake.table.commits import Landing
from floodmark.spec.rows.source import Source


class How(TypedDict, total=False):
    """The arguments of ``land`` by name."""

    until_caught_up: bool
    end: bool
    reopen: bool
    on_begin: Callable[[], None] | None
    on_commit: Callable[[Committed], None] | None
    stop: Stop | None
    max_commits: int | None
    clock: Callable[[], int]
    poll_seconds: float
    wait_seconds: float
    workspace: Path | None


def land(  # noqa: PLR0913 - each is one decision of the caller's, by name
    workers: Workers,
    source: Source,
    lake: Lake,
    *,
    until_caught_up: bool = True,
    end: bool = False,
    reopen: bool = False,
    on_begin: Callable[[], None] | None = None,
    on_commit: Callable[[Committed], None] | None = None,
    stop: Stop | None = None,
    max_commits: int | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    poll_seconds: float = 1.0,
    wait_seconds: float = 0,
    workspace: Path | None = None,
) -> LandingResult:
    """Land the pending units of a source.

    Args:
        workers: of an engine.
        source: contract, connector, watermark strategy.
        lake: where the log is.
        until_caught_up: end when nothing is pending; otherwise look again every ``poll_seconds`` until ``stop``.
        end: land the end of input last, if looks at the source before and after find nothing left to land: the watermark advances to its
            maximum, every window fires, and no unit can land after that. If ``stop`` is set, the end does not land.
        reopen: first take back the end of input, if there is one.
        on_begin: called once the source is locked and nothing keeps the landing from starting.
        on_commit: called after each commit.
        stop: checked between commits.
        max_commits: most commits to write.
        clock: the moment of landing, ms UTC.
        poll_seconds: seconds between two looks at the source.
        wait_seconds: with ``end``, longest wait for units that are still being written, unfinished or refused. An end waits beside that until
            files that are unchanged are as old as ``min_age`` of the source's files.
        workspace: the folder relative paths start from; the current one by default.

    Raises:
        CapabilityError: CAPABILITY-031 and 033, only the other engine can land the source.
        ConnectorError: CONNECTOR-001..011, the input is missing or has another shape; the units before it have landed.
        PlanError: PLAN-010, the source no longer fits its log.
        LifecycleError: LIFECYCLE-003 another landing runs, or with ``reopen`` a stream that reads the log; 011 the source has ended,
            012 the log is another lake's, 013 a stream or a savepoint has read the end that should be taken back; 185 with ``end``,
            units are left to land, the others have landed; 186 a unit has come in while the end landed, and the end cannot be taken back.
    """
    workers.check(source, lake)

    def patience() -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if until_caught_up else patient(partial(waits, source.name, stop))

    with locked(lake, source, role="" if until_caught_up else STREAM):
        with patience():
            check_start(source, lake, workspace, reopen=reopen)
        if on_begin is not None:
            on_begin()
        landing = Lander.open(workers, source, lake, clock=clock, workspace=workspace)
        session = Session(landing, on_commit, stop, max_commits)
        landing.looks.ending = end
        with workers.boundary(f"landing of '{source.name}'", f"floodmark land {source.name}"):
            if reopen:
                session.count(landing.reopen())
            with patience():
                session.run(until_caught_up=until_caught_up, poll_seconds=poll_seconds)
            if (end or landing.complete) and not landing.last.ended:
                closing.end(landing, session, wait_seconds)
            landing.close()  # after an error the next landing catches up from the log
        return session.result()


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
    reader = reader_of(source, workspace)
    reader.check_there()
    last = log.check_log_fits(source, lake)
    if last is None:
        _check_not_lost(lake, source)
    elif last.ended and not reopen:
        refuse_ended(source, reader.pending(LandedUnits.load(lake, last), last.positions).units)


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
    origin.check_home(lake.log(source.name), f"source '{source.name}'", source.name)


@contextlib.contextmanager
def locked(lake: Lake, source: Source, *, role: str = "") -> Iterator[None]:
    """Lock the source of a lake for this process. In a bucket there is no lock: the first of two log commits wins, the other fails.

    Args:
        lake: of the log.
        source: whose log is written.
        role: of this process, for others that want the lock: ``STREAM`` for a landing that goes on; by default ``landing``.
    """
    _check_own(lake, source)
    with exclusive(lake, "sources", source.name, "landing", role=role):
        yield
