"""Around the shuffle, in Arrow: rows are packed per key group before it, results unpacked after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import Interval
from floodmark.semantics.columns import arrow_schema, decode, encode
from floodmark.semantics.kernel import Emission, Stage, pack
from floodmark.spec.schema import ROW

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PACKED = "group int, late bigint, dropped bigint, payload binary, side binary"
"""One row per task and key group: counts, partials and late rows as a chunk, rows for the side output as a chunk."""

EMITTED = "rows bigint, retractions bigint, late bigint, dropped bigint, results binary, side binary"
"""What the host sends on: counts, result rows as a chunk, side rows as a chunk."""

_PACKED = pa.schema([("group", pa.int32()), ("late", pa.int64()), ("dropped", pa.int64())])
_PACKED = pa.schema([*_PACKED, ("payload", pa.binary()), ("side", pa.binary())])


def packing(stage: Stage, interval: Interval) -> Batches:
    """Rows -> PACKED. Only windows that end inside ``interval`` (by end - 1) count as late or dropped."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group, tables in pack(stage, batches).items():
            kept = {name: _inside(name, table, interval) for name, table in tables.items()}
            late = kept["late"].num_rows if "late" in kept else 0
            dropped = pc.sum(kept["dropped"]["n"]).as_py() or 0 if "dropped" in kept else 0
            side = kept.pop("side", None)
            kept.pop("dropped", None)
            side_chunk = encode({"side": side}) if side is not None and side.num_rows else None
            yield pa.RecordBatch.from_pydict(
                {
                    "group": [group],
                    "late": [late],
                    "dropped": [dropped],
                    "payload": [encode(kept) if kept else None],
                    "side": [side_chunk],
                },
                schema=_PACKED,
            )

    return run


def _inside(name: str, table: pa.Table, interval: Interval) -> pa.Table:
    if interval.everything or name not in {"late", "dropped", "side"}:
        return table
    last = table["t"] if name == "side" else pc.subtract(table["end"], 1)
    return table.filter(pc.and_(pc.greater_equal(last, interval.start), pc.less(last, interval.end)))


def counts(emission: Emission) -> tuple[int, int]:
    """Rows and retractions among the results."""
    rows = pc.sum(pc.cast(pc.equal(emission.results["_kind"], ROW), pa.int64())).as_py() or 0
    return rows, emission.results.num_rows - rows


def result_ddl(stage: Stage) -> str:
    """Columns of unpacked results."""
    return f"{stage.step.schema.ddl()}, `_event_time` bigint, `_watermark` bigint, `_kind` int, `_sequence` bigint"


def unpacking(stage: Stage, base: int) -> Batches:
    """EMITTED -> result rows with ``_sequence`` = base + place of the state partition + place of the row."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        place = base + ((context.partitionId() if context else 0) << _PARTITION_BITS)
        for batch in batches:
            for chunk in batch.column("results").to_pylist():
                if chunk is None:
                    continue
                table = decode(chunk)["results"]
                sequence = pc.add(table["order"], place)
                place += (pc.max(table["order"]).as_py() or 0) + 1
                yield from table.drop_columns(["order"]).append_column("_sequence", sequence).combine_chunks().to_batches()

    return run


_PARTITION_BITS = 28


def side_ddl(stage: Stage) -> str:
    """Columns of unpacked side rows."""
    return f"{stage.step.parent.schema.ddl()}, `_event_time` bigint, `_watermark` bigint, `_kind` int, `_sequence` bigint"


def unpacking_side(stage: Stage) -> Batches:
    """PACKED or EMITTED -> the rows of the side output, with the stamps they came with."""
    schema = arrow_schema(stage.step.parent.schema)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.column("side").to_pylist():
                if chunk is None:
                    continue
                table = decode(chunk)["side"]
                rows = table["side"].combine_chunks()
                columns = [pc.struct_field(rows, [i]).cast(field.type) for i, field in enumerate(schema)]
                stamps = [table[name].combine_chunks() for name in ("t", "w", "kind", "s")]
                names = [*schema.names, "_event_time", "_watermark", "_kind", "_sequence"]
                yield pa.RecordBatch.from_arrays([*columns, *stamps], names)

    return run


