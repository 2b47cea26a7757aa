"""The kernels of a bounded run over rows of some key groups, in whatever process: rows of the stage in, output rows out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, Interval
from floodmark.engines.frames.numbering import Numbering
from floodmark.engines.frames.packing import Stamping, packing, side_columns, stamped_rows
from floodmark.semantics.columns import decode, inside
from floodmark.semantics.kernel import Emission, Tick
from floodmark.semantics.stage import AnyStage, closed, kernel_of
from floodmark.semantics.store import MemoryStore
from floodmark.spec.operator import Side
from floodmark.spec.schema import BOUNDED, Schema

RESULTS = ""
"""The name of the stateful step's own rows among those of outputs."""
_WIDTH = 1 << 40
"""Sequences of one key group."""
_CHUNKS = {"late": "side", "quarantine": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is done with the rows of each key group.

    Args:
        stage: with its cut.
        interval: of event time.
        clock: how it moved.
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
class Found:
    """Output rows and counts.

    Args:
        tables: ``RESULTS`` or side output -> complete rows.
        late: rows taken in although they were late.
        dropped: (row, window) pairs dropped.
    """

    tables: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    late: int = 0
    dropped: int = 0


def computed(work: Work, batches: Iterable[pa.RecordBatch]) -> Found:
    """All rows of some key groups, from their first to the end of input.

    Args:
        work: to do.
        batches: rows as ``stage_rows`` makes them; every row of a key group is among them.
    """
    found = Found()
    for packed in packing(work.stage, work.interval)(batches):
        (row,) = packed.to_pylist()
        found.late, found.dropped = found.late + row["late"], found.dropped + row["dropped"]
        aside = decode(row["side"]) if row["side"] is not None else {}
        if row["payload"] is None and work.stage.step.columnar:
            _add_sides(work, found, row["group"], [aside], {})
            continue
        parts = [] if row["payload"] is None else [decode(row["payload"])]
        emission = kernel_of(work.stage, MemoryStore()).advance(parts, END, list(work.clock), work.reached)
        closed(work.stage)
        _add(work, found, row["group"], emission, aside)
    return found


def _add(work: Work, found: Found, group: int, emission: Emission, aside: dict[str, pa.Table]) -> None:
    results, asides = emission.results, [aside]
    if work.stage.step.columnar:  # packing has judged the rows, and results of other windows are computed on the way
        if not work.interval.everything:
            results = inside(results, results["_event_time"], work.interval)
    else:
        found.late, found.dropped = found.late + emission.late, found.dropped + emission.dropped
        given = {"side": emission.side, "failed": emission.failed}
        asides.append({name: table for name, table in given.items() if table is not None})
    stamping = _stamping(work, group)
    numbered = results.append_column("_sequence", pc.add(results["_order"], stamping.numbering.base))
    found.tables[RESULTS] += stamped_rows(numbered, work.stage.step.schema, stamping)
    _add_sides(work, found, group, asides, emission.sides)


def _add_sides(
    work: Work, found: Found, group: int, asides: list[dict[str, pa.Table]], emitted: Mapping[str, pa.Table]
) -> None:
    stamping = _stamping(work, group)
    for output, (side, schema) in work.sides.items():
        if side == "side":
            table = emitted.get(output)
            if table is not None and table.num_rows:
                numbered = table.append_column("_sequence", pc.add(table["_order"], stamping.numbering.base))
                found.tables[output] += stamped_rows(numbered, schema, stamping)
            continue
        place = stamping.numbering.base
        for table in (chunk[_CHUNKS[side]] for chunk in asides if _CHUNKS[side] in chunk):
            rows = table
            if side == "quarantine":
                places = pa.array(range(place, place + rows.num_rows), pa.int64())
                rows = rows.set_column(rows.column_names.index("s"), "s", places)
                place += rows.num_rows
            found.tables[output] += stamped_rows(side_columns(rows, schema), schema, stamping)


def _stamping(work: Work, group: int) -> Stamping:
    numbering = Numbering(BOUNDED + group * _WIDTH, _WIDTH, 2 * BOUNDED)
    return Stamping(progress=None, ingested=work.ingested, numbering=numbering)
