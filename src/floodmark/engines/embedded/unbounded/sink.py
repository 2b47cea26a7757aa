"""The sink of a stream: commits the rows of a micro-batch to each table exactly once, however the process ends.

First the files are written and synced; then the micro-batch becomes durable with its state and the list of commits owed; then these commits are
made, each under the timeline's transaction id; then the micro-batch is marked as committed. A restart repeats the commits of the last
micro-batch: a table that has the commit skips it, and a table that a rollback has fenced refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import StateError
from floodmark.core.stopwatch import Stopwatch
from floodmark.core.time import NEVER
from floodmark.engines.embedded.state.batch import Batch, Owed
from floodmark.engines.embedded.state.checkpoint import NAME
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded import current
from floodmark.engines.embedded.unbounded.compute import Evaluated
from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import frozen
from floodmark.lake.stream import last_values, ticks
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import division, entries, history
from floodmark.lake.table.commits import MicroBatch, decode, encode
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import check_there, partition_by
from floodmark.lake.table.rows import marker, row_schema
from floodmark.lake.writing import synced
from floodmark.lake.writing.checkpointer import Checkpointer
from floodmark.lake.writing.writer import Writer
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import ROW

_FOLLOWED_EVERY = 100
"""Micro-batches after which the position of the tables of last values is recorded."""


@dataclass(slots=True)
class Sink:
    """Writes the micro-batches of one operator.

    Args:
        operator: of the outputs.
        lake: of the outputs' tables.
        timeline: of the micro-batches.
        state: of the stream.
        run: id of the process, which tells the commits of two processes apart.
        checkpointer: writes Delta's checkpoints of the tables in the background, for ``Writer``.
    """

    operator: Operator
    lake: Lake
    timeline: Timeline
    state: State
    run: str
    checkpointer: Checkpointer | None = None
    _writers: dict[str, Writer] = field(init=False, default_factory=dict)
    _committed: dict[str, int] = field(init=False, default_factory=dict)
    """Output table -> progress in its last commit."""
    _opened: dict[str, DeltaTable] = field(init=False, default_factory=dict)
    """Tables of last values in a bucket."""
    _published_at: float = field(init=False, default=float("-inf"))

    def write(self, batch: Batch, evaluated: Evaluated, ingested: int, watch: Stopwatch) -> dict[str, int]:
        """Make a micro-batch durable, and commit it to every table.

        Args:
            batch: number, progress and positions.
            evaluated: rows of the micro-batch.
            ingested: ingest time of the markers, ms.
            watch: measures the phases ``write``, ``checkpoint`` and ``commit``.

        Returns:
            Output table -> number of rows, without retractions.
        """
        frozen_range, frozen_rows = frozen.frozen(self.lake, self.operator.name), dict[str, int]()
        for output in self.operator.outputs if frozen_range is not None else ():
            if frozen.holds(output):
                rows, frozen_rows[output.table] = frozen.thawed(evaluated.outputs[output.table], frozen_range)
                evaluated.outputs[output.table] = rows
        written = {name: _count(rows) for name, rows in evaluated.outputs.items()}
        crash.point("embedded.before_files")
        owed = []
        for output in reversed(self.operator.outputs):
            rows = evaluated.outputs[output.table]
            if output.side and not rows.num_rows:
                written.pop(output.table)
                continue
            record = self._record(output, batch)
            record = replace(record, rows=written[output.table], late=evaluated.late, dropped=evaluated.dropped)
            record = replace(
                record, unmet=evaluated.unmet.get(output.table, {}), frozen=frozen_rows.get(output.table, 0)
            )
            record = replace(record, rows_in=evaluated.rows_in)
            if output is self.operator.outputs[0]:
                record = replace(record, metrics=evaluated.metrics, hottest=evaluated.hottest)
            owed.append(self._owed(output, rows, record, ingested))
        crash.point("embedded.after_files")
        if self.operator.isolation == "read_uncommitted":
            self._merge(evaluated.outputs, batch.number, keyed=True)
            crash.point("early.after_merge")
        watch.lap("write")
        whole = self.state.commit(replace(batch, owed=tuple(owed)))
        watch.lap("checkpoint")
        self.pay(whole, evaluated.outputs)
        watch.lap("commit")
        return written

    def publish_progress(self, patience_seconds: float) -> None:
        """Commit a marker to side outputs without new rows, so that their readers learn the stream's progress.

        Args:
            patience_seconds: least time since the last such commit.
        """
        last, now = self.state.batch, time.monotonic()
        if last is None or last.progress <= NEVER or now - self._published_at < patience_seconds:
            return
        self._published_at = now
        for output in self.operator.outputs:
            if output.side and self._reached(output.table) < last.progress:
                record = replace(self._record(output, last), settled=True)
                owed = self._owed(output, row_schema(output.schema).empty_table(), record, time.time_ns() // 1_000_000)
                crash.point("micro_batch.before_progress")
                self._pay(replace(owed, app=self.timeline.app(output.table, "settle")), last.number)
                crash.point("micro_batch.after_progress")
                self._committed[output.table] = last.progress

    def _reached(self, table: str) -> int:
        """The progress in the last commit of an output."""
        if table not in self._committed:
            progress = history.progress(self.lake.output(table))
            self._committed[table] = NEVER if progress is None else progress
        return self._committed[table]

    def _record(self, output: Output, batch: Batch) -> MicroBatch:
        return MicroBatch.of(
            self.operator,
            output.table,
            timeline=self.timeline.number,
            batch=batch.number,
            progress=batch.progress,
            run=self.run,
            engine=NAME,
        )

    def pay_last(self) -> None:
        """Make the commits that the last micro-batch still owes, if the process ended before. No server is needed."""
        last = self.state.batch
        if last is not None and last.number > self.state.checkpoint.last_committed():
            self.pay(last)

    def pay(self, batch: Batch, outputs: Mapping[str, pa.Table] | None = None) -> None:
        """Make the commits that a micro-batch owes to tables, and mark the micro-batch as committed.

        Args:
            batch: the last micro-batch.
            outputs: output table -> its rows; None: they are read from the written files.

        Raises:
            LifecycleError: LIFECYCLE-057, a rollback has ended the timeline.
            StateError: STATE-004, a written file is gone.
        """
        if batch.tick is not None:
            crash.point("tick.before_record")
            ticks.record(self.timeline, batch.number, batch.tick, self.checkpointer)
            crash.point("tick.after_record")
        for owed in batch.owed:
            crash.point("embedded.before_commit")
            self._pay(owed, batch.number)
            self._committed[owed.table] = batch.progress
            crash.point("embedded.after_commit")
        if outputs is None:
            self._merge({owed.table: self._read(owed) for owed in batch.owed}, batch.number)
        else:
            self._merge(outputs, batch.number, keyed=False if self.operator.isolation == "read_uncommitted" else None)
        crash.point("embedded.before_mark")
        self.state.mark(batch.number)
        if batch.number % _FOLLOWED_EVERY == 0:
            self.followed()

    def _merge(self, outputs: Mapping[str, pa.Table], number: int, *, keyed: bool | None = None) -> None:
        """Merge the rows of a micro-batch into the tables of last values: all, or those of outputs with or without keys.

        Rows of a micro-batch that is not committed may be replaced; a table of last values by key takes that, a multiset does not.
        """
        for output in self.operator.outputs:
            if output.table in outputs and (keyed is None or bool(output.keys) == keyed):
                self.merge(output, outputs[output.table], number)

    def merge(self, output: Output, rows: pa.Table, number: int = 0) -> None:
        """Merge rows of an output into its table of last values, if it has one; ``number`` is that of their micro-batch."""
        if output.current is not None:
            crash.point("micro_batch.before_current")
            values = division.divided(rows, output)
            current.merge(
                self.operator,
                self.lake,
                output,
                output.current,
                values,
                self._opened,
                (current.app_of(self.timeline, output), number),
            )
            crash.point("micro_batch.after_current")

    def followed(self) -> None:
        """Record for upkeep that the tables of last values have all commits of their changelogs; called after a micro-batch."""
        for output in self.operator.outputs:
            if output.current is not None:
                version = entries.version_of(self.lake.output(output.table))
                last_values.followed(self.timeline, output.table, version + 1)

    def _owed(self, output: Output, rows: pa.Table, record: MicroBatch, ingested: int) -> Owed:
        path = self.lake.output(output.table)
        fix = f"Begin anew: floodmark run {self.operator.name} --unbounded --from-scratch"
        if not is_bucket(path):  # where each look is a request
            check_there(path, f"output '{output.table}' of the running stream", fix)
        mark = marker(output.schema, watermark=record.progress, sequence=None, now=ingested)
        whole = division.divided(pa.concat_tables([rows, pa.Table.from_batches([mark])]), output)
        files = synced.written(path, whole, partition_by(output))
        return Owed(
            table=output.table,
            app=self.timeline.app(output.table),
            folder=files.folder.name,
            partition_by=partition_by(output),
            record=encode(record),
            files=tuple(file.relative_to(files.folder).as_posix() for file in files.files) if files.sent else (),
        )

    def _pay(self, owed: Owed, number: int) -> None:
        record = decode(owed.record, f"micro-batch {number} of '{self.operator.name}'")
        assert isinstance(record, MicroBatch)
        self._writer(owed.table).append(lambda: self._written(owed), record, (owed.app, number))

    def _written(self, owed: Owed) -> Written:
        path = self.lake.output(owed.table)
        try:
            folder = staging.fetched(path, owed.folder, owed.files)
        except FileNotFoundError:
            folder = staging.folder_of(path, owed.folder)
        written = Written(folder=folder, partition_by=owed.partition_by, sent=is_bucket(path))
        if not written.files:
            fix = (
                "Put it back from a copy, or roll the stream back to a savepoint: "
                f"floodmark savepoint list {self.operator.name}, floodmark rollback {self.operator.name} --to ID."
            )
            where = f"table {self.lake.output(owed.table)}"
            raise StateError(
                where, f"the files of folder {owed.folder}, which are still owed to it", "none", fix, code="STATE-004"
            )
        return written

    def _read(self, owed: Owed) -> pa.Table:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only where a process was killed

        return pa.concat_tables([pq.ParquetFile(file).read() for file in self._written(owed).files])

    def _writer(self, table: str) -> Writer:
        return self._writers.setdefault(table, Writer(self.lake.output(table), self.checkpointer))


def _count(rows: pa.Table) -> int:
    return int(pc.sum(pc.equal(rows["_kind"], ROW)).as_py() or 0)
