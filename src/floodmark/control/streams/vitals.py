"""What can be seen of a supervised stream now: its health, lag, backlog, load and failures, from the control store and the logs of its inputs.

Nothing is asked of the driver, so that the vitals of a dead stream are as true as those of a living one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.control.health.judgement import Health, Judged, judged
from floodmark.control.processes.holding import Holding
from floodmark.control.processes.supervisor import describe_driver
from floodmark.control.state.measures import RECENT, Measured, measured
from floodmark.control.state.presence import is_gone
from floodmark.control.state.records import Deployment, Driver, StreamId
from floodmark.control.state.store import Store
from floodmark.core.time import END, NEVER, describe
from floodmark.observe.backlog import Backlog, Backlogs
from floodmark.observe.measure import Measure
from floodmark.observe.pressure import WINDOW_SECONDS, Pressure, busy_share, level, pressure_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What can be seen of a stream.

    Args:
        deployment: desired state.
        driver: newest driver; None before the first.
        measured: counted commits.
        health: what it does, whether that is a fault, why, and what mends it.
        text: what its newest driver does, in words.
        error: why the newest crashed driver crashed; empty if none did.
        progress: of the outputs, or watermark of the log, ms; NEVER before the first commit.
        behind_input: progress of the slowest input minus progress, s; None for a source, before the first progress, and while the end of input is not read.
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
        return self.driver is not None and self.driver.ended_at is None and not is_gone(self.driver)

    @property
    def waiting_rows(self) -> int | None:
        """Rows that wait: in commits of the inputs that are not read, of a source to land by its last look; None if that is not known."""
        if self.deployment.kind == "source":
            return self.measured.recent[-1].behind if self.measured.recent else None
        return None if self.backlog is None else self.backlog.rows

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
            "health": self.health.condition,
            "level": self.health.level,
            "reason": self.health.reason,
            "mend": self.health.mend,
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
    store: Store,
    deployments: Iterable[Deployment],
    backlogs: Backlogs | None = None,
    holding: Holding | None = None,
    judgements: Mapping[StreamId, Judged] | None = None,
) -> list[Vitals]:
    """The vitals of streams.

    Args:
        store: the control store.
        deployments: of the streams, with those that they read.
        backlogs: remembers what was read of inputs between two calls.
        holding: looks up gates, and remembers them between two calls.
        judgements: stream -> its health, if it was judged just now.
    """
    chosen, backlogs = list(deployments), backlogs or Backlogs()
    if judgements is None:
        judgements = judged(store, chosen, holding=holding or Holding(), now=store.now())
    return [_vitals(store, judgements[one.stream], backlogs) for one in chosen]


def _vitals(store: Store, judgement: Judged, backlogs: Backlogs) -> Vitals:
    observed, deployment = judgement.observed, judgement.observed.deployment
    driver, crash, now = next(iter(observed.drivers), None), observed.newest_crash, observed.now
    counted = measured(store, deployment.stream, RECENT)
    recent = counted.recent
    progress = observed.standing.progress
    if progress == NEVER and recent:  # its table cannot be read
        progress = recent[-1].progress
    lag = None if deployment.kind == "source" else observed.standing.lag
    backlog = _backlog(deployment, recent, backlogs)
    waited = pressure_share(recent, None if backlog is None else backlog.since, now)
    return Vitals(
        deployment=deployment,
        driver=driver,
        measured=counted,
        health=judgement.health,
        text="not started yet" if driver is None else describe_driver(driver, now),
        error="" if crash is None else crash.reason or "",
        progress=progress,
        behind_input=None if lag is None else lag / 1000,
        behind_now=None if progress in {NEVER, END} else max(0.0, now - progress / 1000),
        backlog=backlog,
        busy=busy_share(recent, now),
        waited=waited,
        pressure=level(waited) if deployment.desired == "running" else None,
        at=now,
    )


def _backlog(deployment: Deployment, recent: tuple[Measure, ...], backlogs: Backlogs) -> Backlog | None:
    """What waits. Of a source, that many files were still to land after its last commit."""
    if deployment.kind == "source":
        return Backlog(commits=recent[-1].waiting, whole=not recent[-1].waiting) if recent else None
    read = next((one.read for one in reversed(recent) if one.read), None)
    return None if read is None else backlogs.of(read)
