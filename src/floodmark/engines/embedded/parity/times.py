"""Rewrites of functions of times: Sail computes some of them in nanoseconds, which end in the year 2262."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from floodmark.spec.expressions.tree import Literal
from floodmark.spec.expressions.typed import Typed

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_DAY = _MICROS["day"]
_MONTHS = {"month": 1, "mon": 1, "mm": 1, "quarter": 3, "year": 12, "yyyy": 12, "yy": 12}
_MONDAY = 3 * _DAY
"""Microseconds from the Monday before 1970 to 1970."""


def floored(micros: str, unit: int) -> str:
    """SQL of microseconds rounded down to whole units, as microseconds."""
    return micros if unit == 1 else f"({micros} - pmod({micros}, {unit}L))"


def seconds(moment: str) -> str:
    """SQL of a timestamp's whole seconds, rounded down."""
    return f"CAST({floored(f'unix_micros({moment})', 1_000_000)} DIV 1000000L AS bigint)"


def _whole(unit: int) -> Callable[[Typed, Sequence[str]], str]:
    return lambda _, parts: f"CAST({floored(f'unix_micros({_moment(parts[0])})', unit)} DIV {unit}L AS bigint)"


def _moment(value: str) -> str:
    return f"CAST({value} AS timestamp)"


def _date(value: str) -> str:
    return f"CAST({value} AS date)"


def refused(what: str, kind: str) -> str:
    """SQL that raises the error for a row whose value Sail would compute otherwise than Spark."""
    return f"CAST(raise_error('CAPABILITY-031 {what}: run it with --engine spark') AS {kind})"


def _zoned(name: str) -> Callable[[Typed, Sequence[str]], str]:
    """A function of time zones: refuses years outside 1900 to 2099, for which Sail has other offsets or no summer time."""

    def rewrite(_: Typed, parts: Sequence[str]) -> str:
        moment = _moment(parts[0])
        known = f"{moment} IS NULL OR year({moment}) BETWEEN 1900 AND 2099"
        return f"CASE WHEN {known} THEN {name}({moment}, {parts[1]}) ELSE {refused('time zones outside 1900 to 2099', 'timestamp')} END"

    return rewrite


def _difference(node: Typed, parts: Sequence[str]) -> str | None:
    """``timestampdiff``: whole units, rounded towards zero."""
    size = _MICROS.get(_unit(node.children[0]), 7 * _DAY if _unit(node.children[0]) == "week" else 0)
    if not size:
        return None
    return f"((unix_micros({_moment(parts[2])}) - unix_micros({_moment(parts[1])})) DIV {size}L)"


def _unit(node: Typed) -> str:
    literal = node.node
    return str(literal.value).lower() if isinstance(literal, Literal) else ""


def _first(day: str, months: int) -> str:
    """The first day of the month, quarter or year of a date."""
    month = "1" if months == 12 else f"month({day})"  # noqa: PLR2004 - of a year
    if months == 3:  # noqa: PLR2004 - of a quarter
        month = f"CAST(quarter({day}) * 3 - 2 AS int)"
    return f"make_date(year({day}), {month}, 1)"


def _monday(day: str) -> str:
    return f"date_sub({day}, CAST({_weekday(day)} AS int))"


def _weekday(day: str) -> str:
    """Days since Monday."""
    return f"pmod(dayofweek({day}) + 5, 7)"


def _truncated(node: Typed, parts: Sequence[str]) -> str | None:
    """``date_trunc``."""
    unit, moment = _unit(node.children[0]), _moment(parts[1])
    if unit in _MONTHS:
        return _moment(_first(_date(parts[1]), _MONTHS[unit]))
    if unit == "week":
        micros = f"unix_micros({moment})"
        return f"timestamp_micros({micros} - pmod({micros} + {_MONDAY}L, {7 * _DAY}L))"
    size = _MICROS.get({"dd": "day"}.get(unit, unit))
    return f"timestamp_micros({floored(f'unix_micros({moment})', size)})" if size else None


def _cut(node: Typed, parts: Sequence[str]) -> str | None:
    """``trunc`` of a date."""
    unit, day = _unit(node.children[1]), _date(parts[0])
    if unit in _MONTHS:
        return _first(day, _MONTHS[unit])
    return _monday(day) if unit == "week" else None


def _week(_: Typed, parts: Sequence[str]) -> str:
    """``weekofyear``: the week of its Thursday, counted from the first of January."""
    day = _date(parts[0])
    return f"((dayofyear(date_add({_monday(day)}, 3)) + 6) DIV 7)"


def _extracted(node: Typed, parts: Sequence[str]) -> str | None:
    unit = _unit(node.children[0])
    if unit in {"dow", "dayofweek"}:
        return f"dayofweek({parts[1]})"
    if unit in {"dow_iso", "dayofweek_iso"}:
        return f"({_weekday(parts[1])} + 1)"
    if unit in {"week", "weeks", "w"}:
        return _week(node, parts[1:])
    name = _PARTS.get(unit)
    return None if name is None else f"{name}({parts[1]})"


_PARTS = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year"),
    **dict.fromkeys(("quarter", "qtr"), "quarter"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month"),
    **dict.fromkeys(("day", "d", "days"), "day"),
    "doy": "dayofyear",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute"),
}

REWRITES: Mapping[str, Callable[[Typed, Sequence[str]], str | None]] = {
    "date_trunc": _truncated,
    "trunc": _cut,
    "weekofyear": _week,
    "weekday": lambda _, parts: _weekday(parts[0]),
    **dict.fromkeys(("extract", "date_part", "datepart"), _extracted),
    **{name: _zoned(name) for name in ("from_utc_timestamp", "to_utc_timestamp")},
    "timestampdiff": _difference,
    "unix_seconds": _whole(1_000_000),
    "unix_millis": _whole(1_000),
    "dayname": lambda _, parts: (
        f"element_at(array('Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'), dayofweek({parts[0]}))"
    ),
}
"""Function -> its rewrite."""
