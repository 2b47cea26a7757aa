"""The kernel of ``deduplicate``: the same as ``ProcessKernel`` with ``Deduplicate``, without a call of a function for each row.

The rows themselves stay in columns: only keys and times are looked at. What comes out, and what lies in state, is byte for byte that of
``ProcessKernel``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, NEVER
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.process import KeyCells, ProcessKernel
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.matching import Deduplicate
from floodmark.spec.values.schema import ROW

_SEEN, _MARKS = "seen", "over"
"""The state and the timer of ``Deduplicate``."""


def is_deduplication(stage: ProcessStage) -> bool:
    """Whether a stage drops duplicates, and fails where a row fails."""
    step = stage.step
    return isinstance(step.function.function, Deduplicate) and step.on_error != "quarantine" and not step.clocked


class DeduplicateKernel(ProcessKernel):
    """Duplicates of one key group, of a stage that ``is_deduplication``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, Deduplicate)
        self.within = function.within
        self.emitted: pa.Table | None = None

    def _rows_and_ticks(self, table: pa.Table, places: Sequence[int], moves: list[tuple[int, Tick]]) -> None:
        """Process rows in their order; rows of another shape than the result's go the general way."""
        whole = table["row"].combine_chunks()
        shaped = set(self.result.names) <= {field.name for field in whole.type}
        if moves or not shaped or any(pc.struct_field(whole, name).null_count for name in self.result.needed):
            super()._rows_and_ticks(table, places, moves)
            return
        rows = zip(self._expected_keys(table), table["t"].to_pylist(), table["w"].to_pylist(), strict=True)
        positions = []
        for position, (key, time, stamp) in enumerate(rows):
            cells: KeyCells = self.keys.get(key) or self._key(key)
            if cells.event <= stamp:
                self._fire(cells, stamp)
            cells.stamp, cells.latest = stamp, max(cells.latest, time)
            if time <= stamp:
                self.late += self._wanted(time)
            if self._marked(cells, time):
                positions.append(position)
        self.arrived += table.num_rows
        self.emitted = self._rows(table, whole, np.array(positions, dtype=np.int64))

    def _marked(self, cells: KeyCells, time: int) -> bool:
        """Mark a row that is no duplicate; False for a duplicate."""
        marks = cells.timers.setdefault(_MARKS, [])
        first = bisect_left(marks, time)
        if first < len(marks) and marks[first] - 2 * self.within <= time:
            return False
        mark = min(max(time + self.within, NEVER), END)
        rank = bisect_left(marks, mark)
        if rank == len(marks) or marks[rank] != mark:
            marks.insert(rank, mark)
        cells.states[_SEEN] = True
        cells.event = marks[0]
        return True

    def _fire(self, key_state: KeyCells, progress: int) -> None:
        """Free the marks that progress has reached, with the last one all state of the key."""
        marks = key_state.timers.get(_MARKS, [])
        del marks[: bisect_right(marks, progress)]
        key_state.event = marks[0] if marks else NONE
        if not marks:
            key_state.timers.pop(_MARKS, None)
            key_state.states.pop(_SEEN, None)

    def _rows(self, table: pa.Table, whole: pa.StructArray, positions: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
        """The rows at some positions as rows of the result."""
        schema, chosen = self.result.schema, pa.array(positions)
        columns: dict[str, Any] = dict(
            zip(self.stage.step.keys, (table[k].take(chosen) for k in self.stage.keys), strict=True)
        )
        columns |= {name: pc.struct_field(whole, name).take(chosen) for name in self.result.names}
        columns |= {"_event_time": table["t"].take(chosen), "_watermark": table["w"].take(chosen)}
        columns["_kind"] = pa.array(np.full(len(positions), ROW))
        columns["_order"] = pa.array(np.arange(len(positions)))
        return pa.table([columns[name] for name in schema.names], schema.names).cast(schema)

    def _results(self) -> pa.Table:
        return super()._results() if self.emitted is None else self._cut(self.emitted)
