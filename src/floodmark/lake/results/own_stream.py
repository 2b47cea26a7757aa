"""What an operator's own stream leaves to bounded runs: results that it has finished, of rows that it has read."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.errors import LifecycleError
from floodmark.core.time import END, NEVER, Interval, describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import horizon
from floodmark.lake.results.needs import reads
from floodmark.lake.stream.timeline import Timeline, inputs_at
from floodmark.lake.table import changes, entries, history
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import WindowAggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The incompleteness of one input, because of which results of an interval are not final.

    Args:
        table: the input table.
        reached: progress of the table, ms; ``NEVER`` without progress.
        missing: event time that the upstream operator has yet to compute; None for a log.
        text: description for people.
        own: True if ``table`` is an output of the operator itself, which its own stream has yet to write.
    """

    table: str
    reached: int
    missing: tuple[Interval, ...] | None
    text: str
    own: bool = False

    def touches(self, operator: Operator, interval: Interval) -> bool:
        """True if this shortfall affects results of the interval."""
        if self.reached >= min(interval.end - 1, END):
            return False
        needed = reads(operator, interval)
        return self.missing is None or any(map(needed.meets, self.missing))


def left_to_stream(operator: Operator, lake: Lake) -> Shortfall | None:
    """The event time that the operator's own stream has yet to write, as a shortfall of its first output; None if no stream writes there.

    Bounded runs may replace only results that the stream has finished. Before the stream's first micro-batch they may write everything, as the next
    start of the stream removes those rows; except in a lake without locks, where the stream may be running.
    """
    table = operator.outputs[0].table
    done, timeline = history.progress(lake.output(table)), Timeline.current(lake, operator.name)
    if done is None and (timeline.identity.deployed() is None or (lake.is_local and timeline.fresh)):
        return None
    lateness = operator.stateful.allowed_lateness if operator.stateful else 0
    reached = NEVER if done is None else done if done >= END else done - lateness
    done_with = "none before its first micro-batch" if done is None else f"up to {describe(reached + 1)}"
    text = f"it is the stream's, which is done with {done_with}"
    return Shortfall(table=table, reached=reached, missing=None, text=text, own=True)


def check_stream(operator: Operator, lake: Lake, interval: Interval) -> None:
    """Check that the operator's own stream has finished the interval (``left_to_stream``), and has read its late rows."""
    own = left_to_stream(operator, lake)
    if own is None:
        return
    if operator.spans_interval and not interval.everything:
        where, got = f"operator '{operator.name}' in {lake.root}", f"{interval}, whose result would stand beside it"
        fix = "Run it without --from and --to, or compute into another lake: --lake elsewhere."
        expected = "all of time, over which its stream writes one result"
        raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-005")
    if not own.touches(operator, interval):
        _check_read(operator, lake, interval)
        return
    done_with, earlier = "none before its first micro-batch", ""
    if own.reached > NEVER:
        reached = describe(own.reached + 1)
        done_with, earlier = f"up to {reached}", f"end the interval earlier (--to {reached}), "
    fix = (
        f"Let the stream get there first (floodmark run {operator.name} --unbounded --until-caught-up, once more has landed or the input has "
        f"ended), {earlier}or compute into another lake: --lake elsewhere."
    )
    where, got = f"operator '{operator.name}' in {lake.root}", f"--to {describe(interval.end)}"
    raise LifecycleError(where, f"an interval its stream is done with ({done_with})", got, fix, code="LIFECYCLE-005")


def _check_read(operator: Operator, lake: Lake, interval: Interval) -> None:
    """Check that the stream has read and emitted all landed rows of the interval. Late rows it has yet to write would otherwise be written twice."""
    got = unread(operator, lake, interval)
    if got:
        where = f"operator '{operator.name}' in {lake.root}"
        fix = f"Let the stream get there first (floodmark run {operator.name} --unbounded --until-caught-up), or compute into another lake: --lake elsewhere."
        raise LifecycleError(where, f"{interval} to be read by its stream", got, fix, code="LIFECYCLE-005")


def drops_late(operator: Operator) -> bool:
    """True if the stream of an operator writes no row of event time that it is done with: it drops late rows.

    ``rolling`` over rows that may be taken back drops none: a retraction of any event time changes its last result.
    """
    sides = any(output.side for output in operator.outputs)
    taken_back = any(input_.revisable for input_ in operator.inputs)
    rolls = taken_back and any(isinstance(step, WindowAggregate) and step.rolling for step in operator.stages)
    return operator.stateful is not None and not operator.reads_history and not sides and not rolls


def unread(operator: Operator, lake: Lake, interval: Interval) -> str:
    """The landed rows of an interval that the operator's stream has yet to read or to emit, for people; empty for none."""
    if drops_late(operator):
        return ""
    sorts = operator.reads_history and operator.order == "event_time"
    done = history.progress(lake.output(operator.outputs[0].table)) if sorts else None
    timeline = Timeline.current(lake, operator.name)
    last = timeline.checkpoint.last_committed()
    read = inputs_at(timeline, last) if last >= 0 and timeline.identity.deployed() else {}
    for input_ in operator.inputs:
        path = lake.input(input_)
        if input_.name not in read or input_.table != read[input_.name].table:
            continue
        since, now = read[input_.name].version, entries.version_of(path)
        come = changes.between(path, since, now, log=input_.upstream is None, come=True)
        if come.touch(reads(operator, interval)):
            return f"rows of it that have landed in '{input_.table}' since"
        if done is not None and horizon.holds_late(path, now, before=interval.end, after=done):
            return f"late rows of it in '{input_.table}', which its stream emits once progress has passed their stamps"
    return ""
