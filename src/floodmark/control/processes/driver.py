"""The driver: a process that runs one stream from a package until SIGTERM. The supervisor starts ``python -m floodmark.control.processes.driver``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from floodmark.control.processes.job import Committed, Job, job_of
from floodmark.control.processes.meter import Meter
from floodmark.control.processes.package import load
from floodmark.control.state.records import Driver
from floodmark.control.state.store import CONTROL, Store
from floodmark.core.errors import FloodmarkError, LifecycleError

BEAT_SECONDS = 2.0
_LOOK_SECONDS = 1.0


def main(number: str, packages: str) -> int:
    """Run the stream of a driver. Returns the exit code: 0 if it was stopped, 1 if it failed.

    Args:
        number: id of the driver in the control store.
        packages: folder of packages.
    """
    store = Store(os.environ[CONTROL])
    driver, stop = store.driver(int(number)), threading.Event()
    if driver.ended_at is not None:  # the supervisor ended the record before the process started
        _log(f"driver {number} is not wanted any more: {driver.reason}")
        return 1
    ended, meter = threading.Event(), Meter()
    threading.Thread(target=_beat, args=(store, driver, meter, ended, stop), daemon=True).start()
    try:
        read_to = _run(store, driver, meter, Path(packages), stop)
    except FloodmarkError as error:
        store.end(driver.id, "crashed", str(error))
        traceback.print_exc()
        return 1
    except Exception as error:  # noqa: BLE001 - any failure is recorded, and the supervisor decides about a restart
        store.end(driver.id, "crashed", f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return 1
    finally:
        ended.set()
        _update(store, driver, usage=asdict(meter.read()))
    if read_to is not None:
        store.end(driver.id, "stopped", "nothing is left to read", read_to)
        return 0
    store.end(driver.id, "stopped", f"stopped at a {'commit' if driver.kind == 'source' else 'micro-batch'} boundary")
    return 0


def _run(store: Store, driver: Driver, meter: Meter, packages: Path, stop: threading.Event) -> Mapping[str, int] | None:
    """Run the job of a driver. Returns what the job does."""
    deployment = store.deployment(driver.stream)
    if deployment is None:
        fix = f"floodmark start {driver.operator}"
        raise LifecycleError(f"driver of '{driver.operator}'", "a deployment", "none", fix, code="LIFECYCLE-050")
    workspace = load(packages / deployment.package, deployment.environment, deployment.root, deployment.lake)
    job = job_of(workspace, deployment)
    if job.version != deployment.version:
        fix = f"Deploy it again: floodmark start {driver.operator}"
        where = f"package {deployment.package} of '{driver.operator}'"
        raise LifecycleError(where, deployment.version, job.version, fix, code="LIFECYCLE-051")

    def record_wait(text: str) -> None:
        if text:
            _log(text)
        _update(store, driver, reason=text or None)

    _stop_at(stop)
    if not _await(job, stop, record_wait):
        return None
    job.start()
    _stop_at(stop)  # Spark has replaced the signal handlers
    _update(store, driver, state="running")

    def record_commit(commit: Committed) -> None:
        _log(commit.text)
        meter.count(commit.usage)
        _update(store, driver, batch=commit.number, progress=commit.progress)

    return job.run(stop, record_commit, record_wait)


def _stop_at(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _await(job: Job, stop: threading.Event, on_wait: Callable[[str], None]) -> bool:
    """Wait until what a job needs is there. Returns False if ``stop`` was set."""
    waiting = ""
    while text := job.awaits():
        if text != waiting:
            on_wait(waiting := text)
        if stop.wait(_LOOK_SECONDS):
            return False
    if waiting:
        on_wait("")
    return True


def _beat(store: Store, driver: Driver, meter: Meter, ended: threading.Event, stop: threading.Event) -> None:
    """Send heartbeats until ``ended``. Sets ``stop`` if another driver has replaced this one or its deployment has changed.

    The supervisor may run on another machine, from which signals do not arrive.
    """
    while not ended.wait(BEAT_SECONDS):
        _update(store, driver, heard=True, usage=asdict(meter.read()))
        with suppress(FloodmarkError):  # the store is unreachable: the stream keeps running
            wanted = store.deployment(driver.stream)
            if store.driver(driver.id).ended_at is not None:
                _log("another driver has taken its place")
                stop.set()
            elif wanted is not None and (wanted.desired == "stopped" or wanted.version != driver.version):
                stop.set()


def _update(store: Store, driver: Driver, *, heard: bool = False, **values: object) -> None:
    """Update the driver's record. Logs errors: the stream keeps running without the store."""
    try:
        store.update(driver.id, heard=heard, **values)
    except FloodmarkError as error:
        _log(str(error))


def _log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
