"""A run is killed with SIGKILL, on Spark Java and all, between any two of its writes; the next one makes the tables what they would have been."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import forked
import pyarrow as pa
import pytest
from borrowed import lend, take_back
from deltalake import DeltaTable
from flights import changelog
from operator_process import EARLY, START, clocked, revised, source, staged, threefold
from processes import failure, paths
from pyspark.sql import SparkSession

from demo.comparison import compare
from floodmark.control.processes.engine import Computing, OnSpark
from floodmark.core import crash
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.lake.stream.timeline import Timeline

PROGRAM = Path(__file__).with_name("operator_process.py")
TABLES = ("revised", "revised__late")
MODES = {"unbounded": "micro_batch", "bounded": "bounded"}
SAME = {"micro_batch.before_main", "micro_batch.after_progress", "bounded.before_current", "bounded.before_main"}
"""Points that see the same files as one of their neighbours: ``make soak`` tries them one by one."""
SEVERAL = {"embedded.before_merge", "embedded.after_merge"}
"""Points a stream comes to once it has had several micro-batches: tests/embedded tries them."""
POINTS = {
    ("unbounded", "embedded"): tuple(
        point
        for point in (*crash.POINTS["embedded"], "micro_batch.before_current", "micro_batch.after_current")
        if point not in SEVERAL
    ),
    ("unbounded", "spark"): ("micro_batch.after_side", "micro_batch.after_main"),
    ("bounded", "embedded"): tuple(point for point in crash.POINTS["bounded"] if point not in SAME),
    ("bounded", "spark"): ("bounded.after_side", "bounded.after_current"),
}
"""Of every run; of Spark, which takes ten times as long, those between two tables. ``make soak`` tries all of them."""
WHOLE = {"micro_batch.after_main"}
"""Points at which Java is killed too; at the others only its driver, and Java lives on. ``make soak`` kills it everywhere."""
LATER = {f"micro_batch.{when}_{what}": 2 for when in ("before", "after") for what in ("side", "main")}
"""Points at which dying in the second micro-batch says more, as there is state to go on from."""


@pytest.fixture(scope="module")
def logs(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("logs")))
    for commits in (1, 2, 3):
        embedded.land(source(commits), lake, end=commits == 3)
    return lake


@pytest.fixture(scope="module")
def expected(embedded: Computing, logs: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    lake = Lake(str(tmp_path_factory.mktemp("expected")), logs=logs.root)
    result = embedded.run_bounded(revised, lake, Interval())
    assert result.late
    assert result.dropped
    assert result.retractions
    return {table: changelog(lake, table) for table in TABLES}


def die(mode: str, point: str, lake: Lake, engine: Computing, time: int = 1, *, whole: bool = False) -> str:
    """Run the program until it kills itself at a point; what it said if it did not.

    Args:
        whole: its Java is killed too; otherwise it works on that of the test.
    """
    java = engine.spark if isinstance(engine, OnSpark) and not whole else None
    command = [sys.executable, str(PROGRAM), mode, lake.root, str(lake.logs), engine.name]
    environment = {**os.environ, crash.VARIABLE: f"{point}:{time}", **(lend(java) if java else {})}
    if java or engine.name == "embedded":
        done = forked.run(command, env=environment)
    else:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    if java:
        take_back(java)
    return (
        ""
        if done.returncode == -signal.SIGKILL
        else f"{point} was never reached: exit {done.returncode} {failure(done.stderr)}"
    )


def counted(rows: pa.Table) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows.to_pylist())


def seen(lake: Lake, table: str) -> Counter[tuple[tuple[str, object], ...]]:
    """What a reader finds in a table, if it is there at all."""
    return counted(changelog(lake, table)) if DeltaTable.is_deltatable(lake.output(table)) else Counter()


@pytest.mark.engines("spark", soak=("embedded",))
@pytest.mark.feature("E1", "E5", "Y9", "Z22")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("unbounded", marks=pytest.mark.feature("F8", "K14", "Z18")),
        pytest.param("bounded", marks=pytest.mark.feature("B3")),
    ],
)
def test_killed_at_one_point_after_another_it_ends_exactly_right(
    engine: Computing, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path, mode: str
) -> None:
    killed_in_turn(engine, mode, POINTS[mode, engine.name], Lake(str(tmp_path), logs=logs.root), expected)


@pytest.mark.engines(soak=("spark",))
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_killed_at_every_point_in_turn_it_ends_exactly_right(
    engine: Computing, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path, mode: str
) -> None:
    points = tuple(point for point in crash.POINTS[MODES[mode]] if point not in SAME)
    killed_in_turn(engine, mode, points, Lake(str(tmp_path), logs=logs.root), expected)


def killed_in_turn(
    engine: Computing, mode: str, points: tuple[str, ...], lake: Lake, expected: dict[str, pa.Table]
) -> None:
    """Kill a run at each point, one after the other, and let the last one end."""
    for point in points:
        assert not die(mode, point, lake, engine, whole=point in WHOLE), point
        for table in TABLES:
            assert seen(lake, table) <= counted(expected[table]), f"{point}: a reader has seen what was not to stay"
    finish(engine, mode, lake, expected)


@pytest.mark.engines(soak=("spark",))
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_killed_once_at_any_point_it_ends_exactly_right(
    engine: Computing, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path, mode: str
) -> None:
    points = crash.POINTS[MODES[mode]]
    lakes = {point: Lake(str(tmp_path / point), logs=logs.root) for point in points}
    with ThreadPoolExecutor(2) as pool:
        missed = [
            text
            for text in pool.map(lambda p: die(mode, p, lakes[p], engine, LATER.get(p, 1), whole=True), points)
            if text
        ]
    assert not missed, missed
    for lake in lakes.values():
        finish(engine, mode, lake, expected)


@pytest.mark.soak
@pytest.mark.engines("spark")
@pytest.mark.feature("E2", "E4")
@pytest.mark.timeout(1800)
def test_values_that_were_shown_before_they_were_committed_are_overwritten_after_a_crash(
    engine: Computing, logs: Lake, expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    lake, dirty = Lake(str(tmp_path), logs=logs.root), 0
    for point in ("early.after_merge", "micro_batch.after_main"):
        assert not die("early", point, lake, engine), point
        committed = {(r["key"], r["window_end"], r["total"]) for r in changelog(lake, "revised").to_pylist()}
        shown = DeltaTable(lake.output("revised__current")).to_pyarrow_table().to_pylist()
        found = [r for r in shown if (r["key"], r["window_end"], r["total"]) not in committed]
        assert not found or point != "micro_batch.after_main"
        dirty += len(found)
        for table in TABLES:
            assert seen(lake, table) <= counted(expected[table]), f"{point}: what is not to stay was committed"
    assert dirty, "nobody could have seen anything before it was committed"
    finish(engine, "early", lake, expected)
    upset = DeltaTable(lake.output("revised__current"))
    upset.delete("key = 'a'")  # as if a crash had left it so: the next run without isolation takes the changelog's word
    shutil.rmtree(Timeline.current(lake, "revised").folder("current"))
    finish(engine, "unbounded", lake, expected)


def finish(engine: Computing, mode: str, lake: Lake, expected: dict[str, pa.Table]) -> None:
    """Run it to its end in peace, and compare."""
    if mode == "bounded":
        engine.run_bounded(revised, lake, Interval())
    else:
        engine.run_unbounded(EARLY if mode == "early" else revised, lake, until_caught_up=True)
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


THREEFOLD = ("threefold__all", "threefold__odd", "threefold__sums")
SECOND = (
    *(f"micro_batch.after_files:{number}" for number in (1, 2, 3)),
    *(f"micro_batch.{when}_side:{number}" for number in (3, 4) for when in ("before", "after")),
    "micro_batch.after_main:2",
)
"""Points between the writes of three outputs in a process's second micro-batch, from which on their files are written beside each other."""
FIRST = tuple(f"micro_batch.{when}_side:{number}" for number in (1, 2) for when in ("before", "after"))
"""The same in its first, whose files are written one after the other, as it may repeat the last one of a process before."""
MIDDLE = ("micro_batch.after_files:2", "micro_batch.before_side:4")
"""Some files are written; one of three outputs is committed."""


