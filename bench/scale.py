"""What grows with rows, and how: landing, a bounded run and a stream of the embedded engine over growing logs, as slopes per million rows and at 10^9.

    python bench/scale.py [--rows 1000000,2000000,4000000] [--keys 10000,100000,400000]

CPU seconds are those of this process and all its children, so that other processes of the machine count little. ``--keys`` are campaigns over the largest log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from data import generate, source, views_per_campaign

from floodmark.control.processes.engine import OnEmbedded, computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.spec.workspace import Settings

PER_FILE = 250_000
BILLION = 1_000


def main() -> None:
    """Measure each size, and print the slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,2000000,4000000")
    parser.add_argument("--keys", default="10000,100000,400000")
    options = parser.parse_args()
    sizes, keys = ([int(text) for text in given.split(",")] for given in (options.rows, options.keys))
    engine = computing(Settings(engine="embedded"))
    assert isinstance(engine, OnEmbedded)
    engine.start(views_per_campaign)
    _measured(engine, sizes[0], 100)  # what is loaded once
    by_rows = [_measured(engine, rows, 100) for rows in sizes]
    by_keys = [_measured(engine, sizes[-1], count) for count in keys]
    _print("million rows", [rows / 1e6 for rows in sizes], by_rows, BILLION)
    _print("million keys", [count / 1e6 for count in keys], by_keys, 1)


def _measured(engine: OnEmbedded, rows: int, campaigns: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        generate(Path(folder), rows, campaigns, rows // PER_FILE)
        lake, events = Lake(f"{folder}/lake"), source(Path(folder, "inbox"))
        stream = Lake(f"{folder}/stream", logs=lake.root)
        measured = {
            "landing, CPU s": _cpu(lambda: engine.land(events, lake, end=True)),
            "bounded run, CPU s": _cpu(lambda: engine.run_bounded(views_per_campaign, lake, Interval())),
            "stream, CPU s": _cpu(
                lambda: engine.run_unbounded(views_per_campaign, stream, until_caught_up=True, files_per_batch=1)
            ),
        }
        state = Timeline.current(stream, views_per_campaign.name).folder(CHECKPOINT)
        places = {"log": lake.log("events"), "output": lake.output(views_per_campaign.name), "checkpoint": state}
        return measured | {f"{name}, MB": _megabytes(Path(place)) for name, place in places.items()}


def _cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a piece of work, in this process and in what it has started."""
    before = _times()
    work()
    return _times() - before


def _times() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(t.user + t.system for t in times) + times[0].children_user + times[0].children_system


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _print(unit: str, sizes: list[float], measured: list[dict[str, float]], at: float) -> None:
    head = [*(f"{size:g}" for size in sizes), f"per {unit}", f"at {at:,g}"]
    sys.stdout.write(f"\n| {unit} | {' | '.join(head)} |\n|---|{'---|' * len(head)}\n")
    for name in measured[0]:
        values = [one[name] for one in measured]
        slope, start = np.polyfit(sizes, values, 1)
        cells = [*values, slope, start + slope * at]
        sys.stdout.write(f"| {name} | {' | '.join(f'{value:,.2f}' for value in cells)} |\n")


if __name__ == "__main__":
    main()
