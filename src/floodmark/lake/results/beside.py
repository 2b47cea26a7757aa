"""Bounded runs beside the operator's running stream: when one may write there, and whether the stream has written into its interval meanwhile.

A bounded run replaces results that the stream is done with. The stream goes on appending results of later event time, so the two never write the same
results, except for late rows: an operator that emits them adds rows to event time that it is done with. Those that come while the run computes are found
after its commit, and their interval is computed again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from floodmark.core.errors import LifecycleError
from floodmark.core.time import END, NEVER, Interval, from_ms
from floodmark.lake.folder.locks import BOUNDED, exclusive, held_by
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.extent import counted
from floodmark.lake.results.own_stream import drops_late, left_to_stream, unread
from floodmark.lake.stream import last_values
from floodmark.lake.stream.checkpoint import checkpoint_at, engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, FOLLOWERS, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import BoundedRun, MicroBatch, decode
from floodmark.spec.graph.operator import Operator

_PATIENCE_SECONDS = 60
_POLL_SECONDS = 0.2


def allowed(operator: Operator, lake: Lake, interval: Interval) -> bool:
    """True if a bounded run over an interval may be at work beside the operator's stream.

    A stream that has yet to commit its first micro-batch removes the rows of bounded runs, and where an interval has one result, or all of time is
    computed, a run replaces what the stream writes.
    """
    if not lake.is_local or interval.everything or operator.spans_interval:
        return False
    timeline = Timeline.current(lake, operator.name)
    return timeline.identity.deployed() is not None and not timeline.fresh


@contextmanager
def locked(
    operator: Operator, lake: Lake, interval: Interval, wait_seconds: float, say: Callable[[str], None]
) -> Iterator[bool]:
    """Hold the locks of a bounded run. Yields whether the operator's stream may be at work beside it.

    Raises:
        LifecycleError: LIFECYCLE-003, another bounded run is at work, or a stream beside which this run must not write.
    """
    with ExitStack() as stack:
        lock = partial(
            exclusive, lake, "operators", operator.name, "run", wait_seconds, role="bounded run", on_wait=say
        )
        stack.enter_context(lock(file=BOUNDED))
        beside = allowed(operator, lake, interval)
        if not beside:
            stack.enter_context(lock())
        yield beside


def await_stream(operator: Operator, lake: Lake, interval: Interval, say: Callable[[str], None]) -> None:
    """Wait until the operator's stream has read all landed rows of an interval, and its last values have those of its last micro-batch.

    For at most a minute, and only while the stream is at work: nothing else would bring either about.

    Raises:
        LifecycleError: LIFECYCLE-200, the last values are behind the stream.
    """
    own, until = left_to_stream(operator, lake), time.monotonic() + _PATIENCE_SECONDS

    def at_work() -> bool:
        return time.monotonic() < until and held_by(lake, "operators", operator.name) is not None

    if own is None or own.touches(operator, interval):
        return  # refused by ``check_stream``
    waits = unread(operator, lake, interval)
    if waits and at_work():
        say(f"waiting until its stream has read {waits}")
    while waits and at_work():
        time.sleep(_POLL_SECONDS)
        waits = unread(operator, lake, interval)
    while (behind := _unmerged(operator, lake)) and at_work():
        time.sleep(_POLL_SECONDS)
    if behind:
        where, expected = f"table '{behind}' in {lake.root}", "the last values of all that its stream has written"
        fix = f"Let the stream of '{operator.name}' run, which merges them: floodmark start {operator.name}. Then run this again."
        raise LifecycleError(where, expected, "some that are behind", fix, code="LIFECYCLE-200")


def _unmerged(operator: Operator, lake: Lake) -> str:
    """The table of last values that lacks results of its changelog; empty for none."""
    timeline = Timeline.current(lake, operator.name)
    followed = [output for output in operator.outputs if output.current is not None]
    for output in followed:
        assert output.current is not None
        if engine_of(timeline.folder(CHECKPOINT)) != "spark":
            if timeline.checkpoint.last_committed() < timeline.written(operator.outputs[0].table):
                return output.current.table
            continue
        follower = checkpoint_at(timeline.folder(FOLLOWERS, output.table), "spark")
        last, newest = follower.last_committed(), _last_micro_batch(lake.output(output.table))
        reached = [place.version for place in follower.positions(last)] if last >= 0 else []
        reached.append((last_values.follows_from(timeline, output.table) or 0) - 1)
        if max(reached) < newest:
            return output.current.table
    return ""


def _last_micro_batch(path: str) -> int:
    """The newest version of a changelog that a micro-batch has written; -1 for none among recent ones."""
    return next((commit.version for commit, batch in history.standing_of(path, MicroBatch) if not batch.settled), -1)


def versions(operator: Operator, lake: Lake) -> dict[str, int]:
    """Output table -> its newest version, from which ``disturbed`` looks; -1 without a table."""
    paths = {output.table: lake.output(output.table) for output in operator.outputs}
    return {table: entries.version_of(path) if entries.is_table(path) else -1 for table, path in paths.items()}


def disturbed(operator: Operator, lake: Lake, interval: Interval, since: Mapping[str, int], run: str) -> bool:
    """True if the stream has added rows of an interval to an output after a version and before the commit of a bounded run, which may have removed them.

    Args:
        operator: the operator.
        lake: the lake of its tables.
        interval: the event time that the run has replaced.
        since: output table -> version, as of ``versions``.
        run: id of the bounded run.
    """
    return not drops_late(operator) and any(
        _has_come(lake.output(table), interval, version, run) for table, version in since.items()
    )


def _has_come(path: str, interval: Interval, since: int, run: str) -> bool:
    for version in range(since + 1, entries.version_of(path) + 1):
        log_entry = entries.entry(path, version)
        if log_entry is None:
            return True
        info = entries.commit_info(log_entry)
        record = decode(info.get("userMetadata"), f"commit {version} of table {path}")
        if isinstance(record, BoundedRun) and (record.run, record.interval) == (run, interval):
            return False
        if isinstance(record, MicroBatch):
            added = (action["add"] for action in entries.actions(log_entry) if "add" in action)
            if any(_holds(path, file, interval) for file in added):
                return True
    return False


def _holds(path: str, file: Mapping[str, Any], interval: Interval) -> bool:
    bounds = json.loads(file.get("stats") or "{}")
    low, high = (bounds.get(side, {}).get("_event_time") for side in ("minValues", "maxValues"))
    if low is not None and interval.end <= END and datetime.fromisoformat(low) >= from_ms(interval.end):
        return False
    if high is not None and interval.start > NEVER and datetime.fromisoformat(high) < from_ms(interval.start):
        return False
    return counted(path, file["path"], interval) > 0
