"""Unbounded runs at their edges: nothing to let through, several inputs, other people's checkpoints, vanished tables."""

from __future__ import annotations

import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from background import check, in_background
from deltalake import DeltaTable
from engines import embedded
from events import START, Event, row, source
from flights import changelog
from pyspark.sql.streaming import StreamingQuery

from demo.comparison import compare
from floodmark import (
    AfterCount,
    AfterWatermark,
    Aggregate,
    Contract,
    Outputs,
    Session,
    Stream,
    Tumbling,
    count,
    operator,
    sum,
)
from floodmark.control.processes.engine import Computing, OnSpark
from floodmark.core.errors import ExecutionError, FloodmarkError, LifecycleError, StateError
from floodmark.core.time import END, NEVER, Interval, to_ms
from floodmark.engines.spark.session import shipping
from floodmark.engines.spark.unbounded import run as unbounded
from floodmark.engines.spark.unbounded import sink as sinks
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.spec.values.run import BatchInfo


def rows(first: int, last: int, step: int = 1) -> list[dict[str, object]]:
    return [row(minute) for minute in range(first, last, step)]


def put(lake: Lake, name: str, events: list[dict[str, object]], *, end: bool = False) -> None:
    embedded().land(source(events, name), lake, end=end)


def progress(lake: Lake, table: str) -> int:
    return history.progress(lake.output(table))


@operator
def nothing(events: Stream[Event]) -> Stream:
    """A filter that no row passes."""
    return events.filter("value < 0").key_by("key").window(Tumbling("10 minutes")).aggregate(n=count())


@operator
def nothing_at_all(events: Stream[Event]) -> Outputs:
    """Without state, two outputs."""
    return Outputs(none=events.filter("value < 0"), every=events.with_columns(double="value * 2"))


@operator
def both(left: Stream[Event], right: Stream[Event]) -> Stream:
    """Two inputs as one."""
    return (
        left.union(right.filter("value >= 0")).window(Tumbling("10 minutes")).aggregate(n=count(), total=sum("value"))
    )


@pytest.mark.parametrize("op", [nothing, nothing_at_all], ids=lambda o: o.name)
def test_an_operator_whose_filter_matches_nothing_still_advances(engine: Computing, lake: Lake, op) -> None:
    put(lake, "events", rows(0, 60))
    engine.run_unbounded(op, lake, until_caught_up=True)
    reached = progress(lake, op.outputs[0].table)
    assert reached == int((START + timedelta(minutes=58)).timestamp() * 1000) - 1
    put(lake, "events", rows(0, 60), end=True)
    result = engine.run_unbounded(op, lake, until_caught_up=True)
    assert result.watermark == END
    assert result.rows[op.outputs[0].table] == 0
    assert {progress(lake, output.table) for output in op.outputs} == {END}


@pytest.mark.feature("T14", "X6")
def test_one_input_has_ended_and_after_a_restart_the_other_goes_on(engine: Computing, lake: Lake) -> None:
    put(lake, "left", rows(0, 30, 3))
    put(lake, "right", rows(0, 25, 2), end=True)
    first = engine.run_unbounded(both, lake, until_caught_up=True)
    assert first.rows["both"] == 2, "up to the slower input: minute 27 - 1 - 1"
    put(lake, "left", rows(0, 60, 3))
    second = engine.run_unbounded(both, lake, until_caught_up=True)
    assert second.rows["both"] == 3, "it went on although 'right' says nothing any more"
    put(lake, "left", rows(0, 60, 3), end=True)
    engine.run_unbounded(both, lake, until_caught_up=True)
    whole = Lake(str(Path(lake.root) / "whole"), logs=lake.root)
    embedded().run_bounded(both, whole, Interval())
    assert compare(changelog(lake, "both"), changelog(whole, "both")).differences == 0


def failing(row: Any) -> Any:
    """Python that fails at its first row."""
    raise ValueError(row)


