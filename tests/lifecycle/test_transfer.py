"""Streams that go over from one engine to the other: rows equal to those of a stream that never did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from events import disorder
from pyspark.sql import SparkSession
from streams import CLOCKED, ONCE, PAIRED, PLAIN, VISITS, WATCHED, WINDOWED

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import canonical as of_embedded
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.state import canonical as of_spark
from floodmark.engines.spark.unbounded.run import run_unbounded as run_spark
from floodmark.engines.transfer import transfer
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import ticks
from floodmark.lake.stream.checkpoint import engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Engine
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

from .test_savepoints import TABLES, differences, largest, put, totals, values

pytestmark = pytest.mark.engines("spark")


class Killed(Exception):  # noqa: N818 - not an error: the test ends the process here
    """At a crash point."""


class Streams:
    """One stream on either engine.

    Args:
        spark: session.
        sail: server.
        lake: it runs in.
    """

    def __init__(self, spark: SparkSession, sail: Sail, lake: Lake) -> None:
        self.spark, self.sail, self.lake = spark, sail, lake

    def transfer(self, code: Operator, engine: Engine) -> None:
        transfer(code, self.lake, engine, lambda: self.spark)

    def run(self, code: Operator, engine: Engine, **how: int) -> None:
        """What ``floodmark run --unbounded --until-caught-up --engine`` does."""
        self.transfer(code, engine)
        if engine == "spark":
            run_spark(self.spark, code, self.lake, until_caught_up=True, **how)
        else:
            run_embedded(self.sail, code, self.lake, until_caught_up=True, **how)
        assert self.engine(code) == engine

    def engine(self, code: Operator) -> str:
        return engine_of(Timeline.current(self.lake, code.name).folder(CHECKPOINT))


@pytest.fixture
def streams(spark: SparkSession, sail: Sail, lake: Lake) -> Streams:
    return Streams(spark, sail, lake)


@contextmanager
def killed(point: str, times: int = 1) -> Iterator[list[str]]:
    """Leave as ``kill -9`` would at a crash point, the so-manieth time it is reached; what was reached."""
    reached = list[str]()

    def at(name: str) -> None:
        reached.append(name)
        if name == point and reached.count(name) == times:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crash, "point", at)
        with suppress(Killed, FloodmarkError):
            yield reached


def check(streams: Streams, code: Operator, log: Log, beside: Path) -> None:
    """All rows of a stream that has never gone over, and no other; last values as the changelog says."""
    alone = Lake(str(beside))
    land(alone, code, log)
    run_embedded(streams.sail, code, alone, until_caught_up=True)
    expected, got = outputs(alone, code), outputs(streams.lake, code)
    assert final([got[""]])
    for name, table in expected.items():
        assert final([got[name]]) == final([table]), name
    for output in code.outputs:
        if output.current is not None:
            table = DeltaTable(streams.lake.output(output.current.table)).to_pyarrow_table()
            columns = [name for name in table.column_names if not name.startswith("_")]
            found = [{name: row[name] for name in columns} for row in table.to_pylist() if row["_kind"] == ROW]
            assert sorted(map(str, found)) == sorted(
                str({name: row[name] for name in columns}) for row in final([got[output.name]])
            )


@pytest.mark.soak
@pytest.mark.feature("V5")
@pytest.mark.parametrize("engines", [("spark", "embedded", "spark", "embedded"), ("embedded", "spark") * 2])
def test_two_inputs_there_and_back(
    streams: Streams, engine: Computing, truth: Lake, engines: tuple[Engine, ...]
) -> None:
    for until, end, name in zip((40, 60, 120, 180), (False, False, False, True), engines, strict=True):
        put(streams.lake, until, end=end)
        streams.run(totals, name)
        if until in {60, 180}:
            streams.run(largest, engines[0] if end else name)
    assert Timeline.current(streams.lake, "totals").number == 3
    assert not differences(streams.lake, truth, *TABLES, "largest")
    assert values(streams.lake, "totals__current") == values(truth, "totals__current")


@pytest.mark.soak
@pytest.mark.parametrize("code", [WATCHED, PAIRED, VISITS, ONCE, PLAIN], ids=lambda code: code.name)
def test_state_of_every_kind_there_and_back(streams: Streams, code: Operator, tmp_path: Path) -> None:
    log = disorder(code, 6, 160)
    for first, last, engine in ((0, 50, "embedded"), (50, 100, "spark"), (100, None, "embedded")):
        land(streams.lake, code, log, first, last)
        streams.run(code, engine)
    check(streams, code, log, tmp_path / "alone")


@pytest.mark.soak
def test_the_record_of_the_clock_goes_over_with_its_stream(streams: Streams, tmp_path: Path) -> None:
    """A bounded run that repeats it has the same windows, whichever engine the clock moved on."""
    log = disorder(CLOCKED, 7, 100)
    for first, last, engine in ((0, 40, "embedded"), (40, 70, "spark"), (70, None, "embedded")):
        land(streams.lake, CLOCKED, log, first, last)
        streams.run(CLOCKED, engine)
    found = final([outputs(streams.lake, CLOCKED)[""]])
    assert sum(row["n"] for row in found) == 100
    assert len({row["window_end"] for row in found}) > 1
    again = Lake(str(tmp_path / "again"), logs=streams.lake.root)
    shutil.copytree(ticks.folder(CLOCKED, streams.lake), ticks.folder(CLOCKED, again))
    run_bounded(streams.sail, CLOCKED, again)
    assert final([outputs(again, CLOCKED)[""]]) == found


def test_a_micro_batch_that_was_begun_is_ended_first(streams: Streams, tmp_path: Path) -> None:
    log = disorder(WINDOWED, 2, 160)
    land(streams.lake, WINDOWED, log, 0, 60)
    with killed("embedded.after_commit") as reached:
        streams.run(WINDOWED, "embedded")
    assert reached[-1] == "embedded.after_commit"
    land(streams.lake, WINDOWED, log, 60, 100)
    with killed("micro_batch.after_main") as reached:
        streams.run(WINDOWED, "spark")
    assert "micro_batch.after_main" in reached
    land(streams.lake, WINDOWED, log, 100)
    streams.run(WINDOWED, "embedded")
    check(streams, WINDOWED, log, tmp_path / "alone")


@pytest.mark.soak
@pytest.mark.feature("Z22")
def test_going_back_to_a_savepoint_of_the_other_engine(streams: Streams, tmp_path: Path) -> None:
    log, made = disorder(WINDOWED, 3, 160), []
    for first, engine in ((0, "spark"), (60, "embedded")):
        land(streams.lake, WINDOWED, log, first, first + 60)
        streams.run(WINDOWED, engine)
        made.append(savepoints.create("windowed", streams.lake))
    land(streams.lake, WINDOWED, log, 120)
    streams.run(WINDOWED, "embedded")
    roll_back(streams.lake, made[0])
    assert streams.engine(WINDOWED) == "spark"
    streams.run(WINDOWED, "embedded")
    roll_back(streams.lake, made[1])
    streams.run(WINDOWED, "spark")
    check(streams, WINDOWED, log, tmp_path / "alone")


@pytest.mark.soak
def test_a_canonical_savepoint_is_one_of_either_engine(streams: Streams, tmp_path: Path) -> None:
    log, lake = disorder(WINDOWED, 4, 160), streams.lake
    land(lake, WINDOWED, log, 0, 60)
    streams.run(WINDOWED, "spark")
    place = of_spark.export(streams.spark, savepoints.create("windowed", lake), str(tmp_path / "out"))
    taken = of_embedded.import_savepoint(lake, place)
    assert taken.manifest.engine["engine"] == "embedded"
    assert not savepoints.verify(taken)
    roll_back(lake, taken)
    land(lake, WINDOWED, log, 60, 120)
    run_embedded(streams.sail, WINDOWED, lake, until_caught_up=True)
    place = of_embedded.export(savepoints.create("windowed", lake), str(tmp_path / "back"))
    roll_back(lake, of_spark.import_savepoint(streams.spark, lake, place))
    land(lake, WINDOWED, log, 120)
    run_spark(streams.spark, WINDOWED, lake, until_caught_up=True)
    check(streams, WINDOWED, log, tmp_path / "alone")


@pytest.mark.soak
def test_a_stream_at_work_does_not_go_over(streams: Streams) -> None:
    land(streams.lake, PLAIN, disorder(WINDOWED, 5, 160), 0, 20)
    streams.run(PLAIN, "embedded")
    with (
        exclusive(streams.lake, "operators", "plain", "run", role="stream"),
        pytest.raises(LifecycleError, match="LIFECYCLE-003"),
    ):
        streams.transfer(PLAIN, "spark")
    assert streams.engine(PLAIN) == "embedded"
