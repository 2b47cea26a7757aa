"""Unbounded runs on the embedded engine: exact after kills at every write, savepoints, and whose a checkpoint is."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import forked
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from events import disorder
from processes import paths
from streams import ONCE, PLAIN, WINDOWED

from floodmark.core import crash
from floodmark.core.errors import ExecutionError, LifecycleError, StateError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import segment
from floodmark.engines.embedded.state.batch import Batch
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import GroupStore, State
from floodmark.engines.embedded.unbounded import compute
from floodmark.engines.embedded.unbounded import run as unbounded
from floodmark.engines.embedded.unbounded.begin import begin
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.starting import check_engine
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.expiry import expire
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.writing.compaction import compact
from floodmark.semantics.kernels.kernel import Emissions, Kernels
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, RunResult
from floodmark.spec.values.schema import PARTITION, STAMPS
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

sys.path.insert(0, str(Path(__file__).parent))
from stream_process import DIVIDED, UNCOMMITTED

_PUBLISHING = ("micro_batch.before_progress", "micro_batch.after_progress")
_POINTS = (*crash.POINTS["embedded"], "micro_batch.before_current", "micro_batch.after_current", *_PUBLISHING)


def _landed(lake: Lake, code: Operator, log: Log, commits: int) -> None:
    cuts = [len(log.entries) * n // commits for n in range(commits + 1)]
    for first, last in pairwise(cuts):
        land(lake, code, log, first, last)


def _check(lake: Lake, code: Operator, log: Log) -> None:
    """Every output has the rows of the engine of tests, and the last values are those of the changelog."""
    expected = MemoryRun(code).batch({code.inputs[0].name: log.table()})
    got = {name: _undivided(code, table) for name, table in outputs(lake, code).items()}
    assert final([got[""]])
    for name, table in expected.items():
        assert final([got[name]]) == final([table]), name
    for output in code.outputs:
        if output.current is not None:
            values = _undivided(code, DeltaTable(lake.output(output.current.table)).to_pyarrow_table())
            values = values.drop_columns(list(STAMPS))
            rows = sorted(values.to_pylist(), key=lambda row: (row["key"], row["window_start"]))
            changelog = sorted(final([got[output.name]]), key=lambda row: (row["key"], row["window_start"]))
            assert rows == changelog


def _undivided(code: Operator, table: pa.Table) -> pa.Table:
    """Rows without the name of their asset partition, which has to be that of their event time."""
    if code.partitions is None:
        return table
    moments = table["_event_time"].to_pylist()
    names = [None if moment is None else code.partitions.key(to_ms(moment)) for moment in moments]
    assert table[PARTITION].to_pylist() == names
    return table.drop_columns([PARTITION])


def _process(lake: Lake, code: Operator, at: str = "") -> int:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    command = [sys.executable, str(here / "stream_process.py"), lake.root, code.name]
    return forked.run(command, env=environment).returncode


@pytest.mark.parametrize("code", [PLAIN, WINDOWED, DIVIDED], ids=lambda code: code.name)
@pytest.mark.few(1)
def test_restarts(sail: Sail, code: Operator, tmp_path: Path) -> None:
    log, lake = disorder(code, 1, 240), Lake(str(tmp_path))
    for first, last in pairwise([0, 60, 61, 200, len(log.entries)]):
        land(lake, code, log, first, last)
        run_unbounded(sail, code, lake, until_caught_up=True)
    _check(lake, code, log)
    assert run_unbounded(sail, code, lake, until_caught_up=True).micro_batches == 0


def test_key_groups_that_wait_with_much_come_out_one_after_the_other(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows, their order and their counts are those of one call for all of them."""
    calls, found = list[int](), list[tuple[list[dict[str, object]], RunResult]]()
    advance = Kernels.advance_all

    def counted(kernels: Kernels, parts: Sequence[Mapping[str, pa.Table]], progress: int) -> Emissions:
        calls[-1] += 1
        return advance(kernels, parts, progress)

    monkeypatch.setattr(Kernels, "advance_all", counted)
    log = disorder(WINDOWED, 13, 240)
    for most in (compute._DUE_BYTES, 1):
        monkeypatch.setattr(compute, "_DUE_BYTES", most)
        calls.append(0)
        lake = Lake(str(tmp_path / str(most)))
        _landed(lake, WINDOWED, log, 3)
        result = run_unbounded(sail, WINDOWED, lake, until_caught_up=True, files_per_batch=1)
        rows = outputs(lake, WINDOWED)[""].drop_columns(["_ingest_time"])
        found.append((rows.to_pylist(), replace(result, seconds=0)))
    assert found[0] == found[1]
    assert calls[0] == 3 < calls[1]
    _check(lake, WINDOWED, log)


