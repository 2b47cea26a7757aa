"""Seeds of random schedules: the same in each run of ``make test``, others for each text that names a run of ``make soak``."""

from __future__ import annotations

import os
import random


def seed_of(schedule: str) -> int:
    """A seed below 10^6 for a named schedule, drawn from ``FLOODMARK_SEEDS`` ("1" where that is not set) and the name."""
    return random.Random(f"{os.environ.get('FLOODMARK_SEEDS', '1')} {schedule}").randrange(10**6)
