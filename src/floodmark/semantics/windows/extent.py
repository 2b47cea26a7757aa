"""Windows that reach beyond the years 1 to 9999.

Arithmetic is not limited to these years, so that such windows stay distinct; rows and functions see their part within time. The end of a
window is exclusive, and no table has an instant behind 9999-12-31T23:59:59.999999: that instant stands for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.core.time import END, NEVER
from floodmark.semantics.encoding.columns import arrow_type

FIRST, LAST = NEVER * 1000, END * 1000 + 999
"""The first and the last instant of a table, in microseconds."""


def within(start: int, end: int) -> tuple[int, int]:
    """The part of a window that lies in time, ms."""
    return max(start, NEVER), min(end, END + 1)


def bounds(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Starts or ends of windows as a column of ``window_start`` or ``window_end``."""
    return pa.array(np.clip(milliseconds * 1000, FIRST, LAST)).cast(arrow_type("timestamp"))


def sql_bound(milliseconds: str) -> str:
    """As ``bounds``, in Spark SQL."""
    return f"timestamp_micros(greatest(least(({milliseconds}) * 1000, {LAST}), {FIRST}))"


def event_times(ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The event time of a window's result: its last millisecond."""
    return np.minimum(ends - 1, END)


def sql_event_time(end: str) -> str:
    """As ``event_times``, in SQL."""
    return f"least(({end}) - 1, {END})"
