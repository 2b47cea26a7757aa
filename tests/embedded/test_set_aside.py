"""Rows that functions fail for on the embedded engine, before the stateful step and behind it."""

from __future__ import annotations

import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.testing import Run


class Noted(fm.Contract):
    """A number."""

    at: fm.EventTime
    key: str
    value: int


def _even(row):
    if row["value"] % 2:
        message = f"no {row['value']}"
        raise ValueError(message)
    yield row


def _small(row):
    if row["total"] > 10:
        message = f"too much: {row['total']}"
        raise ValueError(message)
    yield {"key": row["key"], "total": row["total"]}


class Total(fm.Contract):
    """Of a key."""

    key: str
    total: int


@fm.operator
def failing_twice(rows: fm.Stream[Noted]) -> fm.Stream:
    """Rows are set aside before the window, and results behind it."""
    even = rows.flat_map(_even, Noted, on_error="quarantine")
    totals = even.key_by("key").window(fm.Tumbling("1 hour")).aggregate(total=fm.sum("value"))
    return totals.flat_map(_small, Total, on_error="quarantine")


@pytest.mark.parametrize("mode", ["bounded", "unbounded"])
def test_rows_that_fail_before_and_behind_the_stateful_step_are_all_set_aside(mode):
    rows = [{"at": from_ms(n), "key": "ab"[n % 4 // 2], "value": n} for n in range(9)]
    found = Run("embedded", mode)(failing_twice, {"rows": rows})
    assert found == Run("memory", "bounded")(failing_twice, {"rows": rows})
    reasons = sorted(row["reason"].split(": ", 1)[1] for row in found["quarantine"])
    assert reasons == ["no 1", "no 3", "no 5", "no 7", "too much: 12"]
