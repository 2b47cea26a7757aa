"""Stamping: the second pass over blobs, which puts watermark, progress and sequence on every row and the marker after the last row.

If the source learns its bound, another pass counts delays before, as the commit that brings the rows records how late they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from floodmark.connectors.judging.validation import ASKED, CHANGE, CHANGES, EVENT, trace_of
from floodmark.engines.landing import units
from floodmark.engines.landing.units import Piece
from floodmark.lake.table.rows import INSTANT, marker
from floodmark.semantics.time.delays import Delays, Milliseconds
from floodmark.semantics.time.watermarks import WatermarkState, advance, delays_of
from floodmark.spec.values.schema import RETRACTION, ROW, STAMPS, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamping:
    """The plan of the stamps of one commit.

    Args:
        starts: unit -> (watermark state before its first row, sequence of its first row), of the units that land.
        last: the unit after whose rows the marker stands.
        after: watermark after the commit.
        marker: the marker's sequence.
        now: the landing clock, ms.
        idle_timeout: of the source, ms.
        partition_by: of the source.
        by_commit: the watermark of all rows of a commit; None if each row has its own.
    """

    starts: Mapping[int, tuple[WatermarkState, int]]
    last: int
    after: int
    marker: int
    now: int
    idle_timeout: int | None
    partition_by: str | None
    by_commit: int | None


def stamped(pieces: Iterable[Piece], schema: Schema, plan: Stamping) -> Iterator[pa.RecordBatch]:
    """The rows of a log commit with their stamps, in order, and the marker after the rows of the plan's last unit."""
    reached = dict(plan.starts)
    for unit, kind, data in pieces:
        if kind == units.ROWS and unit in reached:
            rows = units.rows_of(data)
            sequence = reached[unit][1]
            yield _stamp(rows, _stamps(plan, reached, unit, rows), sequence, plan.now)
        elif kind == units.REPORT and unit == plan.last:
            yield only_marker(schema, plan)


def only_marker(schema: Schema, plan: Stamping) -> pa.RecordBatch:
    """The marker row of a commit."""
    return marker(schema, watermark=plan.after, sequence=plan.marker, now=plan.now)


def measured(pieces: Iterable[Piece], plan: Stamping) -> Delays:
    """The delays of the rows of a commit behind the watermark; the plan starts from unclamped states."""
    reached, delays = dict(plan.starts), Delays()
    for unit, kind, data in pieces:
        if kind == units.ROWS and unit in reached:
            rows = units.rows_of(data)
            stamps = _stamps(plan, reached, unit, rows)
            delays = delays.plus(delays_of(stamps, rows.column(ASKED).to_numpy()))
    return delays


def _stamps(
    plan: Stamping, reached: dict[int, tuple[WatermarkState, int]], unit: int, rows: pa.RecordBatch
) -> Milliseconds:
    """The watermark just before each of some rows of a unit; the unit's state and sequence in ``reached`` are advanced past these rows."""
    state, sequence = reached[unit]
    if plan.by_commit is None:
        trace = trace_of(rows, plan.partition_by)
        stamps, state = advance(state, trace, now=plan.now, idle_timeout=plan.idle_timeout)
    else:
        stamps = np.full(len(rows), plan.by_commit)
    reached[unit] = state, sequence + len(rows)
    return stamps


def _stamp(rows: pa.RecordBatch, stamps: Milliseconds, sequence: int, now: int) -> pa.RecordBatch:
    """Rows as they stand in the log; the two rows of an update share one sequence, as they are one change."""
    size = len(rows)
    moments = rows.column(EVENT).to_numpy(zero_copy_only=False)
    sequences, kinds = np.arange(sequence, sequence + size), np.full(size, ROW, dtype=np.int32)
    payload = rows.drop_columns([EVENT, ASKED])
    if CHANGE in payload.schema.names:
        change = payload.column(CHANGE).to_numpy()
        payload = payload.drop_columns([CHANGE])
        kinds[(change == CHANGES["delete"]) | (change == CHANGES["update_preimage"])] = RETRACTION
        sequences[1:] -= (change[1:] == CHANGES["update_postimage"]) & (change[:-1] == CHANGES["update_preimage"])
    columns = [
        *payload.columns,
        pa.array(moments * 1000, type=INSTANT),
        pa.array(stamps, type=pa.int64()),
        pa.array(stamps, type=pa.int64()),
        pa.array(sequences),
        pa.array(np.full(size, now * 1000), type=INSTANT),
        pa.array(kinds),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*payload.schema.names, *STAMPS])
