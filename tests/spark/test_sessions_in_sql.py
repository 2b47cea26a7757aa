"""Sessions of bounded runs in SQL: both engines and the kernel say the same, and what SQL may say otherwise is left to the kernel."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fast_paths import case_on, stamped

import floodmark as fm
from floodmark.core.time import END, Interval, from_ms
from floodmark.engines.frames.fast import sessions
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER
from floodmark.testing.log import Log

GAP, BEGIN = 60_000, 1_356_998_400_000


class Bid(fm.Contract):
    """A bid."""

    at: fm.EventTime
    lot: str | None = None
    n: int | None = None
    price: float | None = None


def summed(*keys: str, window: Any = None) -> Operator:
    """Sessions of bids."""

    @fm.operator(name="summed")
    def summed(bids: fm.Stream[Bid]) -> fm.Stream:
        dear = bids.filter("price IS NULL OR price < 5")
        keyed = dear.key_by(*keys) if keys else dear
        return keyed.window(window or fm.Session("1 minute")).aggregate(
            bids=fm.count(), most=fm.max("n"), least=fm.min("price"), sum=fm.sum("n % 1000")
        )

    return summed


def log_of(
    operator: Operator, seed: int, *, late_by: int, ordered: bool, latest: int = 0, last: int = 0, slack: int = 0
) -> Log:
    """Rows with the watermark so far behind them, ms, and more by some slack; many of them exactly a gap apart, some out of order, and some too late."""
    drawn, log, reached = random.Random(seed), Log(operator.inputs[0].schema), 0
    for n in range(120):
        reached += drawn.choice([0, 1, GAP // 8, GAP // 4, GAP - 1, GAP, GAP + 1, 3 * GAP])
        behind = 0 if ordered else drawn.choice([0, 0, 1, GAP // 2, late_by // 2, late_by, latest])
        at = BEGIN + reached - behind
        row = {
            "at": from_ms(at),
            "lot": drawn.choice([None, "a", "b", "ä"]),
            "n": drawn.choice([None, 7, -(2**63), 1999]),
            "price": drawn.choice([None, float("nan"), -0.0, 1.5, 9.0]),
        }
        log.row(row, at)
        if n % 3 == 2 or ordered:
            log.move(BEGIN + reached - late_by - slack - 1)
    if last:
        log.row({"at": from_ms(last), "lot": "a", "n": 1, "price": 1.5}, last)
    log.end()
    return log


LOGS: dict[str, tuple[dict[str, Any], bool]] = {
    "in order, the watermark at each row": ({"late_by": 0, "ordered": True}, False),
    "out of order, and never late": ({"late_by": 5 * GAP, "ordered": False}, False),
    "out of order, far from late": ({"late_by": 5 * GAP, "ordered": False, "slack": 1}, False),
    "out of order, and late": ({"late_by": GAP, "ordered": False, "latest": 4 * GAP}, True),
    "at the end of time": ({"late_by": 0, "ordered": True, "last": END - GAP}, True),
}
"""Rows -> how they are drawn, and whether they are left to the kernel."""


KEYS: tuple[tuple[str, ...], ...] = (("lot",), ("lot", "n"), ())


def cases() -> Iterator[Any]:
    """Engine, keys, rows: all of them on the embedded engine, and each rows with some keys on Spark."""
    for keys, (number, drawn) in product(KEYS, enumerate(LOGS)):
        marks = [] if keys == KEYS[number % len(KEYS)] else [pytest.mark.soak]
        for engine, own in (("embedded", []), ("spark", [pytest.mark.spark, *marks])):
            yield pytest.param(engine, keys, drawn, marks=own, id=f"{engine}-{', '.join(keys)}-{drawn}")


@pytest.mark.parametrize(("case_of", "keys", "drawn"), [*cases()])
def test_sessions_are_those_of_the_kernel(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    case_of: str,
    keys: tuple[str, ...],
    drawn: str,
) -> None:
    settings, doubt = LOGS[drawn]
    operator, judged = summed(*keys), list[bool]()
    asked = sessions.judged

    def watched(*given: Any) -> tuple[bool, int]:
        answer = asked(*given)
        judged.append(answer[0])
        return answer

    monkeypatch.setattr(sessions, "judged", watched)

    def run(folder: str, seed: int) -> tuple[dict[str, Counter[str]], int, int]:
        case = case_on(case_of, request, operator, tmp_path / f"{folder}-{seed}")
        log = log_of(operator, seed, **settings)
        for start, stop in ((0, 61), (61, len(log.entries))):
            case.land(log, start, stop)
        result = case.run_bounded()
        return stamped(case.outputs()), result.dropped, result.late

    most = 2 if case_of == "spark" and drawn != "out of order, far from late" else 1
    for seed in (1, 2):
        assert sessions.possible(operator, Interval(), "as_landed")
        judged.clear()
        found = run("sql", seed)
        assert judged[-1] == doubt
        assert len(judged) <= most  # by Spark's own windows, and if these are doubtful by stamps
        with monkeypatch.context() as patched:
            patched.setattr(sessions, "possible", lambda *_: False)
            assert found == run("kernel", seed)
        assert found[0][""]


@pytest.mark.parametrize("case_of", ["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_sum_that_only_sql_would_have_stops_no_run(
    request: pytest.FixtureRequest, tmp_path: Path, case_of: str
) -> None:
    """SQL has a row that came too late in one session with the row before it, and the sum of both does not fit."""

    @fm.operator
    def total(bids: fm.Stream[Bid]) -> fm.Stream:
        return bids.key_by("lot").window(fm.Session("1 minute")).aggregate(sum=fm.sum("n"))

    log, case = Log(total.inputs[0].schema), case_on(case_of, request, total, tmp_path)
    for at, progress in ((BEGIN + GAP // 2, BEGIN + 2 * GAP), (BEGIN, BEGIN + 3 * GAP)):
        log.row({"at": from_ms(at), "lot": "a", "n": 1 << 62, "price": None}, at)
        log.move(progress)
    log.end()
    case.land(log)
    assert case.run_bounded().dropped == 1
    assert [row["sum"] for row in case.outputs()[""].to_pylist() if row["_kind"] < MARKER] == [1 << 62]


@pytest.mark.parametrize(
    "window",
    [fm.Session("1 minute", "1 hour"), fm.Session("n", per_row=True)],
)
def test_sessions_of_an_interval_or_of_a_gap_for_each_row_are_left_to_the_kernel(window: Any) -> None:
    operator = summed("lot", window=window)
    assert not sessions.possible(operator, Interval(start=BEGIN, end=BEGIN + GAP), "as_landed")
    assert sessions.possible(operator, Interval(), "as_landed") == isinstance(window.gap, int)
    assert not sessions.possible(operator, Interval(), "all")
