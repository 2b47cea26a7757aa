"""Counts of texts that a landing has read as null because that is the default, so that no value is altered without a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from floodmark.lake.table.left_out import most_frequent


@dataclass(frozen=True, slots=True)
class DefaultNulls:
    """Texts that were read as null by default.

    Args:
        rows: column and text, ``"dep_delay 'NA'"`` -> number of rows.
    """

    rows: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: DefaultNulls) -> DefaultNulls:
        """The sum of two counts."""
        names = dict.fromkeys((*self.rows, *other.rows))
        return DefaultNulls({name: self.rows.get(name, 0) + other.rows.get(name, 0) for name in names})

    def describe(self) -> str:
        """One line: the texts, their row counts, and how to say what they mean; empty if there are none."""
        if not self.rows:
            return ""
        return f'read as null: {most_frequent(self.rows)}. To say so: Files(..., missing_values=("NA",)); to set such rows aside: missing_values=()'
