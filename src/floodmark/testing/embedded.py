"""A case on the embedded engine: a log written by hand as a Delta table, an operator run over it, what its tables hold."""

from __future__ import annotations

from floodmark.core.time import Interval
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.session import shared
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.spec.run import RunResult
from floodmark.testing.lakes import LakeCase


class EmbeddedCase(LakeCase):
    """One operator on the embedded engine, with a lake of its own; all of a process share one server.

    Args:
        operator: reads logs only.
        folder: of the lake, empty.
    """

    def run_unbounded(self, clock: int | None = None) -> RunResult:
        """As a stream, until it has caught up.

        Args:
            clock: processing time to run at, ms; the machine's by default.
        """
        return run_unbounded(shared(), self.operator, self.lake, until_caught_up=True, clock=clock)

    def run_bounded(self, interval: Interval | None = None) -> RunResult:
        """Over an interval, by default all of time."""
        return run_bounded(shared(), self.operator, self.lake, interval)
