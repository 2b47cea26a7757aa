"""The supervisor: starts and stops drivers so that they match the deployments. If a supervisor dies, the next one adopts its running drivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil
from deltalake.exceptions import DeltaError

from floodmark.control.processes import placement
from floodmark.control.processes.holding import Holding
from floodmark.control.processes.looks import Looks
from floodmark.control.processes.periodic import Periodic
from floodmark.control.state.presence import OpenFolder, is_gone, is_here, is_paused, lives
from floodmark.control.state.records import COMMITS, GONE, Deployment, Driver, StreamId
from floodmark.control.state.store import CONTROL, Store
from floodmark.core.background import begin
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.host import birth, host, is_born, is_older
from floodmark.engines.embedded.sail.shared import FOLDER
from floodmark.lake.table.entries import version_of
from floodmark.spec.assets.restart import Restart
from floodmark.spec.values.cron import fires

LEASE = "supervisor"
LEASE_SECONDS = 15.0
POLL_SECONDS = 0.5
STUCK_SECONDS = 300.0
"""Time without a look after which a supervisor counts as stuck: several times what a look waits for its store."""
SILENT_SECONDS = 60.0
"""Time without a heartbeat after which a running driver counts as hung."""
GRACE_SECONDS = 120.0
"""Time from SIGTERM to SIGKILL for a driver that does not stop."""
FINAL = (
    "LIFECYCLE-011",
    "LIFECYCLE-012",
    "LIFECYCLE-038",
    "LIFECYCLE-042",
    "LIFECYCLE-051",
    "STATE-002",
    "STATE-003",
    "STATE-010",
    "STATE-041",
    "PLAN-010",
    "CAPABILITY-031",
    "CAPABILITY-033",
    "CAPABILITY-035",
)
"""Codes of failures that a restart cannot fix; a crash's reason begins with its code."""

_HOMELESS = "LIFECYCLE-305"
"""Code of the error that the folder of packages and logs was removed."""

DEFAULT = Restart.exponential()
"""Strategy of streams that declare none."""

Command = Callable[[Driver], Sequence[str]]


class Look(Protocol):
    """What a supervisor does at each tick beside its streams."""

    def look(self) -> None:
        """Do what is due, without waiting for it."""


