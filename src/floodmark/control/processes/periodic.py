"""Periodic upkeep: the supervisor starts one upkeep at a time, in a separate process. A failed upkeep stops no stream."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.control.state.store import CONTROL, Store
from floodmark.core.background import begin

ACTION = "upkeep"
"""The ``action`` of journal rows about upkeep."""
_JITTER = 0.1
"""Random share by which the pause varies, so that upkeeps of several workspaces on one machine drift apart."""
_LONGEST_SECONDS = 6 * 3600.0
"""Running time after which an upkeep counts as hung and is killed."""


@dataclass(slots=True)
class Periodic:
    """Starts upkeep when it is due.

    Args:
        store: the control store.
        home: folder of packages and logs.
        minutes: pause between the end of one upkeep and the start of the next; 0 for no upkeep.
        options: keyword arguments of ``keep_up``.
        say: called with lines of progress.
        command: the command of an upkeep; by default floodmark's own.
    """

    store: Store
    home: Path
    minutes: float
    options: dict[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = print
    command: Sequence[str] = (sys.executable, "-m", "floodmark.control.processes.upkeep")
    _child: subprocess.Popen[bytes] | None = None
    _began: float = 0.0
    _due: float | None = None

    def look(self, holder: str) -> None:
        """Start an upkeep if one is due, or check on the running one.

        Args:
            holder: name of the supervisor, for the journal.
        """
        if self._child is not None:
            self._watch(self._child, holder)
        elif self.minutes and time.time() >= self._next():
            self._start(holder)

    def end(self) -> None:
        """Kill a running upkeep. The next upkeep completes its work."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _next(self) -> float:
        """Time of the next upkeep, s since 1970: one pause after the last upkeep in the journal, by any supervisor."""
        if self._due is None:
            last, pause, now = self.store.last(ACTION), 60 * self.minutes, time.time()
            pause *= 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - no secret
            self._due = min(last["at"] if last else now, now) + pause  # the clock may have been set back
        return self._due

    def _start(self, holder: str) -> None:
        self._due, self._began = None, time.monotonic()
        if not self.store.deployments():
            return
        try:
            self._child = begin(
                [*self.command, str(self.home), json.dumps(self.options)],
                log=self.home / "logs" / "upkeep.log",
                folder=self.home,
                environment={**os.environ, CONTROL: self.store.url},
                largest=0,
            )
        except OSError as error:
            self._failed(holder, f"cannot be started: {error}")

    def _watch(self, child: subprocess.Popen[bytes], holder: str) -> None:
        code = child.poll()
        if code is None:
            if time.monotonic() - self._began > _LONGEST_SECONDS:
                child.kill()
            return
        self._child, last = None, self.store.last(ACTION)
        if code < 0:
            self._failed(holder, f"its process was killed by signal {-code}; the next one goes on")
        elif code and (last is None or not last["detail"].get("errors")):
            self._failed(holder, f"exit {code}; what it said: {self.home / 'logs' / 'upkeep.log'}")
        elif last is not None:
            self.say(f"upkeep: {describe_upkeep(last['detail'])}")

    def _failed(self, holder: str, why: str) -> None:
        self.store.note(holder, ACTION, errors=[why])
        self.say(f"upkeep: {why}")


def describe_upkeep(detail: dict[str, Any]) -> str:
    """The detail of a journal row about an upkeep, for people."""
    done = detail.get("done", {})
    parts = [
        f"{done.get('merged', 0):,} files fewer by merging, {done.get('files', 0):,} gone of {done.get('bytes', 0):,} bytes"
    ]
    if errors := detail.get("errors"):
        parts = [f"failed: {error}" for error in errors] + (parts if done else [])
    parts += [f"stays: {why}" for why in detail.get("stay", [])]
    return "; ".join(parts)
