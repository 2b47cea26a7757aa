"""Cases of patterns that others wrote, as streams on Spark: rows in commits that are cut at random, killed, started again, and bounded."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import forked
import pattern_runs
import pytest
from borrowed import lend, take_back
from pattern_runs import NUMBERS
from pyspark.sql import SparkSession
from seeds import seed_of

from floodmark.core import crash
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.lake.folder.paths import Lake

POINTS = ("micro_batch.before_evaluate", "micro_batch.before_main", "micro_batch.after_main")
GROUPS = [pytest.param(group, marks=() if group == "single 0" else pytest.mark.soak) for group in NUMBERS]


@pytest.mark.feature("C1", "C2", "C3", "X5")
@pytest.mark.parametrize("group", GROUPS)
def test_cases_that_are_cut_and_killed_have_their_matches(spark: SparkSession, tmp_path: Path, group: str) -> None:
    draw = random.Random(seed_of(f"cases on Spark {group}"))
    for stream, lake in pattern_runs.lakes(str(tmp_path), group):
        stream.land(lake, draw)
    command = [sys.executable, pattern_runs.__file__, "spark", str(tmp_path), group]
    point = f"{draw.choice(POINTS)}:{draw.randint(1, 3)}"
    killed = forked.run(command, env={**os.environ, crash.VARIABLE: point, **lend(spark)})
    take_back(spark)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pattern_runs.run("spark", str(tmp_path), group)
    for stream, lake in pattern_runs.lakes(str(tmp_path), group):
        assert stream.results(lake) == stream.expected
        bounded = Lake(f"{lake.root}_bounded", logs=lake.root)
        run_bounded(spark, stream.operator, bounded)
        assert stream.results(bounded) == stream.expected
