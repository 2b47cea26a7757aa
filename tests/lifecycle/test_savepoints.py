"""Savepoints on a real engine: what is taken back to one ends where it would have ended without."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from deltalake import DeltaTable, write_deltalake
from engines import embedded
from events import START, Event, row, source
from flights import changelog
from pyspark.sql import SparkSession

from demo.comparison import compare
from floodmark import Stream, Tumbling, count, max, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import ExecutionError, LifecycleError, SetupError, StateError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.state import checkpoint as embedded_checkpoint
from floodmark.engines.spark.state import checkpoint as spark_checkpoint
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import prepare, roll_back
from floodmark.lake.restore.switch import pending
from floodmark.lake.stream import ticks
from floodmark.lake.stream.timeline import STARTS, Timeline
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Settings


def summed(left: Stream[Event], right: Stream[Event]) -> Stream:
    windowed = left.union(right).key_by("key")
    return windowed.window(Tumbling("10 minutes"), allowed_lateness="10 minutes", late="side_output").aggregate(
        n=count(), total=sum("value")
    )


@operator
def totals(left: Stream[Event], right: Stream[Event]) -> Stream:
    """Two inputs, results that are revised, rows that are too late."""
    return summed(left, right)


@operator(inputs={"totals": totals})
def largest(totals: Stream) -> Stream:
    """A reader of it, with state of its own."""
    return totals.window(Tumbling("30 minutes")).aggregate(most=max("total"))


@operator
def clocked(left: Stream[Event]) -> Stream:
    """Windows of processing time."""
    return left.key_by("key").window(Tumbling("1 hour"), time="processing").aggregate(n=count())


def put(lake: Lake, until: int, *, end: bool = False) -> None:
    """More of both inputs, in disorder: every seventh row half an hour late."""
    rows = [row(minute - 30 if minute % 7 == 5 and minute > 40 else minute) for minute in range(until)]
    for name in ("left", "right"):
        embedded().land(source(rows[:: 1 if name == "left" else 2], name), lake, end=end)


def differences(one: Lake, other: Lake, *tables: str) -> dict[str, int]:
    """Of the rows readers see."""
    return {
        table: found.differences
        for table in tables
        if (found := compare(changelog(one, table), changelog(other, table), names=("one", "other"))).differences
    }


def values(lake: Lake, table: str) -> list[tuple[object, ...]]:
    found = DeltaTable(lake.output(table)).to_pyarrow_table()
    columns = [name for name in found.column_names if not name.startswith("_")]
    return sorted(tuple(one[name] for name in columns) for one in found.to_pylist() if one["_kind"] == 0)


TABLES = ("totals", "totals__late")


@pytest.fixture(scope="module")
def hour(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which 'totals' has read the first hour."""
    lake = Lake(str(tmp_path_factory.mktemp("hour") / "lake"))
    put(lake, 60)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    return Path(lake.root)


@pytest.fixture
def begun(hour: Path, tmp_path: Path) -> Lake:
    """A copy of it, to go on with."""
    return Lake(str(shutil.copytree(hour, tmp_path / "lake")))


@pytest.fixture
def both(engine: Computing, begun: Lake) -> Lake:
    """The reader of 'totals' has read it too."""
    engine.run_unbounded(largest, begun, until_caught_up=True)
    return begun


