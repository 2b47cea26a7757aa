"""Canonical savepoints: another engine version, simulated by another format and other settings of its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from events import START, Event
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from floodmark import Stream, operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import StateError
from floodmark.core.time import to_ms
from floodmark.engines.spark.state import canonical
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import ticks
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.savepoint import MANIFEST, MARKS

from .test_savepoints import TABLES, clocked, differences, put, totals, values

pytestmark = pytest.mark.engines("spark")

OTHER = {
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    "spark.sql.streaming.stateStore.rocksdb.compression": "zstd",
    "spark.sql.shuffle.partitions": "3",
}


NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


def _watched(spark: SparkSession, seen: list[str | None]) -> Callable[..., StreamingQuery]:
    """``DataStreamWriter.start`` that notes what the session of a test says meanwhile."""
    start = DataStreamWriter.start

    def watched(writer: DataStreamWriter) -> StreamingQuery:
        seen.append(spark.conf.get(NO_DATA))
        return start(writer)

    return watched


@pytest.fixture
def another(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with other settings of state, as another version of Spark might have."""
    before = {name: spark.conf.get(name, None) for name in OTHER}
    for name, value in OTHER.items():
        spark.conf.set(name, value)
    yield spark
    for name, was in before.items():
        spark.conf.unset(name) if was is None else spark.conf.set(name, was)


@pytest.mark.feature("V5", "V11")
def test_another_engine_goes_on_from_what_was_exported(
    spark: SparkSession,
    engine: Computing,
    lake: Lake,
    truth: Lake,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(lake, 60)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    made = savepoints.create("totals", lake, why="before the new engine")
    place = canonical.export(spark, made, str(tmp_path / "out"))
    state = pq.read_table(f"{place}/state")
    assert state.num_rows
    assert state["group"].null_count == 0
    request.getfixturevalue("another")
    seeding = list[str | None]()
    monkeypatch.setattr(DataStreamWriter, "start", _watched(spark, seeding))
    taken = canonical.import_savepoint(spark, lake, place)
    monkeypatch.undo()
    assert seeding == [spark.conf.get(NO_DATA)] == ["true"], "a kill here leaves the caller's session as it was"
    assert not savepoints.verify(taken)
    assert taken.manifest.engine["state partitions"] == "3"
    before = values(lake, "totals")
    roll_back(lake, taken)
    assert values(lake, "totals") == before
    for until, end in ((120, False), (180, True)):
        put(lake, until, end=end)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    checkpoint = Timeline.current(lake, "totals").checkpoint
    last = checkpoint.last_committed()
    assert last > made.manifest.batch
    assert checkpoint.partitions(last) == 3
    assert b"avro" in Path(checkpoint.path, "offsets", str(last)).read_bytes()
    assert not differences(lake, truth, *TABLES)
    assert values(lake, "totals__current") == values(truth, "totals__current")


@operator
def plain(left: Stream[Event]) -> Stream:
    """Without state."""
    return left.filter("value >= 0")


@pytest.mark.soak
@pytest.mark.feature("V5")
def test_positions_and_the_clock_are_exported_too(
    spark: SparkSession, engine: Computing, lake: Lake, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of a stream without state, and of one that has recorded processing time; both go on in another lake."""
    at = to_ms(START)
    put(lake, 40)
    for one in (plain, clocked):
        engine.run_unbounded(one, lake, until_caught_up=True, clock=at)
    made = [savepoints.create(one.name, lake) for one in (plain, clocked)]
    places = [canonical.export(spark, one, str(tmp_path / "out")) for one in made]
    assert not Path(places[0], "state").exists()
    with pytest.raises(StateError, match="STATE-021"):
        savepoints.import_savepoint(lake, places[0])
    put(lake, 120)
    request.getfixturevalue("another")
    forked = [fork(lake, canonical.import_savepoint(spark, lake, place), str(tmp_path / "fork")) for place in places]
    assert forked[0] == forked[1]
    for one in (plain, clocked):
        for where in (lake, forked[0]):
            engine.run_unbounded(one, where, until_caught_up=True, clock=at + 2 * 3_600_000)
        assert values(forked[0], one.name) == values(lake, one.name)
        assert len(values(lake, one.name)) > 1
    recorded = [ticks.recorded(clocked, one) for one in (lake, forked[0])]
    assert recorded[0] == recorded[1]


def test_a_canonical_savepoint_that_is_damaged_or_newer_is_refused(
    lake: Lake, tmp_path: Path, spark: SparkSession, engine: Computing
) -> None:
    put(lake, 40)
    engine.run_unbounded(plain, lake, until_caught_up=True)
    place = Path(canonical.export(spark, savepoints.create("plain", lake), str(tmp_path)))
    marks = json.loads((place / MARKS).read_text())
    (place / MARKS).write_text(json.dumps(marks | {"format": 2}))
    with pytest.raises(StateError, match=r"STATE-021.*marks.json"):
        canonical.import_savepoint(spark, lake, str(place))
    manifest = json.loads((place / MANIFEST).read_text())
    manifest["files"][MARKS] = asdict(savepoints.digests(str(place))[MARKS])
    (place / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StateError, match="STATE-020"):
        canonical.import_savepoint(spark, lake, str(place))
    (place / MANIFEST).unlink()
    with pytest.raises(StateError, match="STATE-021"):
        canonical.import_savepoint(spark, lake, str(place))
    assert len(savepoints.savepoints(lake)) == 1
