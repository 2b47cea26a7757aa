"""Patterns under rules that change, on both engines in turn: killed, restarted, divided anew and carried over, with the alerts of a loop in Python."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import book_process
import forked
import pytest
from borrowed import lend, take_back
from example_workspaces import example, logs_of, shown
from machine_rules import ALERT, machines
from pyspark.sql import SparkSession

from floodmark.core import crash
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import canonical as of_embedded
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.state import canonical as of_spark
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.spark.unbounded.run import run_unbounded as run_spark
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

ROWS, PARTS = 200, 5


@pytest.mark.spark
@pytest.mark.feature("C1", "C3", "C4", "V5", "K10")
def test_rules_and_partial_matches_go_through_kills_and_engines(
    spark: SparkSession, sail: Sail, lake: Lake, tmp_path: Path
) -> None:
    faults = example("rules").faults
    rows, due = machines(ROWS, 7)
    logs, _ = logs_of([faults], rows)
    assert len(due) > 5

    def lands(part: int, of: Lake = lake) -> None:
        for name, log in logs.items():
            cuts = [len(rows[name]) * n // PARTS for n in range(PARTS)] + [None]
            land(of, faults, log, cuts[part] or 0, cuts[part + 1], name=name)

    lands(0)
    run_embedded(sail, faults, lake, until_caught_up=True)
    taken = of_embedded.export(savepoints.create("faults", lake), str(tmp_path / "to_spark"))
    roll_back(lake, of_spark.import_savepoint(spark, lake, taken))
    lands(1)
    run_spark(spark, faults, lake, until_caught_up=True)
    lands(2)
    command = [sys.executable, book_process.__file__, lake.root, faults.name, "spark"]
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: "micro_batch.after_main", **lend(spark)})
    take_back(spark)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run_spark(spark, faults, lake, until_caught_up=True)
    assert rescale(spark, lake, faults.name, 3) is not None
    lands(3)
    run_spark(spark, faults, lake, until_caught_up=True)
    taken = of_spark.export(spark, savepoints.create("faults", lake), str(tmp_path / "back"))
    roll_back(lake, of_embedded.import_savepoint(lake, taken))
    lands(4)
    run_embedded(sail, faults, lake, until_caught_up=True)
    assert shown(final([outputs(lake, faults)[""]]), *ALERT) == due
    bounded = Lake(str(tmp_path / "bounded"), logs=lake.root)
    run_bounded(spark, faults, bounded)
    assert shown(final([outputs(bounded, faults)[""]]), *ALERT) == due
