"""The kernels of a bounded run over rows that come sorted by key group, portion by portion: a key group need not fit into memory.

The portions of a key group are to its kernel what micro-batches are, and no result depends on how rows are cut into micro-batches. What a
kernel holds between two portions lies in a ``SpilledStore``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ExecutionError
from floodmark.core.memory import worker_memory
from floodmark.core.time import END, NEVER, Interval
from floodmark.engines.frames.packing import Packed, Stamping, packed_group, stamped_rows, task_number
from floodmark.engines.frames.spilled import SpilledStore, StateTooLarge
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.encoding.columns import inside
from floodmark.semantics.encoding.plain import unpack
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage
from floodmark.semantics.kernels.functions.duplicates import is_deduplication
from floodmark.semantics.kernels.functions.first_rows import FirstRowsKernel
from floodmark.semantics.kernels.functions.growing import GrowingKernel
from floodmark.semantics.kernels.functions.rolling import RollingKernel
from floodmark.semantics.kernels.joins import JoinStage
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.stage import AnyStage, closed, kernel_of
from floodmark.semantics.state.directory import is_bucket
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows

AT = "at"
"""The column by which the rows of a key group are sorted."""

COUNTS = 1 << 20
"""``_kind`` of the row in which a task says how many rows were late, in ``_watermark``, and how many were dropped, in ``_progress``."""

PortionStage = ElementStage | ProcessStage | JoinStage
"""Stages whose rows are not aggregated before they reach the kernel."""

_AT_ONCE = (GrowingKernel, FirstRowsKernel, RollingKernel)
"""Kernels that compute all rows of a key group without state."""
_OBJECTS = 8
"""Bytes of Python objects per byte of packed state, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portions:
    """What is computed of the rows of each key group.

    Args:
        stage: with its clip.
        interval: of event time.
        ticks: recorded ticks.
        reached: progress before the input ended.
        stamped: whether the stamps of rows ascend with their order, so that time passes between two portions.
        memory: bytes that a worker may use; by default as ``worker_memory``.
        portion: most bytes of a portion, however much memory there is.
        held: most bytes of a key group's state that are in memory as chunks, however much memory there is.
    """

    stage: PortionStage
    interval: Interval
    ticks: tuple[Tick, ...]
    reached: int
    stamped: bool
    memory: int | None = None
    portion: int = 1 << 26
    held: int = 1 << 28


@dataclass(frozen=True, slots=True)
class Advance:
    """What a portion of a key group has given.

    Args:
        group: the key group.
        packed: counts and side rows, judged before the kernel.
        emission: of the kernel.
    """

    group: int
    packed: Packed
    emission: Emission


def order(stage: PortionStage) -> str:
    """SQL over the columns of ``stage_rows``: what the rows of a key group are sorted by, their arrival or their effective time."""
    return "s" if isinstance(stage, (ElementStage, ProcessStage)) and not stage.by_time else "greatest(t, w + 1)"


def is_stamped(operator: Operator, late_rows: LateRows) -> bool:
    """Whether the stamps of an operator's rows ascend in order of arrival: rows of one source, with the stamps they have landed with."""
    return len(operator.inputs) == 1 and operator.inputs[0].upstream is None and late_rows == "as_landed"


