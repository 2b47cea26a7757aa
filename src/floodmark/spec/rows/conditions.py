"""Conditions of one column, as SQL: which rows meet an expectation, by its arguments and the type of the column.

Source: Great Expectations 1.24, its metrics for Spark: which values meet an expectation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from floodmark.core.sql import spark_literal
from floodmark.core.types import Type, known
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Schema

_LONGEST = 4_000
"""Most characters of a set or pattern that becomes SQL."""


class NotCompiledError(Exception):
    """Why an expectation has no SQL; a text that ends a sentence."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the rows."""

    schema: Schema

    def type(self, name: Any, *families: str) -> Type:
        """The type of a column, which is of one of some families: ``number``, ``text``, ``time``, ``boolean``, ``binary``."""
        if name not in self.schema:
            message = f"there is no column {name!r}"
            raise NotCompiledError(message)
        kind = known(self.schema[name].type)
        if kind is None or (families and family_of(kind) not in families):
            message = f"column '{name}' is {self.schema[name].type}"
            raise NotCompiledError(message)
        return kind


def family_of(kind: Type) -> str:
    """The family of a type: ``number``, ``text``, ``time``, ``boolean``, ``binary`` or ``nested``."""
    families = {"string": "text", "date": "time", "timestamp": "time", "boolean": "boolean", "binary": "binary"}
    return "number" if kind.is_numeric else families.get(str(kind), "nested")


def quoted(column: str) -> str:
    """A column in Spark SQL."""
    return f"`{column}`"


def literal_of(value: Any, kind: Type) -> str:
    """A JSON value as a literal that can be compared with values of a type."""
    family = family_of(kind)
    if isinstance(value, bool):
        if family == "boolean":
            return str(value).lower()
    elif isinstance(value, int) and family == "number":
        if -(1 << 63) <= value < 1 << 63:
            return str(value)
    elif isinstance(value, float) and family == "number":
        return f"{value!r}D" if math.isfinite(value) else f"CAST('{value!r}' AS double)"
    elif isinstance(value, str) and family == "text":
        return spark_literal(value)
    elif isinstance(value, str) and family == "time":
        return _instant(value, kind)
    message = f"{value!r} is no {kind}"
    raise NotCompiledError(message)


def _instant(text: str, kind: Type) -> str:
    try:
        if str(kind) == "date":
            return f"DATE '{date.fromisoformat(text).isoformat()}'"
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no {kind} in ISO 8601"
        raise NotCompiledError(message) from error
    utc = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    return f"TIMESTAMP '{utc.replace(tzinfo=None).isoformat(' ', 'microseconds')}Z'"


def _limits(expectation: Expectation, value: str, kind: Type) -> str:
    """The SQL condition of ``min_value`` and ``max_value``; at least one of them is set."""
    arguments = expectation.values
    conditions = []
    for name, strict, operator in (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<")):
        if arguments.get(name) is not None:
            conditions.append(
                f"{value} {operator}{'' if arguments.get(strict) else '='} {literal_of(arguments[name], kind)}"
            )
    if not conditions:
        message = "neither min_value nor max_value is set"
        raise NotCompiledError(message)
    return " AND ".join(conditions)


def _ordered(expectation: Expectation) -> None:
    low, high = (expectation.values.get(name) for name in ("min_value", "max_value"))
    if low is not None and high is not None and (isinstance(low, str) != isinstance(high, str) or low > high):
        message = f"min_value {low!r} is above max_value {high!r}"
        raise NotCompiledError(message)


# ---- conditions of a column: (expectation, type of the column) -> SQL of the rows that meet the expectation


Condition = Callable[[Expectation, str, Type], str]


def between(expectation: Expectation, value: str, kind: Type) -> str:
    """Within ``min_value`` and ``max_value``, of which at least one is set."""
    _ordered(expectation)
    return _limits(expectation, value, kind)


def in_set(expectation: Expectation, value: str, kind: Type) -> str:
    """One of ``value_set``."""
    values = expectation.values.get("value_set")
    if not isinstance(values, list):
        message = f"value_set is {values!r}"
        raise NotCompiledError(message)
    if family_of(kind) == "time":
        message = "a set of instants is not compiled"
        raise NotCompiledError(message)
    if kind.is_decimal and any(isinstance(one, float) for one in values):
        message = "a decimal is compared with whole numbers only"
        raise NotCompiledError(message)
    if kind.is_floating:
        values = [float(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in values]
    texts = [literal_of(one, kind) for one in values]
    return f"{value} IN ({_short(', '.join(texts))})" if texts else "false"


def not_in_set(expectation: Expectation, value: str, kind: Type) -> str:
    """None of ``value_set``."""
    return f"NOT ({in_set(expectation, value, kind)})"


def regex(expectation: Expectation, value: str, _: Type) -> str:
    """Matches ``regex``."""
    return f"{value} RLIKE {_pattern(expectation.values.get('regex'))}"


def not_regex(expectation: Expectation, value: str, kind: Type) -> str:
    """Does not match ``regex``."""
    return f"NOT ({regex(expectation, value, kind)})"


def _patterns(expectation: Expectation, value: str) -> list[str]:
    patterns = expectation.values.get("regex_list")
    if not isinstance(patterns, list) or not patterns:
        message = f"regex_list is {patterns!r}"
        raise NotCompiledError(message)
    return [f"{value} RLIKE {_pattern(one)}" for one in patterns]


def regexes(expectation: Expectation, value: str, _: Type) -> str:
    """Matches any, or all, of ``regex_list``."""
    joined = {"any": " OR ", "all": " AND "}.get(expectation.values.get("match_on", "any"))
    if joined is None:
        message = "match_on is neither 'any' nor 'all'"
        raise NotCompiledError(message)
    return joined.join(f"({one})" for one in _patterns(expectation, value))


def no_regexes(expectation: Expectation, value: str, _: Type) -> str:
    """Matches none of ``regex_list``."""
    return " AND ".join(f"NOT ({one})" for one in _patterns(expectation, value))


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        message = f"the pattern is {pattern!r}"
        raise NotCompiledError(message)
    return _short(spark_literal(pattern))


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        message = f"it would be {len(text):,} characters of SQL"
        raise NotCompiledError(message)
    return text


_WHOLE = Type("int")


def _whole(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value != int(value)):
        message = f"a length is {value!r}"
        raise NotCompiledError(message)


def length(expectation: Expectation, value: str, _: Type) -> str:
    """Has ``value`` characters."""
    _whole(expectation.values.get("value", "missing"))
    return f"length({value}) = {literal_of(expectation.values['value'], _WHOLE)}"


def lengths(expectation: Expectation, value: str, _: Type) -> str:
    """Has a number of characters within limits."""
    for name in ("min_value", "max_value"):
        _whole(expectation.values.get(name))
    return _limits(expectation, f"length({value})", _WHOLE)
