"""One window for all of time; it closes at the end of input. Windows that count rows have no place in time either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from floodmark.core.time import END
from floodmark.semantics.windows.kinds import Instants, OnePerSlice, Placed


@dataclass(frozen=True, slots=True)
class Forever(OnePerSlice):
    """One window, one slice."""

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """It has no bounds."""
        return [(None, None)]

    # ---- in SQL

    def sql_last_end(self, time: str) -> str:  # noqa: ARG002 - the same for all
        """As ``first_end``."""
        return f"CAST({END + 1} AS bigint)"

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:  # noqa: ARG002 - the same for all
        """No row is too late."""
        return "false"

    # ---- in columns

    def slices(self, times: Instants) -> Instants:
        """One slice."""
        return np.zeros_like(times)

    def first_end(self, slices: Instants) -> Instants:
        """Just after the end of time, so that it closes when progress reaches END."""
        return np.full_like(slices, END + 1)

    def start(self, end: int) -> int:  # noqa: ARG002 - the same for all
        """It has no start; slices are at 0."""
        return 0
