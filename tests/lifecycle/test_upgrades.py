"""Upgrades of streams on a real engine: in place, forward only, and by a rebuild beside the stream."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable
from engines import embedded
from events import START, Event, row, source

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    Operator,
    ProcessFunction,
    Rows,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    max,
    operator,
    sum,
)
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import ExecutionError, LifecycleError, PlanError, StateError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.upgrading import check, rebuild, rebuild_steps, upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.switch import pending, perform
from floodmark.lake.results.readiness import coverage
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.steps import kind, recorded
from floodmark.lifecycle.switch import Switchover
from floodmark.observe.status import status


def version(change):
    """The operator as one edit makes it."""

    def totals(events: Stream[Event]) -> Stream:
        keyed = events.filter("value >= 100") if change == "filter" else events
        windowed = keyed.key_by("key").window(Tumbling("10 minutes"))
        found = windowed.aggregate(n=count(), total=max("value") if change == "max" else sum("value"))
        return found.with_columns(double="total * 2") if change == "column" else found

    return operator(totals)


def readers_of(upstream):
    def most(totals: Stream) -> Stream:
        return totals.window(Tumbling("1 hour")).aggregate(most=max("total"))

    return operator(most, inputs={"totals": upstream})


def put(lake: Lake, until: int, *, end: bool = False) -> None:
    embedded().land(source([row(minute) for minute in range(until)]), lake, end=end)


def landed(lake: Lake) -> int:
    """Rows of the log, and its markers."""
    return DeltaTable(lake.log("events")).to_pyarrow_table(columns=["_kind"]).num_rows


def rows(lake: Lake, *columns: str) -> list[tuple[object, ...]]:
    found = DeltaTable(lake.output("totals")).to_pyarrow_table().to_pylist()
    return sorted(tuple(one[c] for c in ("key", "window_end", *columns)) for one in found if one["_kind"] == 0)


@pytest.fixture(scope="module")
def begun(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A stream of the first version, in the middle of a window."""
    lake = Lake(str(tmp_path_factory.mktemp("begun") / "lake"))
    put(lake, 95)
    engine.run_unbounded(version(""), lake, until_caught_up=True)
    return lake


@pytest.fixture
def running(begun: Lake, tmp_path: Path) -> Lake:
    """A copy of it, to go on with."""
    return Lake(str(shutil.copytree(begun.root, tmp_path / "lake")))


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("V4")
def test_a_column_more_goes_on_from_the_state_and_back_again(engine: Computing, running: Lake) -> None:
    with pytest.raises(StateError, match=r"STATE-003 .*floodmark apply totals"):
        engine.run_unbounded(version("column"), running, until_caught_up=True)
    before = rows(running, "n", "total")
    assert check(version("column"), running).verdict == "stateless change"
    done = upgrade(version("column"), running, why="twice as much")
    assert done.plan.verdict == "stateless change"
    assert upgrade(version("column"), running).savepoint is None, "there is nothing more to do"
    put(running, 120, end=True)
    engine.run_unbounded(version("column"), running, until_caught_up=True)
    found = rows(running, "n", "total", "double")
    assert [one[:4] for one in found if one[4] is None] == before
    assert all(one[4] == 2 * one[3] for one in found if one[4] is not None)
    expected = Lake(f"{running.root}-truth", logs=running.root)
    embedded().run_unbounded(version(""), expected, until_caught_up=True)
    assert [one[:4] for one in found] == rows(expected, "n", "total")
    roll_back(running, savepoints.find(running, str(done.savepoint)))
    engine.run_unbounded(version(""), running, until_caught_up=True)
    assert rows(running, "n", "total") == rows(expected, "n", "total")
    assert "double" not in {field.name for field in DeltaTable(running.output("totals")).schema().fields}


class Noted(Event):
    """The event as a later contract has it: with a field that no step reads."""

    note: str | None = None


