"""Decides before a bounded run what it reads, what it must compute, and whether its inputs are complete. Reads the tables' logs, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import CapabilityError, ExecutionError, LifecycleError
from floodmark.core.time import END, NEVER, Interval, describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import coverage as kept_coverage
from floodmark.lake.results import horizon
from floodmark.lake.stream.timeline import Timeline, inputs_at
from floodmark.lake.table import changes, division, entries, history
from floodmark.lake.table.commits import BoundedRun
from floodmark.lifecycle.coverage import CoverageCheck, Entry, MissingIntervals, Segment, segments, todo
from floodmark.semantics.time.assignment import first_needed
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import IntervalJoin, Project, WindowAggregate
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.windowing.partitions import split
from floodmark.spec.windowing.windows import Global, Session

_MOST_PIECES = 100_000
"""Partitions of an interval above which the interval is judged as a whole: 11 years by hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The work of a bounded run.

    Args:
        todo: intervals to compute, intervals that are covered, and the reasons.
        versions: input table -> its newest version.
    """

    todo: MissingIntervals
    versions: dict[str, int]


def replaced(operator: Operator, lake: Lake, interval: Interval) -> Interval:
    """The event time whose rows a bounded run replaces: the interval; if it has one result, up to the end of every result that it overlaps.

    The intervals of such results never overlap in a table, so no other result has its rows there.
    """
    return replace(interval, end=max([interval.end, *(other.end for other in _overlapped(operator, lake, interval))]))


def _overlapped(operator: Operator, lake: Lake, interval: Interval) -> list[Interval]:
    """Where an interval has one result: the intervals of other results in the table that overlap an interval."""
    if not operator.spans_interval:
        return []
    others = (entry.interval for entry in kept_coverage.disjoint(lake, operator.outputs[0].table))
    return [o for o in others if o != interval and o.start < interval.end and interval.start < o.end]


def _removals(operator: Operator, lake: Lake, interval: Interval) -> list[str]:
    """For people: the results that a run over an interval removes, as the interval overlaps theirs."""
    overlapped = _overlapped(operator, lake, interval)
    return [f"{other}: its result is removed, as {interval} overlaps it" for other in overlapped]


def readiness(
    operator: Operator, lake: Lake, interval: Interval, *, late_rows: LateRows = "as_landed", force: bool = False
) -> Readiness:
    """Decide what a bounded run has to compute.

    Args:
        operator: the operator to compute.
        lake: the lake of its tables.
        interval: the requested event time.
        late_rows: the requested treatment of late rows.
        force: recompute covered intervals.

    Raises:
        CapabilityError: CAPABILITY-002, the results of the interval are not a part of the results of all of time.
        ExecutionError: EXECUTION-002, an input or one of several outputs has no table.
        LifecycleError: LIFECYCLE-005, the operator's stream has yet to write or read part of the interval.
        PlanError: PLAN-003, the output tables have other asset partitions.
    """
    _check_interval(operator, interval, late_rows)
    versions = input_versions(operator, lake)
    _check_stream(operator, lake, interval)
    anew = interval.everything and any(division.other(lake.output(o.table), o) for o in operator.outputs)
    if force or anew:
        reason = "asked for again (force)" if force else "its asset partitions have changed"
        reasons = (f"{interval}: {reason}", *_removals(operator, lake, interval))
        return Readiness(todo=MissingIntervals(missing=(interval,), covered=(), reasons=reasons), versions=versions)
    for output in operator.outputs:
        division.check(lake.output(output.table), operator, output)
    _check_lost(operator, lake)
    plan = _plan(operator, lake, interval, versions, late_rows)
    if plan.missing:
        plan = replace(plan, reasons=(*plan.reasons, *_removals(operator, lake, interval)))
    return Readiness(todo=plan, versions=versions)


def _check_interval(operator: Operator, interval: Interval, late_rows: LateRows) -> None:
    """Refuse an interval whose results are not the part of all results that lies in it: CAPABILITY-002."""
    step = operator.stateful
    if step is None or interval.everything:
        return
    where = f"operator '{operator.name}'"
    if step.over_all_time is not None and not step.spans_interval:
        kind, fix = step.describe_window(), "Run it without --from and --to."
        if isinstance(step, WindowAggregate):
            kind += " window"
            fix = "Run it without --from and --to, or use Tumbling, Sliding, Calendar or Session of event time."
            if isinstance(step.window, Global) and step.time == "event":
                fix = "Run it without --from and --to, or leave out its trigger: Global() that fires at the end has one result per interval."
        expected = f"all of time for a {kind}, {step.over_all_time}"
        raise CapabilityError(where, expected, str(interval), fix, code="CAPABILITY-002")
    if operator.reads_history and late_rows == "all" and operator.order == "arrival":
        expected = f"late rows as they landed for a {step.describe_window()} in order of arrival"
        got = "every row as on time, so that timers of the interval fire after all rows of later ones"
        fix = 'Leave out --late-rows all, or --from and --to; or sort its rows: process(..., order="event_time").'
        raise CapabilityError(where, expected, got, fix, code="CAPABILITY-002")


def _plan(
    operator: Operator, lake: Lake, interval: Interval, versions: dict[str, int], late_rows: LateRows
) -> MissingIntervals:
    return todo(interval, _runs(operator, lake, interval), _coverage_check(operator, lake, versions, late_rows))


def _check_lost(operator: Operator, lake: Lake) -> None:
    """Check that all output tables exist once this version has written them. Coverage is recorded in the main output only."""
    if not entries.is_table(lake.output(operator.outputs[0].table)):
        return
    tables = [t for o in operator.outputs for t in (o, o.current) if t is not None]
    lost = [t.table for t in tables if not entries.is_table(lake.output(t.table))]
    if lost and any(run.fingerprint == operator.fingerprint for run in _finished_runs(operator, lake)):
        fix = f"Compute all of it anew: floodmark run {operator.name} --force (without --from and --to)."
        where, expected = f"outputs of '{operator.name}' in {lake.root}", "all of its tables"
        raise ExecutionError(where, expected, f"none of {', '.join(lost)}", fix, code="EXECUTION-002")


def coverage(operator: Operator, lake: Lake, interval: Interval, *, late_rows: LateRows = "as_landed") -> list[Segment]:
    """The segments of an interval in order of time, each with the version and time of its computation, and whether it is still valid.

    Args:
        operator: the operator.
        lake: the lake of its tables.
        interval: the event time of interest.
        late_rows: the treatment of late rows that a valid computation must have used.

    Raises:
        ExecutionError: EXECUTION-002, an input has no table.
    """
    versions = input_versions(operator, lake)
    stretches = segments(
        interval, _runs(operator, lake, interval), _coverage_check(operator, lake, versions, late_rows)
    )
    return sorted(stretches, key=lambda one: one.interval.start)


def _runs(operator: Operator, lake: Lake, interval: Interval) -> Iterator[Entry]:
    """The bounded runs that may cover an interval or parts of it, newest first.

    Where an interval has one result, that result answers for exactly this interval, never for a part of it.
    """
    runs = _finished_runs(operator, lake)
    return (run for run in runs if run.interval == interval) if operator.spans_interval else runs


def _finished_runs(operator: Operator, lake: Lake) -> Iterator[Entry]:
    """Bounded runs, newest first, each clipped to the interval whose rows remain: a stream's start removes the rows of earlier runs.

    Runs count only up to the event time that the stream has finished.
    """
    path = lake.output(operator.outputs[0].table)
    done, lateness = history.progress(path), operator.stateful.allowed_lateness if operator.stateful else 0
    limit = END + 1 if done is None or done >= END else done - lateness + 1
    runs = kept_coverage.disjoint if operator.spans_interval else kept_coverage.bounded_runs
    for entry in runs(lake, operator.outputs[0].table):
        if done is None or done >= END or entry.interval.end <= limit:
            yield entry
        elif entry.interval.start < limit:
            yield replace(entry, interval=replace(entry.interval, end=limit))


def replaces_each(operator: Operator, lake: Lake, output: Output) -> bool:
    """True if a stream will compute every key that bounded runs left in an output's last values, so that all are replaced.

    Holds if the same code computed the keys from rows as they landed, and a key is a window of a grid: more rows change its value, never its key.
    """
    step = operator.stateful
    if not isinstance(step, WindowAggregate) or not step.columnar or isinstance(step.window, Global):
        return False
    result = dict(operator.results).get(output.name)
    while isinstance(result, Project):
        result = result.parent
    runs = [commit.record for commit in history.standing(lake.output(operator.outputs[0].table), limit=None)]
    same = history.complete(lake.output(operator.outputs[0].table)) and all(
        isinstance(run, BoundedRun) and run.fingerprint == operator.fingerprint and run.late_rows == "as_landed"
        for run in runs
    )
    return result is step and bool(runs) and same


def _coverage_check(operator: Operator, lake: Lake, versions: dict[str, int], late_rows: LateRows) -> CoverageCheck:
    known: dict[tuple[str, int], changes.Since] = {}

    def stale(entry: Entry, piece: Interval) -> str | None:
        for input_ in operator.inputs:
            read = entry.inputs.get(input_.table, {})
            before, after = int(read.get("version", -1)), versions[input_.table]
            if before == after:
                continue
            needed = reads(operator, piece)
            if operator.reads_history and int(read.get("horizon", NEVER)) < min(piece.end - 1, END):
                needed = Interval()
            key = input_.table, before
            if key not in known:
                known[key] = changes.since(lake.input(input_), before, after, log=input_.upstream is None)
            if known[key].touch(needed):
                return f"its input '{input_.table}' has changed since (version {before} -> {after})"
        return None

    def pieces(interval: Interval) -> list[Interval]:
        if operator.partitions is None or interval.start <= NEVER or interval.end > END:
            return [interval]
        split_up = [
            _inside(interval, piece) for _, piece in islice(split(operator.partitions, interval), _MOST_PIECES + 1)
        ]
        return split_up if len(split_up) <= _MOST_PIECES else [interval]  # a far end such as 9999-12-31

    return CoverageCheck(
        version=operator.version, fingerprint=operator.fingerprint, late_rows=late_rows, stale=stale, pieces=pieces
    )


def _inside(interval: Interval, piece: Interval) -> Interval:
    return Interval(start=max(interval.start, piece.start), end=min(interval.end, piece.end))


def covered(operator: Operator, interval: Interval, plan: MissingIntervals) -> RunResult:
    """The result of a run whose whole interval is covered."""
    return RunResult(
        operator=operator.name,
        version=operator.version,
        mode="bounded",
        interval=interval,
        watermark=min(interval.end - 1, END),
        skipped=plan.covered,
        reasons=plan.reasons,
    )


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
        return self.missing is None or any(m.start < needed.end and needed.start < m.end for m in self.missing)


def shortfalls(
    operator: Operator,
    lake: Lake,
    interval: Interval,
    *,
    late_rows: LateRows = "as_landed",
    since: Mapping[str, int] = MappingProxyType({}),
) -> list[Shortfall]:
    """The reasons why results of an interval may still change; empty if all inputs are complete.

    Args:
        operator: the operator that reads the inputs.
        lake: the lake of the inputs.
        interval: event time of the operator's results.
        late_rows: the treatment of late rows with which upstream operators must have been computed.
        since: input table -> event time, ms, before which the table is never computed.
    """
    if interval.everything:
        return []
    lacking = []
    for input_ in operator.inputs:
        progress = history.progress(lake.input(input_))
        reached = NEVER if progress is None else progress
        if reached >= min(interval.end - 1, END):
            continue
        if input_.upstream is None:
            text = f"'{input_.table}' has reached {describe(reached)}; rows for the rest of {interval} may still land"
            lacking.append(Shortfall(table=input_.table, reached=reached, missing=None, text=text))
            continue
        upstream = input_.upstream.operator
        needed = reads(operator, interval)
        needed = Interval(start=max(needed.start, since.get(input_.table, needed.start)), end=needed.end)
        try:
            _check_lost(upstream, lake)
            missing = _plan(upstream, lake, needed, input_versions(upstream, lake), late_rows).missing
        except ExecutionError:
            missing = (needed,)
        how = ", every row as on time (late_rows: all)," if late_rows == "all" else ""
        for part in missing:
            text = f"'{input_.table}' is not computed by {upstream.version}{how} for {part}"
            lacking.append(Shortfall(table=input_.table, reached=reached, missing=(part,), text=text))
    return lacking


def reads(operator: Operator, interval: Interval) -> Interval:
    """The event time of the input rows that affect the results of an interval: from the start of the first window that ends in the interval.

    For a process function, all rows before the end of the interval.
    """
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


def _check_stream(operator: Operator, lake: Lake, interval: Interval) -> None:
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
    if (
        operator.stateful is not None
        and not operator.reads_history
        and not any(output.side for output in operator.outputs)
    ):
        return  # the stream drops late rows
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
            got = f"rows of it that have landed in '{input_.table}' since"
        elif done is not None and horizon.holds_late(path, now, before=interval.end, after=done):
            got = f"late rows of it in '{input_.table}', which its stream emits once progress has passed their stamps"
        else:
            continue
        where = f"operator '{operator.name}' in {lake.root}"
        fix = f"Let the stream get there first (floodmark run {operator.name} --unbounded --until-caught-up), or compute into another lake: --lake elsewhere."
        raise LifecycleError(where, f"{interval} to be read by its stream", got, fix, code="LIFECYCLE-005")
