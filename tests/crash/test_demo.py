"""The demo on its first days: five answers agree, two of them through a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from borrowed import lend, take_back
from click.testing import CliRunner
from processes import failure, paths
from pyspark.sql import SparkSession

from demo import follower, run
from demo.__main__ import demo

ROOT = Path(__file__).resolve().parents[2]
ON_LENT_JAVA = """
import sys
if "spark" in sys.argv:
    from borrowed import borrow, wait_for_streams
    from pyspark.sql import SparkSession
    borrow()
    wait_for_streams(SparkSession.builder.getOrCreate())
from floodmark.cli.main import main
main()
"""
"""The program of the unbounded half, which works on the Java of the test on Spark; the second one waits until Java has noticed the kill."""


def options(folder: Path) -> list[str]:
    return ["--with-spark", "--days", "9", "--folder", str(folder), "--json"]


@pytest.mark.feature("Q7", "B8")
@pytest.mark.timeout(600)
def test_five_answers_agree_on_the_first_days(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PYTHONPATH": paths(), **lend(spark)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(follower, "PROGRAM", (sys.executable, "-c", ON_LENT_JAVA))
    monkeypatch.setattr(run, "stop_spark", lambda: None)
    result = CliRunner().invoke(demo, options(tmp_path / "demo"))
    take_back(spark)
    assert result.exit_code == 0, failure(result.stderr)
    document = json.loads(result.stdout)
    assert document["engines"]["spark"]["killed_after_commits"], "the unbounded half on Spark was killed"
    check(document, tmp_path / "demo")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_demo_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", *options(tmp_path / "demo")]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, failure(done.stderr)
    check(json.loads(done.stdout), tmp_path / "demo")


def check(document: dict[str, Any], folder: Path) -> None:
    """All five agree, and the report and the experiment's page say so."""
    assert document["problems"] == []
    assert list(document["engines"]) == ["embedded", "spark"]
    assert {one["table"]: one["differences"] for one in document["outputs"]} == dict.fromkeys(
        (
            "hourly_departures",
            "hourly_departures__late",
            "rolling_departures",
            "daily_carriers",
            "busiest_hour",
            "split_delays__severe",
            "split_delays__normal",
        ),
        0,
    )
    report = Path(document["report"]).read_text("utf-8")
    assert "both modes of both engines, and DuckDB, agree" in report
    assert "<svg" in report
    assert "src=" not in report
    assert sorted(path.name for path in folder.iterdir()) == [
        ".floodmark-demo",
        "experiment.html",
        "inbox",
        "report.html",
    ]
    assert document["experiment"]["differences"] == 0, "pandas computes the same predictions"
    assert document["experiment"]["rows"] > 10_000
    columns = document["experiment"]["found"]["weighted"]["expected_delays"]["columns"]
    drift = next(one["drift"] for one in columns if one["name"] == "error")
    assert drift["low"] <= drift["mean"] <= drift["high"] < 0, "the newest delays count"
    page = (folder / "experiment.html").read_text("utf-8")
    assert "Experiment predictors of expected_delays" in page
    assert [one["verdict"] for one in document["experiment"]["guardrails"]] == ["holds"] * 6
    assert document["experiment"]["promoted"] == "weighted"
    assert "The rule by which weighted has become the stream" in page
