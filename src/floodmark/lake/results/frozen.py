"""Frozen event time of an operator: results before an instant, which nothing rewrites until they are thawed. One small file in the lake says so.

Bounded runs, rollbacks, rebuilds, promotions and restatements whose results lie there are refused; a stream leaves such rows out of its outputs and counts
them. The rows themselves stay in the log: a bounded run over the range takes them in after the thaw.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core import crash
from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.time import NEVER, Interval, describe, from_ms, iso
from floodmark.lake.folder.locks import BOUNDED, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, remove, write
from floodmark.lake.results.own_stream import left_to_stream
from floodmark.lake.results.throttle import with_upstream
from floodmark.lake.table import changes, entries, history
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.table.rows import INSTANT
from floodmark.spec.graph.operator import Operator, Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What is frozen of an operator.

    Args:
        before: results with event time before this instant are frozen, ms.
        at: when they were frozen, ms UTC.
        note: why, for people.
    """

    before: int
    at: int
    note: str = ""

    @property
    def interval(self) -> Interval:
        """The frozen event time."""
        return Interval(end=self.before)

    def meets(self, interval: Interval) -> bool:
        """True if an instant of an interval is frozen."""
        return interval.start < self.before

    def as_json(self) -> dict[str, str]:
        """JSON form, with instants as text."""
        return {"before": iso(self.before), "at": iso(self.at), "note": self.note}

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        return f"before {describe(self.before)} are frozen since {iso(self.at)}{note}"


def frozen(lake: Lake, operator: str) -> Frozen | None:
    """What is frozen of an operator; None for nothing.

    Raises:
        StateError: STATE-036, the file is malformed: what it protects must not be rewritten by mistake.
    """
    content = read(_file(lake, operator))
    if content is None:
        return None
    try:
        return Frozen(**json.loads(content))
    except (ValueError, TypeError) as error:
        fix = f"Remove the file, and freeze the range again: floodmark freeze {operator} --before DAY"
        raise StateError(
            _file(lake, operator), "a frozen range", f"something else: {error}", fix, code="STATE-036"
        ) from error


def holds(output: Output) -> bool:
    """True if an output's rows in frozen event time are left out: its results; not rows that are set aside as late or failed."""
    return output.side not in {"late", "quarantine"}


def thawed(rows: pa.Table, frozen_range: Frozen | None) -> tuple[pa.Table, int]:
    """(the rows of later event time, the number of frozen rows); rows without event time are later."""
    if frozen_range is None or not rows.num_rows:
        return rows, 0
    later = pc.greater_equal(rows["_event_time"].cast(INSTANT), pa.scalar(from_ms(frozen_range.before), INSTANT))
    left = rows.filter(pc.fill_null(later, True))
    return left, rows.num_rows - left.num_rows


def check(lake: Lake, operator: str, intervals: Iterable[Interval], what: str, otherwise: str = "") -> None:
    """Refuse to rewrite frozen results.

    Args:
        lake: the lake of the operator.
        operator: name of the operator.
        intervals: event time whose results would be rewritten.
        what: what would rewrite them, for the error.
        otherwise: another way, for the error.

    Raises:
        LifecycleError: LIFECYCLE-201, a result is frozen.
    """
    frozen_range = frozen(lake, operator)
    touched = [] if frozen_range is None else [interval for interval in intervals if frozen_range.meets(interval)]
    if frozen_range is None or not touched:
        return
    fix = f"{otherwise}Thaw it first: floodmark thaw {operator}"
    where, got = f"operator '{operator}' in {lake.root}", f"{what} over {touched[0]}, of which results {frozen_range}"
    raise LifecycleError(where, f"event time from {describe(frozen_range.before)} on", got, fix, code="LIFECYCLE-201")


