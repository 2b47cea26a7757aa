"""A process that makes savepoints under a clock that jumps, back more often than ahead, and notes their ids while it holds their lock.

python savepoint_process.py LAKE HOW_MANY NOTES SEED
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints


def main(root: str, many: str, notes: str, seed: str) -> None:
    """Make savepoints; another process that holds the lock is tried again."""
    draw, clock, new_id = random.Random(seed), time.time_ns, savepoints.new_id

    def jumping() -> int:
        return clock() + draw.choice([0, 0, -1, -3_600_000, -86_400_000, 500]) * 1_000_000

    def noted(operator: str, at: int) -> str:
        name = new_id(operator, at)
        with Path(notes).open("a") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
        return name

    time.time_ns, savepoints.new_id = jumping, noted
    made = 0
    while made < int(many):
        try:
            savepoints.create("totals", Lake(root), why="hourly")
            made += 1
        except LifecycleError as error:
            if error.code != "LIFECYCLE-003":
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