def test_a_stream_that_failed_at_its_first_micro_batch_begins_again_under_mended_code(
    engine: Computing, lake: Lake
) -> None:
    @operator(name="mended")
    def broken(events: Stream[Event]) -> Stream:
        return events.flat_map(failing, schema=Event)

    @operator
    def mended(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("10 minutes"), late="side_output").aggregate(n=count())

    put(lake, "events", rows(0, 60), end=True)
    with pytest.raises(FloodmarkError):
        engine.run_unbounded(broken, lake, until_caught_up=True)
    assert Timeline.current(lake, "mended").identity.deployed().version == broken.version
    engine.run_unbounded(mended, lake, until_caught_up=True)
    whole = Lake(str(Path(lake.root) / "whole"), logs=lake.root)
    embedded().run_bounded(mended, whole, Interval())
    assert compare(changelog(lake, "mended"), changelog(whole, "mended")).differences == 0


@operator
def punctual(events: Stream[Event]) -> Stream:
    """With a side output that gets no row, as none is late."""
    return events.key_by("key").window(Tumbling("1 minute"), late="side_output").aggregate(n=count())


@pytest.mark.engines("spark")
def test_a_side_output_without_rows_says_while_its_stream_works_how_far_the_stream_is(
    engine: Computing, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "PROGRESS_SECONDS", 0.0)
    late = next(output.table for output in punctual.outputs if output.side == "late")
    for last in (10, 20, 30, 40):
        put(lake, "events", rows(0, last))
    said: list[tuple[int, int | None]] = []
    read: list[int] = []

    def look(info: BatchInfo) -> None:
        assert late not in info.rows
        read.append(info.rows_in)
        said.append((info.progress, history.progress(lake.output(late))))

    done = engine.run_unbounded(punctual, lake, until_caught_up=True, files_per_batch=1, on_batch=look)
    assert [count for count in read if count > 1] == [11] * 4, "ten rows and a marker of each commit"
    assert len({reached for reached, _ in said}) >= 4
    assert [told for _, told in said] == [reached if reached > NEVER else None for reached, _ in said]
    assert late not in {table for table, count in done.rows.items() if count}
    commits = [record for _, record in history.standing_of(lake.output(late), MicroBatch)]
    assert {record.rows for record in commits} == {0}
    again = engine.run_unbounded(punctual, lake, until_caught_up=True)
    assert again.micro_batches == 0
    assert progress(lake, late) == again.watermark


