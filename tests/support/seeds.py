"""Seeds of random schedules: new ones in each run, or those of a text that names a run, so that it can be done again."""

from __future__ import annotations

import os
import random


def seed_of(schedule: str) -> int:
    """A seed below 10^6 for a named schedule: drawn from ``FLOODMARK_SEEDS`` where that is set, else from the system's randomness."""
    text = os.environ.get("FLOODMARK_SEEDS")
    source = random.SystemRandom() if text is None else random.Random(f"{text} {schedule}")
    return source.randrange(10**6)
