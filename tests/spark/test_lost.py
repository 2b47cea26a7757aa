"""A data file of a log that somebody removed: both modes say which rows are gone, and time without them can be computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, row, source

from floodmark import Stream, Tumbling, count, operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ExecutionError
from floodmark.core.time import NEVER, Interval, parse_instant
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.lost import lost_files


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """Events per key and hour."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


def test_both_modes_name_the_rows_that_are_gone_and_other_time_can_be_computed(engine: Computing, lake: Lake) -> None:
    path = Path(lake.log("events"))
    engine.land(source([row(1), row(2)]), lake)
    before = set(path.rglob("part-*.parquet"))
    engine.land(source([row(1), row(2), row(130), row(140)]), lake)
    (gone,) = set(path.rglob("part-*.parquet")) - before
    gone.unlink()
    (found,) = lost_files(str(path))
    assert (found.rows, found.path) == (3, str(gone))
    for run in (
        lambda: engine.run_bounded(per_hour, lake, Interval()),
        lambda: engine.run_unbounded(per_hour, lake, until_caught_up=True),
    ):
        with pytest.raises(ExecutionError) as caught:
            run()
        assert caught.value.code == "EXECUTION-060"
        assert found.describe() in caught.value.got
    first_hour = Interval(start=NEVER, end=parse_instant("2020-01-01T01:00", "--to", "UTC"))
    assert engine.run_bounded(per_hour, lake, first_hour).rows == {"per_hour": 2}
