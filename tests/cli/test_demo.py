"""The demo leaves folders alone that are not its own, and says what does not agree; tests/crash runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from filelock import FileLock

from assets.flights import flights, weather
from demo.__main__ import demo
from demo.comparison import Comparison
from demo.inbox import write_inbox
from demo.run import Compared, Outcome, lines
from demo.topics import from_topic, topics
from floodmark.core.errors import SetupError
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.run import RunResult
from floodmark.spec.values.schema import ROW

if TYPE_CHECKING:
    from kafka_broker import Broker


def test_a_folder_that_is_no_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "bounded").mkdir()
    result = CliRunner().invoke(demo, ["--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"LIFECYCLE-021 folder {tmp_path}\n")
    assert (tmp_path / "bounded").is_dir()


def test_two_demos_do_not_work_in_one_folder_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    with FileLock(folder / "_lock"):
        (folder / ".floodmark-demo").touch()
        (folder / "landed").mkdir()
        result = CliRunner().invoke(demo, ["--folder", str(folder)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"LIFECYCLE-195 folder {folder}\n")
    assert "another folder: .venv/bin/python -m demo --folder" in result.stderr
    assert (folder / "landed").is_dir(), "the lakes of the other one"


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
    assert "hourly: bounded = unbounded, spark = duckdb: 3 rows, 0 differences" in list(lines(outcome()))


def test_only_engines_that_computed_are_named() -> None:
    both = outcome()
    both.bounded["embedded"] = both.bounded["spark"]
    assert both.answers_compared == 5
    assert "hourly: bounded = unbounded, spark = embedded = duckdb: 3 rows, 0 differences" in list(lines(both))


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


def test_rows_that_went_through_kafka_land_as_those_of_the_files(broker: Broker, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    write_inbox(inbox, days=2)
    logs: dict[str, list[list[dict[str, object]]]] = {"flights": [], "weather": []}
    with topics(inbox, broker.servers) as names:
        for asset in (flights, weather):
            for number, source in enumerate(
                (asset.source, from_topic(asset.source, names[asset.source.name], broker.servers))
            ):
                lake = Lake(str(tmp_path / f"lake{number}"))
                assert land(_no_engine, source, lake, end=True, workspace=tmp_path).quarantined == 0
                rows = (
                    DeltaTable(lake.log(source.name))
                    .to_pyarrow_table()
                    .filter(pc.equal(pc.field("_kind"), ROW))
                    .sort_by("_sequence")
                )
                logs[source.name].append(rows.drop(["_ingest_time", "_sequence"]).to_pylist())
    for name, (of_files, of_topic) in logs.items():
        assert of_files, name
        assert of_topic == of_files, name


def test_a_broker_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="SETUP-171"), topics(tmp_path, "127.0.0.1:1"):
        pass


def _no_engine() -> Sail:
    raise AssertionError
