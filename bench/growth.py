"""How costs grow: with rows, with keys, with commits, and with the micro-batches among which the same rows are divided.

    python bench/growth.py [--scale 1] [--only rows,keys,commits,intervals] [--spark] [--files 1,2,4,8,16,64]

Views per campaign and ten seconds on the embedded engine, processor seconds of the process and its server, on a server that is there. ``rows``, ``keys`` and ``commits`` are doubled again and again,
all else as it was; the exponent is the slope of least squares of the logarithms: 1 grows as its cause does, 0 not at all. ``commits`` are micro-batches of a
log of as many commits of 100 rows each; what grows faster than 1 there, grows with each micro-batch. ``intervals`` reads a log of 64 commits in 64, 32, ... and 1
micro-batch (of so many ``--files`` each), which are as many checkpoints: what one costs is the slope, and its share of the run at each interval is printed; with ``--spark`` on Spark too.
Answers are DuckDB's, all rows counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
FILES = 64


def cpu() -> float:
    """Processor seconds of this process and all below it."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (own, *own.children(recursive=True)))


def landed(sail: Any, folder: Path, rows: int, campaigns: int, files: int) -> float:
    """A log of so many commits, and DuckDB's answer; processor seconds of the landing."""
    import data
    import systems

    from floodmark.engines.embedded.landing.run import land
    from floodmark.lake.folder.paths import Lake

    data.generate(folder, rows, campaigns, files)
    systems.duckdb_batch(folder)
    before = cpu()
    land(lambda: sail, data.source(folder / "inbox"), Lake(str(folder / "lake")), end=True)
    return cpu() - before


def streamed(run: Any, session: Any, folder: Path, out: Path, each: int) -> dict[str, Any]:
    """A stream over a log until it has caught up."""
    import data
    import systems

    from floodmark.lake.folder.paths import Lake

    batches, lake = list[float](), Lake(str(out), logs=str(folder / "lake"))
    began, before = time.perf_counter(), cpu()
    run(
        session,
        data.views_per_campaign,
        lake,
        until_caught_up=True,
        files_per_batch=each,
        on_batch=lambda b: batches.append(b.seconds),
    )
    spent, seconds = cpu() - before, time.perf_counter() - began
    assert systems.equal("floodmark unbounded", folder, out), f"another answer than DuckDB's: {folder}"
    return {"cpu": round(spent, 3), "seconds": round(seconds, 3), "micro-batches": len(batches)}


def bounded(sail: Any, folder: Path, out: Path) -> float:
    """Processor seconds of a bounded run."""
    import data
    import systems

    from floodmark.engines.embedded.bounded.run import run_bounded
    from floodmark.lake.folder.paths import Lake

    before = cpu()
    run_bounded(sail, data.views_per_campaign, Lake(str(out), logs=str(folder / "lake")))
    spent = cpu() - before
    assert systems.equal("floodmark bounded", folder, out), f"another answer than DuckDB's: {folder}"
    return spent


def exponent(causes: list[int], costs: list[float]) -> float:
    """The slope of the logarithms."""
    return round(float(np.polyfit(np.log(causes), np.log(costs), 1)[0]), 2)


def main() -> None:
    from measurements import keep

    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.engines.embedded.unbounded.run import run_unbounded

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["rows", "keys", "commits", "intervals"])
    parser.add_argument("--spark", action="store_true")
    several = [1, 2, 4, 8, 16, FILES]
    parser.add_argument("--files", type=lambda text: [int(word) for word in text.split(",")], default=several)
    asked, rows = parser.parse_args(), list[dict[str, Any]]()
    million, hundred = int(1_000_000 * asked.scale), max(10, int(100 * min(1.0, 2 * asked.scale)))
    causes = {
        "rows": [(million * n // 4, 1_000, 8) for n in (1, 2, 4, 8, 16)],
        "keys": [(million, n, 8) for n in (100, 1_000, 10_000, 100_000, 1_000_000)],
        "commits": [(n * 100, 100, n) for n in (hundred, 2 * hundred, 4 * hundred, 8 * hundred)],
    }
    sail = Sail()
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        warm = Path(place, "warm")
        landed(sail, warm, 10_000, 100, 2)
        streamed(run_unbounded, sail, warm, Path(place, "warm-out"), 1)
        for what in (name for name in causes if name in asked.only):
            rows += grown(sail, run_unbounded, what, causes[what], Path(place))
        if "intervals" in asked.only:
            folder = Path(place, "intervals")
            landed(sail, folder, million, 100, FILES)
            rows += intervals("embedded", run_unbounded, sail, folder, million, asked.files)
            if asked.spark:
                import systems

                from floodmark.engines.spark.unbounded.run import run_unbounded as on_spark

                rows += intervals("spark", on_spark, systems.session(), folder, million, asked.files)
    sail.close()
    keep("growth", rows, by=("what", "engine", "rows", "keys", "commits", "files"))


def grown(sail: Any, run: Any, what: str, causes: list[tuple[int, int, int]], place: Path) -> list[dict[str, Any]]:
    """What landing, stream and bounded run cost as one of (rows, keys, commits) grows."""
    measured = []
    for number, keys, files in causes:
        folder = place / f"{what}-{number}-{keys}"
        row: dict[str, Any] = {"what": what, "rows": number, "keys": keys, "commits": files}
        row["landing"] = round(landed(sail, folder, number, keys, files), 3)
        if what != "commits":
            row["bounded"] = round(bounded(sail, folder, folder / "bounded"), 3)
        row["stream"] = streamed(run, sail, folder, folder / "stream", 1)["cpu"]
        measured.append(row)
        print(json.dumps(row), flush=True)
    for column in [name for name in ("landing", "bounded", "stream") if name in measured[0]]:
        found = exponent([row[what] for row in measured], [row[column] for row in measured])
        print(f"  {column} grows with {what} to the power of {found}", flush=True)
        measured[-1][f"{column} exponent"] = found
    return measured


def intervals(engine: str, run: Any, session: Any, folder: Path, rows: int, files: list[int]) -> list[dict[str, Any]]:
    """What the same rows cost in micro-batches of so many files each."""
    streamed(run, session, folder, folder / f"{engine}-warm", FILES)
    measured = []
    for each in files:
        told = streamed(run, session, folder, folder / f"{engine}-{each}", each)
        measured.append({"what": "intervals", "engine": engine, "files": each, "rows": rows, **told})
    slope, base = np.polyfit([row["micro-batches"] for row in measured], [row["cpu"] for row in measured], 1)
    for row in measured:
        row["checkpoint ms"] = round(float(slope) * 1000, 1)
        row["share"] = round(float(slope * row["micro-batches"] / (slope * row["micro-batches"] + base)), 3)
        print(json.dumps(row), flush=True)
    return measured


if __name__ == "__main__":
    main()
