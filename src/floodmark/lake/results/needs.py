"""The rows of its inputs that a bounded run needs: which event time of them, at which versions of their tables."""

from __future__ import annotations

from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import ExecutionError
from floodmark.core.time import END, NEVER, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries
from floodmark.semantics.time.assignment import first_needed
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import IntervalJoin, WindowAggregate
from floodmark.spec.windowing.windows import Session


def stretches(operator: Operator, interval: Interval) -> tuple[Interval, ...]:
    """Per link of an operator, the event time of those of its results that affect the results of an interval."""
    wanted, of_links = dict[str, Interval](), list[Interval]()
    for link in reversed(operator.links):
        own = wanted.get(link.results[0][0], interval) if link is not operator.links[-1] else interval
        of_links.append(own)
        for input_ in link.inputs:
            wanted[input_.name] = _hull(scans(link, own), wanted.get(input_.name))
    return tuple(reversed(of_links))


def _hull(interval: Interval, other: Interval | None) -> Interval:
    """The shortest interval that holds both."""
    if other is None:
        return interval
    return Interval(start=min(interval.start, other.start), end=max(interval.end, other.end))


def reads(operator: Operator, interval: Interval) -> Interval:
    """The event time of the input rows that affect the results of an interval: from the start of the first window that ends in the interval.

    For a process function, all rows before the end of the interval.
    """
    if len(operator.links) > 1:
        needed: Interval | None = None
        for link, own in zip(operator.links, stretches(operator, interval), strict=True):
            if not all(input_.inner for input_ in link.inputs):
                needed = _hull(reads(link, own), needed)
        assert needed is not None
        return needed
    step = operator.stateful
    start, margin = interval.start, 0
    if operator.spans_interval:
        return interval
    if isinstance(step, IntervalJoin):
        start, margin = (max(start - step.margin, NEVER) if start > NEVER else start), step.margin
    elif isinstance(step, WindowAggregate):
        start = first_needed(step.window, start) if start > NEVER else start
        margin = step.window.margin if isinstance(step.window, Session) else 0
    elif operator.reads_history:
        start = NEVER
    return Interval(start=start, end=interval.end if interval.end > END else min(interval.end + margin, END))


def scans(operator: Operator, interval: Interval) -> Interval:
    """The event time of the rows that a bounded run reads: those of ``reads``; all rows where results depend on history.

    A late row of the interval is processed after rows of later event time, whose state it finds.
    """
    return Interval() if operator.reads_history else reads(operator, interval)


def input_versions(operator: Operator, lake: Lake) -> dict[str, int]:
    """Input table -> its newest version, which a run reads and records in its commits.

    Raises:
        ExecutionError: EXECUTION-002, an input has no table.
    """
    newest = {}
    for input_ in operator.inputs:
        path = lake.input(input_)
        try:
            newest[input_.table] = entries.version_of(path)
        except TableNotFoundError:
            command = (
                f"floodmark run {input_.upstream.operator.name}"
                if input_.upstream
                else f"floodmark land {input_.table}"
            )
            where = f"input '{input_.name}' of operator '{operator.name}'"
            fix = f"{'Run' if input_.upstream else 'Land'} it first: {command}"
            raise ExecutionError(where, f"a Delta table at {path}", "none", fix, code="EXECUTION-002") from None
    return newest
