"""Computation of one micro-batch: (rows of the inputs) -> rows of every output, counts. Steps run on Sail, kernels in this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.core.scratch import Scratch
from floodmark.core.time import END, NEVER
from floodmark.engines.embedded.parity.aggregates import sail_aggregate
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.engines.embedded.retries.attempts import Marking, behind
from floodmark.engines.embedded.sail.prepared import Query, frame_of
from floodmark.engines.embedded.sail.session import Connection, Sail, on_sail
from floodmark.engines.embedded.state.region import Region
from floodmark.engines.embedded.unbounded.blame import Blame
from floodmark.engines.frames.compile import EVERYWHERE, compiled, failing, failures, stage_rows, without_failures
from floodmark.engines.frames.expressions import Rendering
from floodmark.engines.frames.judging import (
    ROWS_ONLY,
    aggregates,
    criteria_of,
    examples_of,
    measures,
    verdicts,
    with_repeats,
)
from floodmark.engines.frames.numbering import Numbering, of_batch
from floodmark.engines.frames.packing import Stamping, last_sequence, side_columns, stamped_rows
from floodmark.engines.outcome import unmet
from floodmark.lake.table.commits import Hottest
from floodmark.lake.table.rows import INSTANT, row_schema
from floodmark.semantics.kernels.columnar import GROUP, KEY_GROUP, Stage, judged
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage, arrived
from floodmark.semantics.kernels.joins import JoinStage
from floodmark.semantics.kernels.kernel import Emission, Kernels, Tick
from floodmark.semantics.kernels.keyed import KeyedKernel
from floodmark.semantics.kernels.requests import UNANSWERED
from floodmark.semantics.kernels.stage import AnyStage, closed, kernel_of, stage_of
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import Expect, FlatMap, Step, quarantines
from floodmark.spec.keyed.metric import Part, merge
from floodmark.spec.rows.criterion import Judged, RowCriterion, with_counts
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW, Schema

_DUE_BYTES = 16_000_000
"""Most bytes of state that are decoded, merged and emitted in one call; a call holds several times as much."""
_OBJECTS = 8
"""Bytes of Python objects per byte of a row, about."""
_MESSAGE_BYTES = 8_000_000
"""Most bytes of rows that are sent to Sail in one message; larger tables are passed through a file, which takes less of both processes."""
Known = dict[Step, DataFrame]
Framing = Callable[[Mapping[str, DataFrame], Known], DataFrame]
"""(input name -> frame of its rows, step -> frame of steps that are computed already) -> the frame computed from them."""


@dataclass(slots=True)
class Evaluated:
    """The rows and counts of a micro-batch.

    Args:
        outputs: output table -> its rows, stamped, without a marker.
        late: as ``BatchInfo.late``.
        dropped: as ``BatchInfo.dropped``.
        retractions: of all outputs that come from the stateful step.
        rows_in: as ``BatchInfo.rows_in``.
    """

    outputs: dict[str, pa.Table]
    late: int = 0
    dropped: int = 0
    retractions: int = 0
    position: int = NEVER
    """The last sequence that was seen."""
    due: int | None = None
    """The clock, ms, for which state waits; None if no state waits for one."""
    unmet: dict[str, dict[str, int]] = field(default_factory=dict)
    """As ``BatchInfo.unmet``."""
    rows_in: int = 0
    metrics: dict[str, Part] = field(default_factory=dict)
    """As ``BatchInfo.metrics``."""
    hottest: Hottest | None = None
    """As ``MicroBatch.hottest``."""


@dataclass(slots=True)
class _Emitted:
    """The emissions of all kernels of a micro-batch: per kernel its results and, by name, its side outputs, None for one without rows."""

    results: list[pa.Table] = field(default_factory=list)
    sides: dict[str, list[pa.Table | None]] = field(default_factory=dict)
    late_rows: list[pa.Table] = field(default_factory=list)
    failed: list[pa.Table] = field(default_factory=list)
    late: int = 0
    dropped: int = 0
    position: int = NEVER
    due: int | None = None
    metrics: list[Mapping[str, Part]] = field(default_factory=list)


@dataclass(slots=True)
class Compute:
    """Computes the micro-batches of one link of an operator.

    Args:
        operator: the link, of one stage at most.
        sail: computes stateless steps.
        state: of the link's stage; changed here, but not committed.
        rendering: of expressions.
    """

    operator: Operator
    sail: Sail
    state: Region
    rendering: Rendering = sail_sql
    stage: AnyStage | None = field(init=False)
    _marking: Marking = field(init=False)
    _queries: dict[str, Query] = field(init=False, default_factory=dict)
    _clocks: dict[int, int] | None = field(init=False, default=None)
    """Key group -> the clock that it waits for, ms; None until a micro-batch has looked at all of them."""

    def __post_init__(self) -> None:
        self.stage = stage_of(self.operator)

    def batch(self, number: int, inputs: Mapping[str, pa.Table], before: int, progress: int, clock: int) -> Evaluated:
        """Compute one micro-batch.

        Args:
            number: of the micro-batch.
            inputs: stamped rows and markers of every input.
            before: progress after the micro-batch before, which is the ``_progress`` of the rows.
            progress: after this micro-batch.
            clock: processing time, ms.
        """
        self._marking = Marking(self.operator, self.stage, self.rendering, self.sail)
        try:
            evaluated = self._evaluated(number, inputs, before, progress, clock)
            evaluated.unmet = self._unmet(evaluated.outputs)
            evaluated.rows_in = sum(table.num_rows for table in inputs.values())
            return evaluated
        finally:
            self._marking.remove()

    def _evaluated(
        self, number: int, inputs: Mapping[str, pa.Table], before: int, progress: int, clock: int
    ) -> Evaluated:
        ingested = time.time_ns() // 1_000_000
        if self.stage is None:
            numbering, _ = of_batch(number, 0, 1)
            return Evaluated(self._stateless(self.operator.outputs, inputs, {}, Stamping(before, ingested, numbering)))
        stage = self.stage

        def framing(frames: Mapping[str, DataFrame], known: Known) -> DataFrame:
            parent = compiled(stage.step.parent, frames, known, self.rendering)
            return stage_rows(stage, parent, self.rendering, spread=False)

        arrives = any(table.num_rows for table in inputs.values())
        batches = self._on_sail("", inputs, framing, [stage.step]).to_batches() if arrives else []
        rows_by_group = _rows_by_group(batches, KEY_GROUP if stage.step.key_groups else GROUP)
        if stage.step.key_groups:
            batches = [batch.drop_columns([KEY_GROUP]) for batch in batches]
        if isinstance(stage, Stage):
            emitted = self._at_once(stage, batches, progress)
        else:
            emitted = self._by_group(stage, batches, progress, [Tick(clock)] if stage.step.clocked else [])
        evaluated = self._outputs(stage, emitted, number, before, ingested)
        evaluated.hottest = Hottest.of_rows(rows_by_group)
        return evaluated

    def _unmet(self, outputs: Mapping[str, pa.Table]) -> dict[str, dict[str, int]]:
        """Output table -> expectation -> rows that do not meet it; one aggregate for each output that is judged.

        Raises:
            ExecutionError: EXECUTION-090, an expectation with ``on_fail="stop"`` is not met.
        """
        counts = {}
        for name in self.operator.watched:
            output = self.operator.output(name)
            rows = outputs[output.table]
            if pc.any(pc.equal(rows["_kind"], ROW)).as_py():
                counts[output.table] = unmet(self.operator, output, "unbounded", self._judged(output, rows))
        return {table: names for table, names in counts.items() if names}

    def _judged(self, output: Output, rows: pa.Table) -> list[Judged]:
        criteria, schema = criteria_of(self.operator, output), output.schema
        texts = aggregates(criteria, with_counts(schema, criteria), self.rendering, sail_aggregate, ROWS_ONLY)

        def numbers(frames: Mapping[str, DataFrame], _: Known) -> DataFrame:
            return measures(with_repeats(frames["rows"], schema, criteria, ROWS_ONLY)[0], texts)

        def examples(criterion: RowCriterion) -> list[str]:
            def unexpected(frames: Mapping[str, DataFrame], _: Known) -> DataFrame:
                whole, wide = with_repeats(frames["rows"], schema, criteria, ROWS_ONLY)
                return examples_of(whole, criterion, wide, self.rendering, ROWS_ONLY)

            computed = on_sail(self.sail, partial(self._computed, {"rows": rows}, unexpected))
            return [criterion.example(row) for row in computed.to_pylist()]

        values = self._rows_on_sail(f"expectations {output.table}", {"rows": rows}, numbers)
        return verdicts(criteria, texts, values.to_pylist()[0], examples)

    def discard(self) -> None:
        """Discard what a micro-batch that failed has noted of the clocks for which key groups wait: the next one looks at all of them."""
        self._clocks = None

    def behind(self, rows: pa.Table, outputs: Sequence[Output]) -> dict[str, pa.Table]:
        """Output table -> rows, computed from some rows of the stateful step by the steps after it.

        Args:
            rows: of the stateful step, stamped.
            outputs: to compute.
        """
        self._marking = Marking(self.operator, self.stage, self.rendering, self.sail)
        results, first = dict(self.operator.results), rows.slice(0, 1)
        stamping = Stamping(pc.max(first["_progress"]).as_py(), time.time_ns() // 1_000_000, of_batch(0, 0, 1)[0])
        plain = [output for output in outputs if self.stage is not None and results[output.name] is self.stage.step]
        later = [output for output in outputs if output not in plain]
        try:
            return {output.table: rows for output in plain} | self._stateless(later, {}, {"": rows}, stamping)
        finally:
            self._marking.remove()

    def _due(self, progress: int) -> set[int]:
        """The key groups whose deadline the progress has reached."""
        computed = () if self.stage is None else self.stage.step.computed
        return {group for group in self.state.due(progress) if group in computed}

    def _at_once(self, stage: Stage, batches: Sequence[pa.RecordBatch], progress: int) -> _Emitted:
        """Compute the key groups that have rows or are due together; in several calls if the state of due groups is large."""
        emitted, tables = _Emitted(), judged(stage, batches)
        due = self._due(progress)
        groups = due.union(*(pc.unique(table["group"]).to_pylist() for table in tables.values()))
        parts = _parts(sorted(groups), {group: self.state.weight(group) for group in due})
        for part in parts:
            rows = tables if len(parts) == 1 else _of_groups(tables, part)
            stores = {group: self.state.store(group) for group in part}
            emissions = Kernels(stage, stores).advance_all([rows], progress)
            for group, store in stores.items():
                store.write_index(emissions.deadlines[group])
            _collect(emitted, rows, Emission(emissions.results, emissions.late, None), by_kernel=False)
        return emitted

    def _by_group(
        self,
        stage: ElementStage | ProcessStage | JoinStage,
        batches: Sequence[pa.RecordBatch],
        progress: int,
        ticks: Sequence[Tick],
    ) -> _Emitted:
        """Compute the key groups that have rows or are due one after the other, by progress or by the clock."""
        if not isinstance(stage, JoinStage):
            return self._in_turn(stage, batches, progress, ticks)
        emitted, parts = _Emitted(), stage.pack(batches)
        for group in sorted({*parts, *self._due(progress)}):
            part = parts.get(group, {})
            store = self.state.store(group)
            emission = kernel_of(stage, store).advance([part], progress, ticks)
            store.write_index(emission.deadline)
            _collect(emitted, part, emission, by_kernel=not stage.step.columnar)
        return emitted

    def _in_turn(
        self,
        stage: ElementStage | ProcessStage,
        batches: Sequence[pa.RecordBatch],
        progress: int,
        ticks: Sequence[Tick],
    ) -> _Emitted:
        """Compute key groups one after the other, several in one call of the kernel."""
        emitted, tables = _Emitted(sides={name: [] for name, _ in stage.step.sides}), arrived(batches, stage.keys)
        due, rows = self._due(progress), tables.get("rows")
        if isinstance(stage, ProcessStage) and stage.step.broadcast is not None:
            rows = self._spread(stage, rows)
            if self.state.stand_in_is_due(stage.step.groups, progress):
                due.add(self.state.stand_in(stage.step.groups))
        rows = None if rows is None else rows.take(pc.sort_indices(rows["group"]))
        counts = {} if rows is None else _counts(rows["group"])
        groups = {*counts, *due}
        if ticks:
            groups |= self._ticked(stage, END if progress >= END else ticks[-1].clock)
            emitted.position = last_sequence([] if rows is None else [{"rows": rows}])
        of_row = 0 if rows is None else _OBJECTS * rows.nbytes // max(1, rows.num_rows)
        weights = {g: counts.get(g, 0) * of_row + (0 if g in counts else self.state.weight(g)) for g in groups}
        start = 0
        for part in _parts(sorted(groups), weights):
            stores, size = {group: self.state.store(group) for group in part}, sum(counts.get(g, 0) for g in part)
            if not stores:
                continue
            kernel = kernel_of(stage, next(iter(stores.values())))
            assert isinstance(kernel, KeyedKernel)
            turns = kernel.advance_all(stores, None if rows is None else rows.slice(start, size), progress, ticks)
            start += size
            for group, (deadline, tick) in turns.waits.items():
                stores[group].write_index(deadline)
                if self._clocks is not None:
                    self._clocks.pop(group, None)
                    self._clocks |= {} if tick is None else {group: tick}
            _collect(emitted, {}, turns.emission, by_kernel=True)
        emitted.failed += [tables["failed"].drop_columns(["group"])] if "failed" in tables else []
        if self._clocks is not None:
            emitted.due = min(self._clocks.values(), default=None)
        closed(stage)
        return emitted

    def _spread(self, stage: ProcessStage, rows: pa.Table | None) -> pa.Table | None:
        """Rows, those for all keys once per key group with state or rows, and once for all the others together."""
        if rows is None:
            return None
        everywhere, of = pc.equal(rows["group"], EVERYWHERE), stage.step.groups
        common, own = rows.filter(everywhere), rows.filter(pc.invert(everywhere))
        touched = set(pc.unique(own["group"]).to_pylist())
        self.state.part(touched, of)
        if not common.num_rows:
            return own
        groups = touched | self.state.held(stage.step.computed)
        if len(groups) < len(stage.step.computed):
            groups.add(self.state.stand_in(of))
        taken = np.tile(np.arange(common.num_rows), len(groups))
        numbers = pa.array(np.repeat(list(groups), common.num_rows), rows["group"].type)
        column = rows.column_names.index("group")
        return pa.concat_tables([own, common.take(taken).set_column(column, rows.schema.field(column), numbers)])

    def _ticked(self, stage: AnyStage, clock: int) -> set[int]:
        """The key groups that wait for a clock; all with state in the first micro-batch, in which it is not known for which clock each waits."""
        if self._clocks is None:
            self._clocks = {}
            return self.state.held(stage.step.computed)
        return {group for group, due in self._clocks.items() if due <= clock}

    def _outputs(self, stage: AnyStage, emitted: _Emitted, number: int, before: int, ingested: int) -> Evaluated:
        step = stage.step
        failed = sum(table.num_rows for table in emitted.failed)
        results, asides, rows = _numbered(emitted)
        numbering, _ = of_batch(number, max(rows, failed), 1)
        stamping = Stamping(before, ingested, numbering)
        whole = _stamped(_placed(results, numbering), step.schema, stamping)
        outputs: dict[str, pa.Table] = {}
        later: list[Output] = []
        for output in self.operator.outputs:
            if output.side == "late":
                outputs[output.table] = _stamped(_side(emitted.late_rows, output.schema), output.schema, stamping)
            elif output.side == "quarantine":
                table = _side(emitted.failed, output.schema)
                if table is not None:
                    places = pa.array(np.arange(numbering.base, numbering.base + table.num_rows), pa.int64())
                    table = table.set_column(table.column_names.index("_sequence"), "_sequence", places)
                outputs[output.table] = _stamped(table, output.schema, stamping)
                if failing(self.operator):  # rows may also fail after the stateful step
                    later.append(output)
            elif output.side == "side":
                outputs[output.table] = _stamped(_placed(asides[output.name], numbering), output.schema, stamping)
            elif output.side is None and dict(self.operator.results)[output.name] is step:
                outputs[output.table] = whole
            else:
                later.append(output)
        for table, rows_behind in (self._stateless(later, {}, {"": whole}, stamping) if later else {}).items():
            outputs[table] = pa.concat_tables([outputs[table], rows_behind]) if table in outputs else rows_behind
        kinds = whole["_kind"]
        retractions = pc.sum(pc.equal(kinds, RETRACTION)).as_py() or 0
        return Evaluated(
            outputs,
            emitted.late,
            emitted.dropped,
            retractions,
            emitted.position,
            emitted.due,
            metrics=merge(emitted.metrics),
        )

    def _stateless(
        self,
        outputs: Iterable[Output],
        inputs: Mapping[str, pa.Table],
        known: Mapping[str, pa.Table],
        stamping: Stamping,
    ) -> dict[str, pa.Table]:
        """Output table -> rows, computed by stateless steps from the inputs or from the stateful step."""
        by_table, results = {}, dict(self.operator.results)
        for output in sorted(outputs, key=lambda output: output.side == "quarantine"):

            def frame(frames: Mapping[str, DataFrame], steps: Known, output: Output = output) -> DataFrame:
                if output.side:
                    rows = failures(self.operator, frames, steps, self.rendering)
                    assert rows is not None
                    return rows
                rows = compiled(results[output.name], frames, steps, self.rendering)
                return without_failures(rows).filter(f"`_kind` <> {MARKER}")

            if output.side and not self._marking.begun and not self._maps():
                by_table[output.table] = _stamped(
                    None, output.schema, stamping
                )  # all results are computed without marking: no row has failed
                continue
            if not any(table.num_rows for table in (*inputs.values(), *known.values())):
                by_table[output.table] = _stamped(None, output.schema, stamping)
                continue
            last = failing(self.operator) if output.side else [results[output.name]]
            rows = self._on_sail(output.table, {**inputs, **known}, frame, last)
            by_table[output.table] = _restamped(rows, output.schema, stamping)
        return by_table

    def _on_sail(self, name: str, tables: Mapping[str, pa.Table], framing: Framing, last: Sequence[Step]) -> pa.Table:
        """The rows of a frame over tables; retried if the server dies.

        Args:
            name: of the frame, the same for each micro-batch.
            tables: inputs of the frame.
            framing: makes the frame; always the same function for a name.
            last: steps of the frame.

        Raises:
            CapabilityError: CAPABILITY-031, Sail cannot tell Spark's answer for a row.
            ExecutionError: EXECUTION-050, an expression has no value for a row.
        """
        marks = self._marking.marks(last)
        if not (marks and self._marking.begun):
            try:
                return self._rows_on_sail(name, tables, framing)
            except PySparkException as error:
                if UNANSWERED in str(error):  # not asked again to look for the row, which the error names
                    raise
                if not marks:
                    raise self._blamed(error, tables, framing, last) from error
        try:
            return on_sail(self.sail, partial(self._marked, tables, framing, last))
        except PySparkException as error:
            if UNANSWERED in str(error):
                raise
            raise self._blamed(error, tables, framing, last) from error

    def _marked(
        self, tables: Mapping[str, pa.Table], framing: Framing, last: Sequence[Step], connection: Connection
    ) -> pa.Table:
        """The rows of a frame, computed with the rows marked for which quarantining steps fail."""
        with _frames(connection, tables) as frames:
            known = self._marking.known(connection, last, frames, self._stateful(frames))
            return framing(frames, known).toArrow()

    def _maps(self) -> bool:
        """Whether a function or an expectation after the stateful step, or of a stateless operator, quarantines rows, which causes no error of Sail."""
        before = () if self.stage is None else (self.stage.step,)
        before_last = (step for last in failing(self.operator) for step in behind(last, before))
        return any(isinstance(step, (FlatMap, Expect)) and quarantines(step) for step in before_last)

    def _stateful(self, frames: Mapping[str, DataFrame]) -> Known:
        """The stateful step -> its frame, if its rows are among the inputs of a frame; empty otherwise."""
        return {self.stage.step: frames[""]} if self.stage is not None and "" in frames else {}

    def _blamed(
        self, error: PySparkException, tables: Mapping[str, pa.Table], framing: Framing, last: Sequence[Step]
    ) -> Exception:
        """The error that names the failing row; the error of Sail if no row fails by itself."""

        def blamed(connection: Connection) -> ExecutionError | None:
            blame = Blame(self.operator, self.stage, self.rendering, connection, self.sail)
            return blame.error(tables, lambda rows, known: framing(rows, known).toArrow(), last)

        return on_sail(self.sail, blamed) or error

    def _rows_on_sail(self, name: str, tables: Mapping[str, pa.Table], framing: Framing) -> pa.Table:
        if any(table.nbytes > _MESSAGE_BYTES for table in tables.values()):
            return on_sail(self.sail, partial(self._computed, tables, framing))

        if name not in self._queries:
            self._queries[name] = Query(lambda frames: framing(frames, self._stateful(frames)))
        return on_sail(self.sail, partial(self._queries[name].rows, tables=tables))

    def _computed(self, tables: Mapping[str, pa.Table], framing: Framing, connection: Connection) -> pa.Table:
        with _frames(connection, tables) as frames:
            return framing(frames, self._stateful(frames)).toArrow()


def _parts(groups: Sequence[int], weights: Mapping[int, int]) -> list[list[int]]:
    """Key groups, in order, cut into parts of at most ``_DUE_BYTES``, or of one group; at least one part.

    Args:
        groups: all key groups.
        weights: due group -> bytes of its state.
    """
    parts, weight = list[list[int]]([[]]), 0
    for group in groups:
        own = weights.get(group, 0)
        if parts[-1] and weight + own > _DUE_BYTES:
            parts.append([])
            weight = 0
        parts[-1].append(group)
        weight += own
    return parts


def _of_groups(tables: Mapping[str, pa.Table], groups: Sequence[int]) -> dict[str, pa.Table]:
    """The rows of some key groups."""
    wanted = pa.array(groups)
    return {n: t.filter(pc.is_in(t["group"], wanted.cast(t.schema.field("group").type))) for n, t in tables.items()}


@contextmanager
def _frames(connection: Connection, tables: Mapping[str, pa.Table]) -> Iterator[dict[str, DataFrame]]:
    """Tables as frames; tables that are too large for a message are passed through files."""
    scratch, frames = None, {}
    try:
        for number, (name, table) in enumerate(tables.items()):
            if table.nbytes <= _MESSAGE_BYTES:
                frames[name] = frame_of(connection, table)
                continue
            scratch = scratch or Scratch()
            path = scratch.path / f"{number}.parquet"
            pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
            frames[name] = connection.spark.read.parquet(str(path))
        yield frames
    finally:
        if scratch is not None:
            scratch.remove()


def _counts(groups: pa.Array | pa.ChunkedArray) -> dict[int, int]:
    """Key group -> how often it is there."""
    return dict(zip(*(part.tolist() for part in np.unique(groups.to_numpy(), return_counts=True)), strict=True))


def _rows_by_group(batches: Sequence[pa.RecordBatch], column: str) -> dict[int, int]:
    """(rows with their key group in a column) -> key group -> its rows."""
    rows = Counter[int]()
    for batch in batches:
        groups = batch.column(column).filter(pc.equal(batch.column("kind"), ROW))
        rows.update(_counts(groups))
    rows.pop(EVERYWHERE, None)
    return rows


def _collect(emitted: _Emitted, part: Mapping[str, pa.Table], emission: Emission, *, by_kernel: bool) -> None:
    if "late" in part:
        emitted.late += pc.sum(pc.cast(pc.equal(part["late"]["kind"], ROW), pa.int64())).as_py() or 0
    emitted.late += emission.late if by_kernel else 0
    emitted.dropped += emission.dropped + ((pc.sum(part["dropped"]["n"]).as_py() or 0) if "dropped" in part else 0)
    emitted.late_rows += [table for table in (part.get("side"), emission.side) if table is not None and table.num_rows]
    emitted.failed += [table for table in (part.get("failed"), emission.failed) if table is not None and table.num_rows]
    emitted.results.append(emission.results)
    emitted.metrics.append(emission.metrics)
    for name, tables in emitted.sides.items():
        tables.append(emission.sides.get(name))


def _numbered(emitted: _Emitted) -> tuple[pa.Table | None, dict[str, pa.Table | None], int]:
    """Results and side outputs with an ``_order`` that is unique in the micro-batch; and the number of orders."""
    offsets, offset = [], 0
    for number, table in enumerate(emitted.results):
        offsets.append(offset)
        beside = [tables[number] for tables in emitted.sides.values()]
        orders = [pc.max(one["_order"]).as_py() for one in (table, *beside) if one is not None and one.num_rows]
        offset += max(orders) + 1 if orders else 0
    asides = {name: _shifted(tables, offsets) for name, tables in emitted.sides.items()}
    return _shifted(emitted.results, offsets), asides, offset


def _shifted(tables: Sequence[pa.Table | None], offsets: Sequence[int]) -> pa.Table | None:
    shifted = [(table, offset) for table, offset in zip(tables, offsets, strict=True) if table is not None]
    if not shifted:
        return None
    whole = pa.concat_tables([table for table, _ in shifted])
    shifts = np.repeat(np.array([offset for _, offset in shifted], dtype=np.int64), [t.num_rows for t, _ in shifted])
    places = pc.add(whole["_order"], pa.array(shifts, pa.int64()))
    return whole.set_column(whole.column_names.index("_order"), "_order", places)


def _placed(table: pa.Table | None, numbering: Numbering) -> pa.Table | None:
    return None if table is None else table.append_column("_sequence", pc.add(table["_order"], numbering.base))


def _side(tables: Sequence[pa.Table], schema: Schema) -> pa.Table | None:
    return side_columns(pa.concat_tables(tables, promote_options="permissive"), schema) if tables else None


def _stamped(table: pa.Table | None, schema: Schema, stamping: Stamping) -> pa.Table:
    batches = stamped_rows(table, schema, stamping) if table is not None and table.num_rows else []
    return pa.Table.from_batches(batches, row_schema(schema))


def _restamped(rows: pa.Table, schema: Schema, stamping: Stamping) -> pa.Table:
    """Rows as complete rows of an output, with the progress and the ingest time of the commit."""
    whole = row_schema(schema)
    stamps = {
        "_progress": pa.repeat(pa.scalar(stamping.progress, pa.int64()), rows.num_rows),
        "_ingest_time": pa.repeat(pa.scalar(stamping.ingested * 1000, pa.int64()).cast(INSTANT), rows.num_rows),
    }
    return pa.table(
        [stamps.get(name, rows[name] if name in rows.column_names else None) for name in whole.names], whole.names
    ).cast(whole)
