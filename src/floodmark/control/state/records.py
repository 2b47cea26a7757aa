"""Records of the control store: deployments, drivers and actions of streams."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from floodmark.core.errors import LifecycleError
from floodmark.spec.assets.asset import RunWhen
from floodmark.spec.assets.restart import Restart
from floodmark.spec.workspace import Hosting

Kind = Literal["operator", "source", "delivery"]
"""What a supervised stream is: the stream of an operator, the landing of a source, or a delivery of an output."""

COMMITS: Mapping[Kind, str] = MappingProxyType({"operator": "micro-batch", "source": "commit", "delivery": "delivery"})
"""Kind of a stream -> name of what it does whole or not at all."""

Desired = Literal["running", "stopped"]
"""Desired state of a stream."""

GONE = "it is gone"
"""Reason of the end of a driver whose process has ended in an unknown way."""
OVERDUE = "EXECUTION-091"
"""Code of the error of a micro-batch that has taken longer than its timeout, with which its process ends."""
_DEATH = re.compile(rf"{GONE}|exit \d+|killed by \w+|{OVERDUE} .*", re.DOTALL)

State = Literal["starting", "running", "stopped", "crashed"]
"""Actual state of a driver."""


@dataclass(frozen=True, slots=True)
class StreamId:
    """Id of a stream in the store. Several lakes may have a stream of the same operator, as with environments, forks and experiments.

    Args:
        operator: name of the operator, of the source that the stream lands, or of the delivery: in a workspace they have different names.
        lake: root of the lake, as in the settings.
    """

    operator: str
    lake: str

    def __post_init__(self) -> None:
        """Remove a trailing slash from the lake's root."""
        object.__setattr__(self, "lake", self.lake.rstrip("/"))

    @property
    def action(self) -> str:
        """Name of the lease held by an action on the stream."""
        return f"action/{self.operator}@{self.lake}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What the health of a stream is judged by, as declared when the stream was deployed.

    Args:
        table: path of its log, or of its first output.
        inputs: (stream that writes the table, path of the table), of each input.
        freshness: longest time by which its watermark may be behind the clock, ms; None: any.
        alerts: number of alerts that the workspace declares.
        delivery: of a delivery, the file with its position; its table is the output that it delivers. Empty for other streams.
    """

    table: str
    inputs: tuple[tuple[str, str], ...] = ()
    freshness: int | None = None
    alerts: int = 0
    delivery: str = ""

    @staticmethod
    def parse(value: dict[str, Any] | None) -> Watch | None:
        """The watch from its stored fields; None for none."""
        if value is None:
            return None
        return Watch(**value | {"inputs": tuple((str(stream), str(path)) for stream, path in value["inputs"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The desired state and code of a stream.

    Args:
        operator: name of the operator, source or delivery.
        root: folder of the workspace, to which relative paths of its settings refer.
        lake: root of the lake.
        environment: name of the environment whose settings apply.
        package: name of the package with the code.
        version: version of the operator in the package; of a source or a delivery, its name and the package, as any change of code may change how it runs.
        desired: desired state.
        kind: what the stream is.
        restart: when the stream is started again after a crash; None for the supervisor's default.
        run_when: when the stream has a process.
        hosting: whether the stream may share a process with other streams of its package.
        watch: what its health is judged by; None in records of older stores.
        held: the closed gate for which its supervisor lets it wait, for people; None for none.
        changed_at: time of the last change of the deployment, s since 1970.
    """

    operator: str
    root: str
    lake: str
    environment: str
    package: str
    version: str
    desired: Desired
    kind: Kind = "operator"
    restart: Restart | None = None
    run_when: RunWhen = "always"
    hosting: Hosting = "isolated"
    watch: Watch | None = None
    held: str | None = None
    changed_at: float = 0.0

    @property
    def stream(self) -> StreamId:
        """The deployed stream."""
        return StreamId(self.operator, self.lake)

    @property
    def process(self) -> str:
        """What streams of one process have in common: package, environment, and where the workspace and its tables are; and whether they need an engine."""
        common = f"{self.package}|{self.environment}|{self.root}|{self.stream.lake}"
        return f"{common}|deliveries" if self.kind == "delivery" else common


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A past or present run of a stream, in a process of its own or with others.

    Args:
        id: id of the record.
        operator: name of the operator or source.
        lake: root of the lake; None in records of older stores.
        version: version of the operator.
        epoch: number of earlier drivers of the operator.
        state: state of the driver.
        pid: process id; None before the process is started.
        born: when the process was made (``core.host.birth``); distinguishes it from a later process with the same id.
        log: path of the file with its output.
        started_at: start time, s since 1970.
        heartbeat_at: time of its last heartbeat by the store's clock, s since 1970.
        batch: last micro-batch, or landing commit, that it committed; None for none.
        progress: progress of its outputs, or watermark of its log, ms UTC; None for none.
        ended_at: end time, s since 1970; None while it lives.
        reason: why the driver ended; while it lives, what it waits for.
        host: name of its machine; None in records of older stores.
        usage: fields of the last reported ``Usage``; None if none was reported.
        kind: what the stream is.
        read_to: input table -> version up to which the stream had read it when its driver ended because nothing was left to read; None otherwise.
        shares: ``Deployment.process`` of streams that may join its process; None if the process takes no others.
    """

    id: int
    operator: str
    lake: str | None
    version: str
    epoch: int
    state: State
    pid: int | None
    born: float | None
    log: str
    started_at: float
    heartbeat_at: float
    batch: int | None
    progress: int | None
    ended_at: float | None
    reason: str | None
    host: str | None = None
    usage: dict[str, Any] | None = None
    kind: Kind = "operator"
    read_to: dict[str, int] | None = None
    shares: str | None = None

    @property
    def stream(self) -> StreamId:
        """The stream that the driver runs."""
        return StreamId(self.operator, self.lake or "")

    @property
    def died(self) -> bool:
        """True if the driver has crashed because its process ended, whichever of the streams in the process was the cause."""
        return self.state == "crashed" and _DEATH.fullmatch(self.reason or "") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An upgrade or a rollback of supervised streams.

    Args:
        id: id of the record.
        kind: ``upgrade`` or ``rollback``; rebuilds and promotions are upgrades.
        operator: name of the operator.
        lake: root of the lake; None in records of older stores.
        who: user who requested the action.
        why: the user's note.
        began_at: start time, s since 1970.
        step: current or final step; final ones are ``done``, ``rolled back``, ``refused``.
        old: operator -> package, version and desired state before the action, for every stream that the action stops.
        version: version of the operator after the action.
        savepoint: id of the savepoint that was created for a rollback, or is restored; None before.
        ended_at: end time, s since 1970; None while the action runs, or if it was killed.
        reason: why the action ended with its final step.
        request: options of the request; None without options, and in records of older stores.
    """

    id: int
    kind: str
    operator: str
    lake: str | None
    who: str
    why: str
    began_at: float
    step: str
    old: dict[str, dict[str, str]]
    version: str
    savepoint: str | None
    ended_at: float | None
    reason: str | None
    request: dict[str, Any] | None

    @property
    def outcome(self) -> dict[str, Any]:
        """Result of a finished action for documents and pages: step, version, savepoint, reason and duration in seconds."""
        seconds = round((self.ended_at or time.time()) - self.began_at, 1)
        names = ("step", "version", "savepoint", "reason")
        return {name: getattr(self, name) for name in names} | {"seconds": seconds}

    def failure(self, what: str) -> LifecycleError | None:
        """The error LIFECYCLE-056 if the action was rolled back or refused; None if it is done.

        Args:
            what: description of the action, for the error: ``upgrade to totals@3f2a``.
        """
        if self.step == "done":
            return None
        fix = f"Mend it, and ask again. What it said: floodmark logs {self.operator}"
        got = f"{self.step}: {self.reason}"
        return LifecycleError(what, "a version that passes", got, fix, code="LIFECYCLE-056")
