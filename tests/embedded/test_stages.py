"""Streams of several stages on the embedded engine: restarts, kills, savepoints, upgrades; bounded runs over parts of time."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import forked
import pytest
from events import START, disorder
from processes import paths
from staged import BUSIEST, FOLLOWED, PEAKS, STAGED, hours_over
from streams import check

import floodmark as fm
from floodmark.core import crash
from floodmark.core.errors import CapabilityError, PlanError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.bounded.run import planned, run_bounded
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import canonical
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import MOST_KEY_GROUPS
from floodmark.spec.values.schema import PARTITION
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

HOUR = 3_600_000


def _run(lake: Lake, name: str, at: str = "") -> int:
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    command = [sys.executable, str(Path(__file__).parent / "stream_process.py"), lake.root, name]
    return forked.run(command, env=environment).returncode


def _landed(lake: Lake, code: Operator, log: Log, commits: int) -> None:
    for first, last in pairwise([len(log.entries) * n // commits for n in range(commits + 1)]):
        land(lake, code, log, first, last)


@pytest.mark.feature("W11", "Q3")
@pytest.mark.parametrize("name", STAGED)
@pytest.mark.few(2)
def test_a_stream_of_stages_and_its_bounded_run_give_the_same(sail: Sail, tmp_path: Path, name: str) -> None:
    code = STAGED[name]
    log, lake = disorder(code, 1, 200), Lake(str(tmp_path / "stream"))
    for first, last in pairwise([0, 60, 61, 160, len(log.entries)]):
        land(lake, code, log, first, last)
        result = run_unbounded(sail, code, lake, until_caught_up=True)
    check(lake, code, log)
    assert result.rows.keys() <= {output.table for output in code.outputs}
    tables = {path.name for path in Path(lake.root).iterdir() if (path / "_delta_log").exists()}
    known = {one.table for output in code.outputs for one in (output, output.current) if one is not None}
    assert tables <= known, "what a stage hands on is no table"
    state = State(Checkpoint(Timeline.current(lake, code.name).folder(CHECKPOINT)))
    assert {group // MOST_KEY_GROUPS for group in dict(state.keys())} <= set(range(len(code.stages)))
    bounded = Lake(str(tmp_path / "bounded"))
    land(bounded, code, log)
    run_bounded(sail, code, bounded)
    check(bounded, code, log)


@pytest.mark.parametrize("name", ["peaks", "busiest", "followed"])
@pytest.mark.few(1)
def test_an_interval_has_the_results_of_all_of_time_that_lie_in_it(sail: Sail, tmp_path: Path, name: str) -> None:
    code = STAGED[name]
    log, lake = disorder(code, 2, 300), Lake(str(tmp_path))
    land(lake, code, log)
    run_bounded(sail, code, lake)
    whole = {output: table.to_pylist() for output, table in outputs(lake, code).items()}
    begin = to_ms(START) + 90 * 60_000
    for start, end in pairwise([begin, begin + 17 * 60_000, begin + HOUR, begin + 2 * HOUR]):
        part = Lake(str(tmp_path / str(start)))
        land(part, code, log)
        run_bounded(sail, code, part, Interval(start=start, end=end))
        for output, table in outputs(part, code).items():
            inside = [row for row in whole[output] if start <= to_ms(row["_event_time"]) < end]
            names = code.output(output).schema.names
            assert _values(table.to_pylist(), names) == _values(inside, names), (output, start)


def _values(rows: list[dict[str, object]], names: tuple[str, ...]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in rows)


@pytest.mark.feature("W11")
@pytest.mark.parametrize("code", [PEAKS, pytest.param(FOLLOWED, marks=pytest.mark.soak)], ids=lambda code: code.name)
def test_a_stream_of_stages_is_killed(code: Operator, tmp_path: Path) -> None:
    log, lake = disorder(code, 3, 200), Lake(str(tmp_path))
    _landed(lake, code, log, 6)
    for at in ("embedded.after_files", "embedded.after_state:2", "embedded.after_commit"):
        assert _run(lake, code.name, at) == -signal.SIGKILL
    assert _run(lake, code.name) == 0
    check(lake, code, log)


@pytest.mark.feature("W11")
def test_one_savepoint_holds_the_state_of_all_stages(sail: Sail, tmp_path: Path) -> None:
    log, lake = disorder(BUSIEST, 4, 200), Lake(str(tmp_path))
    land(lake, BUSIEST, log, 0, 100)
    run_unbounded(sail, BUSIEST, lake, until_caught_up=True)
    made, before = savepoints.create(BUSIEST.name, lake), outputs(lake, BUSIEST)[""].num_rows
    land(lake, BUSIEST, log, 100, 150)
    run_unbounded(sail, BUSIEST, lake, until_caught_up=True)
    assert outputs(lake, BUSIEST)[""].num_rows > before
    roll_back(lake, savepoints.find(lake, made.id))
    assert outputs(lake, BUSIEST)[""].num_rows <= before + 1  # and a marker
    land(lake, BUSIEST, log, 150)
    run_unbounded(sail, BUSIEST, lake, until_caught_up=True)
    check(lake, BUSIEST, log)


def test_a_canonical_savepoint_of_stages_comes_back_and_partitions_divide_their_results(
    sail: Sail, tmp_path: Path
) -> None:
    code = replace(PEAKS, partitions=fm.Daily("2020-01-01", timezone="Asia/Kolkata"))
    log, lake = disorder(code, 4, 200), Lake(str(tmp_path / "lake"))
    land(lake, code, log, 0, 100)
    run_unbounded(sail, code, lake, until_caught_up=True)
    exported = canonical.export(savepoints.create(code.name, lake), str(tmp_path / "exported"))
    land(lake, code, log, 100, 150)
    run_unbounded(sail, code, lake, until_caught_up=True)
    roll_back(lake, canonical.import_savepoint(lake, exported))
    land(lake, code, log, 150)
    run_unbounded(sail, code, lake, until_caught_up=True)
    expected = {name: final([table]) for name, table in MemoryRun(PEAKS).batch({"events": log.table()}).items()}

    def results() -> dict[str, list[dict[str, object]]]:
        return {name: final([table.drop_columns([PARTITION])]) for name, table in outputs(lake, code).items()}

    assert results() == expected
    run_bounded(sail, code, lake, force=True)
    assert results() == expected


def test_a_changed_second_stage_is_planned_and_goes_on(sail: Sail, tmp_path: Path) -> None:
    """What the second stage has gathered stays; rows from the first are taken by the new condition."""
    before, after, lake = hours_over("total >= 0"), hours_over("total < 0"), Lake(str(tmp_path))
    log = disorder(before, 5, 200)
    land(lake, before, log, 0, 100)
    run_unbounded(sail, before, lake, until_caught_up=True)
    seen = final([outputs(lake, before)[""]])
    with pytest.raises(PlanError, match="PLAN-011 .*'forward-only'.*open hold rows as the old code let them through"):
        upgrade(after, lake)
    with pytest.raises(PlanError, match="PLAN-011 .*'rebuild'.*cut by the old windows"):
        upgrade(hours_over("total >= 0", "2 hours"), lake, forward_only=True)
    upgrade(after, lake, forward_only=True)
    land(lake, before, log, 100)
    run_unbounded(sail, after, lake, until_caught_up=True)
    rows = final([outputs(lake, after)[""]])
    later = [row for row in rows if row not in seen]
    assert later, "windows that were open come out with what they have"
    whole = Lake(str(tmp_path / "whole"))
    land(whole, before, log)
    run_unbounded(sail, before, whole, until_caught_up=True)
    known = {(row["key"], row["window_start"]): row["tens"] for row in final([outputs(whole, before)[""]])}
    assert all(row["tens"] <= known[row["key"], row["window_start"]] for row in later)
    assert len(rows) < len(known)


def test_what_stages_cannot_do_yet_is_refused_with_the_way_on(sail: Sail, tmp_path: Path) -> None:
    lake, log = Lake(str(tmp_path)), disorder(PEAKS, 6, 60)
    land(lake, PEAKS, log)
    run_unbounded(sail, PEAKS, lake, until_caught_up=True)
    land(lake, PEAKS, log)
    with pytest.raises(CapabilityError, match="CAPABILITY-002 .*all of time"):
        run_bounded(sail, _endless(), lake, Interval(start=0, end=HOUR))


def _endless() -> Operator:
    from events import Event

    def endless(events: fm.Stream[Event]) -> fm.Stream:
        tens = events.key_by("key").window(fm.Tumbling("10 minutes")).aggregate(total=fm.sum("value"))
        return tens.window(fm.Global()).aggregate(total=fm.sum("total"))

    return fm.operator(endless)


def test_the_plans_of_a_bounded_run_are_shown_for_every_stage(sail: Sail, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for code in (PEAKS, FOLLOWED):
        land(lake, code, disorder(code, 6, 20))
    with sail.lent() as connection:
        rows = connection.spark.read.format("delta").load(lake.input(PEAKS.inputs[0]))
        assert [name for name, _ in planned(PEAKS, lake, {"events": rows})[0]] == ["step 'peaks_2'"]
        frames, then = planned(FOLLOWED, lake, {"events": rows})
        assert [name for name, _ in frames] == ["step 'followed_2'", "followed"], (
            "the first join is a part of the frame behind it"
        )
        assert "key groups" in then
