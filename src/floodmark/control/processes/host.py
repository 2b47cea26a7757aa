"""The host: a process that runs several streams of one package, each in a thread of its own, until the last one has ended."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

import psutil

from floodmark.control.processes import output
from floodmark.control.processes.engine import Computing, computing
from floodmark.control.processes.meter import Division, ShareMeter
from floodmark.control.processes.running import BEAT_SECONDS, Running, beat, log, unwanted
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.core.host import birth
from floodmark.spec.workspace import Workspace

_HEAP = ("spark.driver.memory", "2g")
"""Java's heap for several streams, unless the workspace says another."""
LOOK_SECONDS = 0.5
"""Longest time between two looks for streams that were added, or should stop."""
LINGER_SECONDS = 5.0
"""Time for which a process without streams takes others: longer than a store takes to add one."""
_MOVE_SECONDS = 60.0
"""Longest time that the other streams of a process have to come to a boundary, before the process ends because a micro-batch takes longer than its timeout."""
_UNREACHABLE_SECONDS = 60.0
"""Time for which a process whose streams have all ended waits for the store, to record that."""


@dataclass(slots=True)
class Host:
    """The streams of this process. The supervisor adds a stream by writing the process id into the stream's record.

    Args:
        store: the control store.
        first: the stream that the process was started for.
        load: deployment of a stream -> workspace of its package.
        is_lost: True if Java has ended, so that no stream can run in this process any more.
    """

    store: Store
    first: Driver
    load: Callable[[Deployment], Workspace]
    is_lost: Callable[[], bool] = lambda: False
    _streams: dict[int, Running] = field(default_factory=dict, init=False)
    """Streams whose end is not recorded yet, by driver."""
    _threads: dict[int, threading.Thread] = field(default_factory=dict, init=False)
    _ends: bool = field(default=False, init=False)
    """True if all streams should stop, and no others are taken."""
    _ends_at: float = field(default=inf, init=False)
    """Time at which the process ends, whatever its threads do, s of the monotonic clock."""
    _wakes: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue, init=False)
    """Filled by threads and signal handlers; unlike an event, it may be in use when a signal arrives."""
    _division: Division = field(default_factory=Division, init=False)
    _reported: str = field(default="", init=False)

    def run(self) -> int:
        """Run streams until the last one has ended. Returns the exit code of the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        born = birth(psutil.Process())
        self._reach(lambda: self.store.update(self.first.id, pid=os.getpid(), born=born))
        self._begin(self.first)
        beaten, used, reached = 0.0, time.monotonic(), time.monotonic()
        while True:
            now = time.monotonic()
            due = now - beaten >= BEAT_SECONDS
            if self.is_lost():
                log("Java has ended, and all streams of this process with it")
                os._exit(1)  # threads that wait for Java end in no other way
            if now > self._ends_at or (self._ends_at < inf and not self._streams):
                os._exit(1)  # as above
            if self._reach(lambda due=due: self._look(due=due)):  # type: ignore[misc]  # mypy cannot infer a default
                reached, beaten = now, now if due else beaten
            if self._streams:
                used = now
            elif self._ends or now - used > LINGER_SECONDS:
                return 0
            if now - reached > _UNREACHABLE_SECONDS and not any(thread.is_alive() for thread in self._threads.values()):
                return 1
            with suppress(queue.Empty):
                self._wakes.get(timeout=LOOK_SECONDS)

    def _end(self, *_: object) -> None:
        self._ends = True
        self._wakes.put(None)

    def _look(self, *, due: bool) -> None:
        """Begin, stop and record streams; send heartbeats if they are ``due``."""
        late = [stream for stream in self._streams.values() if stream.overdue is not None]
        if late and self._ends_at == inf:
            self._ends, self._ends_at = True, time.monotonic() + _MOVE_SECONDS
        self._take()  # closes the process first, so that a stream that is recorded as crashed does not start in it again
        for stream in late:
            stream.ended = "crashed", stream.overdue or "", None
        if due:
            self._division.measure(self._threads)
            beat(self.store, self._streams.values())
        for stream, why in unwanted(self.store, self._streams.values()):
            if why:
                stream.say(why)
            stream.stop.set()
        for number, stream in list(self._streams.items()):
            if stream.ended is not None:
                stream.record_end()
                del self._streams[number], self._threads[number]

    def _take(self) -> None:
        """Begin the streams that were added. If the process ends, refuse these, and stop all others."""
        if self._ends:
            for stream in self._streams.values():
                stream.stop.set()  # first, as the store may be gone
            self.store.close_process(os.getpid())
        for driver in self.store.assigned(os.getpid(), self.first.id):
            if driver.id not in self._streams and self._ends:
                self.store.end(driver.id, "stopped", "its process ends")
            elif driver.id not in self._streams:
                self._begin(driver)

    def _begin(self, driver: Driver) -> None:
        """Run a stream in a thread of its own."""

        def say(text: str) -> None:
            with output.into(Path(driver.log)):
                log(text)

        stream = Running(self.store, driver, ShareMeter(self._division, driver.id), say)
        stream.on_overdue = partial(self._wakes.put, None)
        self._streams[driver.id] = stream

        def run() -> None:
            try:
                with output.into(Path(driver.log)):
                    stream.run(self.load)
            except OSError as error:  # there is no log
                stream.ended = "crashed", f"{error}", None
            self._wakes.put(None)

        thread = self._threads[driver.id] = threading.Thread(target=run, name=driver.operator, daemon=True)
        thread.start()

    def _reach(self, work: Callable[[], None]) -> bool:
        """Do a piece of work with the store. Reports its errors once, and returns False: streams run without the store."""
        try:
            work()
        except FloodmarkError as error:
            if self._reported != str(error):
                log(str(error))
            self._reported = str(error)
            return False
        self._reported = ""
        return True


def serve(store: Store, first: Driver, load: Callable[[Deployment], Workspace]) -> int:
    """Run a stream, and those that join it, in this process. Returns the exit code.

    Args:
        store: the control store.
        first: record of the stream.
        load: deployment of a stream -> workspace of its package, which all these streams have in common.
    """
    output.install()
    loaded = _loaded(store, first, load)
    engine = None if isinstance(loaded, Exception) or first.kind == "delivery" else _started(loaded)

    def workspace(_: Deployment) -> Workspace:
        for outcome in (loaded, engine):
            if isinstance(outcome, Exception):
                raise outcome
        assert isinstance(loaded, Workspace)
        return loaded

    def is_lost() -> bool:
        return engine is not None and not isinstance(engine, Exception) and engine.ended

    return Host(store, first, workspace, is_lost).run()


def _loaded(store: Store, first: Driver, load: Callable[[Deployment], Workspace]) -> Workspace | Exception:
    """The workspace, or why it cannot be loaded, which each stream records. Modules are imported by the main thread, as everywhere."""
    deployment = store.deployment(first.stream)
    if deployment is None:
        return LookupError("no deployment")  # the stream reports that itself
    try:
        with output.into(Path(first.log)):
            return load(deployment)
    except Exception as error:  # noqa: BLE001 - raised again by each stream, see above
        return error


def _started(workspace: Workspace) -> Computing | Exception | None:
    """The engine, started, if it is Spark, which is this process's own; or why it does not start. Streams start the embedded engine, which processes share."""
    if workspace.settings.engine != "spark":
        return None
    settings = replace(workspace.settings, spark=(_HEAP, *workspace.settings.spark))
    engine = computing(settings, app="floodmark")
    try:
        engine.start()
    except Exception as error:  # noqa: BLE001 - raised again by each stream
        return error
    return engine
