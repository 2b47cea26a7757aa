"""The driver: a process that runs a stream from a package until SIGTERM, or a host of several. The supervisor starts ``python -m floodmark.control.processes.driver``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from floodmark.control.processes.host import serve
from floodmark.control.processes.meter import Meter
from floodmark.control.processes.package import load
from floodmark.control.processes.running import BEAT_SECONDS, Running, beat, log, unwanted
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import CONTROL, Store
from floodmark.core.errors import FloodmarkError
from floodmark.core.handlers import defer
from floodmark.spec.workspace import Workspace


def main(number: str, packages: str) -> int:
    """Run the stream of a driver, and further ones if the driver shares its process. Returns the exit code: 0 if it was stopped, 1 if it failed.

    Args:
        number: id of the driver in the control store.
        packages: folder of packages.
    """
    store = Store(os.environ[CONTROL])
    driver = store.driver(int(number))
    if driver.ended_at is not None:  # the supervisor ended the record before the process started
        log(f"driver {number} is not wanted any more: {driver.reason}")
        return 1

    def workspace(deployment: Deployment) -> Workspace:
        package = Path(packages) / deployment.package
        return load(package, deployment.environment, deployment.root, deployment.lake)

    if driver.shares is not None:
        return serve(store, driver, workspace)
    stream, over = Running(store, driver, Meter(), log), threading.Event()
    stream.on_overdue = partial(_end_overdue, stream)
    threading.Thread(target=_beat, args=(stream, over), daemon=True).start()
    try:
        stream.run(workspace, lambda: _stop_at(stream.stop))  # again after the start, as Spark replaces signal handlers
    finally:
        over.set()
    stream.record_end()
    return 0 if stream.ended is not None and stream.ended[0] == "stopped" else 1


def _stop_at(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: defer(stop.set))


def _end_overdue(stream: Running) -> None:
    """Record that a micro-batch took longer than its timeout, and end this process."""
    stream.ended = "crashed", stream.overdue or "", None
    with suppress(FloodmarkError):  # the store is unreachable: the supervisor finds the process gone
        stream.record_end()
    os._exit(1)  # threads that hang end in no other way


def _beat(stream: Running, over: threading.Event) -> None:
    """Send heartbeats until ``over``, and stop the stream if it is not wanted any more."""
    while not over.wait(BEAT_SECONDS):
        with suppress(FloodmarkError):  # the store is unreachable: the stream keeps running
            beat(stream.store, [stream])
            for _, why in unwanted(stream.store, [stream]):
                if why:
                    log(why)
                stream.stop.set()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
