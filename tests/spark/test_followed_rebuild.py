"""A rebuild that readers follow as a difference, on Spark: the commit is read, and the one that replaces the table is passed over."""

from __future__ import annotations

import signal
from functools import partial

import pytest
from followed import (
    FOLLOWERS,
    READERS,
    SWITCH,
    current,
    differences,
    land_some,
    log,
    process,
    results,
    timelines,
    totals,
)
from pyspark.sql import SparkSession

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.engines.upgrading import rebuild
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.cuts import create_coordinated_savepoints


@pytest.mark.soak
@pytest.mark.feature("V4")
@pytest.mark.timeout(900)
def test_readers_end_as_if_they_were_computed_anew(spark: SparkSession, lake: Lake) -> None:
    events = log(rows=140)
    land_some(lake, events, 0, 80, pieces=1)
    readers = [define() for define in READERS.values()]
    for one in (totals("plain"), *readers):
        run_unbounded(spark, one, lake, until_caught_up=True)
    upgraded = rebuild(partial(run_unbounded, spark), totals("few"), lake)
    assert upgraded.followers == FOLLOWERS, upgraded.because
    assert [one.rows > 0 for one in differences(lake)] == [True]
    for one in readers:
        run_unbounded(spark, one, lake, until_caught_up=True)
    assert len(create_coordinated_savepoints("totals", lake)) == len(FOLLOWERS) + 1
    land_some(lake, events, 80, 141, pieces=1)
    for one in (totals("few"), *readers):
        run_unbounded(spark, one, lake, until_caught_up=True)
    assert timelines(lake) == [0, 0, 0]
    as_anew(lake)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_at_each_step_it_is_followed_once(spark: SparkSession, lake: Lake) -> None:
    """The rebuild at each point of its switch, then each reader between the writes of the micro-batch that follows."""
    events = log(rows=140)
    land_some(lake, events, 0, 80, pieces=1)
    readers = [define() for define in READERS.values()]
    for one in (totals("plain"), *readers):
        run_unbounded(spark, one, lake, until_caught_up=True)
    for point in SWITCH:
        assert process(lake, "rebuild", "few", "spark", at=point, java=spark) == -signal.SIGKILL, point
    assert process(lake, "rebuild", "few", "spark", java=spark) == 0
    assert len(differences(lake)) == 1
    for name, point in (("evens", "micro_batch.before_main"), ("sums", "micro_batch.after_main")):
        assert process(lake, "run", name, "spark", at=point, java=spark) == -signal.SIGKILL, point
        assert process(lake, "run", name, "spark", java=spark) == 0
    land_some(lake, events, 80, 141, pieces=1)
    for one in (totals("few"), *readers):
        run_unbounded(spark, one, lake, until_caught_up=True)
    assert timelines(lake) == [0, 0, 0]
    as_anew(lake)


def as_anew(lake: Lake) -> None:
    """The results of the readers are those of readers that the embedded engine computes anew."""
    before = {name: results(lake, name) for name in FOLLOWERS}
    values = {name: current(lake, name) for name in ("sums", "pairs")}
    assert all(before.values())
    sail = Sail(memory=300)
    for define in READERS.values():
        run_embedded(sail, define(), lake, until_caught_up=True, from_scratch=True)
    sail.close()
    assert before == {name: results(lake, name) for name in FOLLOWERS}
    assert values == {name: current(lake, name) for name in ("sums", "pairs")}
