"""Restatements: replaces the results of some event times in an output by those of a changed definition, in one commit. No JVM is needed.

Retractions come from the rows in the table, so the code that wrote them is not needed. Unchanged rows are not rewritten; without any change nothing is
committed. So a restatement that was killed can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core.errors import ExecutionError
from floodmark.core.sql import quoted
from floodmark.core.time import from_ms
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.table import division
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.table.outputs import partition_by
from floodmark.lake.table.rows import INSTANT, marker, plain_type
from floodmark.lake.writing import synced
from floodmark.lake.writing.writer import Writer, committed
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import MARKER, PARTITION, RETRACTION, ROW, SEQUENCES, STAMPS, first_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Restatement:
    """The restatement of one output.

    Args:
        output: the output in the changed definition.
        path: path of its table.
        app: application id of the commit's transaction.
        instants: event times of the results, ms.
    """

    output: Output
    path: str
    app: str
    instants: Collection[int]

    def standing(self) -> pa.Table:
        """The table's rows of these event times, including retractions. Reads only files whose range overlaps them."""
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        whole = DeltaTable(self.path).to_pyarrow_dataset()
        time = dataset.field("_event_time")
        low, high = (pa.scalar(from_ms(ms), INSTANT) for ms in (min(self.instants), max(self.instants)))
        rows = _plain(whole.to_table(filter=(time >= low) & (time <= high)))
        rows = rows.drop_columns([name for name in (PARTITION,) if name in rows.column_names])
        micros = pa.array(sorted(self.instants), pa.int64())
        return rows.filter(pc.is_in(rows["_event_time"].cast(pa.int64()), pc.multiply(micros, 1000)))

    def difference(self, standing: pa.Table, rows: pa.Table) -> pa.Table:
        """The retractions and rows that turn ``standing`` into ``rows``, numbered from 0 in the column ``_place``.

        If results have keys, a retraction and its replacement share a number; otherwise retractions come first.

        Args:
            standing: the table's rows, from ``standing()``.
            rows: results of the changed definition, all of kind ``ROW``.
        """
        import duckdb  # noqa: PLC0415 - every stream start imports this module, but few streams restate

        schema = rows.schema
        names = [name for name in schema.names if name not in STAMPS or name == "_event_time"]
        column_list = ", ".join(map(quoted, names))
        counted = (
            f"SELECT {column_list}, sum(_n) AS _n FROM (SELECT {column_list}, CASE WHEN _kind = {ROW} THEN -1 ELSE 1 END AS _n FROM standing WHERE _kind <> {MARKER} "
            f"UNION ALL SELECT {column_list}, 1 AS _n FROM stated) GROUP BY ALL HAVING sum(_n) <> 0"
        )
        kinds = f"SELECT {column_list}, CASE WHEN _n < 0 THEN {RETRACTION} ELSE {ROW} END AS _kind, unnest(range(abs(_n)::BIGINT)) FROM ({counted})"
        keys = ", ".join(map(quoted, ("_event_time", *self.output.keys)))
        numbering = (
            f"dense_rank() OVER (ORDER BY {keys})"
            if self.output.keys
            else f"row_number() OVER (ORDER BY _kind, {column_list})"
        )
        with duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            engine.register("standing", standing.select(schema.names).cast(schema))
            engine.register("stated", rows)
            relation = engine.sql(
                f"SELECT {column_list}, _kind, {numbering} - 1 AS _place FROM ({kinds}) ORDER BY _place, _kind"
            )
            table = pa.table(relation.to_arrow_table())
        columns = [pa.field(name, schema.field(name).type) for name in names]
        return table.cast(pa.schema([*columns, ("_kind", pa.int32()), ("_place", pa.int64())]))

    def commit(self, difference: pa.Table, record: MicroBatch, now: int) -> pa.Table:
        """Commit a difference as part of a micro-batch that the table has already.

        Args:
            difference: changes from ``difference()``, not empty.
            record: record of the commit, with the micro-batch and the progress of the stream.
            now: ingestion time, ms UTC.

        Returns:
            The committed rows with their stamps, without the marker.

        Raises:
            ExecutionError: EXECUTION-061, there are more rows than free sequences in the micro-batch.
            LifecycleError: LIFECYCLE-004 the commit conflicted with another writer, LIFECYCLE-057 a rollback has ended the timeline.
        """
        first = self._first_free(record.batch, (pc.max(difference["_place"]).as_py() or 0) + 1)
        stamps = {
            "_watermark": pa.scalar(record.progress, pa.int64()),
            "_progress": pa.scalar(record.progress, pa.int64()),
            "_ingest_time": pa.scalar(now * 1000, pa.int64()).cast(INSTANT),
        }
        rows = difference.append_column("_sequence", pc.add(difference["_place"], first)).drop_columns(["_place"])
        for name, value in stamps.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        mark = pa.Table.from_batches([marker(self.output.schema, watermark=record.progress, sequence=None, now=now)])
        whole = division.divided(pa.concat_tables([rows.select(mark.column_names), mark]), self.output)
        done = committed(self.path, self.app)
        once = self.app, 0 if done is None else done + 1
        if is_reached(self.path):
            write = partial(synced.written, self.path, whole, partition_by(self.output))
            Writer(self.path).append(write, record, once)
        else:
            Writer(self.path).append_wider(whole.to_reader(), record, once)
        return rows

    def _first_free(self, batch: int, count: int) -> int:
        """The first of ``count`` consecutive sequences of a micro-batch above all that the table uses."""
        first = first_sequence(batch)
        last = max(self._sequences(first), default=first - 1)
        if last + count < first + SEQUENCES:
            return last + 1
        fix = "Nothing of it is committed. Compute all of it anew: floodmark apply OPERATOR --rebuild"
        where, room = f"restatement of '{self.output.table}'", first + SEQUENCES - 1 - last
        raise ExecutionError(where, f"at most {room:,} rows", f"{count:,} rows", fix, code="EXECUTION-061")

    def _sequences(self, first: int) -> Iterator[int]:
        """The greatest sequence of a micro-batch in each batch of rows that has one."""
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        sequence = dataset.field("_sequence")
        wanted = (sequence >= first) & (sequence < first + SEQUENCES)
        for part in DeltaTable(self.path).to_pyarrow_dataset().to_batches(columns=["_sequence"], filter=wanted):
            last = pc.max(part["_sequence"]).as_py()
            if last is not None:
                yield last


def _plain(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([pa.field(one.name, plain_type(one.type)) for one in rows.schema]))
