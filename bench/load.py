"""Load at fixed rates: how long from an event to its row, committed in the table of an operator, against how many events come.

    python bench/load.py [--engine embedded | spark] [--rates 1000,10000,23148,50000] [--seconds 20] [--intervals "",1 second,5 seconds] [--files 10] [--behind 5] [--judged] [--isolated]

A workspace is made, started and supervised as by hand: a landing and a stream. Ten files a second arrive, or ``--files``, of a tenth of the rate's rows each; the
events of a file are spread over the tenth of a second before it. Rows pass through a filter, so that no window holds them back. With ``--judged`` each row has
three expectations while it lands and two in the stream (one sets rows aside, one in fifty). A row's delay is the date of the commit in the stream's table
that has it less the moment of its event; the date of the commit is its file's, as this machine's clock gives both. The first seconds are left out. Per rate:
p50, p99, p99.9 and the greatest delay, in seconds, the share of rows within 200 ms, processor time of all processes for a million events, and whether no row is missing; a rate is
kept up with if the last row is committed five seconds after it came, or ``--behind``. The first rate that is not ends the row of rates. ``--intervals`` are
those of the stream's checkpoints (``fm.Checkpoints``), each a workspace of its own. All is also in ``bench/results/load.json``, from which ``bench/plots.py`` draws.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from hosts import processes
from measurements import keep

BAD, PATIENCE_SECONDS = 50, 60
CODE = '''
"""A source, and an operator, with expectations or without."""
import floodmark as fm

LANDED = (
    fm.Expectation("column_values_to_not_be_null", column="sensor", on_fail="quarantine"),
    fm.Expectation("column_values_to_be_between", column="value", min_value=-1, on_fail="quarantine"),
    fm.Expectation("column_values_to_match_regex", column="sensor", regex="^[a-c]$", on_fail="quarantine"),
)
JUDGED = [
    fm.Expectation("column_values_to_be_between", column="value", min_value=0, on_fail="quarantine"),
    fm.Expectation("table_row_count_to_be_between", min_value=0, on_fail="stop"),
]

class Reading(fm.Contract, expectations=LANDED if JUDGING else ()):
    """A number of a sensor, and when it was measured, us since 1970."""
    at: fm.EventTime
    sensor: str
    value: int
    put: int

source = fm.Source("readings", contract=Reading, connector=fm.Files("inbox/readings", min_age="0 s"), watermark=fm.BoundedOutOfOrderness("1 minute"))
readings = fm.source_asset(source, poll="POLL")

@fm.operator(inputs={"readings": source})
def passed(readings: fm.Stream[Reading]) -> fm.Stream:
    """Readings of the sensors that count."""
    return readings.filter("sensor <> 'z'").select("at", "sensor", "value", "put")

made = fm.operator_asset(passed, expectations=JUDGED if JUDGING else (), checkpoints=fm.Checkpoints(INTERVAL))

def workspace(environment="dev"):
    """All of it."""
    return fm.Workspace(sources=[readings], operators=[made], settings=fm.Settings(lake="lake", engine="ENGINE", streams="STREAMS"))
'''


def put(folder: Path, number: int, rows: int, files: int) -> int:
    """A file of so many rows, of so many files a second; how many of the rows are judged bad."""
    now = time.time()
    moments = ((now - np.arange(rows)[::-1] / rows / files) * 1e6).astype(np.int64)
    places = number * rows + np.arange(rows)
    values = np.where(places % BAD == 0, -1, places)
    table = pa.table(
        {
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "sensor": np.array(["a", "b", "c"])[places % 3],
            "value": values,
            "put": moments,
        }
    )
    part = folder / f"{number:09}.parquet.part"
    pq.write_table(table, part)
    part.replace(part.with_suffix(""))
    return int((values < 0).sum())


def committed(table: Path, newer: int) -> tuple[list[tuple[float, np.ndarray, np.ndarray]], int]:
    """Of the commits after a version: (date, moments of its rows, us since 1970, and their numbers, -1 for a bad one), and the newest version."""
    commits = list[tuple[float, np.ndarray, np.ndarray]]()
    logs = sorted(path for path in (table / "_delta_log").glob("*.json") if int(path.stem) > newer)
    for log in logs:
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"]:
                rows = pq.read_table(table / added["path"], columns=["put", "value"]).drop_null()
                commits.append((log.stat().st_mtime, rows["put"].to_numpy(), rows["value"].to_numpy()))
    return commits, int(logs[-1].stem) if logs else newer


def measured(
    inbox: Path, table: Path, rate: int, asked: argparse.Namespace, state: dict[str, int], tree: Any
) -> dict[str, Any]:
    """One rate."""
    each, seconds, began, expected, first = rate // asked.files, asked.seconds, time.time(), 0, state["number"]
    warm = min(10.0, seconds)
    busy = 0.0
    for file in range(round((warm + seconds) * asked.files)):  # as many on a slow machine, later
        if file == round(warm * asked.files):
            busy = _cpu(tree())
        bad = put(inbox, state["number"], each, asked.files)
        expected += each - (bad if asked.judged else 0)
        state["number"] += 1
        time.sleep(max(0.0, began + (state["number"] - first) / asked.files - time.time()))
    last, commits, there = time.time(), list[tuple[float, np.ndarray, np.ndarray]](), 0
    spent = _cpu(tree()) - busy
    while there < expected and time.time() < last + PATIENCE_SECONDS:
        more, state["version"] = committed(table, state["version"])
        commits, there = commits + more, there + sum(len(moments) for _, moments, _ in more)
        time.sleep(0.1)
    delays = np.concatenate([date - moments / 1e6 for date, moments, _ in commits])
    moments = np.concatenate([moments for _, moments, _ in commits])
    numbers = np.concatenate([numbers[numbers >= 0] for _, _, numbers in commits])
    late = delays[moments >= (began + warm) * 1e6]
    cuts = np.quantile(late, [0.5, 0.99, 0.999])
    return {
        "rate": rate,
        **{name: round(float(cut), 3) for name, cut in zip(("p50", "p99", "p99.9"), cuts, strict=True)},
        "greatest": round(float(late.max()), 3),
        "within 200 ms": round(float((late <= 0.2).mean()), 4),
        "cpu per million": round(spent / seconds / rate * 1e6, 1),
        "commits": len(commits),
        "rows": there,
        "all rows": there == expected and len(np.unique(numbers)) == len(numbers),
        "kept up": bool(there == expected and max(date for date, _, _ in commits) <= last + asked.behind),
    }


def _cpu(tree: list[psutil.Process]) -> float:
    total = 0.0
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def chain(engine: str, interval: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All rates on a workspace of its own."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        inbox, table = root / "inbox" / "readings", root / "lake" / "outputs" / "passed"
        inbox.mkdir(parents=True)
        (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "readings"\n')
        code = CODE.replace("ENGINE", engine).replace("STREAMS", "isolated" if asked.isolated else "shared")
        code = code.replace("JUDGING", str(asked.judged)).replace("POLL", asked.poll)
        (root / "readings.py").write_text(code.replace("INTERVAL", repr(interval) if interval else ""))
        program = [str(Path(sys.executable).with_name("floodmark"))]
        put(inbox, 0, BAD, asked.files)
        subprocess.run([*program, "start", "--all"], cwd=root, check=True, stdout=subprocess.DEVNULL)
        supervisor = subprocess.Popen([*program, "supervise"], cwd=root, stdout=subprocess.DEVNULL)
        try:
            state, deadline = {"number": 1, "version": -1}, time.monotonic() + 300
            commits: list[Any] = []
            while not commits and time.monotonic() < deadline:
                time.sleep(0.5)
                if (table / "_delta_log").exists():
                    commits, state["version"] = committed(table, -1)
            for rate in asked.rates:
                row = {"engine": engine, "interval": interval, "files": asked.files, "judged": asked.judged}
                row |= {"isolated": True} if asked.isolated else {}
                row |= measured(inbox, table, rate, asked, state, lambda: processes(root, supervisor.pid))
                rows.append(row)
                print(json.dumps(row), flush=True)
                if not row["kept up"]:
                    break
        finally:
            for child in processes(root, supervisor.pid):
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGKILL)
            supervisor.wait()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="embedded", choices=["embedded", "spark"])
    numbers = [1_000, 10_000, 23_148, 50_000]
    parser.add_argument("--rates", type=lambda text: [int(word) for word in text.split(",")], default=numbers)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--intervals", type=lambda text: text.split(","), default=[""])
    parser.add_argument("--poll", default="50 ms", help="between two looks of the landing")
    parser.add_argument("--files", type=int, default=10, help="a second")
    parser.add_argument(
        "--behind",
        type=float,
        default=5.0,
        help="seconds after its end in which a rate is committed that is kept up with",
    )
    parser.add_argument("--judged", action="store_true")
    parser.add_argument("--isolated", action="store_true", help="landing and stream in a process each")
    asked = parser.parse_args()
    rows = [row for interval in asked.intervals for row in chain(asked.engine, interval, asked)]
    keep("load", rows, by=("engine", "interval", "files", "judged", "isolated", "rate"))
    lost = [row for row in rows if row["kept up"] and not row["all rows"]]
    sys.exit(bool(lost))


if __name__ == "__main__":
    os.environ.pop("FLOODMARK_ENVIRONMENT", None)
    main()
