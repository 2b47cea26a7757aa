"""Sessions: the window a row opens, before the windows of a key that touch are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import UserCodeError
from floodmark.core.time import END, NEVER, iso
from floodmark.semantics.windows.kinds import Placed


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows from a row to ``gap`` after it.

    Args:
        gap: ms; or the expression whose value is each row's own.
        value_position: of that value among the values of a row.
    """

    gap: int | str
    value_position: int = 0

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """One window, not merged; it ends at the end of time at the latest."""
        gap = self.gap if isinstance(self.gap, int) else checked_gap(self.gap, values[self.value_position], time)
        return [(time, min(time + gap, END + 1))]

    # ---- in SQL

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:
        """A condition that holds for every dropped row; a gap per row counts as 1 ms, the least gap."""
        gap = self.gap if isinstance(self.gap, int) else 1
        return f"({time}) + {gap} - 1 + {lateness} <= {stamp}"


def checked_gap(expression: str, value: Any, time: int) -> int:
    """The gap of a row in whole ms: fractions are cut off, but for the first millisecond; infinity lasts until the end of time.

    Args:
        expression: for the message.
        value: of the expression for the row.
        time: event time of the row.

    Raises:
        UserCodeError: EXECUTION-045, null, NaN, zero or less.
    """
    if value is None or not value > 0:
        got = f"{'null' if value is None else value} for the row of {iso(time)}"
        fix = f'Give every row a gap, as in Session("greatest(coalesce({expression}, 1), 1)", per_row=True), or filter such rows out.'
        raise UserCodeError(f"session gap '{expression}'", "milliseconds, more than 0", got, fix, code="EXECUTION-045")
    longest = END + 1 - NEVER
    return longest if value >= longest else max(int(value), 1)
