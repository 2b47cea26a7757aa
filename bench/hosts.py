"""Ten operators and two sources that run by themselves: memory and idle processor time of all processes together.

    python bench/hosts.py [shared | isolated] [--engine embedded | spark] [--seconds 60] [--live]

A workspace is made, started and supervised as by hand, three files land in each source, and once every stream has committed, nothing comes any more.
Memory is the proportional set size of the supervisor, the processes of the streams and the server of the embedded engine (what processes have in common
counts once); processor time is theirs over the seconds that follow. The first half minute after the last commit is left out. With ``--live`` a file of 60
rows lands in each source every second meanwhile, and the memory is the greatest of those seen every five seconds.
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
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from floodmark.control.state.store import Store

STREAMS, SETTLE_SECONDS = 12, 30
CODE = '''
"""Two sources and ten operators."""
import floodmark as fm

class Reading(fm.Contract):
    """A number of a sensor."""
    at: fm.EventTime
    sensor: str
    value: int

def source(name):
    """A source of files."""
    return fm.source_asset(fm.Source(name, contract=Reading, connector=fm.Files(f"inbox/{name}", min_age="0 s"), watermark=fm.BoundedOutOfOrderness("1 minute")))

inside, outside = source("inside"), source("outside")

def sums(name, table, minutes):
    """An operator of that name."""
    @fm.operator(name=name, inputs={"readings": table.source})
    def made(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").window(fm.Tumbling(f"{minutes} minutes")).aggregate(total=fm.sum("value"), n=fm.count())
    return made

made = [sums(f"{table.source.name}_{minutes}", table, minutes) for table in (inside, outside) for minutes in (1, 2, 5, 10, 30)]

def workspace(environment="dev"):
    """All of it."""
    return fm.Workspace(sources=[inside, outside], operators=made, settings=fm.Settings(lake="lake", engine="ENGINE", streams="STREAMS"))
'''


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("streams", nargs="?", default="shared", choices=["shared", "isolated"])
    parser.add_argument("--engine", default="embedded", choices=["embedded", "spark"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--live", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "readings"\n')
        (root / "readings.py").write_text(CODE.replace("ENGINE", asked.engine).replace("STREAMS", asked.streams))
        for name in ("inside", "outside"):
            (root / "inbox" / name).mkdir(parents=True)
            for number in range(3):
                put(root, name, number)
        program = [str(Path(sys.executable).with_name("floodmark"))]
        subprocess.run([*program, "start", "--all"], cwd=root, check=True, stdout=subprocess.DEVNULL)
        began = time.monotonic()
        supervisor = subprocess.Popen([*program, "supervise"], cwd=root, stdout=subprocess.DEVNULL)
        try:
            store = Store(f"sqlite:///{root}/.floodmark/control/control.db")
            while len([one for one in store.living() if one.batch is not None]) < STREAMS:
                time.sleep(0.5)
            print(f"{asked.streams} on {asked.engine}: all have committed after {time.monotonic() - began:.0f} s")
            time.sleep(SETTLE_SECONDS)
            tree = processes(root, supervisor.pid)
            before, start = {one.pid: sum(one.cpu_times()[:2]) for one in tree}, time.monotonic()
            most, number = 0.0, 3
            while time.monotonic() - start < asked.seconds:
                time.sleep(1)
                for name in ("inside", "outside") if asked.live else ():
                    put(root, name, number)
                number += 1
                if number % 5 == 0 and asked.live:
                    most = max(most, sum(pss(one.pid) for one in processes(root, supervisor.pid)))
            seconds, rows = time.monotonic() - start, []
            for one in processes(root, supervisor.pid):
                if one.status() == psutil.STATUS_ZOMBIE:  # a server that was replaced
                    continue
                spent, memory = sum(one.cpu_times()[:2]) - before.get(one.pid, 0.0), pss(one.pid)
                rows.append((memory, spent))
                print(f"  {' '.join(one.cmdline())[-60:]:60} {memory:6.0f} MB {spent / seconds:7.2%}")
            total = max(most, sum(memory for memory, _ in rows))
            print(
                f"{len(tree)} processes: {total:,.0f} MB, {sum(spent for _, spent in rows) / seconds:.1%} of one core"
            )
        finally:
            for one in processes(root, supervisor.pid):
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(signal.SIGKILL)
            supervisor.wait()


def put(root: Path, source: str, number: int) -> None:
    """A file of the rows of an hour."""
    at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    rows = [f"{(at + timedelta(minutes=m)).isoformat()},{'abc'[m % 3]},{m}" for m in range(60)]
    part = root / "inbox" / source / f"{number}.csv.part"
    part.write_text("\n".join(["at,sensor,value", *rows]) + "\n")
    part.replace(part.with_suffix(""))


def processes(root: Path, supervisor: int) -> list[psutil.Process]:
    """The supervisor, what it has started, and the server."""
    tree = [psutil.Process(supervisor), *psutil.Process(supervisor).children(recursive=True)]
    with suppress(OSError, psutil.NoSuchProcess):
        server = json.loads((root / ".floodmark" / "control" / "server" / "server.json").read_text())["pid"]
        if server not in {one.pid for one in tree}:
            tree.append(psutil.Process(server))
    return tree


def pss(pid: int) -> float:
    """Proportional set size, MB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    os.environ.pop("FLOODMARK_ENVIRONMENT", None)
    main()
