"""The kernel of ``over``: rows of a key in order of event time, each with results over the rows up to it.

Rows of one event time are all there once progress reaches it, so that their results, which may be of all of them, are computed at once.
What is kept of a key is one entry with accumulators and the newest rows, and entries of ``_PART`` rows each with older ones, which are
written once and dropped whole.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from floodmark.core.errors import UserCodeError
from floodmark.semantics.aggregates.rows import Fold
from floodmark.semantics.aggregates.table import fold
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.process import KeyCells, ProcessKernel
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.over import LATE, Measure, Over
from floodmark.spec.values.schema import ROW
from floodmark.spec.windowing.aggregates import Aggregate, Builtin
from floodmark.spec.windowing.frames import ALL_ROWS, Frame, Position, texts

_PART = 128
"""Rows of an entry with older rows."""

Value = tuple[Any, ...]


def is_over(stage: ProcessStage) -> bool:
    """Whether a stage computes results over rows."""
    return isinstance(stage.step.function.function, Over)


class _Folded:
    """An aggregate as functions of a row's values."""

    __slots__ = ("by", "copied", "fold", "value")

    def __init__(self, measure: Measure, of: Over, places: Mapping[str, int]) -> None:
        aggregate = measure.of
        assert isinstance(aggregate, (Builtin, Aggregate))
        expression = aggregate.expression
        by = aggregate.by if isinstance(aggregate, Builtin) else None
        self.fold: Fold = fold(measure.name, aggregate, of.types[expression] if expression else "")
        self.value = places[expression] if expression else None
        self.by = places[by] if by else None
        self.copied: Callable[[Any], Any] = copy.deepcopy if isinstance(aggregate, Aggregate) else _copied

    def added(self, state: Any, row: Value) -> Any:
        value = None if self.value is None else row[self.value]
        return self.fold.add(state, value, None if self.by is None else row[self.by])

    def both(self, earlier: Any, later: Any) -> Any:
        """The result of two parts, which stay as they are."""
        return self.fold.result(self.fold.merge(self.copied(earlier), later))


def _copied(state: Any) -> Any:
    return copy.copy(state) if isinstance(state, (dict, list, set)) else state


def _add(folds: Sequence[_Folded], accumulators: list[Any], row: Value) -> None:
    accumulators[:] = [of.added(state, row) for of, state in zip(folds, accumulators, strict=True)]


def _finished(folds: Sequence[_Folded], accumulators: Sequence[Any]) -> list[Any]:
    return [of.fold.result(of.copied(state)) for of, state in zip(folds, accumulators, strict=True)]


class Sliding:
    """Aggregates over the rows from ``start`` to ``end``, both of which only grow.

    Source: the two stacks of Tangwongsan, Hirzel, Schneider, "General incremental sliding-window aggregation", 2015.
    """

    __slots__ = ("back", "end", "folds", "front", "middle", "start")

    def __init__(self, folds: Sequence[_Folded], start: int) -> None:
        self.folds, self.start, self.middle, self.end = folds, start, start, start
        self.front: list[list[Any]] = []
        """Of the rows from each place before ``middle`` up to it, that of ``start`` last."""
        self.back = [of.fold.create() for of in folds]

    def moved(self, rows: Sequence[Value], start: int, end: int) -> list[Any]:
        """The results over rows from ``start`` to ``end``."""
        for row in rows[self.end : end]:
            _add(self.folds, self.back, row)
        self.end = end
        if start > self.start and start >= self.middle:
            self._turned(rows, start)
        elif start > self.start:
            del self.front[len(self.front) - (start - self.start) :]
        self.start = start
        if not self.front:
            return _finished(self.folds, self.back)
        states = zip(self.folds, self.front[-1], self.back, strict=True)
        return [of.both(front, back) for of, front, back in states]

    def _turned(self, rows: Sequence[Value], start: int) -> None:
        self.front, self.middle = [], self.end
        for row in reversed(rows[start : self.end]):
            alone = [of.added(of.fold.create(), row) for of in self.folds]
            if self.front:
                parts = zip(self.folds, alone, self.front[-1], strict=True)
                alone = [of.fold.merge(earlier, later) for of, earlier, later in parts]
            self.front.append(alone)
        self.back = [of.fold.create() for of in self.folds]


