"""Upkeep by itself: a supervisor starts it now and then, one at a time, in a process of its own; its failure stops no stream."""

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

from floodmark.control.store import CONTROL, Store

ACTION = "upkeep"
"""Of the rows of the journal that say what upkeep did."""
_JITTER = 0.1
"""Of the time between two: those of several workspaces on one machine do not stay together."""
_LONGEST_SECONDS = 6 * 3600.0
"""After which one is taken to hang, and killed."""


@dataclass(slots=True)
class Periodic:
    """Starts upkeep when its time has come.

    Args:
        store: the control store.
        home: folder of packages and logs.
        minutes: between the end of one and the begin of the next; 0 for none.
        options: of ``keep_up``.
        say: told what happens.
        command: that keeps up; by default floodmark's own.
    """

    store: Store
    home: Path
    minutes: float
    options: dict[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = print
    command: Sequence[str] = (sys.executable, "-m", "floodmark.control.upkeep")
    _child: subprocess.Popen[bytes] | None = None
    _began: float = 0.0
    _due: float | None = None

    def look(self, holder: str) -> None:
        """Start one if it is time, and see how the one that was started has ended.

        Args:
            holder: name of the supervisor, for the journal.
        """
        if self._child is not None:
            self._watch(self._child, holder)
        elif self.minutes and time.time() >= self._next():
            self._start(holder)

    def end(self) -> None:
        """Kill the one that is at work: the next one finishes what it has begun."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _next(self) -> float:
        """When the next one is due, s since 1970: after the last one that was written down, whichever supervisor started it."""
        if self._due is None:
            last, pause, now = self.store.last(ACTION), 60 * self.minutes, time.time()
            pause *= 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - no secret
            self._due = min(last["at"] if last else now, now) + pause  # the clock may have been set back
        return self._due

    def _start(self, holder: str) -> None:
        self._due, self._began = None, time.monotonic()
        if not self.store.deployments():
            return
        log = self.home / "logs" / "upkeep.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("wb") as output:
                self._child = subprocess.Popen(
                    [*self.command, str(self.home), json.dumps(self.options)],
                    cwd=self.home,
                    env={**os.environ, CONTROL: self.store.url},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
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
    """What a row of the journal says of an upkeep, for people."""
    done = detail.get("done", {})
    parts = [
        f"{done.get('merged', 0):,} files fewer by merging, {done.get('files', 0):,} gone of {done.get('bytes', 0):,} bytes"
    ]
    if errors := detail.get("errors"):
        parts = [f"failed: {error}" for error in errors] + (parts if done else [])
    parts += [f"stays: {why}" for why in detail.get("stay", [])]
    return "; ".join(parts)