def test_an_optional_field_that_no_step_reads_stops_no_stream(engine: Computing, running: Lake) -> None:
    def body(events: Stream[Noted]) -> Stream:
        windowed = events.key_by("key").window(Tumbling("10 minutes"), late="side_output")
        return windowed.aggregate(n=count(), total=sum("value"))

    noted = operator(body, name="totals")
    before = operator(late_kept, name="totals")
    upgrade(before, running)
    engine.run_unbounded(before, running, until_caught_up=True)
    assert plan(Timeline.current(running, "totals").deployed, noted).resumes
    engine.run_unbounded(noted, running, until_caught_up=True)  # before a row with the field has landed
    landed = [row(minute) for minute in range(95)] + [row(minute) | {"note": "new"} for minute in range(95, 120)]
    landed += [row(3) | {"note": "late"}]
    embedded().land(
        Source("events", contract=Noted, connector=Rows(landed), watermark=BoundedOutOfOrderness("1 minute")),
        running,
        end=True,
    )
    engine.run_unbounded(noted, running, until_caught_up=True)
    expected = Lake(f"{running.root}-truth", logs=running.root)
    embedded().run_unbounded(noted, expected, until_caught_up=True)
    assert rows(running, "n", "total") == rows(expected, "n", "total")
    late = DeltaTable(running.output("totals__late")).to_pyarrow_table().to_pylist()
    assert [found["note"] for found in late if found["_kind"] == 0] == ["late"]


def late_kept(events: Stream[Event]) -> Stream:
    windowed = events.key_by("key").window(Tumbling("10 minutes"), late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


def test_a_required_field_that_landed_rows_lack_is_refused_with_the_ways_on(running: Lake) -> None:
    class Strict(Event):
        note: str

    def body(events: Stream[Strict]) -> Stream:
        return events.key_by("key").window(Tumbling("10 minutes")).aggregate(n=count(), total=sum("value"))

    with pytest.raises(
        PlanError, match=r"PLAN-010 .*got note, which may not be null.*note: \.\.\. \| None = None.*new name"
    ):
        check(operator(body, name="totals"), running)


def read(lake: Lake) -> list[tuple[Any, ...]]:
    """What people find in the table of last values."""
    return _values(DeltaTable(lake.output("totals__current")).to_pyarrow_table().to_pylist())


def latest(lake: Lake) -> list[tuple[Any, ...]]:
    """The last values of the changelog."""
    found = DeltaTable(lake.output("totals")).to_pyarrow_table().to_pylist()
    ordered = sorted((one for one in found if one["_kind"] != 1), key=lambda one: (one["_sequence"], one["_kind"]))
    last = {(one["key"], one["window_end"]): one for one in ordered}
    return _values([one for one in last.values() if one["_kind"] == 0])


def _values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((one["key"], one["window_end"], one["n"], one["total"], one.get("double")) for one in rows)


@pytest.mark.feature("V1", "V4")
def test_last_values_go_on_after_columns_were_taken_back(engine: Computing, lake: Lake) -> None:
    def revised(wide: bool) -> Operator:
        def totals(events: Stream[Event]) -> Stream:
            windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="10 minutes")
            found = windowed.aggregate(n=count(), total=sum("value"))
            return found.with_columns(double="total * 2") if wide else found

        return operator(totals)

    narrow = revised(wide=False)
    put(lake, 95)
    engine.run_unbounded(narrow, lake, until_caught_up=True)
    done = upgrade(revised(wide=True), lake)
    put(lake, 120)
    engine.run_unbounded(revised(wide=True), lake, until_caught_up=True)
    roll_back(lake, savepoints.find(lake, str(done.savepoint)))
    assert read(lake) == latest(lake), "what people read goes back with the changelog"
    engine.run_unbounded(
        narrow, lake, until_caught_up=True
    )  # one micro-batch of the last values, planned again at the next start
    put(lake, 130, end=True)
    engine.run_unbounded(narrow, lake, until_caught_up=True)
    expected = Lake(f"{lake.root}-truth", logs=lake.root)
    engine.run_unbounded(narrow, expected, until_caught_up=True)
    assert read(lake) == read(expected) == latest(lake)
    rebuild(engine.run_unbounded, revised(wide=True), lake)
    assert read(lake) == latest(lake), "what people read is the new code's as soon as the changelog is"
    assert all(double == 2 * total for *_, total, double in read(lake))
    engine.run_unbounded(revised(wide=True), lake, until_caught_up=True)
    assert read(lake) == latest(lake)


def test_last_values_of_a_bounded_run_stay_until_the_stream_has_computed_them(engine: Computing, lake: Lake) -> None:
    def totals(events: Stream[Event]) -> Stream:
        windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="10 minutes")
        return windowed.aggregate(n=count(), total=sum("value"))

    revised = operator(totals)
    put(lake, 95)
    engine.run_bounded(revised, lake, Interval())  # also of windows that are not complete
    before = read(lake)
    assert len(before) == 2 * 10
    engine.run_unbounded(revised, lake, until_caught_up=True)
    assert len(latest(lake)) < len(before)
    assert read(lake) == before
    assert any(one.interval.end < to_ms(START + timedelta(minutes=95)) for one in coverage(revised, lake, Interval()))
    put(lake, 130, end=True)
    engine.run_unbounded(revised, lake, until_caught_up=True)
    assert read(lake) == latest(lake)
    assert len(read(lake)) == 2 * 13


