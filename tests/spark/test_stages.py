"""Operators of several stages on Spark: link after link over an interval, one query as a stream."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from events import START, disorder
from pyspark.sql import SparkSession
from staged import BOTH, BUSIEST, FOLLOWED, JOINS, PEAKS, QUIET, REVISED, hours_over
from streams import check

from floodmark import Operator
from floodmark.compiler.paths import Copy, copies_of
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded as run_embedded
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.state.rescale import rescale
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.engines.transfer import transfer
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lifecycle.plan import reading
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final


@pytest.mark.feature("W11", "J6")
@pytest.mark.parametrize(
    "code",
    [PEAKS, *(pytest.param(code, marks=pytest.mark.soak) for code in (FOLLOWED, REVISED))],
    ids=lambda code: code.name,
)
def test_a_bounded_run_of_stages_gives_what_they_give_in_memory(
    spark: SparkSession, tmp_path: Path, code: Operator
) -> None:
    log, lake, part = disorder(code, 3, 200), Lake(str(tmp_path / "whole")), Lake(str(tmp_path / "part"))
    land(lake, code, log)
    land(part, code, log)
    run_bounded(spark, code, lake)
    whole = outputs(lake, code)
    expected = MemoryRun(code).batch({"events": log.table()})
    assert {name: final([table]) for name, table in whole.items()} == {
        name: final([table]) for name, table in expected.items()
    }
    start = to_ms(START) + 70 * 60_000
    run_bounded(spark, code, part, Interval(start=start, end=start + 60 * 60_000))
    names = code.outputs[0].schema.names
    inside = [row for row in whole[""].to_pylist() if 0 <= to_ms(row["_event_time"]) - start < 60 * 60_000]
    assert _values(outputs(part, code)[""].to_pylist(), names) == _values(inside, names)


def _values(rows: list[dict[str, object]], names: tuple[str, ...]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in rows)


# ---- as a stream


def _landed(lake: Lake, code: Operator, log: Log, first: int, last: int | None = None) -> None:
    land(lake, code, log, first, len(log.entries) if last is None else last)


@pytest.mark.feature("W11", "Q3")
@pytest.mark.parametrize(
    "code",
    [BOTH, *(pytest.param(code, marks=pytest.mark.soak) for code in (PEAKS, FOLLOWED, QUIET, REVISED))],
    ids=lambda code: code.name,
)
def test_a_stream_of_stages_goes_on_after_stops_and_goes_back_to_its_savepoint(
    spark: SparkSession, tmp_path: Path, code: Operator
) -> None:
    log, lake = disorder(code, 1, 200), Lake(str(tmp_path))
    _landed(lake, code, log, 0, 90)
    run_unbounded(spark, code, lake, until_caught_up=True)
    made, before = savepoints.create(code.name, lake), {n: final([t]) for n, t in outputs(lake, code).items()}
    _landed(lake, code, log, 90, 160)
    run_unbounded(spark, code, lake, until_caught_up=True)
    roll_back(lake, savepoints.find(lake, made.id))
    assert {n: final([t]) for n, t in outputs(lake, code).items()} == before
    _landed(lake, code, log, 160)
    result = run_unbounded(spark, code, lake, until_caught_up=True)
    check(lake, code, log)
    assert result.rows.keys() <= {output.table for output in code.outputs}


@pytest.mark.feature("J6")
def test_joins_of_several_kinds_in_one_stream_go_on_after_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = disorder(JOINS, 1, 60), Lake(str(tmp_path))
    for first, last in ((0, 40), (40, None)):
        _landed(lake, JOINS, log, first, last)
        run_unbounded(spark, JOINS, lake, until_caught_up=True)
    check(lake, JOINS, log)
    assert all(table.num_rows > 2 for table in outputs(lake, JOINS).values())


@pytest.mark.soak
@pytest.mark.feature("Z22")
@pytest.mark.parametrize(
    "code",
    [BUSIEST, PEAKS, FOLLOWED],
    ids=lambda code: code.name,
)
def test_a_stream_of_stages_goes_over_to_the_other_engine_and_back(
    spark: SparkSession, sail: Sail, tmp_path: Path, code: Operator
) -> None:
    log, lake = disorder(code, 2, 160), Lake(str(tmp_path))
    cuts = pairwise([0, 60, 110, len(log.entries)])
    for (first, last), engine in zip(cuts, ("spark", "embedded", "spark"), strict=True):
        _landed(lake, code, log, first, last)
        transfer(code, lake, "spark" if engine == "spark" else "embedded", lambda: spark)
        if engine == "spark":
            run_unbounded(spark, code, lake, until_caught_up=True)
        else:
            run_embedded(sail, code, lake, until_caught_up=True)
    check(lake, code, log)


@pytest.mark.soak
@pytest.mark.feature("K11")
@pytest.mark.parametrize("code", [PEAKS, BUSIEST, QUIET], ids=lambda code: code.name)
def test_a_stream_of_stages_has_other_numbers_of_state_partitions(
    spark: SparkSession, tmp_path: Path, code: Operator
) -> None:
    log, lake = disorder(code, 4, 200), Lake(str(tmp_path))
    cuts = pairwise([0, 70, 130, len(log.entries)])
    for (first, last), partitions in zip(cuts, (5, 3, 5), strict=True):
        _landed(lake, code, log, first, last)
        run_unbounded(spark, code, lake, until_caught_up=True)
        assert rescale(spark, lake, code.name, partitions) is not None
    run_unbounded(spark, code, lake, until_caught_up=True)
    check(lake, code, log)


@pytest.mark.soak
def test_a_changed_second_stage_goes_on_as_on_the_embedded_engine(
    spark: SparkSession, sail: Sail, tmp_path: Path
) -> None:
    before, after = hours_over("total >= 0"), hours_over("total < 0")
    log, rows = disorder(before, 5, 200), list[list[object]]()
    for name in ("spark", "embedded"):
        lake = Lake(str(tmp_path / name))
        for code, (first, last) in zip((before, after), ((0, 100), (100, None)), strict=True):
            if code is after:
                upgrade(after, lake, forward_only=True)
            _landed(lake, before, log, first, last)
            if name == "spark":
                run_unbounded(spark, code, lake, until_caught_up=True)
            else:
                run_embedded(sail, code, lake, until_caught_up=True)
        rows.append(list(final([outputs(lake, after)[""]])))
    assert rows[0] == rows[1]


def test_the_query_of_stages_is_a_tree() -> None:
    """A stage that two others read is in it twice, and reads the input twice."""
    assert copies_of(BUSIEST.canonical()) == (Copy(2, (Copy(0, ()), Copy(1, (Copy(0, ()),)))),)
    assert reading(BUSIEST.canonical()) == ("events",) * 2
    assert copies_of(BOTH.canonical()) == (Copy(1, (Copy(0, ()),)),)
    assert reading(BOTH.canonical()) == ("events",)
