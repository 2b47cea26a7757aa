"""Revisions: new panes of fired windows for each late row, in columns.

A late unit is one late row of one key and window, or the retraction and the row that share a sequence. Each unit revises its pane once:
the value before is retracted, and the value after it emitted. The work is that of the keys and windows that late rows touch, and linear in
the late rows, whether they are many of one window or one of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.accumulators import Accumulators, Partials
from floodmark.semantics.aggregates.grouping import group_ids, positions
from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.aggregates.running import TURN, running
from floodmark.spec.values.schema import RETRACTION, ROW


@dataclass(frozen=True, slots=True)
class Revisions:
    """The changes by late units.

    Args:
        state: partials of fired windows after the last unit, and their results, ``out``.
        results: dimensions and results to send: by turn of their unit, then sequence; a retraction is followed by what replaces it.
        stamps: of each result, that of its unit.
        kinds: of each result, ``ROW`` or ``RETRACTION``.
        follows: -1 for a result that belongs to the retraction before it, else 0.
    """

    state: Partials
    results: pa.Table
    stamps: Ints
    kinds: Ints
    follows: Ints


def revise(accumulators: Accumulators, state: Partials | None, rows: pa.Table, dims: Sequence[str]) -> Revisions:
    """Apply late rows in order of their sequence, per key and window one after the other.

    Args:
        accumulators: the arithmetic.
        state: partials of fired windows and their results, ``out``; None if no window has fired.
        rows: late rows, with dimensions, sequence, stamp and sign.
        dims: the keys and ``end``.
    """
    rows = rows.take(pc.sort_indices(rows, [("s", "ascending"), ("kind", "ascending")]))
    rows = rows.append_column(TURN, pa.array(_turns(group_ids(rows, dims)[0], rows["s"].to_numpy())))
    if state is None:
        state = {n: t.slice(0, 0) for n, t in accumulators.partials(rows.slice(0, 1), dims).items()}
        state["out"] = accumulators.finish(state, dims).drop_columns(["n"])
    touched = {n: matching(t, rows, dims) for n, t in state.items()}
    before = {n: t.filter(touched[n]) for n, t in state.items()}
    versions = running(accumulators, before, accumulators.partials(rows, [*dims, TURN]), dims)
    results = [accumulators.finish(block, [*dims, TURN]).drop_columns(["n"]) for block in versions.blocks]
    panes = pa.concat_tables([_at(before["out"], -1), *(_at(t, t[TURN]) for t in results)])
    units = rows.group_by([*dims, TURN], use_threads=False).aggregate([("w", "max"), ("s", "min"), ("kind", "min")])
    last = rows.group_by([*dims], use_threads=False).aggregate([(TURN, "max")]).rename_columns([*dims, TURN])
    after = versions.last | {"out": _results_of(last, panes, dims)}
    state = {n: pa.concat_tables([t.filter(pc.invert(touched[n])), after[n]]) for n, t in state.items()}
    order = pc.sort_indices(
        units, [(name, "ascending") for name in (TURN, "s_min", "kind_min", "end")]
    )  # Arrow promises none for its groups
    return _changes(state, units.take(order), panes, dims)


def _changes(state: Partials, units: pa.Table, panes: pa.Table, dims: Sequence[str]) -> Revisions:
    """Retraction and new value of each unit; nothing for a retraction that leaves the result unchanged."""
    previous = _at(units, pc.subtract(units[TURN], 1))
    pairs = np.stack([_rows_of(table, panes, dims) for table in (previous, units)], axis=1)
    results = panes.drop_columns([TURN])
    revised = np.flatnonzero((units["kind_min"].to_numpy() == RETRACTION) & (pairs >= 0).all(axis=1))
    olds, news = (results.take(pa.array(pairs[revised, side])).to_pylist() for side in (0, 1))
    same = [repr(old) == repr(new) for old, new in zip(olds, news, strict=True)]  # NaN is NaN
    pairs[revised[np.array(same, dtype=bool)]] = -1
    sent = pairs >= 0
    sizes = sent.sum(axis=1)
    return Revisions(
        state,
        results.take(pa.array(pairs[sent])),
        np.repeat(units["w_max"].to_numpy(), sizes),
        np.tile([RETRACTION, ROW], (len(pairs), 1))[sent],
        np.stack([np.zeros_like(sizes), np.where(sizes > 1, -1, 0)], axis=1)[sent],
    )


def _results_of(wanted: pa.Table, panes: pa.Table, dims: Sequence[str]) -> pa.Table:
    rows = _rows_of(wanted, panes, dims)
    return panes.take(pa.array(rows[rows >= 0])).drop_columns([TURN])


def _rows_of(wanted: pa.Table, panes: pa.Table, dims: Sequence[str]) -> Ints:
    """For each row of ``wanted`` the row of ``panes`` with its dimensions and turn, -1 where there is none."""
    rows: Ints = pc.fill_null(positions(wanted, [*dims, TURN], panes), -1).to_numpy()
    return rows


def _at(table: pa.Table, turn: pa.ChunkedArray | int) -> pa.Table:
    """The table with a turn, as its last column."""
    column = pa.array(np.full(table.num_rows, turn)) if isinstance(turn, int) else turn
    if TURN in table.column_names:
        table = table.drop_columns([TURN])
    return table.append_column(TURN, column)


def _turns(ids: Ints, sequences: Ints) -> Ints:
    """The place of each row among the units of its id, for rows sorted by sequence; rows of one sequence are one unit."""
    order = np.argsort(ids, kind="stable")
    ids, sequences = ids[order], sequences[order]
    fresh = np.diff(ids, prepend=-1) != 0
    units = np.cumsum(fresh | (np.diff(sequences, prepend=0) != 0))
    turns = np.empty_like(units)
    turns[order] = units - units[fresh][np.cumsum(fresh) - 1]
    return turns


def matching(table: pa.Table, rows: pa.Table, dims: Sequence[str]) -> pa.Array:
    """Which rows of ``table`` share their dimensions with a row of ``rows``."""
    return pc.is_valid(positions(table, dims, rows))