@pytest.mark.feature("V1", "V4")
def test_a_reader_goes_back_to_a_definition_for_the_columns_that_are_there(engine: Computing, running: Lake) -> None:
    first, wide = version(""), version("column")
    engine.run_unbounded(readers_of(first), running, until_caught_up=True)
    done = upgrade(wide, running)
    upgrade(readers_of(wide), running)  # it stands where it stood, but would read a column that goes away again
    found = roll_back(running, savepoints.find(running, str(done.savepoint)))
    assert [step.version for step in found.switch.targets] == [first.version, readers_of(first).version]
    put(running, 120, end=True)
    for one in (first, readers_of(first)):
        engine.run_unbounded(one, running, until_caught_up=True)
    runs = (partial(engine.run_bounded, interval=Interval()), partial(engine.run_unbounded, until_caught_up=True))
    for run in runs:
        with pytest.raises(ExecutionError, match=r"EXECUTION-005 .*'totals' of most@.*got a table without double"):
            run(readers_of(wide), Lake(f"{running.root}-other", logs=running.root, upstream=running.root))


def test_rows_that_wait_for_their_time_meet_those_of_a_column_more(engine: Computing, lake: Lake) -> None:
    class Seen(ProcessFunction):
        def on_element(self, row: Any, ctx: Any) -> Any:
            yield {"text": f"{row['value']} {row.get('double')}"}

    class Text(Contract):
        text: str

    def both(wide: bool) -> tuple[Operator, Operator]:
        def passed(events: Stream[Event]) -> Stream:
            return events.with_columns(double="value * 2") if wide else events

        def seen(passed: Stream) -> Stream:
            return passed.key_by("key").process(Seen(), schema=Text)

        first = operator(passed)
        return first, operator(seen, inputs={"passed": first})

    put(lake, 20)
    for one in both(False):
        engine.run_unbounded(one, lake, until_caught_up=True)
    for one in both(True):
        upgrade(one, lake)
    put(lake, 40, end=True)
    for one in both(True):
        engine.run_unbounded(one, lake, until_caught_up=True)
    found = DeltaTable(lake.output("seen")).to_pyarrow_table().to_pylist()
    values = {
        row["value"] for row in DeltaTable(lake.output("passed")).to_pyarrow_table().to_pylist() if row["_kind"] == 0
    }
    texts = sorted(row["text"].split() for row in found if row["_kind"] == 0)
    assert len(texts) == 40
    assert {int(value) for value, _ in texts} == values
    assert {double == "None" or int(double) == 2 * int(value) for value, double in texts} == {True}
    assert {double == "None" for _, double in texts} == {True, False}


def test_a_filter_before_the_state_has_to_be_accepted(engine: Computing, running: Lake) -> None:
    with pytest.raises(PlanError, match=r"PLAN-011 .*forward-only.*Their results would be neither"):
        upgrade(version("filter"), running)
    done = upgrade(version("filter"), running, forward_only=True)
    put(running, 120, end=True)
    engine.run_unbounded(version("filter"), running, until_caught_up=True)
    found = {(key, str(end)[11:16]): n for key, end, n in rows(running, "n")}
    assert found["a", "01:40"] == 3, "a window that was open: what the old code let through of it, the new code nothing"
    assert found["a", "01:50"] == 5
    assert savepoints.find(running, str(done.savepoint)).manifest.version == done.plan.deployed


def state_of(lake: Lake, name: str) -> str:
    """What status says of an output."""
    totals = version("")
    workspace = Workspace(
        sources=[source([row(0)])], operators=[totals, readers_of(totals)], settings=Settings(lake=lake.root)
    )
    return next(entry["state"] for entry in status(workspace, lake) if entry["name"] == name)


