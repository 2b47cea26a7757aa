"""How far the micro-batches of a stream are apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class Pace:
    """The earliest moment of the next micro-batch.

    Args:
        interval: least seconds from the start of a micro-batch to the start of the next.
        pause: least seconds from the end of a micro-batch to the start of the next.
        now: seconds of a clock that never goes back.
    """

    interval: float = 0.0
    pause: float = 0.0
    now: Callable[[], float] = time.monotonic
    _began: float = -inf
    _ended: float = -inf

    @property
    def left(self) -> float:
        """Seconds until the next micro-batch may start; 0 before the first one."""
        return max(0.0, self._began + self.interval - self.now(), self._ended + self.pause - self.now())

    def begin(self) -> None:
        """A micro-batch starts."""
        self._began = self.now()

    def end(self) -> None:
        """A micro-batch is committed."""
        self._ended = self.now()
