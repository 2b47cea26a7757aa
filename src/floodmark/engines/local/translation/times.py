"""Functions of dates and timestamps."""

from __future__ import annotations

import re
from collections.abc import Mapping

from floodmark.engines.local.casts import NotTranslated, failure, sql_type, text
from floodmark.engines.local.patterns import strftime
from floodmark.engines.local.translation.operand import Operand, Rule, template
from floodmark.spec.expressions.tree import Call, Literal
from floodmark.spec.expressions.widening import INTEGERS

_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}
"""Length of the units that are always as long."""
_UNITS = frozenset({"year", "month", *_MICROSECONDS, "millisecond", "microsecond"})
_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year({0})"),
    **dict.fromkeys(("quarter", "qtr"), "quarter({0})"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month({0})"),
    **dict.fromkeys(("week", "w", "weeks"), "weekofyear({0})"),
    **dict.fromkeys(("day", "d", "days"), "day({0})"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek({0}) + 1"),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), "isodow({0})"),
    "doy": "dayofyear({0})",
    "yearofweek": "isoyear({0})",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour({0})"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute({0})"),
}
"""Whole parts of a timestamp; ``second`` has a fraction."""
_TRUNCATED: Mapping[str, str] = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("quarter", "week", "hour", "minute", "second", "millisecond", "microsecond")},
}


def _utc(value: Operand) -> str:
    """A timestamp as the clock of UTC shows it."""
    return f"CAST({value.cast('timestamp')} AS TIMESTAMP)"


def _local(value: Operand) -> str:
    """A date, or a timestamp as the clock of UTC shows it."""
    return value.sql() if value.type == "date" else _utc(value)


def moved(operator: str, left: Operand, right: Operand, kind: str) -> str:
    """A date or timestamp, plus or minus days or an interval.

    Raises:
        NotTranslated: the interval is not a literal of whole units.
    """
    if right.type in {"date", "timestamp"}:
        left, right = right, left
    if right.type in INTEGERS:
        return f"CAST({left.cast('date')} {operator} {right.cast('int')} AS DATE)"
    parts = _interval(right)
    if kind == "date" and any(unit not in {"month", "week", "day"} for unit, _ in parts):
        raise NotTranslated("a date and hours")
    moment = f"CAST({left.cast(kind)} AS TIMESTAMP)"
    for unit, count in parts:
        if unit not in _UNITS:
            raise NotTranslated(f"an interval of {unit}")
        moment = f"({moment} {operator} to_{unit}s({count}))"
    return f"CAST({moment} AS {sql_type(kind)})"


def _interval(operand: Operand) -> list[tuple[str, int]]:
    """(unit, count) of an interval literal: the months in all first, as Spark adds them first."""
    node = operand.typed.node
    if not isinstance(node, Call) or node.name != "interval":
        raise NotTranslated("an interval that is not written out")
    months, parts = 0, []
    for value, unit in zip(node.arguments[::2], node.arguments[1::2], strict=True):
        if (
            not isinstance(value, Literal)
            or not isinstance(unit, Literal)
            or not re.fullmatch(r"[+-]?\d+", str(value.value))
        ):
            raise NotTranslated("an interval that is not a whole number")
        name, count = str(unit.value).lower(), int(str(value.value))
        if name in {"year", "month"}:
            months += count * 12 if name == "year" else count
        else:
            parts.append((name, count))
    return [("month", months), *parts] if months else parts


def _part(form: str) -> Rule:
    """A part of a date or a timestamp, an integer."""
    return lambda call: f"CAST({form.format(_local(call.children[-1]))} AS INTEGER)"


def _extract(call: Operand) -> str:
    part, source = str(call.children[0].constant).lower(), call.children[1]
    if source.type not in {"date", "timestamp"}:
        raise NotTranslated(f"a part of {source.type}")
    if part in _PARTS:
        return _part(_PARTS[part])(call)
    microseconds = f"CAST(microsecond(CAST({_local(source)} AS TIMESTAMP)) AS DECIMAL(8,0))"
    return f"CAST({microseconds} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(8,6))"


def _date_trunc(call: Operand) -> str:
    unit = _TRUNCATED.get(str(call.children[0].constant).lower())
    if unit is None:
        raise NotTranslated(f"date_trunc to {call.children[0].constant!r}")
    return f"CAST(date_trunc('{unit}', {_utc(call.children[1])}) AS TIMESTAMPTZ)"


def _trunc(call: Operand) -> str:
    unit = _TRUNCATED.get(str(call.children[1].constant).lower())
    if unit not in {"year", "quarter", "month", "week"}:
        raise NotTranslated(f"trunc to {call.children[1].constant!r}")
    return f"CAST(date_trunc('{unit}', {call.children[0].cast('date')}) AS DATE)"


