"""The order in which rows of several key groups are processed by time, found in columns: that of ``encoding/order`` for rows of one instant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.numbers import Ints, dense, ranks
from floodmark.spec.values.schema import RETRACTION

Spans = dict[int, tuple[int, int]]
"""Key group -> the first of its rows, and the one after its last."""


def spans_of(groups: Any) -> Spans:
    """(key group of each row, ascending) -> where those of each are."""
    if not len(groups):
        return {}
    bounds = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1], True]).tolist()
    return {int(groups[start]): (start, stop) for start, stop in pairwise(bounds)}


def in_order(table: pa.Table, instants: Sequence[Ints], sequences: Sequence[int]) -> Ints | None:
    """The positions of rows in their order; None if columns do not show it: a row is retracted, or values have no order in columns.

    Args:
        table: the rows.
        instants: what rows are sorted by first.
        sequences: what orders rows of one instant before their values.
    """
    if pc.any(pc.equal(table["kind"], RETRACTION)).as_py():
        return None
    order = np.lexsort(instants[::-1])
    changes = np.zeros(max(len(order) - 1, 0), bool)
    for values in instants:
        in_turn = values[order]
        changes |= in_turn[1:] != in_turn[:-1]
    first = np.r_[True, changes]
    crowded = np.flatnonzero(~first | ~np.r_[first[1:], True]) if len(order) else order
    if not len(crowded):
        return order
    rows = table.take(pa.array(order[crowded]))
    codes = list[Ints]()
    for name in table.column_names:
        if name not in {"s", "side", "t", "w"}:
            own = _codes(rows[name].combine_chunks())
            if own is None:
                return None
            codes += own
    keys = [np.cumsum(first)[crowded], np.array(sequences, np.int64)[order[crowded]], *codes]
    order[crowded] = order[crowded][np.lexsort(keys[::-1])]
    return order


def _codes(values: pa.Array) -> list[Ints] | None:
    """Numbers that sort as ``order_key`` of values does, the first number first; None for a type without."""
    kind = values.type
    there = pc.is_valid(values).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_struct(kind):
        codes = [there]
        for part in values.flatten():
            own = _codes(part)
            if own is None:
                return None
            codes += own
        return codes
    if pa.types.is_string(kind) or pa.types.is_decimal128(kind):
        return [dense(values)]
    whole = _whole(values)
    return None if whole is None else [there, pc.fill_null(whole.cast(pa.int64()), 0).to_numpy()]


def _whole(values: pa.Array) -> pa.Array | None:
    """Integers of the same order; None for a type without."""
    kind = values.type
    if pa.types.is_floating(kind):  # -0.0 comes before 0.0, and there is one NaN
        whole = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, kind), values)
        return ranks(pa.chunked_array([whole])).combine_chunks()
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    return values if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) else None
