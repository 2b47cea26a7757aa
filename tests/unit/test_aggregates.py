"""What an aggregate may be of, NaN as a key, and one sketch for rows and columns: in memory."""

from __future__ import annotations

import builtins
import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from floodmark import (
    AfterCount,
    AfterWatermark,
    Aggregate,
    Contract,
    EventTime,
    Session,
    Stream,
    Tumbling,
    approx_count_distinct,
    count,
    count_distinct,
    max,
    min,
    min_by,
    operator,
    stddev,
    sum,
)
from floodmark.core.errors import DefinitionError, ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.aggregates.grouping import group_ids
from floodmark.semantics.aggregates.numbers import normal
from floodmark.spec.graph.operator import Operator
from floodmark.testing import IN_MEMORY, Case
from floodmark.testing.log import Log

DAY = datetime(2024, 1, 1, tzinfo=UTC)


class Reading(Contract):
    """A number, or several."""

    at: EventTime
    key: float | None = None
    i: int = 0
    f: float = 0.0
    several: list[int] | None = None


class Longest(Aggregate):
    """Of arrays; nothing can be taken back."""

    type: ClassVar[str] = "int"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, value: Any) -> Any:
        return accumulator if accumulator > len(value) else len(value)

    def merge(self, left: Any, right: Any) -> Any:
        return left if left > right else right

    def result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.parametrize("aggregate", [count_distinct("several"), approx_count_distinct("several")], ids=str)
def test_different_arrays_are_not_counted_and_the_message_says_what_is(aggregate: Any) -> None:
    with pytest.raises(DefinitionError, match=r"DEFINITION-041 .*array<bigint>.*numbers, strings.*to_json\(several\)"):

        @operator
        def wrong(rows: Stream[Reading]) -> Stream[Any]:
            return rows.window(Tumbling("1 day")).aggregate(n=aggregate)


def test_a_row_is_not_chosen_by_an_array() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-041 .*'by' with an order.*'several' of type array<bigint>"):

        @operator
        def wrong(rows: Stream[Reading]) -> Stream[Any]:
            return rows.window(Tumbling("1 day")).aggregate(n=min_by("i", "several"))


def test_arrays_that_may_be_taken_back_need_a_retract_of_the_aggregate() -> None:
    @operator
    def revised(rows: Stream[Reading]) -> Stream[Any]:
        windows = rows.window(Tumbling("1 hour"), allowed_lateness="1 hour")
        return windows.aggregate(n=count()).with_columns(several="array(n)")

    with pytest.raises(DefinitionError, match=r"DEFINITION-130 .*column 'longest'.*Longest\.retract"):

        @operator(inputs={"revised": revised})
        def wrong(revised: Stream[Any]) -> Stream[Any]:
            return revised.window(Tumbling("1 day")).aggregate(longest=Longest("several"))


def _refiring(**settings: Any) -> Operator:
    @operator(name="refiring")
    def refiring(rows: Stream[Reading]) -> Stream[Any]:
        windows = rows.key_by("key").window(Tumbling("10 ms"), allowed_lateness="1 s", **settings)
        return windows.aggregate(n=count(), total=sum("i"), greatest=max("f"))

    return refiring


@pytest.mark.parametrize("cut", [(0, 4), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("key", [1.5, None, math.inf, math.nan])
@pytest.mark.parametrize(
    "settings", [{}, {"trigger": AfterWatermark().early(AfterCount(100))}], ids=["columns", "rows"]
)
def test_a_late_row_refires_the_window_of_its_key_whatever_the_key(
    settings: dict[str, Any], key: float | None, cut: tuple[int, ...]
) -> None:
    op = _refiring(**settings)
    log = Log(op.inputs[0].schema)
    log.row({"at": from_ms(1), "key": key, "i": 1, "f": math.nan, "several": None}, 1)
    log.move(20)
    log.row({"at": from_ms(2), "key": key, "i": 5, "f": 1.0, "several": None}, 2)
    log.end()
    run, out = MemoryRun(op), []
    for start, stop in itertools.pairwise(cut):
        rows = run.batch({"rows": log.table(start, stop)})[""].to_pylist()
        out += [(r["_kind"], r["n"], r["total"], str(r["greatest"])) for r in rows if r["_kind"] <= 0]
    assert out == [(0, 1, 1, "nan"), (-1, 1, 1, "nan"), (0, 2, 6, "nan")]


_NANS = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], dtype=np.uint64).view(np.float64)