@pytest.mark.feature("V1", "V2", "F9")
def test_a_stream_taken_back_to_a_savepoint_ends_where_it_would_have_ended(
    engine: Computing, begun: Lake, truth: Lake
) -> None:
    lake = begun
    made = savepoints.create("totals", lake, why="before the change")
    assert not savepoints.verify(made)
    state = [
        file.stat()
        for file in Path(made.path).rglob("*")
        if file.suffix in {".sst", ".zip"} or file.parent.name in {"batches", "merged"}
    ]
    assert state, "and all of it is shared with the checkpoint: only what is new takes room"
    assert {one.st_nlink > 1 for one in state} == {True}
    assert [one.manifest.why for one in savepoints.savepoints(lake)] == ["before the change"]
    was = {table: values(lake, table) for table in (*TABLES, "totals__current")}
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert values(lake, "totals") != was["totals"]
    found = roll_back(lake, savepoints.find(lake, made.manifest.id))
    lost = {one.table: one for one in found.undone}
    assert all(lost[table].commits and lost[table].rows for table in TABLES), lost
    assert pending(lake) is None
    assert {table: values(lake, table) for table in was} == was, "what people read too, at once"
    assert not savepoints.verify(made), "a stream that goes on from it leaves it alone"
    put(lake, 180, end=True)
    result = engine.run_unbounded(totals, lake, until_caught_up=True)
    assert result.micro_batches
    assert not differences(lake, truth, *TABLES)
    assert values(lake, "totals__current") == values(truth, "totals__current")
    roll_back(lake, made)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert not differences(lake, truth, *TABLES), "as often as one likes"
    assert values(lake, "totals__current") == values(truth, "totals__current")
    assert Timeline.current(lake, "totals").number == 2


def files_of(made: savepoints.Savepoint) -> dict[int, int]:
    """Inode of each file of a savepoint that holds state -> bytes."""
    files = [file.stat() for file in Path(made.path).rglob("*") if file.is_file()]
    return {file.st_ino: file.st_size for file in files if file.st_nlink > 1}


@pytest.mark.feature("F9")
def test_a_savepoint_is_a_base_and_what_has_changed_since(engine: Computing, begun: Lake, truth: Lake) -> None:
    lake = begun
    base = savepoints.create("totals", lake)
    again = savepoints.create("totals", lake)
    assert files_of(again) == files_of(base), "of unchanged state no byte is copied"
    savepoints.delete(again)
    put(lake, 63)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    later = savepoints.create("totals", lake)
    first, second = files_of(base), files_of(later)
    assert set(first) & set(second), "the base is there once"
    assert set(second) - set(first), "what has changed since is of its own"
    was = {table: values(lake, table) for table in (*TABLES, "totals__current")}
    savepoints.delete(base)
    assert not savepoints.verify(later), "it needs nothing of the savepoint before it"
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    roll_back(lake, later)
    assert {table: values(lake, table) for table in was} == was
    put(lake, 180, end=True)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert not differences(lake, truth, *TABLES), "base and changes are read in their order"


def test_a_reader_goes_back_with_what_it_reads(engine: Computing, both: Lake, truth: Lake) -> None:
    lake = both
    made = create_coordinated_savepoints("totals", lake, why="both")
    assert [one.manifest.operator for one in made] == ["totals", "largest"]
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    found = prepare(lake, made[0], keep=False)
    assert [step.operator for step in found.switch.targets] == ["totals", "largest"]
    assert not [one for one in found.undone if one.table == "largest" and one.commits], "it has read nothing since"
    engine.run_unbounded(largest, lake, until_caught_up=True)
    roll_back(lake, made[0])
    engine.run_unbounded(totals, lake, until_caught_up=True)
    if (
        engine.name == "spark"
    ):  # it is where the timeline began: the micro-batch before that has no state of its own here
        with pytest.raises(LifecycleError, match=r"LIFECYCLE-040 .*a reader that is further behind"):
            create_coordinated_savepoints("totals", lake)
    engine.run_unbounded(largest, lake, until_caught_up=True)
    assert [one.manifest.operator for one in create_coordinated_savepoints("totals", lake)] == ["totals", "largest"]
    put(lake, 180, end=True)
    for one in (totals, largest):
        engine.run_unbounded(one, lake, until_caught_up=True)
    assert not differences(lake, truth, *TABLES, "largest")


def test_a_reader_that_begins_after_a_rollback_reads_what_bounded_runs_had_restated(
    engine: Computing, lake: Lake, truth: Lake
) -> None:
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    restated = Interval(start=to_ms(START), end=to_ms(START) + 1_800_000)
    assert engine.run_bounded(totals, lake, restated, force=True).rows
    made = savepoints.create("totals", lake)
    put(lake, 150)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    roll_back(lake, made)
    engine.run_unbounded(largest, lake, until_caught_up=True, files_per_batch=1)
    put(lake, 180, end=True)
    for one in (totals, largest):
        engine.run_unbounded(one, lake, until_caught_up=True)
    assert not differences(lake, truth, "largest")


