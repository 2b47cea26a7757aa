"""Every benchmark at quick sizes, one after the other, in at most forty minutes on two cores: what ``make bench`` runs.

    python bench/all.py [NAME]...

Each is a program of this folder, which checks its answers and ends with an error if one is wrong. What it says is printed; minutes of each by the clock and by processors, and those that
have failed or were cut at their limit, stand at the end. Numbers and pictures are below ``build/bench``: those of the pages, which were measured at larger sizes, stay as they are.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from measurements import FOLDER_VARIABLE

HERE = Path(__file__).resolve().parent
MADE = HERE.parent / "build" / "bench"
PROGRAMS: dict[str, tuple[str, int]] = {
    "run": (
        "run.py --rows 400000 --keys 100 --micro-batches 8 --held 10000 --only ysb,bounded,small,windows,keyed",
        15,
    ),
    "load": ("load.py --rates 1000,10000,23148 --seconds 15", 3),
    "load-spark": ("load.py --engine spark --rates 1000,10000 --seconds 15", 4),
    "load-intervals": ("load.py --rates 10000 --seconds 10 --intervals 50~ms,1~second,5~seconds", 3),
    "contenders": ("contenders.py --rows 500000 --campaigns 100", 6),
    "relational": ("relational.py --records 1000000 --orders 2000000", 3),
    "direct": ("relational.py --records 100000 --orders 500000 --direct 5", 2),
    "interval_join": ("interval_join.py --rows 100000 --keys 100 --commits 5", 3),
    "growth": ("growth.py --scale 0.25 --only rows,keys,commits", 4),
    "intervals": ("growth.py --scale 0.25 --only intervals --spark", 5),
    "variants": ("variants.py --rows 250000 --campaigns 100,10000,1000000", 2),
    "serve": ("serve.py 300_000 100_000 alone serve redis", 3),
    "steady": ("steady.py 500", 2),
    "previews": ("previews.py --runs 5", 3),
    "week": ("week.py --days 0.1 --every 60 --partitions 2000", 3),
    "plots": ("plots.py build/bench/images", 1),
}
"""Name -> its program with arguments, a tilde for a blank inside one, and most minutes."""
MOST = 40
"""Minutes of all of them, once ``contenders.py --install`` has fetched the other systems."""


def main() -> None:
    chosen = sys.argv[1:] or list(PROGRAMS)
    unknown = set(chosen) - set(PROGRAMS)
    if unknown:
        sys.exit(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    lines, failed, end = list[str](), False, time.monotonic() + MOST * 60
    for name in chosen:
        text, minutes = PROGRAMS[name]
        program, *arguments = (word.replace("~", " ") for word in text.split())
        print(f"== {name}: python bench/{text.replace('~', ' ')}", flush=True)
        began, before = time.monotonic(), processors()
        seconds = max(1.0, min(minutes * 60, end - began))
        try:
            ended = subprocess.run(
                [sys.executable, str(HERE / program), *arguments],
                cwd=HERE.parent,
                env=os.environ | {FOLDER_VARIABLE: str(MADE / "results")},
                timeout=seconds,
                check=False,
            )
            verdict = "" if not ended.returncode else f", ended with {ended.returncode}"
        except subprocess.TimeoutExpired:
            verdict = f", cut after {seconds / 60:.1f} minutes"
        failed = failed or bool(verdict)
        clock, spent = (time.monotonic() - began) / 60, (processors() - before) / 60
        lines.append(f"{name}: {clock:.1f} min, {spent:.1f} of processors{verdict}")
    print("\n".join(lines))
    sys.exit(failed)


def processors() -> float:
    """Processor seconds of the programs that have ended, and of all that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
