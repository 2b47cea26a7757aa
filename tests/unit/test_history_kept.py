"""Commits of logs and outputs stay, whoever's clean-up runs: new streams begin with the first one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from events import Event
from small_lake import CHANGELOG, CURRENT, LATE, LOG, TOTALS, make

from floodmark.engines.spark.delta import tables
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.table import outputs
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.source import Ascending, Source


def first_commit_after_60_days(path: str) -> bool:
    """Whether the first commit is there after commits, a checkpoint and Delta's own clean-up 60 days later."""
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    old = time.time() - 60 * 86_400
    for _ in range(3):
        write_deltalake(path, schema.empty_table(), mode="append")
    for file in Path(path, "_delta_log").iterdir():
        os.utime(file, (old, old))
    for _ in range(2):
        DeltaTable(path).create_checkpoint()
        write_deltalake(path, schema.empty_table(), mode="append")
    DeltaTable(path).cleanup_metadata()
    return Path(path, "_delta_log", f"{0:020d}.json").is_file()


def test_a_table_of_others_loses_its_first_commit(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}))
    assert not first_commit_after_60_days(str(tmp_path / "t"))


def test_an_output_keeps_its_first_commit_and_last_values_do_not(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    spark: object = None  # not needed on a local disk
    for output in TOTALS.outputs:
        outputs_table = lake.output(output.table)
        schema = outputs.table_schema(output.schema, output.partitions)
        tables.create(spark, outputs_table, schema, properties=outputs.PROPERTIES)  # type: ignore[arg-type]
        assert first_commit_after_60_days(outputs_table), output.table


def test_a_log_keeps_its_first_commit(tmp_path: Path) -> None:
    source = Source("events", contract=Event, connector=Rows([]), watermark=Ascending())
    path = str(tmp_path / "log")
    tables.create(None, path, outputs.table_schema(source.schema), properties=log.properties(source))  # type: ignore[arg-type]
    assert first_commit_after_60_days(path)


def test_upkeep_mends_tables_whose_properties_say_otherwise(tmp_path: Path) -> None:
    lake = make(tmp_path)
    before = {name: DeltaTable(path).version() for name, path in paths(lake).items()}
    maintain(lake, dry_run=True)
    assert before == {name: DeltaTable(path).version() for name, path in paths(lake).items()}
    assert {one.table: one.mended for one in maintain(lake)} == {
        f"logs/{LOG}": True,
        CHANGELOG: True,
        LATE: True,
        CURRENT: False,
    }
    assert not any(one.mended for one in maintain(lake))
    for name in (LOG, CHANGELOG, LATE):
        assert first_commit_after_60_days(paths(lake)[name]), name


def paths(lake: Lake) -> dict[str, str]:
    """The tables of a small lake."""
    return {LOG: lake.log(LOG), **{name: lake.output(name) for name in (CHANGELOG, LATE, CURRENT)}}
