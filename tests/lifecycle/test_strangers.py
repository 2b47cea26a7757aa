"""Clean-ups of somebody else: they remove what the newest version of a table has not, and set its properties back. What is promised stands.

A running stream, a stopped one that goes on, a rollback to the oldest savepoint, a rebuild, a fork and a new stream end with the rows they have
where nobody cleans up; what cannot be done says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from floodmark import Operator, Stream, Tumbling, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ExecutionError, LifecycleError
from floodmark.engines import upgrading
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.entries import entry_of, log_files
from floodmark.lake.table.outputs import KEPT

from .test_savepoints import differences, largest, put, totals, values

pytestmark = pytest.mark.engines("embedded")
TABLES = ("totals", "totals__late", "largest")


def summed(totals: Stream) -> Stream:
    """What the reader becomes."""
    return totals.window(Tumbling("30 minutes")).aggregate(most=sum("total"))


REPLACED, SUMMED = (operator(summed, name=name, inputs={"totals": totals}) for name in ("largest", "summed"))


@operator(inputs={"totals": totals})
def added_later(totals: Stream) -> Stream:
    """A reader that begins behind it all."""
    return totals.window(Tumbling("1 hour")).aggregate(all=sum("total"))


def tables(lake: Lake) -> list[str]:
    """Of logs and outputs."""
    folders = [Path(path).parent for path in (lake.log("x"), lake.output("x"))]
    found = sorted(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())
    return [path for path in found if DeltaTable.is_deltatable(path)]


def by_delta_rs(lake: Lake) -> None:
    """Somebody's script, by which the data files go that the newest version has not."""
    for path in tables(lake):
        DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def by_spark(spark: SparkSession, lake: Lake) -> None:
    """The same in SQL."""
    wanted = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # of thousands of tasks that list folders
    }
    for name, value in wanted.items():
        spark.conf.set(name, value)
    for path in tables(lake):
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    for name in wanted:
        spark.conf.unset(name)


@pytest.fixture(params=["delta-rs", pytest.param("spark", marks=[pytest.mark.soak, pytest.mark.spark])])
def clean_up(request: pytest.FixtureRequest) -> Callable[[Lake], None]:
    """How somebody else removes files."""
    return by_delta_rs if request.param == "delta-rs" else partial(by_spark, request.getfixturevalue("spark"))


def forget(lake: Lake) -> None:
    """Set the retention of every table back, and let a year pass and a checkpoint come: of its log the newest version stays."""
    for path in tables(lake):
        hours = "interval 0 hours"
        DeltaTable(path).alter.set_table_properties(
            {"delta.logRetentionDuration": hours, "delta.deletedFileRetentionDuration": hours}
        )
        table = DeltaTable(path)
        table.create_checkpoint()
        for entry in Path(path, "_delta_log").iterdir():
            os.utime(entry, (1_600_000_000, 1_600_000_000))
        table.cleanup_metadata()
        assert entry_of(0) not in log_files(path)


