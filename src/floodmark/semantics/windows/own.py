"""Windows that a class of the user's assigns."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any

from floodmark.core.errors import user_code_boundary
from floodmark.core.time import END, NEVER
from floodmark.semantics.windows.kinds import Placed
from floodmark.spec.windowing.windows import WindowAssigner


@dataclass(frozen=True, slots=True)
class Own:
    """What ``assign`` returns, checked."""

    window: WindowAssigner

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """By start, then end."""
        with user_code_boundary(f"window assigner '{type(self.window).__name__}'", f"The row was {row}."):
            windows = sorted((index(start), index(end)) for start, end in self.window.assign(time, row))
            wrong = next(((start, end) for start, end in windows if not NEVER <= start < end <= END + 1), None)
            if wrong is not None:
                msg = f"{wrong} is no window: the start comes before the end, both in ms between the years 1 and 9999"
                raise ValueError(msg)
            return windows

    # ---- in SQL

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:  # noqa: ARG002 - one shape for all
        """A window may have ended before the row."""
        return f"({time}) <= {stamp}"
