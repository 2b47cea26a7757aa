"""State divided among another number of key groups: rows equal to those of a stream that never had another number."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event
from ruled import RULED, spread
from staged import BOTH, BUSIEST, FOLLOWED, PEAKS, QUIET, REVISED
from streams import ONCE, PAIRED, PLAIN, VISITS, WATCHED, WINDOWED, check

from floodmark import Operator, Sliding, Stream, count, count_distinct, operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.engines.rescaling import regroup_steps
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import sample
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import plan
from floodmark.testing.lakes import land

from .test_key_groups import declaring

TURNS = ((128, 7), (7, 200))
"""Key groups of a stream before and after."""


def _sliding(events: Stream[Event]) -> Stream:
    """Keys of several types, some null, and windows that share slices; one aggregate needs all values."""
    columns = {
        "real": "nullif(CAST(value % 3 AS double), 2)",
        "day": "CAST(at AS date)",
        "exact": "CAST(value % 2 AS decimal(9, 2))",
        "raw": "CAST(key AS binary)",
        "hour": "date_trunc('hour', at)",
    }
    keyed = events.with_columns(**columns).key_by("key", "real", "day", "exact", "raw", "hour")
    windowed = keyed.window(Sliding("30 minutes", "10 minutes"), allowed_lateness="20 minutes")
    return windowed.aggregate(n=count(), several=count_distinct("value"))


SLIDING: Operator = operator(_sliding, name="sliding")
KINDS = (QUIET, WINDOWED, WATCHED, PAIRED, VISITS, ONCE, RULED, SLIDING, PEAKS, BUSIEST, BOTH, FOLLOWED, REVISED)


@pytest.mark.feature("K10")
@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
@pytest.mark.few(2)
def test_a_stream_has_another_number_of_key_groups_again_and_again(
    engine: Computing, tmp_path: Path, code: Operator
) -> None:
    lake, log = Lake(str(tmp_path / "lake")), spread(code, 5)
    land(lake, code, log, 0, 80)
    engine.run_unbounded(code, lake, until_caught_up=True)
    for turn, (before, after) in enumerate(TURNS, 1):
        identity = Timeline.current(lake, code.name).identity
        assert identity.key_groups() == before
        made = engine.regroup(code, lake, after)
        assert made is not None
        assert made.manifest.why == f"before {after} key groups"
        assert engine.regroup(code, lake, after) is None
        land(lake, code, log, 80 * turn, None if turn == len(TURNS) else 80 * (turn + 1))
        engine.run_unbounded(code, lake, until_caught_up=True)
    check(lake, code, log)


@pytest.mark.feature("K10")
def test_the_number_goes_back_with_a_savepoint(engine: Computing, tmp_path: Path) -> None:
    lake, log = Lake(str(tmp_path / "lake")), spread(WATCHED, 6)
    land(lake, WATCHED, log, 0, 100)
    engine.run_unbounded(WATCHED, lake, until_caught_up=True)
    made = engine.regroup(WATCHED, lake, 300)
    assert made is not None
    assert plan(Timeline.current(lake, WATCHED.name).deployed, declaring(WATCHED, 300)).changes == ()
    land(lake, WATCHED, log, 100)
    engine.run_unbounded(declaring(WATCHED, 300), lake, until_caught_up=True)
    check(lake, WATCHED, log)
    roll_back(lake, savepoints.find(lake, made.manifest.id))
    assert Timeline.current(lake, WATCHED.name).identity.key_groups() == 128
    engine.run_unbounded(WATCHED, lake, until_caught_up=True)
    check(lake, WATCHED, log)


@pytest.mark.feature("K10")
def test_refused_with_what_to_do(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(LifecycleError, match="LIFECYCLE-030"):
        regroup_steps(WINDOWED, lake, 64)
    for code in (WINDOWED, PLAIN):
        land(lake, code, spread(code, 7), 0, 50)
        engine.run_unbounded(code, lake, until_caught_up=True)
    with pytest.raises(CapabilityError, match="CAPABILITY-006"):
        regroup_steps(PLAIN, lake, 64)
    with pytest.raises(
        LifecycleError, match="LIFECYCLE-230.*256 key groups, as the operator declares, got --key-groups 64"
    ):
        regroup_steps(declaring(WINDOWED, 256), lake, 64)
    assert [type(step).__name__ for step in regroup_steps(WINDOWED, lake, 64)] == [
        "Save",
        "Regroup",
        "MakeCurrent",
        "Fence",
    ]
    sample.keep(lake, WINDOWED.name, (1, 2))
    with pytest.raises(CapabilityError, match="CAPABILITY-054.*expected a stream that computes all keys, got a sample"):
        regroup_steps(WINDOWED, lake, 64)
