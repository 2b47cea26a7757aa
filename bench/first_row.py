"""From the start of a process to its first committed rows, on the embedded engine: a stream, a bounded run, and a landing.

    python bench/first_row.py [PROCESSES]

Each is a process of its own, with nothing running before it: imports, the start of the server and the definition of the operator are part of it. Python
has compiled the modules before, as after the first run of an installation. The input is 1,000 rows of 100 keys, as in ``micro_batch``. Wall seconds, and
CPU seconds of the process and its server, which a busy machine changes less.
"""

from __future__ import annotations

import compileall
import gc
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


def make(folder: str) -> None:
    """A log, and a file that is to land."""
    import pyarrow.parquet as pq
    from micro_batch import commit, one

    from floodmark.lake.folder.paths import Lake
    from floodmark.testing.lakes import append

    append(Lake(folder).input(one.inputs[0]), commit(0))
    Path(folder, "inbox").mkdir()
    pq.write_table(commit(0).select(["at", "key", "value"]), Path(folder, "inbox", "events.parquet"))


def main() -> None:
    """Measure all of them, in turn."""
    import floodmark

    for folder in (HERE, *floodmark.__path__):  # also where processes write no compiled code
        compileall.compile_dir(folder, quiet=1)
    count = next((int(text) for text in sys.argv[1:] if text.isdecimal()), 5)
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for _ in range(count):
        for mode in MODES:
            with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
                make(folder)
                command = [sys.executable, str(HERE / "first_row.py"), mode, folder]
                wall, cpu = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[:2]
                found[mode].append((float(wall), float(cpu)))
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
