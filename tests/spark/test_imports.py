"""A user's module on Spark: imported from the workspace's folder, wherever the process runs."""

from __future__ import annotations

import gc
import importlib
import sys

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from floodmark.engines.spark.session.builder import spark_session

MODULE = """
def same(batches):
    yield from batches
"""


def test_workers_import_the_modules_of_a_workspace_that_is_not_the_current_folder(
    spark: SparkSession, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_workspace.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_of_a_workspace")
    try:
        spark_session()
        assert spark.range(1).mapInArrow(module.same, "id bigint").collect() == [(0,)]
    finally:
        monkeypatch.undo()
        spark_session()


def test_workers_are_forked_with_what_they_import(spark: SparkSession) -> None:
    def imported(batches):
        for _ in batches:
            there = "floodmark.engines.spark.state.host" in sys.modules
            yield pa.RecordBatch.from_pydict({"there": [there], "frozen": [gc.get_freeze_count() > 0]})

    rows = spark.range(1).mapInArrow(imported, "there boolean, frozen boolean").collect()
    assert [tuple(row) for row in rows] == [(True, True)]
