"""Every benchmark at quick sizes, one after the other, in at most forty minutes on two cores: what ``make bench`` runs.

    python bench/all.py [NAME]...

Each is a program of this folder, which checks its answers and ends with an error if an answer is wrong. Its output is printed. A program that fails, or that is cut at its limit, is named, and the next
one starts; so is a system that is not installed. Minutes of each program, by the clock and by processors, are printed at the end. All limits together are forty minutes. Numbers and pictures are below
``build/bench``: those of the pages, which were measured at larger sizes, stay as they are.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from measurements import FOLDER_VARIABLE

HERE = Path(__file__).resolve().parent
MADE = HERE.parent / "build" / "bench"


class Program(NamedTuple):
    """A program of this folder with its arguments, and the most minutes that it may take."""

    words: tuple[str, ...]
    minutes: float


def program(text: str, minutes: float) -> Program:
    """A command line, with a tilde for a blank inside a word."""
    return Program(tuple(word.replace("~", " ") for word in text.split()), minutes)


PROGRAMS: dict[str, Program] = {
    "ads": program("run.py --rows 400000 --keys 100 --micro-batches 8 --files 8 --only ysb,bounded", 3.5),
    "small": program("run.py --small 6 --only small", 3),
    "windows": program("run.py --rows 400000 --only windows", 2.5),
    "keyed": program("run.py --rows 200000 --held 1000 --only keyed", 4.5),
    "load": program("load.py --rates 1000,10000,23148 --seconds 15", 2),
    "load-spark": program("load.py --engine spark --rates 1000,10000 --seconds 15", 2),
    "load-intervals": program("load.py --rates 10000 --seconds 10 --intervals 50~ms,1~second,5~seconds", 2),
    "contenders": program("contenders.py --rows 500000 --campaigns 100", 5),
    "relational": program("relational.py --records 500000 --orders 1000000", 2.5),
    "direct": program("relational.py --records 300000 --orders 1500000 --direct 5", 1),
    "interval_join": program("interval_join.py --rows 100000 --keys 100 --commits 5", 0.5),
    "growth": program("growth.py --scale 0.25 --only rows,keys,commits", 3),
    "intervals": program("growth.py --scale 0.25 --only intervals --spark --files 4,8,16,64", 2.5),
    "variants": program("variants.py --rows 250000 --campaigns 100,10000,1000000", 0.5),
    "serve": program("serve.py 300_000 100_000 alone serve redis", 1),
    "steady": program("steady.py 300", 1),
    "previews": program("previews.py --runs 2", 1.5),
    "week": program("week.py --days 0.05 --every 60 --partitions 1000", 1.5),
    "plots": program("plots.py build/bench/images", 0.5),
}
MOST_MINUTES = 40
"""Most minutes of all of them, once ``contenders.py --install`` has fetched the other systems."""
PATIENCE_SECONDS = 10
"""How long a program that is cut may take to stop what it has started, before all of it is killed."""


def main() -> None:
    chosen = sys.argv[1:] or list(PROGRAMS)
    unknown = set(chosen) - set(PROGRAMS)
    if unknown:
        sys.exit(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    sys.exit(run_all({name: PROGRAMS[name] for name in chosen}))


def run_all(programs: Mapping[str, Program]) -> bool:
    """Run programs, each whatever became of the ones before it, and print minutes of each; whether any failed."""
    lines, failed, began_all = list[str](), False, time.monotonic()
    for name, chosen in programs.items():
        print(f"== {name}: python bench/{' '.join(chosen.words)}", flush=True)
        began, began_at, before = time.monotonic(), time.time(), processors()
        verdict = run_one(chosen)
        failed = failed or bool(verdict)
        clock, spent = (time.monotonic() - began) / 60, (processors() - before) / 60
        lines.append(f"{name}: {clock:.1f} min, {spent:.1f} of processors{verdict}")
        lines.extend(left_out(began_at))
    print("\n".join(lines))
    print(f"all: {(time.monotonic() - began_all) / 60:.1f} min", flush=True)
    return failed


def run_one(chosen: Program) -> str:
    """Run a program, and cut it at its limit: what went wrong, or nothing."""
    environment = os.environ | {FOLDER_VARIABLE: str(MADE / "results")}
    command = [sys.executable, str(HERE / chosen.words[0]), *chosen.words[1:]]
    running = subprocess.Popen(command, cwd=HERE.parent, env=environment)
    try:
        code = running.wait(chosen.minutes * 60)
    except subprocess.TimeoutExpired:
        cut(running)
        return f", cut after {chosen.minutes:g} minutes"
    except KeyboardInterrupt:
        cut(running)
        raise
    return f", ended with {code}" if code else ""


def cut(running: subprocess.Popen[bytes]) -> None:
    """End a program with all that it has started: it may clean up first, and what is left then is killed."""
    tree = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGINT)
    try:
        running.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        tree += psutil.Process(running.pid).children(recursive=True)
        running.kill()
        running.wait()
    for process in tree:
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            process.kill()
    psutil.wait_procs(tree, PATIENCE_SECONDS)


def left_out(since: float) -> Iterator[str]:
    """The systems, in results that were written since a moment, that could not be measured."""
    for file in sorted((MADE / "results").glob("*.json")):
        if file.stat().st_mtime >= since:
            rows: Sequence[dict[str, object]] = json.loads(file.read_text())
            yield from (f"  without {row['system']}: {row['left out']}" for row in rows if "left out" in row)


def processors() -> float:
    """Processor seconds of the programs that have ended, and of all that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
