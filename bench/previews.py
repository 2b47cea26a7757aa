"""Previews against the runs they speak of: backfills of random stretches of the flights' year, each by the command line, in a process of its own.

    python bench/previews.py [--runs 20] [--engine embedded] [--seed 1]

``floodmark run OPERATOR --from ... --to ... --preview`` says how many files and rows the run will read and how long it will take; then the run is done. Rows and
files have to be those of the run, which notes what it has read; the duration, from the fourth run of an operator on, within a factor of 1.5 of the run's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
OPERATORS = ("hourly_departures", "rolling_departures")
LONGEST_DAYS = 120
FACTOR = 1.5
LEARNED = 3


def verb(root: Path, engine: str, *words: str) -> dict[str, Any]:
    """What a verb answers."""
    environment = os.environ | {
        "FLOODMARK_LAKE": f"{root}/lake",
        "FLOODMARK_FOLDER": str(root),
        "FLOODMARK_ENGINE": engine,
    }
    command = [str(Path(sys.executable).with_name("floodmark")), *words, "--json"]
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def stretch(draw: random.Random) -> tuple[str, str]:
    """First day, and the day behind the last one."""
    first = date(2013, 1, 1) + timedelta(days=draw.randrange(365 - LONGEST_DAYS))
    return f"{first}", f"{first + timedelta(days=draw.randint(1, LONGEST_DAYS))}"


def main() -> None:
    """Land the year, and backfill."""
    from demo.inbox import write_inbox
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results import costs

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--engine", default="embedded")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw, wrong, rows = random.Random(asked.seed), 0, list[dict[str, Any]]()  # noqa: S311 - stretches, no secrets
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_inbox(root / "inbox")
        verb(root, asked.engine, "land", "flights", "--end")
        lake = Lake(str(root / "lake"))
        for number in range(asked.runs):
            first, last = stretch(draw)
            for name in OPERATORS:
                words = ("run", name, "--from", first, "--to", last, "--timezone", "America/New_York", "--force")
                (said,) = verb(root, asked.engine, *words, "--preview")["previews"]
                began = time.perf_counter()
                did = verb(root, asked.engine, *words)
                took, cost = time.perf_counter() - began, costs.past(lake, name)[-1]
                exact = all(said["reads"][key] == getattr(cost, key) for key in ("files", "rows", "size"))
                ratio = None if said["seconds"] is None else said["seconds"] / did["seconds"]
                near = number < LEARNED or (ratio is not None and 1 / FACTOR <= ratio <= FACTOR)
                wrong += not (exact and near)
                row = {
                    "operator": name,
                    "run": number,
                    "days": (date.fromisoformat(last) - date.fromisoformat(first)).days,
                }
                row |= {
                    "rows": cost.rows,
                    "expected": said["seconds"],
                    "seconds": round(did["seconds"], 2),
                    "recorded": cost.seconds,
                    "process": round(took, 2),
                }
                print(
                    json.dumps(
                        row | {"ratio": None if ratio is None else round(ratio, 2), "exact": exact, "near": near}
                    ),
                    flush=True,
                )
                rows.append(row)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
