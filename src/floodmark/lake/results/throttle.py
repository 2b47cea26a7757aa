"""Throttles a backfill for the sake of the streams beside it: between asset partitions it waits while one of them lags too far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from floodmark.core.errors import LifecycleError
from floodmark.core.time import NEVER, Interval, describe_span
from floodmark.lake.folder.locks import holder
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.budget import Budget
from floodmark.spec.windowing.partitions import split

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Decides when the next asset partition of a backfill may be computed.

    Args:
        operator: the operator that is computed.
        lake: the lake of its tables.
        budget: the limits; only ``lag`` matters here.
        say: called with a line when a wait begins.
        stop: when set, a wait ends with an error.
        running: () of an operator -> True if its stream is at work: one that is not never catches up.
    """

    operator: Operator
    lake: Lake
    budget: Budget
    say: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    running: Callable[[Lake, str], bool] | None = None

    def pieces(self, missing: Sequence[Interval]) -> list[Interval]:
        """The stretches to compute, cut at the ends of asset partitions: between them the run may wait."""
        cut = self.operator.partitions
        if cut is None or self.operator.reads_history or self.operator.spans_interval:
            return list(missing)
        return [
            Interval(start=max(part.start, stretch.start), end=min(part.end, stretch.end))
            for stretch in missing
            for _, part in ([("", stretch)] if stretch.everything else split(cut, stretch))
        ]

    def wait(self) -> None:
        """Wait until no stream lags more than the budget allows.

        Raises:
            LifecycleError: LIFECYCLE-206, the run was stopped meanwhile.
        """
        announced = False
        while (behind := self._behind()) is not None:
            if not announced:
                self.say(behind)
                announced = True
            if self.stop.wait(_POLL_SECONDS):
                where, fix = (
                    f"backfill of '{self.operator.name}'",
                    "Launch it again: it goes on behind what it has computed.",
                )
                raise LifecycleError(
                    where, "to go on", "a stop while it waited for a stream", fix, code="LIFECYCLE-206"
                )

    def _behind(self) -> str | None:
        """The stream that lags too far, for people; None for none."""
        running = self.running or _at_work
        for operator in with_upstream(self.operator) if self.budget.lag is not None else ():
            behind = lag(operator, self.lake)
            if behind > (self.budget.lag or 0) and running(self.lake, operator.name):
                allowed = describe_span(self.budget.lag or 0)
                return f"waiting: the stream of '{operator.name}' lags {describe_span(behind)}, more than {allowed}"
        return None


def with_upstream(operator: Operator) -> Iterator[Operator]:
    """An operator and all operators whose outputs reach it, each once."""
    every, waiting = set[str](), [operator]
    while waiting:
        writer = waiting.pop()
        if writer.name not in every:
            every.add(writer.name)
            yield writer
            waiting += [input_.upstream.operator for input_ in writer.inputs if input_.upstream is not None]


def lag(operator: Operator, lake: Lake) -> int:
    """The event time by which an operator's stream is behind its inputs, ms; 0 without a stream or without rows."""
    written = history.progress(lake.output(operator.outputs[0].table))
    reached = [history.progress(lake.input(input_)) for input_ in operator.inputs]
    known = [NEVER if progress is None else progress for progress in reached]
    if written is None or written <= NEVER or not known:
        return 0
    return max(0, min(known) - written)


def _at_work(lake: Lake, operator: str) -> bool:
    return holder(lake, "operators", operator) is not None