@pytest.mark.engines("spark")
@pytest.mark.feature("E1", "E5")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(MIDDLE, id="middle", marks=pytest.mark.soak),
        pytest.param(SECOND, id="second", marks=pytest.mark.soak),
        pytest.param(FIRST, id="first", marks=pytest.mark.soak),
    ],
)
def test_killed_between_the_writes_of_three_outputs_each_ends_exactly_right(
    engine: Computing, embedded: Computing, tmp_path: Path, points: tuple[str, ...]
) -> None:
    logs, lake = Lake(str(tmp_path / "logs")), Lake(str(tmp_path / "lake"), logs=str(tmp_path / "logs"))
    for commits in range(1, len(points) + 3):
        embedded.land(source(commits), logs, end=commits == len(points) + 2)
    wanted = in_three(30 * (len(points) + 2))
    for point in points:
        name, time = point.split(":")
        assert not die("threefold", name, lake, engine, int(time)), point
        for table in THREEFOLD:
            assert outcome(lake, table) <= wanted[table], f"{point}: a reader of {table} has seen what was not to stay"
    engine.run_unbounded(threefold, lake, until_caught_up=True)
    assert {table: outcome(lake, table) for table in THREEFOLD} == wanted


@pytest.mark.engines("spark")
@pytest.mark.feature("E1", "W11")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("points", "whole"),
    [
        (("micro_batch.after_main:2",), False),
        pytest.param((*FIRST, *SECOND), False, marks=pytest.mark.soak),
        pytest.param(("micro_batch.before_evaluate:2", "micro_batch.after_main:2"), True, marks=pytest.mark.soak),
    ],
    ids=["once", "at each point", "with Java"],
)
def test_a_stream_of_stages_is_killed_in_a_micro_batch(
    engine: Computing, embedded: Computing, tmp_path: Path, points: tuple[str, ...], *, whole: bool
) -> None:
    logs, lake = Lake(str(tmp_path / "logs")), Lake(str(tmp_path / "lake"), logs=str(tmp_path / "logs"))
    for commits in range(1, len(points) + 3):
        embedded.land(source(commits), logs, end=commits == len(points) + 2)
    alone = Lake(str(tmp_path / "alone"), logs=logs.root)
    embedded.run_bounded(staged, alone, Interval())
    wanted = {output.table: values(alone, output.table) for output in staged.outputs}
    assert all(wanted.values())
    for point in points:
        name, time = point.split(":")
        assert not die("staged", name, lake, engine, int(time), whole=whole), point
        for table, rows in wanted.items():
            assert values(lake, table) <= rows, f"{point}: a reader of {table} has seen what was not to stay"
    engine.run_unbounded(staged, lake, until_caught_up=True)
    assert {table: values(lake, table) for table in wanted} == wanted


