"""Bounded runs on Spark, portion by portion: key groups of more rows than a worker takes at once."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from events import disorder
from pyspark.sql import SparkSession
from streams import ONCE, PAIRED, VISITS, WATCHED

from floodmark import Operator
from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.frames.fast import joins
from floodmark.engines.frames.portions import Portions
from floodmark.engines.spark.bounded import run
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(WATCHED, marks=pytest.mark.feature("K10")),
        *(pytest.param(code, marks=pytest.mark.soak) for code in (VISITS, ONCE, PAIRED)),
    ],
    ids=lambda code: code.name,
)
def test_portions_of_a_few_rows_are_the_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Operator
) -> None:
    lake, log = Lake(str(tmp_path)), disorder(code, 3, 200)
    land(lake, code, log)
    monkeypatch.setattr(run, "Portions", partial(Portions, portion=700, held=500))
    monkeypatch.setattr(joins, "possible", lambda *_: False)
    run.run_bounded(spark, code, lake)
    got = {name: final([table]) for name, table in outputs(lake, code).items()}
    assert got == {name: final([table]) for name, table in MemoryRun(code).batch({"events": log.table()}).items()}


@pytest.mark.feature("K10")
def test_what_does_not_fit_is_refused_with_its_number(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = Lake(str(tmp_path)), disorder(WATCHED, 3, 200)
    land(lake, WATCHED, log)
    monkeypatch.setattr(run, "Portions", partial(Portions, memory=3_000))
    with pytest.raises(ExecutionError, match=r"EXECUTION-\d+.*at most 0.0 MB of packed state.*of key \(key='"):
        run.run_bounded(spark, WATCHED, lake)


@pytest.mark.soak
@pytest.mark.feature("K10")
@pytest.mark.timeout(900)
def test_workers_with_a_limit_compute_a_key_of_more_rows_than_they_have_room_for(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "bench" / "large_groups.py"
    got = {}
    for engine in ("duckdb", "spark"):
        options = ["--gigabytes", "0.3", "--memory", "512", "--folder", str(tmp_path / "log")]
        command = [sys.executable, str(program), "--engine", engine, *options]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        runs = [json.loads(line) for line in printed if line.startswith("{")]
        got[engine] = {run["operator"]: (run["rows"], run["digest"]) for run in runs}
    assert got["spark"] == got["duckdb"]
    assert all(rows for rows, _ in got["spark"].values())
