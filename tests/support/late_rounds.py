"""The slow reference for late rows: one merge of all partials and one result per round, where round r applies the r-th unit of every window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.accumulators import Partials
from floodmark.semantics.aggregates.grouping import group_ids, positions
from floodmark.semantics.kernels.columnar import signed
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.spec.values.schema import RETRACTION, ROW


class RoundsKernel(ColumnarWindowKernel):
    """A kernel that revises windows round by round."""

    def _revised(self, state: Partials | None, rows: pa.Table, out: list[pa.Table]) -> Partials:
        accumulators, dims = self.stage.accumulators, self.dims
        rows = signed(rows.take(pc.sort_indices(rows, [("s", "ascending"), ("kind", "ascending")])))
        turn = _turns(group_ids(rows, dims)[0], rows["s"].to_numpy())
        if state is None:
            state = {n: t.slice(0, 0) for n, t in accumulators.partials(rows.slice(0, 1), dims).items()}
            state["out"] = accumulators.finish(state, dims).drop_columns(["n"])
        for number in range(int(turn.max()) + 1):
            chosen = rows.filter(pa.array(turn == number))
            masks = {n: pc.is_valid(positions(t, dims, chosen)) for n, t in state.items()}
            before = {n: t.filter(masks[n]) for n, t in state.items()}
            after = accumulators.merge([before, accumulators.partials(chosen, dims)], dims)
            after["out"] = accumulators.finish(after, dims).drop_columns(["n"])
            stamps = chosen.group_by(dims, use_threads=False).aggregate([("w", "max"), ("s", "min"), ("kind", "min")])
            self._panes(before["out"], after["out"], stamps, out)
            state = {n: pa.concat_tables([t.filter(pc.invert(masks[n])), after[n]]) for n, t in state.items()}
        return state

    def _panes(self, old: pa.Table, new: pa.Table, stamps: pa.Table, out: list[pa.Table]) -> None:
        """Retraction and new value of each unit, adjacent, in order of sequence."""
        before, after = (pc.fill_null(positions(stamps, self.dims, t), -1).to_pylist() for t in (old, new))
        units = zip(*(stamps[name].to_pylist() for name in ("s_min", "kind_min", "w_max")), before, after, strict=True)
        for _, kind, stamp, was, now in sorted(units, key=lambda unit: unit[0]):
            removed, added = (table.slice(max(row, 0), int(row >= 0)) for table, row in ((old, was), (new, now)))
            if kind == RETRACTION and repr(removed.to_pylist()) == repr(added.to_pylist()):
                continue
            signs = [(table, sign) for table, sign in ((removed, RETRACTION), (added, ROW)) if table.num_rows]
            tables = [self._rows(table, np.array([stamp]), np.array([sign])) for table, sign in signs]
            if len(tables) > 1:
                tables[1] = tables[1].set_column(tables[1].num_columns - 1, "_order", pa.array([-1], pa.int64()))
            out.extend(tables)


def _turns(ids: Any, sequences: Any) -> Any:
    seen: dict[int, tuple[int, Any]] = {}
    turns = np.zeros(len(ids), dtype=np.int64)
    for row, (which, sequence) in enumerate(zip(ids.tolist(), sequences.tolist(), strict=True)):
        turn, last = seen.get(which, (-1, None))
        turn += sequence != last
        seen[which] = (turn, sequence)
        turns[row] = turn
    return turns
