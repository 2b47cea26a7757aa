"""Frames: the rows around each row that a result over it is of; and results of a row's position among them."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

from floodmark.core.fingerprint import OMITTED, Declared, renamed
from floodmark.core.time import describe_span
from floodmark.spec.windowing.aggregates import AnyAggregate

Unit = Literal["rows", "range", "values"]
ALL_ROWS = 1 << 62
"""More rows than a key has."""


@frozen
class Frame(Declared):
    """The rows of a key up to a row, in order of event time; in another order also those behind it.

    Args:
        unit: ``"rows"`` counts rows; ``"range"`` goes by event time, so that rows of one event time have one result; ``"values"`` by the number in an
            order by one number.
        preceding: rows before the row, ms before its event time, or by how much a number is less, all inclusive; None for all rows. Less than zero:
            the frame begins behind the row.
        following: the same behind the row, of an order whose results change. Less than zero: the frame ends before the row.
    """

    unit: Unit = "range"
    preceding: int | None = None
    following: int = field(default=0, metadata=OMITTED)

    def describe(self) -> str:
        """For people."""
        if self.following:
            ends = [
                None if self.preceding is None else -self.preceding,
                self.following if self.following < ALL_ROWS else None,
            ]
            word = {"rows": "rows", "values": "in value", "range": "ms"}[self.unit]
            first, last = ("all" if end is None else f"{end:+} {word}" for end in ends)
            return f"rows from {first} to {last} around the row"
        if self.preceding is None:
            return "all rows so far" if self.unit == "rows" else "all rows up to its event time"
        if self.unit == "values":
            return f"rows whose value lies at most {self.preceding} before"
        return f"{self.preceding} rows before" if self.unit == "rows" else describe_span(self.preceding)


@frozen
class Position(Declared):
    """A result that a row has by its position: ``row_number``, ``rank``, ``dense_rank``, ``lag``, ``lead``, ``nth_value``.

    Args:
        function: name.
        expression: of ``lag``, ``lead`` and ``nth_value``.
        n: rows before, of ``lag``, or behind, of ``lead``; the number of the row in the frame, of ``nth_value``.
        default: expression over the row itself, where there are not so many rows.
    """

    function: str = field(metadata=renamed("position"))
    expression: str | None = field(default=None, metadata=OMITTED)
    n: int = field(default=1, metadata=OMITTED)
    default: str | None = field(default=None, metadata=OMITTED)


def row_number() -> Position:
    """1 for the first row of a key in order of event time, 2 for the next. ``bigint``."""
    return Position("row_number")


def rank() -> Position:
    """1 and the number of rows of the key with an earlier event time. ``bigint``."""
    return Position("rank")


def dense_rank() -> Position:
    """1 and the number of earlier event times of the key. ``bigint``."""
    return Position("dense_rank")


def lag(expression: str, n: int = 1, default: str | None = None) -> Position:
    """``expression`` of the n-th row of the key before this one; ``default`` of this row where there is none. Type of the expression."""
    return Position("lag", expression, n, default)


def lead(expression: str, n: int = 1, default: str | None = None) -> Position:
    """``expression`` of the n-th row of the key behind this one; ``default`` of this row where there is none. Of an ``order`` alone, whose results may change."""
    return Position("lead", expression, n, default)


def nth_value(expression: str, n: int) -> Position:
    """``expression`` of the n-th row of the frame, from 1 on; null where it has fewer rows. Of an ``order`` alone, whose results may change. Type of the expression."""
    return Position("nth_value", expression, n)


OverRow = AnyAggregate | Position
"""What ``over`` computes for a row."""


def texts(measure: OverRow) -> tuple[str, ...]:
    """The Spark SQL expressions of a measure, each once."""
    parts: list[Any] = [measure.expression]
    parts += [measure.default] if isinstance(measure, Position) else [getattr(measure, "by", None)]
    return tuple(dict.fromkeys(text for text in parts if text))
