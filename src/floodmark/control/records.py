"""Records of the control store: what should run of a stream, the drivers that run it, and the actions on it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from floodmark.core.errors import LifecycleError

Desired = Literal["running", "stopped"]
"""What is wanted of a stream."""

State = Literal["starting", "running", "stopped", "crashed"]
"""What has become of a driver."""


@dataclass(frozen=True, slots=True)
class StreamId:
    """What a store knows a stream by: several lakes may each have one of the same operator, as environments, forks and experiments do.

    Args:
        operator: its name.
        lake: root of the tables, as the settings name it.
    """

    operator: str
    lake: str

    def __post_init__(self) -> None:
        """A slash at the end makes no other lake."""
        object.__setattr__(self, "lake", self.lake.rstrip("/"))

    @property
    def action(self) -> str:
        """The lease of the action that is at work on it."""
        return f"action/{self.operator}@{self.lake}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What should run.

    Args:
        operator: its name.
        root: folder of the workspace, which relative paths of its settings start from.
        lake: root of the tables.
        environment: settings to use.
        package: hash of the code.
        version: of the operator in it.
        desired: whether it should run.
        changed_at: when that was said, s since 1970.
    """

    operator: str
    root: str
    lake: str
    environment: str
    package: str
    version: str
    desired: Desired
    changed_at: float = 0.0

    @property
    def stream(self) -> StreamId:
        """Whose it is."""
        return StreamId(self.operator, self.lake)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A process that runs, or ran, a stream.

    Args:
        id: of the record.
        operator: its name.
        lake: it runs in; None where that was not written down.
        version: of the operator.
        epoch: how many drivers of it there were before.
        state: what has become of it.
        pid: process, once there is one.
        born: when that process was made, s since 1970: a later one may have its number.
        log: file of its output.
        started_at: s since 1970.
        heartbeat_at: when it last said that it lives.
        batch: last micro-batch it committed.
        progress: of its outputs, ms UTC.
        ended_at: s since 1970; None while it lives.
        reason: why it ended.
        host: machine its process is on; None where that was not written down.
        usage: fields of ``Usage``, as it has last said; None where it has not.
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

    @property
    def stream(self) -> StreamId:
        """What it runs."""
        return StreamId(self.operator, self.lake or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An upgrade or a rollback of streams that run by themselves.

    Args:
        id: of the record.
        kind: ``upgrade`` or ``rollback``.
        operator: whose stream it is about.
        lake: that runs in; None where that was not written down.
        who: asked for it.
        why: the user's words.
        began_at: s since 1970.
        step: it is in, or ended with: ``done``, ``rolled back``, ``refused``.
        old: operator -> package, version and whether it should have run before, for every stream it stops.
        version: of the operator that should run after it.
        savepoint: id of the one that was made or is gone back to.
        ended_at: s since 1970; None while it is at work, or was killed.
        reason: why it ended so.
        request: the options it was asked for with; None where it has none, or an older floodmark has written it.
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
        """What a document or a page says of it, once it has ended."""
        seconds = round((self.ended_at or time.time()) - self.began_at, 1)
        names = ("step", "version", "savepoint", "reason")
        return {name: getattr(self, name) for name in names} | {"seconds": seconds}

    def failure(self, what: str) -> LifecycleError | None:
        """LIFECYCLE-056, it was taken back or refused; None where it was done.

        Args:
            what: was to be done, and may be asked for again: ``upgrade to totals@3f2a``.
        """
        if self.step == "done":
            return None
        fix = f"Mend it, and ask again. What it said: floodmark logs {self.operator}"
        got = f"{self.step}: {self.reason}"
        return LifecycleError(what, "a version that passes", got, fix, code="LIFECYCLE-056")
