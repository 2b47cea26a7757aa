"""The kernels of a bounded run over rows of some key groups, in any process: (rows of the stage) -> output rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, Interval
from floodmark.engines.embedded.bounded.final import Final
from floodmark.engines.frames.numbering import of_bounded_run
from floodmark.engines.frames.packing import SIDE_TABLES, Stamping, packed_group, side_columns, stamped_rows
from floodmark.engines.frames.portions import Advance, Portions, advanced
from floodmark.semantics.encoding.columns import inside
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.stage import AnyStage, kernel_of
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
        stamped: as of ``Portions``.
        sides: side output -> its kind and columns.
        ingested: for ``_ingest_time``, ms.
        memory: bytes that a worker may use; by default its share of the machine.
        final: the output whose rows the results are; None if Sail computes outputs of the results.
    """

    stage: AnyStage
    interval: Interval
    clock: tuple[Tick, ...]
    reached: int
    stamped: bool
    sides: dict[str, tuple[Side, Schema]]
    ingested: int
    memory: int | None = None
    final: Final | None = None


@dataclass(slots=True)
class Results:
    """Counts of output rows, which are written as they come.

    Args:
        write: (``RESULTS`` or side output, complete rows) -> None.
        late: rows that count although they were late.
        dropped: (row, window) pairs dropped.
    """

    write: Callable[[str, list[pa.RecordBatch]], None]
    late: int = 0
    dropped: int = 0
    _next: dict[tuple[int, str], int] = field(default_factory=dict)
    """Key group, and the output that is numbered by itself -> its next number."""

    def add(self, work: Work, advance: Advance) -> None:
        """Stamp and write what a portion of a key group has given."""
        emission, counts, kernel_judges = advance.emission, advance.packed.counts, not work.stage.step.columnar
        self.late += counts["late"] + (emission.late if kernel_judges else 0)
        self.dropped += counts["dropped"] + (emission.dropped if kernel_judges else 0)
        asides = [advance.packed.aside]
        if kernel_judges:
            emitted = {"side": emission.side, "failed": emission.failed}
            asides.append({name: table for name, table in emitted.items() if table is not None})
        numbered = [emission.results, *emission.sides.values()]
        first = self._numbers(advance.group, RESULTS, _count(numbered))
        self._add_numbered(work, RESULTS, emission.results, work.stage.step.schema, first)
        for output, (side, schema) in work.sides.items():
            if side == "side":
                if output in emission.sides:
                    self._add_numbered(work, output, emission.sides[output], schema, first)
                continue
            for table in (chunk[SIDE_TABLES[side]] for chunk in asides if SIDE_TABLES[side] in chunk):
                self._add_aside(work, output, table, schema, advance.group)

    def _numbers(self, group: int, output: str, count: int) -> int:
        """The first of some numbers of a key group."""
        first = self._next.get((group, output), BOUNDED + group * _WIDTH)
        self._next[group, output] = first + count
        return first

    def _add_numbered(self, work: Work, output: str, table: pa.Table, schema: Schema, first: int) -> None:
        if table.num_rows:
            rows = table.append_column("_sequence", pc.add(table["_order"], first))
            self.write(output, stamped_rows(rows, schema, _stamping(work)))

    def _add_aside(self, work: Work, output: str, table: pa.Table, schema: Schema, group: int) -> None:
        rows = table
        if not rows.num_rows:
            return
        if work.sides[output][0] == "quarantine":
            first = self._numbers(group, output, rows.num_rows)
            sequences = pa.array(range(first, first + rows.num_rows), pa.int64())
            rows = rows.set_column(rows.column_names.index("s"), "s", sequences)
        self.write(output, stamped_rows(side_columns(rows, schema), schema, _stamping(work)))


def computed(work: Work, batches: Iterable[pa.RecordBatch], results: Results) -> None:
    """All rows of some key groups, from their first to the end of input.

    Args:
        work: to do.
        batches: rows of ``stage_rows``, all rows of each key group; sorted as ``portions`` has it, unless the stage aggregates them.
        results: that write and count.

    Raises:
        ExecutionError: EXECUTION-120, what a key group needs at once does not fit into memory.
    """
    stage = work.stage
    if not isinstance(stage, Stage):
        portions = Portions(
            stage=stage,
            interval=work.interval,
            ticks=work.clock,
            reached=work.reached,
            stamped=work.stamped,
            memory=work.memory,
        )
        for advance in advanced(portions, batches):
            results.add(work, advance)
        return
    for group, tables in stage.pack(batches).items():
        packed = packed_group(tables, work.interval)
        emission = Emission(stage.result_schema.empty_table(), 0, None)
        if packed.tables:
            emission = kernel_of(stage, MemoryStore()).advance([packed.tables], END)
        if not work.interval.everything:
            emission = replace(
                emission, results=inside(emission.results, emission.results["_event_time"], work.interval)
            )
        results.add(work, Advance(group, packed, emission))


def _count(tables: Iterable[pa.Table]) -> int:
    """The numbers that results and side outputs, numbered together, take up."""
    return max((pc.max(table["_order"]).as_py() + 1 for table in tables if table.num_rows), default=0)


def _stamping(work: Work) -> Stamping:
    return Stamping(progress=None, ingested=work.ingested, numbering=of_bounded_run())
