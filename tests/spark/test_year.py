"""A year passes for a lake: upkeep is killed in it, Delta's own clean-up runs, and all that begins or goes back ends as DuckDB has it.

``bench/year_results.py`` with few commits; it prints what it finds for as many as one asks for.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import cycle
from pathlib import Path

import forked
import pytest
from pyspark.sql import SparkSession

from floodmark.core import crash

BENCH = Path(__file__).resolve().parents[2] / "bench"
PROGRAM = "import sys; from floodmark.lake.folder.paths import Lake; from floodmark.lake.maintenance.upkeep import maintain; maintain(Lake(sys.argv[1]), hours=0)"
POINTS = ("compaction.before_commit", "vacuum.after_file", "expiry.after_file")


@pytest.mark.feature("Z20")
@pytest.mark.timeout(600)
def test_what_begins_or_goes_back_after_a_year_ends_as_duckdb_has_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import year_results

    points, ends = cycle(POINTS), list[int]()

    def upkeep(root: str) -> list[str]:
        for point in (next(points), next(points)):
            environment = {**os.environ, crash.VARIABLE: point}
            ends.append(forked.run([sys.executable, "-c", PROGRAM, root], env=environment).returncode)
        return year_results.upkeep(root)

    assert year_results.run(tmp_path, 600, 300, spark, upkeep) == 0, capsys.readouterr().out
    assert -signal.SIGKILL in ends, f"no upkeep was killed: {ends}"
    told = capsys.readouterr().out
    assert told.count("equal to DuckDB") == 5
    assert "entries, from version 0;" not in told.split("after Delta's own clean-up")[1], "the first commits are gone"