@dataclass(slots=True)
class Supervisor:
    """Starts, watches and stops drivers.

    Args:
        store: the control store.
        home: folder of packages and logs.
        holder: name of this supervisor.
        command: driver -> command that runs it; by default floodmark's own.
        say: called with lines of progress.
        restart: strategy of streams that declare none.
        clock: () -> time, s since 1970; by default the store's clock, as of each look.
        upkeep: starts periodic upkeep; None for no upkeep.
        looks: starts looks at rollouts; None for no looks.
        alerting: tells changes of the health of streams; None for no alerts.
    """

    store: Store
    home: Path
    holder: str
    command: Command | None = None
    say: Callable[[str], None] = print
    restart: Restart = DEFAULT
    clock: Callable[[], float] | None = None
    upkeep: Periodic | None = None
    looks: Looks | None = None
    alerting: Look | None = None
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _asked: dict[int, float] = field(default_factory=dict)
    """Driver -> when it was asked to stop, s since 1970."""
    _failed: set[int] = field(default_factory=set)
    _reported: set[int] = field(default_factory=set)
    _holding: Holding = field(default_factory=Holding)
    _several: frozenset[str] = frozenset()
    """Operators with streams in several lakes."""
    _looked: float = 0.0
    _turned: float = field(default_factory=time.monotonic)
    """When this supervisor last had a turn of its loop, s."""
    _alive: dict[tuple[int, float | None], bool] = field(default_factory=dict)
    """Process -> whether it lives, as of this look: streams may share one."""
    _now: float = 0.0
    """Time of the last look by the store's clock, s since 1970."""
    _since: float = 0.0
    """Time since which the store was polled without a gap, s since 1970. Silence before that time proves nothing."""

    def run(self, stop: threading.Event, *, leave: bool = True) -> None:
        """Supervise until ``stop``.

        Args:
            stop: when set, the supervisor ends.
            leave: True to leave the drivers running; False to stop them first, so that the next supervisor restarts them.

        Raises:
            LifecycleError: LIFECYCLE-052, another supervisor is running; LIFECYCLE-305, the folder of packages and logs was removed.
        """
        with OpenFolder(self.home) as home:
            self._run(stop, home, leave=leave)

    def _run(self, stop: threading.Event, home: OpenFolder, *, leave: bool) -> None:
        """As ``run``, with the folder of packages and logs, opened before."""
        if self.store.lease(LEASE, self.holder, LEASE_SECONDS) is None:
            other = self.store.holder(LEASE)
            fix = f"One is enough. If it is gone, wait {LEASE_SECONDS:.0f} s, and try again."
            raise LifecycleError("supervisor", "no other one", f"{other}", fix, code="LIFECYCLE-052")
        try:
            self._watch(stop, home)
        finally:
            if self.upkeep is not None:
                self.upkeep.end()
        with suppress(FloodmarkError):
            while not leave and self._stop_all():
                time.sleep(POLL_SECONDS)
            self.store.release(LEASE, self.holder)

    def stand_by(self, stop: threading.Event) -> None:
        """Wait until no other supervisor is running, then supervise until ``stop``. The drivers stop with this supervisor.

        Raises:
            LifecycleError: LIFECYCLE-305, the folder of packages and logs was removed.
        """
        reported = ""
        with OpenFolder(self.home) as home:
            while not stop.is_set():
                self._turned = time.monotonic()
                try:
                    self._begin_look()
                    other = self.store.holder(LEASE)
                    self._looked = (
                        time.time()
                    )  # who stands by hears of drivers too: their silence counts from the death of their host
                    if other is None:
                        self._run(stop, home, leave=False)
                except FloodmarkError as error:  # the store is unreachable, or another supervisor was faster
                    if error.code == _HOMELESS:
                        raise
                    if not home.is_gone and reported != str(error):
                        self.say(reported := str(error))
                self._check_home(home)
                stop.wait(POLL_SECONDS)

    def _watch(self, stop: threading.Event, home: OpenFolder) -> None:
        """Look at the streams again and again until ``stop``.

        Raises:
            LifecycleError: LIFECYCLE-305.
        """
        reported = ""
        while not stop.is_set():
            self._turned = time.monotonic()
            self._check_home(home)
            try:
                self.tick()
                reported = ""
            except FloodmarkError as error:  # the store is unreachable: running drivers continue
                if not home.is_gone and reported != str(error):
                    self.say(reported := str(error))
            stop.wait(POLL_SECONDS)

    def _check_home(self, home: OpenFolder) -> None:
        """Check that the folder of packages and logs exists. If it was removed, stop the drivers on this machine: no later supervisor will know of them.

        Raises:
            LifecycleError: LIFECYCLE-305, the folder was removed.
        """
        if not home.is_gone:
            return
        drivers = []
        alive = (process for process, lives_on in self._alive.items() if lives_on)
        for pid, born in {*alive, *((pid, None) for pid in self._children)}:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if is_born(process, born):
                    drivers.append(process)
        for process in drivers:
            _terminate(process.pid)
        for process in psutil.wait_procs(drivers, GRACE_SECONDS)[1]:
            _kill_group(process.pid)
        fix = "Its streams have been stopped. In the workspace, wherever it is now: floodmark supervise"
        expected = f"folder {self.home}, with the packages and logs of its workspace"
        raise LifecycleError("supervisor", expected, "removed or moved while it ran", fix, code="LIFECYCLE-305")

    def is_stuck(self) -> bool:
        """True if the loop of this supervisor has not turned for longer than a look takes."""
        return time.monotonic() - self._turned > STUCK_SECONDS

    def tick(self) -> bool:
        """Compare all deployments with their drivers once. Returns False, without acting, if another supervisor holds the lease."""
        self._begin_look()
        try:
            mine = self._tick()
            if mine and self.upkeep is not None:
                self.upkeep.look(self.holder)
            if mine and self.looks is not None:
                self.looks.look()
            if mine and self.alerting is not None:
                self.alerting.look()
            return mine
        finally:
            self._looked = time.time()

    def _begin_look(self) -> None:
        """Count silence from now if the store was not polled for a while."""
        if time.time() - self._looked > LEASE_SECONDS:
            self._since = time.time()
            with suppress(FloodmarkError):  # the store is unreachable: ``_tick`` reports that
                self._since = self.store.now()

    def _tick(self) -> bool:
        try:
            mine = self.store.lease(LEASE, self.holder, LEASE_SECONDS)
        except FloodmarkError:  # perhaps a suspended driver holds a write lock; the store can still be read
            self._kill_stopped()
            raise
        if mine is None:
            return False
        gone = [pid for pid, child in self._children.items() if child.poll() is not None]  # reap ended processes
        deployments, drivers = self.store.deployments(), defaultdict[StreamId, list[Driver]](list)
        for driver in self.store.living():
            drivers[driver.stream].append(driver)
        self._alive.clear()
        self._now = self.store.now()
        several = Counter(one.operator for one in deployments)
        self._several = frozenset(name for name, count in several.items() if count > 1)
        for deployment in deployments:
            self._steer(deployment, [driver for driver in drivers[deployment.stream] if not self._has_ended(driver)])
        for pid in gone:  # its drivers have been recorded
            del self._children[pid]
        return True

    def _steer(self, deployment: Deployment, living: Sequence[Driver]) -> None:
        """Start, stop or kill the driver of a stream, if there is a reason.

        Args:
            deployment: deployment of the stream.
            living: its drivers that have not ended, newest first.
        """
        if deployment.desired == "stopped":
            for driver in living:
                self._ask_to_stop(driver, "it should not run")
        elif self._holds(deployment):
            for driver in living:
                self._ask_to_stop(driver, "it waits for a gate")
        elif not living:
            self._start(deployment)
        elif living[0].version != deployment.version:
            self._ask_to_stop(living[0], f"{deployment.version} should run")
        elif is_here(living[0]) and self._hangs(living[0]):
            self._kill_silent(living[0])
        elif placement.may_join(deployment, living[0], self.store, self._time()):
            self._ask_to_stop(living[0], "it has run well alone, and joins the other streams of its package")

    def _holds(self, deployment: Deployment) -> bool:
        """True if a stream waits for a gate of an input: it stops at its next micro-batch boundary, and starts again once the gate is released."""
        gate = self._holding.gate_of(deployment.watch)
        held = None if gate is None else gate.describe()
        if held != deployment.held:
            self.store.hold(deployment.stream, held)
            self.say(f"{self._name(deployment)}: {'goes on' if held is None else f'waits for a gate: {held}'}")
        return held is not None

    def _time(self) -> float:
        """Time by which restarts and cron expressions go, s since 1970: the store's, as hosts that share a store may have different clocks."""
        return self._now if self.clock is None else self.clock()

    def _kill_stopped(self) -> None:
        self._now = self.store.now()
        for driver in self.store.living():
            if is_here(driver) and self._hangs(driver) and is_paused(driver):
                self._kill_silent(driver)

    def _kill_silent(self, driver: Driver) -> None:
        self.say(f"{self._name(driver)}: process {driver.pid} is silent, and is killed")
        _kill_group(driver.pid or 0)

    def _name(self, subject: Deployment | Driver) -> str:
        return f"{subject.operator} in {subject.lake}" if subject.operator in self._several else subject.operator

    # ---- processes

    def _stop_all(self) -> bool:
        """Ask all drivers to stop. Returns True while one still lives."""
        if self.store.lease(LEASE, self.holder, LEASE_SECONDS) is None:
            return False
        living = False
        self._alive.clear()
        for driver in self.store.living():
            if is_here(driver) and not self._has_ended(driver):
                living = True
                self._ask_to_stop(driver, "its supervisor ends", with_others=True)
        return living or any(
            child.poll() is None for child in self._children.values()
        )  # a driver records its end before its process has ended

    def _start(self, deployment: Deployment) -> None:
        drivers = self.store.drivers(deployment.stream)  # read again, with the ends recorded since
        if sleeps(deployment, next(iter(drivers), None), self._time()):
            return
        strategy = deployment.restart or self.restart
        crashes = crashed(drivers, deployment.changed_at, strategy)
        if crashes:
            if crashes[0].id not in self._reported:
                self._reported.add(crashes[0].id)
                self.say(f"{self._name(deployment)}: crashed: {crashes[0].reason}")
            pause = None if is_final(crashes[0]) else strategy.pause_seconds(len(crashes))
            if pause is None:
                if crashes[0].id not in self._failed:
                    self._failed.add(crashes[0].id)
                    self.say(f"{self._name(deployment)} {describe_crashes(crashes)}")
                return
            if self._time() < (crashes[0].ended_at or 0) + pause:
                return
        if drivers and is_here(drivers[0]) and drivers[0].pid not in {one.pid for one in self.store.living()}:
            _kill_remains(drivers[0])
        if (
            self.store.lease(LEASE, self.holder, LEASE_SECONDS) is None
        ):  # this supervisor may have been suspended since it read the deployments
            return
        shares = placement.shares(deployment, drivers)
        driver = self.store.begin(deployment, str(self.home / "logs" / deployment.operator), shares)
        host = None if shares is None else placement.joined(self.store, driver)
        if host is not None:
            self.say(f"{self._name(deployment)}: started {deployment.version} in process {host.pid}, log {driver.log}")
        else:
            self._spawn(deployment, driver)

    def _spawn(self, deployment: Deployment, driver: Driver) -> None:
        """Start the process of a driver."""
        package = self.home / "packages" / deployment.package
        environment = {**os.environ, "PYTHONPATH": str(package), "FLOODMARK_ENVIRONMENT": deployment.environment}
        environment[FOLDER] = str(
            self.home / "server" / host().replace("/", "-")
        )  # of the server that drivers on this host share
        environment[CONTROL] = (
            self.store.url
        )  # not an argument, which is visible to all users: the URL may contain a password
        try:
            child = begin(
                (self.command or self._command)(driver),
                log=placement.process_log(driver),
                folder=package if package.is_dir() else self.home,
                environment=environment,
            )
        except OSError as error:
            self.store.end(driver.id, "crashed", f"cannot be started: {error}")
            return
        self._children[child.pid] = child
        with suppress(psutil.NoSuchProcess):
            self.store.update(driver.id, pid=child.pid, born=birth(psutil.Process(child.pid)))
        self.say(f"{self._name(deployment)}: started {deployment.version} as process {child.pid}, log {driver.log}")

    def _command(self, driver: Driver) -> Sequence[str]:
        return [sys.executable, "-m", "floodmark.control.processes.driver", str(driver.id), str(self.home / "packages")]

    def _orphan(self, driver: Driver) -> psutil.Process | None:
        """The process of a driver whose record has no process id yet. The package folder distinguishes it from drivers of other workspaces."""
        wanted = {"floodmark.control.processes.driver", str(driver.id), str(self.home / "packages")}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if wanted <= set(process.cmdline()):
                    return process
        return None

    def _has_ended(self, driver: Driver) -> bool:
        """True if a driver has ended. Records its end."""
        if not is_here(driver):
            return self._silent_elsewhere(driver)
        if driver.pid is None:
            orphan = self._orphan(driver)
            if orphan is not None:  # a supervisor died between starting the process and recording it
                self.store.update(driver.id, pid=orphan.pid, born=birth(orphan))
                return False
            self.store.end(driver.id, "crashed", "its supervisor died before it was started")
            return True
        process = (driver.pid, driver.born)
        if process not in self._alive:
            self._alive[process] = lives(driver)
        if self._alive[process]:
            return False
        child = self._children.get(driver.pid)
        code = None if child is None else child.wait()
        reason = GONE if code is None else f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        asked = self._asked.pop(driver.id, None)
        self.store.end(
            driver.id, "crashed" if asked is None else "stopped", reason
        )  # no effect if the driver recorded its end itself
        ended = self.store.driver(driver.id)
        placement.append_tail(self.store, driver)
        self._reported.add(driver.id)
        self.say(f"{self._name(driver)}: {ended.state}: {ended.reason}")
        return True

    def _silent_elsewhere(self, driver: Driver) -> bool:
        """True if a driver on another machine has been silent too long. Records its end; if the driver comes back, it sees the record and stops."""
        if self._now - max(driver.heartbeat_at, self._since) <= SILENT_SECONDS:
            return False
        self.store.end(driver.id, "crashed", f"nothing is heard of machine {driver.host}")
        self._reported.add(driver.id)
        self.say(f"{self._name(driver)}: crashed: nothing is heard of machine {driver.host}")
        return True

    def _hangs(self, driver: Driver) -> bool:
        silent = self._now - max(driver.heartbeat_at, self._since) > SILENT_SECONDS
        return silent and (driver.state == "running" or is_paused(driver))

    def _ask_to_stop(self, driver: Driver, why: str, *, with_others: bool = False) -> None:
        """Ask a driver to stop at its next micro-batch boundary; kill it after the grace period.

        A driver that shares its process, or is on another machine, polls the store. If the former does not stop, the other streams of its process are
        asked to stop, so that they start in another process, before that one is killed.

        Args:
            driver: to be stopped.
            why: for people.
            with_others: all streams of its process should stop.
        """
        if driver.pid is None or not is_here(driver):
            return
        asked = self._asked.get(driver.id)
        if asked is None:
            self._asked[driver.id] = time.time()
            self.say(f"{self._name(driver)}: stopping process {driver.pid}: {why}")
            if driver.shares is None or with_others:
                _terminate(driver.pid)
        elif time.time() - asked > GRACE_SECONDS and driver.shares is not None:
            self._asked[driver.id] = time.time()
            self.say(f"{self._name(driver)}: does not stop: the other streams of process {driver.pid} move to another")
            _terminate(driver.pid)
        elif time.time() - asked > GRACE_SECONDS:
            _kill_group(driver.pid)