@pytest.mark.parametrize("settings", [{}, {"order": "arrival"}], ids=["columns", "rows"])
def test_nan_of_any_bits_is_one_key(settings: dict[str, Any]) -> None:
    op = _refiring(**settings)
    log = Log(op.inputs[0].schema)
    for time in range(3):
        log.row({"at": from_ms(time), "key": 0.0, "i": 1, "f": 0.0, "several": None}, time)
    log.end()
    table = log.table()
    keys = pa.concat_arrays([pa.array(_NANS), pa.nulls(table.num_rows - 3, pa.float64())])
    out = MemoryRun(op).batch({"rows": table.set_column(table.column_names.index("key"), "key", keys)})[""].to_pylist()
    assert [(r["n"], r["total"]) for r in out if r["_kind"] == 0] == [(3, 3)]


def test_nan_of_any_bits_is_one_value_and_so_is_zero() -> None:
    column = pa.chunked_array([pa.concat_arrays([pa.array(_NANS), pa.array([-0.0, 0.0])])])
    assert group_ids(pa.table({"k": column}), ["k"])[0].tolist() == [0, 0, 0, 1, 1]
    assert str(normal(column).to_pylist()) == "[nan, nan, nan, 0.0, 0.0]"


@pytest.mark.parametrize("run", IN_MEMORY, ids=str)
def test_a_key_whose_sum_fits_does_not_stop_on_those_of_other_keys(run: Any) -> None:
    @operator
    def totals(rows: Stream[Reading]) -> Stream[Any]:
        return rows.key_by("key").window(Tumbling("1 day")).aggregate(total=sum("i"))

    rows = [{"at": DAY, "key": float(n), "i": 2**60} for n in range(40)]
    assert [row["total"] for row in run(totals, {"rows": rows})[""]] == [2**60] * 40
    rows = [{"at": DAY, "key": key, "i": value} for key, value in ((1.0, 2**61), (2.0, -(2**61))) for _ in range(8)]
    with pytest.raises(ExecutionError, match=r"EXECUTION-001 sum 'total' of 'i' of key key=[12]\.0"):
        run(totals, {"rows": rows})


@pytest.mark.parametrize("run", IN_MEMORY, ids=str)
def test_columns_and_rows_order_nan_and_measure_close_values_alike(run: Any) -> None:
    @operator
    def by_column(rows: Stream[Reading]) -> Stream[Any]:
        return rows.key_by("key").window(Tumbling("1 day")).aggregate(a=max("f"), b=min("f"), c=stddev("f"))

    @operator
    def by_row(rows: Stream[Reading]) -> Stream[Any]:
        return rows.key_by("key").window(Session("1 hour")).aggregate(a=max("f"), b=min("f"), c=stddev("f"))

    values = [(1.0, 1e9 + 0.1), (1.0, 1e9 + 0.2), (1.0, 1e9 + 0.3), (2.0, math.nan), (2.0, 1.0), (2.0, -0.0)]
    rows = [{"at": DAY + timedelta(seconds=n), "key": k, "f": v} for n, (k, v) in enumerate(values)]
    for op in (by_column, by_row):
        close, odd = ([row["a"], row["b"], row["c"]] for row in run(op, {"rows": rows})[""])
        assert close == [1e9 + 0.3, 1e9 + 0.1, pytest.approx(0.09999996423721906, rel=1e-9)]
        assert str(odd) == "[nan, 0.0, nan]"


def test_different_values_are_counted_alike_by_row_and_in_columns_in_a_bounded_state() -> None:
    @operator
    def by_column(rows: Stream[Reading]) -> Stream[Any]:
        return rows.window(Tumbling("1 day")).aggregate(n=approx_count_distinct("i"), m=approx_count_distinct("f"))

    @operator
    def by_row(rows: Stream[Reading]) -> Stream[Any]:
        windows = rows.window(Tumbling("1 day"), order="arrival")
        return windows.aggregate(n=approx_count_distinct("i"), m=approx_count_distinct("f"))

    answers = []
    for op in (by_column, by_row):
        case = Case(op)
        case.feed("rows", [{"at": DAY, "i": n, "f": n / 7} for n in range(30_000)])
        held = [len(chunk) for store in case.run.state.stores.values() for chunk in store.chunks.values()]
        assert builtins.sum(held) < 300_000
        case.end()
        answers.append([(row["n"], row["m"]) for row in case.results()])
    assert answers[0] == answers[1]
    assert all(abs(n - 30_000) < 0.06 * 30_000 for n in answers[0][0])