@pytest.mark.engines("spark")
def test_a_stream_that_ends_once_it_has_caught_up_writes_no_progress_of_its_own_between_two_micro_batches(
    engine: Computing, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever somebody looks at it, also between them, when it seems to wait for rows."""
    monkeypatch.setattr(unbounded, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(StreamingQuery, "status", {"isTriggerActive": False})
    for last in (10, 20, 30, 40):
        put(lake, "events", rows(0, last))
    done = engine.run_unbounded(nothing_at_all, lake, until_caught_up=True, files_per_batch=1)
    for output in nothing_at_all.outputs:
        commits = [record for _, record in history.standing_of(lake.output(output.table), MicroBatch)]
        assert [one.settled for one in commits] == [True] + [False] * done.micro_batches, "the newest first"


@operator
def minutes(events: Stream[Event]) -> Stream:
    """An output that others read."""
    return events.key_by("key").window(Tumbling("1 minute")).aggregate(n=count())


@operator
def totals(events: Stream[Event]) -> Stream:
    """Another one."""
    return events.key_by("key").window(Tumbling("1 minute")).aggregate(n=sum("value"))


def joined(minutes: Stream, totals: Stream) -> Stream:
    """Sessions over both."""
    return minutes.union(totals).key_by("key").window(Session("5 minutes")).aggregate(n=count(), total=sum("n"))


def test_a_union_of_two_outputs_is_the_same_bounded_and_unbounded(engine: Computing, lake: Lake) -> None:
    chain = (minutes, totals, operator(joined, inputs={"minutes": minutes, "totals": totals}))
    put(lake, "events", rows(0, 60), end=True)
    whole = Lake(str(Path(lake.root) / "whole"), logs=lake.root)
    for one in chain:
        engine.run_unbounded(one, lake, until_caught_up=True)
        engine.run_bounded(one, whole, Interval())
    stream = changelog(lake, "joined")
    assert stream.num_rows == 2
    assert compare(stream, changelog(whole, "joined")).differences == 0


class Longest(Aggregate):
    """Plain Python in a worker that cannot import this module."""

    type = "bigint"

    def create(self):
        return None

    def add(self, accumulator, value):
        return value if accumulator is None or value > accumulator else accumulator

    def merge(self, left, right):
        return right if left is None else left if right is None else (max(right, left))

    def result(self, accumulator):
        return accumulator


class Word(Contract):
    """A part of an event."""

    key: str
    part: int


def split(row):
    yield {"key": row["key"], "part": row["value"]}
    yield {"key": row["key"], "part": -row["value"]}


@operator
def custom(events: Stream[Event]) -> Stream:
    """User functions in both modes."""
    return (
        events.flat_map(split, schema=Word)
        .key_by("key")
        .window(Tumbling("10 minutes"))
        .aggregate(top=Longest("part"), n=count())
    )


@pytest.mark.feature("X2")
def test_user_functions_give_the_same_in_both_modes(engine: Computing, lake: Lake) -> None:
    if isinstance(engine, OnSpark):
        shipping.by_value(engine.spark, Word)  # as landing does with the contract of a source
    put(lake, "events", rows(0, 45), end=True)
    engine.run_unbounded(custom, lake, until_caught_up=True)
    whole = Lake(str(Path(lake.root) / "whole"), logs=lake.root)
    embedded().run_bounded(custom, whole, Interval())
    mine = changelog(lake, "custom")
    assert mine.num_rows == 10
    assert compare(mine, changelog(whole, "custom")).differences == 0
    assert {r["top"] for r in mine.to_pylist()} >= {8, 9}


def test_a_checkpoint_of_another_operator_or_version_is_refused(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 30))
    engine.run_unbounded(nothing, lake, until_caught_up=True)

    @operator(name="nothing")
    def changed(events: Stream[Event]) -> Stream:
        return events.filter("value < 1").key_by("key").window(Tumbling("10 minutes")).aggregate(n=count())

    with pytest.raises(
        StateError, match=rf"STATE-003 .*expected {changed.version}, got {nothing.version}.*floodmark apply nothing"
    ):
        engine.run_unbounded(changed, lake, until_caught_up=True)
    shutil.copytree(lake.internal("operators", "nothing"), lake.internal("operators", "custom"))
    with pytest.raises(StateError, match="STATE-002 .*expected that of operator 'custom', got that of 'nothing'"):
        engine.run_unbounded(custom, lake, until_caught_up=True)
    again = engine.run_unbounded(changed, lake, until_caught_up=True, from_scratch=True)
    assert again.version == changed.version


def test_two_runs_of_one_operator_at_once_are_refused(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 5))
    with (
        exclusive(lake, "operators", "nothing", "run"),
        pytest.raises(LifecycleError, match="LIFECYCLE-003 operator 'nothing'"),
    ):
        engine.run_bounded(nothing, lake, Interval())


@pytest.mark.engines("spark")
def test_a_stream_that_was_stopped_before_its_windows_fired_fires_them_at_its_start(
    engine: Computing, lake: Lake
) -> None:
    """Spark fires what a micro-batch has made due in the next one, which it runs without rows only in the same process."""

    @operator
    def tens(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("10 minutes")).aggregate(n=count())

    put(lake, "events", rows(0, 60))
    stop = threading.Event()
    engine.run_unbounded(tens, lake, stop=stop, on_batch=lambda _: stop.set())
    before = progress(lake, "tens")
    found = engine.run_unbounded(tens, lake, until_caught_up=True)
    assert found.micro_batches == 1
    assert progress(lake, "tens") > before
    truth = Lake(f"{lake.root}-truth", logs=lake.root)
    engine.run_unbounded(tens, truth, until_caught_up=True)
    assert compare(changelog(lake, "tens"), changelog(truth, "tens")).differences == 0
    assert progress(lake, "tens") == progress(truth, "tens")
    assert engine.run_unbounded(tens, lake, until_caught_up=True).micro_batches == 0


def test_a_running_stream_stops_at_a_boundary_and_goes_on(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 30))
    stop, seen = threading.Event(), []

    def on_batch(info) -> None:
        seen.append(info)
        stop.set()

    engine.run_unbounded(nothing, lake, stop=stop, on_batch=on_batch, interval_seconds=0.2)
    assert seen
    put(lake, "events", rows(0, 60), end=True)
    assert engine.run_unbounded(nothing, lake, until_caught_up=True).watermark == END


@operator
def counted(events: Stream[Event]) -> Stream:
    """Each number as soon as it is known, so there is a table of the newest."""
    windowed = events.key_by("key").window(Tumbling("10 minutes"), trigger=AfterWatermark().early(AfterCount(1)))
    return windowed.aggregate(n=count())


def test_last_values_are_not_merged_when_there_are_none(engine: Computing, lake: Lake) -> None:
    @operator
    def revised(events: Stream[Event]) -> Stream:
        windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="10 minutes")
        return windowed.aggregate(n=count())

    versions = []
    for last in (5, 40):
        put(lake, "events", rows(0, last))
        assert engine.run_unbounded(revised, lake, until_caught_up=True).micro_batches
        versions.append(DeltaTable(lake.output("revised__current")).version())
    assert versions == [0, 1], "only windows that have closed are worth a merge"


@pytest.mark.parametrize(
    "victim", ["input", *(pytest.param(table, marks=pytest.mark.soak) for table in ("output", "current"))]
)
def test_a_table_deleted_under_a_running_stream_is_a_clear_error(engine: Computing, lake: Lake, victim: str) -> None:
    put(lake, "events", rows(0, 30))
    current = lake.output("counted__current")
    path = {"input": lake.log("events"), "output": lake.output("counted"), "current": current}[victim]
    seen = threading.Event()
    running = in_background(engine.run_unbounded, counted, lake, on_batch=lambda _: seen.set(), interval_seconds=0.2)
    while check(running) and not seen.wait(0.1):
        pass
    while check(running) and not DeltaTable(current).to_pyarrow_table(columns=["n"]).num_rows:
        time.sleep(0.1)
    Path(path).rename(f"{path}.gone")  # at once: a query may be writing into it
    if victim != "input":
        put(lake, "events", rows(0, 60))
    with pytest.raises(ExecutionError) as failed:
        running.result(300)
    assert failed.value.code in {"EXECUTION-002", "EXECUTION-004"}, failed.value
    assert "floodmark run counted --unbounded" in failed.value.fix
    assert victim != "current" or "counted__current" in str(failed.value)


def test_a_bounded_run_does_not_reach_into_what_the_stream_has_yet_to_write(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 60))
    engine.run_bounded(nothing_at_all, lake, Interval())
    first = engine.run_unbounded(nothing_at_all, lake, until_caught_up=True)
    every = DeltaTable(lake.output("nothing_at_all__every")).to_pyarrow_table()
    assert first.rows["nothing_at_all__every"] == 60
    assert len([k for k in every["_kind"].to_pylist() if k == 0]) == 60, (
        "what the bounded run had written is not there twice"
    )
    with pytest.raises(LifecycleError, match="LIFECYCLE-005 operator 'nothing_at_all'.*--to 2020-01-01T00:58"):
        engine.run_bounded(nothing_at_all, lake, Interval())


def test_what_a_bounded_run_computes_before_the_first_micro_batch_ends_is_taken_over(
    engine: Computing, lake: Lake
) -> None:
    put(lake, "events", rows(0, 60))
    file = max(Path(lake.log("events")).rglob("*.parquet"), key=lambda one: one.stat().st_size)
    away = file.rename(file.with_suffix(".away"))
    with pytest.raises(ExecutionError, match="EXECUTION-060"):
        engine.run_unbounded(nothing_at_all, lake, until_caught_up=True)
    away.rename(file)
    assert engine.run_bounded(nothing_at_all, lake, Interval()).rows["nothing_at_all__every"] == 60
    assert engine.run_unbounded(nothing_at_all, lake, until_caught_up=True).rows["nothing_at_all__every"] == 60
    every = DeltaTable(lake.output("nothing_at_all__every")).to_pyarrow_table()
    assert sorted(one["value"] for one in every.to_pylist() if one["_kind"] == 0) == [*range(60)]


def test_a_stream_whose_output_is_gone_is_not_started_with_an_empty_one(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 60))
    engine.run_unbounded(nothing_at_all, lake, until_caught_up=True)
    path = Path(lake.output("nothing_at_all__every"))
    away = path.rename(path.with_name("away"))
    with pytest.raises(ExecutionError, match="EXECUTION-002 .*nothing_at_all__every"):
        engine.run_unbounded(nothing_at_all, lake, until_caught_up=True)
    assert not path.exists()
    away.rename(path)
    put(lake, "events", rows(0, 70))
    assert engine.run_unbounded(nothing_at_all, lake, until_caught_up=True).rows["nothing_at_all__every"] == 10


def test_a_bounded_run_waits_for_the_stream_to_read_what_has_landed_late(engine: Computing, lake: Lake) -> None:
    put(lake, "events", rows(0, 60))
    engine.run_unbounded(nothing_at_all, lake, until_caught_up=True)
    put(lake, "events", [*rows(0, 60), row(10)])
    begin = to_ms(START)
    early, later = (
        Interval(start=begin, end=begin + 20 * 60_000),
        Interval(start=begin + 1_200_000, end=begin + 1_800_000),
    )
    with pytest.raises(LifecycleError, match="LIFECYCLE-005 .*rows of it that have landed in 'events' since"):
        engine.run_bounded(nothing_at_all, lake, early)
    assert engine.run_bounded(nothing_at_all, lake, later).rows["nothing_at_all__every"] == 10, "none of these"
    assert engine.run_unbounded(nothing_at_all, lake, until_caught_up=True).rows["nothing_at_all__every"] == 1
    assert engine.run_bounded(nothing_at_all, lake, early).rows["nothing_at_all__every"] == 21
    found = DeltaTable(lake.output("nothing_at_all__every")).to_pyarrow_table(columns=["value", "_kind"]).to_pylist()
    assert sorted(one["value"] for one in found if one["_kind"] == 0) == sorted([*range(60), 10])


@pytest.mark.engines("spark")
def test_a_query_whose_worker_did_not_start_in_time_is_started_again(
    engine: Computing, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, "events", rows(0, 60), end=True)
    tried, run = [], unbounded._run

    def slow(*arguments: Any, **settings: Any) -> None:
        tried.append(1)
        if len(tried) < 3:
            got = (
                "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
            )
            raise ExecutionError(
                "unbounded run", "a stream that keeps running", got, "Mend the cause.", code="EXECUTION-004"
            )
        run(*arguments, **settings)

    monkeypatch.setattr(unbounded, "_run", slow)
    assert engine.run_unbounded(counted, lake, until_caught_up=True).micro_batches
    tried.clear()
    monkeypatch.setattr(unbounded, "_TRIES", 2)
    with pytest.raises(ExecutionError, match="EXECUTION-004"):
        engine.run_unbounded(counted, lake, until_caught_up=True)
