"""The arithmetic of a window definition, and the classification of rows as on time, late or dropped per window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from floodmark.core.time import NEVER
from floodmark.semantics.windows.cumulative import Cumulative as CumulativeEnds
from floodmark.semantics.windows.days import Days
from floodmark.semantics.windows.forever import Forever
from floodmark.semantics.windows.grid import Grid
from floodmark.semantics.windows.kinds import Assigner, Booleans, Instants, Kind
from floodmark.semantics.windows.own import Own
from floodmark.semantics.windows.sessions import Sessions
from floodmark.spec.windowing.windows import (
    Calendar,
    Count,
    Cumulative,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowAssigner,
)
from floodmark.spec.windowing.windows import Grid as GridWindow


def assigner(window: GridWindow) -> Assigner:
    """The arithmetic of windows that do not depend on the rows."""
    match window:
        case Tumbling() | Sliding():
            return Grid(window.size, window.slide, window.offset)
        case Cumulative():
            return CumulativeEnds(window.size, window.step, window.offset)
        case Calendar():
            return Days(window)
        case Global():
            return Forever()
        case _:
            assert_never(window)


def kind_of(window: Window, values: Sequence[str] = ()) -> Kind:
    """The arithmetic of any window.

    Args:
        window: of a step.
        values: the expressions whose results come as the ``values`` of a row.
    """
    match window:
        case Count():
            return Forever()
        case Session():
            own = isinstance(window.gap, str) and window.gap in values
            return Sessions(window.gap, values.index(str(window.gap)) if own else 0)
        case WindowAssigner():
            return Own(window)
        case _:
            return assigner(window)


def first_needed(window: Window, moment: int) -> int:
    """The first instant whose rows may be in a window that ends after ``moment``; not later than ``moment``."""
    if isinstance(window, (Global, Count, WindowAssigner)):
        return NEVER
    if isinstance(window, Session):
        return max(moment - window.margin, NEVER)
    grid = assigner(window)
    end = grid.first_end(grid.slices(np.array([moment], dtype=np.int64)))
    return max(min(moment, grid.start(int(end[0]))), NEVER)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of rows per window, each row classified by its own stamp.

    Args:
        slices: start of the slice of each row.
        from_end: end of the first window the row is on time for.
        on_time: whether there is one.
        late: index of a row, once per window it is late but not dropped for ...
        late_end: ... and the end of that window.
        dropped: index of a row, once per window it is dropped for ...
        dropped_end: ... and the end of that window.
        side: rows in at least one window that are dropped for all of them.
    """

    slices: Instants
    from_end: Instants
    on_time: Booleans
    late: Instants
    late_end: Instants
    dropped: Instants
    dropped_end: Instants
    side: Booleans


def classify_lateness(assigner: Assigner, lateness: int, times: Instants, stamps: Instants) -> Lateness:
    """Classify rows by comparing columns: late iff end - 1 <= stamp, dropped iff end - 1 + lateness <= stamp.

    Args:
        assigner: of the windows.
        lateness: allowed lateness.
        times: event times; at least one row.
        stamps: the ``_watermark`` of each row.
    """
    slices = assigner.slices(times)
    first, last = assigner.first_end(slices), assigner.last_end(slices)
    from_end = assigner.next_end(first, stamps + 2)
    on_time = from_end <= last
    rows = np.flatnonzero((first <= stamps + 1) & (first <= last))
    late: list[tuple[int, int]] = []
    dropped: list[tuple[int, int]] = []
    for row in rows.tolist():  # late rows are few; rows on time are not looped over
        stamp = int(stamps[row])
        for end in assigner.ends(int(first[row]), int(last[row])):
            if end - 1 > stamp:
                break
            (dropped if end - 1 + lateness <= stamp else late).append((row, end))
    side = (first <= last) & (last - 1 + lateness <= stamps)
    pairs = [np.array(p, dtype=np.int64).reshape(-1, 2) for p in (late, dropped)]
    return Lateness(slices, from_end, on_time, pairs[0][:, 0], pairs[0][:, 1], pairs[1][:, 0], pairs[1][:, 1], side)
