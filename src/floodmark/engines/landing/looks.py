"""Looks at the files of a source: which have been unchanged for long enough to land, and why a unit waits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from floodmark.connectors.unit import Reader, Unit
from floodmark.core.time import describe_span
from floodmark.engines.landing.units import Report

WRITING = "still being written"


class Waiting(NamedTuple):
    """Why a unit does not land yet.

    Args:
        why: the kind of reason; units of one kind are named together.
        detail: of this unit: sizes, ages.
        ages: True if the unit lands by itself once it has been unchanged for ``min_age``.
    """

    why: str
    detail: str = ""
    ages: bool = False

    def __str__(self) -> str:
        """Kind and detail."""
        return f"{self.why} ({self.detail})" if self.detail else self.why


class _First(NamedTuple):
    """The first look at a file with its present size and date.

    Args:
        size: bytes.
        modified: ns.
        at: monotonic clock of the look, ns.
        changed: whether an earlier look saw another size or date.
    """

    size: int
    modified: int
    at: int
    changed: bool


@dataclass(slots=True)
class Looks:
    """The looks of one landing at files that are too young to land.

    Args:
        reader: of the source.
        ending: whether an end of input is to land.
    """

    reader: Reader
    ending: bool = False
    _first: dict[str, _First] = field(default_factory=dict)

    @property
    def min_age(self) -> int:
        """Time for which a file must be unchanged before it lands, ms."""
        return self.reader.min_age(ending=self.ending)

    def too_young(self, unit: Unit) -> Waiting | None:
        """Why a file does not land yet: its date is younger than ``min_age`` and it has not been looked at for so long; None if it can land."""
        least = self.min_age * 1_000_000
        if not least:
            return None
        now, age = time.monotonic_ns(), time.time_ns() - unit.modified
        if age >= least:
            self._first.pop(unit.name, None)
            return None
        first = self._first.get(unit.name)
        if first is None or (first.size, first.modified) != (unit.size, unit.modified):
            self._first[unit.name] = latest = _First(unit.size, unit.modified, now, first is not None)
            if first is not None:
                return Waiting(WRITING, f"{first.size:,} bytes, then {latest.size:,}")
            first = latest
        if now - first.at >= least:
            return None
        unchanged = min(max(now - first.at, age), least) if age >= 0 else now - first.at
        detail = f"unchanged for {unchanged / 1e9:.1f} s, lands after {describe_span(self.min_age)}"
        return Waiting("younger than its min_age", detail, ages=not first.changed)

    def unstable(self, unit: Unit, report: Report) -> Waiting:
        """Why a unit that was listed could not be read as it was listed."""
        now = self.reader.look(unit.name)
        if now is None:
            return Waiting("gone since the folder was listed")
        if (now.size, now.modified) != (unit.size, unit.modified):
            return Waiting(WRITING, f"{unit.size:,} bytes, then {now.size:,}")
        if report.reason:
            return Waiting("listed, but not there for the process that reads it", report.reason)
        return Waiting(
            "of another size when it is read",
            f"{unit.size:,} bytes in two listings, {report.size:,} read: the file system answers from a cache, or it is no plain file",
        )
