"""Columns of delivered tables in databases: their types, and values as the drivers take them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from floodmark.core.types import Type
from floodmark.deliveries.documents import field_name, plain

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


def column_type(kind: Type) -> Any:
    """The column type for values of a type."""
    if kind.is_integer:
        return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    if kind.is_floating:
        return sa.Double()
    match kind.name:
        case "decimal":
            return sa.Numeric(kind.precision, kind.scale).with_variant(sa.Text(), "sqlite")
        case "boolean":
            return sa.Boolean()
        case "date":
            return sa.Date()
        case "timestamp":
            return sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        case "binary":
            return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
        case _:
            return sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def fits(wanted: Any, there: Any, dialect: Dialect) -> bool:
    """Whether an existing column's type holds the values of the wanted type."""
    return _values_of(wanted.dialect_impl(dialect)) == _values_of(there)


def _values_of(kind: Any) -> str:
    """Which values a column type holds."""
    if isinstance(kind, sa.Float):  # MariaDB's are decimals to Python
        return "float"
    if isinstance(kind, sa.Numeric) and kind.python_type is Decimal:
        return f"decimal({kind.precision},{kind.scale})"
    python = int if kind.python_type is bool else kind.python_type
    return str(python.__name__)


def plain_of(kind: Type, nan: str, dialect: str) -> Callable[[Any], Any]:
    """(type, what becomes of NaN, database) -> function that makes a value one that the database's driver takes."""
    if kind.is_floating:
        return partial(_float, nan=nan, dialect=dialect)
    match kind.name:
        case "string":
            return _text if dialect == "postgresql" else str
        case "decimal":
            return (lambda value: format(value, "f")) if dialect == "sqlite" else lambda value: value
        case "timestamp":
            return _instant if dialect == "postgresql" else lambda value: _instant(value).replace(tzinfo=None)
        case "array" | "map" | "struct":
            return lambda value: json.dumps(_nested(value), ensure_ascii=False)
        case _:
            return lambda value: value


def _float(value: float, *, nan: str, dialect: str) -> float | None:
    if dialect == "postgresql" or math.isfinite(value) or (dialect == "sqlite" and math.isinf(value)):
        return value
    if nan == "null":
        return None
    msg = "a number that the database has"
    raise ValueError(msg, 'Say what becomes of it: ToSql(..., nan="null"); or filter such results out.')


def _text(value: str) -> str:
    if "\x00" in value:
        msg = "a text that the database has"
        raise ValueError(msg, "PostgreSQL has no texts with the character 0: remove it in the operator.")
    return value


def _instant(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _nested(value: Any) -> Any:
    """A value as JSON has values, as in documents but for instants."""
    match value:
        case datetime():
            return value.isoformat()
        case Mapping():
            return {field_name(name): _nested(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_nested(inner) for inner in value]
        case _:
            return plain(value)