def describe_driver(driver: Driver, now: float | None = None) -> str:
    """State of a driver, for people.

    Args:
        driver: the driver.
        now: time by the store's clock, s since 1970; by default this machine's.
    """
    if driver.ended_at is not None and driver.read_to is not None:
        return f"asleep: {driver.reason}"
    if driver.ended_at is not None:
        return f"{driver.state}: {driver.reason}"
    commit = COMMITS[driver.kind]
    batch = f"no {commit} yet" if driver.batch is None else f"{commit} {driver.batch}"
    silent = (time.time() if now is None else now) - driver.heartbeat_at
    heard = f"{batch}, heard of {silent:.0f} s ago"
    if is_gone(driver):
        return f"gone: process {driver.pid} has ended, {heard}; a supervisor starts it again: floodmark supervise"
    if not is_here(driver) and silent > SILENT_SECONDS:
        return f"silent: machine {driver.host}, process {driver.pid}, {heard}"
    waiting = f"; {driver.reason}" if driver.reason else ""
    return f"{driver.state}, process {driver.pid}, {heard}{waiting}"


def awaited(deployment: Deployment, driver: Driver | None, *, supervised: bool) -> str | None:
    """The reason why an output of a stream has no commit yet, for people; None if the stream should not run.

    Args:
        deployment: deployment of the stream.
        driver: newest driver of the stream; None for none.
        supervised: True if a supervisor is running.
    """
    if deployment.desired != "running":
        return None
    if driver is not None and driver.ended_at is None:
        return f"{'starting' if driver.batch is None else 'nothing written here yet'}: its driver is {describe_driver(driver)}"
    if driver is not None and driver.read_to is not None:
        return describe_driver(driver)
    if driver is not None and driver.state == "crashed" and driver.started_at >= deployment.changed_at:
        return f"{describe_driver(driver)}: floodmark logs {deployment.operator}"
    if not supervised:
        return "asked for, and no supervisor is at work: floodmark supervise"
    return "starting: asked for, no driver yet"


