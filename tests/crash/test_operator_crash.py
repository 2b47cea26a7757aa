"""A run is killed with SIGKILL, Java and all, between any two of its writes; the next one makes the tables what they would have been."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from borrowed import lend, take_back
from deltalake import DeltaTable
from flights import changelog
from operator_process import EARLY, clocked, revised, source
from pyspark.sql import SparkSession

from demo.comparison import compare
from floodmark.core import crash
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.landing.run import land
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake import ticks
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import Timeline

PROGRAM = Path(__file__).with_name("operator_process.py")
TABLES = ("revised", "revised__late")
MODES = {"unbounded": "micro_batch", "bounded": "bounded"}
SAME = {"micro_batch.before_main", "micro_batch.after_settle", "bounded.before_current", "bounded.before_main"}
"""Points that see the same files as one of their neighbours: ``make soak`` tries them one by one."""
WHOLE = {"micro_batch.after_main", "bounded.after_side"}
"""Points at which Java is killed too; at the others only its driver, and Java lives on. ``make soak`` kills it everywhere."""
LATER = {f"micro_batch.{when}_{what}": 2 for when in ("before", "after") for what in ("side", "main")}
"""Points at which dying in the second micro-batch says more, as there is state to go on from."""


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("logs")))
    for commits in (1, 2, 3):
        land(spark, source(commits), lake, end=commits == 3)
    return lake


@pytest.fixture(scope="module")
def expected(spark: SparkSession, logs: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    lake = Lake(str(tmp_path_factory.mktemp("expected")), logs=logs.root)
    result = run_bounded(spark, revised, lake)
    assert result.late
    assert result.dropped
    assert result.retractions
    return {table: changelog(lake, table) for table in TABLES}


def die(mode: str, point: str, lake: Lake, time: int = 1, java: SparkSession | None = None) -> str:
    """Run the program until it kills itself at a point, and its Java, unless that is lent; what it said if it did not."""
    command = [sys.executable, str(PROGRAM), mode, lake.root, str(lake.logs)]
    environment = {**os.environ, crash.VARIABLE: f"{point}:{time}", **(lend(java) if java else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    if java:
        take_back(java)
    return (
        ""
        if done.returncode == -signal.SIGKILL
        else f"{point} was never reached: exit {done.returncode} {done.stderr[-2000:]}"
    )


def counted(rows: pa.Table) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows.to_pylist())


def seen(lake: Lake, table: str) -> Counter[tuple[tuple[str, object], ...]]:
    """What a reader finds in a table, if it is there at all."""
    return counted(changelog(lake, table)) if DeltaTable.is_deltatable(lake.output(table)) else Counter()


@pytest.mark.feature("E1", "E5", "Y9")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("unbounded", marks=pytest.mark.feature("F8", "K14")),
        pytest.param("bounded", marks=pytest.mark.feature("B3")),
    ],
)
def test_killed_at_every_point_in_turn_it_ends_exactly_right(
    spark: SparkSession, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path, mode: str
) -> None:
    lake = Lake(str(tmp_path), logs=logs.root)
    for point in (point for point in crash.POINTS[MODES[mode]] if point not in SAME):
        assert not die(mode, point, lake, java=None if point in WHOLE else spark), point
        for table in TABLES:
            assert seen(lake, table) <= counted(expected[table]), f"{point}: a reader has seen what was not to stay"
    finish(spark, mode, lake, expected)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_killed_once_at_any_point_it_ends_exactly_right(
    spark: SparkSession, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path, mode: str
) -> None:
    points = crash.POINTS[MODES[mode]]
    lakes = {point: Lake(str(tmp_path / point), logs=logs.root) for point in points}
    with ThreadPoolExecutor(2) as pool:
        missed = [text for text in pool.map(lambda p: die(mode, p, lakes[p], LATER.get(p, 1)), points) if text]
    assert not missed, missed
    for lake in lakes.values():
        finish(spark, mode, lake, expected)


@pytest.mark.feature("E2", "E4")
@pytest.mark.timeout(1800)
def test_values_that_were_shown_before_they_were_committed_are_overwritten_after_a_crash(
    spark: SparkSession, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    lake, dirty = Lake(str(tmp_path), logs=logs.root), 0
    for point in ("early.after_merge", "micro_batch.after_main"):
        assert not die("early", point, lake, java=spark), point
        committed = {(r["key"], r["window_end"], r["total"]) for r in changelog(lake, "revised").to_pylist()}
        shown = DeltaTable(lake.output("revised__current")).to_pyarrow_table().to_pylist()
        found = [r for r in shown if (r["key"], r["window_end"], r["total"]) not in committed]
        assert not found or point != "micro_batch.after_main"
        dirty += len(found)
        for table in TABLES:
            assert seen(lake, table) <= counted(expected[table]), f"{point}: what is not to stay was committed"
    assert dirty, "nobody could have seen anything before it was committed"
    finish(spark, "early", lake, expected)
    upset = DeltaTable(lake.output("revised__current"))
    upset.delete("key = 'a'")  # as if a crash had left it so: the next run without isolation takes the changelog's word
    shutil.rmtree(Timeline.current(lake, "revised").folder("current"))
    finish(spark, "unbounded", lake, expected)


def finish(spark: SparkSession, mode: str, lake: Lake, expected: dict[str, pa.Table]) -> None:
    """Run it to its end in peace, and compare."""
    if mode == "bounded":
        run_bounded(spark, revised, lake)
    else:
        run_unbounded(spark, EARLY if mode == "early" else revised, lake, until_caught_up=True)
    for table in TABLES:
        found = compare(changelog(lake, table), expected[table], names=("killed", "expected"))
        assert found.differences == 0, (lake.root, table, found.examples)
    sequences = DeltaTable(lake.output("revised")).to_pyarrow_table(columns=["_sequence", "_kind"])
    firsts = [s for s, k in zip(*(sequences[c].to_pylist() for c in ("_sequence", "_kind")), strict=True) if k == 0]
    assert len(firsts) == len(set(firsts)), f"{lake.root}: a row is there twice"
    current = DeltaTable(lake.output("revised__current")).to_pyarrow_table()
    last = {
        tuple(r[k] for k in ("key", "window_end")): r["total"]
        for r in expected["revised"].to_pylist()
        if r["_kind"] == 0
    }
    assert {(r["key"], r["window_end"]): r["total"] for r in current.to_pylist()} == last, lake.root


@pytest.mark.feature("E1", "L4", "W4")
@pytest.mark.timeout(1800)
def test_killed_around_the_record_of_the_clock_a_replay_still_says_the_same(
    spark: SparkSession, logs: Lake, tmp_path: Path
) -> None:
    points = crash.POINTS["tick"]
    lakes = {point: Lake(str(tmp_path / point), logs=logs.root) for point in points}
    for point, lake in lakes.items():
        assert not die("clocked", point, lake, 2, java=spark), point
    for point, lake in lakes.items():
        run_unbounded(spark, clocked, lake, until_caught_up=True, files_per_batch=1)
        stream = changelog(lake, "clocked")
        windows = set(stream["window_end"].to_pylist())
        assert sum_of(stream, "n") == 90, f"{point}: a row is lost or there twice"
        assert len(windows) > 1, "every micro-batch has a time of its own"
        replay = Lake(str(tmp_path / f"{point}-replay"), logs=logs.root)
        shutil.copytree(ticks.folder(clocked, lake), ticks.folder(clocked, replay))
        run_bounded(spark, clocked, replay)
        found = compare(changelog(replay, "clocked"), stream, names=("replay", point))
        assert found.differences == 0, (point, found.examples)


def sum_of(table: pa.Table, column: str) -> int:
    return sum(table[column].to_pylist())
