"""An end of input that no stream has read is taken back: the log, and all that reads it, goes on as if the input had never ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, row, source
from stored import rows

from floodmark import Stream, Tumbling, count, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import LifecycleError
from floodmark.core.time import END
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.savepoints import delete
from floodmark.lake.table import history
from floodmark.lake.writing.compaction import compact
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import outputs
from floodmark.testing.runs import final


def summed(events: Stream[Event]) -> Stream:
    windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="10 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


BEFORE, AFTER = (operator(summed, name=name) for name in ("before", "after"))
"""A stream that stopped before the end came, and one that begins when it has been taken back."""
FIRST, ALL = [row(minute) for minute in range(25)], [row(minute) for minute in range(60)]


def land(engine: Computing, lake: Lake, found: list[dict[str, object]], **how: bool) -> int:
    return engine.land(source(found), lake, **how).commits


def stream(engine: Computing, lake: Lake, code: Operator) -> None:
    engine.run_unbounded(code, lake, until_caught_up=True)


def result(lake: Lake, code: Operator) -> dict[str, list[dict[str, object]]]:
    return {name: final([table]) for name, table in outputs(lake, code).items()}


@pytest.mark.parametrize("merged", [pytest.param(False, id="as it landed"), pytest.param(True, id="merged")])
@pytest.mark.timeout(900)
@pytest.mark.few(1)
def test_all_that_reads_a_reopened_log_finds_what_it_would_have_found_without_the_end(
    engine: Computing, tmp_path: Path, merged: bool
) -> None:
    lake, truth = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "truth"))
    for place in (lake, truth):
        land(engine, place, FIRST)
        stream(engine, place, BEFORE)
    assert land(engine, lake, FIRST, end=True) == 1
    if merged:
        compact(lake.log("events"))
    assert land(engine, lake, FIRST, reopen=True) == 1
    assert land(engine, lake, FIRST, reopen=True) == 0, "its input goes on"
    assert history.progress(lake.log("events")) == history.progress(truth.log("events"))
    for place in (lake, truth):
        land(engine, place, ALL)
        for code in (BEFORE, AFTER):
            stream(engine, place, code)
    for code in (BEFORE, AFTER):
        assert history.progress(lake.output(code.name)) == history.progress(truth.output(code.name))
        assert result(lake, code) == result(truth, code)
        assert 0 < len(result(lake, code)[""]) < 12, "the last windows wait"
    assert all(row._watermark < END for row in rows(lake.log("events")))


def test_an_end_that_a_stream_has_read_stays_until_the_stream_is_rolled_back(engine: Computing, lake: Lake) -> None:
    land(engine, lake, FIRST)
    stream(engine, lake, BEFORE)
    saved = savepoints.create("before", lake)
    land(engine, lake, FIRST, end=True)
    stream(engine, lake, BEFORE)
    batch = {"embedded": 1, "spark": 3}[
        engine.name
    ]  # Spark runs two more, without rows, which fire what the others have made due
    refused = rf"LIFECYCLE-013 source 'events': .*got stream 'before' in .* has read it, in micro-batch {batch} .*savepoint list before"
    with pytest.raises(LifecycleError, match=refused):
        land(engine, lake, FIRST, reopen=True)
    again = savepoints.create("before", lake)
    roll_back(lake, saved)
    with pytest.raises(
        LifecycleError, match=rf"LIFECYCLE-013 .*savepoint '{again.id}' .*floodmark savepoint delete {again.id}"
    ):
        land(engine, lake, FIRST, reopen=True)
    delete(again)
    assert land(engine, lake, ALL, reopen=True) == 2
    stream(engine, lake, BEFORE)
    stream(engine, lake, AFTER)
    assert result(lake, BEFORE)[""] == result(lake, AFTER)[""]
