"""Health of supervised streams: whether a stream does what it should, for what reason not, and what mends that. Judged from records, never by asking a driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from deltalake.exceptions import DeltaError

from floodmark.control.processes.holding import Holding
from floodmark.control.processes.supervisor import LEASE, describe_crashes, given_up
from floodmark.control.state.presence import is_gone, is_here
from floodmark.control.state.records import Deployment, Driver, StreamId, Watch
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import END, NEVER, describe, describe_span
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.gates import Gate, release_fix
from floodmark.lake.results.verdicts import HELD, overdue
from floodmark.lake.stream.delivered import position_file
from floodmark.observe.standing import Standing, standing, standing_of_delivery
from floodmark.spec.assets.alert import Level
from floodmark.spec.workspace import Workspace

Condition = Literal[
    "running", "asleep", "starting", "stopped",
    "failed", "crashed", "silent", "unsupervised", "waiting", "gated", "starved", "stale", "lagging",
]  # fmt: skip
"""What a stream does; those of the second line are faults. ``failed``: it is not started again; ``crashed``: it is, or was just now; ``silent``: its
driver sends no heartbeats; ``gated``: a gate of an input is closed; ``starved``: the stream of an input does not run; ``stale``: its watermark is older than its freshness allows; ``lagging``:
what its inputs hold has been unread for long."""

CONDITIONS: tuple[Condition, ...] = get_args(Condition)

SILENT_SECONDS = 20.0
"""Time without a heartbeat after which a driver is at fault; its supervisor kills it after a minute."""
START_SECONDS = 180.0
"""Time in which a stream has to start and to find its inputs."""
LAG_SECONDS = 120.0
"""Time for which a commit of an input may be unread: longer is a warning, and an error if the stream has committed nothing for so long."""
_SUPERVISE = "floodmark supervise, or floodmark up, which brings a supervisor along"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a stream.

    Args:
        name: name of the operator or source.
        level: ``ok``, ``warning`` or ``error``.
        condition: what the stream does.
        reason: why, for people.
        mend: what a person can do: a job of Dagster's, and a verb; empty if there is nothing to do.
    """

    name: str
    level: Level
    condition: Condition
    reason: str = ""
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.condition}: {self.reason}" if self.reason else self.condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of a stream at one moment.

    Args:
        deployment: its deployment.
        drivers: its drivers, newest first.
        supervised: True if a supervisor is running.
        now: time by the store's clock, s since 1970.
        standing: how far it has got.
        inputs: health of the streams that it reads, as far as they are deployed.
        gate: the closed gate of an input that it waits for; None for none.
        freshness: longest time by which its watermark may be behind the clock, ms; None: any.
        seen: id of the newest crashed driver at the last look: a later crash is a fault even if the stream runs again. None for the first look.
    """

    deployment: Deployment
    drivers: Sequence[Driver]
    supervised: bool
    now: float
    standing: Standing = field(default_factory=Standing)
    inputs: Sequence[Health] = ()
    gate: Gate | None = None
    freshness: int | None = None
    seen: int | None = None

    def judge(self) -> Health:
        """The health of the stream."""
        if self.deployment.desired == "stopped":
            return self._stopped()
        if crashes := given_up(self.deployment, self.drivers):
            return self._health("error", "failed", f"it {describe_crashes(crashes)}", self._job("restart"))
        driver = self._driver
        if driver is not None and is_gone(driver):
            reason = f"process {driver.pid} has ended without a word"
            return self._health("error", "crashed", reason, "" if self.supervised else _SUPERVISE)
        if not self.supervised:
            return self._health("error", "unsupervised", "no supervisor is at work, which would restart it", _SUPERVISE)
        if self.gate is not None:
            return self._gated(self.gate)
        return self._down() if driver is None else self._living(driver)

    @property
    def newest_crash(self) -> Driver | None:
        """The newest driver that has crashed; None if none has."""
        return next((driver for driver in self.drivers if driver.state == "crashed"), None)

    @property
    def behind_clock(self) -> float | None:
        """Skew of event time: seconds by which the watermark is behind the clock; None before the first row and after the end of input."""
        return None if self.standing.progress in {NEVER, END} else self.now - self.standing.progress / 1000

    @property
    def _crash_before(self) -> Driver | None:
        """The driver before the newest one, if it has crashed since the stream was asked for."""
        crashes = (one for one in self.drivers[1:2] if one.state == "crashed")
        return next((one for one in crashes if one.started_at >= self.deployment.changed_at), None)

    # ---- cases

    @property
    def _driver(self) -> Driver | None:
        """The driver that should be running; None if the last one has ended."""
        return next((driver for driver in self.drivers[:1] if driver.ended_at is None), None)

    def _stopped(self) -> Health:
        if stale := self._stale():
            return self._health("error", "stale", f"it is stopped, and {stale}", self._job("start"))
        return self._health("ok", "stopped")

    def _gated(self, gate: Gate) -> Health:
        stale = self._stale()
        reason = gate.describe() + (f"; {stale}" if stale else "")
        return self._health("error" if stale else "warning", "gated", reason, release_fix(gate))

    def _down(self) -> Health:
        newest = next(iter(self.drivers), None)
        if newest is None or newest.started_at < self.deployment.changed_at:
            return self._starting("it was asked for, and has no process", self.deployment.changed_at)
        if newest.state == "crashed":
            return self._health("error", "crashed", f"{newest.reason}; a supervisor starts it again")
        if newest.read_to is None:
            return self._starting("its process has ended, and it has no other", newest.ended_at or 0)
        if stale := self._stale():
            return self._health("error", "stale", f"nothing is left to read, and {stale}")
        return self._health("ok", "asleep", newest.reason or "")

    def _living(self, driver: Driver) -> Health:
        silent = self.now - driver.heartbeat_at
        if silent > SILENT_SECONDS:
            reason = f"nothing is heard of process {driver.pid} for {silent:.0f} s"
            return self._health("error", "silent", reason, "" if is_here(driver) else self._job("restart"))
        crash = self.newest_crash
        if crash is not None and self.seen is not None and crash.id > self.seen:
            return self._health("error", "crashed", f"{crash.reason}; started again as process {driver.pid}")
        if (starved := self._starved()) is not None:
            return starved
        if driver.state == "starting" and (before := self._crash_before) is not None:
            return self._health("error", "crashed", f"{before.reason}; it is starting again as process {driver.pid}")
        if driver.state == "starting":
            return self._starting(driver.reason or "its process is starting", driver.started_at)
        if driver.reason and driver.reason.startswith(HELD):
            return self._held(driver.reason)
        if driver.reason:
            return self._health("error", "waiting", driver.reason.removeprefix("waiting: "))
        if stale := self._stale():
            return self._health("error", "stale", stale)
        return self._running(driver)

    def _held(self, reason: str) -> Health:
        """Of a stream that waits for the verdict about a partition: a fault only once that is complete, and not judged for long."""
        fix = overdue(reason, self.now, LAG_SECONDS)
        if stale := self._stale():
            return self._health("error", "stale", f"it {reason}; {stale}", fix)
        return self._health("warning" if fix else "ok", "gated", f"it {reason}", fix)

    def _starting(self, reason: str, since: float) -> Health:
        seconds = self.now - since
        if seconds <= START_SECONDS:
            return self._health("ok", "starting", reason)
        return self._health("error", "waiting", f"{reason}, for {seconds:.0f} s", self._job("restart"))

    def _starved(self) -> Health | None:
        for health in self.inputs:
            if health.condition in {"stopped", "failed", "waiting", "starved"}:
                level: Level = "warning" if health.condition == "stopped" else "error"
                mend = health.mend or _job("start", health.name)
                return self._health(level, "starved", f"its input {health.name} is {health}", mend)
        return None

    def _stale(self) -> str:
        """The reason if the watermark is older than the freshness allows; empty if it is not."""
        if self.freshness is None or self.standing.progress >= END:
            return ""
        allowed = f"freshness allows {describe_span(self.freshness)}"
        behind = self.behind_clock
        if behind is None:
            waited = self.now - self.deployment.changed_at
            return f"it has no rows yet, and {allowed}" if waited * 1000 > self.freshness else ""
        if behind * 1000 <= self.freshness:
            return ""
        ago = describe_span(int(behind) * 1000)
        return f"its watermark, {describe(self.standing.progress)}, is {ago} behind the clock, and {allowed}"

    def _running(self, driver: Driver) -> Health:
        since = self.standing.behind_since
        if since is None or self.now - since <= LAG_SECONDS:
            return self._health("ok", "running")
        reason = f"what its inputs hold has been unread for {self.now - since:.0f} s"
        quiet = self.now - max(self.standing.at, driver.started_at)
        if quiet <= LAG_SECONDS:
            return self._health("warning", "lagging", f"{reason}; it is catching up")
        return self._health("error", "lagging", f"{reason}; it commits nothing for {quiet:.0f} s", self._job("restart"))

    def _job(self, job: str) -> str:
        return _job(job, self.deployment.operator)

    def _health(self, level: Level, condition: Condition, reason: str = "", mend: str = "") -> Health:
        return Health(name=self.deployment.operator, level=level, condition=condition, reason=reason, mend=mend)


@dataclass(frozen=True, slots=True)
class Judged:
    """A stream as it was observed, and the verdict."""

    observed: Observed
    health: Health


def judged(
    store: Store,
    deployments: Iterable[Deployment],
    *,
    holding: Holding,
    now: float,
    supervised: bool | None = None,
    seen: Mapping[StreamId, int | None] = MappingProxyType({}),
) -> dict[StreamId, Judged]:
    """Stream -> what is known of it now, and its health. A stream comes after those that it reads.

    Args:
        store: the control store.
        deployments: of the streams, with those that they read: the health of the others is not known.
        holding: looks up gates.
        now: time by the store's clock, s since 1970.
        supervised: True if a supervisor is running; None: look whether one holds its lease.
        seen: stream -> ``Observed.seen``.
    """
    supervised = store.holder(LEASE) is not None if supervised is None else supervised
    verdicts = dict[StreamId, Judged]()
    for deployment in _in_order(deployments):
        stream, watch = deployment.stream, deployment.watch
        inputs = [] if watch is None else [StreamId(name, deployment.lake) for name, _ in watch.inputs]
        observed = Observed(
            deployment=deployment,
            drivers=store.drivers(stream),
            supervised=supervised,
            now=now,
            standing=Standing() if watch is None else _standing(watch),
            inputs=[verdicts[one].health for one in inputs if one in verdicts],
            gate=holding.gate_of(watch),
            freshness=None if watch is None else watch.freshness,
            seen=seen.get(stream),
        )
        verdicts[stream] = Judged(observed, observed.judge())
    return verdicts


def _in_order(deployments: Iterable[Deployment]) -> list[Deployment]:
    """The deployments, each after those that it reads; those of one lake read each other."""
    waiting, ordered = list(deployments), list[Deployment]()
    while waiting:
        names = {(one.lake, one.operator) for one in waiting}
        ready = [
            one for one in waiting if one.watch is None or not any((one.lake, n) in names for n, _ in one.watch.inputs)
        ]
        ordered += ready or waiting
        waiting = [one for one in waiting if one not in ordered]
    return ordered


def _standing(watch: Watch) -> Standing:
    try:
        if watch.delivery:
            return standing_of_delivery(watch.delivery, watch.table)
        return standing(watch.table, [path for _, path in watch.inputs])
    except (DeltaError, OSError, FloodmarkError):
        # the lake is unreachable, or a table is damaged: the stream says so itself
        return Standing()


def _job(job: str, name: str) -> str:
    return f"job {job} with streams: [{name}], or: floodmark {job} {name}"


def watch_of(workspace: Workspace, lake: Lake, name: str) -> Watch:
    """What the health of a stream is judged by.

    Args:
        workspace: that declares it.
        lake: the lake of its tables.
        name: name of an operator, of a source, or of a delivery.
    """
    route = next((one for one in workspace.deliveries if one.name == name), None)
    if route is not None:
        table = lake.written(route.operator, route.output.table)
        return Watch(
            table=table,
            inputs=((route.operator.name, table),),
            freshness=route.freshness,
            alerts=len(workspace.alerts),
            delivery=position_file(lake, name),
        )
    operator = next((one for one in workspace.operators if one.name == name), None)
    if operator is None:
        return Watch(table=lake.log(name), freshness=workspace.freshness_of(name), alerts=len(workspace.alerts))
    writers = {output.table: other.name for other in workspace.operators for output in other.outputs}
    return Watch(
        table=lake.output(operator.outputs[0].table),
        inputs=tuple((writers.get(one.table, one.table), lake.input(one)) for one in operator.inputs),
        freshness=workspace.freshness_of(name),
        alerts=len(workspace.alerts),
    )