def check_restored(lake: Lake, operator: str, table: str, version: int) -> None:
    """Refuse to put a table back to a version since which frozen results have changed.

    Raises:
        LifecycleError: LIFECYCLE-201, they have.
    """
    frozen_range, path = frozen(lake, operator), lake.output(table)
    if frozen_range is not None and changes.between(path, version, entries.version_of(path), log=False).touch(
        frozen_range.interval
    ):
        check(lake, operator, [frozen_range.interval], f"table '{table}' would be put back to version {version}")


def freeze(lake: Lake, operator: Operator, before: int, note: str = "") -> Frozen:
    """Freeze the results of an operator before an instant. They must be final: neither its stream nor one upstream may revise them.

    Raises:
        LifecycleError: LIFECYCLE-003 a bounded run of the operator is at work, LIFECYCLE-202 a stream may still write there, LIFECYCLE-203 more is
            frozen already.
    """
    with _alone(lake, operator.name):
        there = frozen(lake, operator.name)
        if there is not None and before < there.before:
            fix = f"Thaw what should be rewritten: floodmark thaw {operator.name} --from {iso(before)}"
            where, expected = f"operator '{operator.name}'", f"an instant from {describe(there.before)} on"
            raise LifecycleError(where, expected, describe(before), fix, code="LIFECYCLE-203")
        for writer in with_upstream(operator):
            own = left_to_stream(writer, lake)
            if own is not None and own.reached < before - 1:
                done = "nothing yet" if own.reached <= NEVER else f"what lies before {describe(own.reached + 1)}"
                where, expected = (
                    f"operator '{operator.name}' in {lake.root}",
                    f"results that are final before {describe(before)}",
                )
                got, fix = (
                    f"a stream of '{writer.name}' that is done with {done}",
                    "Freeze less, or wait until it is done with that: floodmark status",
                )
                raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-202")
        frozen_range = Frozen(before=before, at=time.time_ns() // 1_000_000, note=note)
        crash.point("freeze.before_write")
        write(_file(lake, operator.name), json.dumps(asdict(frozen_range)).encode())
        crash.point("freeze.after_write")
        return frozen_range


def thaw(lake: Lake, operator: str, since: int | None = None) -> Frozen | None:
    """Thaw what is frozen of an operator, or the part of it from an instant on. Returns what stays frozen.

    Raises:
        LifecycleError: LIFECYCLE-003 a bounded run of the operator is at work, LIFECYCLE-203 nothing of that is frozen.
    """
    with _alone(lake, operator):
        there = frozen(lake, operator)
        if there is None or (since is not None and since >= there.before):
            got = "nothing" if there is None else str(there)
            fix = f"There is nothing to do; floodmark status shows what is frozen. To freeze: floodmark freeze {operator} --before DAY"
            raise LifecycleError(f"operator '{operator}'", "frozen results", got, fix, code="LIFECYCLE-203")
        crash.point("thaw.before_write")
        if since is None:
            remove(_file(lake, operator))
            left = None
        else:
            left = Frozen(before=since, at=there.at, note=there.note)
            write(_file(lake, operator), json.dumps(asdict(left)).encode())
        crash.point("thaw.after_write")
        return left


def carry(lake: Lake, target: Lake, operator: str) -> None:
    """Freeze in another lake, into which the operator's tables are about to move, what is frozen in this one."""
    content = read(_file(lake, operator))
    if content is not None:
        write(_file(target, operator), content)


def left_out(lake: Lake, operator: Operator, since: int) -> int:
    """The number of rows that streams have left out of an operator's outputs after an instant, ms, by the commits that the tables' logs still have."""
    total = 0
    for output in operator.outputs:
        for commit, batch in history.standing_of(lake.output(output.table), MicroBatch, limit=None):
            if commit.at < since:
                break
            total += batch.frozen
    return total


def _alone(lake: Lake, operator: str) -> AbstractContextManager[None]:
    """The lock of an operator's bounded runs: none is at work while its frozen range changes."""
    return exclusive(lake, "operators", operator, "bounded run", role="freeze", file=BOUNDED)


def _file(lake: Lake, operator: str) -> str:
    return lake.internal("frozen", f"{operator}.json")
