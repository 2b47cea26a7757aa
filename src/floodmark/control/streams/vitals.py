"""What can be seen of a supervised stream now: its state, lag, backlog, load and failures, from the control store and the logs of its inputs.

Nothing is asked of the driver, so that the vitals of a dead stream are as true as those of a living one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from deltalake.exceptions import DeltaError

from floodmark.control.processes.presence import is_gone
from floodmark.control.processes.supervisor import describe_driver, given_up
from floodmark.control.state.measures import RECENT, Measured, measured
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import StateError
from floodmark.core.time import END, NEVER, describe
from floodmark.lake.table import history
from floodmark.observe.backlog import Backlog, Backlogs
from floodmark.observe.measure import Measure
from floodmark.observe.pressure import WINDOW_SECONDS, Pressure, busy_share, level, pressure_share

Health = Literal["running", "starting", "waiting", "asleep", "stopped", "crashed", "failed", "gone"]
"""State of a stream: ``waiting`` for an input or a source; ``asleep`` as there is nothing to read; ``crashed``, and to be started again; ``failed``,
and given up; ``gone``, a process that ended without a word."""

HEALTHS = get_args(Health)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What can be seen of a stream.

    Args:
        deployment: desired state.
        driver: newest driver; None before the first.
        measured: counted commits.
        health: state.
        text: the state in words.
        error: why the newest crashed driver crashed; empty if none did.
        progress: of the outputs, or watermark of the log, ms; NEVER before the first commit.
        behind_input: progress of the slowest input minus progress, s; None if unknown, for a source, and while the end of input is not read.
        behind_now: time now minus progress, s; None before the first progress, and at the end of input.
        backlog: what waits; None if unknown.
        busy: share of the last minute in commits.
        waited: share of the last minute in which rows waited.
        pressure: level of ``waited``; None for a stream that should not run.
        at: time of the look, s since 1970.
    """

    deployment: Deployment
    driver: Driver | None
    measured: Measured
    health: Health
    text: str
    error: str
    progress: int
    behind_input: float | None
    behind_now: float | None
    backlog: Backlog | None
    busy: float
    waited: float
    pressure: Pressure | None
    at: float

    @property
    def name(self) -> str:
        """Name of the operator or source."""
        return self.deployment.operator

    @property
    def alive(self) -> bool:
        """True if the stream has a driver that lives."""
        return self.health in {"running", "starting", "waiting"}

    @property
    def minute(self) -> list[Measure]:
        """The commits of the last minute, oldest first."""
        return [one for one in self.measured.recent if one.at > self.at - WINDOW_SECONDS]

    @property
    def rate(self) -> float:
        """Rows read per second, over the last minute."""
        return sum(one.rows_in for one in self.minute) / WINDOW_SECONDS

    def as_json(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        backlog, last = self.backlog, self.measured.last
        return {
            "stream": self.name,
            "kind": self.deployment.kind,
            "lake": self.deployment.lake,
            "environment": self.deployment.environment,
            "version": self.deployment.version,
            "wanted": self.deployment.desired,
            "health": self.health,
            "state": self.text,
            "progress": None if self.progress == NEVER else describe(self.progress),
            "behind_input_seconds": self.behind_input,
            "behind_now_seconds": self.behind_now,
            "backlog": None
            if backlog is None
            else {"commits": backlog.commits, "rows": backlog.rows, "bytes": backlog.bytes, "whole": backlog.whole},
            "rows_per_second": round(self.rate, 3),
            "busy": round(self.busy, 3),
            "pressure": self.pressure,
            "last_commit": None if last is None else last.number,
            "totals": self.measured.totals.as_json(),
            "error": self.error,
        }


def vitals(
    store: Store, deployments: Iterable[Deployment], backlogs: Backlogs | None = None, now: float | None = None
) -> list[Vitals]:
    """The vitals of streams.

    Args:
        store: the control store.
        deployments: of the streams.
        backlogs: remembers what was read of inputs between two calls.
        now: time of the look, s since 1970; by default now.
    """
    backlogs = backlogs or Backlogs()
    return [_vitals(store, one, backlogs, time.time() if now is None else now) for one in deployments]


def _vitals(store: Store, deployment: Deployment, backlogs: Backlogs, now: float) -> Vitals:
    drivers = store.drivers(deployment.stream)
    driver = drivers[0] if drivers else None
    counted = measured(store, deployment.stream, RECENT)
    crash = next((one for one in drivers if one.state == "crashed"), None)
    recent = counted.recent
    progress = recent[-1].progress if recent else NEVER
    backlog = _backlog(deployment, recent, backlogs)
    waited = pressure_share(recent, None if backlog is None else backlog.since, now)
    return Vitals(
        deployment=deployment,
        driver=driver,
        measured=counted,
        health=_health(deployment, drivers),
        text="not started yet" if driver is None else describe_driver(driver),
        error="" if crash is None else crash.reason or "",
        progress=progress,
        behind_input=_behind_input(recent, progress),
        behind_now=None if progress in {NEVER, END} else max(0.0, now - progress / 1000),
        backlog=backlog,
        busy=busy_share(recent, now),
        waited=waited,
        pressure=level(waited) if deployment.desired == "running" else None,
        at=now,
    )


def _health(deployment: Deployment, drivers: list[Driver]) -> Health:
    if not drivers:
        return "stopped" if deployment.desired == "stopped" else "starting"
    driver = drivers[0]
    if driver.ended_at is None:
        if is_gone(driver):
            return "gone"
        if driver.reason:
            return "waiting"
        return "running" if driver.state == "running" else "starting"
    if driver.read_to is not None:
        return "asleep"
    if deployment.desired == "stopped" or driver.state == "stopped":
        return "stopped"
    return "failed" if given_up(deployment, drivers) else "crashed"


def _backlog(deployment: Deployment, recent: tuple[Measure, ...], backlogs: Backlogs) -> Backlog | None:
    """What waits. Of a source, that many files were still to land after its last commit."""
    if deployment.kind == "source":
        return Backlog(commits=recent[-1].waiting, whole=not recent[-1].waiting) if recent else None
    read = next((one.read for one in reversed(recent) if one.read), None)
    return None if read is None else backlogs.of(read)


def _behind_input(recent: tuple[Measure, ...], progress: int) -> float | None:
    read = next((one.read for one in reversed(recent) if one.read), {})
    reached = [one for one in map(_progress_of, read) if one is not None]
    if not reached or NEVER in {progress, min(reached)} or (min(reached) == END) != (progress == END):
        return None
    return max(0, min(reached) - progress) / 1000


def _progress_of(path: str) -> int | None:
    try:
        return history.progress(path)
    except (DeltaError, OSError, StateError):  # its stream says what is wrong with the table
        return None
