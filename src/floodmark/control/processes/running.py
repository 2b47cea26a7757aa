"""Streams that run in this process: their jobs, and their records in the control store."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from floodmark.control.processes.job import Job, job_of
from floodmark.control.processes.measuring import Measuring, Recorder
from floodmark.control.processes.meter import Metering
from floodmark.control.state.records import COMMITS, Deployment, Driver, State
from floodmark.control.state.store import Store
from floodmark.core.errors import ExecutionError, FloodmarkError, LifecycleError
from floodmark.observe.measure import Committed, Measure
from floodmark.observe.tracing import spans
from floodmark.spec.workspace import Workspace

BEAT_SECONDS = 2.0
"""Time between two heartbeats of a stream."""
_LOOK_SECONDS = 1.0
_HELD = "LIFECYCLE-003"
"""Code of the error that another process, or another stream of this one, holds the lock of a stream."""


@dataclass(slots=True)
class Running:
    """A stream that runs in this process until it is stopped.

    Args:
        store: the control store.
        driver: record of the stream's run.
        meter: measures its usage.
        say: writes a line to the log of the stream; commits are written by threads of the engine, too.
        stop: set to stop the stream at its next micro-batch boundary.
        on_overdue: called in another thread once ``overdue`` is set; has to end the process, as nothing else ends what hangs in the stream.
    """

    store: Store
    driver: Driver
    meter: Metering
    say: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    on_overdue: Callable[[], None] | None = None
    overdue: str | None = field(default=None, init=False)
    """Why the stream has crashed, if a micro-batch takes longer than its timeout; None otherwise."""
    ended: tuple[State, str, Mapping[str, int] | None] | None = field(default=None, init=False)
    """How the run has ended: as the arguments of ``Store.end``; None while the stream runs."""

    def run(self, load: Callable[[Deployment], Workspace], on_start: Callable[[], None] = lambda: None) -> None:
        """Run the stream, whatever happens. Sets ``ended``.

        Args:
            load: deployment of the stream -> workspace of its package.
            on_start: called before the job waits for its inputs, and again once its engine has started.
        """
        try:
            read_to = self._run(load, on_start)
        except FloodmarkError as error:
            traceback.print_exc()
            self.ended = "crashed", str(error), None
        except BaseException as error:  # noqa: BLE001 - any failure is recorded, and the supervisor decides about a restart
            traceback.print_exc()
            self.ended = "crashed", f"{type(error).__name__}: {error}", None
        else:
            if self.overdue is not None:
                self.ended = "crashed", self.overdue, None
                return
            boundary = f"stopped at a {COMMITS[self.driver.kind]} boundary"
            self.ended = "stopped", boundary if read_to is None else "nothing is left to read", read_to

    def record_end(self) -> None:
        """Record the usage and the end of the run.

        Raises:
            SetupError: SETUP-040, the store cannot be reached or written.
        """
        assert self.ended is not None
        self.store.update(self.driver.id, usage=asdict(self.meter.read()))
        self.store.end(self.driver.id, *self.ended)

    def _run(self, load: Callable[[Deployment], Workspace], on_start: Callable[[], None]) -> Mapping[str, int] | None:
        """Run the job of the stream. Returns what the job does."""
        driver = self.driver
        deployment = self.store.deployment(driver.stream)
        if deployment is None:
            fix = f"floodmark start {driver.operator}"
            raise LifecycleError(f"driver of '{driver.operator}'", "a deployment", "none", fix, code="LIFECYCLE-050")
        job = job_of(load(deployment), deployment, None if self.on_overdue is None else self._crash_overdue)
        if job.version != deployment.version:
            fix = f"Deploy it again: floodmark start {driver.operator}"
            where = f"package {deployment.package} of '{driver.operator}'"
            raise LifecycleError(where, deployment.version, job.version, fix, code="LIFECYCLE-051")
        measuring = Measuring(self.store, driver, job, self.say, _spans(deployment, self.say))
        measuring.begin()
        on_start()
        while await_job(job, self.stop, self._record_wait):
            try:
                job.start()
                on_start()
                self._update(state="running", reason=None)
                with Recorder(partial(self._record, measuring)) as recorder:
                    return job.run(self.stop, partial(self._count, recorder), self._record_wait)
            except LifecycleError as error:
                if error.code != _HELD:
                    raise
                self._record_wait(f"waiting: {error.where}: expected {error.expected}, got {error.got}")
                self.stop.wait(_LOOK_SECONDS)
        return None

    def _crash_overdue(self, error: ExecutionError, stack: str) -> None:
        assert self.on_overdue is not None
        self.say(f"{stack}{error}")
        self.overdue = str(error)
        self.stop.set()
        self.on_overdue()

    def _record_wait(self, text: str) -> None:
        if text:
            self.say(text)
        self._update(reason=text or None)

    def _count(self, recorder: Recorder, commit: Committed) -> None:
        self.say(commit.text)
        self.meter.count(commit.usage)
        recorder.put(commit)

    def _record(self, measuring: Measuring, commits: Sequence[Committed]) -> None:
        measuring.record(*(commit.measure for commit in commits))
        self._update(batch=commits[-1].number, progress=commits[-1].progress)

    def _update(self, **values: Any) -> None:
        """Update the record. Logs errors: the stream keeps running without the store."""
        try:
            self.store.update(self.driver.id, **values)
        except FloodmarkError as error:
            self.say(str(error))


def _spans(deployment: Deployment, say: Callable[[str], None]) -> Callable[[Measure], None]:
    """As ``spans``, for a stream."""
    kind = "landing commit" if deployment.kind == "source" else COMMITS[deployment.kind]
    about = {name: getattr(deployment, name) for name in ("operator", "version", "environment", "lake")}
    return spans(f"{kind} {deployment.operator}", about, say)


def await_job(job: Job, stop: threading.Event, on_wait: Callable[[str], None]) -> bool:
    """Wait until what a job needs is there. Returns False if ``stop`` was set."""
    waiting = ""
    while text := job.awaits():
        if text != waiting:
            on_wait(waiting := text)
        if stop.wait(_LOOK_SECONDS):
            return False
    if waiting:
        on_wait("")
    return not stop.is_set()


def beat(store: Store, streams: Iterable[Running]) -> None:
    """Send a heartbeat of each stream, with its usage.

    Raises:
        SetupError: SETUP-040, the store cannot be reached or written.
    """
    store.hear({stream.driver.id: asdict(stream.meter.read()) for stream in streams})


def unwanted(store: Store, streams: Iterable[Running]) -> list[tuple[Running, str]]:
    """Those streams that should stop, as another driver has replaced them or their deployment has changed; with a line for their log, if any.

    The supervisor may run on another machine, from which signals do not arrive.

    Raises:
        SetupError: SETUP-040, the store cannot be reached.
    """
    by_id = {stream.driver.id: stream for stream in streams if not stream.stop.is_set()}
    return [(by_id[number], why) for number, why in store.unwanted(by_id).items()] if by_id else []


def log(text: str) -> None:
    """Write a line to the output of this process, or of the stream that the thread belongs to."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
