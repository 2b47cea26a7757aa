"""Joins of the rows of a window by the engine: both engines and the kernel say the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fast_paths import case_on, stamped

import floodmark as fm
from floodmark.core.time import Interval, from_ms
from floodmark.engines.frames.fast import window_joins
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows
from floodmark.testing.log import Log

HOUR, BEGIN = 3_600_000, 1_356_998_400_000
DAY_ONE = Interval(start=BEGIN, end=BEGIN + 24 * HOUR)
KINDS = ("inner", "left", "right", "full", "semi", "anti")


class Offer(fm.Contract):
    """An offer."""

    at: fm.EventTime
    lot: str | None = None
    n: int | None = None
    price: float | None = None


class Bid(fm.Contract):
    """A bid."""

    when: fm.EventTime
    lot: str | None = None
    n: int | None = None
    price: float | None = None


def joined(kind: Any, window: Any, *keys: str, **settings: Any) -> Operator:
    """A join of offers with bids."""

    @fm.operator(name=f"joined_{kind}")
    def both(offers: fm.Stream[Offer], bids: fm.Stream[Bid]) -> fm.Stream:
        cheap = offers.filter("price IS NULL OR price < 5")
        return (
            cheap.key_by(*keys)
            .window_join(bids.key_by(*keys), window, kind=kind, prefix="bid_", **settings)
            .filter("true")
        )

    return both


def log_of(operator: Operator, number: int, seed: int) -> Log:
    """Rows of an input, out of order, some of them late, with values that are there twice."""
    drawn, log, reached = random.Random(seed * 2 + number), Log(operator.inputs[number].schema), 0
    time = ("at", "when")[number]
    for n in range(60):
        reached += drawn.randrange(0, 40 * 60_000)
        at = BEGIN + reached - drawn.choice([0, 0, drawn.randrange(180 * 60_000)])
        row = {
            time: from_ms(at),
            "lot": drawn.choice([None, "a", "b", "ä"]),
            "n": drawn.choice([None, 2**63 - 1, -(2**63), 0]),
            "price": drawn.choice([None, float("nan"), -0.0, 1.5, 9.0]),
        }
        log.row(row, at)
        if n % 10 == 9:
            log.move(BEGIN + reached - 60 * 60_000)
    log.end()
    return log


RUNS: list[tuple[str, Callable[[], Operator], Interval, LateRows]] = [
    *((kind, lambda kind=kind: joined(kind, fm.Tumbling("1 hour"), "lot"), Interval(), "as_landed") for kind in KINDS),
    ("sliding", lambda: joined("full", fm.Sliding("3 hours", "1 hour"), "lot", "n"), DAY_ONE, "as_landed"),
    ("calendar", lambda: joined("left", fm.Calendar("day"), "n"), DAY_ONE, "all"),
    ("lateness", lambda: joined("anti", fm.Tumbling("1 hour"), "lot", allowed_lateness="1 hour"), Interval(), "all"),
]


@pytest.mark.parametrize(
    ("case_of", "made", "interval", "late_rows"),
    [
        pytest.param(
            case_of,
            *run[1:],
            marks=[
                *([pytest.mark.spark] if case_of == "spark" else []),
                *(
                    []
                    if (run[0] in {"full", "anti"} and case_of == "embedded") or run[0] == "sliding"
                    else [pytest.mark.soak]
                ),
            ],
            id=f"{case_of}-{run[0]}",
        )
        for case_of in ("spark", "embedded")
        for run in RUNS
    ],
)
def test_pairs_of_windows_are_those_of_the_kernel(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    case_of: str,
    made: Callable[[], Operator],
    interval: Interval,
    late_rows: LateRows,
) -> None:
    operator = made()

    def run(folder: str) -> tuple[dict[str, Counter[str]], int]:
        case = case_on(case_of, request, operator, tmp_path / folder)
        for number, given in enumerate(operator.inputs):
            log = log_of(operator, number, 5)
            for start, stop in ((0, 31), (31, len(log.entries))):
                case.land(log, start, stop, name=given.name)
        result = case.run_bounded(interval, late_rows)
        return stamped(case.outputs()), result.dropped

    assert operator.stateful is not None
    assert window_joins.possible(operator, operator.stateful, interval, late_rows)
    found = run("sql")
    monkeypatch.setattr(window_joins, "possible", lambda *_: False)
    assert found == run("kernel")
    assert found[0][""]


@pytest.mark.parametrize(
    ("window", "settings"),
    [
        (fm.Session("1 hour"), {}),
        (fm.Tumbling("1 hour"), {"allowed_lateness": "1 hour"}),
        (fm.Tumbling("1 hour"), {"trigger": fm.AfterCount(2)}),
    ],
)
def test_other_joins_of_windows_are_left_to_the_kernel(window: Any, settings: dict[str, Any]) -> None:
    operator = joined("inner", window, "lot", **settings)
    assert operator.stateful is not None
    assert not window_joins.possible(operator, operator.stateful, Interval(), "as_landed")


def test_keys_without_one_text_are_left_to_the_kernel() -> None:
    operator = joined("inner", fm.Tumbling("1 hour"), "price")
    assert operator.stateful is not None
    assert not window_joins.possible(operator, operator.stateful, Interval(), "as_landed")
