"""A case on the embedded engine: an operator runs over a hand-written log in a Delta table; its output tables are the result."""

from __future__ import annotations

from floodmark.core.time import Interval
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import shared
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.spec.values.run import RunResult
from floodmark.testing.lakes import LakeCase


class EmbeddedCase(LakeCase):
    """One operator on the embedded engine, with a lake of its own; all cases of a process share one server.

    Args:
        operator: reads logs only.
        folder: of the lake, empty.
    """

    def run_unbounded(self, clock: int | None = None) -> RunResult:
        """Run unbounded until the stream has caught up.

        Args:
            clock: processing time to run at, ms; the machine's by default.
        """
        return run_unbounded(shared(), self.operator, self.lake, until_caught_up=True, clock=clock)

    def run_bounded(self, interval: Interval | None = None) -> RunResult:
        """Run bounded over an interval, by default all of time."""
        return run_bounded(shared(), self.operator, self.lake, interval)
