"""A wall clock that jumps, for every Python process with this folder in ``PYTHONPATH``: some twenty times a second to another offset, forwards
or back, of up to two days. The monotonic clock and the dates of files stay true, as on a machine whose clock is being set beside a file server.
"""

from __future__ import annotations

import os
import random
import time

JUMPS_PER_SECOND = 20
FARTHEST_NANOSECONDS = 2 * 86_400 * 10**9
_SEED = os.environ.get("FLOODMARK_CLOCK", "")
_true = time.time_ns


def _jumped() -> int:
    stretch = time.monotonic_ns() * JUMPS_PER_SECOND // 10**9
    return _true() + random.Random(f"{_SEED}{stretch}").randint(-FARTHEST_NANOSECONDS, FARTHEST_NANOSECONDS)


def _seconds() -> float:
    return _jumped() / 1e9


if _SEED:
    time.time_ns, time.time = _jumped, _seconds