class Plan:
    """What is computed of a row, by kind.

    Args:
        of: the declaration.
        columns: of the input.
    """

    def __init__(self, of: Over) -> None:
        held = [m for m in of.measures if m.frame.preceding is not None or _is_lag(m.of)]
        expressions = dict.fromkeys(text for m in of.measures for text in texts(m.of))
        later = dict.fromkeys(
            text for m in held for text in (texts(m.of)[:1] if isinstance(m.of, Position) else texts(m.of))
        )
        self.names = tuple(m.name for m in of.measures)
        ordered = (*later, *(text for text in expressions if text not in later))
        places = {text: place for place, text in enumerate(ordered, 1)}
        self.columns = [of.columns[text] for text in ordered]
        self.kept = 1 + len(later)
        """Of a row's values, those that later rows read: its time, and these."""
        self.frames: list[tuple[Frame, list[_Folded], list[int]]] = []
        self.running: list[tuple[Frame, list[_Folded], list[int]]] = []
        self.positions: list[tuple[int, str]] = []
        self.lags: list[tuple[int, int, int, int | None]] = []
        self.leads: list[tuple[int, int, int, int | None]] = []
        """(number of the measure, rows behind, place of the value, that of the default), of an order in which all rows are held."""
        self.spans: list[tuple[Frame, list[_Folded], list[int]]] = []
        """Of frames that do not end with the row, of such an order too."""
        self.nths: list[tuple[Frame, int, int, int]] = []
        """(frame, number of the measure, number of the row in the frame from 0, place of the value), of such an order too."""
        by_frame: dict[Frame, list[tuple[int, Measure]]] = {}
        for number, measure in enumerate(of.measures):
            match measure.of:
                case Position(function="lag" | "lead" as function) as other:
                    default = None if other.default is None else places[other.default]
                    shifts = self.lags if function == "lag" else self.leads
                    shifts.append((number, other.n, places[other.expression or ""], default))
                case Position(function="nth_value") as nth:
                    self.nths.append((measure.frame, number, nth.n - 1, places[nth.expression or ""]))
                case Position(function=function):
                    self.positions.append((number, function))
                case _:
                    by_frame.setdefault(measure.frame, []).append((number, measure))
        for frame, some in by_frame.items():
            part = frame, [_Folded(m, of, places) for _, m in some], [number for number, _ in some]
            ending = self.running if frame.preceding is None else self.frames
            (self.spans if frame.following else ending).append(part)
        longest = max((n for _, n, _, _ in self.lags), default=0)
        self.holds = bool(self.frames or self.lags)
        bounded = [frame for frame, _, _ in self.frames]
        self.most_rows = max([longest, *(f.preceding or 0 for f in bounded if f.unit == "rows")])
        self.most_time = max((f.preceding or 0 for f in bounded if f.unit != "rows"), default=None)
        around = [*(frame for frame, _, _ in self.spans), *(frame for frame, *_ in self.nths)]
        self.by_distance = bool(self.most_time) or any(
            f.unit != "rows" and (f.preceding or f.following not in {0, ALL_ROWS}) for f in around
        )
        """Whether frames are of a distance in the order."""
        self.freed = self.most_time if not (self.most_rows or self.running or self.positions) else None
        """Time after its last row at which a key is freed, ms; None for keys that stay."""


def _is_lag(of: object) -> bool:
    return isinstance(of, Position) and of.function == "lag"


