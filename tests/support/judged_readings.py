"""Readings of which some do not meet expectations, and operators whose runs judge them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import floodmark as fm

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class Reading(fm.Contract):
    """A temperature."""

    at: fm.EventTime
    sensor: str
    celsius: float | None


@fm.operator
def means(readings: fm.Stream[Reading]) -> fm.Stream:
    """Mean per sensor and hour, revised by late rows."""
    window = readings.key_by("sensor").window(fm.Tumbling("1 hour"), allowed_lateness="1 day")
    return window.aggregate(n=fm.count(), mean=fm.mean("celsius"))


@fm.operator
def warm(readings: fm.Stream[Reading]) -> fm.Stream:
    """Without state."""
    return readings.filter("celsius > 0").with_columns(fahrenheit="celsius * 1.8D + 32D")


def rows(*celsius: float | None) -> dict[str, list[dict[str, Any]]]:
    """Two sensors in turn, a row each ten minutes."""
    return {
        "readings": [
            {"at": BEGIN + timedelta(minutes=10 * n), "sensor": "ab"[n % 2], "celsius": value}
            for n, value in enumerate(celsius)
        ]
    }


ODD = rows(1.0, 99.0, None, 50.0, 3.0, -273.15, float("nan"), 20.0, None, 21.0, 5.0, 7.5)
PLAIN = rows(1.0, 99.0, None, 50.0, 3.0, -273.15, 7.0, 20.0, None, 21.0, 5.0, 7.5)


def between(on_fail: Any, column: str = "mean", **more: Any) -> fm.Expectation:
    """At most 40 degrees."""
    return fm.Expectation(
        "column_values_to_be_between", column=column, max_value=40, on_fail=on_fail, name="cool", **more
    )


def expecting(operator: fm.Operator, *expectations: fm.Expectation) -> fm.Operator:
    """The operator of an asset with expectations."""
    return fm.operator_asset(operator, expectations=expectations).operator
