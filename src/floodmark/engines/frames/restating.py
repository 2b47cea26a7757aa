"""Restatement at the first start of a stream after an upgrade: results that may still be revised are written as the changed steps give them.

Later revisions retract rows of the new steps, and these are the rows that the output then has. The state stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core import crash
from floodmark.engines.frames.numbering import of_batch
from floodmark.engines.frames.packing import Stamping, stamped_rows
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.table.rows import row_schema
from floodmark.lake.writing.restatement import Restatement
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.kernel import Kernels
from floodmark.semantics.kernels.stage import stage_of
from floodmark.semantics.state.store import Store
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import ROW

Behind = Callable[[pa.Table, Sequence[Output]], Mapping[str, pa.Table]]
"""Stamped rows of the stateful step, outputs -> the rows of each, by table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restating:
    """The restatement of one stream, with the parts that an engine supplies.

    Args:
        operator: as the code defines it.
        timeline: of its stopped stream, whose last micro-batch is in all tables.
        stores: () -> key group -> its state at the end of that micro-batch, at least that of fired windows; called only if an output is to
            be restated.
        behind: computes the steps after the stateful step.
        run: id of the process, which tells the commits of two processes apart.
        engine: that computes the rows.
        merge: (output, rows) -> merges the rows into the output's table of last values; does nothing if a follower of the engine does it.
    """

    operator: Operator
    timeline: Timeline
    stores: Callable[[], Mapping[int, Store]]
    behind: Behind
    run: str
    engine: str
    merge: Callable[[Output, pa.Table], None] = lambda _output, _rows: None

    def restate(self) -> None:
        """Restate the outputs that are still to be restated, each in one commit. A call after a crash finishes the restatement.

        Raises:
            ExecutionError: EXECUTION-050 an expression has no value for a result, EXECUTION-061 there are too many results.
            LifecycleError: LIFECYCLE-057, a rollback has ended the timeline.
        """
        identity = self.timeline.identity
        wanted = identity.restates()
        outputs = [output for output in reversed(self.operator.outputs) if output.table in wanted]
        batch = self.timeline.checkpoint.last_committed()
        if outputs and batch >= 0:
            progress, now = self.timeline.checkpoint.final_progress(batch), time.time_ns() // 1_000_000
            rows = self._results(batch, progress, now)
            if rows.num_rows:
                instants = pc.divide(pc.unique(rows["_event_time"]).cast(pa.int64()), 1000).to_pylist()
                stated = self.behind(rows, outputs)
                for output in outputs:
                    self._output(output, instants, stated[output.table], batch=batch, progress=progress, now=now)
        if wanted:
            crash.point("restate.before_mark")
            identity.restated()
            crash.point("restate.after_mark")

    def _results(self, batch: int, progress: int, now: int) -> pa.Table:
        """The results of the stateful step that may still be revised, stamped."""
        stage = stage_of(self.operator)
        assert isinstance(stage, Stage)
        parts = [Kernels(stage, {group: store}).revisable(progress) for group, store in self.stores().items()]
        results = pa.concat_tables([stage.result_schema.empty_table(), *parts])
        numbering, _ = of_batch(batch, results.num_rows, 1)
        placed = results.append_column("_sequence", pa.repeat(pa.scalar(numbering.base, pa.int64()), results.num_rows))
        batches = stamped_rows(placed, stage.step.schema, Stamping(progress, now, numbering))
        return pa.Table.from_batches(batches, row_schema(stage.step.schema))

    def _output(
        self, output: Output, instants: Sequence[int], rows: pa.Table, *, batch: int, progress: int, now: int
    ) -> None:
        lake, app = self.timeline.lake, self.timeline.app(output.table, "restate")
        restatement = Restatement(output=output, path=lake.output(output.table), app=app, instants=instants)
        standing = restatement.standing()
        changed = restatement.difference(standing, rows)
        if changed.num_rows:
            record = MicroBatch.of(
                self.operator,
                output.table,
                timeline=self.timeline.number,
                batch=batch,
                progress=progress,
                rows=pc.sum(pc.equal(changed["_kind"], ROW)).as_py() or 0,
                run=self.run,
                engine=self.engine,
                restated=True,
            )
            crash.point("restate.before_commit")
            standing = restatement.commit(changed, record, now)
            crash.point("restate.after_commit")
        if output.current is not None:  # also without a change: a process may have been killed after its commit
            self.merge(output, standing.select(row_schema(output.schema).names))
