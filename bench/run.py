"""Benchmarks: floodmark against raw PySpark and DuckDB, on the same events, in one run.

    python bench/run.py [--rows 4000000] [--only ysb,bounded,small,engines,windows,keyed,held,backfill,process,join,dedup] [--held 10000,1000000] [--small 20,60] [--files 32] [--repeats 3] [--table]

Every system runs in a process of its own; the memory is that of the process and all its children. With ``--repeats`` those that are compared run in turn, and each number is the median. Ratios are speeds against raw
PySpark in the same run: above 1 is faster. CPU seconds are those of the whole process tree, from its start: on a busy machine compare these. Everything printed is also in ``bench/results/run.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import backfill
import measurements
from watching import Watch

HERE = Path(__file__).resolve().parent
RAW = {"bounded": "spark batch", "unbounded": "spark streaming", "landing": "spark append"}
MORE = ("first_query_seconds", "p99_batch_seconds")
"""What only some systems say."""
STEADY = ("steady_cpu_seconds", "steady_cpu_java", "steady_cpu_workers", "steady_cpu_driver")
"""CPU seconds per steady micro-batch, and of them those of Java, of Python workers and of the driver."""
MEASUREMENT = ("benchmark", "system", "mode", "keys", "micro_batches")
"""What tells rows of ``bench/results/run.json`` apart."""

Row = dict[str, Any]


class SystemFailedError(Exception):
    """A system ended with an error: its name, and what it said."""


def measured(system: str, folder: Path, out: Path, **settings: Any) -> Row:
    """Run one system in a process of its own; what it said, and the peak memory of its process tree."""
    for folder_of_last in (out, Path(f"{out}-checkpoint")):
        shutil.rmtree(folder_of_last, ignore_errors=True)
    call = {"system": system, "folder": str(folder), "out": str(out), **settings}
    command = [sys.executable, str(HERE / "run.py"), "--child", json.dumps(call)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }  # for raw programs' workers
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE.parent, env=environment
    )
    watch = Watch(process.pid)
    told, errors = process.communicate()
    if process.returncode:
        msg = f"{system} failed:\n{told}\n{errors}"
        raise SystemFailedError(msg)
    watch.end()
    return {
        **json.loads(told.splitlines()[-1]),
        "peak_memory_mb": round(watch.peak_memory_mb),
        "cpu_seconds": watch.cpu_seconds,
    }


def in_turn(systems: Sequence[str], repeats: int, folder: Path, out: Path, **settings: Any) -> list[Row]:
    """Run some systems one after the other, so often: of each the median of every number, and whether all its answers are right."""
    runs = [[measured(system, folder, out, **settings) for system in systems] for _ in range(repeats)]
    return [_median(several) for several in zip(*runs, strict=True)]


def _median(runs: Sequence[Row]) -> Row:
    numbers = {
        name
        for run in runs
        for name, value in run.items()
        if isinstance(value, (int, float)) and name != "answer_equal"
    }
    median: Row = {name: statistics.median(run[name] for run in runs) for name in sorted(numbers)}
    equal = {run["answer_equal"] for run in runs}
    return {**runs[0], **median, "answer_equal": equal.pop() if len(equal) == 1 else False}


def child(call: Row) -> None:
    """In the process of one system."""
    sys.path.insert(0, str(HERE.parent))
    import systems

    system, folder, out = call.pop("system"), Path(call.pop("folder")), Path(call.pop("out"))
    if system == "generate":
        import data

        print(json.dumps({"seconds": data.generate(folder, **call)}))
        return
    if system in backfill.SYSTEMS:
        print(json.dumps(backfill.SYSTEMS[system](folder=folder, out=out)))
        return
    import two_engines

    if system in two_engines.SYSTEMS:
        told = two_engines.SYSTEMS[system](folder=folder, out=out, **call)
        print(json.dumps({**told, "answer_equal": two_engines.equal(system, folder, out)}))
        return
    import windows

    if system in windows.SYSTEMS:
        told = windows.SYSTEMS[system](folder=folder, out=out, **call)
        print(json.dumps({**told, "answer_equal": windows.equal(system, folder, out)}))
        return
    import keyed

    if system in keyed.SYSTEMS:
        told = keyed.SYSTEMS[system](folder=folder, out=out, **call)
        print(json.dumps({**told, "answer_equal": keyed.equal(system, folder, out)}))
        return
    told = systems.SYSTEMS[system](folder=folder, out=out, **call)
    print(json.dumps({**told, "answer_equal": systems.equal(system, folder, out)}))


class Results:
    """Rows of the table, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        header = (
            "benchmark",
            "system",
            "mode",
            "keys",
            "batches",
            "rows/s",
            "steady s",
            "x raw",
            "steady x",
            "MB",
            "CPU s",
            "x CPU",
            "batch CPU",
            "x CPU",
            "equal",
        )
        self._print(header)

    def add(
        self,
        benchmark: str,
        system: str,
        mode: str,
        told: Row,
        *,
        keys: int,
        micro_batches: int,
        rows: int,
        raw: str | None = None,
    ) -> None:
        """Note a measurement; ``raw`` names the system it is compared with, by default that of its mode."""
        base = next(
            (
                r
                for r in self.rows
                if (r["benchmark"], r["mode"], r["keys"], r["micro_batches"], r["rows"])
                == (benchmark, mode, keys, micro_batches, rows)
                and r["system"] == (raw or RAW.get(mode))
            ),
            None,
        )
        seconds, steady = told["seconds"], told.get("steady_batch_seconds")
        row = {
            "benchmark": benchmark,
            "system": system,
            "mode": mode,
            "keys": keys,
            "micro_batches": micro_batches,
            "rows": rows,
            "seconds": round(seconds, 3),
            "rows_per_second": round(rows / seconds),
            "steady_batch_seconds": steady and round(steady, 3),
            "ratio_to_raw": base and round(base["seconds"] / seconds, 3),
            "steady_ratio_to_raw": (
                round(base["steady_batch_seconds"] / steady, 3)
                if base and steady and base["steady_batch_seconds"]
                else None
            ),
            "peak_memory_mb": round(told["peak_memory_mb"]),
            "cpu_seconds": round(told["cpu_seconds"], 1),
            "cpu_ratio_to_raw": base and round(base["cpu_seconds"] / told["cpu_seconds"], 3),
            "answer_equal": told.get("answer_equal"),
        } | {name: round(told[name], 3) for name in (*MORE, *STEADY) if name in told}
        if base and STEADY[0] in row and STEADY[0] in base:
            row["steady_cpu_ratio_to_raw"] = round(base[STEADY[0]] / row[STEADY[0]], 3)
        self.rows.append(row)
        measurements.keep("run", [row], MEASUREMENT)  # also when a later system fails
        names = ("benchmark", "system", "mode", "keys", "micro_batches", "rows_per_second", "steady_batch_seconds")
        shown = [row[n] for n in (*names, "ratio_to_raw", "steady_ratio_to_raw", "peak_memory_mb")]
        shown += [
            row.get(n)
            for n in ("cpu_seconds", "cpu_ratio_to_raw", STEADY[0], "steady_cpu_ratio_to_raw", "answer_equal")
        ]
        self._print(shown)
        if STEADY[0] in row:
            print(f"{'':11}{', '.join(f'{name[11:]} {row[name]}' for name in STEADY[1:])}", flush=True)
        for name in MORE:
            if name in row:
                print(f"{'':11}{name.replace('_', ' ')}: {row[name]}", flush=True)

    def _print(self, cells: Any) -> None:
        widths = (9, 30, 9, 9, 7, 10, 8, 6, 8, 6, 6, 6, 9, 6, 5)
        texts = (
            "" if c is None else f"{c:,}" if isinstance(c, int) and not isinstance(c, bool) else str(c) for c in cells
        )
        print("  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)), flush=True)


def ysb(
    results: Results, place: Path, rows: int, campaigns: list[int], batches: list[int], files: int, repeats: int
) -> None:
    """Views per campaign and ten seconds: all systems."""
    for keys in campaigns:
        folder = place / f"ysb-{keys}"
        measured("generate", folder, place / "none", rows=rows, campaigns=keys, files=files)
        for system, mode in (("duckdb", "batch"), ("spark append", "landing"), ("floodmark landing", "landing")):
            told = measured(system, folder, place / "out")
            results.add("ysb", system, mode, told, keys=keys, micro_batches=files, rows=rows)
        for count in batches:
            systems = ("spark streaming", "floodmark unbounded")
            runs = in_turn(systems, repeats, folder, place / "out", micro_batches=count, files=files)
            for system, told in zip(systems, runs, strict=True):
                results.add("ysb", system, "unbounded", told, keys=keys, micro_batches=count, rows=rows)
        shutil.rmtree(folder)


def bounded(results: Results, place: Path, rows: int, campaigns: list[int], files: int, repeats: int) -> None:
    """The same as one batch: the median of at least three runs of each, in turn, as one takes seconds and a machine has moods."""
    for keys in campaigns:
        folder = place / f"bounded-{keys}"
        measured("generate", folder, place / "none", rows=rows, campaigns=keys, files=files)
        measured("duckdb", folder, place / "out")
        measured("floodmark landing", folder, place / "out")
        systems = ("spark batch", "floodmark bounded")
        for system, told in zip(systems, in_turn(systems, max(repeats, 3), folder, place / "out"), strict=True):
            results.add("bounded", system, "bounded", told, keys=keys, micro_batches=1, rows=rows)
        shutil.rmtree(folder)


def small(results: Results, place: Path, counts: list[int], repeats: int) -> None:
    """Micro-batches of 1,000 rows: what one costs, with one output and with more; and whether memory grows with their number."""
    for count in counts:
        rows, folder = count * 1000, place / f"small-{count}"
        measured("generate", folder, place / "none", rows=rows, campaigns=100, files=count)
        measured("duckdb", folder, place / "out")
        measured("floodmark landing", folder, place / "out")
        for outputs in ("", ", 2 outputs", ", 3 outputs") if count == counts[0] else ("",):
            systems = (f"spark streaming{outputs}", f"floodmark unbounded{outputs}")
            runs = in_turn(systems, repeats, folder, place / "out", micro_batches=count, files=count)
            for system, told in zip(systems, runs, strict=True):
                about = {"keys": 100, "micro_batches": count, "rows": rows, "raw": systems[0]}
                results.add("small", system, "unbounded", told, **about)
        shutil.rmtree(folder)


def table(rows: list[Row]) -> str:
    """Results in Markdown."""
    names = (
        "benchmark",
        "system",
        "mode",
        "keys",
        "micro-batches",
        "rows/s",
        "steady micro-batch",
        "x raw",
        "steady x raw",
    )
    lines = [[*names, "peak MB", "micro-batch CPU", "x raw CPU", "equal"]]
    for row in rows:
        steady, equal = row["steady_batch_seconds"], row["answer_equal"]
        cells = [row["benchmark"], row["system"], row["mode"], f"{row['keys']:,}", str(row["micro_batches"])]
        cells += [f"{row['rows_per_second']:,}", f"{steady} s" if steady else ""]
        cells += [str(row[name] or "") for name in ("ratio_to_raw", "steady_ratio_to_raw")]
        cells += [
            f"{row['peak_memory_mb']:,}",
            *(str(row.get(name) or "") for name in (STEADY[0], "steady_cpu_ratio_to_raw")),
        ]
        cells += ["" if equal is None else "yes" if equal else "NO"]
        lines.append(cells)
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measure(options: argparse.Namespace, results: Results, place: Path) -> list[str]:
    """The benchmarks that were asked for, in order; the names of those that a failed system ended."""
    import keyed
    import two_engines
    import windows

    numbers = options.keys, options.micro_batches
    benchmarks: dict[str, Callable[[], None]] = {
        "ysb": lambda: ysb(results, place, options.rows, *numbers, options.files, options.repeats),
        "bounded": lambda: bounded(results, place, options.rows, options.keys, options.files, options.repeats),
        "small": lambda: small(results, place, options.small, options.repeats),
        "engines": lambda: two_engines.engines(results, place, measured, options.rows, options.keys),
        "windows": lambda: windows.ordered(results, place, measured, in_turn, options.rows // 4, options.repeats),
        "keyed": lambda: keyed.keyed(
            results, place, measured, in_turn, options.rows // 4, options.held, options.only, options.repeats
        ),
        "held": lambda: windows.held_keys(results, place, measured, options.held),
        "backfill": lambda: backfill.year(results, place, measured),
    }
    wanted = {"keyed" if name in {one[0] for one in keyed.COMPARED} else name for name in options.only}
    failed = list[str]()
    for name, run in benchmarks.items():
        if name in wanted:
            try:
                run()
            except SystemFailedError as error:
                print(f"{name} ends here, the others are measured: {error}", flush=True)
                failed.append(name)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", type=lambda text: [int(k) for k in text.split(",")], default=[100, 1_000_000])
    parser.add_argument("--micro-batches", type=lambda text: [int(k) for k in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--files", type=int, default=32, help="of ysb and bounded, which are as many commits")
    parser.add_argument("--small", type=lambda text: [int(k) for k in text.split(",")], default=[20, 60])
    numbers = [10_000, 100_000, 1_000_000]
    parser.add_argument("--held", type=lambda text: [int(k) for k in text.split(",")], default=numbers)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=["ysb", "bounded", "small", "engines", "windows", "keyed", "held", "backfill"],
    )
    parser.add_argument(
        "--repeats", type=int, default=1, help="runs of each system, in turn with those it is compared with"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the results as docs/benchmarks.md shows them, and measure nothing"
    )
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if options.table:
        print(table(measurements.read("run")))
        return
    results = Results()
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        failed = measure(options, results, Path(place))
    wrong = [row for row in results.rows if row["answer_equal"] is False]
    print(
        f"{len(results.rows)} measurements in {measurements.FOLDER / 'run.json'}; {len(wrong)} with another answer than DuckDB's"
    )
    sys.exit(bool(wrong or failed))


if __name__ == "__main__":
    main()
