"""The asset partitions of an operator with their states: which a bounded run would compute, which it would leave, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from floodmark.core.time import NEVER, Interval, Intervals
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates
from floodmark.lake.results.frozen import frozen
from floodmark.lake.results.own_stream import Shortfall, left_to_stream
from floodmark.lake.results.readiness import coverage, shortfalls
from floodmark.lake.table import entries, history
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows
from floodmark.spec.windowing.partitions import Partitions, split

State = Literal["missing", "stale", "covered", "stream"]
"""``missing``: nothing has computed it; ``stale``: computed, and its code or inputs have changed since; ``covered``: computed, a run leaves it;
``stream``: written by the operator's stream, a run computes it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An asset partition.

    Args:
        key: its name.
        interval: its event time.
        state: what a bounded run would find.
        open: True if its results may still change, as an input is not complete up to its end or its own stream has yet to write it.
        frozen: True if nothing rewrites it until it is thawed.
        gated: True if a closed gate of an input holds its computation, and it is not covered.
    """

    key: str
    interval: Interval
    state: State
    open: bool
    frozen: bool
    gated: bool

    @property
    def computable(self) -> bool:
        """True if nothing has computed it, and a bounded run can: for good, and at once."""
        return self.state == "missing" and not (self.open or self.frozen or self.gated)


def parts(
    operator: Operator,
    partitions: Partitions,
    lake: Lake,
    interval: Interval,
    *,
    late_rows: LateRows = "as_landed",
    since: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Part]:
    """The asset partitions that overlap an interval, in order.

    Args:
        operator: the operator.
        partitions: how its event time is cut.
        lake: the lake of its tables.
        interval: the event time of interest.
        late_rows: the treatment of late rows that a computation must have used to count.
        since: input table -> event time, ms, before which the table is never computed.

    Raises:
        ExecutionError: EXECUTION-002, an input has no table.
    """
    covered, stale = Intervals(), Intervals()
    if entries.is_table(lake.output(operator.outputs[0].table)):
        for segment in coverage(operator, lake, interval, late_rows=late_rows):
            (stale if segment.stale else covered).add(segment.interval)
    passed, frozen_range = streamed(operator, lake), frozen(lake, operator.name)
    gates_there = gates.shortfalls(operator, lake, interval)
    lacking = unready(operator, lake, interval, late_rows, since)
    for key, part in split(partitions, interval):
        inner = Interval(start=max(part.start, interval.start), end=min(part.end, interval.end))
        state: State = "missing"
        if covered.contains(inner):
            state = "covered"
        elif inner.end <= passed + 1:
            state = "stream"
        elif stale.overlap(inner) or covered.overlap(inner):
            state = "stale"
        may_change = any(shortfall.touches(operator, inner) for shortfall in lacking)
        held = frozen_range is not None and frozen_range.meets(inner)
        gated = state != "covered" and any(shortfall.touches(operator, inner) for shortfall in gates_there)
        yield Part(key=key, interval=inner, state=state, open=may_change, frozen=held, gated=gated)


def complete(operator: Operator, partitions: Partitions, lake: Lake, interval: Interval) -> bool:
    """True if the asset partitions of an interval are complete: the stream has passed them, or bounded runs have computed them from complete inputs."""
    if interval.everything:
        return False
    every = parts(operator, partitions, lake, interval)
    return all(one.state == "stream" or (one.state == "covered" and not one.open) for one in every)


def unready(
    operator: Operator, lake: Lake, interval: Interval, late_rows: LateRows, since: Mapping[str, int]
) -> list[Shortfall]:
    """The shortfalls of an operator's inputs, and of its own stream."""
    own = left_to_stream(operator, lake)
    return [*shortfalls(operator, lake, interval, late_rows=late_rows, since=since), *([own] if own else [])]


def counted(every: Iterable[Part]) -> dict[str, int]:
    """State -> number of partitions; then ``frozen`` and ``gated``, which count no other state, and ``open``: those among the rest that may change.

    Zeros are left out.
    """
    states = Counter[str]()
    for part in every:
        states["frozen" if part.frozen else "gated" if part.gated else part.state] += 1
        states["open"] += part.open and not part.frozen and not part.gated
    order = ("missing", "stale", "stream", "covered", "frozen", "gated", "open")
    return {name: states[name] for name in order if states[name]}


def streamed(operator: Operator, lake: Lake) -> int:
    """The event time up to which the operator's stream has written all outputs, ms."""
    reached = [history.progress(lake.output(output.table)) for output in operator.outputs]
    return min((NEVER if progress is None else progress for progress in reached), default=NEVER)
