"""Streams that go over from one engine to the other: rows equal to those of a stream that never did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from events import Event, disorder
from pyspark.sql import SparkSession

from floodmark import Operator, Stream, Tumbling, count, operator, sum
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.engines.embedded.session import Sail
from floodmark.engines.embedded.state import canonical as of_embedded
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.state import canonical as of_spark
from floodmark.engines.spark.unbounded.run import run_unbounded as run_spark
from floodmark.engines.transfer import transfer
from floodmark.lake import savepoints
from floodmark.lake.checkpoint import engine_of
from floodmark.lake.locks import exclusive
from floodmark.lake.paths import Lake
from floodmark.lake.rollback import roll_back
from floodmark.lake.timeline import CHECKPOINT, Timeline
from floodmark.spec.schema import ROW
from floodmark.spec.workspace import Engine
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

from .test_savepoints import TABLES, differences, largest, put, totals, truth, values

__all__ = ["truth"]

ENGINES: tuple[Engine, Engine] = ("spark", "embedded")


@operator
def windowed(events: Stream[Event]) -> Stream:
    """Results that are revised, and rows that are too late."""
    keyed = (
        events.filter("value % 7 <> 0")
        .key_by("key")
        .window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    )
    return keyed.aggregate(n=count(), total=sum("value"))


@operator
def plain(events: Stream[Event]) -> Stream:
    """No state."""
    return events.filter("value % 3 = 0").with_columns(double="value * 2")


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


@pytest.fixture(scope="module")
def sail() -> Iterator[Sail]:
    """One server for all tests."""
    found = Sail(memory=300)
    yield found
    found.close()


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


@pytest.mark.parametrize(
    "engines",
    [("spark", "embedded", "spark", "embedded"), pytest.param(("embedded", "spark") * 2, marks=pytest.mark.soak)],
)
def test_two_inputs_there_and_back(streams: Streams, truth: Lake, engines: tuple[Engine, ...]) -> None:
    for until, end, engine in zip((40, 60, 120, 180), (False, False, False, True), engines, strict=True):
        put(streams.spark, streams.lake, until, end=end)
        streams.run(totals, engine)
        if until in {60, 180}:
            streams.run(largest, engines[0] if end else engine)
    assert Timeline.current(streams.lake, "totals").number == 3
    assert not differences(streams.lake, truth, *TABLES, "largest")
    assert values(streams.lake, "totals__current") == values(truth, "totals__current")


@pytest.mark.parametrize("first", ENGINES)
def test_killed_at_each_step_it_is_the_stream_of_one_engine(streams: Streams, first: Engine, tmp_path: Path) -> None:
    log, points = disorder(windowed, 1, 160), crash.POINTS["transfer"]
    land(streams.lake, windowed, log, 0, 40)
    streams.run(windowed, first)
    second = next(one for one in ENGINES if one != first)
    for point in points:
        with killed(point) as reached:
            streams.transfer(windowed, second)
        assert reached[-1] == point
        assert streams.engine(windowed) == (second if point == "transfer.after_current" else first)
    assert len(savepoints.savepoints(streams.lake, "windowed")) == 1
    land(streams.lake, windowed, log, 40)
    streams.run(windowed, second)
    check(streams, windowed, log, tmp_path / "alone")


def test_a_micro_batch_that_was_begun_is_ended_first(streams: Streams, tmp_path: Path) -> None:
    log = disorder(windowed, 2, 160)
    land(streams.lake, windowed, log, 0, 60)
    with killed("embedded.after_commit") as reached:
        streams.run(windowed, "embedded")
    assert reached[-1] == "embedded.after_commit"
    land(streams.lake, windowed, log, 60, 100)
    with killed("micro_batch.after_main") as reached:
        streams.run(windowed, "spark")
    assert "micro_batch.after_main" in reached
    land(streams.lake, windowed, log, 100)
    streams.run(windowed, "embedded")
    check(streams, windowed, log, tmp_path / "alone")


def test_going_back_to_a_savepoint_of_the_other_engine(streams: Streams, tmp_path: Path) -> None:
    log, made = disorder(windowed, 3, 160), []
    for first, engine in ((0, "spark"), (60, "embedded")):
        land(streams.lake, windowed, log, first, first + 60)
        streams.run(windowed, engine)
        made.append(savepoints.create("windowed", streams.lake))
    land(streams.lake, windowed, log, 120)
    streams.run(windowed, "embedded")
    roll_back(streams.lake, made[0])
    assert streams.engine(windowed) == "spark"
    streams.run(windowed, "embedded")
    roll_back(streams.lake, made[1])
    streams.run(windowed, "spark")
    check(streams, windowed, log, tmp_path / "alone")


def test_a_canonical_savepoint_is_one_of_either_engine(streams: Streams, tmp_path: Path) -> None:
    log, lake = disorder(windowed, 4, 160), streams.lake
    land(lake, windowed, log, 0, 60)
    streams.run(windowed, "spark")
    place = of_spark.export(streams.spark, savepoints.create("windowed", lake), str(tmp_path / "out"))
    taken = of_embedded.take_in(lake, place)
    assert taken.manifest.engine["engine"] == "embedded"
    assert not savepoints.verify(taken)
    roll_back(lake, taken)
    land(lake, windowed, log, 60, 120)
    run_embedded(streams.sail, windowed, lake, until_caught_up=True)
    place = of_embedded.export(savepoints.create("windowed", lake), str(tmp_path / "back"))
    roll_back(lake, of_spark.take_in(streams.spark, lake, place))
    land(lake, windowed, log, 120)
    run_spark(streams.spark, windowed, lake, until_caught_up=True)
    check(streams, windowed, log, tmp_path / "alone")


def test_a_stream_at_work_does_not_go_over(streams: Streams) -> None:
    land(streams.lake, plain, disorder(windowed, 5, 160), 0, 20)
    streams.run(plain, "embedded")
    with (
        exclusive(streams.lake, "operators", "plain", "run", role="stream"),
        pytest.raises(LifecycleError, match="LIFECYCLE-003"),
    ):
        streams.transfer(plain, "spark")
    assert streams.engine(plain) == "embedded"
