"""The supervised streams of a workspace: starts and stops them through the control store, and waits until the drivers follow."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.control.health.judgement import watch_of
from floodmark.control.processes.engine import computing
from floodmark.control.processes.package import Data, home, pack
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.state import references
from floodmark.control.state.presence import is_gone
from floodmark.control.state.records import Action, Deployment, Desired, Driver, Kind, StreamId, Watch
from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError
from floodmark.engines.starting import check_outputs
from floodmark.lake.folder.credentials import reach
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.switch import refuse_moved, refuse_while_pending
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.workspace import Workspace

_POLL_SECONDS = 0.2
STOP_SECONDS = 150.0
"""Longest wait for a stream to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The supervised streams of a workspace, with the control store.

    Args:
        workspace: the workspace, with absolute paths.
        root: folder of the workspace.
        say: called with lines of progress.
        store: the control store.
    """

    workspace: Workspace
    root: Path
    say: Callable[[str], None] = print
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        """Open the control store, and set the variables by which the store of the lake is reached: processes that a supervisor starts inherit them.

        Raises:
            ConnectorError: CONNECTOR-215, a secret of the lake's store is missing.
            SetupError: SETUP-040, the control store cannot be reached or written.
        """
        if self.workspace.settings.store is not None:
            reach(self.workspace.settings.store)
        url = self.workspace.settings.control or f"sqlite:///{self.home / 'control.db'}"
        object.__setattr__(self, "store", Store(url))
        references.record(self.home, self.store)

    @property
    def home(self) -> Path:
        """The folder of packages and logs."""
        return home(self.root)

    @property
    def lake(self) -> Lake:
        """The lake of the workspace."""
        return Lake.of(self.workspace.settings)

    def pack(self) -> str:
        """Pack the current code of the workspace. Returns the package's name."""
        return pack(self.root, self.home / "packages", Data.of(self.workspace), self.say)

    def start(self, streams: Iterable[Operator | Source | Route]) -> str:
        """Pack the current code and deploy the streams of operators, the landings of sources and deliveries from it. Returns the package's name.

        Raises:
            ConnectorError: CONNECTOR-002 and 003, the folder of a source is missing, or a file.
            PlanError: PLAN-010, a source no longer fits its log.
            LifecycleError: LIFECYCLE-034 a rollback of a stream is not finished, 042 a stream has moved, 054 an action on a stream is running, 038 an
                input was replaced after a stream read it.
            StateError: STATE-003, a stream was started with another definition.
            CapabilityError: CAPABILITY-031 and 035, only Spark can run a stream.
        """
        chosen = list(streams)
        self.check_idle(stream.name for stream in chosen)
        for stream in chosen:  # report now what would make the driver fail at once
            if isinstance(stream, Source):
                computing(self.workspace.settings).check_landing(stream, self.lake)
            elif isinstance(stream, Operator):
                self._check_start(stream)
        package = self.pack()
        for stream in chosen:
            version = stream.version if isinstance(stream, Operator) else f"{stream.name}@{package[:8]}"
            self.deploy(stream.name, package, version, "running")
            self.say(f"{version} should run, from package {package}")
        return package

    def _check_start(self, operator: Operator) -> None:
        refuse_while_pending(self.lake, operator.name)
        refuse_moved(self.lake, operator.name)
        self.check_engine(operator)
        timeline = Timeline.current(self.lake, operator.name)
        if timeline.deployed is not None:
            timeline.identity.claim(operator)
            check_read(timeline)
            check_outputs(timeline)

    def check_engine(self, operator: Operator) -> None:
        """Check that the workspace's engine can run the stream of an operator.

        Raises:
            CapabilityError: CAPABILITY-031 and 035 only Spark can run the stream, CAPABILITY-036 only the engine that started it can.
        """
        computing(self.workspace.settings).check_deployed(operator, self.lake)

    def deploy(self, name: str, package: str, version: str, desired: Desired) -> None:
        """Record the package, version and desired state of a stream, and the restart strategy that the workspace declares for it.

        Args:
            name: name of the operator or source.
            package: package with its code.
            version: version of the stream.
            desired: ``running`` or ``stopped``.
        """
        settings = self.workspace.settings
        deployment = Deployment(
            operator=name,
            root=str(self.root),
            lake=settings.lake,
            environment=settings.environment,
            package=package,
            version=version,
            desired=desired,
            kind=self._kind(name),
            restart=self.workspace.restart_of(name),
            run_when=self.workspace.run_when_of(name),
            hosting=settings.streams,
            watch=self.watch(name),
        )
        self.store.deploy(deployment)
        references.record(self.home, self.store)
        self.store.note(getpass.getuser(), "deploy", name, version=version, package=package, desired=desired)

    def _kind(self, name: str) -> Kind:
        """What the stream of a name is."""
        if name in {one.name for one in self.workspace.sources}:
            return "source"
        return "delivery" if name in {one.name for one in self.workspace.deliveries} else "operator"

    def watch(self, name: str) -> Watch:
        """What the health of the stream of an operator or source is judged by, as the workspace declares it."""
        return watch_of(self.workspace, self.lake, name)

    def check_idle(self, names: Iterable[str]) -> None:
        """Check that no upgrade or rollback of some streams is running, which stops and starts them itself.

        Raises:
            LifecycleError: LIFECYCLE-054, an action on a stream is running.
        """
        for name in names:
            holder = self.store.holder(self.stream(name).action)
            if holder is not None:
                fix = "Wait until it is done, or end it there with Ctrl-C. One that was killed is over 15 s later."
                where, got = f"stream '{name}'", f"one of {holder}"
                raise LifecycleError(where, "no upgrade or rollback at work", got, fix, code="LIFECYCLE-054")

    def named(self, name: str) -> str:
        """Check the name of an operator or source of the workspace, or of a removed one whose stream was started here. Returns the name.

        Raises:
            DefinitionError: DEFINITION-074, there is no such operator or source.
        """
        return name if self.deployments([name]) else self.workspace.stream(name).name

    def want(self, name: str, desired: Desired) -> None:
        """Set the desired state of a stream.

        Raises:
            LifecycleError: LIFECYCLE-050, the stream was never started.
        """
        if not self.store.want(self.stream(name), desired):
            raise error_never_started(name, self.elsewhere(name))
        self.store.note(getpass.getuser(), desired, name)

    def stop(self, names: Sequence[str], wait_seconds: float = STOP_SECONDS) -> dict[str, Driver | None]:
        """Stop streams, each at its next micro-batch boundary, and wait until their drivers have ended. Returns name -> its last driver.

        Raises:
            LifecycleError: LIFECYCLE-050 a stream was never started, LIFECYCLE-053 a stream has not stopped in time, or no supervisor is running.
        """
        for name in names:
            self.want(name, "stopped")
        until, last_drivers = time.monotonic() + wait_seconds, dict[str, Driver | None]()
        for name in names:
            while (driver := self.driver(name)) is not None and driver.ended_at is None:
                if is_gone(driver):
                    self.store.end(driver.id, "stopped", "its process was gone")
                elif not self.supervised or time.monotonic() > until:
                    fix = f"Is a supervisor at work? floodmark supervise. What it says: floodmark logs {name}"
                    got = f"process {driver.pid}, which still runs"
                    raise LifecycleError(f"stream '{name}'", "one that stops", got, fix, code="LIFECYCLE-053")
                time.sleep(_POLL_SECONDS)
            last_drivers[name] = driver
        return last_drivers

    def check_supervised(self, names: Iterable[str]) -> None:
        """Check that a supervisor is running.

        Args:
            names: streams that the caller wants to stop and start, for the error.

        Raises:
            LifecycleError: LIFECYCLE-053, no supervisor is running.
        """
        if not self.supervised:
            fix = "Start one in another terminal, and try again: floodmark supervise"
            where = f"streams {', '.join(names)}"
            raise LifecycleError(where, "a supervisor that starts and stops them", "none", fix, code="LIFECYCLE-053")

    def await_start(self, name: str, since: float, wait_seconds: float) -> Driver | None:
        """Wait until a driver of a stream is running. Returns the newest driver, in any state once the time is over; None if there is none.

        Args:
            name: name of the operator.
            since: time of the deployment by the store's clock, s since 1970. Crashes of earlier drivers are ignored.
            wait_seconds: longest wait.

        Raises:
            LifecycleError: LIFECYCLE-070, the driver has crashed.
        """
        until = time.monotonic() + wait_seconds
        while True:
            driver = self.driver(name)
            if driver is not None and driver.started_at >= since and driver.state == "crashed":
                fix = f"Mend the cause, and start it again; what the driver wrote: floodmark logs {name}"
                where, got = f"stream '{name}'", f"a crash: {driver.reason}"
                raise LifecycleError(where, "a stream that starts", got, fix, code="LIFECYCLE-070")
            runs = driver is not None and driver.ended_at is None and driver.state == "running"
            asleep = driver is not None and driver.started_at >= since and driver.read_to is not None
            if runs or asleep or time.monotonic() > until:
                return driver
            time.sleep(_POLL_SECONDS)

    @property
    def supervised(self) -> bool:
        """True if a supervisor holds its lease."""
        return self.store.holder(LEASE) is not None

    def driver(self, name: str) -> Driver | None:
        """The newest driver of a stream."""
        return next(iter(self.store.drivers(self.stream(name), 1)), None)

    def action(self, name: str) -> Action | None:
        """The newest action on a stream."""
        return next(iter(self.store.actions(self.stream(name), 1)), None)

    @property
    def here(self) -> list[Deployment]:
        """The deployments in this lake, by name. The store also has those of other environments and of forks."""
        return [one for one in self.store.deployments() if one.stream == self.stream(one.operator)]

    def deployments(self, names: Iterable[str]) -> dict[str, Deployment]:
        """Name -> deployment of some streams in this lake, without streams that were never started."""
        wanted = set(names)
        return {one.operator: one for one in self.here if one.operator in wanted}

    def stream(self, name: str) -> StreamId:
        """The store's id of an operator's stream in this lake."""
        return StreamId(name, self.workspace.settings.lake)

    def elsewhere(self, name: str) -> Deployment | None:
        """A deployment of an operator in another lake; None if there is none."""
        known = self.store.deployments()
        return next((one for one in known if one.operator == name and one.stream != self.stream(name)), None)

    def codes(self) -> dict[str, dict[str, str]]:
        """Operator -> description of the code its stream runs, stored in savepoints."""
        return {one.operator: {"package": one.package} for one in self.here if one.kind == "operator"}


def error_never_started(name: str, elsewhere: Deployment | None = None) -> LifecycleError:
    """The error LIFECYCLE-050 for a stream that was never started, or only in another lake."""
    fix = f"Start it: floodmark start {name}"
    got = "none" if elsewhere is None else f"one in {elsewhere.lake}"
    return LifecycleError(f"stream '{name}'", "one that was started here", got, fix, code="LIFECYCLE-050")
