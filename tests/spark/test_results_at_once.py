"""Bounded runs whose results are written as they come from kernels: the rows, last values and counts of runs that pass them on, on both engines."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from fast_paths import case_on, stamped
from nexmark import QUERIES, TABLES

import floodmark as fm
from floodmark import sql_operator
from floodmark.core.time import Interval, from_ms
from floodmark.engines.embedded.bounded import files, final, pool
from floodmark.engines.embedded.bounded import run as embedded_run
from floodmark.engines.frames.narrowing import without_unread_aggregates
from floodmark.engines.spark.bounded import run as spark_run
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.kernels.functions.first_rows import FirstRowsKernel
from floodmark.semantics.kernels.functions.growing import GrowingKernel
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION, ROW, Column, Schema
from floodmark.testing.log import Log

BEGIN, HOUR = 1_356_998_400_000, 3_600_000


class Bid(fm.Contract):
    """A bid."""

    at: fm.EventTime
    lot: str | None = None
    price: float | None = None
    large: int | None = None
    words: str | None = None


@fm.operator
def rolled(bids: fm.Stream[Bid]) -> fm.Stream:
    """Results of which the output has some, under other names."""
    rolling = bids.key_by("lot", "words").rolling(
        n=fm.count(), dear=fm.max_by("large", "price"), most=fm.max("price"), total=fm.sum("large")
    )
    return rolling.select(dearest="dear", words="words", lot="lot")


@fm.operator
def numbered(bids: fm.Stream[Bid]) -> fm.Stream:
    """First rows with their numbers."""
    return bids.key_by("lot").top(2, "price DESC", number="place")


@fm.operator
def patient(bids: fm.Stream[Bid]) -> fm.Stream:
    """Windows that come out again for late rows, and late rows beside them."""
    windows = bids.key_by("lot").window(
        fm.Tumbling("1 hour"), trigger=fm.AfterCount(3), allowed_lateness="30 minutes", late="side_output"
    )
    return windows.aggregate(n=fm.count(), last=fm.last("words"))


@fm.operator
def once(bids: fm.Stream[Bid]) -> fm.Stream:
    """Rows that no table of last values has."""
    return bids.key_by("lot", "words").deduplicate("2 hours")


STAGES = sql_operator(
    "stages",
    "SELECT words, MAX(n) AS most FROM (SELECT lot, words, COUNT(*) AS n FROM bids GROUP BY lot, words) AS q GROUP BY words EMIT CHANGES",
    inputs={"bids": Bid},
)
"""Aggregates of results that are taken back, in two stages."""


def log_of(seed: int) -> Log:
    """Rows out of order, some of them late."""
    drawn, log, reached = random.Random(seed), Log(rolled.inputs[0].schema), 0
    for n in range(200):
        reached += drawn.randrange(0, 6 * 60_000)
        at = BEGIN + reached - drawn.choice([0, 0, drawn.randrange(2 * HOUR)])
        row = {
            "at": from_ms(at),
            "lot": drawn.choice([None, "a", "b", "ä"]),
            "price": drawn.choice([None, float("nan"), -0.0, 0.0, 1.5, 9.0]),
            "large": drawn.choice([None, n]),
            "words": drawn.choice([None, "x", "y"]),
        }
        log.row(row, at)
        if n % 20 == 19:
            log.move(BEGIN + reached - HOUR)
    log.end()
    return log


RUNS: list[tuple[Operator, Interval]] = [
    (rolled, Interval()),
    (once, Interval(start=BEGIN + 2 * HOUR, end=BEGIN + 5 * HOUR)),
    (numbered, Interval()),
    (patient, Interval()),
    (once, Interval()),
    (STAGES, Interval()),
]
QUICK = {("spark", 0), ("embedded", 0), ("embedded", 1), ("embedded", 2), ("embedded", 3), ("embedded", 5)}
"""Engine and place of the runs that are no soak tests."""


def current_of(case: Any) -> Counter[str]:
    """The rows of the table of last values."""
    current = case.operator.outputs[0].current
    if current is None:
        return Counter()
    table = DeltaTable(case.lake.output(current.table)).to_pyarrow_table()
    return stamped({"": table})[""]


@pytest.mark.parametrize(
    ("case_of", "place"),
    [
        pytest.param(
            case_of,
            place,
            id=f"{case_of}-{operator.name}-{place}",
            marks=[
                *([pytest.mark.spark] if case_of == "spark" else []),
                *([] if (case_of, place) in QUICK else [pytest.mark.soak]),
            ],
        )
        for case_of in ("spark", "embedded")
        for place, (operator, _) in enumerate(RUNS)
    ],
)
def test_results_that_are_written_at_once_are_those_that_are_passed_on(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case_of: str, place: int
) -> None:
    operator, interval = RUNS[place]

    def run(folder: str) -> tuple[dict[str, Counter[str]], Counter[str], tuple[int, int]]:
        case = case_on(case_of, request, operator, tmp_path / folder)
        log = log_of(place)
        for start, stop in ((0, 90), (90, len(log.entries))):
            case.land(log, start, stop)
        result = case.run_bounded(interval)
        return stamped(case.outputs()), current_of(case), (result.late, result.dropped)

    found = run("at_once")
    monkeypatch.setattr(embedded_run, "final_of", lambda *_: None)
    monkeypatch.setattr(GrowingKernel, "whole", lambda *_: None)
    monkeypatch.setattr(FirstRowsKernel, "whole", lambda *_: None)
    monkeypatch.setattr(spark_run, "_is_computed_once", lambda _: False)
    monkeypatch.setattr(spark_run, "is_local", lambda _: False)
    for module in (embedded_run, spark_run):
        monkeypatch.setattr(module, "without_unread_aggregates", lambda operator: operator)
    assert found == run("passed_on")
    assert found[0][""]


def test_workers_write_the_results_of_many_rows_and_the_last_rows(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one process does, which makes one file of the small ones."""

    def run(folder: str) -> tuple[dict[str, Counter[str]], Counter[str], int]:
        case = case_on("embedded", request, numbered, tmp_path / folder)
        case.land(log_of(7))
        case.run_bounded()
        table = DeltaTable(case.lake.output("numbered"))
        return stamped(case.outputs()), current_of(case), len(table.file_uris())

    alone = run("alone")
    monkeypatch.setattr(pool, "AT_ONCE_IN_DRIVER", 10)
    monkeypatch.setattr(files, "_GATHERED", 0)
    several = run("several")
    assert several[:2] == alone[:2]
    assert alone[2] == 1 < several[2]
    monkeypatch.setattr(pool, "AT_ONCE_IN_DRIVER", 1_000)
    monkeypatch.setattr(files, "LastRows", lambda keys, _: final.LastRows(keys, 1))
    assert run("little_memory")[:2] == alone[:2]


