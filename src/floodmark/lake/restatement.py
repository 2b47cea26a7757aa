"""Restatements: in one commit, the results of some event times in an output become those that a changed definition gives. No JVM is needed.

What is taken back is what the table holds, so that the code which wrote it is not needed. A row that stays the same is left alone; where all
rows are as they should be, nothing is committed. So a restatement that was killed can be done again.
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
from floodmark.lake import division, synced
from floodmark.lake.commits import MicroBatch
from floodmark.lake.outputs import partition_by
from floodmark.lake.paths import is_local
from floodmark.lake.rows import INSTANT, marker, plain_type
from floodmark.lake.writer import Writer, committed
from floodmark.spec.operator import Output
from floodmark.spec.schema import MARKER, PARTITION, RETRACTION, ROW, SEQUENCES, STAMPS, first_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Restatement:
    """Of one output.

    Args:
        output: of the operator as it is defined now.
        path: of its table.
        app: application id of the commit.
        instants: event times of the results, ms.
    """

    output: Output
    path: str
    app: str
    instants: Collection[int]

    def standing(self) -> pa.Table:
        """The rows of these event times as the table has them, retractions too; only files are read that may have such."""
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        whole = DeltaTable(self.path).to_pyarrow_dataset()
        time = dataset.field("_event_time")
        low, high = (pa.scalar(from_ms(ms), INSTANT) for ms in (min(self.instants), max(self.instants)))
        rows = _plain(whole.to_table(filter=(time >= low) & (time <= high)))
        rows = rows.drop_columns([name for name in (PARTITION,) if name in rows.column_names])
        micros = pa.array(sorted(self.instants), pa.int64())
        return rows.filter(pc.is_in(rows["_event_time"].cast(pa.int64()), pc.multiply(micros, 1000)))

    def difference(self, standing: pa.Table, rows: pa.Table) -> pa.Table:
        """What makes ``standing`` into ``rows``: retractions, and rows, with a place from 0 on in the column ``_place``.

        A retraction and the row in its stead have one place where results have keys; otherwise retractions come first.

        Args:
            standing: as of ``standing``.
            rows: of the changed definition, all of kind ``ROW``.
        """
        import duckdb  # noqa: PLC0415 - every stream imports this module when it starts, and few restate

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
        """Commit a difference as part of a micro-batch that the table has already; the rows as they are then.

        Args:
            difference: as of ``difference``, not empty.
            record: of the commit, with the micro-batch and the progress of the stream.
            now: ingestion time, ms.

        Raises:
            ExecutionError: EXECUTION-061, they are more than one micro-batch has sequences for.
            LifecycleError: LIFECYCLE-004 another writer came in between, LIFECYCLE-057 a rollback has ended the timeline.
        """
        first = self._free(record.batch, (pc.max(difference["_place"]).as_py() or 0) + 1)
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
        if is_local(self.path):
            write = partial(synced.written, self.path, whole, partition_by(self.output))
            Writer(self.path).append(write, record, once)
        else:
            Writer(self.path).append_wider(whole.to_reader(), record, once)
        return rows

    def _free(self, batch: int, count: int) -> int:
        """The first of so many sequences of a micro-batch that are behind all that the table has of it."""
        first = first_sequence(batch)
        last = max(self._sequences(first), default=first - 1)
        if last + count < first + SEQUENCES:
            return last + 1
        fix = "Nothing of it is committed. Compute all of it anew: floodmark apply OPERATOR --rebuild"
        where, room = f"restatement of '{self.output.table}'", first + SEQUENCES - 1 - last
        raise ExecutionError(where, f"at most {room:,} rows", f"{count:,} rows", fix, code="EXECUTION-061")

    def _sequences(self, first: int) -> Iterator[int]:
        """The last sequence of a micro-batch in each file that has any."""
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        sequence = dataset.field("_sequence")
        wanted = (sequence >= first) & (sequence < first + SEQUENCES)
        for part in DeltaTable(self.path).to_pyarrow_dataset().to_batches(columns=["_sequence"], filter=wanted):
            last = pc.max(part["_sequence"]).as_py()
            if last is not None:
                yield last


def _plain(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([pa.field(one.name, plain_type(one.type)) for one in rows.schema]))
