"""Counts the commits of a driver in the control store, each exactly once, however drivers and the store fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from floodmark.control.processes.job import Job
from floodmark.control.state import measures
from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.observe.measure import Measure


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

    def record(self, measure: Measure) -> None:
        """Count a commit."""
        self.spans(measure)
        expected, self._next = self._next, None
        with self._surviving():
            if expected != (measure.history, measure.number):
                self._catch_up(measure)
            measures.record(self.store, self.driver.stream, measure)
            self._next = measure.history, measure.number + 1

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
