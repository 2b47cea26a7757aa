"""Verdicts: the event time over which a table has passed its strict checks, and which of its files readers may read because of it.

Kept beside the table, in a file per check. A verdict is never taken back: a check that fails later closes a gate (``lake.results.gates``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from filelock import FileLock

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.fingerprint import digest
from floodmark.core.time import Interval, Intervals, describe, parse_instant
from floodmark.lake.folder.paths import Lake, is_local
from floodmark.lake.folder.storage import files, read, remove, write
from floodmark.lake.results.needs import reads
from floodmark.lake.results.own_stream import Shortfall
from floodmark.lake.table import history
from floodmark.lake.table.entries import beside, is_table
from floodmark.spec.graph.operator import Audit, Operator
from floodmark.spec.values.run import RunResult
from floodmark.spec.values.schema import PARTITION
from floodmark.spec.windowing.partitions import Partitions, named

_FOLDER = "verdicts"
HELD = "waits for the checks of "
"""Beginning of what a stream says that waits for a verdict."""
_TELL_SECONDS = 1.0
"""Time for which a reader that looks again and again says the same."""
_SINCE = re.compile(r"of '(\S+)', which is complete, and not judged since (\S+)$")


def record(path: str, check: str, interval: Interval) -> None:
    """Record that the table at a path has passed a check over an interval, or was released from it. Can be repeated.

    A process that is killed in between leaves the old file or the new one.
    """
    with _alone(path):
        intervals = _passed(path, check)
        if not intervals.add(interval):
            return
        crash.point("verdict.before_write")
        _store(path, check, intervals)
        crash.point("verdict.after_write")


def cut(path: str, progress: int) -> None:
    """Forget the verdicts about event time beyond a progress, to which the table at a path was restored."""
    with _alone(path):
        for name in files(beside(path, _FOLDER)):
            content = read(f"{beside(path, _FOLDER)}/{name}") if name.endswith(".json") else None
            if content is None:
                continue
            verdict, after = json.loads(content), Intervals()
            for passed in _intervals(verdict).ranges():
                if passed.start <= progress:
                    after.add(Interval(start=passed.start, end=min(passed.end, progress + 1)))
            _store(path, verdict["check"], after)


def forget(path: str) -> None:
    """Forget all verdicts about the table at a path, whose rows are computed anew."""
    for name in files(beside(path, _FOLDER)):
        remove(f"{beside(path, _FOLDER)}/{name}")


@dataclass(slots=True)
class Hold:
    """How far readers of a table may read it: its files whose rows lie in asset partitions that have passed all strict checks.

    Args:
        path: of the table.
        table: its name.
        audit: its strict checks.
    """

    path: str
    table: str
    audit: Audit
    waits_for: str = ""
    """Why the last file that was not admitted is held, for people; empty if the last one was admitted."""
    _intervals: tuple[Intervals, ...] = ()
    _since: dict[str, int] = field(default_factory=dict)
    _told: float = 0.0

    @staticmethod
    def of(operator: Operator, lake: Lake) -> dict[str, Hold]:
        """Input name -> hold, of the inputs that have strict checks."""
        return {
            one.name: Hold(lake.input(one), one.table, audit)
            for one in operator.inputs
            if (audit := operator.audits.get(one.table)) is not None
        }

    @property
    def known(self) -> str:
        """Digest of the verdicts now."""
        self._look()
        return digest([[[i.start, i.end] for i in one.ranges()] for one in self._intervals])

    def admits(self, times: Interval | None) -> bool:
        """True if readers may read a file.

        Args:
            times: event time of its rows; None for a file without rows, which has markers only.
        """
        if times is not None and not self._contains(times):
            self._look()
        if times is None or self._contains(times):
            self.waits_for = ""
            return True
        if not self.waits_for or time.monotonic() - self._told > _TELL_SECONDS:
            self._told, self.waits_for = time.monotonic(), self._describe(times)
        return False

    def _contains(self, times: Interval) -> bool:
        return bool(self._intervals) and all(one.contains(times) for one in self._intervals)

    def _look(self) -> None:
        self._intervals = tuple(_passed(self.path, check) for check in self.audit.checks)

    def _describe(self, times: Interval) -> str:
        name, end = self.audit.partitions.key(times.start), self.audit.partitions.around(times.start).end
        progress = history.progress(self.path)
        if progress is None:  # bounded runs write it
            return f"{HELD}partition {name} of '{self.table}', which is not judged"
        if progress < end - 1:
            return f"{HELD}partition {name} of '{self.table}', which is not complete yet"
        since = self._since.setdefault(name, time.time_ns() // 1_000_000)
        return f"{HELD}partition {name} of '{self.table}', which is complete, and not judged since {describe(since)}"


@dataclass(slots=True)
class Waiting:
    """What a run waits for, told once for each change.

    Args:
        on_wait: called with the text; empty once the run waits no longer.
        text: the last one.
    """

    on_wait: Callable[[str], None]
    text: str = ""

    def tell(self, texts: Iterable[str]) -> None:
        """Tell the first of the texts that are not empty, if it is another one than before."""
        text = next((one for one in texts if one), "")
        if text != self.text:
            self.text = text
            self.on_wait(text)

    def noted(self, result: RunResult) -> RunResult:
        """The result of a run with what it waits for."""
        reasons = (*result.reasons, self.text) if self.text else result.reasons
        return replace(result, waits_for=self.text, reasons=reasons)


def held(operator: Operator, lake: Lake, interval: Interval) -> Iterator[Shortfall]:
    """The rows of inputs that results of an interval need, and that no verdict lets their readers read, as shortfalls of the inputs."""
    for hold in Hold.of(operator, lake).values():
        needed, missing = reads(operator, interval), Intervals()
        for times in _all_times(hold.path, hold.audit.partitions):
            if times.meets(needed) and not hold.admits(times):
                missing.add(times)
                text = hold.waits_for
        if ranges := missing.ranges():
            yield Shortfall(table=hold.table, reached=ranges[0].start - 1, missing=tuple(ranges), text=text)


def unjudged(path: str, checks: Iterable[str], interval: Interval) -> list[str]:
    """Those of some checks that the table at a path has not passed over an interval."""
    return [check for check in checks if not _passed(path, check).contains(interval)]


def waiting(path: str, audit: Audit) -> list[tuple[str, Interval, str]]:
    """(name, event time, check) of the asset partitions with rows that have not passed a strict check, in order."""
    around, passed = audit.partitions.around, {check: _passed(path, check) for check in audit.checks}
    starts = {
        (around(times.start).start, check)
        for times in _all_times(path, audit.partitions)
        for check, intervals in passed.items()
        if not intervals.contains(times)
    }
    return [(audit.partitions.key(start), around(start), check) for start, check in sorted(starts)]


def check_judged(operator: Operator, lake: Lake, intervals: Iterable[Interval]) -> None:
    """Check that all rows that some results need were judged.

    Raises:
        LifecycleError: LIFECYCLE-207, some were not.
    """
    for interval in intervals:
        for shortfall in held(operator, lake, interval):
            raise LifecycleError(
                f"operator '{operator.name}' over {interval}",
                f"rows of '{shortfall.table}' that have passed their strict checks",
                f"it {shortfall.text}",
                release_fix(shortfall.table),
                code="LIFECYCLE-207",
            )


def overdue(text: str, now: float, seconds: float) -> str:
    """How a stream is released that waits for the verdict about a partition which has been complete for longer than some time; empty if it does not.

    Args:
        text: what the stream waits for.
        now: s since 1970.
        seconds: the time.
    """
    match = _SINCE.search(text)
    if match is None or now - parse_instant(match[2], "since") / 1000 <= seconds:
        return ""
    return release_fix(match[1])


def release_fix(table: str) -> str:
    """How readers of a table get what waits for a verdict."""
    name = table.partition("__")[0]
    return (
        f"The job checks_{name} judges what is complete, by itself where floodmark up runs; or release it: "
        f"floodmark gate release {name} --partition NAME --reason ..."
    )


def _passed(path: str, check: str) -> Intervals:
    content = read(_file(path, check))
    return Intervals() if content is None else _intervals(json.loads(content))


def _intervals(verdict: Mapping[str, Any]) -> Intervals:
    """The event time of a stored verdict."""
    intervals = Intervals()
    for start, end in verdict["passed"]:
        intervals.add(Interval(start=start, end=end))
    return intervals


def _store(path: str, check: str, intervals: Intervals) -> None:
    passed = [[one.start, one.end] for one in intervals.ranges()]
    write(_file(path, check), json.dumps({"check": check, "passed": passed}).encode())


def _file(path: str, check: str) -> str:
    return f"{beside(path, _FOLDER)}/{digest([check])[:16]}.json"


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold the lock of a table's verdicts. In a bucket there is none: a verdict that is lost there is given again by the next check."""
    if not is_local(path):
        yield
        return
    folder = Path(beside(path, _FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        yield


def times_in(add: Mapping[str, Any], partitions: Partitions) -> Interval | None:
    """Event time of the rows of a file that a commit adds, by its statistics, else by its asset partition; None if it has no rows."""
    stats = json.loads(add.get("stats") or "{}")
    if "_event_time" not in stats.get("nullCount", {}):
        return _of_partition((add.get("partitionValues") or {}).get(PARTITION, ""), partitions)
    low, high = (stats[name].get("_event_time") for name in ("minValues", "maxValues"))
    if low is None or high is None:
        return None
    first, last = (parse_instant(one, f"statistics of {add['path']}") for one in (low, high))
    return Interval(start=first, end=last + 1)


def times_of(table: DeltaTable, partitions: Partitions) -> dict[str, Interval | None]:
    """Path of a file of a table, as in its commit -> event time of its rows; None if it has none."""
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = actions["path"].to_pylist()
    if "min._event_time" not in actions.column_names:  # too many columns for statistics of this one
        name = f"partition.{PARTITION}"
        values = actions[name].to_pylist() if name in actions.column_names else [""] * len(paths)
        return {path: _of_partition(value, partitions) for path, value in zip(paths, values, strict=True)}
    low, high = (_milliseconds(actions[f"{which}._event_time"]) for which in ("min", "max"))
    return {
        path: None if first is None or last is None else Interval(start=first, end=last + 1)
        for path, first, last in zip(paths, low, high, strict=True)
    }


def _of_partition(value: str | None, partitions: Partitions) -> Interval | None:
    """Event time of the rows with a value of the partition column; all of time for an empty one, of a table that is not divided."""
    if value is None:
        return None
    return named(partitions, value, PARTITION) if value else Interval()


def _milliseconds(column: pa.ChunkedArray) -> list[int | None]:
    return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _all_times(path: str, partitions: Partitions) -> list[Interval]:
    """Event time of the rows of each file of a table, without files that have none."""
    times = times_of(DeltaTable(path), partitions).values() if is_table(path) else ()
    return [one for one in times if one is not None]
