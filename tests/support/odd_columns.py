"""Columns with odd values, and expressions over them: each in Spark SQL and, written again, in Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any

from pydantic import Field

from floodmark import Contract, EventTime

_WIDE = Context(prec=60)


class Odd(Contract):
    """A numbered row of odd values."""

    at: EventTime
    n: int
    s: str | None = None
    d: float | None = None
    i: int | None = None
    x: Annotated[Decimal, Field(max_digits=38, decimal_places=2)] | None = None
    y: Annotated[Decimal, Field(max_digits=9, decimal_places=2)] | None = None
    b: bool | None = None
    day: date | None = None
    raw: bytes | None = None


KINDS = {"n": "bigint", "s": "string", "d": "double", "i": "bigint", "x": "decimal(38,2)", "y": "decimal(9,2)"}
KINDS |= {"b": "boolean", "day": "date", "raw": "binary", "at": "timestamp"}


def _cents(units: int) -> Decimal:
    return Decimal(units).scaleb(-2, _WIDE)


POOLS: dict[str, tuple[Any, ...]] = {
    "s": (None, "", " ", "a", "A", "é", "ñ", "\u0000", "😀", "it's", "a long text of more than eight bytes"),
    "d": (None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1e9 + 0.1, 1e9 + 0.2, 1e16, -1e16, 1e-150, 0.1, -1.5),
    "i": (None, 2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1, 0, 1, -1, 7),
    "x": (None, _cents(10**38 - 1), _cents(1 - 10**38), _cents(9 * 10**37), _cents(0), _cents(1), _cents(-150)),
    "y": (None, _cents(10**9 - 1), _cents(1 - 10**9), _cents(0), _cents(10), _cents(20), _cents(-5)),
    "b": (None, True, False),
    "day": (None, date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1582, 10, 10), date(2024, 2, 29)),
    "raw": (None, b"", b"\x00", b"\x00\x00", b"\xff", b"nine byte"),
}
"""Column name -> the values to draw from."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression.

    Args:
        sql: in Spark SQL.
        kind: its type there.
        of: a row -> its value, by Spark's rules in ANSI mode.
        embedded: whether the embedded engine computes it; where not, it refuses it.
    """

    sql: str
    kind: str
    of: Callable[[Row], Any]
    embedded: bool = True


def _strict(column: str, function: Callable[[Any], Any]) -> Callable[[Row], Any]:
    """Null of null."""
    return lambda row: None if row[column] is None else function(row[column])


def _above(value: float, bound: float) -> bool:
    """NaN is above all numbers."""
    return math.isnan(value) or value > bound


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _truncated(value: int, by: int) -> int:
    return abs(value) // by * (1 if value >= 0 else -1)


def _greatest(*values: float | None) -> float | None:
    some = [v for v in values if v is not None]
    return max(some, key=lambda v: (math.isnan(v), 0 if math.isnan(v) else v)) if some else None


def _day_or_b(row: Row) -> bool | None:
    later = None if row["day"] is None else row["day"] > date(1, 1, 1)
    return True if later or row["b"] else None if later is None or row["b"] is None else False


def _sign(row: Row) -> str:
    return "" if row["i"] in {None, 0} else "plus" if row["i"] > 0 else "minus"


PLAIN = tuple(Expression(name, kind, lambda row, name=name: row[name]) for name, kind in KINDS.items())  # type: ignore[misc]  # a default

COMPUTED = (
    Expression("coalesce(i, 0)", "bigint", lambda row: row["i"] or 0),
    Expression("i % 7", "bigint", _strict("i", lambda v: v - _truncated(v, 7) * 7)),
    Expression("i div 2", "bigint", _strict("i", lambda v: _truncated(v, 2))),
    Expression("try_add(i, 1)", "bigint", _strict("i", lambda v: None if v == 2**63 - 1 else v + 1), embedded=False),
    Expression("cast(i as double)", "double", _strict("i", float)),
    Expression("cast(i as string)", "string", _strict("i", str)),
    Expression("case when i > 0 then 'plus' when i < 0 then 'minus' else '' end", "string", _sign),
    Expression("-d", "double", _strict("d", lambda v: -v)),
    Expression("abs(d)", "double", _strict("d", abs)),
    Expression("d * 0.5", "double", _strict("d", lambda v: v * 0.5)),
    Expression("nanvl(d, -1)", "double", _strict("d", lambda v: -1.0 if math.isnan(v) else v)),
    Expression("greatest(d, 0)", "double", lambda row: _greatest(row["d"], 0.0), embedded=False),
    Expression("if(d > 1, d, null)", "double", _strict("d", lambda v: v if _above(v, 1) else None)),
    Expression("isnan(d)", "boolean", lambda row: row["d"] is not None and math.isnan(row["d"])),
    Expression("d = d", "boolean", _strict("d", lambda _: True)),
    Expression("0 - x", "decimal(38,2)", _strict("x", lambda v: v.copy_negate() if v else v), embedded=False),
    Expression(
        "cast(x as decimal(38,0))",
        "decimal(38,0)",
        _strict("x", lambda v: v.quantize(Decimal(1), ROUND_HALF_UP, _WIDE)),
    ),
    Expression("y + y", "decimal(10,2)", _strict("y", lambda v: v + v)),
    Expression("cast(y as double)", "double", _strict("y", float)),
    Expression("not b", "boolean", _strict("b", lambda v: not v)),
    Expression("b and i > 0", "boolean", lambda row: _and(row["b"], None if row["i"] is None else row["i"] > 0)),
    Expression("upper(s)", "string", _strict("s", lambda v: v.upper())),
    Expression("concat(s, '|')", "string", _strict("s", lambda v: v + "|")),
    Expression("length(s)", "int", _strict("s", len)),
    Expression("length(raw)", "int", _strict("raw", len)),
    Expression("year(day)", "int", _strict("day", lambda v: v.year)),
    Expression("datediff(day, date'2024-01-01')", "int", _strict("day", lambda v: (v - date(2024, 1, 1)).days)),
    Expression("cast(day as string)", "string", _strict("day", lambda v: v.isoformat())),
    Expression("year(at)", "int", lambda row: row["at"].year),
    Expression(
        "unix_millis(at)", "bigint", lambda row: (row["at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(0, 0, 1000)
    ),
)

CONDITIONS = (
    Expression("n % 5 <> 3", "boolean", lambda row: row["n"] % 5 != 3),
    Expression("d is null or d > -2", "boolean", lambda row: row["d"] is None or _above(row["d"], -2)),
    Expression("s is null or s <> ''", "boolean", lambda row: row["s"] != ""),
    Expression(
        "x >= 0 or n % 2 = 0", "boolean", lambda row: (row["x"] is not None and row["x"] >= 0) or not row["n"] % 2
    ),
    Expression("d <=> 0 or n < 15", "boolean", lambda row: row["d"] == 0 or row["n"] < 15),
    Expression("not (i = 1)", "boolean", _strict("i", lambda v: v != 1)),
    Expression("nanvl(d, 0) <> 1.5", "boolean", _strict("d", lambda v: True)),
    Expression("day > date'0001-01-01' or b", "boolean", _day_or_b),
)