def test_a_rebuild_switches_to_what_the_new_code_makes_of_everything(engine: Computing, running: Lake) -> None:
    reader = readers_of(version(""))
    engine.run_unbounded(reader, running, until_caught_up=True)
    with pytest.raises(
        PlanError, match=r"PLAN-011 .*the sum kept of each open window.*floodmark apply totals --rebuild"
    ):
        upgrade(version("max"), running, forward_only=True)
    before = rows(running, "n", "total")
    would = rebuild_steps(version("max"), running)
    with recorded() as taken:
        done = rebuild(engine.run_unbounded, version("max"), running)
    assert taken == would
    assert [kind(step) for step in taken[:4]] == ["compute", "compute", "save", "restore_state"]
    assert done.readers == ("most",)
    assert [one.manifest.why for one in savepoints.savepoints(running, "most")] == [f"before {version('max').version}"]
    assert "a rebuild of 'totals'" in state_of(running, "most")
    put(running, 120, end=True)
    engine.run_unbounded(version("max"), running, until_caught_up=True)
    expected = Lake(f"{running.root}-truth", logs=running.root)
    engine.run_unbounded(version("max"), expected, until_caught_up=True)
    assert rows(running, "n", "total") == rows(expected, "n", "total")
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-038 .*a rebuild of 'totals' behind what its stream has read"):
        engine.run_unbounded(reader, running, until_caught_up=True)
    found = roll_back(running, savepoints.find(running, str(done.savepoint)))
    assert [step.operator for step in found.switch.targets] == ["totals", "most"]
    assert [(one.table, one.rebuilds) for one in found.undone] == [("totals", 1), ("most", 0)]
    assert "rebuild" not in state_of(running, "most")
    assert rows(running, "n", "total") == before
    for one in (version(""), reader):
        engine.run_unbounded(one, running, until_caught_up=True)
        engine.run_unbounded(one, old := Lake(f"{running.root}-old", logs=running.root), until_caught_up=True)
    assert rows(running, "n", "total") == rows(old, "n", "total")


@pytest.mark.feature("F8")
def test_a_rebuild_that_was_interrupted_goes_on_alone_and_knows_where_to_go_back_to(
    engine: Computing, running: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = rows(running, "total")

    def full(point: str) -> None:
        if point == "step.restore_table":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(crash, "point", full)
    with pytest.raises(OSError, match="No space left"):
        rebuild(engine.run_unbounded, version("max"), running)
    monkeypatch.undo()
    begun = pending(running)
    assert begun is not None
    left = rebuild_steps(version("max"), running)
    assert kind(left[0]) == "restore_state", "what was computed is not computed again"
    other = Switchover(again="floodmark rollback other --to it", targets=(replace(begun.targets[0], operator="other"),))
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-034 .*of totals that was begun.*apply totals --rebuild"):
        perform(running, other)
    assert pending(running) == begun, "nobody writes over what is to be finished"
    with recorded() as taken:
        found = rebuild(engine.run_unbounded, version("max"), running)
    assert taken == left
    assert pending(running) is None
    assert rows(running, "total") != was
    left = [one.manifest for one in savepoints.savepoints(running, "totals")]
    assert [one.id for one in left] == [found.savepoint]
    assert [one.version for one in left] == [version("").version]
    assert not list(Path(running.root).rglob("rebuild/*")), "what was computed beside is gone"
    roll_back(running, savepoints.find(running, found.savepoint or ""))
    assert rows(running, "total") == was


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("V3", "V7", "V12")
def test_what_if_another_version_goes_on_from_a_savepoint_while_the_old_one_does_too(
    engine: Computing, running: Lake
) -> None:
    made = savepoints.create("totals", running)
    arm = fork(running, made, f"{running.root}-what-if")
    upgrade(version("column"), arm)
    before = landed(running)
    put(running, 120, end=True)
    sizes = list[int]()
    engine.run_unbounded(version("column"), arm, until_caught_up=True, on_batch=lambda one: sizes.append(one.rows_in))
    assert np.sum(sizes) == landed(running) - before, "it reads nothing again"
    engine.run_unbounded(version(""), running, until_caught_up=True)
    assert rows(arm, "n", "total") == rows(running, "n", "total")
    own = {lake.root: savepoints.create("totals", lake) for lake in (arm, running)}
    assert [one.manifest.version for one in own.values()] == [version("column").version, version("").version]
    for lake in (arm, running):
        listed = {one.manifest.id for one in savepoints.savepoints(lake, "totals")}
        assert own[lake.root].manifest.id in listed, "each makes its own"
        assert not listed & {one.manifest.id for root, one in own.items() if root != lake.root}
    doubled = [one for one in rows(arm, "total", "double") if one[3] is not None]
    assert len(doubled) == 2 * 3
    assert all(twice == 2 * total for *_, total, twice in doubled)
    assert "double" not in {field.name for field in DeltaTable(running.output("totals")).schema().fields}