class RowsSoFar:
    """The rows of a key that later rows may need, and what is computed of all of them so far."""

    def __init__(self, plan: Plan, states: Mapping[str, Any], parts: Sequence[tuple[int, list[Value]]]) -> None:
        self.plan = plan
        self.parts = [(number, len(rows)) for number, rows in parts]
        self.rows: list[Value] = [row for _, rows in parts for row in rows]
        self.rows += states.get("rows", ())
        self.counted: list[int] = list(states.get("counted", (0, 0, 0)))
        """Rows so far, rows of earlier event times, event times."""
        self.last: int | None = states.get("last")
        stored = states.get("running", ())
        self.running = [
            list(accumulators) if accumulators is not None else [of.fold.create() for of in folds]
            for (_, folds, _), accumulators in zip(plan.running, stored or [None] * len(plan.running), strict=True)
        ]
        self.next_part: int = states.get("next", 0)
        self.sliding = [Sliding(folds, self._start(frame)) for frame, folds, _ in plan.frames]

    def _start(self, frame: Frame) -> int:
        """The place at which the frame of the last row begins."""
        if not self.rows:
            return 0
        if frame.unit == "rows":
            return max(0, len(self.rows) - 1 - (frame.preceding or 0))
        return bisect_left(self.rows, self.rows[-1][0] - (frame.preceding or 0), key=lambda row: row[0])

    def peers(self, time: int, rows: Sequence[Value]) -> Iterator[list[Any]]:
        """The results of rows of one event time, later than all before it."""
        plan, size = self.plan, len(self.rows)
        self.counted = [self.counted[0], self.counted[0], self.counted[2] + 1]
        self.last = time
        if plan.holds:
            self.rows += [row[: plan.kept] for row in rows]
        common = self._of_all(rows)
        for number, row in enumerate(rows):
            self.counted[0] += 1
            results = common | self._of_one(size + number, row)
            yield [results[measure] for measure in range(len(plan.names))]

    def _of_all(self, rows: Sequence[Value]) -> dict[int, Any]:
        """Number of a measure -> its result, which rows of one event time share."""
        results: dict[int, Any] = {}
        for accumulators, (frame, folds, numbers) in zip(self.running, self.plan.running, strict=True):
            if frame.unit != "rows":
                for row in rows:
                    _add(folds, accumulators, row)
                results |= dict(zip(numbers, _finished(folds, accumulators), strict=True))
        for sliding, (frame, _, numbers) in zip(self.sliding, self.plan.frames, strict=True):
            if frame.unit != "rows":
                start = max(sliding.start, self._start(frame))
                results |= dict(zip(numbers, sliding.moved(self.rows, start, len(self.rows)), strict=True))
        return results

    def _of_one(self, at: int, row: Value) -> dict[int, Any]:
        """Number of a measure -> its result for the row at a place."""
        plan = self.plan
        counts = {"row_number": self.counted[0], "rank": self.counted[1] + 1, "dense_rank": self.counted[2]}
        results: dict[int, Any] = {number: counts[function] for number, function in plan.positions}
        later = [number for _, _, numbers in plan.spans for number in numbers]
        later += [*(number for number, *_ in plan.leads), *(number for _, number, *_ in plan.nths)]
        results |= dict.fromkeys(later, None)
        for number, n, value, default in plan.lags:
            missing = None if default is None else row[default]
            results[number] = self.rows[at - n][value] if at >= n else missing
        for accumulators, (frame, folds, numbers) in zip(self.running, plan.running, strict=True):
            if frame.unit == "rows":
                _add(folds, accumulators, row)
                results |= dict(zip(numbers, _finished(folds, accumulators), strict=True))
        for sliding, (frame, _, numbers) in zip(self.sliding, plan.frames, strict=True):
            if frame.unit == "rows":
                start = max(0, at - (frame.preceding or 0))
                results |= dict(zip(numbers, sliding.moved(self.rows, start, at + 1), strict=True))
        return results

    def needed(self) -> int:
        """The place of the first row that a later row may need."""
        if not self.rows:
            return 0
        plan = self.plan
        first = len(self.rows) - plan.most_rows
        if plan.most_time is not None:
            first = min(first, bisect_left(self.rows, self.rows[-1][0] - plan.most_time, key=lambda row: row[0]))
        return max(0, first)

    def dump(self, rows: Sequence[Value]) -> dict[str, Any]:
        """Everything but the rows in parts, as plain data."""
        states: dict[str, Any] = {"rows": list(rows), "parts": [number for number, _ in self.parts]}
        states |= {"next": self.next_part, "last": self.last}
        states |= {"running": self.running} if self.running else {}
        return states | ({"counted": self.counted} if self.plan.positions else {})


