"""A user's module on Spark: imported from the workspace's folder, wherever the process runs."""

from __future__ import annotations

import importlib

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
