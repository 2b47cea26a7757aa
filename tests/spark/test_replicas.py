"""A stream of Spark's goes on in another lake from a savepoint that was carried there, with equal rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from events import disorder
from replica_process import EVENTS, carried, ship
from streams import WINDOWED, check

from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.replicas.adoption import adopt_stream
from floodmark.lake.restore import savepoints
from floodmark.testing.lakes import land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.soak
@pytest.mark.feature("D7")
def test_a_stream_goes_on_elsewhere_from_a_carried_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 5, 120)
    land(home, WINDOWED, log, 0, 60)
    run_unbounded(spark, WINDOWED, home, until_caught_up=True)
    made = savepoints.create("windowed", home)
    land(home, WINDOWED, log, 60, 90)
    run_unbounded(spark, WINDOWED, home, until_caught_up=True)
    carried(home, there, made.id)
    adopt_stream(there, savepoints.find(there, made.id))
    land(home, WINDOWED, log, 90)
    ship(EVENTS, home, there)
    run_unbounded(spark, WINDOWED, there, until_caught_up=True)
    check(there, WINDOWED, log)
