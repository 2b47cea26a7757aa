"""Comparison of two outputs by steps: seconds of CPU per step as the steps go on, and a whole history in one call.

    python bench/steps.py [--steps 200] [--rows 1000] [--whole 10000000] [--memory 1500MB]

Each step has so many rows per side in one window of an hour, of which one in a hundred differs. Prints the CPU seconds of the first and last
steps, the slope per step by least squares, and then seconds and peak memory of the whole history.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import duckdb
from deltalake import write_deltalake

from floodmark.observe.comparison.closed import advance, read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.sides import Side

HOUR, BEGIN = 3_600_000, 1_704_067_200_000
GRAIN = ("key", "window_start", "window_end")
ROWS = (
    "SELECT 'key' || (i % {each}) AS key, epoch_ms({begin} + (i // {each}) * {hour})::TIMESTAMPTZ AS window_start, "
    "epoch_ms({begin} + (i // {each} + 1) * {hour})::TIMESTAMPTZ AS window_end, (i * 7919) % 1000 + {more} AS n, hash(i) / 1e19 AS score, "
    "'carrier' || (i % 17) AS carrier, epoch_ms({begin} + (i // {each} + 1) * {hour} - 1)::TIMESTAMPTZ AS _event_time, 0::BIGINT AS _watermark, "
    "0::BIGINT AS _progress, i AS _sequence, epoch_ms({begin})::TIMESTAMPTZ AS _ingest_time, 0::INTEGER AS _kind "
    "FROM range({first}, {behind}) AS t(i)"
)


def write(path: str, first: int, behind: int, each: int, *, other: bool) -> None:
    """A commit of rows; on the other side one in a hundred is another one."""
    text = ROWS.format(
        each=each, begin=BEGIN, hour=HOUR, first=first, behind=behind, more="(i % 100 = 7)::INT" if other else "0"
    )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        write_deltalake(path, connection.sql(text).to_arrow_reader(100_000), mode="append")


def sides(folder: Path) -> tuple[Side, Side]:
    """Both as they are now."""
    left, right = (replace(Side.of(str(folder / name), None, None), grain=GRAIN) for name in ("left", "right"))
    return left, right


def steps(folder: Path, number: int, each: int, how: How) -> None:
    """One step after another."""
    seconds = []
    for step in range(number):
        for name in ("left", "right"):
            write(str(folder / name), step * each, (step + 1) * each, each, other=name == "right")
        pair, begun = sides(folder), time.process_time()
        advance(str(folder / "comparison"), *pair, how, until=BEGIN + (step + 1) * HOUR)
        seconds.append(time.process_time() - begun)
    begun = time.process_time()
    comparison = read_comparison(str(folder / "comparison"))
    told = time.process_time() - begun
    assert comparison is not None
    assert comparison.counts.different == number * each // 100, comparison.counts
    middle = seconds[10:]
    slope = statistics.linear_regression(range(len(middle)), middle).slope
    first, last = statistics.median(seconds[10:40]), statistics.median(seconds[-30:])
    print(f"{number} steps of {each:,} rows a side: {first:.3f} s of CPU each at first, {last:.3f} s at last, ", end="")
    print(f"slope {slope * 1e6:+.0f} us per step; found {told * 1000:.0f} ms")


def whole(folder: Path, rows: int, how: How) -> None:
    """All rows in one call."""
    each = rows // 100
    for part in range(10):
        for name in ("left", "right"):
            write(str(folder / name), part * rows // 10, (part + 1) * rows // 10, each, other=name == "right")
    pair, begun, cpu = sides(folder), time.monotonic(), time.process_time()
    made = advance(str(folder / "comparison"), *pair, how, until=BEGIN + 100 * HOUR)
    assert made is not None
    assert made.counts.different == rows // 100, made.counts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took, used = time.monotonic() - begun, time.process_time() - cpu
    print(f"{rows:,} rows a side at once: {took:.1f} s, {used:.1f} s of CPU, {peak:,.0f} MiB at most")


def main() -> None:
    """Both measurements, each in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--whole", type=int, default=10_000_000)
    parser.add_argument("--memory", default="1500MB")
    options = parser.parse_args()
    how = How(memory=options.memory)
    with tempfile.TemporaryDirectory() as folder:
        if options.steps:
            steps(Path(folder), options.steps, options.rows, how)
    with tempfile.TemporaryDirectory() as folder:
        if options.whole:
            whole(Path(folder), options.whole, how)


if __name__ == "__main__":
    main()
