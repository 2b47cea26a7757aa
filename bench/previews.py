"""Previews against the runs they speak of: backfills of random stretches of the flights' year, each by the command line, in a process of its own.

    python bench/previews.py [--runs 20] [--engine embedded] [--seed 1]

``floodmark run OPERATOR --from ... --to ... --preview`` says how many files and rows the run will read and how long it will take; then the run is done. Rows and
files have to be those of the run, which notes what it has read. ``ratio`` is that of the expected duration and the run's, by the clock. On a machine that other
processes use too, the clock says what they do, so the same line is drawn through the processor seconds of the runs: from the fourth run of an operator on, these
have to be within a factor of 1.5 of what the runs before it say (``processor ratio``). What it comes to is also in ``bench/results/previews.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
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


def verb(root: Path, engine: str, *words: str) -> tuple[dict[str, Any], float]:
    """What a verb answers, and the processor seconds that it takes."""
    environment = os.environ | {
        "FLOODMARK_LAKE": f"{root}/lake",
        "FLOODMARK_FOLDER": str(root),
        "FLOODMARK_ENGINE": engine,
    }
    command = [str(Path(sys.executable).with_name("floodmark")), *words, "--json"]
    before = os.times()
    done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    after = os.times()
    return answer, after.children_user + after.children_system - before.children_user - before.children_system


def stretch(draw: random.Random) -> tuple[str, str]:
    """First day, and the day behind the last one."""
    first = date(2013, 1, 1) + timedelta(days=draw.randrange(365 - LONGEST_DAYS))
    return f"{first}", f"{first + timedelta(days=draw.randint(1, LONGEST_DAYS))}"


def main() -> None:
    """Land the year, and backfill."""
    from measurements import keep

    from demo.inbox import write_inbox
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results import costs
    from floodmark.lifecycle.rate import Cost, Rate

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--engine", default="embedded")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw, past = random.Random(asked.seed), dict[str, list[Cost]]()  # noqa: S311 - stretches, no secrets
    inexact, by_clock, by_processor = 0, list[bool](), list[bool]()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_inbox(root / "inbox")
        verb(root, asked.engine, "land", "flights", "--end")
        lake = Lake(str(root / "lake"))
        for number in range(asked.runs):
            first, last = stretch(draw)
            for name in OPERATORS:
                words = ("run", name, "--from", first, "--to", last, "--timezone", "America/New_York", "--force")
                answer, _ = verb(root, asked.engine, *words, "--preview")
                (said,) = answer["previews"]
                did, processor = verb(root, asked.engine, *words)
                cost = costs.past(lake, name)[-1]
                exact = all(said["reads"][key] == getattr(cost, key) for key in ("files", "rows", "size"))
                rate = Rate.of(past.setdefault(name, []))
                past[name].append(replace(cost, seconds=processor))
                row = {"operator": name, "run": number, "rows": cost.rows, "exact": exact}
                row |= {"seconds": round(did["seconds"], 2), "processor": round(processor, 2)}
                if rate is not None and said["seconds"] is not None:
                    ratio, of_processor = said["seconds"] / did["seconds"], rate.seconds(cost.rows) / processor
                    row |= {"ratio": round(ratio, 2), "processor ratio": round(of_processor, 2)}
                    if number >= LEARNED:
                        by_clock.append(near(ratio))
                        by_processor.append(near(of_processor))
                inexact += not exact
                print(json.dumps(row), flush=True)
    result: dict[str, Any] = {"engine": asked.engine, "seed": asked.seed, "backfills": asked.runs * len(OPERATORS)}
    result |= {"exact": result["backfills"] - inexact, "judged": len(by_clock)}
    result |= {"within the factor by the clock": sum(by_clock), "by the processor": sum(by_processor)}
    print(json.dumps(result))
    keep("previews", [result], by=("engine", "seed", "backfills"))
    sys.exit(bool(inexact or not all(by_processor)))


def near(ratio: float) -> bool:
    """Whether a ratio is within the factor."""
    return 1 / FACTOR <= ratio <= FACTOR


if __name__ == "__main__":
    main()
