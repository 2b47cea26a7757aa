"""Rows a second of a bounded run that is bound by processors, on one and on two workers of a cluster: PYTHONPATH=.:tests/support python bench/workers.py.

    python bench/workers.py [--rows 200000] [--files 8]

A function in Python makes rows of each row; they are aggregated by key and hour. Workers have one core each. Beside what was measured stands what the times of
the tasks on one worker make on paper of 1, 2, 4 and 8 cores: tasks go to the first core that is free, all else takes as long as it did.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import event_log
import spark_cluster
from cluster_site import Site

STEP = "bounded:delays"
MANY = {
    "spark.sql.files.minPartitionNum": "16",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.shuffle.partitions": "16",
}
"""Settings with which a stage has sixteen tasks."""


def measured(site: Site, log: Path, cores: int) -> tuple[float, event_log.Application]:
    """Seconds of the step on so many cores, the second time that an application does it, and its tasks."""
    log.mkdir()
    own = spark_cluster.SETTINGS | event_log.SETTINGS | MANY
    own |= {"spark.eventLog.dir": str(log), "spark.cores.max": str(cores)}
    again = replace(site, settings=own)
    done = _checked(again.run("spark", STEP, STEP))
    (application,) = event_log.applications(log)
    seconds = float(re.findall(rf"{STEP} ([\d.]+)", done.stdout)[-1])
    return seconds, application.last(seconds)


def _checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done


def main() -> None:
    """Measure, and print a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=8)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        with spark_cluster.cluster(root / "cluster", root / "hidden") as cluster:
            site = Site.made(cluster.hidden[0], cluster.shared, cluster.master, files=options.files, rows=options.rows)
            _checked(site.run("embedded", "end"))
            seconds, tasks = {}, {}
            for cores in (1, 2):
                seconds[cores], tasks[cores] = measured(site, cluster.shared / f"events{cores}", cores)
    rows = options.rows * options.files
    print(f"{rows:,} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| workers | seconds | rows a second | efficiency |\n|---|---|---|---|")
    for cores, took in seconds.items():
        print(f"| {cores} | {took:.1f} | {rows / took:,.0f} | {seconds[1] / took / cores:.2f} |")
    rest = max(0.0, seconds[1] - tasks[1].on_paper(1))
    for cores in (1, 2, 4, 8):
        took = rest + tasks[1].on_paper(cores)
        print(f"| {cores}, on paper | {took:.1f} | {rows / took:,.0f} | {seconds[1] / took / cores:.2f} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