@pytest.fixture(scope="module")
def truth(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """What comes of it where nobody cleans up."""
    lake = Lake(str(tmp_path_factory.mktemp("truth")))
    for until in (60, 90, 120, 150, 180):
        put(lake, until, end=until == 180)
    for one in (totals, largest, added_later, SUMMED):
        embedded.run_unbounded(one, lake, until_caught_up=True)
    return lake


def begun(engine: Computing, lake: Lake) -> tuple[str, dict[str, Any]]:
    """A lake with an old savepoint, whose files are merged since, and streams that have gone on; the savepoint and what the tables had."""
    for until in (60, 90):
        put(lake, until)
        for one in (totals, largest):
            engine.run_unbounded(one, lake, until_caught_up=True, files_per_batch=1)
    name, then = (
        create_coordinated_savepoints("totals", lake)[0].manifest.id,
        {table: values(lake, table) for table in TABLES},
    )
    for until in (120, 150):
        put(lake, until)
        for one in (totals, largest):
            engine.run_unbounded(one, lake, until_caught_up=True, files_per_batch=1)
        maintain(lake)
    return name, then


def again_from(engine: Computing, code: Operator, lake: Lake) -> None:
    """Go on; where that is refused, do what the error says."""
    try:
        engine.run_unbounded(code, lake, until_caught_up=True)
    except ExecutionError as error:
        assert error.code == "EXECUTION-060"  # noqa: PT017 - any other one is a failure
        assert f"floodmark run {code.name} --unbounded --from-scratch" in error.fix  # noqa: PT017 - likewise
        engine.run_unbounded(code, lake, until_caught_up=True, from_scratch=True)


@pytest.mark.feature("V1", "V2")
@pytest.mark.timeout(900)
def test_a_vacuum_of_somebody_else_breaks_nothing_that_is_promised(
    engine: Computing, tmp_path: Path, truth: Lake, clean_up: Callable[[Lake], None]
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    name, then = begun(engine, lake)
    clean_up(lake)
    forked = fork(lake, savepoints.find(lake, name), str(tmp_path / "fork"))
    assert roll_back(lake, savepoints.find(lake, name)).undone
    assert {table: values(lake, table) for table in TABLES} == then
    clean_up(lake)  # also of what the rollback has taken out
    put(lake, 180, end=True)
    for one in (totals, largest):
        engine.run_unbounded(one, lake, until_caught_up=True, files_per_batch=1, on_batch=lambda _: by_delta_rs(lake))
        by_delta_rs(lake)
    engine.run_unbounded(added_later, lake, until_caught_up=True)
    assert not differences(lake, truth, *TABLES, "added_later")
    engine.run_unbounded(totals, forked, until_caught_up=True)
    assert not differences(forked, truth, "totals", "totals__late")
    upgrading.rebuild(engine.run_unbounded, REPLACED, lake, on_batch=lambda _: by_delta_rs(lake))
    by_delta_rs(lake)
    assert values(lake, "largest") == values(truth, "summed")


@pytest.mark.feature("V1", "V2")
@pytest.mark.timeout(900)
def test_a_log_that_somebody_cuts_is_no_reason_for_wrong_rows(engine: Computing, tmp_path: Path, truth: Lake) -> None:
    lake = Lake(str(tmp_path / "lake"))
    name, then = begun(engine, lake)
    forget(lake)
    by_delta_rs(lake)
    forked = fork(lake, savepoints.find(lake, name), str(tmp_path / "fork"))
    assert roll_back(lake, savepoints.find(lake, name)).undone
    assert {table: values(lake, table) for table in TABLES} == then, "the reader goes back too"
    forget(lake)
    put(lake, 180, end=True)
    for one in (totals, largest, added_later):
        again_from(engine, one, lake)
    assert not differences(lake, truth, *TABLES, "added_later")
    again_from(engine, totals, forked)
    assert not differences(forked, truth, "totals", "totals__late")
    maintain(lake)
    for path in tables(lake):
        kept = DeltaTable(path).metadata().configuration.get("delta.logRetentionDuration")
        assert path.endswith("__current") or kept == KEPT["delta.logRetentionDuration"], "set again"


def test_a_reader_whose_place_is_not_known_any_more_does_not_stay_behind(embedded: Computing, tmp_path: Path) -> None:
    """It has read rows that a rollback takes back; the entries that would say so went with our own upkeep, or with somebody's."""
    for cut in (lambda lake: maintain(lake, hours=0), forget):
        lake = Lake(str(tmp_path / cut.__name__))
        put(lake, 60)
        embedded.run_unbounded(totals, lake, until_caught_up=True)
        alone = savepoints.create("totals", lake)
        put(lake, 120)
        for one in (totals, largest):
            embedded.run_unbounded(one, lake, until_caught_up=True)
        time.sleep(0.002)  # what was written a millisecond ago stays
        cut(lake)
        with pytest.raises(LifecycleError, match=r"LIFECYCLE-035 .*largest"):
            roll_back(lake, alone)


def test_a_reader_that_has_read_just_that_stays_though_upkeep_has_cut_the_log(
    embedded: Computing, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for until in (60, 90):
        put(lake, until)
        for one in (totals, largest):
            embedded.run_unbounded(one, lake, until_caught_up=True, files_per_batch=1)
    alone = savepoints.create("totals", lake)
    for _ in range(2):
        time.sleep(0.002)  # what was written a millisecond ago stays
        maintain(lake, hours=0)
    last = Timeline.current(lake, "largest").checkpoint.last_committed()
    roll_back(lake, alone)
    assert Timeline.current(lake, "largest").checkpoint.last_committed() == last


def test_what_only_savepoints_need_is_linked_as_long_as_they_do(embedded: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    name, then = begun(embedded, lake)
    path = Path(lake.output("totals"))
    linked = list((path / "_floodmark" / "spared").rglob("*.parquet"))
    assert linked
    assert {file.stat().st_nlink for file in linked} == {2}
    by_delta_rs(lake)
    assert {file.stat().st_nlink for file in linked} == {1}
    maintain(lake)
    assert all(file.is_file() for file in linked), "though their files are gone"
    roll_back(lake, savepoints.find(lake, name))
    assert values(lake, "totals") == then["totals"]
    for one in savepoints.savepoints(lake):
        savepoints.delete(one)
    maintain(lake)
    assert not any(file.exists() for file in linked)