def _date_format(call: Operand) -> str:
    value, pattern = call.children
    moment = _utc(value)
    formatted = f"strftime({moment}, {text(strftime(str(pattern.constant)))})"
    other = failure("CAPABILITY-030 date_format of a year outside 1000 to 9999", attempt=False)
    return f"CASE WHEN year({moment}) BETWEEN 1000 AND 9999 THEN {formatted} WHEN {moment} IS NOT NULL THEN {other} END"


def _timestampdiff(call: Operand) -> str:
    unit = _unit(call)
    if unit not in _MICROSECONDS:
        raise NotTranslated(f"timestampdiff in {unit}s")
    begin, end = (child.cast("timestamp") for child in call.children[1:])
    return f"(epoch_us({end}) - epoch_us({begin})) // {_MICROSECONDS[unit]}"


def _timestampadd(call: Operand) -> str:
    unit = _unit(call)
    if unit not in _UNITS:
        raise NotTranslated(f"timestampadd in {unit}s")
    count, moment = call.children[1:]
    return f"CAST({_utc(moment)} + to_{unit}s({count.cast('int')}) AS TIMESTAMPTZ)"


def _unit(call: Operand) -> str:
    """The first argument, a unit in the singular."""
    return str(call.children[0].constant).lower().removesuffix("s")


def _from_utc(call: Operand) -> str:
    moment, zone = call.children
    name = str(zone.constant)
    if "/" not in name and name != "UTC":
        raise NotTranslated(f"the zone {name!r}")
    value = moment.cast("timestamp")
    other = failure("CAPABILITY-030 local time before 1900", attempt=False)
    local = f"CAST(timezone({text(name)}, {value}) AS TIMESTAMPTZ)"
    return f"CASE WHEN year({value}) >= 1900 THEN {local} WHEN {value} IS NOT NULL THEN {other} END"


def _unix_timestamp(call: Operand) -> str:
    """Seconds since 1970, cut towards 1970; ``unix_seconds`` cuts towards the past."""
    (value,) = call.children
    if value.type not in {"timestamp", "date"}:
        raise NotTranslated(f"a value of type {value.type}")
    return f"epoch_us({value.cast('timestamp')}) // 1000000"


def _since_epoch(microseconds: int) -> Rule:
    """Time since 1970 in units of so many microseconds."""
    return template(f"spark_floor_div(epoch_us({{0}}), {microseconds})", "timestamp")


def _moment(microseconds: int) -> Rule:
    """The timestamp so many units after 1970."""

    def rule(call: Operand) -> str:
        (count,) = call.children
        if count.type not in INTEGERS:
            raise NotTranslated(f"a moment of {count.type}")
        return f"CAST(make_timestamp({count.cast('bigint')} * {microseconds}) AS TIMESTAMPTZ)"

    return rule


RULES: Mapping[str, Rule] = {
    **{
        name: _part(f"{name}({{0}})")
        for name in ("year", "month", "quarter", "dayofyear", "weekofyear", "hour", "minute", "second")
    },
    **dict.fromkeys(("day", "dayofmonth"), _part("day({0})")),
    "dayofweek": _part("dayofweek({0}) + 1"),
    "weekday": _part("isodow({0}) - 1"),
    **dict.fromkeys(("extract", "date_part", "datepart"), _extract),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_format": _date_format,
    "dayname": template("strftime({0}, '%a')", "date"),
    "monthname": template("strftime({0}, '%b')", "date"),
    "date_add": template("CAST({0} + {1} AS DATE)", "date", "int"),
    "date_sub": template("CAST({0} - {1} AS DATE)", "date", "int"),
    **dict.fromkeys(("datediff", "date_diff"), template("CAST({0} - {1} AS INTEGER)", "date", "date")),
    "add_months": template("CAST({0} + to_months({1}) AS DATE)", "date", "int"),
    "last_day": template("last_day({0})", "date"),
    "make_date": template("make_date({0}, {1}, {2})", "int", "int", "int"),
    "to_date": template("{0}", "date"),
    "to_timestamp": template("{0}", "timestamp"),
    "unix_seconds": _since_epoch(1_000_000),
    "unix_millis": _since_epoch(1_000),
    "unix_micros": _since_epoch(1),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _unix_timestamp),
    "unix_date": template("CAST({0} - DATE '1970-01-01' AS INTEGER)", "date"),
    "date_from_unix_date": template("CAST(DATE '1970-01-01' + {0} AS DATE)", "int"),
    "timestamp_seconds": _moment(1_000_000),
    "timestamp_millis": _moment(1_000),
    "timestamp_micros": _moment(1),
    "timestampdiff": _timestampdiff,
    "timestampadd": _timestampadd,
    "from_utc_timestamp": _from_utc,
}
"""Function -> its translation."""
