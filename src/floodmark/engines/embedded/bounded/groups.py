"""The kernels of a bounded run over rows of some key groups, in any process: (rows of the stage) -> output rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, Interval
from floodmark.engines.frames.numbering import Numbering
from floodmark.engines.frames.packing import SIDE_TABLES, Stamping, packing, side_columns, stamped_rows
from floodmark.semantics.encoding.columns import decode, inside
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.stage import AnyStage, closed, kernel_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Side
from floodmark.spec.values.schema import BOUNDED, Schema

RESULTS = ""
"""The name of the stateful step's results among the names of outputs."""
_WIDTH = 1 << 40
"""Sequences of one key group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The computation for the rows of each key group.

    Args:
        stage: with its clip.
        interval: of event time.
        clock: recorded ticks.
        reached: progress before the input ended.
        sides: side output -> its kind and columns.
        ingested: for ``_ingest_time``, ms.
    """

    stage: AnyStage
    interval: Interval
    clock: tuple[Tick, ...]
    reached: int
    sides: dict[str, tuple[Side, Schema]]
    ingested: int


@dataclass(slots=True)
class Results:
    """Output rows and counts.

    Args:
        tables: ``RESULTS`` or side output -> complete rows.
        late: rows that count although they were late.
        dropped: (row, window) pairs dropped.
    """

    tables: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    late: int = 0
    dropped: int = 0


def computed(work: Work, batches: Iterable[pa.RecordBatch]) -> Results:
    """All rows of some key groups, from their first to the end of input.

    Args:
        work: to do.
        batches: rows of ``stage_rows``, all rows of each key group.
    """
    results = Results()
    for packed in packing(work.stage, work.interval)(batches):
        (row,) = packed.to_pylist()
        results.late, results.dropped = results.late + row["late"], results.dropped + row["dropped"]
        aside = decode(row["side"]) if row["side"] is not None else {}
        if row["payload"] is None and work.stage.step.columnar:
            _add_sides(work, results, row["group"], [aside], {})
            continue
        parts = [] if row["payload"] is None else [decode(row["payload"])]
        emission = kernel_of(work.stage, MemoryStore()).advance(parts, END, list(work.clock), work.reached)
        closed(work.stage)
        _add(work, results, row["group"], emission, aside)
    return results


def _add(work: Work, outputs: Results, group: int, emission: Emission, aside: dict[str, pa.Table]) -> None:
    results, asides = emission.results, [aside]
    if work.stage.step.columnar:  # packing has counted late rows; results outside the interval are computed too
        if not work.interval.everything:
            results = inside(results, results["_event_time"], work.interval)
    else:
        outputs.late, outputs.dropped = outputs.late + emission.late, outputs.dropped + emission.dropped
        emitted = {"side": emission.side, "failed": emission.failed}
        asides.append({name: table for name, table in emitted.items() if table is not None})
    stamping = _stamping(work, group)
    numbered = results.append_column("_sequence", pc.add(results["_order"], stamping.numbering.base))
    outputs.tables[RESULTS] += stamped_rows(numbered, work.stage.step.schema, stamping)
    _add_sides(work, outputs, group, asides, emission.sides)


def _add_sides(
    work: Work, outputs: Results, group: int, asides: list[dict[str, pa.Table]], emitted: Mapping[str, pa.Table]
) -> None:
    stamping = _stamping(work, group)
    for output, (side, schema) in work.sides.items():
        if side == "side":
            table = emitted.get(output)
            if table is not None and table.num_rows:
                numbered = table.append_column("_sequence", pc.add(table["_order"], stamping.numbering.base))
                outputs.tables[output] += stamped_rows(numbered, schema, stamping)
            continue
        sequence = stamping.numbering.base
        for table in (chunk[SIDE_TABLES[side]] for chunk in asides if SIDE_TABLES[side] in chunk):
            rows = table
            if side == "quarantine":
                sequences = pa.array(range(sequence, sequence + rows.num_rows), pa.int64())
                rows = rows.set_column(rows.column_names.index("s"), "s", sequences)
                sequence += rows.num_rows
            outputs.tables[output] += stamped_rows(side_columns(rows, schema), schema, stamping)


def _stamping(work: Work, group: int) -> Stamping:
    numbering = Numbering(BOUNDED + group * _WIDTH, _WIDTH, 2 * BOUNDED)
    return Stamping(progress=None, ingested=work.ingested, numbering=numbering)
