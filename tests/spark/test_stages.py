"""Operators of several stages on Spark, bounded: link after link."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import START, disorder
from pyspark.sql import SparkSession
from staged import FOLLOWED, PEAKS, REVISED

from floodmark import Operator
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land, outputs
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
