"""A few readings, one of them late, and their hourly sums."""

from __future__ import annotations

import floodmark as fm


class Reading(fm.Contract):
    """A number of a sensor."""

    at: fm.EventTime
    sensor: str
    value: int | None


@fm.operator
def sums(readings: fm.Stream[Reading]) -> fm.Stream:
    """Hourly sums that late rows revise."""
    window = readings.key_by("sensor").window(fm.Tumbling("1 hour"), allowed_lateness="1 hour")
    return window.aggregate(n=fm.count(), total=fm.sum("value"))


ROWS = """
| at               | sensor | value |
|------------------|:------:|------:|
| 2013-01-01 09:05 | a      |     2 |
| 2013-01-01 10:59 | a      |       |
| 2013-01-01 09:10 | a      |     3 |
| 2013-01-01 07:10 | a      |   100 |
"""
