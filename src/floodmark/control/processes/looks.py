"""Looks at rollouts. The supervisor starts a look when it is due, in a separate process that loads the arm's code."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.control.state.rollout import Rollouts
from floodmark.control.state.store import CONTROL, Store
from floodmark.core.background import begin, with_package

_PAUSE_SECONDS = 2.0
"""Least time between two looks at one rollout, even if the first look died."""
_LATER_SECONDS = 60.0
_LARGEST_LOG = 1 << 20
"""Size of the log, bytes, above which it is truncated."""


@dataclass(slots=True)
class Looks:
    """Starts looks. Running looks continue when their supervisor ends.

    Args:
        store: the control store.
        home: folder of packages and logs.
        command: the command of a look; by default floodmark's own.
    """

    store: Store
    home: Path
    command: Sequence[str] = (sys.executable, "-m", "floodmark.control.delivery.rollouts", "--stay")
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _began: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Start the looks that are due. The cost depends on open rollouts only, not on past ones."""
        for number, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[number]
        for number, package in Rollouts(self.store).due():
            if number not in self._children and time.monotonic() - self._began.get(number, 0) > _PAUSE_SECONDS:
                self._start(number, self.home / "packages" / package)

    def _start(self, number: int, package: Path) -> None:
        self._began[number] = time.monotonic()
        try:
            self._children[number] = begin(
                [*self.command, str(number), str(package)],
                log=self.home / "logs" / "rollouts.log",
                folder=package,
                environment=with_package(package) | {CONTROL: self.store.url},
                largest=_LARGEST_LOG,
            )
        except OSError as error:
            known = Rollouts(self.store)
            known.note(known.find(number), waits=f"a look cannot be started: {error}", due=time.time() + _LATER_SECONDS)
