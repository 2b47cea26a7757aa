"""Stands in for the event that stops a supervisor: what a test does between two of its looks, in the thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ScriptedWaits(threading.Event):
    """An event of which each wait is the next act; the wait behind the last act sets it.

    No thread, no pause and no deadline: an act finds the supervisor between two looks, and what fails in an act fails the test.

    Args:
        acts: called one by one.
    """

    def __init__(self, *acts: Callable[[], object]) -> None:
        super().__init__()
        self._acts = list(acts)

    def wait(self, timeout: float | None = None) -> bool:
        """Act instead of waiting. Returns whether the event is set."""
        if self._acts:
            self._acts.pop(0)()
        else:
            self.set()
        return self.is_set()