def test_the_last_rows_are_found_bit_by_bit_and_given_up_where_they_do_not_fit() -> None:
    schema = Schema((Column(name="key", type="string"), Column(name="value", type="bigint")))
    whole = row_schema(schema)

    def rows(*values: tuple[str | None, int, int, int]) -> pa.Table:
        named = [dict(zip(("key", "value", "_sequence", "_kind"), row, strict=True)) for row in values]
        return pa.Table.from_pylist(named, schema=whole)

    first = rows(("a", 1, 1, ROW), ("a", 1, 2, RETRACTION), ("a", 2, 2, ROW), (None, 5, 3, ROW), ("b", 1, 4, ROW))
    second = rows(("a", 3, 9, ROW), ("a", 2, 9, RETRACTION), ("b", 1, 8, RETRACTION), ("c", 7, 7, ROW))
    for memory in (1 << 20, 1_000):
        last = final.LastRows(("key",), memory)
        assert last.rows() is None
        last.add(first)
        last.add(second)
        found = last.rows()
        assert found is not None
        assert sorted(map(str, zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))) == [
            "('a', 3)", "('c', 7)", "(None, 5)",
        ]  # fmt: skip
    last = final.LastRows(("key",), 100)
    last.add(first)
    assert last.rows() is None


def test_many_small_files_become_one_and_files_without_rows_none(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    for name, numbers in (("empty", []), ("0", [1]), ("1", [2, 3])):
        (tmp_path / "source").mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": numbers}, schema=schema), tmp_path / "source" / f"{name}.parquet")
    (tmp_path / "target").mkdir()
    files.gather(tmp_path / "source", tmp_path / "target")
    (only,) = (tmp_path / "target").iterdir()
    assert pq.ParquetFile(only).read()["a"].to_pylist() == [1, 2, 3]


def test_small_files_of_values_that_repeat_become_one_part_by_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such values are small in files alone."""
    monkeypatch.setattr(files, "_GATHERED", 1 << 16)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for number in range(4):
        table = pa.table({"a": ["word" * 100] * 200, "n": [number] * 200})
        pq.write_table(table, source / f"{number}.parquet")
    files.gather(source, target)
    (only,) = target.iterdir()
    with pq.ParquetFile(only) as parquet:
        assert parquet.num_row_groups == 4
        assert parquet.read()["n"].to_pylist() == [number for number in range(4) for _ in range(200)]


def test_aggregates_that_nothing_reads_are_left_out_where_they_cannot_fail() -> None:
    narrow = without_unread_aggregates(rolled)
    assert narrow.stateful is not None
    assert [name for name, _ in narrow.stateful.aggregates] == ["dear", "total"]  # a sum may not fit
    assert narrow.outputs[0].keys == rolled.outputs[0].keys == ("words", "lot")
    assert without_unread_aggregates(numbered) is numbered
    assert without_unread_aggregates(patient) is patient
    revised = STAGES.links[-1]
    assert without_unread_aggregates(revised) is revised


def test_results_of_a_stage_are_held_where_two_steps_read_them() -> None:
    """As those of q5, of which the greatest are found and then joined with all of them."""
    hottest = sql_operator("q5", QUERIES["q5"][0][0], inputs=TABLES)
    assert [spark_run._is_read_again(hottest, link) for link in hottest.links] == [True, False, False]
    assert not any(spark_run._is_read_again(STAGES, link) for link in STAGES.links)
