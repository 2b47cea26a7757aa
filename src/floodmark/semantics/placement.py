"""Which windows one row is in: the row by row counterpart of ``semantics.assignment``, and the windows only that can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from floodmark.core.errors import user_code_boundary
from floodmark.core.time import END, NEVER
from floodmark.semantics.assignment import assigner
from floodmark.spec.windows import Calendar, Count, Global, Session, Sliding, Tumbling, Window, WindowAssigner

_MINUTE = 60_000

Placed = Sequence[tuple[int | None, int | None]]
"""Windows as (start, end); None for one without bounds."""

Placement = Callable[[int, tuple[Any, ...], Any], Placed]
"""(time, values, row) -> its windows, by time."""


def placement(window: Window, values: list[str]) -> Placement:
    """The windows a row is in.

    Args:
        window: of the step; sessions are not merged here.
        values: the expressions whose results come as ``values``.
    """
    match window:
        case Global() | Count():
            return lambda time, values, row: [(None, None)]  # noqa: ARG005 - one shape for all
        case Session():
            return _session(window, values)
        case Tumbling() | Sliding():
            return _grid(window.size, window.slide, window.offset)
        case Calendar():
            return _calendar(window)
        case _:
            return _own(window)


def _session(window: Session, values: list[str]) -> Placement:
    if isinstance(window.gap, int):
        gap = window.gap
        return lambda time, values, row: [(time, time + gap)]  # noqa: ARG005 - one shape for all
    place = values.index(window.gap)
    return lambda time, values, row: [(time, time + max(int(values[place] or 1), 1))]  # noqa: ARG005 - one shape for all


def _grid(size: int, slide: int, offset: int) -> Placement:
    def place(time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG001 - one shape for all
        last = time - (time - offset) % slide
        return [(start, start + size) for start in range(last, time - size, -slide)][::-1]

    return place


def _calendar(window: Calendar) -> Placement:
    days = assigner(window)

    @lru_cache(maxsize=4096)
    def around(time: int) -> Placed:
        start = days.slices(np.array([time], dtype=np.int64))
        return [(int(start[0]), int(days.first_end(start)[0]))]

    minutes = window.offset % _MINUTE == 0  # boundaries then fall on whole minutes
    return lambda time, values, row: around(time - time % _MINUTE if minutes else time)  # noqa: ARG005 - one shape for all


def _own(assigner: WindowAssigner) -> Placement:
    def place(time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG001 - one shape for all
        with user_code_boundary(f"window assigner '{type(assigner).__name__}'", f"The row was {row}."):
            found = sorted((index(start), index(end)) for start, end in assigner.assign(time, row))
            wrong = next(((start, end) for start, end in found if not NEVER <= start < end <= END + 1), None)
            if wrong is not None:
                msg = f"{wrong} is no window: the start comes before the end, both in ms between the years 1 and 9999"
                raise ValueError(msg)
            return found

    return place