def values(lake: Lake, table: str) -> Counter[tuple[object, ...]]:
    """The rows of an output without their stamps, if its table is there at all."""
    rows = changelog(lake, table).to_pylist() if DeltaTable.is_deltatable(lake.output(table)) else []
    return Counter(
        tuple(v for n, v in sorted(row.items()) if not n.startswith("_")) for row in rows if row["_kind"] == 0
    )


def in_three(rows: int) -> dict[str, Counter[tuple[object, ...]]]:
    """The outputs of ``threefold`` by hand, of rows that are on time: what comes behind its window's end is left out."""
    sums: dict[tuple[str, datetime], list[int]] = {}
    reached = -math.inf
    for i in range(rows):
        late = 60 if i % 11 == 5 else 20 if i % 5 == 3 else 0
        minute = i - late
        end = (minute // 10 + 1) * 10
        if end > reached:
            n_and_total = sums.setdefault(("abc"[i % 3], START + timedelta(minutes=end)), [0, 0])
            n_and_total[0] += 1
            n_and_total[1] += i
        reached = max(reached, minute - 5)
    panes = [(*where, n, total) for where, (n, total) in sums.items()]
    return {
        "threefold__all": Counter(panes),
        "threefold__odd": Counter(pane for pane in panes if pane[-1] % 2),
        "threefold__sums": Counter((key, end, total + n) for key, end, n, total in panes),
    }


def outcome(lake: Lake, table: str) -> Counter[tuple[object, ...]]:
    """The values of an output's rows, if its table is there at all."""
    names = ("key", "window_end", "n", "total")
    rows = changelog(lake, table).to_pylist() if DeltaTable.is_deltatable(lake.output(table)) else []
    return Counter(tuple(row[name] for name in names if name in row) for row in rows)


@pytest.mark.feature("E1", "W4")
@pytest.mark.timeout(1800)
def test_killed_around_the_record_of_the_clock_a_replay_still_says_the_same(
    engine: Computing, logs: Lake, tmp_path: Path
) -> None:
    points = crash.POINTS["tick"]
    lakes = {point: Lake(str(tmp_path / point), logs=logs.root) for point in points}
    for point, lake in lakes.items():
        assert not die("clocked", point, lake, engine, 2), point
    for point, lake in lakes.items():
        engine.run_unbounded(clocked, lake, until_caught_up=True, files_per_batch=1)
        stream = changelog(lake, "clocked")
        windows = set(stream["window_end"].to_pylist())
        assert sum_of(stream, "n") == 90, f"{point}: a row is lost or there twice"
        assert len(windows) > 1, "every micro-batch has a time of its own"
        replay = Lake(str(tmp_path / f"{point}-replay"), logs=logs.root)
        shutil.copytree(ticks.folder(clocked, lake), ticks.folder(clocked, replay))
        engine.run_bounded(clocked, replay, Interval())
        found = compare(changelog(replay, "clocked"), stream, names=("replay", point))
        assert found.differences == 0, (point, found.examples)


@pytest.mark.soak
@pytest.mark.spark
def test_no_two_drivers_of_one_java_give_a_function_the_same_name(spark: SparkSession) -> None:
    program = (
        "from borrowed import borrow; borrow()\n"
        "from pyspark import SparkContext; print(SparkContext._gateway.gateway_property.pool.put(object()))"
    )
    environment = {**os.environ, "PYTHONPATH": paths(), **lend(spark)}
    names = [spark.sparkContext._gateway.gateway_property.pool.put(object())]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, failure(done.stderr)
        names.append(done.stdout.split()[-1])
    assert len(set(names)) == len(names), names


def sum_of(table: pa.Table, column: str) -> int:
    return sum(table[column].to_pylist())
