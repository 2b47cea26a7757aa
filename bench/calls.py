"""Calls of a service on the loopback that is slow and fails now and then, by a stream that is killed with ``kill -9`` on its way: rows per second, order, answers, replays.

    python bench/calls.py [--rows 10000] [--latency 0.2] [--failing 5] [--concurrency 100]

The process is killed once the service has had half of the calls, and another one goes on. Then a bounded run over the same rows must call nobody. A row that was under
way when the process died is asked about again, with the same key: such calls are counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from answering import Service, fetched
from events import START, Event

from floodmark import Contract, Operator, Stream, operator
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

COMMITS = 10


class Doubled(Contract):
    """What the service says."""

    value: int
    doubled: int


def asking(port: int, concurrency: int) -> Operator:
    """Every row's answer."""

    async def double(row, request):
        return {"value": row["value"], **await fetched(port, row["value"], request.key)}

    @operator(name="doubles")
    def doubles(events: Stream[Event]) -> Stream:
        return events.call(double, Doubled, concurrency=concurrency, timeout="5 seconds", version="1")

    return doubles


def stream(folder: str, port: int, concurrency: int) -> None:
    """The stream, in a process of its own."""
    sail = Sail(300)
    run_unbounded(sail, asking(port, concurrency), Lake(folder), until_caught_up=True, files_per_batch=1)
    sail.close()


def _answers(lake: Lake, code: Operator) -> list[tuple[int, int]]:
    """Rows of the result, in its order."""
    rows = outputs(lake, code)[""].sort_by("_sequence")
    rows = rows.filter(pc.equal(rows["_kind"], ROW))
    return list(zip(rows["value"].to_pylist(), rows["doubled"].to_pylist(), strict=True))


def main() -> None:
    """Land rows, run, kill, run again, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--failing", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--stream", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream(options.stream[0], int(options.stream[1]), options.concurrency)
        return
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder,
        Service(options.latency, options.failing) as service,
    ):
        lake, code = Lake(f"{folder}/lake"), asking(service.port, options.concurrency)
        log = Log(code.inputs[0].schema)
        log.rows(({"at": START + timedelta(seconds=n), "key": "a", "value": n} for n in range(options.rows)), "at", 0)
        log.end()
        for first, last in pairwise(len(log.entries) * n // COMMITS for n in range(COMMITS + 1)):
            land(lake, code, log, first, last)
        service.notify = options.rows // 2
        command = [
            sys.executable,
            __file__,
            "--concurrency",
            str(options.concurrency),
            "--stream",
            lake.root,
            str(service.port),
        ]
        began = time.monotonic()
        killed = subprocess.Popen(command, start_new_session=True)
        assert service.reached.wait(280), "the service had too few calls"
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        subprocess.run(command, check=True)
        seconds, calls = time.monotonic() - began, service.calls.copy()
        again = sum(calls.values()) - len(calls) - sum(map(service.refuses, map(str, range(options.rows))))
        assert len(calls) == options.rows, "a row has one key, whichever process asks about it"
        assert 0 <= again <= 2 * options.rows // COMMITS, again
        expected = [(n, 2 * n) for n in range(options.rows)]
        assert _answers(lake, code) == expected
        sail = Sail(300)
        run_bounded(sail, code, lake, force=True)
        sail.close()
        assert _answers(lake, code) == expected
        assert service.calls == calls, "a replay has called"
    print(
        f"{options.rows:,} rows, {options.latency * 1000:.0f} ms each, {options.failing} % refused once, {options.concurrency} at a time: {seconds:,.1f} s with a kill -9 and a start, "
        f"{options.rows / seconds:,.0f} rows/s; in order, each answered once; {again:,} rows asked about again after the kill; a replay asked about none"
    )


if __name__ == "__main__":
    main()