def test_a_reader_that_is_not_at_the_cut_is_named_and_can_be_left(engine: Computing, begun: Lake, truth: Lake) -> None:
    lake = begun
    made = savepoints.create("totals", lake)
    put(lake, 120)
    for one in (totals, largest):
        engine.run_unbounded(one, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-035 .*a state of largest that has read exactly what it keeps"):
        roll_back(lake, made)
    assert Timeline.current(lake, "totals").number == 0
    assert roll_back(lake, made, alone=True).left == ("largest",)
    put(lake, 180, end=True)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-038 .*a rollback of 'totals' behind what its stream has read"):
        engine.run_unbounded(largest, lake, until_caught_up=True)
    engine.run_unbounded(largest, lake, until_caught_up=True, from_scratch=True, files_per_batch=1)
    assert not differences(lake, truth, *TABLES, "largest")
    assert engine.run_unbounded(largest, lake, until_caught_up=True).micro_batches == 0


def test_the_clock_goes_back_too(engine: Computing, lake: Lake) -> None:
    hour = 3_600_000
    put(lake, 30)
    engine.run_unbounded(clocked, lake, until_caught_up=True, clock=hour // 2)
    made = savepoints.create("clocked", lake)
    put(lake, 60)
    engine.run_unbounded(clocked, lake, until_caught_up=True, clock=5 * hour // 2)
    assert sum_of(lake, "clocked", "n") == 30
    roll_back(lake, made)
    assert sum_of(lake, "clocked", "n") == 0
    assert len(ticks.recorded(clocked, lake)) == 1
    put(lake, 90, end=True)
    engine.run_unbounded(clocked, lake, until_caught_up=True, clock=3 * hour // 4)
    assert sum_of(lake, "clocked", "n") == 90, "nothing is lost, nothing there twice"
    replay = Lake(str(Path(lake.root).parent / "replay"), logs=lake.root)
    shutil.copytree(ticks.folder(clocked, lake), ticks.folder(clocked, replay))
    engine.run_bounded(clocked, replay, Interval())
    assert values(replay, "clocked") == values(lake, "clocked")


def sum_of(lake: Lake, table: str, column: str) -> int:
    found = DeltaTable(lake.output(table)).to_pyarrow_table(columns=[column, "_kind"]).to_pylist()
    return builtins.sum(one[column] for one in found if one["_kind"] == 0)


def test_what_cannot_be_taken_back_is_refused_and_nothing_changes(engine: Computing, begun: Lake) -> None:
    lake = begun
    made = savepoints.create("totals", lake)
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    was = values(lake, "totals")
    path = lake.output("totals")
    taken_out = set(DeltaTable(path, version=made.manifest.outputs[0].version).file_uris())

    log = Path(path) / "_delta_log"
    stray = DeltaTable(path).to_pyarrow_table().slice(0, 1)
    write_deltalake(path, stray, mode="append")
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-036 .*writes of others: WRITE at version"):
        roll_back(lake, made)
    (log / f"{DeltaTable(path).version():020d}.json").unlink()

    engine.run_bounded(totals, lake, Interval(start=to_ms(START), end=to_ms(START) + 1_800_000), force=True)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-036 .*bounded runs of .*--undo-backfills"):
        roll_back(lake, made)
    gone = Path(unquote(sorted(taken_out - set(DeltaTable(path).file_uris()))[0].removeprefix("file://")))
    kept = gone.with_suffix(".kept")
    gone.rename(kept)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-037 .*which a VACUUM has removed"):
        roll_back(lake, made, backfills=True)
    kept.rename(gone)

    state = next(Path(made.path).rglob("*.changelog" if engine.name == "spark" else "batches/*"))
    content = state.read_bytes()
    state.unlink()
    state.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StateError, match=r"STATE-021 .*has other content than was written"):
        roll_back(lake, made, backfills=True)
    state.write_bytes(content)
    assert values(lake, "totals") == was
    assert Timeline.current(lake, "totals").number == 0
    assert roll_back(lake, made, backfills=True).undone[0].backfills

    manifest = Path(made.path) / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 1', '"format": 9'))
    with pytest.raises(StateError, match=r"STATE-020 .*format 2 or older, got format 9"):
        savepoints.find(lake, made.manifest.id)
    manifest.write_text(text[:-5])
    with pytest.raises(StateError, match="STATE-021"):
        savepoints.find(lake, made.manifest.id)
    with pytest.raises(LifecycleError, match="LIFECYCLE-031"):
        savepoints.find(lake, "totals-20200101T000000-abcd")
    with pytest.raises(LifecycleError, match="LIFECYCLE-030"):
        savepoints.create("largest", lake)


@pytest.mark.feature("V6", "F12")
def test_a_lake_is_copied_elsewhere_and_the_old_one_deleted(
    engine: Computing, begun: Lake, truth: Lake, tmp_path: Path
) -> None:
    lake = begun
    made = savepoints.create("totals", lake)
    savepoints.pin(made, pinned=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-032"):
        savepoints.delete(savepoints.find(lake, made.manifest.id))
    savepoints.pin(made, pinned=False)
    savepoints.export(made, str(tmp_path / "exported"))
    savepoints.delete(savepoints.find(lake, made.manifest.id))
    assert not savepoints.savepoints(lake)
    moved = Lake(str(tmp_path / "moved"))
    shutil.copytree(lake.root, moved.root, ignore=shutil.ignore_patterns("operators"))
    shutil.rmtree(lake.root)
    found = savepoints.import_savepoint(moved, str(tmp_path / "exported" / made.manifest.id))
    with pytest.raises(LifecycleError, match="LIFECYCLE-033"):
        savepoints.import_savepoint(moved, str(tmp_path / "exported" / made.manifest.id))
    roll_back(moved, found)
    before = landed(moved)
    for until, end in ((120, False), (180, True)):
        put(moved, until, end=end)
    sizes = list[int]()
    engine.run_unbounded(totals, moved, until_caught_up=True, on_batch=lambda batch: sizes.append(batch.rows_in))
    assert not differences(moved, truth, *TABLES)
    assert values(moved, "totals__current") == values(truth, "totals__current")
    read = np.sum(sizes) - markers_of_start(moved)
    assert read == landed(moved) - before, "it goes on behind the savepoint and reads nothing again"


def markers_of_start(lake: Lake) -> int:
    """Rows that Spark reads beside each of the two inputs: what the last start has marked of both. The embedded engine has no such table."""
    starts = Timeline.current(lake, "totals").folder(STARTS)
    if not DeltaTable.is_deltatable(starts):
        return 0
    table = DeltaTable(starts)
    before = DeltaTable(starts, version=table.version() - 1).to_pyarrow_table().num_rows
    return 2 * (table.to_pyarrow_table().num_rows - before)


def landed(lake: Lake) -> int:
    """Rows of both logs, and their markers."""
    left, right = (
        DeltaTable(lake.log(name)).to_pyarrow_table(columns=["_kind"]).num_rows for name in ("left", "right")
    )
    return left + right


def test_a_lost_checkpoint_is_begun_anew_and_nothing_is_skipped(engine: Computing, lake: Lake, truth: Lake) -> None:
    for until, end in ((60, False), (120, False), (180, True)):
        put(lake, until, end=end)
    engine.run_unbounded(totals, lake, until_caught_up=True, files_per_batch=1)
    shutil.rmtree(Timeline.current(lake, "totals").folder())
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert not differences(lake, truth, *TABLES)
    assert Timeline.current(lake, "totals").number == 1


@pytest.mark.feature("V7")
def test_two_forks_of_one_savepoint_and_the_original_go_on_by_themselves(
    engine: Computing, begun: Lake, truth: Lake, tmp_path: Path
) -> None:
    lake = begun
    made = savepoints.create("totals", lake)
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    was = values(lake, "totals")
    first, second = (fork(lake, made, str(tmp_path / name), fresh=name == "b") for name in "ab")
    with pytest.raises(LifecycleError, match="LIFECYCLE-041"):
        fork(lake, made, first.root)
    with pytest.raises(LifecycleError, match="LIFECYCLE-041"):
        fork(lake, made, lake.root)
    before = values(first, "totals")
    put(lake, 180, end=True)
    for one in (first, second):
        engine.run_unbounded(totals, one, until_caught_up=True)
    assert values(lake, "totals") == was, "the original has not moved"
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert not differences(first, truth, *TABLES)
    assert not differences(lake, truth, *TABLES)
    assert values(first, "totals__current") == values(truth, "totals__current")
    assert sorted([*before, *values(second, "totals")]) == values(truth, "totals"), "a fresh one has what came since"
    assert Lake.of(Settings(lake=first.root)) == first, "the command line knows what it reads"


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.feature("K10", "K11", "V9")
def test_state_is_divided_among_more_partitions_and_fewer(
    spark: SparkSession, engine: Computing, begun: Lake, truth: Lake
) -> None:
    lake = begun
    for until, end, partitions in ((120, False, 5), (180, True, 3)):
        before = divided(spark, lake)
        assert rescale(spark, lake, "totals", partitions)
        after = divided(spark, lake)
        assert [row[:2] for row in after] == [row[:2] for row in before], "whole groups move, as they are"
        assert len({group for group, *_ in after}) == len(after) == 2, "that of each key is in one partition"
        assert {partition for *_, partition in after} <= set(range(partitions))
        put(lake, until, end=end)
        engine.run_unbounded(totals, lake, until_caught_up=True)
        checkpoint = Timeline.current(lake, "totals").checkpoint
        assert checkpoint.partitions(checkpoint.last_committed()) == partitions
    assert rescale(spark, lake, "totals", 3) is None, "it is divided so already"
    assert not differences(lake, truth, *TABLES)
    assert values(lake, "totals__current") == values(truth, "totals__current")


def divided(spark: SparkSession, lake: Lake) -> list[tuple[int, bytes, int]]:
    """Key group, what its state is, and the state partition it is in."""
    checkpoint = Timeline.current(lake, "totals").checkpoint
    reader = spark.read.format("statestore").option("batchId", checkpoint.last_committed())
    rows = reader.option("stateVarName", "index").load(checkpoint.path).collect()
    return sorted((row["key"]["group"], bytes(row["value"]["index"]), row["partition_id"]) for row in rows)


@operator(name="totals")
def doubled(left: Stream[Event], right: Stream[Event]) -> Stream:
    """The first one with a column more."""
    return summed(left, right).with_columns(double="total * 2")


@pytest.mark.engines(soak=("spark",))
def test_a_garbled_plan_goes_by_the_command_that_the_error_names(engine: Computing, begun: Lake, truth: Lake) -> None:
    offsets = Path(Timeline.current(begun, "totals").checkpoint.path, "offsets")
    last = builtins.max(int(file.name) for file in offsets.iterdir() if file.name.isdecimal())
    (offsets / str(last + 1)).write_text("")
    (offsets / f".{last + 1}.crc").write_bytes(
        b"crc\0" + (512).to_bytes(4, "big") + bytes(4)
    )  # an earlier release leaves one
    for until, end in ((120, False), (180, True)):
        put(begun, until, end=end)
    with pytest.raises(StateError, match="STATE-036") as caught:
        engine.run_unbounded(totals, begun, until_caught_up=True)
    subprocess.run(caught.value.fix.split("checksum: ")[1], shell=True, check=True)  # noqa: S602 - as a person does
    engine.run_unbounded(totals, begun, until_caught_up=True)
    assert not differences(begun, truth, *TABLES)


def fail_at(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Of a run, when it comes to that point."""

    def point(name: str) -> None:
        if name == wanted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(crash, "point", point)


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.feature("K11")
@pytest.mark.parametrize("way", ["ended", "taken back"])
def test_a_micro_batch_that_is_half_written_is_ended_or_taken_back_first(
    spark: SparkSession, engine: Computing, begun: Lake, truth: Lake, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its rows are in one table and not in the other: computed again on another timeline, or by other code, they would be there twice."""
    put(begun, 120)
    fail_at(monkeypatch, "micro_batch.after_side")
    with pytest.raises(SetupError, match="SETUP-052 .*No space left"):
        engine.run_unbounded(totals, begun, until_caught_up=True)
    monkeypatch.undo()
    was = values(begun, "totals__late")
    for act in (lambda: rescale(spark, begun, "totals", 3), lambda: upgrade(doubled, begun)):
        with pytest.raises(LifecycleError, match=r"LIFECYCLE-044 .* its rows are in totals__late"):
            act()
    assert Timeline.current(begun, "totals").number == 0
    assert not savepoints.savepoints(begun)
    if way == "ended":
        engine.run_unbounded(totals, begun, until_caught_up=True)
    else:
        roll_back(begun, savepoints.create("totals", begun))
        assert len(values(begun, "totals__late")) < len(was)
    assert rescale(spark, begun, "totals", 3)
    put(begun, 180, end=True)
    engine.run_unbounded(totals, begun, until_caught_up=True)
    assert not differences(begun, truth, *TABLES)
    assert values(begun, "totals__current") == values(truth, "totals__current")


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.feature("K11")
def test_a_micro_batch_that_only_spark_knows_nothing_of_is_left_to_the_new_version(
    spark: SparkSession, engine: Computing, begun: Lake, truth: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(begun, 120)
    fail_at(monkeypatch, "micro_batch.after_main")
    with pytest.raises(SetupError, match="SETUP-052 .*No space left"):
        engine.run_unbounded(totals, begun, until_caught_up=True)
    monkeypatch.undo()
    with pytest.raises(LifecycleError, match="LIFECYCLE-044"):
        rescale(spark, begun, "totals", 3)
    assert upgrade(doubled, begun).savepoint
    put(begun, 180, end=True)
    engine.run_unbounded(doubled, begun, until_caught_up=True)
    found = standing(begun, "double")
    assert Counter(map(repr, found)) == Counter(map(repr, standing(truth)))
    told = [one["double"] == 2 * one["total"] for one in standing(begun)]
    assert any(told), "new code"
    assert not all(told), "final when it came"


def standing(lake: Lake, *without: str) -> list[dict[str, object]]:
    """Results net of retractions, without their stamps."""
    found, net = dict[str, dict[str, object]](), Counter[str]()
    for one in changelog(lake, "totals").drop_columns([*without, "_watermark"]).to_pylist():
        kind = one.pop("_kind")
        found[repr(one)] = one
        net[repr(one)] += 1 if kind == ROW else -1
    assert set(net.values()) <= {0, 1}
    return [one for text, one in found.items() if net[text]]


@pytest.mark.feature("V6")
def test_a_lake_that_is_moved_goes_on(engine: Computing, begun: Lake, truth: Lake, tmp_path: Path) -> None:
    shutil.move(begun.root, tmp_path / "elsewhere")
    moved = Lake(str(tmp_path / "elsewhere"))
    for until, end in ((120, False), (180, True)):
        put(moved, until, end=end)
    engine.run_unbounded(totals, moved, until_caught_up=True)
    assert not differences(moved, truth, *TABLES)
    assert values(moved, "totals__current") == values(truth, "totals__current")


def test_a_full_disk_costs_the_savepoint_and_not_the_stream(
    engine: Computing, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, 30)
    engine.run_unbounded(clocked, lake, until_caught_up=True, clock=0)
    checkpoint = spark_checkpoint if engine.name == "spark" else embedded_checkpoint
    copied = checkpoint.copy

    def full(source: str, target: str) -> None:
        if "/state/" in source or "/batches/" in source:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copied(source, target)

    monkeypatch.setattr(checkpoint, "copy", full)
    with pytest.raises(ExecutionError, match=r"EXECUTION-009 .*No space left on device.*the stream keeps running"):
        savepoints.create("clocked", lake)
    monkeypatch.undo()
    assert savepoints.savepoints(lake) == []
    assert not list(Path(lake.root).rglob("*.draft"))
    put(lake, 60)
    assert engine.run_unbounded(clocked, lake, until_caught_up=True, clock=0).micro_batches
