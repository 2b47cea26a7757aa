"""Where the start of a stream on a cluster spends its time, by phases: PYTHONPATH=.:tests/support python bench/cluster_start.py.

    python bench/cluster_start.py [--master cluster | local] [--lake bucket | disk] [--archived] [--times 2]

The stream of ``floodmark init shop`` runs until it has caught up, in two micro-batches, as the verb ``run`` does: on a standalone cluster of two workers of one core each, or on ``local[2]``.
A row of the table is what happens until an event: seconds of the clock, and seconds of processors of the driver's Python and Java, of the executors' Java, of their Python,
of the cluster's own processes with the store, and requests to the store. The load of the machine is printed beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
import s3_server
import verb_costs

KINDS = ("driver", "driver's Java", "executors' Java", "executors' Python", "cluster and store")
_MARK = "-- mark "
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


# ---- the driver, in a process of its own


def driver(words: list[str]) -> None:
    """Run a verb, and tell on stdout when each phase has ended."""
    _tell("Python has started")
    from floodmark.cli import main as program

    _tell("the program is loaded")
    from pyspark import SparkContext

    from floodmark.engines.spark.session import builder, cluster
    from floodmark.engines.spark.unbounded import run, sink

    _tell_after(builder, "_launch", "Java of the driver answers")
    _tell_after(SparkContext, "_initialize_context", "the application is registered")
    _tell_after(builder, "await_first", "an executor is connected")
    _tell_after(cluster, "_ask", "workers have answered")
    _tell_after(builder, "spark_session", "the session is there")
    _tell_after(run, "check_start", "the start is checked")
    _tell_after(run, "_prepare", "tables and checkpoint are open")
    _tell_after(run, "_streaming", "the query is composed")
    _tell_after(run, "_start", "the query has started")
    _tell_after(sink.Sink, "_evaluated", "rows of a micro-batch are computed", before="Spark has planned a micro-batch")
    _tell_after(sink.Sink, "__call__", "its tables are written")
    _tell_after(run, "_wait", "micro-batches are done")
    _tell_after(run, "_run", "last values are merged")
    sys.argv = ["floodmark", *words]
    try:
        program.main()
    finally:
        _tell("the verb is done")


def _tell(what: str) -> None:
    sys.stdout.write(f"{_MARK}{what}\n")
    sys.stdout.flush()


def _tell_after(owner: Any, name: str, what: str, *, before: str = "") -> None:
    """Tell when a function has returned, and with ``before`` when it is called."""
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def telling(*arguments: Any, **options: Any) -> Any:
        if before:
            _tell(before)
        result = function(*arguments, **options)
        _tell(what)
        return result

    setattr(owner, name, telling)


# ---- what is measured


@dataclass(frozen=True, slots=True)
class Phase:
    """What was used between two events.

    Args:
        until: the event at its end.
        seconds: of the clock.
        processor: kind of process -> seconds of processors.
        requests: to the store.
    """

    until: str
    seconds: float
    processor: Counter[str]
    requests: int


def _used(driver_pid: int, others: set[int]) -> Counter[str]:
    """Kind of process -> seconds of processors used so far, by all that are alive and what they have waited for.

    Args:
        driver_pid: of the driver's Python.
        others: ids of the processes of cluster and store.
    """
    used: Counter[str] = Counter()
    for process in psutil.process_iter():
        try:
            kind = _kind(process, driver_pid, others)
            if kind is None:
                continue
            times = process.cpu_times()
            ended = times.children_user + times.children_system if kind == "executors' Python" else 0.0
            used[kind] += times.user + times.system + ended
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return used


def _kind(process: psutil.Process, driver_pid: int, others: set[int]) -> str | None:
    above = [process.pid, *(parent.pid for parent in process.parents())]
    words = process.cmdline()
    is_java = bool(words) and words[0].endswith("/java")
    if driver_pid in above:
        if process.pid == driver_pid:
            return KINDS[0]
        return KINDS[1] if is_java else KINDS[3]
    if not others.intersection(above):
        return None
    if is_java and _EXECUTOR in words:
        return KINDS[2]
    return KINDS[4] if process.pid in others or is_java else KINDS[3]


def phases(shop: verb_costs.Shop, proxy: s3_server.Proxy, others: set[int]) -> Iterator[Phase]:
    """The phases of one start, in turn.

    Args:
        shop: in which the stream runs.
        proxy: before the store.
        others: ids of the processes of cluster and store.
    """
    proxy.plan()
    words = ["--lake", f"{shop.lakes}/lake", *verb_costs.STREAM]
    began, requests, used = time.perf_counter(), 0, Counter[str]()
    used_by_others = _used(-1, others)
    process = subprocess.Popen(
        [sys.executable, __file__, "--driver", *words],
        cwd=shop.folder,
        env={**shop.environment, "PYTHONPATH": str(Path(s3_server.__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reading = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
    reading.start()
    for line in process.stdout:
        if not line.startswith(_MARK):
            continue
        now, until = time.perf_counter(), line.removeprefix(_MARK).strip()
        after = _used(process.pid, others)
        after.subtract(used_by_others)
        asked = len(proxy.requests())
        yield Phase(until, now - began, Counter({kind: after[kind] - used[kind] for kind in KINDS}), asked - requests)
        began, used, requests = now, after, asked
    if process.wait():
        reading.join()
        raise SystemExit("".join(errors))
    yield Phase("its Java is gone", time.perf_counter() - began, Counter(), len(proxy.requests()) - requests)


@contextmanager
def _shop(options: argparse.Namespace) -> Iterator[tuple[verb_costs.Shop, s3_server.Proxy, set[int]]]:
    """A shop, the proxy before its store, and ids of the processes of cluster and store."""
    column = "cluster" if options.master == "cluster" else "bucket" if options.lake == "bucket" else "disk"
    with (
        s3_server.running() as server,
        s3_server.proxied(server) as proxy,
        verb_costs.opened(column, server, proxy, cores=2, archived=options.archived) as (shop, cluster),
    ):
        lakes = shop.lakes if options.lake == "bucket" else str(shop.folder.parent / "lakes")
        processes = {server.pid, proxy.pid, *(cluster.pids if cluster else ())}
        yield replace(shop, lakes=lakes), proxy, processes


def started(shop: verb_costs.Shop, number: int, proxy: s3_server.Proxy, others: set[int]) -> list[Phase]:
    """The phases of a start in a lake of its own, into which rows have landed."""
    own = replace(shop, lakes=f"{shop.lakes}/{number}")
    landed = replace(own, environment={**shop.environment, "FLOODMARK_ENGINE": "embedded"}).call(*verb_costs.LAND)
    assert landed.returncode == 0, landed.stderr
    return list(phases(replace(own, environment={**shop.environment, "FLOODMARK_ENGINE": "spark"}), proxy, others))


def main() -> None:
    """Measure, and print a table of Markdown for each start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--master", choices=["cluster", "local"], default="cluster")
    parser.add_argument("--lake", choices=["bucket", "disk"], default="bucket")
    parser.add_argument("--archived", action="store_true", help="executors use the class archive of this user")
    parser.add_argument("--times", type=int, default=2)
    options = parser.parse_args()
    with _shop(options) as (shop, proxy, others):
        for number in range(options.times):
            _print(started(shop, number, proxy, others))


def _print(start: list[Phase]) -> None:
    whole = Phase(
        "all",
        sum(phase.seconds for phase in start),
        sum((phase.processor for phase in start), Counter()),
        sum(phase.requests for phase in start),
    )
    print(f"\nload {os.getloadavg()[0]:.1f}")
    print("| until | clock, s | " + " | ".join(KINDS) + " | requests |\n" + "|---" * (len(KINDS) + 3) + "|")
    for phase in (*start, whole):
        cells = " | ".join(f"{phase.processor[kind]:.1f}" for kind in KINDS)
        print(f"| {phase.until} | {phase.seconds:.1f} | {cells} | {phase.requests} |")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--driver"]:
        driver(sys.argv[2:])
    else:
        main()
