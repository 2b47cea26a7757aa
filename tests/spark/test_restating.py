"""An upgrade behind results that late rows revise, on Spark: its state is read from the checkpoint, the new steps are Spark's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from restated import Story, daily, days, never_less_than_nothing, standing, told, values_of

from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.savepoints import savepoints


@pytest.mark.soak
@pytest.mark.feature("V4")
@pytest.mark.timeout(900)
def test_results_that_may_still_be_revised_are_those_of_the_new_steps(spark: SparkSession, lake: Lake) -> None:
    story, reader, path = Story(lake), days(), lake.output("totals")
    story.land(110, pieces=1)
    code = story.begin("plain")
    for one in (code, reader):
        run_unbounded(spark, one, lake, until_caught_up=True)
    before = standing(path)
    code = story.upgrade("filter")
    assert story.kept() >= 2
    run_unbounded(spark, code, lake, until_caught_up=True)
    assert standing(path) != before
    story.land(201, pieces=1)
    for one in (code, reader):
        run_unbounded(spark, one, lake, until_caught_up=True)
    assert standing(path) == story.expected()
    never_less_than_nothing(path)
    assert told(standing(lake.output("days"))) == daily(story.expected())
    current, changelog = values_of(lake, ("key", "window_start", "window_end"))
    assert current == changelog
    roll_back(lake, savepoints(lake, "totals")[0], alone=True)
    assert standing(path) == before
