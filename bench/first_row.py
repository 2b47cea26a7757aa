"""From the start of a process to its first rows, on the embedded engine: those that a stream, a bounded run and a landing commit, and those that ``floodmark sql`` prints.

    python bench/first_row.py [PROCESSES] [--only sql,stream]

Each is a process of its own, with nothing running before it: imports, the start of the server and the definition of the operator are part of it. Python
has compiled the modules before, as after the first run of an installation. The input is 1,000 rows of 100 keys, as in ``micro_batch``; that of ``sql`` are the orders of the shop that ``floodmark init`` makes. Wall seconds, and
CPU seconds of the process and its server, which a busy machine changes less; of ``sql`` those until both have ended.
"""

from __future__ import annotations

import argparse
import compileall
import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent


def stream(folder: str) -> None:
    """Until the first micro-batch is committed."""
    sail = _sail()
    from micro_batch import one

    from floodmark.engines.embedded.unbounded.run import run_unbounded
    from floodmark.lake.folder.paths import Lake

    run_unbounded(sail, one, Lake(folder), until_caught_up=True, on_batch=lambda _: told())
    sail.close()


def bounded(folder: str) -> None:
    """Until the results are committed."""
    sail = _sail()
    from micro_batch import one

    from floodmark.engines.embedded.bounded.run import run_bounded
    from floodmark.lake.folder.paths import Lake

    run_bounded(sail, one, Lake(folder))
    told()
    sail.close()


def landing(folder: str) -> None:
    """Until the first file has landed."""
    from micro_batch import Event

    from floodmark import BoundedOutOfOrderness, Files, Source
    from floodmark.engines.embedded.landing.run import land
    from floodmark.lake.folder.paths import Lake

    connector, watermark = Files(str(Path(folder, "inbox"))), BoundedOutOfOrderness("1 minute")
    source = Source("landed", contract=Event, connector=connector, watermark=watermark)
    land(_sail, source, Lake(folder), on_commit=lambda _: told())


def _sail():
    """A server that starts while the rest is imported."""
    from floodmark.engines.embedded.sail.session import Sail

    gc.set_threshold(50_000, 20, 20)  # as the command line does
    sail = Sail()
    sail.begin()
    return sail


def told() -> None:
    """Say how long it took."""
    import psutil

    me = psutil.Process()
    cpu = sum(sum(one.cpu_times()[:2]) for one in (me, *me.children()))
    print(time.time() - me.create_time(), cpu, flush=True)


MODES: dict[str, Callable[[str], None]] = {"stream": stream, "bounded": bounded, "landing": landing}


ALL = (*MODES, "sql")
PROGRAM = (sys.executable, "-c", "from floodmark.cli.main import main; main()")
"""The command line, as its installed script has it."""


def shop(folder: str) -> None:
    """A workspace whose orders have landed."""
    subprocess.run([*PROGRAM, "init", folder], check=True, capture_output=True)
    subprocess.run([*PROGRAM, "land", "orders"], check=True, capture_output=True, cwd=folder)


def asked(folder: str) -> tuple[float, float]:
    """Seconds from the start of ``floodmark sql`` to its first line, and CPU seconds of the whole command."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    words = (*PROGRAM, "sql", "SELECT * FROM orders LIMIT 5")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        taken = time.perf_counter() - began
        running.communicate()
    assert first
    assert running.returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def make(folder: str) -> None:
    """A log, and a file that is to land."""
    import pyarrow.parquet as pq
    from micro_batch import commit, one

    from floodmark.lake.folder.paths import Lake
    from floodmark.testing.lakes import append

    append(Lake(folder).input(one.inputs[0]), commit(0))
    Path(folder, "inbox").mkdir(parents=True)
    pq.write_table(commit(0).select(["at", "key", "value"]), Path(folder, "inbox", "events.parquet"))


def main() -> None:
    """Measure all of them, in turn."""
    import floodmark

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("processes", type=int, nargs="?", default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ALL))
    options = parser.parse_args()
    for folder in (HERE, *floodmark.__path__):  # also where processes write no compiled code
        compileall.compile_dir(folder, quiet=1)
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in options.only}
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as place:
        if "sql" in found:
            shop(f"{place}/shop")
            asked(f"{place}/shop")
        for turn in range(options.processes):
            for mode, seconds in found.items():
                if mode == "sql":
                    seconds.append(asked(f"{place}/shop"))
                    continue
                make(folder := f"{place}/{mode}-{turn}")
                command = [sys.executable, str(HERE / "first_row.py"), mode, folder]
                wall, cpu = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[:2]
                seconds.append((float(wall), float(cpu)))
    for mode, seconds in found.items():
        wall, cpu = zip(*seconds, strict=True)
        print(
            f"{mode}: least {min(wall):.2f}, median {statistics.median(wall):.2f} s; CPU {statistics.median(cpu):.2f} s"
        )


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in MODES:
        MODES[sys.argv[1]](sys.argv[2])
    else:
        main()
