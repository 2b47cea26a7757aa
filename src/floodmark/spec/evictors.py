"""Evictors: rows a window forgets when it fires. Only windows that keep their rows can have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.core.types import parse
from floodmark.spec.expressions import known_type
from floodmark.spec.schema import Schema

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Keep the ``n`` rows that arrived last. Source: Flink ``CountEvictor``.

    Args:
        n: rows, 0 or more.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    n: int
    when: When = "before"

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 0:
            raise _wrong("KeepLast", "a number of rows, 0 or more", repr(self.n), "KeepLast(4).")
        _check_when(self.when, "KeepLast")

    def kept(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:
        """Places of the rows that stay, of rows in arrival order."""
        return list(range(max(0, len(times) - self.n), len(values)))


@dataclass(frozen=True, slots=True, init=False)
class KeepWithin:
    """Keep rows less than ``duration`` of event time behind the newest. Source: Flink ``TimeEvictor``.

    Args:
        duration: more than 0.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    duration: int
    when: When

    def __init__(self, duration: str | timedelta, when: When = "before") -> None:
        milliseconds = span(duration, "KeepWithin")
        if milliseconds <= 0:
            raise _wrong("KeepWithin", "more than 0", describe_span(milliseconds), 'KeepWithin("10 seconds").')
        object.__setattr__(self, "duration", milliseconds)
        object.__setattr__(self, "when", _check_when(when, "KeepWithin"))

    def kept(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:  # noqa: ARG002 - one shape for all
        """Places of the rows that stay, of rows in arrival order."""
        cut = max(times, default=0) - self.duration
        return [place for place, time in enumerate(times) if time > cut]


@dataclass(frozen=True, slots=True)
class KeepNear:
    """Keep rows whose ``distance`` is less than ``threshold`` behind the newest row's: newest - row < threshold.

    Source: Flink ``DeltaEvictor`` with the difference as its distance; like there, rows ahead of the newest stay.

    Args:
        threshold: in the expression's unit, more than 0.
        distance: Spark SQL over the row's columns, a number; a null is never near.
        when: evict ``"before"`` the function sees the window (default), or ``"after"``.
    """

    threshold: float
    distance: str
    when: When = "before"

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, (int, float)) or not self.threshold > 0:
            raise _wrong("KeepNear", "a threshold of more than 0", repr(self.threshold), 'KeepNear(2, "speed").')
        _check_when(self.when, "KeepNear")

    def kept(self, times: Sequence[int], values: Sequence[Any]) -> list[int]:  # noqa: ARG002 - one shape for all
        """Places of the rows that stay, of rows in arrival order."""
        if not values:
            return []
        newest = values[-1]
        return [
            place
            for place, value in enumerate(values)
            if place == len(values) - 1
            or (value is not None and newest is not None and newest - value < self.threshold)
        ]


Evictor = KeepLast | KeepWithin | KeepNear


def checked(evictor: object, schema: Schema, where: str) -> Evictor:
    """The evictor, its expression held against the columns."""
    if not isinstance(evictor, (KeepLast, KeepWithin, KeepNear)):
        raise _wrong(where, "KeepLast, KeepWithin or KeepNear", repr(evictor), "KeepLast(4).")
    if isinstance(evictor, KeepNear):
        kind = known_type(evictor.distance, schema, f"{where}, KeepNear")
        if not parse(kind).is_numeric:
            got = f"'{evictor.distance}' of type {kind}"
            raise _wrong("KeepNear", "a distance that is a number", got, 'KeepNear(2, "speed").')
    return evictor


def canonical_evictor(evictor: Evictor) -> dict[str, object]:
    """For fingerprints: the kind and its settings."""
    return {"kind": type(evictor).__name__} | {slot: getattr(evictor, slot) for slot in evictor.__slots__}


def _check_when(when: object, where: str) -> Any:
    if when not in ("before", "after"):
        raise _wrong(where, 'when="before" or "after"', repr(when), 'KeepLast(4, when="after").')
    return when


def _wrong(where: str, expected: str, got: str, fix: str) -> DefinitionError:
    return DefinitionError(f"evictor {where}", expected, got, fix, code="DEFINITION-033")
