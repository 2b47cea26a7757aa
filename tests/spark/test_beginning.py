"""A stream that begins with a log of any age: whatever was merged, and whichever commits are gone, it ends as the others do."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from flights import BOUND_MINUTES, against_oracle, land_all
from pyspark.sql import SparkSession

from demo.oracle import Oracle
from floodmark.control.processes.engine import Computing
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.spark.unbounded import inputs
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline, inputs_at, positions_at
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing
from floodmark.lake.writing.compaction import compact
from operators.flights import rolling_departures

LOG = "flights"
SMALL = 60_000
"""Bytes that a file has here once it is merged; the log has some 120 kB."""


def forget(path: str) -> None:
    """Remove the commits before the last landing commit and before a checkpoint, as a clean-up does."""
    DeltaTable(path).create_checkpoint()
    kept = next(commit.version for commit, _ in history.standing_of(path, Landing))
    for entry in Path(path, "_delta_log").glob("*.json"):
        if int(entry.stem) < kept:
            entry.unlink()
    with pytest.raises(DeltaError):
        DeltaTable(path, version=0)


def run_some(spark: SparkSession, lake: Lake, batches: int) -> None:
    """A run that is stopped after so many micro-batches."""
    stop = threading.Event()
    done: list[object] = []

    def on_batch(info: object) -> None:
        done.append(info)
        if len(done) >= batches:
            stop.set()

    run_unbounded(
        spark, rolling_departures, lake, until_caught_up=True, files_per_batch=1, stop=stop, on_batch=on_batch
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_it_begins_with_what_is_there_and_goes_on_with_what_comes(
    spark: SparkSession,
    embedded: Computing,
    flights_inbox: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """With even seeds it skips the commits that have come meanwhile."""
    draw, lake, skips = random.Random(seed), Lake(str(tmp_path / "lake")), seed % 2 == 0
    monkeypatch.setattr(inputs, "FAR_BEHIND", 1 if skips else 1_000)
    land_all(embedded, flights_inbox, lake, end=False, max_commits=12)
    path = lake.log(LOG)
    compact(path, SMALL)
    first = len(DeltaTable(path).file_uris())
    assert first > 1
    forget(path)
    run_some(spark, lake, draw.choice([1, 2]))
    timeline = Timeline.current(lake, rolling_departures.name)
    last = timeline.checkpoint.last_committed()
    at = positions_at(timeline, last)[LOG]
    assert at.snapshot is not None
    assert (inputs_at(timeline, last)[LOG].version >= 0) == (at.file + 1 == first)
    land_all(embedded, flights_inbox, lake, end=False, max_commits=draw.choice([2, 4]))
    compact(path)  # what the stream is reading is merged
    run_some(spark, lake, draw.choice([2, 3]))
    land_all(embedded, flights_inbox, lake, end=True)
    compact(path)
    run_unbounded(spark, rolling_departures, lake, until_caught_up=True)
    last = timeline.checkpoint.last_committed()
    assert inputs_at(timeline, last)[LOG].version >= 0
    for comparison in against_oracle(lake, rolling_departures, Oracle(flights_inbox, bound_minutes=BOUND_MINUTES)):
        assert comparison.differences == 0, comparison.examples


@pytest.mark.soak
def test_it_reads_the_files_that_are_there_at_first_and_when_it_is_far_behind(
    spark: SparkSession, embedded: Computing, flights_inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, name = Lake(str(tmp_path / "lake")), rolling_departures.name
    land_all(embedded, flights_inbox, lake, end=False, max_commits=7)
    compact(lake.log(LOG), SMALL)
    forget(lake.log(LOG))
    run_some(spark, lake, 1)
    land_all(embedded, flights_inbox, lake, end=True)
    compact(lake.log(LOG), SMALL)  # a file holds what is read, and what is not
    monkeypatch.setattr(inputs, "FAR_BEHIND", 3)
    run_some(spark, lake, 1)
    timeline = Timeline.current(lake, name)
    at = positions_at(timeline, timeline.checkpoint.last_committed())[LOG]
    assert (at.snapshot, at.version) != (None, -1)
    assert rescale(spark, lake, name, 3)
    savepoint = savepoints.create(name, lake)
    for _ in range(2):
        run_unbounded(spark, rolling_departures, lake, until_caught_up=True)
        for comparison in against_oracle(lake, rolling_departures, Oracle(flights_inbox, bound_minutes=BOUND_MINUTES)):
            assert comparison.differences == 0, comparison.examples
        roll_back(lake, savepoint)
