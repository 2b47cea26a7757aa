"""Streams of the embedded engine with many small commits in front of them: seconds, and the results against DuckDB's.

    python bench/catch_up.py [--commits 20000]

Commits of two rows are written without an engine (``aged.py``). A stream stops after the first half of them. Then it goes on, and another one begins
with the first row: over the commits as they were written, and in a second lake after Delta's own clean-up and floodmark's upkeep.
"""

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from aged import Aged, minutes  # noqa: E402 - beside this file
from year_results import expected, found  # noqa: E402 - as above


def run(root: Path, commits: int) -> int:
    """Number of results that differ from DuckDB's."""
    from deltalake import DeltaTable

    from floodmark import Settings
    from floodmark.control.engine import computing
    from floodmark.lake.paths import Lake
    from floodmark.lake.upkeep import maintain

    aged, wrong = Aged(root / "logs"), 0
    log = aged.lake.log("readings")
    stream = partial(computing(Settings(), engine="embedded").run_unbounded, minutes, until_caught_up=True)
    behind = [Lake(str(root / name), logs=aged.lake.root) for name in ("behind", "behind-later")]

    def timed(name: str, lake: Lake) -> None:
        nonlocal wrong
        began = time.perf_counter()
        done = stream(lake)
        seconds, same = time.perf_counter() - began, found(lake.output("minutes")) == expected(aged.commits)
        wrong += not same
        equal = "equal to DuckDB" if same else "NOT EQUAL"
        print(f"{name}: {seconds:.1f} s, {done.micro_batches} micro-batches, {equal}", flush=True)

    aged.age(commits // 2)
    timed(f"{aged.commits:,} commits from the first row", behind[0])
    shutil.copytree(behind[0].root, behind[1].root)
    aged.age(commits)
    timed(f"{commits - commits // 2:,} commits behind", behind[0])
    timed(f"{commits:,} commits from the first row", Lake(str(root / "new"), logs=aged.lake.root))
    DeltaTable(log).create_checkpoint()
    DeltaTable(log).cleanup_metadata()
    maintain(aged.lake, hours=0)
    timed(f"after upkeep, {commits - commits // 2:,} commits behind", behind[1])
    timed(f"after upkeep, {commits:,} commits from the first row", Lake(str(root / "newer"), logs=aged.lake.root))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=20_000)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="floodmark-catch-up-") as place:
        return run(Path(place), options.commits)


if __name__ == "__main__":
    sys.exit(main())
