"""Contents of windows: all rows in order of arrival, or only accumulators; and the results computed from them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import numpy as np

from floodmark.core.errors import UserCodeError, user_code_boundary
from floodmark.semantics.aggregates.numbers import of_key
from floodmark.semantics.aggregates.table import fold
from floodmark.semantics.encoding.columns import arrow_schema, check_names, fitted
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.spec.graph.steps import WindowAggregate
from floodmark.spec.values.functions import Pane
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import ORDERED
from floodmark.spec.windowing.evictors import KeepLast, KeepNear
from floodmark.spec.windowing.windows import Count, Session

Held = list[Any]
"""The contents of one window, plain data: rows, or an accumulator per aggregate, or the row reduced so far."""


class WindowContents:
    """Operations on the contents of a stage's windows. The contents themselves are stored by the kernel.

    Args:
        stage: of the windows.
    """

    def __init__(self, stage: ElementStage) -> None:
        self.step = step = stage.step
        values = [v.sql for v in stage.values]
        types = {v.sql: v.type for v in stage.values}
        self.measures = [
            (fold(name, a, types.get(a.expression or "", "")), *_places(values, a)) for name, a in step.aggregates
        ]
        in_turn = _last_rows(step)
        self.quarantines = step.on_error == "quarantine"
        self.types = [(f.name, f.type) for f in arrow_schema(step.schema) if f.name in step.own_columns]
        self.blank = dict.fromkeys(step.parent.schema.names)  # a column that rows of an older version lack is null
        own = set(step.own_columns)
        self.yields = Schema(tuple(c if c.name in own else replace(c, nullable=True) for c in step.schema.columns))
        whole = step.function is not None and not step.aggregates and not step.reduces
        ordered = any(getattr(a, "function", "") in ORDERED for _, a in step.aggregates)
        joined = ordered and isinstance(step.window, Session)  # parts of sessions are merged in order of arrival
        self.keeps_rows = step.evictor is not None or in_turn or whole or joined
        self.distance = values.index(step.evictor.distance) if isinstance(step.evictor, KeepNear) else None
        self.evictor = KeepLast(step.window.size) if in_turn and isinstance(step.window, Count) else step.evictor

    def nothing(self) -> Held:
        """The contents of a new or purged window."""
        if self.keeps_rows:
            return []
        return [None] if self.step.reduces else [f.create() for f, _, _ in self.measures]

    def add(self, held: Held, arrived: int, time: int, values: tuple[Any, ...], row: Any) -> None:
        """Add a row.

        Args:
            held: changed in place.
            arrived: position of the row among all rows of its key group.
            time: its event time.
            values: of the stage's expressions for the row.
            row: the whole row, if a function of the user needs it.
        """
        if self.keeps_rows:
            held.append((arrived, time, values, row))
        elif self.step.reduces:
            held[0] = dict(row) if held[0] is None else self._reduced(held[0], row)
        else:
            self._fold(held, values)

    def joined(self, left: Held, right: Held) -> Held:
        """The merged contents of two sessions."""
        if self.keeps_rows:
            return sorted(left + right, key=lambda item: item[0])
        if self.step.reduces:
            pair = [c[0] for c in (left, right) if c[0] is not None]
            return [self._reduced(*pair) if len(pair) > 1 else (pair or [None])[0]]
        return [form.merge(a, b) for (form, _, _), a, b in zip(self.measures, left, right, strict=True)]

    def results(self, held: Held, pane: Pane) -> list[tuple[Any, ...]]:
        """The rows of a pane: the aggregates, or the rows that the user's function yields for rows or aggregates."""
        step = self.step
        if step.reduces:
            folded = reduce(self._reduced, (self.blank | row for *_, row in held)) if self.keeps_rows else held[0]
            with user_code_boundary("reduce()", f"Return a mapping with {', '.join(step.own_columns)}."):
                return [tuple(_item(folded[name]) for name in step.own_columns)]
        state = held
        if self.keeps_rows and step.aggregates:
            state = [f.create() for f, _, _ in self.measures]
            for _, _, values, _ in held:
                self._fold(state, values)
        argument: Any = [self.blank | row for *_, row in held] if not step.aggregates else None
        if step.aggregates:
            with of_key(pane.key):
                results = tuple(form.result(a) for (form, _, _), a in zip(self.measures, state, strict=True))
            if step.function is None:
                return [results]
            argument = dict(zip((name for name, _ in step.aggregates), results, strict=True))
        assert step.function is not None
        with user_code_boundary("window function", f"The pane was {pane}."):
            made = [dict(row) for row in step.function.call(pane, argument)]
            check_names(made, self.yields)
            return [tuple(_item(row.get(name)) for name in step.own_columns) for row in made]

    def spoiling(self, held: Held) -> Iterator[tuple[int, UserCodeError]]:
        """(position, error) of the rows for which a user's fold fails; the fold continues without a row that fails."""
        if not self.keeps_rows or not (self.step.reduces or self.step.own_aggregates):
            return
        state: Any = None
        for position, (_, _, values, row) in enumerate(held):
            before = copy.deepcopy(state)
            try:
                if self.step.reduces:
                    state = dict(row) if state is None else self._reduced(state, row)
                else:
                    state = [f.create() for f, _, _ in self.measures] if state is None else state
                    self._fold(state, values)
            except UserCodeError as error:
                state = before
                yield position, error

    def evicted(self, held: Held, when: Literal["before", "after"]) -> Held:
        """The contents that the evictor retains before or after the function."""
        evictor, distance_position = self.evictor, self.distance
        if evictor is None or evictor.when != when:
            return held
        distances = [None if distance_position is None else values[distance_position] for _, _, values, _ in held]
        return [held[i] for i in evictor.retained([time for _, time, _, _ in held], distances)]

    def _fold(self, state: Held, values: tuple[Any, ...]) -> None:
        """Add a row's values to the accumulators."""
        for i, (form, value, by) in enumerate(self.measures):
            state[i] = form.add(state[i], None if value is None else values[value], None if by is None else values[by])

    def _reduced(self, held: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        assert self.step.function is not None
        with user_code_boundary("reduce()", f"The rows were {held} and {row}."):
            folded = dict(self.step.function.call(held, dict(row)))
            if self.quarantines:  # quarantines the row whose result does not fit, not a later one
                for name, kind in self.types:
                    fitted([_item(folded[name])], kind)
            return folded


def _item(value: Any) -> Any:
    """A numpy value as Python's own."""
    return value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value


def _last_rows(step: WindowAggregate) -> bool:
    """Whether a count window slides, so that its contents are its last rows."""
    return isinstance(step.window, Count) and step.window.slide != step.window.size


def _places(values: Sequence[str], aggregate: Any) -> tuple[int | None, int | None]:
    by = getattr(aggregate, "by", None)
    return (
        None if aggregate.expression is None else values.index(aggregate.expression),
        None if by is None else values.index(by),
    )
