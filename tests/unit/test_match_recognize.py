"""``MATCH_RECOGNIZE``: matches of standard SQL, against regular expressions over letters; streams, restarts, wrong use."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import floodmark as fm
from floodmark.compiler.explain import explain
from floodmark.core.errors import DefinitionError, ExecutionError, UserCodeError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.semantics.patterns.matcher import Event
from floodmark.semantics.patterns.rows import Recognition, RowMatcher
from floodmark.spec.graph import steps
from floodmark.spec.patterns.recognised import RowMatching
from floodmark.testing import Case

NOON = datetime(2026, 1, 1, 12)
FALL_AND_RISE: dict[str, Any] = {
    "pattern": "A B+ C+",
    "define": {"B": "B.price < PREV(B.price)", "C": "C.price > PREV(C.price)"},
    "measures": {"first": "A.price", "low": "LAST(B.price)", "high": "LAST(C.price)", "falls": "COUNT(B)"},
}


class Quote(fm.Contract):
    """A price."""

    at: fm.EventTime
    symbol: str
    price: int


def quotes(prices: Sequence[int], symbol: str = "x", first: int = 0) -> list[dict[str, Any]]:
    return [
        {"at": NOON + timedelta(minutes=first + n), "symbol": symbol, "price": price} for n, price in enumerate(prices)
    ]


def recognised(**clause: Any) -> fm.Operator:
    @fm.operator(name="quotes_of")
    def quotes_of(quotes: fm.Stream[Quote]) -> fm.Stream:
        return quotes.match_recognize(**({"partition_by": "symbol"} | clause))

    return quotes_of


def results(prices: Sequence[int], **clause: Any) -> list[dict[str, Any]]:
    return Case(recognised(**clause)).feed("quotes", quotes(prices)).end().results()


@pytest.mark.feature("C1", "X5")
def test_a_match_is_emitted_once_no_preferred_alternative_can_change_it() -> None:
    case = Case(recognised(**FALL_AND_RISE)).feed("quotes", quotes([90, 80, 70, 75, 80]))
    case.watermark(NOON + timedelta(minutes=4)).expect([])
    case.restart().feed("quotes", quotes([60], first=5)).watermark(NOON + timedelta(minutes=5))
    case.expect([{"symbol": "x", "first": 90, "low": 70, "high": 80, "falls": 2}])
    case.feed("quotes", quotes([50, 55], first=6)).restart().end()
    case.expect([{"symbol": "x", "first": 60, "low": 50, "high": 55, "falls": 1}])


def test_all_rows_of_a_match_have_the_measures_up_to_them() -> None:
    rows = results(
        [90, 80, 85, 70],
        **FALL_AND_RISE
        | {
            "measures": {
                "label": "CLASSIFIER()",
                "n": "MATCH_NUMBER()",
                "total": "SUM(price)",
                "end": "FINAL LAST(price)",
            }
        },
        rows_per_match="ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        order_by="at",
    )
    assert [(row["price"], row["label"], row["n"], row["total"], row["end"]) for row in rows] == [
        (90, "A", 1, 90, 85),
        (80, "B", 1, 170, 85),
        (85, "C", 1, 255, 85),
        (70, None, None, None, None),
    ]
    assert list(rows[0]) == ["symbol", "at", "label", "n", "total", "end", "price"]


def test_a_match_that_may_go_on_ends_with_its_time() -> None:
    clause: dict[str, Any] = {
        "pattern": "A+",
        "define": {"A": "price > 50"},
        "measures": {"n": "COUNT(*)"},
        "within": "3 minutes",
    }
    case = Case(recognised(**clause)).feed("quotes", quotes([60, 70, 80, 90]))
    case.watermark(NOON + timedelta(minutes=3)).expect([{"n": 3}])
    case.restart().watermark(NOON + timedelta(minutes=5)).expect([])
    case.watermark(NOON + timedelta(minutes=6)).expect([{"n": 1}])


def test_next_reads_a_row_behind_the_match_once_it_is_there() -> None:
    clause: dict[str, Any] = {
        "pattern": "A",
        "define": {"A": "NEXT(price) > price"},
        "measures": {"price": "price", "then": "NEXT(price, 2)"},
    }
    case = Case(recognised(**clause)).feed("quotes", quotes([1, 2])).watermark(NOON + timedelta(minutes=2))
    case.expect([]).restart().feed("quotes", quotes([0], first=3)).watermark(NOON + timedelta(minutes=3))
    case.expect([{"price": 1, "then": 0}]).end().expect([])


def test_anchors_permutations_and_exclusions() -> None:
    define = {"A": "price = 1", "B": "price = 2"}
    count = {"n": "COUNT(*)"}
    assert len(results([1, 2, 1, 2], pattern="^A B", define=define, measures=count)) == 1
    assert len(results([1, 2, 1, 2], pattern="A B $", define=define, measures=count)) == 1
    assert len(results([2, 1, 1, 2], pattern="PERMUTE(A, B)", define=define, measures=count)) == 2
    rows = results([1, 2], pattern="A {- B -}", define=define, measures=count, rows_per_match="ALL ROWS PER MATCH")
    assert [row["price"] for row in rows] == [1]


# ---- regular expressions as oracle

LETTERS = {"A": "a", "B": "b", "C": "[ab]", "D": "."}


def parts(depth: int) -> st.SearchStrategy[tuple[str, str]]:
    """(row pattern, regular expression) of the same language, preferences included."""
    leaf = st.sampled_from(sorted(LETTERS)).map(lambda label: (label, LETTERS[label]))
    if not depth:
        return leaf
    inner = parts(depth - 1)
    quantifiers = st.sampled_from(["", "?", "??", "+", "+?", "*", "*?", "{2}", "{1,2}", "{1,2}?"])
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.tuples(leaf, quantifiers).map(lambda drawn: (drawn[0][0] + drawn[1], drawn[0][1] + drawn[1])),
        several.map(
            lambda drawn: (
                "(" + " ".join(one for one, _ in drawn) + ")",
                "(?:" + "".join(two for _, two in drawn) + ")",
            )
        ),
        several.map(
            lambda drawn: (
                "(" + " | ".join(one for one, _ in drawn) + ")",
                "(?:" + "|".join(two for _, two in drawn) + ")",
            )
        ),
    )


def spans(pattern: str, text: str, cuts: frozenset[int], skip: str) -> list[int]:
    """Number of rows of each match."""
    define = {"A": "symbol = 'a'", "B": "symbol = 'b'", "C": "symbol = 'a' or PREV(symbol, 0) = 'b'"}
    used = {label: text for label, text in define.items() if label in pattern}
    step = recognised(
        pattern=pattern, define=used, measures={"n": "COUNT(*)"}, partition_by=(), after_match_skip=skip
    ).stateful
    assert isinstance(step, steps.KeyedProcess)
    matching = step.function.function
    assert isinstance(matching, RowMatching)
    recognition = Recognition(matching)
    matcher, lengths = RowMatcher(recognition), []
    for number, letter in enumerate(text):
        if number in cuts:
            state = matcher.dump()
            matcher = RowMatcher(recognition)
            matcher.load(state.get("rows", ()), state)
        lengths += matcher.push(Event(number, number, {"symbol": letter, "price": 0, "at": None}))
    return [outcome.row["n"] for outcome in lengths + matcher.advance(1_000, ended=True) if outcome.row is not None]


@pytest.mark.feature("C1")
@given(parts(2), st.text("abx", max_size=8), st.frozensets(st.integers(0, 7), max_size=3))
def test_matches_are_those_of_a_regular_expression(drawn: tuple[str, str], text: str, cuts: frozenset[int]) -> None:
    pattern, expression = drawn
    compiled = re.compile(expression, re.DOTALL)
    lengths, start = [], 0
    while start < len(text):
        match = compiled.match(text, start)
        if match is not None:
            lengths.append(match.end() - start)
        start += max(lengths[-1], 1) if match is not None else 1
    assert spans(pattern, text, cuts, "PAST LAST ROW") == lengths
    each = [match.end() - start for start in range(len(text)) if (match := compiled.match(text, start)) is not None]
    assert spans(pattern, text, cuts, "TO NEXT ROW") == each


def test_a_pattern_of_many_optional_rows_is_not_exponential() -> None:
    pattern = " ".join(["A?"] * 28 + ["B"])
    assert spans(pattern, "a" * 40 + "x", frozenset(), "PAST LAST ROW") == []


# ---- changes, failures, wrong use


@pytest.mark.feature("C3")
def test_another_pattern_is_searched_for_among_the_rows_that_wait() -> None:
    before = recognised(**FALL_AND_RISE)
    falls = {"pattern": "A B+", "define": {"B": "price < PREV(price)"}, "measures": {"low": "LAST(B.price)"}}
    after = recognised(**falls)
    deployed = Deployed(
        version=before.version,
        fingerprint=before.fingerprint,
        graph=before.canonical(),
        tables={output.table: list(output.schema.types.items()) for output in before.outputs},
    )
    assert plan(deployed, before).verdict == "no-op"
    changes = plan(deployed, recognised(**FALL_AND_RISE | {"pattern": "A B+ C"}))
    assert changes.verdict == "compatible state"
    assert "searched for among them" in changes.changes[0].otherwise
    case = Case(before).feed("quotes", quotes([90, 80, 70])).watermark(NOON + timedelta(minutes=2))
    case.operator, case.run = after, MemoryRun(after, case.run.savepoint())
    case.feed("quotes", quotes([75], first=3)).end().expect([{"low": 70}])


def test_a_step_is_explained_and_warns_of_what_waits() -> None:
    code = recognised(**FALL_AND_RISE)
    text = explain(code)[0]
    assert (
        "per symbol, in order of event time: A B+ C+, rows per match: one, the next match begins past the last row"
        in text
    )
    assert "define B: B.price < PREV(B.price)" in text
    assert any("match_recognize without within" in warning for warning in code.warnings)
    assert not recognised(**FALL_AND_RISE, within="1 hour").warnings


def test_a_skip_to_a_variable_without_a_row_and_too_many_rows_stop_the_run() -> None:
    define = {"A": "price = 1", "B": "price = 2"}
    with pytest.raises(UserCodeError, match="USER-021 .*a row of 'B' to continue at, got no row"):
        results([1, 3], pattern="A B?", define=define, measures={"n": "COUNT(*)"}, after_match_skip="TO LAST B")
    with pytest.raises(UserCodeError, match="USER-021 .*got the first row of the match"):
        results([1, 3], pattern="A B?", define=define, measures={"n": "COUNT(*)"}, after_match_skip="TO FIRST A")
    with pytest.raises(UserCodeError, match="USER-020 .*at most 3 waiting rows of a key, got 4"):
        results([1, 1, 1, 1, 1], pattern="A+", define={"A": "price = 1"}, measures={"n": "COUNT(*)"}, most=3)


def test_a_search_that_tries_all_combinations_of_rows_stops_the_run_and_one_without_labels_does_not() -> None:
    twenty = {"pattern": "A? " * 20 + "B", "measures": {"n": "COUNT(*)"}, "most": 100}
    by_label = {"A": "price > 0 AND coalesce(SUM(A.price), 0) >= 0", "B": "price < 0"}
    with pytest.raises(
        UserCodeError, match="USER-024 .*a match within 1,000 steps of its search, got more.*PREV.*above 100 "
    ):
        results([1] * 30, define=by_label, **twenty)
    local = {"A": "price > 0", "B": "price < 0"}
    assert results([1] * 30, define=local, **twenty) == []
    for most in (100, 900):
        with pytest.raises(
            UserCodeError, match="USER-024 .*within 100,000 steps of its search.*above 1,000 "
        ) as stopped:
            results([1] * 60, define=local, **twenty | {"pattern": "(A{0,1000}){0,90} B", "most": most})
        assert "PREV" not in str(stopped.value)


@pytest.mark.parametrize(
    ("divided", "first"), [("1 / PREV(price) > 0", 3), ("1 / LAST(A.price) > 0", 3), ("1 / price > 0", 2)]
)
def test_a_condition_without_a_value_stops_the_run_or_moves_its_row_to_the_quarantine(divided: str, first: int) -> None:
    clause = {"pattern": "A B", "define": {"B": divided}, "measures": {"a": "A.price", "b": "B.price"}}
    with pytest.raises((UserCodeError, ExecutionError), match=r"(?s)(USER-001|EXECUTION-050).*pattern.*(z|Z)ero"):
        results([0, 2, 3], **clause)
    case = Case(recognised(**clause, within="90 s", on_error="quarantine"))
    case.feed("quotes", quotes([0, 2, 3, 4])).end().expect([{"symbol": "x", "a": first, "b": first + 1}])
    assert len(case.results("quarantine")) == 1


LENGTHS = (
    "at - PREV(at) < INTERVAL '90' SECONDS",
    "at < PREV(at) + INTERVAL '1' MINUTE + INTERVAL 30 SECONDS",
    "NOT (at - INTERVAL 1 MINUTE 30 SECONDS >= LAST(at, 1))",
    "LAST(at, 1) BETWEEN at - INTERVAL '89.999999' SECONDS AND at",
    "CASE WHEN at - PREV(at) >= INTERVAL '90 seconds' THEN false ELSE true END",
    "TIMESTAMPDIFF(MILLISECOND, PREV(at), at) < 90000",
)


@pytest.mark.feature("C1")
@pytest.mark.parametrize("condition", LENGTHS)
@given(gaps=st.lists(st.sampled_from([0, 1, 89_999_999, 90_000_000, 90_000_001, 3_600_000_000]), max_size=8))
def test_a_length_of_time_divides_rows_into_sessions_to_the_microsecond(condition: str, gaps: list[int]) -> None:
    moments = [NOON + timedelta(microseconds=micros) for micros in itertools.accumulate([0, *gaps])]
    rows = [{"at": at, "symbol": "x", "price": number} for number, at in enumerate(moments)]
    measures = {"n": "COUNT(*)", "minutes": "TIMESTAMPDIFF(MINUTE, FIRST(at), LAST(at))"}
    code = recognised(pattern="B S*", define={"S": condition}, measures=measures, order_by="price")
    got = [(row["n"], row["minutes"]) for row in Case(code).feed("quotes", rows).end().results()]
    sessions: list[list[datetime]] = []
    for at in moments:
        if sessions and at - sessions[-1][-1] < timedelta(seconds=90):
            sessions[-1].append(at)
        else:
            sessions.append([at])
    assert got == [(len(part), (part[-1] - part[0]) // timedelta(minutes=1)) for part in sessions]


class Reading(fm.Contract):
    """A value of a sensor."""

    at: fm.EventTime
    number: int
    value: float | None


@pytest.mark.parametrize("nulls", ["", " NULLS FIRST", " NULLS LAST"])
@pytest.mark.parametrize("direction", ["", " DESC"])
@given(values=st.permutations([None, math.nan, -1.0, 0.0, 2.5]))
def test_rows_of_one_instant_are_ordered_as_sql_orders_nulls_and_nan(
    direction: str, nulls: str, values: list[float | None]
) -> None:
    sql = f"""SELECT * FROM readings MATCH_RECOGNIZE (ORDER BY at, value{direction}{nulls} MEASURES ARRAY_AGG(number) AS numbers
              PATTERN (A+))"""
    code = fm.sql_operator("ordered", sql, inputs={"readings": Reading})
    rows = [{"at": NOON, "number": number, "value": value} for number, value in enumerate(values)]
    (row,) = Case(code).feed("readings", rows).end().results()
    ascending: list[float | None] = [-1.0, 0.0, 2.5, math.nan]
    wanted = ascending[::-1] if direction else ascending
    first = "FIRST" in nulls or not (direction or nulls)
    wanted = [None, *wanted] if first else [*wanted, None]
    assert list(map(repr, (values[number] for number in row["numbers"]))) == list(map(repr, wanted))


def test_aggregates_over_different_values() -> None:
    measures = {
        "n": "COUNT(DISTINCT price)",
        "total": "SUM(DISTINCT A.price)",
        "mean": "AVG(DISTINCT price)",
        "low": "MIN(DISTINCT price)",
        "all": "FINAL COUNT(DISTINCT price)",
        "signs": "COUNT(DISTINCT -price)",
        "halves": "COUNT(DISTINCT (price + 1) DIV 2)",
    }
    rows = results([5, 7, 5, 5, 9, 7], pattern="A+", define={"A": "COUNT(DISTINCT A.price) < 3"}, measures=measures)
    assert [tuple(row[name] for name in measures) for row in rows] == [
        (2, 12, 6.0, 5, 2, 2, 2),
        (2, 16, 8.0, 7, 2, 2, 2),
    ]


def test_a_pattern_over_different_values_has_another_version_than_where_all_were_counted() -> None:
    def settings(measure: str, condition: str) -> Any:
        made = recognised(pattern="A+", define={"A": condition}, measures={"n": measure})
        return made.stages[0].function.function.canonical()["settings"]

    for measure, condition in (("COUNT(DISTINCT price)", "price > 1"), ("1", "SUM(DISTINCT A.price) < 3")):
        texts = [text for text in (measure, condition) if "DISTINCT" in text]
        assert settings(measure, condition)["distinct"] == texts
    assert "distinct" not in settings("MIN(DISTINCT price)", "COUNT(A.price) < 3")


GOOD: dict[str, Any] = {"pattern": "A B", "define": {"B": "price > 1"}, "measures": {"n": "COUNT(*)"}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an open parenthesis": ({"pattern": "A (B"}, r"DEFINITION-430 .*no \) at its place"),
    "many parentheses": ({"pattern": "(" * 500 + "A" + ")" * 500}, "DEFINITION-430 .*more than 50 parentheses"),
    "many parentheses in a condition": (
        {"define": {"B": "(" * 2000 + "price > 1" + ")" * 2000}},
        "DEFINITION-021 .*levels within each other",
    ),
    "nothing": ({"pattern": " "}, "DEFINITION-430 .*empty pattern is"),
    "no text": ({"pattern": 5}, "DEFINITION-430"),
    "another sign": ({"pattern": "A & B"}, "DEFINITION-430 .*& B"),
    "a quantifier of none": ({"pattern": "A{0,0}"}, "DEFINITION-430"),
    "a quantifier without a number": ({"pattern": "A{}"}, "DEFINITION-430 .*{}"),
    "numbers the other way": ({"pattern": "A{3,2}"}, "DEFINITION-430"),
    "a great number": ({"pattern": "A{5000}"}, "DEFINITION-430 .*1,000"),
    "great numbers multiplied": ({"pattern": "(A B{0,1000}){1000}"}, "DEFINITION-430 .*one of 1,001,000 variables"),
    "many permutations": ({"pattern": "PERMUTE(A,B,C,D,E,F,G,H)", "define": {}}, "DEFINITION-430 .*PERMUTE of 8"),
    "an unknown variable in DEFINE": ({"define": {"BB": "price > 1"}}, "DEFINITION-431 .*Did you mean 'B'|DEFINITION-431 .*Variables: A, B"),
    "an unknown variable in a condition": ({"define": {"B": "price > C.price"}}, "DEFINITION-422 .*'C'"),
    "an unknown column": ({"define": {"B": "pirce > 1"}}, "DEFINITION-022 .*Did you mean 'price'"),
    "no condition": ({"define": {"B": "price"}}, "DEFINITION-024"),
    "a subset of unknown variables": ({"subset": {"U": ["A", "X"]}}, "DEFINITION-431"),
    "a subset named as a variable": ({"subset": {"A": ["A", "B"]}}, "DEFINITION-431"),
    "other rows": ({"rows_per_match": "SOME ROWS"}, "DEFINITION-432"),
    "another place": ({"after_match_skip": "SOMEWHERE"}, "DEFINITION-432"),
    "an unknown place": ({"after_match_skip": "TO LAST X"}, "DEFINITION-431"),
    "unmatched rows and an exclusion": ({"pattern": "A {- B -}", "rows_per_match": "ALL ROWS PER MATCH WITH UNMATCHED ROWS"}, "DEFINITION-432"),
    "a measure named as a column": ({"measures": {"price": "A.price"}, "rows_per_match": "ALL ROWS PER MATCH"}, "DEFINITION-050"),
    "an unknown order": ({"order_by": "pirce"}, "DEFINITION-022"),
    "no time": ({"within": "0 s"}, "DEFINITION-055"),
    "no number": ({"most": 0}, "DEFINITION-426"),
    "a measure without a type": ({"measures": {"n": "NULL"}}, "DEFINITION-043"),
    "no SQL": ({"measures": {"n": "LAST("}}, "DEFINITION-021"),
    "a measure that is no text": ({"measures": {"n": 5}}, "DEFINITION-020"),
    "a negative offset": ({"measures": {"n": "PREV(price, -1)"}}, "DEFINITION-422"),
    "navigation in navigation": ({"measures": {"n": "FIRST(PREV(price))"}}, "DEFINITION-422"),
    "two variables": ({"measures": {"n": "SUM(A.price + B.price)"}}, "DEFINITION-422 .*A and B"),
    "different values of another function": ({"measures": {"n": "ARRAY_AGG(DISTINCT price)"}}, "DEFINITION-423 .*array_agg_distinct"),
    "a month, which has no length": ({"define": {"B": "at - PREV(at) < INTERVAL '1' MONTH"}}, "DEFINITION-423"),
    "a length of a number": ({"define": {"B": "price - PREV(price) < INTERVAL '1' DAY"}}, "DEFINITION-423 .*unix_micros of bigint"),
    "a classifier of a column": ({"measures": {"n": "CLASSIFIER(price)"}}, "DEFINITION-422"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_clause_is_refused_when_it_is_defined(wrong: dict[str, Any], says: str) -> None:
    make: Callable[[], object] = lambda: recognised(**GOOD | wrong)  # noqa: E731 - one line
    with pytest.raises(DefinitionError, match=f"(?s){says}"):
        make()
