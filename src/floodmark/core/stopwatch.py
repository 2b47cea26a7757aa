"""A stopwatch: how long each phase of some work took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stopwatch:
    """Measures consecutive phases by the monotonic clock.

    Example:
        >>> watch = Stopwatch()
        >>> watch.lap("read")
        >>> list(watch.phases)
        ['read']
    """

    phases: dict[str, float] = field(default_factory=dict)
    """Phase -> its duration so far, s, in the order in which the phases began."""
    _at: float = field(default_factory=time.monotonic)

    def lap(self, phase: str) -> None:
        """Add the time since the last call, or since the stopwatch was made, to a phase."""
        now = time.monotonic()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self._at
        self._at = now
