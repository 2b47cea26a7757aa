"""Alerting: a supervisor looks at the health of the streams whose workspace declares alerts, and has each change told by a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.control.health.judgement import Health, Judged, judged
from floodmark.control.processes.holding import Holding
from floodmark.control.state.messages import Messages, Told, key_of
from floodmark.control.state.records import Deployment, StreamId
from floodmark.control.state.store import CONTROL, Store
from floodmark.core import crash
from floodmark.core.background import begin, with_package
from floodmark.spec.assets.alert import Change

_LOOK_SECONDS = 5.0
_LONGEST_SECONDS = 330.0
"""Time after which a sender is killed whatever its alert declares; it ends itself before."""
_AT_ONCE = 8
"""Most senders at the same time."""
_LARGEST_LOG = 1 << 20
"""Size of the log, bytes, above which it is truncated."""


@dataclass(slots=True)
class Alerting:
    """Tells changes of health. Senders continue when their supervisor ends.

    Args:
        store: the control store.
        home: folder of packages and logs.
        say: called with a line for each change.
        command: the command of a sender; by default floodmark's own.
    """

    store: Store
    home: Path
    say: Callable[[str], None] = print
    command: Sequence[str] = (sys.executable, "-m", "floodmark.control.health.sender")
    _holding: Holding = field(default_factory=Holding)
    _looked: float = float("-inf")
    _children: dict[int, tuple[subprocess.Popen[bytes], float]] = field(default_factory=dict)

    def look(self) -> None:
        """Tell what has changed since the last look, and start the senders of messages that are due. Costs nothing if no workspace declares alerts."""
        if self._children:
            self._reap()
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        watched = {one.stream: one for one in self.store.deployments() if one.watch is not None and one.watch.alerts}
        if watched:
            self._judge(list(watched.values()))
            self._send(watched)

    def _judge(self, deployments: Sequence[Deployment]) -> None:
        messages = Messages(self.store)
        last = {one.stream: messages.last_told(one.stream) for one in deployments}
        seen = {stream: None if told is None else told.crash for stream, told in last.items()}
        verdicts = judged(
            self.store, deployments, holding=self._holding, now=self.store.now(), supervised=True, seen=seen
        )
        for stream, verdict in verdicts.items():
            self._tell(messages, verdict, last[stream])

    def _tell(self, messages: Messages, verdict: Judged, last: Told | None) -> None:
        """Record a change of health with its messages. Of two ``ok`` conditions nobody is told."""
        stream, health = verdict.observed, verdict.health
        deployment, before, newest = stream.deployment, last or Told(), stream.newest_crash
        crashed = -1 if newest is None else newest.id
        changed = health.level != before.level or (health.level != "ok" and health.condition != before.condition)
        if not changed and last is not None and crashed == last.crash:
            return
        after = Told(
            changes=before.changes + changed,
            level=health.level if changed else before.level,
            condition=health.condition if changed else before.condition,
            since=stream.now if changed else before.since,
            crash=crashed,
        )
        crash.point("alert.before_change")
        assert deployment.watch is not None
        change = _change(deployment, health, before, after) if changed else None
        messages.tell(deployment.stream, after, change, range(deployment.watch.alerts))
        crash.point("alert.after_change")
        if changed:
            self.say(f"{deployment.operator}: {health}")

    # ---- senders

    def _send(self, watched: dict[StreamId, Deployment]) -> None:
        messages = Messages(self.store)
        for number, stream, alert in messages.due():
            if number in self._children or len(self._children) >= _AT_ONCE:
                continue
            deployment = watched.get(stream)
            if deployment is None:
                messages.begin(number)
                messages.failed(number, "its stream is no longer deployed, or declares no alerts", 0)
                continue
            messages.begin(number)
            self._start(number, deployment, alert)

    def _start(self, number: int, deployment: Deployment, alert: int) -> None:
        package = self.home / "packages" / deployment.package
        try:
            child = begin(
                [*self.command, str(number), str(package), deployment.root, str(alert)],
                log=self.home / "logs" / "alerts.log",
                folder=package,
                environment=with_package(package) | {CONTROL: self.store.url},
                largest=_LARGEST_LOG,
            )
        except OSError as error:
            Messages(self.store).failed(number, f"its sender cannot be started: {error}", _AT_ONCE)
            return
        self._children[number] = child, time.monotonic()

    def _reap(self) -> None:
        for number, (child, began) in list(self._children.items()):
            if child.poll() is not None:
                del self._children[number]
            elif time.monotonic() - began > _LONGEST_SECONDS:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)


def _change(deployment: Deployment, health: Health, before: Told, after: Told) -> Change:
    return Change(
        key=key_of(deployment.stream, after.changes),
        stream=deployment.operator,
        lake=deployment.lake,
        environment=deployment.environment,
        level=health.level,
        condition=health.condition,
        reason=health.reason,
        mend=health.mend,
        level_before=before.level,
        before=before.condition,
        at=after.since,
    )
