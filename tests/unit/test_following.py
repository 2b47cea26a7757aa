"""Which operators can follow a rebuild of what they read as a difference: those whose results are a function of the rows alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from followed import evens, hours, pairs, sums, totals

from floodmark import Operator, Stream, collect, count, last, max_by, operator, sum
from floodmark.compiler.following import obstacle


def reading(body: Callable[[Stream], Stream]) -> Operator:
    def reader(totals: Stream) -> Stream:
        return body(totals)

    return operator(reader, inputs={"totals": totals("plain")})


@pytest.mark.parametrize("define", [evens, sums, pairs])
def test_steps_without_state_aggregates_over_all_rows_and_joins_of_all_rows_can(define: Callable[[], Operator]) -> None:
    assert obstacle(define().canonical()) == ""


def test_windows_cannot() -> None:
    assert obstacle(hours().canonical()) == "results of step 'hours' depend on event time"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda rows: rows.filter("1 / n > 0", on_error="quarantine"),
            "it sets rows aside, which are never taken back",
        ),
        (
            lambda rows: rows.key_by("key").rolling(n=count()).filter("1 / n > 0", on_error="quarantine"),
            "it sets rows aside, which are never taken back",
        ),
        (
            lambda rows: rows.key_by("key").regular_join(rows.select("key", other="n").key_by("key"), ttl="1 day"),
            "join 'reader' forgets rows by their event time",
        ),
        (
            lambda rows: rows.key_by("key").rolling(n=count()).key_by("n").rolling(keys=count(), all=sum("n")),
            "",
        ),
        (
            lambda rows: rows.key_by("key").rolling(n=count(), newest=last("n")),
            "aggregate 'newest' of step 'reader' depends on the order in which rows arrive",
        ),
        (
            lambda rows: rows.key_by("key").rolling(all=collect("n")),
            "aggregate 'all' of step 'reader' depends on the order in which rows arrive",
        ),
        (
            lambda rows: rows.key_by("key").rolling(most=max_by("n", "total")),
            "aggregate 'most' of step 'reader' depends on the order in which rows arrive",
        ),
        (
            lambda rows: rows.filter("total > 0").with_columns(chance="n + rand()"),
            "rand() has another value for a row that is taken back",
        ),
        (lambda rows: rows.filter("window_end < now()"), "now() has another value for a row that is taken back"),
        (
            lambda rows: rows.with_columns(seen="CURRENT_TIMESTAMP"),
            "current_timestamp() has another value for a row that is taken back",
        ),
        (
            lambda rows: rows.with_columns(text="'now()'", time="unix_timestamp(key, 'yyyy')", high="upper(key)"),
            "",
        ),
    ],
    ids=[
        "quarantine",
        "quarantine behind state",
        "ttl",
        "two stages",
        "last",
        "collect",
        "max_by",
        "chance",
        "clock",
        "clock without parentheses",
        "functions of values",
    ],
)
def test_each_step_counts(body: Callable[[Stream], Stream], reason: str) -> None:
    assert obstacle(reading(body).canonical()) == reason
