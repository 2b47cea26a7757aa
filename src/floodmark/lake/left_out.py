"""Fields of rows that a landing leaves out, as the contract has no such field and does not say what becomes of unknown ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_NAMES = 100
"""Names that are kept: where keys of documents are data, there is no end of them."""
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Fields that are left out.

    Args:
        rows: name of a field, of a nested one with the path -> rows that have it, of those that were looked at.
        looked_at: all rows of tables with columns; of documents the first ones and one in 128 behind them.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    looked_at: int = 0

    def plus(self, other: LeftOut) -> LeftOut:
        """Of the rows of both."""
        rows = dict(self.rows)
        for name, count in other.rows.items():
            if name in rows or len(rows) < _MOST_NAMES:
                rows[name] = rows.get(name, 0) + count
        return LeftOut(rows=rows, looked_at=self.looked_at + other.looked_at)

    def as_json(self) -> list[Any]:
        """The fields, in order."""
        return [dict(self.rows), self.looked_at]

    @staticmethod
    def from_json(value: list[Any]) -> LeftOut:
        """What :meth:`as_json` wrote."""
        return LeftOut(rows=value[0], looked_at=value[1])

    def describe(self, contract: str, rows: int) -> str:
        """One line: which fields, in how many rows, and how to keep them; empty where nothing is left out.

        Args:
            contract: its name.
            rows: of which those that were looked at are some, or all.
        """
        if not self.rows:
            return ""
        most = sorted(self.rows.items(), key=lambda item: (-item[1], item[0]))
        names = ", ".join(f"{name} ({count:,})" for name, count in most[:_SHOWN])
        others = f" and {len(most) - _SHOWN} others" if len(most) > _SHOWN else ""
        looked_at = f"{self.looked_at:,} rows" + (" looked at" if self.looked_at < rows else "")
        return (
            f"left out, as {contract} has no such field: {names}{others}, of {looked_at}. To keep them: a field for each, or "
            f'`unknown: Rescued` for all; to leave them out without a word: class {contract}(Contract, extra="ignore")'
        )
