"""Counts of input fields that a landing drops, because the contract neither declares them nor says what to do with unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_NAMES = 100
"""Most names that are counted: documents whose keys are data have unboundedly many."""
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Dropped fields, with the number of rows that have each.

    Args:
        rows: field name, with the path for nested fields -> number of inspected rows that have the field.
        looked_at: number of inspected rows: all rows of tables with columns; of documents the first ones, then one in 128.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    looked_at: int = 0

    def plus(self, other: LeftOut) -> LeftOut:
        """The sum of two counts."""
        rows = dict(self.rows)
        for name, count in other.rows.items():
            if name in rows or len(rows) < _MOST_NAMES:
                rows[name] = rows.get(name, 0) + count
        return LeftOut(rows=rows, looked_at=self.looked_at + other.looked_at)

    def as_json(self) -> list[Any]:
        """JSON form: [``rows``, ``looked_at``]."""
        return [dict(self.rows), self.looked_at]

    @staticmethod
    def from_json(value: list[Any]) -> LeftOut:
        """The inverse of ``as_json``."""
        return LeftOut(rows=value[0], looked_at=value[1])

    def describe(self, contract: str, rows: int) -> str:
        """One line: the dropped fields, their row counts, and how to retain them; empty if no field was dropped.

        Args:
            contract: name of the contract.
            rows: number of all rows, of which ``looked_at`` were inspected.
        """
        if not self.rows:
            return ""
        looked_at = f"{self.looked_at:,} rows" + (" looked at" if self.looked_at < rows else "")
        return (
            f"left out, as {contract} has no such field: {most_frequent(self.rows)}, of {looked_at}. To keep them: a field for each, or "
            f'`unknown: Rescued` for all; to leave them out without a word: class {contract}(Contract, extra="ignore")'
        )


def most_frequent(rows: Mapping[str, int]) -> str:
    """(name -> number of rows) -> the names in most rows, each with its number, and how many others there are."""
    most = sorted(rows.items(), key=lambda item: (-item[1], item[0]))
    names = ", ".join(f"{name} ({count:,})" for name, count in most[:_SHOWN])
    return f"{names} and {len(most) - _SHOWN} others" if len(most) > _SHOWN else names