def _kills(lake: Lake, code: Operator, log: Log, points: tuple[str, ...]) -> int:
    """A run that is killed at each point, one after the other; how often it was."""
    killed = 0
    _landed(lake, code, log, 6)
    for at in points:
        status = _process(lake, code, at)
        killed += status == -signal.SIGKILL
    assert _process(lake, code) == 0
    _check(lake, code, log)
    return killed


def test_killed_behind_the_state_and_between_commits(tmp_path: Path) -> None:
    points = ("embedded.after_files", "embedded.after_state", "embedded.after_commit", *_PUBLISHING)
    assert _kills(Lake(str(tmp_path)), DIVIDED, disorder(DIVIDED, 2, 240), points) == len(points)


def test_killed_with_last_values_that_are_not_committed(tmp_path: Path) -> None:
    points = ("early.after_merge:2", "embedded.after_state")
    assert _kills(Lake(str(tmp_path)), UNCOMMITTED, disorder(UNCOMMITTED, 10, 240), points) == len(points)


@pytest.mark.soak
@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.parametrize("code", [PLAIN, WINDOWED], ids=lambda code: code.name)
def test_killed_at_every_point(code: Operator, point: str, tmp_path: Path) -> None:
    _kills(Lake(str(tmp_path)), code, disorder(code, 3, 240), (point, f"{point}:2", point))


