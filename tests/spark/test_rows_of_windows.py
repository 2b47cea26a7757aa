"""Values of one row of each window, found by SQL: both engines and the kernel say the same, in order of arrival where several rows could be the one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fast_paths import case_on, stamped
from pydantic import Field

import floodmark as fm
from floodmark.core.time import Interval, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.frames.fast import windows
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows
from floodmark.testing.log import Log

HOUR = 3_600_000
BEGIN = 1_356_998_400_000
"""2013-01-01T00:00:00Z."""


class Bid(fm.Contract):
    """A bid."""

    at: fm.EventTime
    lot: str | None = None
    price: float | None = None
    exact: Decimal | None = Field(None, max_digits=38, decimal_places=2)
    words: str | None = None
    large: int | None = None
    day: date | None = None
    sold: bool | None = None
    seal: bytes | None = None


VALUES = ("price", "exact", "words", "large", "day", "sold", "at")


def _all(of: Callable[[str], Any]) -> dict[str, Any]:
    return {f"the_{name}": of(name) for name in VALUES}


@fm.operator
def dearest(bids: fm.Stream[Bid]) -> fm.Stream:
    """The dearest bid of each hour; NaN is the dearest, and the first to arrive of several."""
    return (
        bids.key_by("lot")
        .window(fm.Tumbling("1 hour"), late="side_output")
        .aggregate(**_all(lambda name: fm.max_by(name, "price")))
    )


@fm.operator
def least_word(bids: fm.Stream[Bid]) -> fm.Stream:
    """Windows that overlap."""
    return (
        bids.key_by("lot", "sold")
        .window(fm.Sliding("2 hours", "1 hour"))
        .aggregate(**_all(lambda name: fm.min_by(name, "words")))
    )


@fm.operator
def least_exact(bids: fm.Stream[Bid]) -> fm.Stream:
    """Over all of time, of all keys at once."""
    return bids.window(fm.Global()).aggregate(**_all(lambda name: fm.min_by(name, "exact")))


@fm.operator
def firsts(bids: fm.Stream[Bid]) -> fm.Stream:
    """What arrived first, null where it is null there."""
    return bids.key_by("lot").window(fm.Tumbling("1 hour")).aggregate(**_all(fm.first))


@fm.operator
def lasts(bids: fm.Stream[Bid]) -> fm.Stream:
    """What arrived last, of each day."""
    return bids.key_by("lot").window(fm.Calendar("day")).aggregate(**_all(fm.last))


@fm.operator
def computed(bids: fm.Stream[Bid]) -> fm.Stream:
    """By what is computed, of rows that are there twice."""
    both = bids.filter("large > 0").union(bids.filter("large % 2 = 0"))
    return (
        both.key_by("lot")
        .window(fm.Tumbling("1 hour"))
        .aggregate(most=fm.max_by("words || 'x'", "large % 7"), same=fm.max_by("large", "large % 7"))
    )


@fm.operator
def sealed(bids: fm.Stream[Bid]) -> fm.Stream:
    """By bytes, without keys."""
    return bids.window(fm.Cumulative("6 hours", "2 hours")).aggregate(
        large=fm.max_by("large", "seal"), n=fm.count(), at=fm.min_by("at", "seal")
    )


@fm.operator
def unequal(bids: fm.Stream[Bid]) -> fm.Stream:
    """Unions within unions, of which one has more behind it."""
    twice = bids.union(bids.filter("large IS NOT NULL"))
    return (
        twice.union(bids.filter("sold"))
        .key_by("lot")
        .window(fm.Tumbling("1 hour"))
        .aggregate(first=fm.first("words"), last=fm.last("words"), n=fm.count())
    )


@fm.operator
def candles(bids: fm.Stream[Bid]) -> fm.Stream:
    """Values of several rows, beside aggregates of all."""
    return (
        bids.key_by("lot")
        .window(fm.Sliding("2 hours", "1 hour"))
        .aggregate(
            opens=fm.first("price"),
            closes=fm.last("price"),
            high=fm.max("price"),
            low=fm.min("price"),
            volume=fm.sum("large % 1000"),
            n=fm.count(),
            kinds=fm.count_distinct("words"),
            word_of_the_dearest=fm.max_by("words", "price"),
            sold_first=fm.min_by("sold", "exact"),
            day_of_the_least=fm.min_by("day", "price"),
            exact_last=fm.last("exact"),
        )
    )


def bids(seed: int) -> Log:
    """Rows out of order, some of them late, with few different values, so that many are the greatest."""
    drawn, log = random.Random(seed), Log(dearest.inputs[0].schema)
    reached = 0
    for number in range(240):
        reached += drawn.randrange(0, 6 * 60_000)
        at = BEGIN + reached - drawn.choice([0, 0, drawn.randrange(90 * 60_000)])
        log.row(
            {
                "at": from_ms(at),
                "lot": drawn.choice([None, "a", "b"]),
                "price": drawn.choice([None, 0.0, -0.0, 1.5, float("nan"), -float("nan"), float("inf"), -2.0]),
                "exact": drawn.choice([None, Decimal("99999999999999999999999999999999999.25"), Decimal("-0.01")]),
                "words": drawn.choice([None, "", "z", "Ä", "\U0001f600", "\uffee"]),
                "large": drawn.choice([None, 2**63 - 1, -(2**63), number]),
                "day": drawn.choice([None, date(1, 1, 1), date(9999, 12, 31)]),
                "sold": drawn.choice([None, True, False]),
                "seal": drawn.choice([None, b"", b"\x00", b"\xff\x00"]),
            },
            at,
        )
        if number % 20 == 19:
            log.move(BEGIN + reached - 60 * 60_000)
    log.end()
    return log


DAY_ONE = Interval(start=BEGIN, end=BEGIN + 24 * HOUR)


RUNS: list[tuple[Operator, Interval, LateRows]] = [
    (dearest, Interval(), "as_landed"),
    (dearest, DAY_ONE, "all"),
    (least_word, Interval(), "as_landed"),
    (least_exact, Interval(), "all"),
    (firsts, DAY_ONE, "as_landed"),
    (lasts, DAY_ONE, "as_landed"),
    (computed, Interval(), "as_landed"),
    (candles, Interval(), "as_landed"),
    (candles, DAY_ONE, "all"),
    (sealed, Interval(), "as_landed"),
    (unequal, Interval(), "as_landed"),
]


@pytest.mark.parametrize(
    ("case_of", "operator", "interval", "late_rows"),
    [
        pytest.param(
            case_of,
            *run,
            marks=[
                *([pytest.mark.spark] if case_of == "spark" else []),
                *(
                    []
                    if run in (RUNS[0], RUNS[7]) or (case_of == "embedded" and run in (RUNS[9], RUNS[10]))
                    else [pytest.mark.soak]
                ),
            ],
            id=f"{case_of}-{run[0].name}-{run[2]}",
        )
        for case_of in ("spark", "embedded")
        for run in RUNS
    ],
)
def test_a_row_that_sql_finds_is_that_of_the_kernel(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    case_of: str,
    operator: Operator,
    interval: Interval,
    late_rows: LateRows,
) -> None:
    def run(folder: str, *, bounded: bool = True) -> dict[str, Counter[str]]:
        case = case_on(case_of, request, operator, tmp_path / folder)
        log = bids(len(operator.name))
        for start, stop in ((0, 100), (100, 101), (101, len(log.entries))):
            case.land(log, start, stop)
        if bounded:
            case.run_bounded(interval, late_rows)
        else:
            case.run_unbounded(files_per_batch=1)
        return stamped(case.outputs())

    assert windows.possible(operator, interval, late_rows)
    found = run("sql")
    if operator is unequal:
        assert found == run("stream", bounded=False)
    monkeypatch.setattr(windows, "possible", lambda *_: False)  # as of before
    assert found == run("kernel")
    assert found[""]


@pytest.mark.parametrize(
    "refused",
    [
        {"a": fm.max_by("large", "price"), "n": fm.median("large")},
        {"a": fm.collect("large")},
        {"a": fm.first("array(large)")},
    ],
)
def test_aggregates_of_several_rows_in_order_are_left_to_the_kernel(refused: dict[str, Any]) -> None:
    @fm.operator
    def several(bids: fm.Stream[Bid]) -> fm.Stream:
        return bids.key_by("lot").window(fm.Tumbling("1 hour")).aggregate(**refused)

    assert not windows.possible(several, Interval(), "as_landed")


def test_rows_of_several_inputs_come_in_the_order_of_time() -> None:
    @fm.operator
    def several(bids: fm.Stream[Bid], others: fm.Stream[Bid]) -> fm.Stream:
        return bids.union(others).key_by("lot").window(fm.Tumbling("1 hour")).aggregate(a=fm.last("large"))

    assert not windows.possible(several, Interval(), "as_landed")
    assert MemoryRun(dearest).batch({"bids": bids(1).table()})[""].num_rows
