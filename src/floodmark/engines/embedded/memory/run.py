"""An unbounded run without a lake: (micro-batches of stamped rows) -> rows of every output. Kernels and stages are those of both engines."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ExecutionError, FloodmarkError
from floodmark.core.time import END, NEVER
from floodmark.engines.embedded.memory.rows import STAMPS, Known, Rows, empty
from floodmark.semantics.kernels.attempts import quarantining, stopped
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.stage import AnyStage, closed, kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER, ROW, TICK, Schema

Tables = Mapping[str, pa.Table]
"""Input or output name -> its columns, then ``_event_time`` in ms, ``_watermark``, ``_progress``, ``_sequence``, ``_kind``."""


@dataclass(slots=True)
class Savepoint:
    """The state from which a run resumes: stores and deadlines by key group, progress by input; of several stages, that of each link."""

    stores: dict[int, MemoryStore] = field(default_factory=dict)
    deadlines: dict[int, int] = field(default_factory=dict)
    ticks: dict[int, int] = field(default_factory=dict)
    progress: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    clock: int = NEVER
    sequence: int = 0
    late: int = 0
    dropped: int = 0
    links: list[Savepoint] = field(default_factory=list)


class MemoryRun:
    """One run of one operator.

    Args:
        operator: any.
        savepoint: from which to resume; by default the run starts at the beginning.
    """

    def __init__(self, operator: Operator, savepoint: Savepoint | None = None) -> None:
        self.operator, self.stage = operator, stage_of(operator) if len(operator.links) == 1 else None
        self.state = copy.deepcopy(savepoint) if savepoint else Savepoint()
        self.rows = Rows()
        self.links: list[MemoryRun] = []
        if len(operator.links) > 1:
            self.state.links = self.state.links or [Savepoint() for _ in operator.links]
            self.links = [MemoryRun(link) for link in operator.links]
            for link, own in zip(self.links, self.state.links, strict=True):
                link.state = own

    def savepoint(self) -> Savepoint:
        """A copy of the run's state now, which later micro-batches do not change."""
        return copy.deepcopy(self.state)

    @property
    def progress(self) -> int:
        """The least progress of any input."""
        return min(self.state.progress.get(given.name, NEVER) for given in self.operator.inputs)

    def batch(self, inputs: Tables) -> dict[str, pa.Table]:
        """Compute one micro-batch.

        Args:
            inputs: input name -> new rows and markers; an input without any may be left out. A row of ``_kind`` 2 is a tick of the
                processing clock: its ``_event_time`` is the time.

        Returns:
            Output name -> its new rows, with retractions, and a marker last.
        """
        before = self.progress
        tables = {i.name: inputs.get(i.name, empty(i.schema)) for i in self.operator.inputs}
        for name, table in tables.items():
            reached = pc.max(table["_progress"]).as_py()
            if reached is not None:
                self.state.progress[name] = max(self.state.progress.get(name, NEVER), reached)
        if self.links:
            return self._linked(inputs)
        try:
            if self.stage is None:
                known: Known = {}
                results = {name: _only_rows(self.rows.of(step, tables, known)) for name, step in self.operator.results}
                failed: list[pa.Table] = []
            else:
                results, failed = self._stateful(self.stage, tables)
        except ExecutionError as error:
            if error.code != "EXECUTION-006":
                raise
            raise self._blaming(error, tables) from error
        for output in self.operator.outputs:
            if output.side == "quarantine":
                results[output.name] = _side([*self.rows.failures.values(), *failed], output.schema)
        self.rows.failures.clear()
        return {name: self._stamped(table, before) for name, table in results.items()}

    def _linked(self, inputs: Tables) -> dict[str, pa.Table]:
        """One micro-batch of each link, which reads what the links before it have written."""
        known, written = dict(inputs), dict[str, list[pa.Table]]()
        for link in self.links:
            made = link.batch({given.name: known[given.name] for given in link.operator.inputs if given.name in known})
            known |= {output.name: made[output.name] for output in link.operator.outputs if output.side is None}
            for name, table in made.items():
                written.setdefault(name, []).append(table)
        self.state.late = sum(link.state.late for link in self.links)
        self.state.dropped = sum(link.state.dropped for link in self.links)
        return {output.name: pa.concat_tables(written[output.name]) for output in self.operator.outputs}

    def _blaming(self, error: ExecutionError, inputs: Tables) -> ExecutionError:
        """The error with the first failing row; the error itself if no single row fails."""
        operator, trial = quarantining(self.operator), Rows()
        stage = stage_of(operator)
        try:
            if stage is not None:
                trial.of_stage(stage, trial.of(stage.step.parent, inputs))
            else:
                for _, step in operator.results:
                    trial.of(step, inputs)
        except FloodmarkError:  # the expression cannot be computed for any row
            return error
        rows = [row for table in trial.failures.values() for row in table.to_pylist()]
        first = min(rows, key=lambda row: row["s"], default=None)
        return error if first is None else stopped(self.operator, "in-memory", first["side"], first["t"], first["s"])

    def _stateful(self, stage: AnyStage, inputs: Tables) -> tuple[dict[str, pa.Table], list[pa.Table]]:
        """Output name -> its rows; and the rows for which the user's code failed."""
        step, state = stage.step, self.state
        rows = self.rows.of(step.parent, inputs)
        table = self.rows.of_stage(stage, rows)
        moved = table.filter(pc.equal(table["kind"], TICK)).select(["t", "s", "w"]).sort_by("s").to_pylist()
        ticks = [Tick(state.clock), *(Tick(row["t"], row["s"], row["w"]) for row in moved)]
        state.clock = ticks[-1].clock
        parts = stage.pack(table.filter(pc.not_equal(table["kind"], TICK)).to_batches())
        progress = self.progress
        due = {g for g, at in state.deadlines.items() if at <= progress}
        due |= {g for g, at in state.ticks.items() if moved or at <= state.clock or progress >= END}
        emitted: list[pa.Table] = []
        sides: list[pa.Table] = []
        aside: dict[str, list[pa.Table]] = {name: [] for name, _ in step.sides}
        failed: list[pa.Table] = []
        reached = self._reached(inputs) if progress >= END else NEVER
        for group in sorted({*parts, *due}):
            part = parts.get(group, {})
            kernel = kernel_of(stage, state.stores.setdefault(group, MemoryStore()))
            emission = kernel.advance([part], progress, ticks, reached)
            for waits, at in ((state.deadlines, emission.deadline), (state.ticks, emission.tick)):
                waits.pop(group, None)
                if at is not None:
                    waits[group] = at
            late = part["late"].filter(pc.equal(part["late"]["kind"], ROW)).num_rows if "late" in part else 0
            state.late += late or (emission.late if not step.columnar else 0)
            state.dropped += emission.dropped + (pc.sum(part["dropped"]["n"]).as_py() if "dropped" in part else 0)
            sides += [t for t in (part.get("side"), emission.side) if t is not None]
            failed += [emission.failed] if emission.failed is not None else []
            numbered = self._numbered({"": emission.results, **emission.sides})
            emitted.append(numbered.pop(""))
            for name, table in numbered.items():
                aside[name].append(table)
        closed(stage)
        schema = step.schema
        result_rows = pa.concat_tables(emitted) if emitted else empty(schema)
        known: Known = {step: result_rows.cast(empty(schema).schema)}
        results = {n: self.rows.of(r, {}, known) for n, r in self.operator.results}
        if step.late == "side_output":
            results["late"] = _side(sides, step.parent.schema)
        for name, schema in step.sides:
            results[name] = pa.concat_tables([empty(schema), *aside[name]])
        return results, failed

    def _reached(self, inputs: Tables) -> int:
        """Progress of the inputs before their end."""
        reached = self.state.reached
        for name, table in inputs.items():
            open_ = table.filter(pc.less(table["_progress"], END))["_progress"]
            reached[name] = max(reached.get(name, NEVER), pc.max(open_).as_py() or NEVER)
        return min((reached.get(input_.name, NEVER) for input_ in self.operator.inputs), default=NEVER)

    def _numbered(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Rows with the kernel's order as ``_sequence``, and a null ``_progress``."""
        first, numbered = self.state.sequence, {}
        for name, rows in tables.items():
            if rows.num_rows:
                self.state.sequence = max(self.state.sequence, first + pc.max(rows["_order"]).as_py() + 1)
            table = rows.append_column("_sequence", pc.add(rows["_order"], first))
            table = table.append_column("_progress", pa.nulls(table.num_rows, pa.int64()))
            numbered[name] = table.select([*(n for n in table.column_names if n not in {*STAMPS, "_order"}), *STAMPS])
        return numbered

    def _stamped(self, table: pa.Table, before: int) -> pa.Table:
        """Rows of a commit with their ``_progress``, and a marker with the progress after the commit."""
        schema = table.schema
        index = schema.get_field_index("_progress")
        table = table.set_column(index, schema.field(index), pa.repeat(pa.scalar(before, pa.int64()), table.num_rows))
        if self.progress <= NEVER:
            return table
        marker = {"_watermark": self.progress, "_progress": self.progress, "_kind": MARKER}
        return pa.concat_tables([table, pa.Table.from_pylist([marker], schema=schema)])


def _only_rows(table: pa.Table) -> pa.Table:
    return table.filter(pc.less_equal(table["_kind"], ROW))


def _side(tables: list[pa.Table], schema: Schema) -> pa.Table:
    parts = []
    for table in tables:
        rows = table["side"].combine_chunks()
        columns = [pc.struct_field(rows, [i]) for i in range(len(schema.columns))]
        stamps = [table["t"], table["w"], pa.nulls(table.num_rows, pa.int64()), table["s"], table["kind"]]
        parts.append(pa.table([*columns, *stamps], [*schema.names, *STAMPS]).cast(empty(schema).schema))
    return pa.concat_tables([empty(schema), *parts])
