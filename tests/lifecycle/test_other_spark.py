"""Another release of Spark: a stream goes on under it from a savepoint of the release before, and back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import caught_up_process
import pytest
from events import disorder
from processes import paths
from streams import WATCHED, check

from floodmark import Operator
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.testing.lakes import land

NEWER = "4.2.1"

pytestmark = [pytest.mark.soak, pytest.mark.spark]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the newer Spark alone, which comes before the installed one on Python's path."""
    folder = tmp_path_factory.mktemp("spark") / NEWER
    arguments = ["install", "-q", "--no-deps", "--no-compile", "--target", str(folder), f"pyspark=={NEWER}"]
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
    yield folder
    shutil.rmtree(folder)


def _run(lake: Lake, code: Operator, engine: str, newer: Path | None = None) -> str:
    """The version of Spark that a stream ran on until it had caught up."""
    path = os.pathsep.join([*([str(newer)] if newer else []), paths(), str(Path(__file__).parents[1] / "crash")])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("SPARK_HOME", None)  # of this process's Spark
    command = [sys.executable, str(Path(cast("str", caught_up_process.__file__))), lake.root, code.name, engine]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()[0]


@pytest.mark.feature("V5")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runs_on", ["spark", "embedded"])
def test_a_savepoint_of_one_release_of_spark_resumes_on_the_next_and_back(
    newer: Path, lake: Lake, runs_on: str
) -> None:
    """The embedded runs_on has Spark's client alone, of the same release."""
    code, log = WATCHED, disorder(WATCHED, 5, 120)
    half = len(log.entries) // 2
    land(lake, code, log, 0, half)
    installed = _run(lake, code, runs_on)
    assert installed != NEWER
    made = savepoints.create(code.name, lake)
    land(lake, code, log, half)
    assert _run(lake, code, runs_on) == installed
    check(lake, code, log)
    roll_back(lake, savepoints.find(lake, made.id))
    assert _run(lake, code, runs_on, newer) == NEWER
    check(lake, code, log)
    roll_back(lake, savepoints.find(lake, made.id))
    assert _run(lake, code, runs_on, newer) == NEWER
    again = savepoints.create(code.name, lake)
    roll_back(lake, savepoints.find(lake, again.id))
    assert _run(lake, code, runs_on) == installed
    check(lake, code, log)
