"""Results over rows: late rows, odd values, what is kept in state and what is written of it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field
from sql_tables import TABLES

import floodmark as fm
from floodmark import Contract, EventTime, Operator, Stream, operator, sql_operator
from floodmark.core.errors import DefinitionError, ExecutionError, FloodmarkError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.semantics.kernels.regrouping import join, pieces
from floodmark.semantics.kernels.stage import stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.rows.contract import schema
from floodmark.testing.log import Log
from floodmark.testing.runs import final

START = datetime(2020, 1, 1, tzinfo=UTC)
MINUTE = 60_000


class Reading(Contract):
    """A number of a sensor."""

    at: EventTime
    sensor: str | None = None
    value: float | None = None
    amount: Annotated[Decimal, Field(max_digits=38, decimal_places=2)] | None = None
    number: int = 0


@operator
def smoothed(readings: Stream[Reading]) -> Stream:
    """The mean of three rows."""
    return readings.key_by("sensor").over(rows=2, n=fm.count(), total=fm.sum("number"))


@operator
def minutes(readings: Stream[Reading]) -> Stream:
    """The sum of ten minutes."""
    return readings.key_by("sensor").over(within="10 minutes", late="side_output", n=fm.count(), total=fm.sum("number"))


def log_of(rows: list[tuple[int, dict[str, Any]]], bound: int = 0) -> Log:
    """A log of (minute, columns)."""
    log = Log(schema(Reading))
    log.rows([{"at": START + timedelta(minutes=m), **values} for m, values in rows], "at", bound)
    return log


def answers(of: Operator, rows: list[tuple[int, dict[str, Any]]], bound: int = 0) -> list[dict[str, Any]]:
    """The rows of the result at the end of input."""
    log = log_of(rows, bound)
    log.end()
    return final([MemoryRun(of).batch({"readings": log.table()})[""]])


@pytest.mark.feature("L6", "L7")
def test_a_late_row_is_in_no_result_and_goes_to_the_late_output_or_is_counted() -> None:
    rows = [(0, {"sensor": "a", "number": 1}), (20, {"sensor": "a", "number": 2}), (5, {"sensor": "a", "number": 4})]
    log = log_of([*rows, (21, {"sensor": "a", "number": 8})])
    log.end()
    run = MemoryRun(minutes)
    tables = run.batch({"readings": log.table()})
    assert [(row["number"], row["n"], row["total"]) for row in final([tables[""]])] == [
        (1, 1, 1),
        (2, 1, 2),
        (8, 2, 10),
    ]
    assert [row["number"] for row in final([tables["late"]])] == [4]
    run = MemoryRun(smoothed)
    assert [row["total"] for row in final([run.batch({"readings": log.table()})[""]])] == [1, 3, 11]
    assert run.state.dropped == 1


def test_rows_that_came_in_another_order_count_by_their_event_time() -> None:
    rows = [(3, {"number": 1}), (1, {"number": 2}), (2, {"number": 4}), (9, {"number": 8})]
    assert [row["total"] for row in answers(smoothed, rows, bound=5 * MINUTE)] == [2, 6, 7, 13]


def test_nan_is_the_greatest_nulls_are_passed_over_and_decimals_are_exact() -> None:
    @operator
    def odd(readings: Stream[Reading]) -> Stream:
        measures: dict[str, Any] = {"low": fm.min("value"), "high": fm.max("value"), "total": fm.sum("amount")}
        return readings.key_by("sensor").over(rows=1, **measures, before=fm.lag("value"))

    values = [math.nan, None, -0.0, math.inf, 1.5]
    amounts = [Decimal("0.10"), Decimal("0.20"), None, Decimal("99999999999999999.99"), Decimal("0.01")]
    pairs = enumerate(zip(values, amounts, strict=True))
    rows = answers(odd, [(m, {"sensor": None, "value": v, "amount": a}) for m, (v, a) in pairs])
    assert [str(row["low"]) for row in rows] == ["nan", "nan", "0.0", "0.0", "1.5"]
    assert [str(row["high"]) for row in rows] == ["nan", "nan", "0.0", "inf", "inf"]
    assert [str(row["before"]) for row in rows] == ["None", "nan", "None", "-0.0", "inf"]
    totals = [row["total"] for row in rows]
    assert totals[:3] == [Decimal("0.10"), Decimal("0.30"), Decimal("0.20")]
    assert totals[4] == Decimal("100000000000000000.00")


def test_a_sum_that_bigint_does_not_hold_stops_the_run_and_one_that_it_holds_again_does_not() -> None:
    most = (1 << 63) - 1
    with pytest.raises(ExecutionError, match="EXECUTION-001"):
        answers(smoothed, [(0, {"number": most}), (1, {"number": 1})])
    assert answers(smoothed, [(0, {"number": most}), (1, {"number": -1})])[1]["total"] == most - 1


class Spread(fm.Aggregate):
    """The greatest value less the least one."""

    type = "double"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        return [min(accumulator[0], value), max(accumulator[1], value)] if accumulator else [value, value]

    def merge(self, left: Any, right: Any) -> Any:
        left[0], left[1] = min(left[0], right[0]), max(left[1], right[1])
        return left

    def result(self, accumulator: Any) -> Any:
        return accumulator[1] - accumulator[0] if accumulator else None


def test_an_aggregate_of_ones_own_goes_over_rows() -> None:
    @operator
    def spread(readings: Stream[Reading]) -> Stream:
        return readings.over(rows=2, spread=Spread("value"))

    values = [1.0, 4.0, None, 2.0, 2.0, 9.0, 3.0]
    rows = answers(spread, [(m, {"value": v}) for m, v in enumerate(values)])
    expected = []
    for end in range(1, len(values) + 1):
        some = [v for v in values[max(0, end - 3) : end] if v is not None]
        expected.append(max(some) - min(some))
    assert [row["spread"] for row in rows] == expected


class Counted(MemoryStore):
    """A store that counts what is written to it."""

    __slots__ = ("written",)

    def put(self, number: int, chunk: bytes) -> None:
        self.written += len(chunk)
        super().put(number, chunk)


def test_a_micro_batch_writes_the_newest_rows_of_a_key_and_not_its_frame() -> None:
    @operator
    def hour(readings: Stream[Reading]) -> Stream:
        return readings.over(rows=5_000, total=fm.sum("number"))

    run, store = MemoryRun(hour), Counted()
    store.written = 0
    group = next(iter(_group_of(hour)))
    run.state.stores[group] = store
    log = log_of([(m, {"number": m}) for m in range(7_000)])
    run.batch({"readings": log.table()})
    whole, store.written = store.written, 0
    more = log_of([(m, {"number": m}) for m in range(7_003)])
    for start in (7_000, 7_001):
        run.batch({"readings": more.table(start, start + 1)})
    assert store.written < whole / 4
    last = run.batch({"readings": more.table(7_002)})[""].to_pylist()[0]
    assert last["total"] == sum(range(2_000, 7_001))


def _group_of(of: Operator) -> set[int]:
    """The key groups that have rows."""
    run = MemoryRun(of)
    run.batch({"readings": log_of([(0, {"number": 1}), (1, {"number": 1})]).table()})
    return set(run.state.stores)


def test_a_key_is_freed_a_frame_after_its_last_row() -> None:
    run = MemoryRun(minutes)
    log = log_of(
        [
            (0, {"sensor": "a", "number": 1}),
            (1, {"sensor": "b", "number": 1}),
            (30, {"sensor": "c"}),
            (31, {"sensor": "c"}),
        ]
    )
    for position in range(len(log.entries)):
        run.batch({"readings": log.table(position, position + 1)})
    kept = [store for store in run.state.stores.values() if store.chunks]
    assert len(kept) == 1
    run.batch({"readings": _ended(log)})
    assert not any(store.chunks for store in run.state.stores.values())


def _ended(log: Log) -> Any:
    log.end()
    return log.table(len(log.entries) - 1)


def test_state_divided_among_other_key_groups_goes_on_as_before() -> None:
    @operator
    def held(readings: Stream[Reading]) -> Stream:
        return readings.key_by("sensor").over(rows=700, total=fm.sum("number"), n=fm.count())

    rows = [(m, {"sensor": f"s{m % 2}", "number": m}) for m in range(1_500)]
    run, log = MemoryRun(held), log_of(rows)
    first = run.batch({"readings": log.table(0, 1_400)})[""]
    stage = stage_of(held)
    assert stage is not None
    for group, store in list(run.state.stores.items()):
        moved = MemoryStore()
        parts = [piece.part(np.ones(piece.keys.num_rows, dtype=bool)) for piece in pieces(stage, store)]
        join(stage, moved, parts)
        run.state.stores[group] = moved
    log.end()
    second = run.batch({"readings": log.table(1_400)})[""]
    assert final([first, second]) == answers(held, rows)


def test_other_results_or_frames_are_computed_anew() -> None:
    def with_rows(rows: int) -> Operator:
        def smoothed(readings: Stream[Reading]) -> Stream:
            return readings.key_by("sensor").over(rows=rows, n=fm.count())

        return operator(smoothed)

    before = with_rows(2)
    deployed = Deployed(version=before.version, graph=before.canonical(), tables={}, fingerprint=before.fingerprint)
    changed = plan(deployed, with_rows(3))
    assert changed.verdict == "rebuild"
    assert "n=count() of 3 rows before" in changed.changes[0].after


REFUSED = {
    "SELECT LEAD(delay) OVER (PARTITION BY origin ORDER BY scheduled) AS s FROM flights": "LEAD of results that do not change. A row would wait",
    "SELECT SUM(delay) OVER (PARTITION BY origin ORDER BY scheduled DESC) AS s FROM flights": "ORDER BY scheduled",
    "SELECT SUM(delay) OVER (PARTITION BY origin) AS s FROM flights": "OVER without ORDER BY one column",
    "SELECT SUM(delay) OVER (ORDER BY scheduled, flight) AS s FROM flights": "OVER without ORDER BY one column",
    "SELECT SUM(delay) OVER (ORDER BY delay) AS s FROM flights": "another order than that of event time",
    "SELECT SUM(delay) OVER (ORDER BY scheduled ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM flights": "a frame that does not end with the row, of results that do not change.*EMIT CHANGES",
    "SELECT SUM(delay) OVER (ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 3 PRECEDING) AS s FROM flights EMIT CHANGES": "ends before it begins",
    "SELECT SUM(delay) OVER (ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM flights EMIT CHANGES": "without the row",
    "SELECT COUNT(*) OVER (ORDER BY delay RANGE BETWEEN 1 PRECEDING AND INTERVAL '1' HOUR FOLLOWING) AS s FROM flights EMIT CHANGES": "a number and a length of time",
    "SELECT NTH_VALUE(delay, 2) OVER (ORDER BY scheduled) AS s FROM flights": "NTH_VALUE of results that do not change",
    "SELECT NTH_VALUE(delay, 0) OVER (ORDER BY flight) AS s FROM flights EMIT CHANGES": "a whole one from 1",
    "SELECT FIRST_VALUE(delay) IGNORE NULLS OVER (ORDER BY scheduled) AS s FROM flights": "IGNORE NULLS. .*MAX_BY",
    "SELECT SUM(delay) OVER (ORDER BY scheduled ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS s FROM flights": "a frame that does not end with the row",
    "SELECT SUM(delay) OVER (ORDER BY scheduled ROWS delay PRECEDING) AS s FROM flights": "DEFINITION-38",
    "SELECT SUM(delay) OVER (ORDER BY scheduled RANGE 5 PRECEDING) AS s FROM flights": "DEFINITION-386 .*a duration",
    "SELECT NTILE(4) OVER (ORDER BY scheduled) AS s FROM flights": "NTILE.n. of results that do not change.* say so, at the end: EMIT CHANGES",
    "SELECT SUM(fooo) OVER (ORDER BY scheduled) AS s FROM flights": "DEFINITION-022 .*fooo",
    "SELECT flight FROM flights WHERE SUM(delay) OVER (ORDER BY scheduled) > 3": "OVER. Write it as a column of SELECT",
    "SELECT SUM(delay) OVER (PARTITION BY origin ORDER BY scheduled) AS s FROM SESSION(flights, scheduled, '1 hour')": "OVER the rows of windows",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_said_over_rows_is_refused_with_what_can(sql: str) -> None:
    with pytest.raises(FloodmarkError) as refused:
        sql_operator("x", sql, inputs=TABLES)
    assert re.search(REFUSED[sql], str(refused.value)), str(refused.value)


@pytest.mark.parametrize(
    "frame",
    [
        {"rows": -1},
        {"rows": "some"},
        {"rows": True},
        {"rows": 1, "within": "1 hour"},
        {"within": "-1 hour"},
        {"late": "no"},
    ],
    ids=str,
)
def test_a_frame_that_is_none_is_refused(frame: dict[str, Any]) -> None:
    def framed(readings: Stream[Reading]) -> Stream:
        return readings.over(**frame, n=fm.count())

    with pytest.raises(DefinitionError, match="DEFINITION-055"):
        operator(framed)


@pytest.mark.parametrize(
    ("measures", "code"),
    [({}, "056"), ({"value": fm.count()}, "050"), ({"b": fm.lag("value", 1, "'x'")}, "041")],
    ids=str,
)
def test_measures_need_a_name_of_their_own_and_a_fitting_default(measures: Any, code: str) -> None:
    def measured(readings: Stream[Reading]) -> Stream:
        return readings.over(**measures)

    with pytest.raises(DefinitionError, match=f"DEFINITION-{code}"):
        operator(measured)
