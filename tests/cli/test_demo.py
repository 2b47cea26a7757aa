"""The demo on its first days: it runs, it agrees, it leaves alone what is not its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from processes import failure

from demo.__main__ import demo
from demo.comparison import Comparison
from demo.run import Compared, Outcome, lines
from floodmark.spec.run import RunResult

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.feature("Q7")
@pytest.mark.timeout(600)
def test_five_answers_agree_on_the_first_days(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--days", "9", "--folder", str(tmp_path / "demo"), "--json"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, failure(done.stderr)
    document = json.loads(done.stdout)
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
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
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
    page = (tmp_path / "demo" / "experiment.html").read_text("utf-8")
    assert "Experiment predictors of expected_delays" in page
    assert [one["verdict"] for one in document["experiment"]["gates"]] == ["holds"] * 6
    assert document["experiment"]["promoted"] == "weighted"
    assert "The rule by which weighted has become the stream" in page


def test_a_folder_that_is_no_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "bounded").mkdir()
    result = CliRunner().invoke(demo, ["--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"LIFECYCLE-021 folder {tmp_path}\n")
    assert (tmp_path / "bounded").is_dir()


def outcome(differences: int = 0, refired: int = 7, days: int | None = None) -> Outcome:
    comparison = Comparison(
        left="bounded", right="duckdb", rows=3, differences=differences, examples=("origin='JFK': only in duckdb",)
    )
    return Outcome(
        days=days,
        compared=[Compared(table="hourly", rows=3, comparisons=(comparison,))],
        lateness={"hourly": {"late": 7 + 2, "refired": 7, "dropped": 2}},
        bounded={
            "spark": {
                "hourly": RunResult(operator="hourly", version="hourly@1", mode="bounded", late=refired, dropped=2)
            }
        },
    )


def test_no_difference_is_no_problem() -> None:
    assert outcome().problems == []
    assert "hourly: bounded = unbounded, embedded = spark = duckdb: 3 rows, 0 differences" in list(lines(outcome()))


def test_a_difference_is_a_problem_with_an_example() -> None:
    found = outcome(differences=1)
    assert found.problems == ["hourly: 1 differences"]
    assert "  origin='JFK': only in duckdb" in list(lines(found))


def test_other_counts_of_late_rows_are_a_problem() -> None:
    assert outcome(refired=6).problems == ["hourly bounded on spark: refired 6, dropped 2, but DuckDB counts 7 and 2"]


def test_a_year_without_late_rows_is_a_problem_and_a_day_is_not() -> None:
    year, day = outcome(refired=0), outcome(refired=0, days=1)
    for found in (year, day):
        found.lateness = {"hourly": {"late": 2, "refired": 0, "dropped": 2}}
    assert year.problems == ["no refired row in the whole year; the demo proves nothing about them"]
    assert day.problems == []
