"""The kernel of ``over`` in another order than that of event time: results over rows, as rows and retractions of what changes.

All rows of a key are in state, in order, each with the results that were emitted for it. Once the rows of a call are in, the results of each
key that has changed are computed anew; a row whose results are others is taken back and emitted anew, with its own event time. So rows minus
retractions are at each cut the results over the rows so far, also where a retraction comes before its row.

Source: SQL:2003 window functions for the results; Flink ``NonTimeRowsUnboundedPrecedingFunction`` for rows that change.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import Any

from floodmark.core.time import to_ms
from floodmark.core.types import is_same
from floodmark.semantics.encoding.order import order_key
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.functions.netting import NetKernel
from floodmark.semantics.kernels.functions.over import Plan, RowsSoFar, Sliding
from floodmark.semantics.kernels.process import KeyCells, ProcessKernel
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.over import OverChanging
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.spec.windowing.frames import ALL_ROWS, Frame

Values = tuple[Any, ...]
_DIGITS = 27
"""Most digits of a decimal to which a whole number is added without rounding."""


def is_over_changing(stage: ProcessStage) -> bool:
    """Whether a stage computes results over rows that later rows change."""
    return isinstance(stage.step.function.function, OverChanging)


class _Row:
    """A row: what it is sorted by, its event time, its values, and the results that were emitted for it."""

    __slots__ = ("key", "results", "time", "values")

    def __init__(self, key: Any, time: int, values: Values, results: Values | None = None) -> None:
        self.key, self.time, self.values, self.results = key, time, values, results


class ReorderedCells(KeyCells):
    """The state of one key.

    ``gone``: rows that were taken back in this call, with what was emitted for them. ``owed``: retractions that came before their row.
    """

    __slots__ = ("gone", "owed", "rows")

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.rows: list[_Row] = []
        self.gone: list[_Row] = []
        self.owed: list[tuple[int, Values]] = []

    def close(self) -> bool:
        """Write the rows into the entry; False if there are none."""
        parts = {"rows": [(row.time, row.values, row.results) for row in self.rows], "owed": self.owed}
        self.states = {name: rows for name, rows in parts.items() if rows}
        return super().close()


class OverChangingKernel(NetKernel, ProcessKernel):
    """Results over the rows of one key group, of a stage that ``is_over_changing``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, OverChanging)
        self.ranking, self.plan = function.ranking, Plan(function)
        by = [part.column for part in self.ranking.by]
        self.read = list(dict.fromkeys((*function.own, *self.plan.columns, *by)))
        places = {name: place for place, name in enumerate(self.read)}
        self.shown = [places[name] for name in function.own]
        self.measured = [places[name] for name in self.plan.columns]
        self.by = places[by[0]]
        self.rows: list[Any] = []

    def _opened(self, entry: Entry) -> ReorderedCells:
        cells = ReorderedCells(entry)
        for time, values, results in cells.states.get("rows", ()):
            row = tuple(values)
            cells.rows.append(_Row(self._sorted(row), time, row, None if results is None else tuple(results)))
        cells.owed = [(time, tuple(values)) for time, values in cells.states.get("owed", ())]
        return cells

    def _sorted(self, values: Values) -> Any:
        """(order of the statement, order of rows that are equal in it); the latter only where that of landing is not recorded."""
        key = self.ranking.key(dict(zip(self.read, values, strict=True)))
        return key, () if self.stage.recorded else order_key(values)

    # ---- rows in

    def _arrive(self, arrivals: Arrivals) -> None:
        self.kinds, self.rows = arrivals.kinds, arrivals.rows

    def _take(self, key_state: Any, position: int, time: int, stamp: int) -> None:
        row = self.rows[position]
        key_state.stamp, key_state.latest = stamp, max(key_state.latest, time)
        values = tuple(row[name] for name in self.read)
        if self.kinds[position] == RETRACTION:
            self._remove(key_state, time, values)
        else:
            self.late += time <= stamp and self._wanted(time)
            self._add(key_state, time, values)

    def _add(self, cells: ReorderedCells, time: int, values: Values) -> None:
        """Put a row behind those of the same order."""
        owed = [at for at, (_, other) in enumerate(cells.owed) if is_same(other, values)]
        if owed:
            del cells.owed[min(owed, key=lambda at: cells.owed[at][0] != time)]
            return
        key = self._sorted(values)
        cells.rows.insert(bisect_right(cells.rows, key, key=_key), _Row(key, time, values))

    def _remove(self, cells: ReorderedCells, time: int, values: Values) -> None:
        """Remove the row of these values with this event time, or else the one that was processed last; one that is still to come, if there is none."""
        key = self._sorted(values)
        first, end = bisect_left(cells.rows, key, key=_key), bisect_right(cells.rows, key, key=_key)
        places = [at for at in reversed(range(first, end)) if is_same(cells.rows[at].values, values)]
        if not places:
            cells.owed.append((time, values))
            return
        row = cells.rows.pop(min(places, key=lambda at: cells.rows[at].time != time))
        if row.results is not None:
            cells.gone.append(row)

    # ---- rows out

    def _send(self, cells: ReorderedCells) -> None:
        changes: dict[str, list[Any]] = {}
        for row in cells.gone:
            self._count(changes, row, row.results, -1)
        for row, results in zip(cells.rows, self._results_of(cells.rows), strict=True):
            if row.results is not None and repr(row.results) == repr(results):  # NaN is NaN
                continue
            if row.results is not None:
                self._count(changes, row, row.results, -1)
            self._count(changes, row, results, 1)
            row.results = results
        cells.gone = []
        key, stamp = cells.entry.key, cells.stamp
        for values, time, times in sorted(changes.values(), key=lambda change: change[2] > 0):
            for _ in range(abs(times)):
                self.out.append((*key, *values, time, stamp, ROW if times > 0 else RETRACTION, self.units))
                self.units += 1

    def _count(self, changes: dict[str, list[Any]], row: _Row, results: Values | None, times: int) -> None:
        values = (*(row.values[place] for place in self.shown), *(results or ()))
        change = changes.setdefault(repr((row.time, values)), [values, row.time, 0])
        change[2] += times

    def _results_of(self, rows: Sequence[_Row]) -> Iterator[Values]:
        """The results of all rows of a key, in order."""
        so_far, held, results = RowsSoFar(self.plan, {}, ()), list[Values](), list[list[Any]]()
        for number, (_, peers) in enumerate(groupby(rows, key=lambda row: row.key[0])):
            equal = list(peers)
            at = self._distance(equal[0]) if self.plan.by_distance else number
            values = [(at, *(row.values[place] for place in self.measured)) for row in equal]
            held += values
            results += so_far.peers(at, values)
        for at, row in enumerate(results):
            for measure, n, value, default in self.plan.leads:
                missing = None if default is None else held[at][default]
                row[measure] = held[at + n][value] if at + n < len(held) else missing
        self._of_rows_around(held, results)
        yield from map(tuple, results)

    def _of_rows_around(self, held: Sequence[Values], results: Sequence[list[Any]]) -> None:
        """Put in the results of frames that do not end with their row, and those of the n-th row of a frame."""
        for frame, folds, numbers in self.plan.spans:
            sliding = Sliding(folds, 0)
            for row, (start, end) in zip(results, _bounds(frame, held), strict=True):
                for measure, value in zip(numbers, sliding.moved(held, start, end), strict=True):
                    row[measure] = value
        for frame, measure, n, column in self.plan.nths:
            for row, (start, end) in zip(results, _bounds(frame, held), strict=True):
                row[measure] = held[start + n][column] if start + n < end else None

    def _distance(self, row: _Row) -> Any:
        """Where a row is on the axis of its order, ms or the number itself, ascending; nulls lie endlessly far before or behind all others."""
        by, value = self.ranking.by[0], row.values[self.by]
        if value is None:
            return -math.inf if by.nulls_first else math.inf
        instant = value
        if isinstance(value, datetime):
            instant = to_ms(value) + Fraction(value.microsecond % 1000, 1000)
        elif isinstance(value, Decimal) and max(len(value.as_tuple().digits), value.adjusted() + 1) > _DIGITS:
            instant = Fraction(value)
        return -instant if by.descending else instant


def _bounds(frame: Frame, held: Sequence[Values]) -> Iterator[tuple[int, int]]:
    """The first row of the frame of each row, and the place behind its last one; the first of the values of a row is where it is in the order."""
    axis, size = [values[0] for values in held], len(held)
    for number, at in enumerate(axis):
        if frame.unit == "rows":
            start = 0 if frame.preceding is None else number - frame.preceding
            end = number + frame.following + 1
        else:
            start = 0 if frame.preceding is None else bisect_left(axis, at - frame.preceding)
            end = size if frame.following == ALL_ROWS else bisect_right(axis, at + frame.following)
        end = max(0, min(end, size))
        yield max(0, min(start, end)), end


def _key(row: _Row) -> Any:
    return row.key
