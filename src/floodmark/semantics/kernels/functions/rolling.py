"""The kernel of rolling aggregates over rows that are retracted: one key group, key by key.

A row or a retraction changes the accumulators of its key. Once the rows of a call are in, each key whose result is another one retracts the
result before and emits the new one; a key without rows has none. So rows minus retractions are at each cut the aggregates over the rows so
far, and a bounded run emits the last results alone.

Source: Flink ``GroupAggFunction``; the state of each aggregate is chosen by its law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.core.time import NEVER
from floodmark.core.types import parse
from floodmark.semantics.aggregates.numbers import of_key, row_codes
from floodmark.semantics.aggregates.retracting import retracting
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.functions.netting import NetKernel
from floodmark.semantics.kernels.kernel import Emission
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.spec.windowing.aggregates import Builtin

_SUMS = ("count", "sum", "mean", "min", "max", "count_distinct")


def rolls(stage: ElementStage) -> bool:
    """Whether a stage is a rolling aggregate over rows that are retracted."""
    return stage.revisable and stage.step.rolling


class RolledKey:
    """The state of one key: how many rows it has, an accumulator per aggregate, and the result that is emitted with its event time.

    ``empty``: the accumulators of no rows. A key without rows is kept while a retraction waits for its row.
    """

    __slots__ = ("emitted", "empty", "entry", "event", "rows", "stamp", "states", "tick", "time")

    def __init__(self, entry: Entry, empty: list[Any], states: list[Any]) -> None:
        self.entry, self.empty, self.states = entry, empty, states
        self.rows, self.emitted = 0, None
        self.stamp = self.time = NEVER
        self.event = self.tick = NONE
        if entry.value:
            self.rows, self.states, self.emitted, self.stamp, self.time = entry.value

    def close(self) -> bool:
        """Write the state into the entry; False if the key has no rows."""
        self.entry.value = self.rows, self.states, self.emitted, self.stamp, self.time
        return self.rows != 0 or self.states != self.empty


class RollingKernel(NetKernel):
    """Rolling aggregates of the keys of one group, for a stage that ``rolls``."""

    stage: ElementStage

    def __init__(self, stage: ElementStage, store: Store) -> None:
        step = stage.step
        values = [value.sql for value in stage.values]
        types = {value.sql: value.type for value in stage.values}
        self.measures = [
            (
                retracting(name, a, types.get(a.expression or "", "")),
                _position_of(values, a.expression),
                _position_of(values, getattr(a, "by", None)),
            )
            for name, a in step.aggregates
        ]
        self.kinds: list[int] = []
        self.values: list[tuple[Any, ...]] = []
        self.acyclic = not step.own_aggregates
        self.sums = all(isinstance(a, Builtin) and a.function in _SUMS for _, a in step.aggregates) and not any(
            types[text] in {"float", "double"} or parse(types[text]).inner for text in values
        )
        """Whether results depend on no order of rows, and on none that is taken back."""
        super().__init__(stage, store)

    def _opened(self, entry: Entry) -> RolledKey:
        empty, states = ([form.create() for form, _, _ in self.measures] for _ in range(2))
        return RolledKey(entry, empty, states)

    def _arrive(self, arrivals: Arrivals) -> None:
        self.kinds, self.values = arrivals.kinds, arrivals.values

    def _take(self, key_state: Any, position: int, time: int, stamp: int) -> None:
        sign = -1 if self.kinds[position] == RETRACTION else 1
        self._change(key_state.states, self.values[position], time, sign)
        key_state.rows += sign
        key_state.time, key_state.stamp = time, stamp

    def whole(self, packed: Sequence[dict[str, pa.Table]]) -> Emission | None:
        """As ``advance`` for all rows of a key group at once, to the end of input: no state is read or written, and of rows that are taken back none is added up; None if the rows need it.

        Args:
            packed: as of ``advance``.
        """
        arrivals = self._all_rows(packed) if self.sums else None
        if arrivals is None:
            return None
        table, self.keys = arrivals.table, {}
        with self._undisturbed():
            self._restart()
            which = row_codes([table[key] for key in self.stage.keys], np.zeros(table.num_rows, np.int64))
            signs = np.where(table["kind"].to_numpy() == RETRACTION, -1, 1)
            codes = row_codes([table[f"v{number}"] for number, _ in enumerate(self.stage.values)], which)
            _, first = np.unique(codes, return_index=True)
            times = np.bincount(codes, signs).astype(np.int64)
            left = np.flatnonzero(times)
            owners, rows = which[first[left]].tolist(), Arrivals(self.stage, table.take(pa.array(first[left])), [])
            last = np.zeros(int(which.max()) + 1, np.int64)
            last[which] = np.arange(len(which))  # of several the last one stays
            _, begins = np.unique(which, return_index=True)
            keys = Arrivals(self.stage, table.take(pa.array(begins)), []).keys
            stamps, moments = (table[name].take(pa.array(last)).to_pylist() for name in ("w", "t"))
            totals = np.bincount(which, signs).astype(np.int64).tolist()
            states = [[form.create() for form, _, _ in self.measures] for _ in keys]
            for owner, values, number, moment in zip(
                owners, rows.values, times[left].tolist(), rows.times, strict=True
            ):
                for _ in range(abs(number)):
                    self._change(states[owner], values, moment, 1 if number > 0 else -1)
            for owner in np.argsort(begins).tolist():
                if totals[owner] > 0:
                    result = self._named_result(keys[owner], states[owner])
                    self.out.append((*keys[owner], *result, moments[owner], stamps[owner], ROW, self.units))
                self.units += 1
            return self._emission([], {}, None, None)

    def _change(self, states: list[Any], values: tuple[Any, ...], time: int, sign: int) -> None:
        """Add a row to the accumulators of its key, or take one away."""
        for number, (form, value, by) in enumerate(self.measures):
            states[number] = form.change(
                states[number],
                None if value is None else values[value],
                None if by is None else values[by],
                time,
                sign,
            )

    def _send(self, key_state: RolledKey) -> None:
        key, before = key_state.entry.key, key_state.emitted
        result = self._result(key_state) if key_state.rows > 0 else None
        if before is not None and result is not None and repr(before[0]) == repr(result):  # NaN is NaN
            return
        if before is not None:
            self.out.append((*key, *before[0], before[1], key_state.stamp, RETRACTION, self.units))
        if result is not None:
            self.out.append((*key, *result, key_state.time, key_state.stamp, ROW, self.units))
        self.units += 1
        key_state.emitted = None if result is None else (result, key_state.time)

    def _result(self, key_state: RolledKey) -> tuple[Any, ...]:
        return self._named_result(key_state.entry.key, key_state.states)

    def _named_result(self, key: tuple[Any, ...], states: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a key's accumulators; an error names the key."""
        with of_key(dict(zip(self.stage.step.keys, key, strict=True))):
            return tuple(form.result(state) for (form, _, _), state in zip(self.measures, states, strict=True))

    def _results(self) -> pa.Table:
        return self._table(self.out, self.stage.result_schema)


def _position_of(values: Sequence[str], text: str | None) -> int | None:
    return None if text is None else values.index(text)
