"""Before a bounded run: what it reads, what is left to do, and whether its inputs have got that far. From the tables' logs, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from floodmark.connectors.storage import file_system
from floodmark.core.errors import CapabilityError, ExecutionError, LifecycleError
from floodmark.core.time import END, NEVER, Interval, describe, from_ms
from floodmark.engines.spark import history
from floodmark.engines.spark.lake import Lake
from floodmark.lifecycle.coverage import Entry, Segment, Todo, segments, todo
from floodmark.semantics.assignment import first_needed
from floodmark.spec.operator import Operator
from floodmark.spec.run import LateRows, RunResult
from floodmark.spec.windows import Global


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a bounded run would find.

    Args:
        todo: stretches to compute, stretches that are covered, and why.
        versions: input table -> its newest version.
    """

    todo: Todo
    versions: dict[str, int]


def readiness(
    operator: Operator, lake: Lake, interval: Interval, *, late_rows: LateRows = "as_landed", force: bool = False
) -> Readiness:
    """Decide what a bounded run has to compute.

    Args:
        operator: any.
        lake: it would act on.
        interval: asked for.
        late_rows: asked for.
        force: compute again what is covered.

    Raises:
        CapabilityError: CAPABILITY-002, part of a ``Global`` window.
        ExecutionError: EXECUTION-002, an input has no table.
        LifecycleError: LIFECYCLE-005, a stream has yet to write there.
    """
    if operator.stateful and isinstance(operator.stateful.window, Global) and not interval.everything:
        fix = "Run it without --from and --to, or use Tumbling, Sliding or Calendar."
        where = f"operator '{operator.name}'"
        raise CapabilityError(where, "all of time for a Global window", str(interval), fix, code="CAPABILITY-002")
    versions = input_versions(operator, lake)
    _check_stream(operator, lake, interval)
    if force:
        return Readiness(todo=Todo(missing=(interval,), covered=(), reasons=()), versions=versions)
    plan = todo(interval, _runs(operator, lake), **_now(operator, lake, versions, late_rows))
    return Readiness(todo=plan, versions=versions)


def coverage(operator: Operator, lake: Lake, interval: Interval, *, late_rows: LateRows = "as_landed") -> list[Segment]:
    """What of an interval is computed: by which version, when, and whether it still counts. In order of time."""
    versions = input_versions(operator, lake)
    found = segments(interval, _runs(operator, lake), **_now(operator, lake, versions, late_rows))
    return sorted(found, key=lambda one: one.interval.start)


def _runs(operator: Operator, lake: Lake) -> Iterator[Entry]:
    return history.bounded_runs(lake.output(operator.outputs[0].table))


def _now(operator: Operator, lake: Lake, versions: dict[str, int], late_rows: LateRows) -> dict[str, Any]:
    """What computed stretches are held against."""
    return {
        "version": operator.version,
        "fingerprint": operator.fingerprint,
        "late_rows": late_rows,
        "stale": lambda entry: _stale(operator, lake, versions, entry),
    }


def covered(operator: Operator, interval: Interval, found: Todo) -> RunResult:
    """The result of a run that finds everything covered."""
    return RunResult(
        operator=operator.name,
        version=operator.version,
        mode="bounded",
        interval=interval,
        watermark=min(interval.end - 1, END),
        skipped=found.covered,
        reasons=found.reasons,
    )


def input_versions(operator: Operator, lake: Lake) -> dict[str, int]:
    """The newest version of every input table: what a run reads, and what its commits say it has read."""
    found = {}
    for given in operator.inputs:
        path = lake.input(given)
        try:
            found[given.table] = DeltaTable(path).version()
        except TableNotFoundError:
            command = (
                f"floodmark run {given.upstream.operator.name}" if given.upstream else f"floodmark land {given.table}"
            )
            where = f"input '{given.name}' of operator '{operator.name}'"
            fix = f"{'Run' if given.upstream else 'Land'} it first: {command}"
            raise ExecutionError(where, f"a Delta table at {path}", "none", fix, code="EXECUTION-002") from None
    return found


