"""Rows for which an expression fails on the embedded engine: each is found among the others and set aside with Spark's reason."""

from __future__ import annotations

import pytest

import floodmark as fm
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.embedded.retries.halving import failing
from floodmark.testing import Run


class Month(fm.Contract):
    """Parts of a date, and numbers."""

    at: fm.EventTime
    y: str
    m: str
    v: int


@fm.operator
def everywhere(months: fm.Stream[Month]) -> fm.Stream:
    """Before a window, in it and after it."""
    dated = months.filter("100 / v > 0", on_error="quarantine")
    dated = dated.with_columns(n="CAST(m AS int)", more="CAST(m AS int) + 1", on_error="quarantine")
    made = dated.key_by("y").window(fm.Tumbling("10 ms"), on_error="quarantine")
    made = made.aggregate(n=fm.count(), per=fm.max("100 / (n - 7)"), least=fm.min("100 / (n - 7) + 1"))
    return made.with_columns(one="1 / (n - 2)", two="1 / (n - 2) + 1", on_error="quarantine")


@fm.operator
def unread(months: fm.Stream[Month]) -> fm.Stream:
    """What fails is computed for the quarantine alone."""
    return months.with_columns(n="CAST(m AS int)", on_error="quarantine").select("y", "v")


def _odd(row: dict) -> list[dict]:
    if row["v"] == 8:
        message = "eight"
        raise ValueError(message)
    return [{name: row[name] for name in ("at", "y", "m", "v")}] * (row["v"] % 3)


@fm.operator
def branches(months: fm.Stream[Month]) -> fm.Outputs:
    """One step that sets rows aside below two results, and a function behind it that does, too."""
    good = months.with_columns(n="CAST(m AS int)", on_error="quarantine")
    odd = good.flat_map(_odd, Month, on_error="quarantine").filter("100 DIV (v - 1) <> 50", on_error="quarantine")
    return fm.Outputs(low=good.filter("n < 5"), odd=odd)


MONTHS = [("a", "1", 5), ("a", "x", 5), ("b", "2", 0), ("b", "7", 1), ("a", "3", 3), ("b", "4", 1), ("a", "5", 8)]
ROWS = [{"at": from_ms(3 * place), "y": y, "m": m, "v": v} for place, (y, m, v) in enumerate(MONTHS)]


@pytest.mark.parametrize(
    "operator", [everywhere, unread, pytest.param(branches, marks=pytest.mark.soak)], ids=lambda operator: operator.name
)
def test_the_same_rows_are_set_aside_in_both_modes(operator: fm.Operator) -> None:
    bounded, unbounded = (Run("embedded", mode)(operator, {"months": ROWS}) for mode in ("bounded", "unbounded"))
    assert bounded == unbounded == Run("memory", "bounded")(operator, {"months": ROWS})
    assert len(bounded["quarantine"]) == {"everywhere": 4, "unread": 1, "branches": 4}[operator.name]


def _cast_to(kind: str) -> fm.Operator:
    @fm.operator(name="casts")
    def casts(months: fm.Stream[Month]) -> fm.Stream:
        return months.select("v", d=f"CAST(m AS {kind})", on_error="quarantine")

    return casts


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
def test_a_row_sail_cannot_judge_stops_the_run(mode: str) -> None:
    rows = [{"at": from_ms(n), "y": "a", "m": "n/a" if n % 2 else "2020-01-02", "v": n} for n in range(9)]
    run = Run("embedded", mode)
    assert len(run(_cast_to("date"), {"months": rows})["quarantine"]) == 4
    rows.append({"at": from_ms(9), "y": "a", "m": "2020", "v": 9})  # a date to Spark
    with pytest.raises(CapabilityError) as raised:
        run(_cast_to("date"), {"months": rows})
    assert raised.value.code == "CAPABILITY-031"
    assert """a text as date in 'CAST(m AS date)' (the row: {"at": """ in raised.value.got
    assert "--engine spark" in raised.value.fix


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
def test_what_stops_the_run_is_told_apart_from_what_is_set_aside(mode: str) -> None:
    @fm.operator
    def mixed(months: fm.Stream[Month]) -> fm.Stream:
        good = months.with_columns(n="CAST(m AS int)", on_error="quarantine")
        return good.filter("100 DIV (n - 3) <> 7").key_by("y").window(fm.Tumbling("10 ms")).aggregate(n=fm.sum("n"))

    with pytest.raises(ExecutionError) as raised:
        Run("embedded", mode)(mixed, {"months": ROWS})
    assert "DIVIDE_BY_ZERO" in raised.value.got
    if mode == "unbounded":
        assert raised.value.code == "EXECUTION-050"
        assert '"m": "3"' in raised.value.got


def test_values_of_a_window_are_computed_as_spark_computes_them() -> None:
    @fm.operator
    def largest(months: fm.Stream[Month]) -> fm.Stream:
        window = months.key_by("y").window(fm.Tumbling("1 s"), on_error="quarantine")
        return window.aggregate(most=fm.max("v * 9223372036854775807"))

    found = Run("embedded", "unbounded")(largest, {"months": ROWS})
    reasons = {row["reason"].split(". ")[0] for row in found["quarantine"]}
    assert reasons == {"v * 9223372036854775807: [ARITHMETIC_OVERFLOW] overflow"}
    assert [row["most"] for row in found[""]] == [9223372036854775807]  # the zero and the ones are left, all of one key


@pytest.mark.parametrize(
    ("size", "bad"), [(1, [0]), (1000, [0]), (1000, [999]), (1000, [3, 500, 501]), (7, list(range(7)))]
)
def test_rows_that_fail_are_found_in_few_pieces(size: int, bad: list[int]) -> None:
    computed: list[int] = []

    def fails(start: int, stop: int) -> str | None:
        computed.append(stop - start)
        return next((f"row {row}" for row in bad if start <= row < stop), None)

    assert list(failing(size, fails)) == [(row, f"row {row}") for row in bad]
    assert len(computed) <= 2 * len(bad) * max(1, size.bit_length())
    assert sum(computed) <= 3 * size * len(bad)
