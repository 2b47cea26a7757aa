"""Bundles of key groups follow the number of state partitions, of which each has 16 of them or more."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import disorder
from pyspark.sql import SparkSession
from streams import WATCHED, check

from floodmark import Operator
from floodmark.engines.rescaling import rebundle, rebundle_steps
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import sample
from floodmark.lake.stream.timeline import Timeline
from floodmark.testing.lakes import land

CODE: Operator = WATCHED.grouped(1 << 15)


def _parts(lake: Lake) -> tuple[int, int, int]:
    """Key groups, bundles and state partitions of the stream."""
    timeline = Timeline.current(lake, CODE.name)
    checkpoint, divided = checkpoint_of(timeline), timeline.identity.divided()
    assert divided is not None
    return *divided, checkpoint.partitions(checkpoint.last_committed())


@pytest.mark.feature("K10")
def test_more_state_partitions_have_more_bundles(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = disorder(CODE, 5, 120), Lake(str(tmp_path / "lake"))
    land(lake, CODE, log, 0, 60)
    run_unbounded(spark, CODE, lake, until_caught_up=True)
    begun = _parts(lake)
    assert begun[:2] == (1 << 15, 64)
    assert rebundle_steps(CODE, lake, begun[2]) == ()
    planned = rebundle_steps(CODE, lake, 5)
    assert [type(step).__name__ for step in planned] == [
        "Save",
        "Regroup",
        "MakeCurrent",
        "Fence",
    ]
    assert rescale(spark, lake, CODE.name, 5) is not None
    assert rebundle_steps(CODE, lake, 5) == planned, "if a kill came between the two, the rest is the same"
    assert rebundle(CODE, lake, spark) is not None
    assert _parts(lake) == (1 << 15, 128, 5)
    assert rebundle(CODE, lake, spark) is None
    land(lake, CODE, log, 60)
    run_unbounded(spark, CODE, lake, until_caught_up=True)
    assert _parts(lake) == (1 << 15, 128, 5)
    check(lake, CODE, log)
    sample.keep(lake, CODE.name, (1, 2))
    assert rebundle_steps(CODE, lake, 100) == (), "an arm of an experiment keeps its bundles"
