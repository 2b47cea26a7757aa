"""Evictors: which rows a window evicts when it fires. An evictor makes a window retain all its rows until then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from attrs import Attribute, field, frozen

from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import Declared
from floodmark.core.time import describe_span, span
from floodmark.core.types import parse
from floodmark.spec.expressions import known_type
from floodmark.spec.rows.checks import converting
from floodmark.spec.values.schema import Schema

When = Literal["before", "after"]


def _is_when(evictor: object, _: Attribute[Any], when: object) -> None:
    if when not in ("before", "after"):
        fix = 'KeepLast(4, when="after").'
        raise _wrong(type(evictor).__name__, 'when="before" or "after"', repr(when), fix)


def _positive(value: str | timedelta, evictor: object = None, _: Any = None) -> int:
    kind = type(evictor).__name__
    milliseconds = span(value, kind)
    if milliseconds <= 0:
        raise _wrong(kind, "more than 0", describe_span(milliseconds), f'{kind}("10 seconds").')
    return milliseconds


@frozen
class KeepLast(Declared):
    """Keep the ``n`` rows that arrived last. Source: Flink ``CountEvictor``.

    Args:
        n: rows, 0 or more.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    entry = "kind"
    n: int = field()
    when: When = field(default="before", validator=_is_when)

    @n.validator
    def _is_number_of_rows(self, _: Attribute[Any], n: object) -> None:
        if not isinstance(n, int) or n < 0:
            raise _wrong("KeepLast", "a number of rows, 0 or more", repr(n), "KeepLast(4).")

    def retained(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:
        """Positions of the rows to retain, among rows in order of arrival."""
        return list(range(max(0, len(times) - self.n), len(values)))


@frozen(field_transformer=converting)
class KeepWithin(Declared):
    """Keep rows less than ``duration`` of event time behind the newest. Source: Flink ``TimeEvictor``.

    Args:
        duration: more than 0.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    entry = "kind"
    duration: int = field(converter=_positive)
    when: When = field(default="before", validator=_is_when)

    def retained(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:  # noqa: ARG002 - one shape for all
        """Positions of the rows to retain, among rows in order of arrival."""
        cut = max(times, default=0) - self.duration
        return [position for position, time in enumerate(times) if time > cut]


@frozen
class KeepNear(Declared):
    """Keep rows whose ``distance`` is less than ``threshold`` behind the newest row's: newest - row < threshold.

    Source: Flink ``DeltaEvictor`` with the difference as its distance; like there, rows ahead of the newest stay.

    Args:
        threshold: in the expression's unit, more than 0.
        distance: Spark SQL over the row's columns, a number; a null is never near.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    entry = "kind"
    threshold: float = field()
    distance: str
    when: When = field(default="before", validator=_is_when)

    @threshold.validator
    def _is_positive(self, _: Attribute[Any], threshold: object) -> None:
        if not isinstance(threshold, (int, float)) or not threshold > 0:
            raise _wrong("KeepNear", "a threshold of more than 0", repr(threshold), 'KeepNear(2, "speed").')

    def retained(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:  # noqa: ARG002 - one shape for all
        """Positions of the rows to retain, among rows in order of arrival."""
        if not values:
            return []
        newest = values[-1]
        return [
            position
            for position, value in enumerate(values)
            if position == len(values) - 1
            or (value is not None and newest is not None and newest - value < self.threshold)
        ]


Evictor = KeepLast | KeepWithin | KeepNear


def checked(evictor: object, schema: Schema, where: str) -> Evictor:
    """The evictor, its type and its expression checked against the columns."""
    if not isinstance(evictor, (KeepLast, KeepWithin, KeepNear)):
        raise _wrong(where, "KeepLast, KeepWithin or KeepNear", repr(evictor), "KeepLast(4).")
    if isinstance(evictor, KeepNear):
        kind = known_type(evictor.distance, schema, f"{where}, KeepNear")
        if not parse(kind).is_numeric:
            got = f"'{evictor.distance}' of type {kind}"
            raise _wrong("KeepNear", "a distance that is a number", got, 'KeepNear(2, "speed").')
    return evictor


def _wrong(where: str, expected: str, got: str, fix: str) -> DefinitionError:
    return DefinitionError(f"evictor {where}", expected, got, fix, code="DEFINITION-033")
