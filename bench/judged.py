"""From a file that is put into a folder to its rows, judged by expectations and committed in the table of an operator: landing and stream by themselves.

    python bench/judged.py [--engine embedded | spark] [--rates 10,1000,10000] [--seconds 300]

A workspace is made, started and supervised as by hand. Five files a second arrive, of a fifth of the rate's rows each. Each row has three expectations
while it lands and two in the stream (one sets rows aside, one in fifty), and passes through a filter, so that no window holds it back. A row's delay is
the date of the commit in the stream's table that has it less the date at which its file was put; the date of the commit is its file's, as this machine's
clock gives both. The first half minute is left out. Per rate: p50, p99 and the greatest delay, in seconds, and whether no row is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from hosts import processes

FILES_PER_SECOND, WARM_SECONDS, BAD = 5, 30, 50
CODE = '''
"""A source, and an operator, both with expectations."""
import floodmark as fm

LANDED = (
    fm.Expectation("column_values_to_not_be_null", column="sensor", on_fail="quarantine"),
    fm.Expectation("column_values_to_be_between", column="value", min_value=-1, on_fail="quarantine"),
    fm.Expectation("column_values_to_match_regex", column="sensor", regex="^[a-c]$", on_fail="quarantine"),
)

class Reading(fm.Contract, expectations=LANDED):
    """A number of a sensor, and when its file was put, ms since 1970."""
    at: fm.EventTime
    sensor: str
    value: int
    put: int

source = fm.Source("readings", contract=Reading, connector=fm.Files("inbox/readings", min_age="0 s"), watermark=fm.BoundedOutOfOrderness("1 minute"))
readings = fm.source_asset(source, poll="50 ms")

@fm.operator(inputs={"readings": source})
def judged(readings: fm.Stream[Reading]) -> fm.Stream:
    """Readings of the sensors that count."""
    return readings.filter("sensor <> 'z'").select("at", "sensor", "value", "put")

made = fm.operator_asset(judged, expectations=[
    fm.Expectation("column_values_to_be_between", column="value", min_value=0, on_fail="quarantine"),
    fm.Expectation("table_row_count_to_be_between", min_value=0, on_fail="stop"),
])

def workspace(environment="dev"):
    """All of it."""
    return fm.Workspace(sources=[readings], operators=[made], settings=fm.Settings(lake="lake", engine="ENGINE"))
'''


def put(folder: Path, number: int, rows: int) -> int:
    """A file of so many rows; how many of them the stream sets aside."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now))
    values = [-1 if (number * rows + n) % BAD == 0 else n for n in range(rows)]
    part = folder / f"{number:09}.csv.part"
    lines = [f"{at},{'abc'[n % 3]},{value},{round(now * 1000)}" for n, value in enumerate(values)]
    part.write_text("\n".join(["at,sensor,value,put", *lines]) + "\n")
    part.replace(part.with_suffix(""))
    return values.count(-1)


def committed(table: Path, newer: int) -> tuple[list[tuple[float, int]], int]:
    """Of the commits after a version: (delay of a row, s, and when it was put, ms since 1970), and the newest version."""
    rows: list[tuple[float, int]] = []
    logs = sorted(path for path in (table / "_delta_log").glob("*.json") if int(path.stem) > newer)
    for log in logs:
        date = log.stat().st_mtime
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"]:
                column = pq.read_table(table / added["path"], columns=["put"]).column("put").to_pylist()
                rows += [(date - moment / 1000, moment) for moment in column if moment is not None]
    return rows, int(logs[-1].stem) if logs else newer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="embedded", choices=["embedded", "spark"])
    parser.add_argument("--rates", default="10,1000,10000")
    parser.add_argument("--seconds", type=float, default=300)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        inbox, table = root / "inbox" / "readings", root / "lake" / "outputs" / "judged"
        inbox.mkdir(parents=True)
        (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "readings"\n')
        (root / "readings.py").write_text(CODE.replace("ENGINE", asked.engine))
        program = [str(Path(sys.executable).with_name("floodmark"))]
        put(inbox, 0, BAD)
        subprocess.run([*program, "start", "--all"], cwd=root, check=True, stdout=subprocess.DEVNULL)
        supervisor = subprocess.Popen([*program, "supervise"], cwd=root, stdout=subprocess.DEVNULL)
        try:
            number, version = 1, -1
            rows: list[tuple[float, int]] = []
            deadline = time.monotonic() + 300
            while not rows and time.monotonic() < deadline:
                time.sleep(0.5)
                if (table / "_delta_log").exists():
                    rows, version = committed(table, version)
            for rate in [int(word) for word in asked.rates.split(",")]:
                each, began, expected, first = rate // FILES_PER_SECOND, time.time(), 0, number
                while time.time() - began < asked.seconds + WARM_SECONDS:
                    expected += each - put(inbox, number, each)
                    number += 1
                    time.sleep(max(0.0, began + (number - first) / FILES_PER_SECOND - time.time()))
                rows, deadline = [], time.monotonic() + 120
                while len(rows) < expected and time.monotonic() < deadline:
                    more, version = committed(table, version)
                    rows += more
                    time.sleep(0.2)
                late = [delay for delay, moment in rows if moment >= (began + WARM_SECONDS) * 1000]
                cuts = statistics.quantiles(late, n=100)
                told = "all rows" if len(rows) == expected else f"{len(rows):,} of {expected:,} rows"
                print(
                    f"{asked.engine}, {rate:,} rows/s: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, greatest {max(late):.2f} s; {told}",
                    flush=True,
                )
        finally:
            for child in processes(root, supervisor.pid):
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGKILL)
            supervisor.wait()


if __name__ == "__main__":
    os.environ.pop("FLOODMARK_ENVIRONMENT", None)
    main()
