"""Decides before a bounded run what it must compute, and whether its inputs are complete. Reads the tables' logs, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import END, NEVER, Interval, describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import coverage as kept_coverage
from floodmark.lake.results import frozen, gates, revised
from floodmark.lake.results.needs import input_versions, reads
from floodmark.lake.results.own_stream import Shortfall, check_stream
from floodmark.lake.table import changes, division, entries, history
from floodmark.lake.table.commits import BoundedRun
from floodmark.lifecycle.coverage import CoverageCheck, Entry, MissingIntervals, Segment, segments, todo
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import Project, Stateful, WindowAggregate
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.windowing.partitions import split
from floodmark.spec.windowing.windows import Global

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
    return [o for o in others if o != interval and o.meets(interval)]


def _removals(operator: Operator, lake: Lake, interval: Interval) -> list[str]:
    """For people: the results that a run over an interval removes, as the interval overlaps theirs."""
    overlapped = _overlapped(operator, lake, interval)
    return [f"{other}: its result is removed, as {interval} overlaps it" for other in overlapped]


def readiness(
    operator: Operator,
    lake: Lake,
    interval: Interval,
    *,
    late_rows: LateRows = "as_landed",
    force: bool = False,
    frozen_too: bool = False,
) -> Readiness:
    """Decide what a bounded run has to compute.

    Args:
        operator: the operator to compute.
        lake: the lake of its tables.
        interval: the requested event time.
        late_rows: the requested treatment of late rows.
        force: recompute covered intervals.
        frozen_too: refuse neither what is frozen nor what waits for a gate, for a look.

    Raises:
        CapabilityError: CAPABILITY-002, the results of the interval are not a part of the results of all of time.
        ExecutionError: EXECUTION-002, an input or one of several outputs has no table.
        LifecycleError: LIFECYCLE-005 the operator's stream has yet to write or read part of the interval, LIFECYCLE-045 an input takes back rows of
            any event time, LIFECYCLE-201 results of it are frozen, LIFECYCLE-197 a gate of an input is closed.
        PlanError: PLAN-003, the output tables have other asset partitions.
    """
    ready = _readiness(operator, lake, interval, late_rows, force=force)
    if not frozen_too:
        rewritten = [replaced(operator, lake, piece) for piece in ready.todo.missing]
        frozen.check(lake, operator.name, rewritten, "a bounded run", "Choose later event time (--from). ")
        gates.check_open(operator, lake, ready.todo.missing)
    return ready


def _readiness(operator: Operator, lake: Lake, interval: Interval, late_rows: LateRows, *, force: bool) -> Readiness:
    _check_interval(operator, interval, late_rows)
    revised.check(operator, lake)
    versions = input_versions(operator, lake)
    check_stream(operator, lake, interval)
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
    if interval.everything:
        return
    where = f"operator '{operator.name}'"
    for step in operator.stages:
        _check_step(operator, step, interval, where)
    for link in operator.links:
        if not (link.stages and link.reads_history and late_rows == "all" and link.order == "arrival"):
            continue
        expected = f"late rows as they landed for a {link.stages[0].describe_window()} in order of arrival"
        got = "every row as on time, so that timers of the interval fire after all rows of later ones"
        fix = 'Leave out --late-rows all, or --from and --to; or sort its rows: process(..., order="event_time").'
        raise CapabilityError(where, expected, got, fix, code="CAPABILITY-002")


def _check_step(operator: Operator, step: Stateful, interval: Interval, where: str) -> None:
    if step.over_all_time is not None and not operator.spans_interval:
        kind, fix = step.describe_window(), "Run it without --from and --to."
        if isinstance(step, WindowAggregate):
            kind += " window"
            fix = "Run it without --from and --to, or use Tumbling, Sliding, Calendar or Session of event time."
            if isinstance(step.window, Global) and step.time == "event" and len(operator.stages) == 1:
                fix = "Run it without --from and --to, or leave out its trigger: Global() that fires at the end has one result per interval."
        expected = f"all of time for a {kind}, {step.over_all_time}"
        raise CapabilityError(where, expected, str(interval), fix, code="CAPABILITY-002")


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
    if len(operator.stages) > 1:
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