def supervisor(
    store: Store,
    home: Path,
    say: Callable[[str], None],
    upkeep_minutes: float = 0,
    kept_days: float = 30,
    alerting: Look | None = None,
) -> Supervisor:
    """Create a supervisor named after this process.

    Args:
        store: the control store.
        home: folder of packages and logs.
        say: called with lines of progress.
        upkeep_minutes: pause between upkeeps, minutes; 0 for no upkeep.
        kept_days: days for which upkeep retains packages, logs and records.
        alerting: tells changes of the health of streams; None for no alerts.
    """
    upkeep = Periodic(store, home, upkeep_minutes, {"days": kept_days}, say)
    holder = f"{host()}, process {os.getpid()}, {uuid.uuid4().hex[:6]}"  # containers may have name and number in common
    return Supervisor(
        store=store, home=home, holder=holder, say=say, upkeep=upkeep, looks=Looks(store, home), alerting=alerting
    )


def crashed(drivers: Sequence[Driver], since: float, restart: Restart = DEFAULT) -> list[Driver]:
    """The crashes that count towards the budget: of this deployment, within ``restart.within`` of the last crash, after any regular stop; newest first.

    The age of the last crash does not matter: a stream that used up its budget is not restarted just because time passes.

    Args:
        drivers: drivers of a stream, newest first.
        since: time of the last change of the deployment, s since 1970.
        restart: strategy of the stream.
    """
    crashes: list[Driver] = []
    for driver in drivers:
        if driver.state != "crashed" or driver.started_at < since:
            break
        if crashes and (driver.ended_at or 0) < (crashes[0].ended_at or 0) - restart.within / 1000:
            break
        crashes.append(driver)
    return crashes


