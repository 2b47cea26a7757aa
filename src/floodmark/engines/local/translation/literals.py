"""Literals and names in DuckDB's SQL."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from floodmark.engines.local.casts import NotTranslated, sql_type, text
from floodmark.spec.expressions.tree import Literal
from floodmark.spec.expressions.widening import INTEGERS, digits

_INSTANT = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?"


def name(column: str) -> str:
    """The name of a column or of a lambda's parameter, quoted."""
    return '"' + column.replace('"', '""') + '"'


def literal(node: Literal) -> str:
    """A constant, of the DuckDB type of its Spark type.

    Raises:
        NotTranslated: an interval, or a date or timestamp in a form that only Spark reads.
    """
    value, kind = node.value, node.type
    match kind:
        case "void":
            return "NULL"
        case "boolean":
            return str(value).lower()
        case "string":
            return text(_text(value))
        case "binary":
            assert isinstance(value, bytes)
            return f"from_hex('{value.hex()}')"
        case "date":
            return f"DATE '{_day(_text(value))}'"
        case "timestamp":
            return f"TIMESTAMPTZ '{_instant(_text(value))}'"
        case "double" | "float":
            return f"CAST('{value!r}' AS {sql_type(kind)})"
        case _ if kind in INTEGERS or digits(kind):
            return f"CAST('{value!s}' AS {sql_type(kind)})"
        case _:
            raise NotTranslated(f"a literal of type {kind}")


def _text(value: object) -> str:
    assert isinstance(value, str)
    return value


def _day(value: str) -> str:
    try:
        return date.fromisoformat(value.strip()).isoformat()
    except ValueError:
        raise NotTranslated(f"DATE {value!r}") from None


def _instant(value: str) -> str:
    if not re.fullmatch(_INSTANT, value.strip()):
        raise NotTranslated(f"TIMESTAMP {value!r}")
    moment = datetime.fromisoformat(value.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat(" ")