class OverCells(KeyCells):
    """The state of one key."""

    __slots__ = ("held",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.held: RowsSoFar | None = None


class OverKernel(ProcessKernel):
    """Results over the rows of one key group, of a stage that ``is_over``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, Over)
        self.function, self.plan = function, Plan(function)
        names = stage.step.schema.names
        self.own = [name for name in names[len(stage.step.keys) :] if name not in self.plan.names]

    def _sequences(self, table: pa.Table) -> Sequence[int]:
        return table["s"].to_pylist() if self.stage.recorded else super()._sequences(table)

    def _opened(self, entry: Entry) -> OverCells:
        cells = OverCells(entry)
        numbers = cells.states.get("parts", ())
        self.entries.expect([(*entry.key, number) for number in numbers])
        parts = [(number, self.entries.opened((*entry.key, number)).value[1]) for number in numbers]
        cells.held = RowsSoFar(self.plan, cells.states, parts)
        self._due(cells)
        return cells

    def _due(self, key_state: Any) -> None:
        held, freed = key_state.held, self.plan.freed
        key_state.tick = NONE
        key_state.event = NONE if freed is None or held is None or held.last is None else held.last + freed

    def _wait(self, key_state: Any) -> None:
        self._due(key_state)

    def _fire(self, key_state: Any, progress: int) -> None:  # noqa: ARG002 - the base's
        """Free a key whose rows no later row needs."""
        for number, _ in key_state.held.parts:
            self.entries.drop(self.entries.opened((*key_state.entry.key, number)))
        key_state.states, key_state.held = {}, RowsSoFar(self.plan, {}, ())
        self._due(key_state)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:  # noqa: ARG002 - no clock
        self._expect(arrivals, start, stop)
        touched: dict[tuple[Any, ...], OverCells] = {}
        keys, times, stamps, rows = arrivals.keys, arrivals.times, arrivals.stamps, arrivals.rows
        on_time: list[int] = []
        for position in range(start, stop):
            self.arrived += 1
            if times[position] <= stamps[position]:
                self._refuse(self._key(keys[position]), times[position], stamps[position], rows[position])
            else:
                on_time.append(position)
        for time, instant in groupby(on_time, key=times.__getitem__):
            by_key: dict[tuple[Any, ...], list[int]] = {}
            for position in instant:
                by_key.setdefault(keys[position], []).append(position)
            for key, positions in by_key.items():
                cells = touched[key] = self._key(key)
                if cells.event <= time - 1:
                    self._fire(cells, time - 1)
                try:
                    self._peers(cells, time, [rows[position] for position in positions])
                except UserCodeError as error:
                    raise error.inside(self._about(cells)) from error.__cause__
        for cells in touched.values():
            self._shorten(cells)

    def _peers(self, cells: OverCells, time: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Emit rows of one key and one event time with their results."""
        assert cells.held is not None
        cells.stamp, cells.latest = max(cells.stamp, time - 1), max(cells.latest, time)
        values = [(time, *(row[column] for column in self.plan.columns)) for row in rows]
        for row, results in zip(rows, cells.held.peers(time, values), strict=True):
            self.out.append(
                (*cells.entry.key, *(row[name] for name in self.own), *results, time, time - 1, ROW, self.units)
            )
            self.units += 1
        self._due(cells)

    def _refuse(self, cells: OverCells, time: int, stamp: int, row: Mapping[str, Any]) -> None:
        """A late row: counted, and written to the late output if there is one."""
        self.late += self._wanted(time)
        self.context.key_state, self.context.timestamp, self.context.watermark = cells, time, stamp
        if self.function.late:
            self.emits = cells.entry.key, time, stamp
            self.side(LATE, {name: row[name] for name in self.own})
        else:
            self.count_dropped(time, stamp)

    def _shorten(self, cells: OverCells) -> None:
        """Forget the rows that no later row needs; put older ones into entries of their own."""
        held = cells.held
        assert held is not None
        first = held.needed()
        while held.parts and held.parts[0][1] <= first:
            number, size = held.parts.pop(0)
            self.entries.drop(self.entries.opened((*cells.entry.key, number)))
            del held.rows[:size]
            first -= size
        before = sum(size for _, size in held.parts)
        newest = held.rows[before if held.parts else first :]
        while len(newest) >= 2 * _PART:
            entry = self.entries.opened((*cells.entry.key, held.next_part))
            entry.value = self.layout, newest[:_PART]
            self.entries.put(entry)
            held.parts.append((held.next_part, _PART))
            held.next_part += 1
            newest = newest[_PART:]
        cells.states = held.dump(newest)
        self._due(cells)