def advanced(work: Portions, batches: Iterable[pa.RecordBatch]) -> Iterator[Advance]:
    """Compute the rows of some key groups, to the end of input.

    Args:
        work: to do.
        batches: rows of ``stage_rows`` with the column ``AT``, sorted by key group and ``AT``; all rows of each key group.

    Raises:
        ExecutionError: EXECUTION-120, what a key group needs at once does not fit into memory.
    """
    memory = work.memory or worker_memory()
    store, waiting = None, list[Tick]()
    for group, rows, last in portions(batches, min(work.portion, memory // 32)):
        alone = store is None and last
        if store is None:
            store, waiting = SpilledStore(min(work.held, memory // 16), memory // _OBJECTS), list(work.ticks)
        bound = END if last else _progress(work, rows)
        ticks, waiting = (waiting, []) if last else _until(work.stage, waiting, rows)
        tables = work.stage.pack(rows.drop_columns([AT]).to_batches()).get(group, {})
        packed = packed_group(tables, work.interval)
        store.begin()
        try:
            emission = _emission(work, store, packed, bound, ticks, alone=alone, last=last)
        except StateTooLarge as error:
            raise _too_large(work.stage, group, store, error, memory) from error
        yield Advance(group, packed, _within(work, emission))
        if last:
            closed(work.stage)
            store.close()
            store = None


def computes_at_once(stage: AnyStage) -> bool:
    """Whether the kernel of a stage computes all rows of a key group at once, in columns, where they fit into a portion."""
    return isinstance(kernel_of(stage, MemoryStore()), _AT_ONCE)


def _emission(
    work: Portions, store: SpilledStore, packed: Packed, bound: int, ticks: Sequence[Tick], *, alone: bool, last: bool
) -> Emission:
    """What the kernel emits for a portion; ``alone``: the portion is the whole key group."""
    kernel = kernel_of(work.stage, store)
    if alone and not ticks and isinstance(kernel, _AT_ONCE):
        emission = kernel.whole([packed.tables])
        if emission is not None:
            return emission
    return kernel.advance([packed.tables], bound, ticks, work.reached if last else NEVER)


def output_rows(work: Portions, batches: Iterable[pa.RecordBatch], stamping: Stamping) -> Iterator[pa.RecordBatch]:
    """Compute the rows of some key groups in a task of Spark: complete rows of the results, then one row with ``COUNTS``.

    Args:
        work: to do.
        batches: as of ``advanced``.
        stamping: of the rows.
    """
    task, schema, late, dropped = task_number(), work.stage.step.schema, 0, 0
    judges, sequence = not work.stage.step.columnar, stamping.numbering.first(task)
    for advance in advanced(work, batches):
        emission, counts = advance.emission, advance.packed.counts
        late, dropped = late + counts["late"] + judges * emission.late, dropped + counts["dropped"] + emission.dropped
        results = emission.results
        if results.num_rows:
            rows = results.append_column("_sequence", pc.add(results["_order"], sequence))
            sequence += pc.max(results["_order"]).as_py() + 1
            stamping.numbering.check(task, sequence - 1)
            yield from stamped_rows(rows, schema, stamping)
    counted = {"_kind": COUNTS, "_watermark": late, "_progress": dropped}
    yield pa.RecordBatch.from_pylist([counted], schema=row_schema(schema))


def portions(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[tuple[int, pa.Table, bool]]:
    """(sorted batches, bytes) -> key group, some of its rows, whether they are its last; portions of at most ``size`` bytes, about."""
    group, held, weight = -1, list[pa.RecordBatch](), 0
    for batch in batches:
        groups = batch.column(batch.schema.get_field_index("group")).to_numpy()
        changes = np.flatnonzero(groups[1:] != groups[:-1]) + 1
        most = max(1, size * batch.num_rows // max(2 * batch.nbytes, 1))
        bounds = sorted({0, *changes.tolist(), *range(0, batch.num_rows, most), batch.num_rows})
        for start, stop in itertools.pairwise(bounds):
            if held and (groups[start] != group or weight >= size // 2):
                yield group, pa.Table.from_batches(held), bool(groups[start] != group)
                held, weight = [], 0
            group = int(groups[start])
            held.append(batch.slice(start, stop - start))
            weight += held[-1].nbytes
    if held:
        yield group, pa.Table.from_batches(held), True


def _progress(work: Portions, rows: pa.Table) -> int:
    """The progress up to which all rows on time of a key group are in, after a portion that is not its last."""
    if order(work.stage) != "s":
        return int(rows[AT][-1].as_py()) - 1
    return int(pc.max(rows["w"]).as_py()) if work.stamped else NEVER


def _until(stage: PortionStage, ticks: Sequence[Tick], rows: pa.Table) -> tuple[list[Tick], list[Tick]]:
    """The ticks before the last row of a portion, and the others."""
    last, by_time = rows[AT][-1].as_py(), order(stage) != "s"
    before = [tick for tick in ticks if (tick.progress if by_time else tick.sequence) < last]
    return before, list(ticks[len(before) :])


def _within(work: Portions, emission: Emission) -> Emission:
    """Only the results of the interval: the kernel of a join computes more."""
    if work.interval.everything or not work.stage.step.columnar:
        return emission
    results = inside(emission.results, emission.results["_event_time"], work.interval)
    return Emission(results, emission.late, emission.deadline)


def _too_large(
    stage: PortionStage, group: int, store: SpilledStore, error: StateTooLarge, memory: int
) -> ExecutionError:
    where = f"step '{stage.step.uid}', key group {group}"
    largest = _largest(stage, error)
    got = f"{_mb(error.size)} at once, of {_mb(store.size)} of state{largest}"
    fix = (
        f"Nothing is written. A worker has {_mb(memory)}: give it more (Spark: spark.executor.pyspark.memory; else fewer "
        "cores), or keep less per key: aggregates in place of whole rows, shorter windows, a time to live."
    )
    expected = f"at most {_mb(store.most)} of packed state that is read at once"
    return ExecutionError(where, expected, got, fix, code="EXECUTION-120")


def _largest(stage: PortionStage, error: StateTooLarge) -> str:
    """The key with the most bytes in a bucket of entries, as a clause; empty for a chunk of another kind."""
    marks = isinstance(stage, ProcessStage) and is_deduplication(stage)
    if isinstance(stage, JoinStage) or marks or not is_bucket(error.number):
        return ""
    entries: Mapping[bytes, tuple[int, int, bytes]] = unpack(error.chunk)
    data = max((entry[2] for entry in entries.values()), key=len)
    key = ", ".join(
        f"{name}={value!r}" for name, value in zip(stage.step.keys, unpack(data)[0], strict=False)
    )  # entries of parts have a number behind the key
    return f", {_mb(len(data))} of it of key ({key})"


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