def behind(operator: Operator, lake: Lake, interval: Interval) -> list[str]:
    """Why rows of an interval may still change: what each input lacks. Nothing when it is complete."""
    if interval.everything:
        return []
    found = []
    for given in operator.inputs:
        reached = history.progress(lake.input(given))
        if reached is not None and reached >= min(interval.end - 1, END):
            continue
        if given.upstream is None:
            found.append(
                f"'{given.table}' has reached {describe(NEVER if reached is None else reached)}; "
                f"rows for the rest of {interval} may still land"
            )
            continue
        upstream = given.upstream.operator
        needed = reads(operator, interval)
        try:
            missing = readiness(upstream, lake, needed).todo.missing
        except ExecutionError:
            missing = (needed,)
        found += [f"'{given.table}' is not computed by {upstream.version} for {part}" for part in missing]
    return found


def reads(operator: Operator, interval: Interval) -> Interval:
    """The event time of the rows that decide the results of an interval: from the start of the first window that ends in it."""
    step = operator.stateful
    start = first_needed(step.window, interval.start) if step and interval.start > NEVER else interval.start
    return Interval(start=start, end=interval.end)


def _check_stream(operator: Operator, lake: Lake, interval: Interval) -> None:
    """Where a stream of this operator is at work, only what it is done with may be replaced."""
    done = history.progress(lake.output(operator.outputs[0].table))
    step = operator.stateful
    lateness = step.allowed_lateness if step else 0
    if done is None or min(interval.end - 1, END) + (0 if done >= END else lateness) <= done:
        return
    reached = done - lateness + 1
    fix = f"End the interval earlier (--to {describe(reached)}), or compute into another lake: --lake elsewhere."
    where, got = f"operator '{operator.name}' in {lake.root}", f"--to {describe(interval.end)}"
    expected = f"an interval its stream is done with (up to {describe(reached)})"
    raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-005")


def _stale(operator: Operator, lake: Lake, versions: dict[str, int], entry: Entry) -> str | None:
    """Why a covered stretch has to be computed again: rows of its input came or went since. None when none did."""
    needed = reads(operator, entry.interval)
    for given in operator.inputs:
        known, now = int(entry.inputs.get(given.table, {}).get("version", -1)), versions[given.table]
        if known != now and _changed(lake.input(given), known, now, needed):
            return f"its input '{given.table}' has changed since (version {known} -> {now})"
    return None


def _changed(path: str, before: int, after: int, interval: Interval) -> bool:
    """Whether a file that came or went between two versions of a table holds a row of the interval."""
    if before < 0:
        return True
    try:
        old, new = (_files(DeltaTable(path, version=version)) for version in (before, after))
    except (DeltaError, TableNotFoundError):  # that version is no longer kept
        return True
    return any(_holds(path, name, old.get(name) or new[name], interval) for name in old.keys() ^ new.keys())


def _files(table: DeltaTable) -> dict[str, tuple[Any, Any]]:
    """Every file of a table, and the first and last event time in it where that is known."""
    actions = pa.table(table.get_add_actions(flatten=True))
    unknown = pa.nulls(len(actions))
    low, high = (
        actions[name] if name in actions.column_names else unknown for name in ("min._event_time", "max._event_time")
    )
    return dict(zip(actions["path"].to_pylist(), zip(low.to_pylist(), high.to_pylist(), strict=True), strict=True))


def _holds(path: str, name: str, span: tuple[Any, Any], interval: Interval) -> bool:
    first, last = from_ms(interval.start), from_ms(interval.end - 1)
    low, high = span
    if low is not None and high is not None and (high < first or low > last):
        return False
    files, place = file_system(f"{path}/{name}")
    try:
        with files.open_input_file(place) as file:
            times = pq.ParquetFile(file).read(columns=["_event_time"])["_event_time"]
    except FileNotFoundError:  # vacuumed
        return True
    inside = pc.and_(pc.greater_equal(times, pa.scalar(first)), pc.less_equal(times, pa.scalar(last)))
    return bool(pc.any(inside).as_py())
