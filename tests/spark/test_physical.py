"""The engine's own plan of a bounded run: read no more than the operator needs, and computed by nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from events import Event, disorder
from pyspark.sql import SparkSession
from streams import ONCE, WATCHED, WINDOWED

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.engines.physical import plans
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import JoinKind
from floodmark.testing.lakes import land


class Wide(fm.Contract):
    """Two columns of three are read."""

    at: fm.EventTime
    key: str
    value: int
    unread: str


@fm.operator
def narrow(wide: fm.Stream[Wide]) -> fm.Stream:
    """A filter and two columns."""
    return wide.filter("key = 'a'").select("key", double="value * 2")


def _landed(code: Operator, folder: Path) -> Lake:
    lake = Lake(str(folder))
    land(lake, code, disorder(code, 3, 60))
    return lake


@pytest.mark.feature("B6")
def test_spark_reads_the_columns_and_rows_that_are_needed(spark: SparkSession, tmp_path: Path) -> None:
    (part,) = plans(spark, narrow, Lake(str(tmp_path)))
    assert (part.name, part.engine) == ("narrow", "Spark")
    assert "== Physical Plan ==" in part.text
    rows = [{"at": f"2020-01-01T00:00:{n:02d}", "key": "ab"[n % 2], "value": n, "unread": "x"} for n in range(20)]
    source = fm.Source("wide", contract=Wide, connector=fm.Rows(rows), watermark=fm.Ascending())
    from engines import embedded

    embedded().land(source, Lake(str(tmp_path)))
    (part,) = plans(spark, narrow, Lake(str(tmp_path)))
    read = part.text.partition("ReadSchema: ")[2]
    assert "value:bigint" in read
    assert read.split()[0].endswith(">"), "the schema is whole"
    assert "unread" not in read
    assert re.search(r"DataFilters: .*\(key#\d+ = a\)", part.text), "the condition reaches the scan"


@pytest.mark.parametrize("code", [WINDOWED, WATCHED, ONCE], ids=lambda code: code.name)
def test_spark_has_a_plan_of_each_output(spark: SparkSession, tmp_path: Path, code: Operator) -> None:
    parts = plans(spark, code, _landed(code, tmp_path))
    assert [part.name for part in parts] == [output.table for output in code.outputs]
    assert all("InArrow" in part.text for part in parts)


@pytest.mark.feature("J7")
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_small_side_of_an_interval_join_is_copied_to_all_workers(
    spark: SparkSession, tmp_path: Path, kind: JoinKind
) -> None:
    @fm.operator
    def paired(events: fm.Stream[Event]) -> fm.Stream:
        small = events.filter("value < 3").key_by("key")
        return events.key_by("key").interval_join(small, "-1 hour", "5 minutes", kind=kind, prefix="other_")

    (part,) = plans(spark, paired, _landed(paired, tmp_path))
    assert "BroadcastHashJoin" in part.text
    assert "InArrow" not in part.text


def test_nothing_is_computed_for_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    def fails(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        raise AssertionError(row)
        yield {}

    @fm.operator
    def failing(events: fm.Stream[Event]) -> fm.Stream:
        return events.flat_map(fails, Event).key_by("key").window(fm.Session("1 hour")).aggregate(n=fm.count())

    (part,) = plans(spark, failing, _landed(failing, tmp_path))
    assert "InArrow" in part.text


@pytest.mark.parametrize(("code", "kernel"), [(narrow, False), (WATCHED, True)], ids=["columns", "kernel"])
def test_sail_says_its_plan_and_where_a_kernel_follows(
    embedded: Computing, tmp_path: Path, code: Operator, kernel: bool
) -> None:
    lake = Lake(str(tmp_path)) if code is narrow else _landed(code, tmp_path)
    parts = embedded.with_session(lambda session: plans(session, code, lake))
    assert parts[0].engine == "Sail"
    assert "Exec" in parts[0].text
    assert [part.engine for part in parts[1:]] == (["kernel"] if kernel else [])
