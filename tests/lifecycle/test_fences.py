"""A driver that nobody knows of any more, on another machine or stopped for hours: what it still writes counts for nothing, also at the same moment.

On a local disk a lock keeps it out; here there is none, as in a lake on an object store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from records import micro_batch

from floodmark.control.processes.engine import Computing
from floodmark.core.errors import LifecycleError
from floodmark.engines.spark.delta.appender import Appender, append_by_spark
from floodmark.engines.spark.state.rescale import rescale
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.files import Written

from .test_savepoints import put, totals, values

pytestmark = pytest.mark.engines("spark")


class Zombie:
    """The old driver, with what it knows: its timeline, its next micro-batch, the table as it last saw it."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.timeline = Timeline.current(lake, "totals")
        self.batch = self.timeline.checkpoint.last_committed() + 1
        self.path = lake.output("totals")
        self.appender = Appender(self.path)
        self.appender.writer.table()
        self.rows = spark.read.format("delta").load(self.path).limit(3).localCheckpoint()

    @property
    def app(self) -> str:
        return self.timeline.app("totals")

    def write(self) -> bool:
        return self.appender.append(self.rows, self.app, self.batch, micro_batch())

    def write_by_spark(self) -> None:
        append_by_spark(self.rows, self.path, self.app, self.batch, micro_batch())


@pytest.fixture(scope="module")
def gone_on(spark: SparkSession, engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Where the stream has gone on behind a savepoint, and its id."""
    lake = Lake(str(tmp_path_factory.mktemp("gone-on") / "lake"))
    put(lake, 60)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    name = savepoints.create("totals", lake).manifest.id
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    return lake.root, name


@pytest.fixture
def lake(gone_on: tuple[str, str], tmp_path: Path) -> Lake:
    """A copy of it."""
    return Lake(str(shutil.copytree(gone_on[0], tmp_path / "lake")))


@pytest.mark.feature("O3", "F8")
def test_after_a_rollback_the_old_driver_writes_nothing(
    spark: SparkSession, engine: Computing, lake: Lake, gone_on: tuple[str, str]
) -> None:
    name = gone_on[1]
    zombie = Zombie(spark, lake)
    roll_back(lake, savepoints.find(lake, name))
    kept = values(lake, "totals")
    with pytest.raises(LifecycleError, match="LIFECYCLE-057 .*expected the current timeline"):
        zombie.write()
    zombie.write_by_spark()
    assert values(lake, "totals") == kept
    _merge(spark, zombie, lake)
    people = DeltaTable(lake.output("totals__current")).to_pyarrow_table()
    assert -1 not in people["n"].to_pylist()
    put(lake, 180, end=True)
    engine.run_unbounded(totals, lake, until_caught_up=True)
    assert len(values(lake, "totals")) > len(kept)


def _merge(spark: SparkSession, zombie: Zombie, lake: Lake) -> None:
    """What follows the old driver's changelog, with rows that must not be seen."""
    path = lake.output("totals__current")
    spark.conf.set("spark.databricks.delta.write.txnAppId", zombie.timeline.app("current/totals"))
    spark.conf.set("spark.databricks.delta.write.txnVersion", str(zombie.batch))
    try:
        rows = spark.read.format("delta").load(path).selectExpr("* EXCEPT (n)", "CAST(-1 AS BIGINT) AS n")
        merge = SparkTable.forPath(spark, path).alias("t").merge(rows.alias("s"), "t.key <=> s.key")
        merge.whenMatchedUpdate(set={"n": "s.n"}).execute()
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")


@pytest.mark.feature("O3", "F8")
@pytest.mark.parametrize("what", ["rollback", pytest.param("rescale", marks=pytest.mark.soak)])
def test_of_two_that_commit_at_once_the_old_one_fails(
    spark: SparkSession, lake: Lake, gone_on: tuple[str, str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    name = gone_on[1]
    zombie = Zombie(spark, lake)
    writes: Callable[..., Written] = Appender.write

    def meanwhile(self: Appender, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> Written:
        found = writes(self, rows, partition_by)  # its files are there, its commit is not
        monkeypatch.setattr(Appender, "write", writes)
        if what == "rollback":
            roll_back(lake, savepoints.find(lake, name))
        else:
            rescale(spark, lake, "totals", 3)
        return found

    monkeypatch.setattr(Appender, "write", meanwhile)
    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        zombie.write()
    rows = DeltaTable(zombie.path).to_pyarrow_table()
    assert rows.num_rows == len(set(map(repr, rows.to_pylist()))), "nothing is there twice"
    assert Timeline.current(lake, "totals").number == 1