def test_a_side_output_without_rows_says_how_far_the_stream_is(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: who reads it need not wait for its next row, nor read a commit per micro-batch."""
    monkeypatch.setattr(unbounded, "PROGRESS_SECONDS", 3600)
    log, lake, seen = disorder(WINDOWED, 3, 240), Lake(str(tmp_path)), list[BatchInfo]()
    late = next(output.table for output in WINDOWED.outputs if output.side == "late")
    _landed(lake, WINDOWED, log, 6)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True, files_per_batch=1, on_batch=seen.append)
    assert late not in seen[-1].rows
    assert seen[-1].progress > max(one.progress for one in seen if late in one.rows)
    assert history.progress(lake.output(late)) == seen[-1].progress
    commits = [record for _, record in history.standing_of(lake.output(late), MicroBatch)]
    assert next((one.batch, one.rows) for one in commits if one.settled) == (seen[-1].batch_id, 0)
    assert sum(one.settled for one in commits) <= 2, "at the beginning, and at the end"
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    assert len([*history.standing_of(lake.output(late), MicroBatch)]) == len(commits)
    _check(lake, WINDOWED, log)


def test_a_server_that_dies_costs_its_micro_batch_a_retry(tmp_path: Path) -> None:
    log, lake, sail, killed = disorder(WINDOWED, 11, 80), Lake(str(tmp_path)), Sail(memory=300), list[int]()
    _landed(lake, WINDOWED, log, 4)

    def kill(batch: BatchInfo) -> None:
        if batch.batch_id in {0, 2}:
            with sail.lent() as connection:
                killed.append(connection.server.process.pid)
            os.kill(killed[-1], signal.SIGKILL)

    run_unbounded(sail, WINDOWED, lake, until_caught_up=True, files_per_batch=1, on_batch=kill)
    sail.close()
    assert len(set(killed)) == 2
    _check(lake, WINDOWED, log)


@pytest.mark.parametrize("lost", ["windowed", "windowed__late"])
@pytest.mark.few(1)
def test_a_stream_that_has_lost_an_output_is_refused(sail: Sail, tmp_path: Path, lost: str) -> None:
    """A new table would lack what was written; the folder may come back."""
    lake, log = Lake(str(tmp_path / "lake")), disorder(WINDOWED, 3, 240)
    land(lake, WINDOWED, log, 0, 100)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    path, aside = Path(lake.output(lost)), tmp_path / "aside"
    path.rename(aside)
    land(lake, WINDOWED, log, 100, len(log.entries))
    with pytest.raises(ExecutionError, match=f"EXECUTION-002 output '{lost}' of 'windowed': .*--from-scratch"):
        run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    assert not path.exists()
    aside.rename(path)
    made = savepoints.create("windowed", lake)
    empty = fork(lake, made, str(tmp_path / "fork"), fresh=True)
    for place in (lake, empty):
        run_unbounded(sail, WINDOWED, place, until_caught_up=True)
    _check(lake, WINDOWED, log)
    assert outputs(empty, WINDOWED).keys() == outputs(lake, WINDOWED).keys()
    shutil.rmtree(path)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True, from_scratch=True)
    _check(lake, WINDOWED, log)


@pytest.mark.parametrize("at", ["", "embedded.after_files"])
def test_a_stream_without_a_micro_batch_begins_again_under_another_definition(
    sail: Sail, tmp_path: Path, at: str
) -> None:
    """It has failed in the first one, and its code was mended: nothing of it is needed, whatever its columns and state were."""
    lake, log = Lake(str(tmp_path)), disorder(WINDOWED, 3, 240)
    land(lake, WINDOWED, log, 0, len(log.entries))
    other = replace(ONCE, name=WINDOWED.name)
    if at:
        assert _process(lake, WINDOWED, at) == -signal.SIGKILL
    else:
        begin(WINDOWED, lake)  # and killed
    first = Timeline.current(lake, WINDOWED.name)
    assert upgrade(other, lake).plan.deployed is None
    run_unbounded(sail, other, lake, until_caught_up=True)
    _check(lake, other, log)
    assert Timeline.current(lake, WINDOWED.name).number == first.number + 1
    with pytest.raises(StateError, match="STATE-003"):
        run_unbounded(sail, WINDOWED, lake, until_caught_up=True)


def test_a_stream_with_half_a_micro_batch_is_of_its_definition(sail: Sail, tmp_path: Path) -> None:
    lake, log = Lake(str(tmp_path)), disorder(WINDOWED, 3, 240)
    land(lake, WINDOWED, log, 0, len(log.entries))
    assert _process(lake, WINDOWED, "embedded.after_commit") == -signal.SIGKILL
    with pytest.raises(StateError, match="STATE-003"):
        run_unbounded(sail, replace(ONCE, name=WINDOWED.name), lake, until_caught_up=True)


@pytest.mark.parametrize(
    ("at", "refused"), [("", False), ("embedded.after_files", False), ("embedded.after_commit", True)]
)
@pytest.mark.few(1)
def test_what_a_bounded_run_computes_before_the_first_micro_batch_of_a_stream_is_taken_over(
    sail: Sail, tmp_path: Path, at: str, refused: bool
) -> None:
    """That one reads all there is: its rows would be there twice."""
    lake, log = Lake(str(tmp_path)), disorder(WINDOWED, 3, 240)
    land(lake, WINDOWED, log, 0, len(log.entries))
    if at:
        assert _process(lake, WINDOWED, at) == -signal.SIGKILL
    else:
        begin(WINDOWED, lake)  # and killed
    if refused:  # its late rows are there, and its results are not
        with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*none before its first micro-batch"):
            run_bounded(sail, WINDOWED, lake)
    else:
        assert run_bounded(sail, WINDOWED, lake).rows
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    _check(lake, WINDOWED, log)
    assert run_bounded(sail, WINDOWED, lake, force=True).rows, (
        "the log has ended, and the stream is done with all of it"
    )


def test_savepoint_is_one_to_go_on_from(sail: Sail, tmp_path: Path) -> None:
    log, lake = disorder(WINDOWED, 4, 240), Lake(str(tmp_path))
    land(lake, WINDOWED, log, 0, 120)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    made = savepoints.create(WINDOWED.name, lake)
    assert made.manifest.engine["engine"] == "embedded"
    timeline = Timeline.current(lake, WINDOWED.name)
    savepoints.restore(made, timeline.folder())
    land(lake, WINDOWED, log, 120)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    _check(lake, WINDOWED, log)


def test_checkpoint_of_another_engine_is_refused(sail: Sail, tmp_path: Path) -> None:
    log, lake = disorder(PLAIN, 5, 10), Lake(str(tmp_path))
    land(lake, PLAIN, log)
    run_unbounded(sail, PLAIN, lake, until_caught_up=True)
    with pytest.raises(StateError, match=r"STATE-041 .*--engine embedded"):
        check_engine(Timeline.current(lake, PLAIN.name), "spark")


def test_state_is_what_was_committed(tmp_path: Path) -> None:
    """Against a dictionary, over many merges of files; what is not committed is gone."""
    checkpoint, rng = Checkpoint(str(tmp_path / CHECKPOINT)), random.Random(6)
    checkpoint.begin()
    state, expected = State(checkpoint), dict[tuple[int, int], bytes]()
    for number in range(300):
        for _ in range(rng.randrange(6)):
            group, chunk = rng.randrange(4), rng.randrange(40)
            store = GroupStore(state, group)
            if (group, chunk) in expected and rng.random() < 0.4:
                store.remove(chunk)
                del expected[group, chunk]
            else:
                expected[group, chunk] = rng.randbytes(rng.choice([10, 3000]))
                store.put(chunk, expected[group, chunk])
        batch = Batch(number=number, progress=number, reached={}, clock=0, positions=(), owed=(), segments=())
        state.commit(batch)
        state.mark(number)
        if number % 40 == 0:
            state = State(checkpoint)
            GroupStore(state, 9).put(0, b"never committed")
            state.discard()
            assert {key: state.get(key) for key in expected} == expected
            assert len(state.batch.segments if state.batch else ()) < 40
    assert State(checkpoint).get((9, 0)) is None
    assert len(list(Path(checkpoint.path, "batches").iterdir())) < 150
    assert checkpoint.restorable()[-1] == checkpoint.last_committed() == 299


def test_files_bytes_and_memory_of_a_state_of_one_size_do_not_grow_with_micro_batches(tmp_path: Path) -> None:
    """Twenty values are replaced in each micro-batch, of two hundred; what there is after 600 of them is what there was after 300."""
    checkpoint, rng, seen = Checkpoint(str(tmp_path / CHECKPOINT)), random.Random(12), list[tuple[int, ...]]()
    checkpoint.begin()
    state = State(checkpoint)
    for number in range(600):
        store = GroupStore(state, 0)
        for chunk in rng.sample(range(200), 20):
            store.put(chunk, rng.randbytes(200))
        state.commit(Batch(number=number, progress=number, reached={}, clock=0, positions=(), owed=(), segments=()))
        state.mark(number)
        if number >= 200 and number % 7 == 0:
            files = [path for path in Path(checkpoint.path).rglob("*") if path.is_file()]
            known = len(state._retained) + len(state._sizes) + len(state._places)
            opened = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc").is_dir() else 0
            seen.append((len(files), sum(file.stat().st_size for file in files), known, opened))
    first, last = (zip(*part, strict=True) for part in (seen[:15], seen[-15:]))
    for before, after in zip(first, last, strict=True):
        assert max(after) <= max(before) * 1.1


def test_a_chunk_may_have_any_number_and_is_not_the_index(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / CHECKPOINT))
    checkpoint.begin()
    state = State(checkpoint)
    store = GroupStore(state, 3)
    store.put(-1, b"rows that wait")
    store.put_index(b"index")
    store.write_index(None)
    state.commit(Batch(number=0, progress=0, reached={}, clock=0, positions=(), owed=(), segments=()))
    again = GroupStore(State(checkpoint), 3)
    assert (again.get(-1), again.index()) == (b"rows that wait", b"index")


def test_the_index_in_a_file_of_the_first_format_is_found(tmp_path: Path) -> None:
    segment.write(str(tmp_path), "0", {}, {(3, -1): b"index", (3, 7): b"chunk"}, least=1)
    found = segment.read(str(tmp_path), "0").entries
    assert set(found) == {(3, segment.INDEX), (3, 7)}
    assert segment.value(str(tmp_path), found[3, segment.INDEX]) == b"index"  # type: ignore[arg-type]


def test_rollback_undoes_and_goes_on(sail: Sail, tmp_path: Path) -> None:
    log, lake = disorder(WINDOWED, 7, 240), Lake(str(tmp_path))
    land(lake, WINDOWED, log, 0, 80)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    made = savepoints.create(WINDOWED.name, lake)
    land(lake, WINDOWED, log, 80, 160)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    roll_back(lake, made)
    land(lake, WINDOWED, log, 160)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    assert Timeline.current(lake, WINDOWED.name).number == 1
    _check(lake, WINDOWED, log)


def test_going_back_behind_what_the_log_has_lost_it_reads_the_files_that_are_there(sail: Sail, tmp_path: Path) -> None:
    log, lake = disorder(WINDOWED, 8, 240), Lake(str(tmp_path))
    cuts = [0, 30, 90, *range(100, 200, 10), len(log.entries)]
    for first, last in pairwise(cuts):
        time.sleep(0.002)  # files of one millisecond have no order
        land(lake, WINDOWED, log, first, last)
        if last == 90:
            run_unbounded(sail, WINDOWED, lake, until_caught_up=True, files_per_batch=1)
            made = savepoints.create(WINDOWED.name, lake)
    path = lake.input(WINDOWED.inputs[0])
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    compact(path)  # one file holds what the savepoint has read, and what it has not
    expire(path, floor=DeltaTable(path).version(), hours=0)
    assert entries.entry(path, made.manifest.inputs[WINDOWED.inputs[0].name].version + 1) is None
    roll_back(lake, savepoints.find(lake, made.id))
    assert run_unbounded(sail, WINDOWED, lake, until_caught_up=True, files_per_batch=1).micro_batches
    _check(lake, WINDOWED, log)


def test_upkeep_leaves_what_a_stream_that_was_killed_has_yet_to_commit(tmp_path: Path) -> None:
    log, lake = disorder(WINDOWED, 9, 60), Lake(str(tmp_path))
    _landed(lake, WINDOWED, log, 2)
    assert _process(lake, WINDOWED, "embedded.after_state:2") == -signal.SIGKILL
    time.sleep(0.002)
    maintain(lake, hours=0)
    assert _process(lake, WINDOWED) == 0
    _check(lake, WINDOWED, log)
