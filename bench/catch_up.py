"""Streams of the embedded engine with many small commits in front of them: seconds, and the results against DuckDB's.

    python bench/catch_up.py [--commits 20000] [--flights]

Commits of two rows are written without an engine (``aged.py``). A stream stops after the first half of them. Then it goes on, and another one begins
with the first row: over the commits as they were written, and in a second lake after Delta's own clean-up and floodmark's upkeep.
``--flights`` does the same with the year of flights, a commit for each of its 366 files.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark import Operator
    from floodmark.lake.folder.paths import Lake

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from aged import Aged, minutes  # noqa: E402 - beside this file
from year_results import expected, found  # noqa: E402 - as above


class Behind:
    """A stream of the embedded engine, and how long it takes to come up.

    Args:
        code: its operator.
        same: whether its results are right; None where DuckDB has no answer yet.
    """

    def __init__(self, code: Operator, same: Callable[[Lake], bool | None]) -> None:
        from floodmark import Settings
        from floodmark.control.processes.engine import computing

        self._stream = partial(computing(Settings(), engine="embedded").run_unbounded, code, until_caught_up=True)
        self._same, self.wrong = same, 0

    def timed(self, name: str, lake: Lake) -> None:
        """Run it to the end of its log."""
        began = time.perf_counter()
        done = self._stream(lake)
        seconds, same = time.perf_counter() - began, self._same(lake)
        self.wrong += same is False
        equal = {True: "equal to DuckDB", False: "NOT EQUAL", None: "not compared"}[same]
        print(f"{name}: {seconds:.1f} s, {done.micro_batches} micro-batches, {equal}", flush=True)


def small(root: Path, commits: int) -> int:
    """Commits of two rows: number of results that differ from DuckDB's."""
    aged = Aged(root / "logs")
    stream = Behind(minutes, lambda lake: found(lake.output("minutes")) == expected(aged.commits))

    def land(*, half: bool) -> int:
        aged.age(commits // 2 if half else commits)
        return int(aged.commits)

    return measure(root, stream, aged.lake, aged.lake.log("readings"), land)


def flights(root: Path) -> int:
    """The year of flights: number of results that differ from DuckDB's."""
    from definitions import workspace
    from demo.comparison import compare
    from demo.inbox import write_inbox
    from demo.oracle import Oracle
    from demo.tables import final, read
    from floodmark import BoundedOutOfOrderness, Files, Settings, Source
    from floodmark.control.processes.engine import computing
    from floodmark.lake.folder.paths import Lake
    from operators.flights import Flight

    logs, code = Lake(str(root / "logs")), workspace().operator("hourly_departures")
    output = code.outputs[0]
    source = Source(
        "flights",
        contract=Flight,
        connector=Files("inbox/flights"),
        watermark=BoundedOutOfOrderness("6 hours"),
        files_per_commit=1,
    )
    write_inbox(root / "inbox")
    files = sorted((root / "inbox" / "flights").iterdir())
    computed = computing(Settings(), engine="embedded")
    ended = list[bool]()

    def same(lake: Lake) -> bool | None:
        if not ended:  # DuckDB's answer is that of the whole year
            return None
        mine, theirs = final(read(lake.output(output.table)), output), Oracle(root / "inbox", bound_minutes=360)
        answer = theirs.answer(output.table).select(mine.column_names).cast(mine.schema)
        return not compare(mine, answer, keys=output.keys, names=("floodmark", "duckdb")).differences

    def land(*, half: bool) -> int:
        computed.land(source, logs, workspace=root, end=not half, max_commits=len(files) // 2 if half else None)
        ended.extend([] if half else [True])
        return len(files) // 2 if half else len(files)

    return measure(root, Behind(code, same), logs, logs.log("flights"), land)


def measure(root: Path, stream: Behind, logs: Lake, log: str, land: Callable[..., int]) -> int:
    """Let a stream come up from the middle and from the first row, before and after upkeep.

    Args:
        root: where lakes are made.
        stream: which.
        logs: the lake of its log.
        log: path of the log.
        land: writes the first half of the commits, or all others; the number of commits in the log.
    """
    from deltalake import DeltaTable

    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.maintenance.upkeep import maintain

    behind = [Lake(str(root / name), logs=logs.root) for name in ("behind", "behind-later")]
    half = land(half=True)
    stream.timed(f"{half:,} commits from the first row", behind[0])
    shutil.copytree(behind[0].root, behind[1].root)
    commits = land(half=False)
    stream.timed(f"{commits - half:,} commits behind", behind[0])
    stream.timed(f"{commits:,} commits from the first row", Lake(str(root / "new"), logs=logs.root))
    DeltaTable(log).create_checkpoint()
    DeltaTable(log).cleanup_metadata()
    maintain(logs, hours=0)
    stream.timed(f"after upkeep, {commits - half:,} commits behind", behind[1])
    stream.timed(f"after upkeep, {commits:,} commits from the first row", Lake(str(root / "newer"), logs=logs.root))
    return stream.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--flights", action="store_true", help="the year of flights instead")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="floodmark-catch-up-") as place:
        return flights(Path(place)) if options.flights else small(Path(place), options.commits)


if __name__ == "__main__":
    sys.exit(main())