def sleeps(deployment: Deployment, driver: Driver | None, now: float) -> bool:
    """True if a stream that runs while there is data has none to read, or if the next time of its cron expression has not come.

    Args:
        deployment: deployment of the stream.
        driver: its newest driver; None for none.
        now: s since 1970.
    """
    if driver is None or driver.read_to is None or driver.started_at < deployment.changed_at:
        return False
    if deployment.run_when not in {"always", "data"}:
        return not fires(deployment.run_when, driver.started_at, now)
    try:
        read = all(version_of(path) == version for path, version in driver.read_to.items())
    except (DeltaError, OSError):  # the stream says what is wrong with its input
        return False
    return deployment.run_when == "data" and read


def is_final(crash: Driver) -> bool:
    """True if no restart can fix the failure that a driver ended with."""
    return (crash.reason or "").startswith(FINAL)


def describe_crashes(crashes: Sequence[Driver]) -> str:
    """Why a stream is not restarted, as a predicate: (its crashes that count, newest first) -> ``has crashed 5 times: ...``."""
    if is_final(crashes[0]):
        return "cannot go on by itself"
    times = "once" if len(crashes) == 1 else f"{len(crashes)} times"
    return f"has crashed {times}: {crashes[0].reason}"


def given_up(deployment: Deployment, drivers: Sequence[Driver]) -> list[Driver]:
    """The crashes because of which a supervisor does not restart a stream, newest first; empty if the supervisor does, or the stream should not run.

    Args:
        deployment: deployment of the stream.
        drivers: its drivers, newest first.
    """
    restart = deployment.restart or DEFAULT
    crashes = crashed(drivers, deployment.changed_at, restart)
    if deployment.desired != "running" or not crashes:
        return []
    return crashes if is_final(crashes[0]) or restart.pause_seconds(len(crashes)) is None else []


def _kill_remains(driver: Driver) -> None:
    """Kill processes that an ended driver left behind, such as its JVM, but no later process group with a reused id."""
    if driver.pid is None or (driver.shares is not None and lives(driver)):
        return
    born = driver.started_at if driver.born is None else driver.born  # others of its process may have started before
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            mine = not is_older(process, born) and process.create_time() <= (driver.ended_at or 0)
            if mine and os.getpgid(process.pid) == driver.pid:
                process.kill()


def _terminate(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
