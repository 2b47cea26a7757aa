"""Patterns in memory, through every step: when matches come, time-outs, late rows, restarts, changed patterns, wrong use."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_cases import CASES, Named, identity_of, matches, rows_of, whole
from pydantic import Field

import floodmark as fm
from floodmark.compiler.explain import explain
from floodmark.core.errors import DefinitionError, ExecutionError, StateError, UserCodeError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.semantics.patterns import values
from floodmark.spec.expressions.interpreted import INTERPRETED, own_row
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.patterns.terms import term
from floodmark.spec.values.schema import Column, Schema
from floodmark.testing import Case

NOON = datetime(2026, 1, 1, 12)
SMALL_THEN_LARGE = fm.begin("small").where("amount < 1").next("large").where("amount > 500").within("10 minutes")


class Swipe(fm.Contract):
    """A swipe of a card."""

    at: fm.EventTime
    card: str
    amount: float


class Alert(fm.Contract):
    """A text."""

    text: str


def swipe(minute: float, amount: float, card: str = "a") -> dict[str, object]:
    return {"at": NOON + timedelta(minutes=minute), "card": card, "amount": amount}


def operator(
    pattern: Pattern, measures: dict[str, str] | None = None, timed_out: Any = None, **settings: Any
) -> fm.Operator:
    """Matches of a pattern over swipes."""

    @fm.operator(name="frauds")
    def frauds(swipes: fm.Stream[Swipe]) -> fm.Stream:
        found = swipes.key_by("card").pattern(pattern, **settings)
        return found.select(timed_out=timed_out, **(measures or {"amounts": "collect(amount)"}))

    return frauds


@pytest.mark.feature("C1", "C2")
def test_a_match_comes_with_the_row_that_ends_it_once_progress_is_there() -> None:
    measures = {
        "tested": "first(small.amount)",
        "taken": "large.amount",
        "rows": "count() + 0",
        "later": "unix_millis(large.at) - unix_millis(small.at)",
    }
    case = Case(operator(SMALL_THEN_LARGE, measures))
    case.feed(
        "swipes", [swipe(3, 900), swipe(2, 0.5), swipe(2, 0.7, "b"), swipe(4, 20, "b"), swipe(5, 800, "b")]
    ).expect([])
    case.watermark(NOON + timedelta(minutes=2)).expect([])
    row = {"card": "a", "tested": 0.5, "taken": 900.0, "rows": 2, "later": 60_000}
    case.watermark(NOON + timedelta(minutes=3)).expect([row])
    case.end().expect([])


@pytest.mark.feature("C1", "C2")
def test_lengths_of_time_and_different_values_over_the_rows_of_a_match() -> None:
    pattern = fm.begin("small").where("amount < 1").one_or_more().followed_by("large")
    pattern = pattern.where("at - first(small.at) <= INTERVAL '2' MINUTES AND count(DISTINCT small.amount) > 1")
    measures = {"amounts": "count(distinct small.amount)", "seconds": "timestampdiff(SECOND, first(small.at), at)"}
    case = Case(operator(pattern.within("1 hour"), measures, skip=fm.skip_past_last_event()))
    rows = [swipe(0, 0.5), swipe(1, 0.5), swipe(1.5, 0.25), swipe(2, 900), swipe(3.25, 900)]
    case.feed("swipes", rows).restart().end().expect([{"card": "a", "amounts": 2, "seconds": 120}])


@pytest.mark.feature("C2")
def test_a_partial_match_times_out_when_no_row_can_complete_it() -> None:
    timed_out = {"tested": "small.amount"}
    case = Case(operator(SMALL_THEN_LARGE, timed_out=timed_out))
    case.feed("swipes", [swipe(0, 0.5)]).watermark(NOON + timedelta(minutes=9)).expect([], "timed_out")
    case.restart().watermark(NOON + timedelta(minutes=10) - timedelta(milliseconds=1))
    case.expect([{"card": "a", "tested": 0.5}], "timed_out")
    case.feed("swipes", [swipe(10, 0.6)]).restart().end().expect([{"card": "a", "tested": 0.6}], "timed_out").expect([])


@pytest.mark.feature("C3")
def test_partial_matches_survive_a_restart_after_every_row() -> None:
    pattern = (
        fm.begin("first")
        .where("amount < 1")
        .followed_by("more")
        .where("amount > last(first.amount)")
        .times(3)
        .within("1 hour")
    )
    draw = random.Random(7)
    rows = [swipe(minute / 2, draw.choice([0.25, 0.5, 2.0, 3.0]), draw.choice("abc")) for minute in range(60)]
    case, whole_case = Case(operator(pattern)), Case(operator(pattern))
    expected = whole_case.feed("swipes", rows).end().results()
    got = []
    for row in rows:
        case.feed("swipes", [row]).watermark(row["at"])
        got += case.restart().results()
    got += case.end().results()
    assert len(expected) > 10
    assert sorted(map(str, got)) == sorted(map(str, expected))


def test_a_late_row_is_in_no_match_and_goes_to_the_late_output() -> None:
    case = Case(operator(SMALL_THEN_LARGE, late="side_output"))
    case.feed("swipes", [swipe(5, 0.5)]).watermark(NOON + timedelta(minutes=5))
    case.feed("swipes", [swipe(4, 900), swipe(6, 700)]).end()
    case.expect([{"amounts": [0.5, 700.0]}]).expect([{"card": "a", "at": swipe(4, 0)["at"], "amount": 900.0}], "late")


def test_rows_of_one_instant_come_in_the_order_of_a_column() -> None:
    pattern = fm.begin("any").next("other").within("1 minute")

    def both(rows: list[dict[str, object]], **settings: Any) -> Any:
        return Case(operator(pattern, **settings)).feed("swipes", rows).end().results()

    rows = [swipe(1, 3.0), swipe(1, 1.0), swipe(1, 2.0)]
    assert [row["amounts"] for row in both(rows, sequence="amount")] == [[1.0, 2.0], [2.0, 3.0]]
    assert both(rows) == both(rows[::-1])


@pytest.mark.feature("C2")
def test_a_function_makes_any_number_of_rows_of_a_match() -> None:
    def told(rows: Any) -> Any:
        for row in rows["large"]:
            yield {"text": f"{rows['small'][0]['amount']} then {row['amount']}"}

    def missed(rows: Any) -> Any:
        return [{"text": f"{rows['small'][0]['amount']} alone"}]

    pattern = (
        fm.begin("small")
        .where(lambda row, match: row["amount"] < 1)
        .followed_by("large")
        .where("amount > 500")
        .times(2)
    )

    @fm.operator
    def frauds(swipes: fm.Stream[Swipe]) -> fm.Stream:
        found = swipes.key_by("card").pattern(pattern.within("10 minutes"))
        return found.flat_select(told, Alert, timed_out=missed, timed_out_schema=Alert)

    case = Case(frauds).feed("swipes", [swipe(0, 0.5), swipe(1, 600), swipe(2, 700), swipe(20, 0.6)]).end()
    case.expect([{"card": "a", "text": "0.5 then 600.0"}, {"text": "0.5 then 700.0", "card": "a"}])
    case.expect([{"card": "a", "text": "0.6 alone"}], "timed_out")


SAMPLE = [case for number, case in enumerate(CASES) if number % 12 == 0 and not case.get("fails")]


@pytest.mark.parametrize("case", SAMPLE, ids=[case["name"] for case in SAMPLE])
def test_a_case_of_flink_through_every_step(case: dict[str, Any]) -> None:
    pattern, skip = whole(case)

    @fm.operator(name="named")
    def named(rows: fm.Stream[Named]) -> fm.Stream:
        keyed = rows.with_columns(key="1").key_by("key")
        return keyed.pattern(pattern, skip=skip, most=100_000, sequence="number").select(rows="collect(number)")

    run, rows = Case(named), [row | {"at": NOON + timedelta(milliseconds=row["time"])} for row in rows_of(case)]
    half = len(rows) // 2
    run.feed("rows", rows[:half])
    run.watermark(rows[half]["at"] - timedelta(milliseconds=1)).restart()
    run.feed("rows", rows[half:]).end()
    identity = identity_of(case)
    told = [("match", row["rows"], 0) for row in run.results()]
    assert matches(told, identity) == sorted(sorted(map(identity, numbers)) for numbers in case["expect"])


# ---- changed patterns


def resumed(
    before: fm.Operator, after: fm.Operator, rows: list[dict[str, object]], later: list[dict[str, object]]
) -> list[dict[str, Any]]:
    """What the new code says of later rows, resumed from the state of the old one."""
    case = Case(before).feed("swipes", rows)
    case.watermark(rows[-1]["at"])
    case.operator, case.run = after, MemoryRun(after, case.run.savepoint())
    case.results()
    return case.feed("swipes", later).end().results()


@pytest.mark.feature("C3")
def test_a_changed_pattern_matches_the_open_rows_again() -> None:
    before = operator(fm.begin("a").where("amount < 1").followed_by("b").where("amount > 500").within("1 hour"))
    after = operator(
        fm.begin("a").where("amount < 10").followed_by("b").where("amount > 50 and amount < 500").within("1 hour")
    )
    rows, later = [swipe(0, 0.5), swipe(1, 5), swipe(2, 20)], [swipe(3, 100)]
    assert resumed(before, after, rows, later) == [
        {"card": "a", "amounts": [0.5, 100.0]},
        {"card": "a", "amounts": [5.0, 100.0]},
    ]
    deployed = Deployed(
        version=before.version,
        fingerprint=before.fingerprint,
        graph=before.canonical(),
        tables={o.table: list(o.schema.types.items()) for o in before.outputs},
    )
    changes = plan(deployed, after)
    assert changes.verdict == "compatible state"
    assert [change.before for change in changes.changes] == [
        "pattern begin(a [amount < 1]) followed_by(b [amount > 500]) within 1 hour, no_skip"
    ]
    assert "matched again" in changes.changes[0].otherwise
    assert plan(deployed, before).verdict == "no-op"


def test_a_condition_that_only_an_engine_computes_cannot_match_stored_rows() -> None:
    before = operator(fm.begin("a").where("amount < 1").followed_by("b").where("amount > 500").within("1 hour"))
    after = operator(fm.begin("a").where("sqrt(amount) < 1").followed_by("b").where("amount > 500").within("1 hour"))
    deployed = Deployed(
        version=before.version,
        fingerprint=before.fingerprint,
        graph=before.canonical(),
        tables={o.table: list(o.schema.types.items()) for o in before.outputs},
    )
    assert plan(deployed, after).verdict == "rebuild"
    with pytest.raises(StateError, match=r"STATE-050 .*stored before this condition: 'sqrt\(amount\) < 1'"):
        resumed(before, after, [swipe(0, 0.5)], [swipe(1, 600)])


def test_other_measures_and_a_limit_leave_the_state_as_it_is() -> None:
    before, after = operator(SMALL_THEN_LARGE), operator(SMALL_THEN_LARGE, {"n": "count()"})
    deployed = Deployed(
        version=before.version,
        fingerprint=before.fingerprint,
        graph=before.canonical(),
        tables={o.table: list(o.schema.types.items()) for o in before.outputs},
    )
    assert [change.after for change in plan(deployed, after).changes if change.where.startswith("step")] == [
        "select n=count()"
    ]
    assert operator(SMALL_THEN_LARGE, most=5).version == before.version
    assert "begin(small [amount < 1]) next(large [amount > 500]) within 10 minutes" in explain(before)[0]


def test_the_code_of_a_condition_is_part_of_the_version() -> None:
    def with_bound(bound: Callable[[Any, Any], bool]) -> str:
        return operator(fm.begin("a").where(bound).next("b").within("1 hour")).version

    assert with_bound(lambda row, match: row["amount"] < 1) != with_bound(lambda row, match: row["amount"] < 2)


# ---- failures


def test_a_function_that_changes_rows_changes_none_in_state() -> None:
    def fits(row: dict[str, Any], match: dict[str, list[dict[str, Any]]]) -> bool:
        row["amount"] = match["a"][0]["amount"] = -1.0
        match["a"].clear()
        return True

    rows = [{"at": NOON + timedelta(minutes=n), "card": "a", "amount": float(n)} for n in range(3)]
    pattern = fm.begin("a").next("b").where(fits).within("1 hour")
    case = Case(operator(pattern, {"first": "a.amount", "second": "b.amount"})).feed("swipes", rows[:2]).restart()
    made = case.feed("swipes", rows[2:]).end().results()
    assert [(row["first"], row["second"]) for row in made] == [(0.0, 1.0), (1.0, 2.0)]


def test_a_condition_that_raises_stops_the_run_or_moves_its_row_to_the_quarantine() -> None:
    def odd(row: Any, match: Any) -> bool:
        return 1 / row["amount"] > 0

    pattern = fm.begin("a").where("amount < 1").followed_by("b").where(odd).within("1 hour")
    rows = [swipe(0, 0.5), swipe(1, 0.0), swipe(2, 4)]
    with pytest.raises(UserCodeError, match=r"USER-001 .*pattern of 'frauds'.*ZeroDivisionError.*The row was"):
        Case(operator(pattern)).feed("swipes", rows).end()
    case = Case(operator(pattern, on_error="quarantine")).feed("swipes", rows).end()
    case.expect([{"amounts": [0.5, 4.0]}])
    assert len(case.results("quarantine")) == 1


async def later(row: Any, match: Any) -> bool:
    """A coroutine is true."""
    return False


def streamed(row: Any, match: Any) -> Any:
    """So is a generator."""
    yield False


@pytest.mark.parametrize(
    ("fits", "got"),
    [
        (later, "the coroutine function 'later'"),
        (streamed, "the generator function 'streamed'"),
        (lambda row: True, r"'<lambda>', which takes \(row\)"),
        (lambda row, match, more: True, "'<lambda>', which takes"),
        (3, "3"),
    ],
)
def test_a_function_that_is_no_condition_is_refused_where_it_is_written(fits: Any, got: str) -> None:
    with pytest.raises(DefinitionError, match=f"DEFINITION-420 pattern, stage 'a': expected a condition, got {got}"):
        fm.begin("a").where(fits)
    fm.begin("a").where(lambda row, match, least=1: row["amount"] > least)


def test_a_match_may_become_rows_of_the_contract() -> None:
    class Seen(fm.Contract):
        """A row."""

        amount: float

    @fm.operator
    def seen(swipes: fm.Stream[Swipe]) -> fm.Stream:
        pattern = fm.begin("a").where("amount > 0").within("1 hour")
        matches = swipes.key_by("card").pattern(pattern)
        return matches.flat_select(lambda match: [Seen(amount=match["a"][0]["amount"])], schema=Seen)

    assert [row["amount"] for row in Case(seen).feed("swipes", [swipe(0, 2.0)]).end().results()] == [2.0]


def test_a_condition_without_a_value_is_named_as_one_of_the_pattern() -> None:
    pattern = fm.begin("a").where("1 / amount > 0").within("1 hour")
    with pytest.raises(ExecutionError, match="EXECUTION-050.*, a condition of the pattern: .*DIVIDE_BY_ZERO"):
        Case(operator(pattern)).feed("swipes", [swipe(0, 0.0)]).end()


def test_time_since_the_previous_row_bounds_partial_matches_too() -> None:
    waits = fm.begin("a").followed_by("b").where("amount > 500").within("5 minutes", "previous")
    operator(fm.begin("a").within("5 minutes", "previous").times(2))
    rows = [swipe(n, 1) for n in range(200)]
    Case(operator(waits, most=6)).feed("swipes", rows).end()
    with pytest.raises(DefinitionError, match="DEFINITION-426.*wait for 'c' for ever"):
        operator(waits.followed_by("c"))


def test_more_partial_matches_than_allowed_stop_the_run() -> None:
    pattern = fm.begin("a").followed_by("b").where("amount > 500")
    with pytest.raises(UserCodeError, match=r"USER-020 .*card='a'.*expected at most 3 partial matches of a key, got 4"):
        Case(operator(pattern, most=3)).feed("swipes", [swipe(n, 1) for n in range(5)]).end()


def test_a_skip_to_a_stage_without_a_row_stops_the_run_if_it_should() -> None:
    pattern = (
        fm.begin("a")
        .where("amount < 1")
        .next("b")
        .where("amount = 2")
        .optional()
        .next("c")
        .where("amount = 3")
        .within("1 hour")
    )
    rows = [swipe(0, 0.5), swipe(1, 3)]
    Case(operator(pattern, skip=fm.skip_to_first("b"))).feed("swipes", rows).end().expect([{"amounts": [0.5, 3.0]}])
    with pytest.raises(UserCodeError, match=r"USER-021 .*a row of 'b' to continue at, got no row"):
        Case(operator(pattern, skip=fm.skip_to_last("b", fails=True))).feed("swipes", rows).end()


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a name twice": (lambda: operator(fm.begin("a").next("a")), "DEFINITION-424 .*'a' twice"),
    "no end": (
        lambda: operator(fm.begin("a").not_followed_by("b")),
        "DEFINITION-425 .*not_followed_by\\('b'\\) at the end",
    ),
    "no end of a group": (lambda: operator(fm.begin(fm.begin("a").not_followed_by("b")).next("c")), "DEFINITION-425"),
    "no bound": (
        lambda: operator(fm.begin("a").followed_by("b")),
        "DEFINITION-426 .*wait for 'b' for ever: a million rows.*most=10_000",
    ),
    "a loop without bound": (lambda: operator(fm.begin("a").next("b").one_or_more()), "DEFINITION-426 .*wait for 'b'"),
    "combinations": (
        lambda: operator(fm.begin("a").one_or_more().allow_combinations().next("b").within("1 hour")),
        "DEFINITION-426 .*1,048,575 partial matches",
    ),
    "no number": (lambda: operator(fm.begin("a"), most=0), "DEFINITION-426"),
    "time since the row before the first": (
        lambda: operator(fm.begin("a").within("1 minute", "previous").next("b")),
        r"DEFINITION-421 .*within\(..., \"previous\"\) behind a stage that has a row before it, got one behind 'a'",
    ),
    "many rows": (lambda: operator(fm.begin("a").times(10_001).within("1 hour")), "DEFINITION-427 .*got one of 10,001"),
    "many rows of a group": (
        lambda: operator(fm.begin(fm.begin("a").times(2).next("b")).times(4000).within("1 hour")),
        "DEFINITION-427 .*got one of 12,000",
    ),
    "an unknown column": (
        lambda: operator(fm.begin("a").where("amuont < 1")),
        "DEFINITION-022 .*stage 'a'.*Did you mean 'amount'",
    ),
    "an unknown stage": (
        lambda: operator(fm.begin("small").next("b").where("amount > last(smal.amount)")),
        "DEFINITION-422 .*'smal' in .*Did you mean 'small'",
    ),
    "an unknown stage alone": (
        lambda: operator(fm.begin("small").next("b").where("amount > smal.amount")),
        "DEFINITION-422 .*Did you mean 'small'",
    ),
    "an unknown column of a stage": (
        lambda: operator(fm.begin("a").next("b").where("amount > a.amuont")),
        "DEFINITION-022 .*Did you mean 'amount'",
    ),
    "a stage to skip to": (lambda: operator(fm.begin("a"), skip=fm.skip_to_last("b")), "DEFINITION-422 .*skip_to_last"),
    "no condition": (lambda: operator(fm.begin("a").where("amount")), "DEFINITION-024"),
    "no condition over stages": (lambda: operator(fm.begin("a").next("b").where("a.amount")), "DEFINITION-024"),
    "no text": (lambda: operator(fm.begin("a").where(5)), "DEFINITION-420"),  # type: ignore[arg-type]
    "no pattern": (lambda: operator("a"), "DEFINITION-421 .*a pattern"),  # type: ignore[arg-type]
    "no skip": (lambda: operator(fm.begin("a"), skip="past"), "DEFINITION-421 .*skip strategy"),
    "no name": (lambda: fm.begin(""), "DEFINITION-421"),
    "two quantifiers": (lambda: fm.begin("a").times(2).one_or_more(), "DEFINITION-421 .*one quantifier"),
    "no number of rows": (lambda: fm.begin("a").times(3, 2), "DEFINITION-421"),
    "a quantifier of a row that must not come": (lambda: fm.begin("a").not_next("b").one_or_more(), "DEFINITION-421"),
    "until of one row": (lambda: fm.begin("a").until("amount > 1"), "DEFINITION-421 .*one_or_more"),
    "consecutive of one row": (lambda: fm.begin("a").consecutive(), "DEFINITION-421"),
    "greedy of one row": (lambda: fm.begin("a").greedy(), r"DEFINITION-421 .*greedy\(\) behind a quantifier"),
    "greedy of an optional row": (lambda: fm.begin("a").optional().greedy(), "DEFINITION-421"),
    "greedy combinations": (
        lambda: fm.begin("a").one_or_more().allow_combinations().greedy(),
        r"DEFINITION-421 .*greedy\(\) or allow_combinations\(\)",
    ),
    "combinations of a greedy stage": (
        lambda: fm.begin("a").one_or_more().greedy().allow_combinations(),
        r"DEFINITION-421 .*allow_combinations\(\) or greedy\(\)",
    ),
    "consecutive combinations": (
        lambda: fm.begin("a").times(2).allow_combinations().consecutive(),
        "DEFINITION-421 .*both",
    ),
    "combinations of consecutive rows": (
        lambda: fm.begin("a").times(2).consecutive().allow_combinations(),
        "DEFINITION-421 .*both",
    ),
    "greedy of a group": (lambda: fm.begin(fm.begin("a")).greedy(), "DEFINITION-421"),
    "a condition of a group": (lambda: fm.begin(fm.begin("a")).where("amount > 1"), "DEFINITION-421"),
    "not after optional": (lambda: fm.begin("a").next("b").optional().not_next("c"), "DEFINITION-421"),
    "not of a group": (lambda: fm.begin("a").not_next(fm.begin("b")), "DEFINITION-421"),  # type: ignore[arg-type]
    "no time": (lambda: fm.begin("a").within("0 s"), "DEFINITION-055"),
    "a function of rows": (
        lambda: operator(fm.begin("a").next("b").where("sqrt(a.amount) > 2")),
        "DEFINITION-423 .*sqrt.*with_columns",
    ),
    "time between rows": (
        lambda: operator(fm.begin("a").next("b"), {"took": "b.at - a.at"}),
        r"DEFINITION-423 .*- of timestamp, timestamp.*unix_millis\(b.at\) - unix_millis\(a.at\)",
    ),
    "a text for a number": (
        lambda: operator(fm.begin("a").next("b").where("amount > a.amount or a.amount = '1'")),
        "DEFINITION-423 .*= of double, string.*n = 1 in place of",
    ),
    "no SQL": (lambda: operator(fm.begin("a").next("b").where("a.amount >")), "DEFINITION-021"),
    "other types": (lambda: operator(fm.begin("a").next("b").where("a.at + a.amount > 2")), "DEFINITION-145"),
    "sum of times": (lambda: operator(fm.begin("a"), {"total": "sum(a.at)"}), "DEFINITION-422"),
    "several stages": (
        lambda: operator(fm.begin("a").next("b"), {"total": "sum(a.amount + b.amount)"}),
        "DEFINITION-422 .*a and b",
    ),
    "references in references": (lambda: operator(fm.begin("a"), {"total": "sum(first(a.amount))"}), "DEFINITION-422"),
    "no offset": (lambda: operator(fm.begin("a"), {"x": "last(a.amount, -1)"}), "DEFINITION-422"),
    "true, which is no offset": (lambda: operator(fm.begin("a"), {"x": "first(a.amount, true)"}), "DEFINITION-422"),
    "no measure": (lambda: operator(fm.begin("a"), None, {"card": "a.amount"}), "DEFINITION-050"),
    "a measure without a type": (lambda: operator(fm.begin("a"), {"x": "null"}), "DEFINITION-043"),
    "a measure that is no text": (lambda: operator(fm.begin("a"), {"x": 5}), "DEFINITION-020"),  # type: ignore[dict-item]
    "no column of the sequence": (lambda: operator(fm.begin("a"), sequence="amuont"), "DEFINITION-022 .*sequence"),
    "no late": (lambda: operator(fm.begin("a"), late="keep"), "DEFINITION-055"),
}


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_pattern_is_refused_when_it_is_defined(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(DefinitionError, match=f"(?s){says}"):
        wrong()


def test_select_and_flat_select_are_checked() -> None:
    def keyed(swipes: fm.Stream[Swipe]) -> Any:
        return swipes.key_by("card").pattern(fm.begin("a"))

    for wrong, code in (
        (lambda found: found.select(), "DEFINITION-056"),
        (lambda found: found.flat_select(len, Swipe, timed_out=len), "DEFINITION-051"),
        (lambda found: found.flat_select(5, Alert), "DEFINITION-057"),
    ):

        def body(swipes: fm.Stream[Swipe]) -> fm.Stream:
            return wrong(keyed(swipes))  # noqa: B023 - called at once

        with pytest.raises(DefinitionError, match=code):
            fm.operator(body)


# ---- conditions as columns and by row

EXPRESSIONS = [
    "n + 1 > 2", "n - m * 2 < 3", "x / 2 > 1", "n % 3 = 1", "n div 2 = 1", "mod(m, 3) = -1", "-n < -1", "abs(m) > 1", "n between 1 and 3",
    "n in (1, 2, m)", "n not in (1, 2)", "s like 'a%'", "s like '_b'", "s || 'c' = 'abc'", "lower(s) = 'b'",
    "upper(s) = 'AB'", "length(s) = 2", "startswith(s, 'a')", "endswith(s, 'b')", "contains(s, 'b')", "substring(s, 2) = 'b'", "substr(s, 1, 1) = 'a'",
    "trim(s) = 'a'", "coalesce(n, m, 5) = 5", "ifnull(n, 1) = 1", "nvl(x, 0.5) = 0.5", "nullif(n, m) is null", "if(n > 1, s, 'z') = 'z'", "least(n, m) = -1",
    "greatest(x, 1.0) = 1.0", "n <=> m", "n is not null and (m > 1 or x > 1)", "not (n = 1) or s = 'a'", "case when n = 1 then m when m > 0 then 7 else n end = 7",
    "case n when 1 then true else false end", "x > 1", "x = x", "x <> 1.5", "x <= 2", "d + 1.5 > 2", "d * d = 6.25", "d / 3 < 1", "-d < 0", "cast(n as double) / 4 = 0.5",
    "cast(n as int) = 2", "t > '2026-01-01 12:00:00'", "t >= timestamp '2026-01-01 12:01:00'", "unix_millis(t) % 2 = 0", "unix_seconds(t) > 1767268800", "positive(n) = 2", "char_length(s) = 1", "s <> 'b'", "n >= m", "n < m", "n <= m",
    "d = x", "d < x", "n = x", "coalesce(n, x) = 0.5", "greatest(d, x) = 2.5", "case when n = 1 then n else x end > 0.5", "if(n > 1, d, x) < 1",
    "nullif(d, x) is null", "d <=> x", "d > n", "d = 2.5",
]  # fmt: skip
BEYOND = [
    "n = '1'", "n in ('1', '2')", "s = 1", "x between '0' and '1'", "nullif(x, '1') is null", "upper(n) = '1'", "length(x) = 3", "x like '1%'", "n || 'a' = '1a'",
    "trim('a', s) = 'b'", "s like 'a' escape 'b'", "t > date '2026-01-01'", "substring(s, '1') = 'a'", "-s = 1", "coalesce(x, '1') > 1", "case when n = 1 then x else s end = 1",
    "t between s and '2026-01-02'", "t in (s, '2025-01-01')", "coalesce(t, s, '2026-01-01') = t", "to_date(s) is null", "date_trunc('day', t) = t",
]  # fmt: skip
"""Spark reads text as numbers and dates as times, which nothing does by row."""


class Odd(fm.Contract):
    """A row of odd values."""

    at: fm.EventTime
    t: datetime | None
    n: int | None
    m: int | None
    x: float | None
    s: str | None
    d: Annotated[Decimal, Field(max_digits=10, decimal_places=2)] | None


def test_every_function_by_row_is_known_where_patterns_are_defined() -> None:
    computed = {
        *values._CONNECTIVES,
        *values._LOGIC,
        *values._ARITHMETIC,
        *values._COMPARED,
        *values._FUNCTIONS,
        "between",
        "nullif",
    }
    assert set(INTERPRETED) == computed


MOMENT = st.sampled_from([NOON, NOON + timedelta(minutes=1), NOON + timedelta(milliseconds=3)])
ODD = st.fixed_dictionaries(
    {
        "t": st.none() | MOMENT,
        "n": st.none() | st.integers(-3, 3),
        "m": st.none() | st.integers(-3, 3),
        "x": st.none() | st.sampled_from([0.0, -0.0, 0.1, 0.5, 1.5, 2.5, float("nan"), float("inf"), float("-inf")]),
        "s": st.none() | st.sampled_from(["", "a", "b", "ab", "Ab", " a", "é"]),
        "d": st.none() | st.sampled_from([Decimal("2.5"), Decimal("-1.25"), Decimal("0.1")]),
    }
)
"""Odd values."""


@pytest.mark.parametrize("text", BEYOND)
def test_values_that_only_an_engine_casts_are_not_computed_by_row(text: str) -> None:
    @fm.operator
    def odd(rows: fm.Stream[Odd]) -> fm.Stream:
        return rows

    schema = odd.inputs[0].schema
    assert own_row(text, schema, "here") is None
    with pytest.raises(DefinitionError, match="DEFINITION-423"):
        term(f"{text} or a.n = 1", ("a",), schema, "here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nullif(n, x)", 9007199254740993),
        ("m between n and x * 1e30", False),
        ("not (2 between p and 1)", True),
        ("t between '2026-01-01' and '2026-01-02'", True),
        ("t in ('2026-01-01 12:00:00', z)", True),
        ("nullif('2026-01-01 12:00:00', t)", None),
        ("nvl(z, '2026-01-01 12:00:00') = t", True),
        ("ifnull(z, '2026-01-01 12:00:00') = t", True),
        ("coalesce(z, '2026-01-01 12:00:00') = t", True),
    ],
)
def test_what_values_are_compared_as_by_row_is_what_spark_compares_them_as(text: str, expected: Any) -> None:
    """Answers of Spark 4.2."""
    noon = NOON.replace(tzinfo=UTC)
    row = {"n": 9007199254740993, "m": 9007199254740992, "x": 1.0, "p": None, "t": noon, "z": None}
    kinds = {"n": "bigint", "m": "bigint", "x": "double", "p": "int", "t": "timestamp", "z": "timestamp"}
    tree = own_row(text, Schema(columns=tuple(Column(name=name, type=kind) for name, kind in kinds.items())), "here")
    assert tree is not None
    assert values.compiled(tree)(row) == expected


TIMES = Schema(columns=tuple(Column(name=kind[0], type=kind) for kind in ("date", "timestamp")))


@pytest.mark.parametrize(
    ("constant", "column"),
    [
        ("'2026-1-1'", "d"),
        ("' 2026-01-01'", "d"),
        ("'20260101'", "d"),
        ("'2026-01-01 00:00:00'", "d"),
        ("'0000-01-01'", "d"),
        ("'monday'", "d"),
        ("date '2026-1-1'", "d"),
        ("cast('2026-1-1' as date)", "d"),
        ("cast(timestamp '2026-01-01 12:00:00' as date)", "d"),
        ("'2026-01-01 00:00:00 UTC'", "t"),
        ("'2026-01-01 00:00:00,5'", "t"),
        ("'2026-01-01 00:00:00+19:00'", "t"),
        ("'2026-02-30'", "t"),
        ("timestamp '2026-01-01 00:00:00 Europe/Berlin'", "t"),
    ],
)
def test_times_in_a_form_that_only_an_engine_reads_are_not_computed_by_row(constant: str, column: str) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-423 .*the (date|timestamp) .*'2026-01-01 12:00:00'"):
        term(f"a.{column} > {constant}", ("a",), TIMES, "here")
    for text in (f"{column} > {constant}", f"{column} between {constant} and '2026-01-01'"):
        assert own_row(text, TIMES, "here") is None


@pytest.mark.parametrize(
    "text",
    [
        "d = '2026-01-01'",
        "d = date '2026-01-01'",
        "d = cast('2026-01-01' as date)",
        "t > cast(date '2026-01-01' as timestamp)",
        "t = '2026-01-01 12:00:00'",
        "t = timestamp '2026-01-01T12:00:00.000000Z'",
        "t = cast('2026-01-01 13:00+01:00' as timestamp)",
        "t in ('2026-01-01 12', '2025-12-31')",
        "t = '2026-01-01 05:00:00.0000009-07'",
        "t between '2026-01-01' and '2026-01-01 12:00'",
    ],
)
def test_times_as_texts_by_row_are_those_of_spark(text: str) -> None:
    tree = own_row(text, TIMES, "here")
    assert tree is not None
    assert values.compiled(tree)({"d": NOON.date(), "t": NOON.replace(tzinfo=UTC)}) is True


@pytest.mark.parametrize(("joint", "behind"), [(" OR ", ""), (" AND ", ""), (" + ", " > 0")])
def test_long_chains_are_computed_by_row_and_longer_ones_refused_with_advice(joint: str, behind: str) -> None:
    schema = Schema(columns=(Column(name="n", type="bigint"),))
    part = "a.n" if behind else "a.n > 0"
    read = term(joint.join([part] * 190) + behind, ("a",), schema, "here")
    row = {f"_r{number}": 1 for number in range(190)}
    assert values.compiled(read.tree)(row) is True
    assert values.compiled(read.tree)(row | {"_r9": None}) is (True if joint == " OR " else None)
    for column in ("a.amount",) if behind else ("a.amount", "amount"):  # Sail does not survive a long sum
        condition = joint.join([part.replace("a.n", column)] * 190) + behind
        running = operator(fm.begin("a").next("b").where(condition))
        assert Case(running).feed("swipes", [swipe(0, 1), swipe(1, 1)], event_time="at").end().results()
    for long in (330, 3_000):
        text = joint.join([part] * long) + behind
        with pytest.raises(DefinitionError, match="DEFINITION-021 .*not so deep, at most 200 levels.*IN"):
            term(text, ("a",), schema, "here")
        with pytest.raises(DefinitionError, match="DEFINITION-021"):
            operator(fm.begin("a").next("b").where(text.replace("a.n", "a.amount")))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a.t - a.at > interval '1 month'", "unix_millis(b.at)"),
        ("a.t > a.at + interval '1 month'", "unix_millis(b.at)"),
        ("a.s = 1", "values of one type"),
        ("trim('a', a.s) = 'b'", ""),
        ("a.s like 'a' escape 'b'", ""),
        ("date_trunc('day', a.t) = a.t", ""),
        ("to_date(a.s) is null", ""),
        ("a.t > date '2026-01-01'", ""),
    ],
)
def test_what_to_write_instead_is_about_the_part_that_is_refused(text: str, advice: str) -> None:
    @fm.operator
    def odd(rows: fm.Stream[Odd]) -> fm.Stream:
        return rows

    with pytest.raises(DefinitionError, match="DEFINITION-423") as refused:
        term(text, ("a",), odd.inputs[0].schema, "here")
    told = {part for part in ("unix_millis(b.at)", "values of one type") if part in str(refused.value)}
    assert told == ({advice} if advice else set())


@given(st.lists(ODD, min_size=1, max_size=30))
def test_a_condition_is_the_same_as_a_column_and_by_row(rows: list[dict[str, Any]]) -> None:
    @fm.operator
    def both(odd: fm.Stream[Odd]) -> fm.Stream:
        columns = {f"c{number}": text for number, text in enumerate(EXPRESSIONS)}
        return odd.with_columns(**columns)

    schema = both.inputs[0].schema
    trees = {text: own_row(text, schema, "here") for text in EXPRESSIONS}
    assert all(trees.values()), [text for text, tree in trees.items() if tree is None]
    case = Case(both).feed("odd", [row | {"at": NOON} for row in rows], event_time="at").end()
    for row in case.results():
        for number, text in enumerate(EXPRESSIONS):
            tree = trees[text]
            assert tree is not None
            assert values.compiled(tree)(row) == row[f"c{number}"], (text, row)
