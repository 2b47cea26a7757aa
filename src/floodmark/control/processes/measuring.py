"""Counts the commits of a driver in the control store, each exactly once, however drivers and the store fail, and beside the stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from deltalake.exceptions import DeltaError

from floodmark.control.processes.job import Job
from floodmark.control.state import measures
from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.observe.measure import Committed, Measure


@dataclass(slots=True)
class Measuring:
    """Counts the commits of one driver.

    A commit that was not counted, because a driver was killed or the store was unreachable, is counted with the next one: tables name all commits.

    Args:
        store: the control store.
        driver: the driver.
        job: what the driver runs.
        say: called with failures of the store; the stream keeps running.
        spans: called with each commit that the driver reports.
    """

    store: Store
    driver: Driver
    job: Job
    say: Callable[[str], None]
    spans: Callable[[Measure], None] = lambda _: None
    _next: tuple[str, int] | None = None
    """History and number of the next commit if none is missing; None if that is unknown."""

    def begin(self) -> None:
        """Count the start of the driver, and commits that an earlier driver did not count."""
        with self._surviving():
            measures.count_start(self.store, self.driver)
            measures.describe(self.store, self.driver.stream, self.job.graph)
            self._catch_up(None)

    def record(self, *commits: Measure) -> None:
        """Count commits, oldest first; those that follow on each other in one transaction."""
        for measure in commits:
            self.spans(measure)
        expected, self._next = self._next, None
        with self._surviving():
            for following in _following(commits):
                first, last = following[0], following[-1]
                if expected != (first.history, first.number):
                    self._catch_up(first)
                measures.record(self.store, self.driver.stream, *following)
                expected = last.history, last.number + 1
            self._next = expected

    def _catch_up(self, before: Measure | None) -> None:
        """Count the commits that tables name and the store does not, before one that is about to be counted; all if that is None."""
        counted = measures.measured(self.store, self.driver.stream, limit=0)
        missed = self.job.missed(counted.history, counted.number)
        if before is not None:
            missed = [one for one in missed if one.number < before.number]
        measures.record(self.store, self.driver.stream, *missed)

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Report failures of the store and the lake: the stream keeps running, and the next commit catches up."""
        try:
            yield
        except (FloodmarkError, DeltaError, OSError) as error:
            self.say(f"not counted: {error}")


def _following(commits: Sequence[Measure]) -> Iterator[Sequence[Measure]]:
    """Commits, cut where one is not the next of its history."""
    first = 0
    for index, (before, after) in enumerate(pairwise(commits), start=1):
        if (after.history, after.number) != (before.history, before.number + 1):
            yield commits[first:index]
            first = index
    if commits:
        yield commits[first:]


@dataclass(slots=True)
class Recorder:
    """Records the commits of a stream in a thread of its own, so that the stream goes on meanwhile, however long the control store takes.

    A context manager: at its end all commits are recorded. What a killed process has not recorded is recorded by the next start, from the commits of
    the tables.

    Args:
        record: called with commits, oldest first: all those that have come since the call before.
    """

    record: Callable[[Sequence[Committed]], None]
    _waiting: queue.SimpleQueue[Committed | None] = field(default_factory=queue.SimpleQueue, init=False)
    """Commits that are not recorded yet; None behind the last one."""
    _thread: threading.Thread = field(init=False)
    _failure: BaseException | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait until all commits are recorded. Raises what recording one has failed with; a stream that has failed itself has this as a note of its error."""
        self._waiting.put(None)
        self._thread.join()
        if error is None:
            self._check()
        elif self._failure is not None and self._failure is not error:
            error.add_note(f"Recording its commits has failed too: {type(self._failure).__name__}: {self._failure}")

    def put(self, commit: Committed) -> None:
        """Record a commit soon. Raises what recording an earlier one has failed with."""
        self._check()
        self._waiting.put(commit)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        last = False
        while not last:
            came = [self._waiting.get()]
            while not self._waiting.empty():
                came.append(self._waiting.get())
            last = None in came
            commits = [one for one in came if one is not None]
            try:
                if commits and self._failure is None:
                    self.record(commits)
            except BaseException as error:  # noqa: BLE001 - an exception in a thread reaches no caller
                self._failure = error
