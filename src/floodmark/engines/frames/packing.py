"""Packing of rows per key group before the shuffle, and unpacking of results after it, in Arrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from floodmark.core.time import NEVER, Interval
from floodmark.engines.frames.numbering import Numbering
from floodmark.lake.table.rows import marker, row_schema
from floodmark.semantics.encoding.columns import decode, encode, inside
from floodmark.semantics.kernels.columnar import GROUP, KEY_GROUP
from floodmark.semantics.kernels.kernel import Emission
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.graph.operator import Side
from floodmark.spec.values.schema import CARRIED, ROW, STAMP_DDL, Schema

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PACKED = (
    "group int, late bigint, dropped bigint, sides bigint, failures bigint, taken bigint, payload binary, side binary"
)
"""One row per task and key group: counts (``taken``: of rows that the kernel gets), partials and late rows as a chunk, rows for side outputs as a chunk.

A negative ``group`` is none of the stage's: its payload is what stages before have emitted (``handing``), and passes unchanged."""

EMITTED = (
    "rows bigint, retractions bigint, late bigint, dropped bigint, sides bigint, failures bigint, taken bigint, position bigint, "
    "tick bigint, group bigint, stage bigint, others string, results binary, side binary"
)
"""Rows that the host emits: counts; if the clock moved, the last
sequence seen and the clock of the next timer; the key group, and the number of the stage in its operator; result rows as a chunk, side rows as a
chunk. ``others`` is JSON: ``sides``, the number of rows of
each side output of a process function, ``metrics``, what is observed of its metrics, and of a bundle of key groups ``hottest``: the key group with
the most rows, its rows, and the rows of all."""

COUNTED = ("late", "dropped", "sides", "failures", "taken")
"""Columns of counts that packing fills, and the host too."""

_PACKED = pa.schema([("group", pa.int32()), *((name, pa.int64()) for name in COUNTED)])
_PACKED = pa.schema([*_PACKED, ("payload", pa.binary()), ("side", pa.binary())])
COUNTS = ("rows", "retractions", *COUNTED)
NUMBERS = (*COUNTS, "position", "tick", "group", "stage")
"""Columns of EMITTED with numbers."""
HOSTED = "numbers array<bigint>, others string, results binary, side binary"
"""Rows of EMITTED as a stream's host passes them to Spark, the columns with numbers as one: PySpark converts each column of each key group's rows by
itself, a tenth of a millisecond each."""
UNHOSTED = (*(f"numbers[{place}] AS `{name}`" for place, name in enumerate(NUMBERS)), "others", "results", "side")
"""(HOSTED) -> EMITTED, as expressions of SQL."""
_EMITTED = pa.schema([(name, pa.int64()) for name in NUMBERS])
_EMITTED = pa.schema([*_EMITTED, ("others", pa.string()), ("results", pa.binary()), ("side", pa.binary())])


@dataclass(frozen=True, slots=True)
class Packed:
    """What is judged of the rows of a key group before its kernel.

    Args:
        tables: named tables for the kernel.
        counts: by ``COUNTED``.
        aside: rows for side outputs, by ``SIDE_TABLES``.
    """

    tables: dict[str, pa.Table]
    counts: dict[str, int]
    aside: dict[str, pa.Table]

    @property
    def payload(self) -> bytes | None:
        """The tables for the kernel as a chunk; None for none."""
        return encode(self.tables) if self.tables else None

    @property
    def side(self) -> bytes | None:
        """The rows for side outputs as a chunk; None for none."""
        return encode(self.aside) if self.aside else None


def packed_group(tables: Mapping[str, pa.Table], interval: Interval) -> Packed:
    """(named tables of a key group, as stages pack them) -> counts and side rows apart from what its kernel gets."""
    restricted = {name: _inside(name, table, interval) for name, table in tables.items()}
    late = (
        pc.sum(pc.cast(pc.equal(restricted["late"]["kind"], ROW), pa.int64())).as_py() or 0
        if "late" in restricted
        else 0
    )
    dropped = pc.sum(restricted["dropped"]["n"]).as_py() or 0 if "dropped" in restricted else 0
    restricted.pop("dropped", None)
    aside = {name: table for name in ("side", "failed") if (table := restricted.pop(name, None)) is not None}
    sides, failed = (_size(aside.get(name)) for name in ("side", "failed"))
    counts = dict(zip(COUNTED, (late, dropped, sides, failed, _taken(restricted)), strict=True))
    return Packed(restricted, counts, {name: table for name, table in aside.items() if table.num_rows})


def packing(stage: AnyStage, interval: Interval, *, everyone: bool = False, copy: int = 0) -> Batches:
    """Rows -> PACKED. Only windows that end inside ``interval`` (by end - 1) count as late or dropped.

    Args:
        stage: that packs.
        interval: of event time.
        everyone: whether every key group gets a row, so that each group sees the clock move.
        copy: number among the stages of the query. Spark would shuffle once for two equal copies of a stage, and then not move the watermark of
            the second one: it lacks the step that defines the watermark.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passing, _ = list[bytes](), copy  # held, so that the functions of two copies differ
        rows_of = dict[int, Counter[int]]()
        groups = stage.pack(_counted(_apart(batches, passing), rows_of))
        if everyone:
            groups = {group: groups.get(group, {}) for group in stage.step.computed}
        for group, tables in groups.items():
            packed = packed_group(tables, interval)
            if group in rows_of:
                counted = pa.table({"group": list(rows_of[group]), "n": list(rows_of[group].values())})
                packed = replace(packed, tables=packed.tables | {KEY_GROUP: counted})
            counts = {name: [count] for name, count in packed.counts.items()}
            yield pa.RecordBatch.from_pydict(
                {"group": [group], **counts, "payload": [packed.payload], "side": [packed.side]}, schema=_PACKED
            )
        nothing = {**dict.fromkeys(COUNTED, 0), "group": -1 - task_number(), "side": None}
        yield from pa.Table.from_pylist([nothing | {"payload": p} for p in passing], schema=_PACKED).to_batches()

    return run


def task_number() -> int:
    """The number of the task of Spark's that calls; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def _apart(batches: Iterable[pa.RecordBatch], passing: list[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows of a stage, without those that only carry what stages before have emitted, which is added to ``passing``."""
    for batch in batches:
        if CARRIED not in batch.schema.names:
            yield batch
            continue
        passing += batch.column(CARRIED).drop_null().to_pylist()
        yield batch.filter(batch.column(CARRIED).is_null()).drop_columns([CARRIED])


def _counted(batches: Iterable[pa.RecordBatch], rows_of: dict[int, Counter[int]]) -> Iterator[pa.RecordBatch]:
    """Batches without the column of key groups, whose rows are added to ``rows_of``: bundle -> key group -> its rows, without those for all keys."""
    for batch in batches:
        if KEY_GROUP not in batch.schema.names:
            yield batch
            continue
        own = pc.and_(pc.equal(batch.column("kind"), ROW), pc.greater_equal(batch.column(KEY_GROUP), 0))
        pairs = pa.Table.from_batches([batch.select([GROUP, KEY_GROUP]).filter(own)])
        counts = pairs.group_by([GROUP, KEY_GROUP], use_threads=False).aggregate([([], "count_all")])
        for bundle, group, count in zip(*counts.to_pydict().values(), strict=True):
            rows_of.setdefault(bundle, Counter())[group] += count
        yield batch.drop_columns([KEY_GROUP])


def hottest_of(parts: Sequence[dict[str, pa.Table]]) -> tuple[int, int, int] | None:
    """(packed rows of a bundle, from which the counts are removed) -> the key group with the most rows, its rows, the rows of all; None without any."""
    rows = Counter[int]()
    for part in parts:
        counts = part.pop(KEY_GROUP, None)
        if counts is not None:
            rows.update(dict(zip(counts["group"].to_pylist(), counts["n"].to_pylist(), strict=True)))
    return (*rows.most_common(1)[0], rows.total()) if rows else None


def _taken(tables: Mapping[str, pa.Table]) -> int:
    """Rows that a kernel gets, as rows or as partials of them."""
    partials = pc.sum(pc.abs(tables["main"]["n"])).as_py() or 0 if "main" in tables else 0
    return int(partials) + sum(_size(tables.get(name)) for name in ("rows", "left", "right", "late"))


def _size(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


def _aside(side: pa.Table | None, failed: pa.Table | None) -> bytes | None:
    """Rows for side outputs as a chunk: late rows, and failed rows."""
    tables = {
        name: table for name, table in (("side", side), ("failed", failed)) if table is not None and table.num_rows
    }
    return encode(tables) if tables else None


def _inside(name: str, table: pa.Table, interval: Interval) -> pa.Table:
    """The rows of a packed table whose window ends, or whose event time lies, inside the interval; tables without either as they are."""
    if interval.everything or name not in {"late", "dropped", "side", "failed"}:
        return table
    last = table["t"] if name in {"side", "failed"} else pc.subtract(table["end"], 1)
    return inside(table, last, interval)


def last_sequence(parts: Sequence[Mapping[str, pa.Table]]) -> int:
    """The highest ``_sequence`` among packed rows; NEVER without any."""
    highest = (pc.max(part["rows"]["s"]).as_py() for part in parts if "rows" in part)
    return max((sequence for sequence in highest if sequence is not None), default=NEVER)


def emitted(
    stage: AnyStage,
    emission: Emission,
    packed: Mapping[str, int],
    sides: Sequence[bytes] = (),
    group: int | None = None,
) -> pa.Table:
    """One key group's emission as a table of EMITTED, of the first stage of an operator; arguments as of ``emitted_rows``."""
    return pa.Table.from_pylist(emitted_rows(stage, emission, packed, sides, group=group), schema=_EMITTED)


def emitted_rows(
    stage: AnyStage,
    emission: Emission,
    packed: Mapping[str, int],
    sides: Sequence[bytes] = (),
    position: int | None = None,
    group: int | None = None,
    number: int = 0,
    hottest: tuple[int, int, int] | None = None,
) -> list[dict[str, Any]]:
    """One key group's emission as rows of EMITTED; a column that a row lacks is null.

    Args:
        stage: that emitted.
        emission: of its kernel.
        packed: counts of packing, by ``COUNTED``.
        sides: chunks of side rows from packing.
        position: the last sequence seen, if the clock has moved.
        group: number of the key group.
        number: of the stage in its operator.
        hottest: as of ``hottest_of``.
    """
    results = emission.results
    rows = pc.sum(pc.cast(pc.equal(results["_kind"], ROW), pa.int64())).as_py() or 0
    judged = not stage.step.columnar
    first = {
        "rows": rows,
        "retractions": results.num_rows - rows,
        "late": packed["late"] + (emission.late if judged else 0),
        "dropped": packed["dropped"] + emission.dropped,
        "sides": packed["sides"] + _size(emission.side),
        "failures": packed["failures"] + _size(emission.failed),
        "position": position,
        "tick": emission.tick,
        "taken": packed["taken"],
        "group": group,
        "stage": number,
        "others": _others(emission, hottest),
        "results": encode({"results": results, **_side_tables(emission.sides)})
        if results.num_rows or emission.sides
        else None,
        "side": _aside(emission.side, emission.failed),
    }
    nothing = dict.fromkeys(COUNTS, 0) | {"stage": number}
    return [first, *(nothing | {"side": chunk} for chunk in sides)]


def _others(emission: Emission, hottest: tuple[int, int, int] | None) -> str | None:
    """The column ``others``; None if there is nothing to tell."""
    fields = dict[str, Any]()
    if emission.sides or emission.metrics:
        sides = {name: table.num_rows for name, table in emission.sides.items()}
        fields |= {"sides": sides, "metrics": emission.metrics}
    if hottest is not None:
        fields["hottest"] = hottest
    return json.dumps(fields) if fields else None


def _side_tables(sides: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Name in a chunk of results -> rows, of side outputs."""
    return {f"side {name}": table for name, table in sides.items()}


@dataclass(frozen=True, slots=True)
class Stamping:
    """The stamps of the rows of one commit.

    Args:
        progress: for ``_progress``; None in bounded runs.
        ingested: for ``_ingest_time``, ms.
        numbering: stretches of ``_sequence``.
        marker: whether the commit has a marker. Its first task writes the marker, as every commit has a first task.
    """

    progress: int | None
    ingested: int
    numbering: Numbering
    marker: bool = False


def unpacking(schema: Schema, stamping: Stamping, side: Side | None = None, output: str = "") -> Batches:
    """EMITTED (or PACKED) -> complete output rows, in Arrow: no plan, no code generation per micro-batch.

    ``_sequence`` of a result is the first sequence of the task + the order of the row; late rows keep the ``_sequence`` of the input.

    Args:
        schema: of the output.
        stamping: of the commit.
        side: kind of side output; None for results.
        output: name of the side output of a process function.
    """
    column, name = (
        ("results", f"side {output}") if side == "side" else ("side", SIDE_TABLES[side]) if side else _RESULTS
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = task_number()
        sequence = stamping.numbering.first(task)
        for batch in batches:
            for chunk in batch.column(column).to_pylist():
                if chunk is None:
                    continue
                table = decode(chunk).get(name)
                if table is None:
                    continue
                if side == "quarantine":
                    sequences = pa.array(range(sequence, sequence + table.num_rows), pa.int64())
                    table = table.set_column(table.column_names.index("s"), "s", sequences)
                    sequence += table.num_rows
                    stamping.numbering.check(task, sequence - 1)
                if side and side != "side":
                    yield from stamped_rows(side_columns(table, schema), schema, stamping)
                    continue
                numbered = table.append_column("_sequence", pc.add(table["_order"], sequence))
                sequence += (pc.max(table["_order"]).as_py() or 0) + 1
                stamping.numbering.check(task, sequence - 1)
                yield from stamped_rows(numbered, schema, stamping)
        if stamping.marker and stamping.progress is not None and task == 0:
            yield marker(schema, watermark=stamping.progress, sequence=None, now=stamping.ingested)

    return run


def stamped_rows(table: pa.Table, schema: Schema, stamping: Stamping) -> list[pa.RecordBatch]:
    """Rows with their ``_event_time`` in ms as complete rows of an output.

    Args:
        table: columns of the output, ``_event_time``, ``_watermark``, ``_kind``, ``_sequence``.
        schema: of the output.
        stamping: of the commit.
    """
    whole = row_schema(schema)
    micros = pc.multiply(table["_event_time"], 1000).cast(whole.field("_event_time").type)
    table = table.set_column(table.column_names.index("_event_time"), "_event_time", micros)
    table = table.append_column("_progress", pa.repeat(pa.scalar(stamping.progress, pa.int64()), table.num_rows))
    ingested = pa.scalar(stamping.ingested * 1000, pa.int64()).cast(whole.field("_ingest_time").type)
    table = table.append_column("_ingest_time", pa.repeat(ingested, table.num_rows))
    return list(table.select(whole.names).cast(whole).combine_chunks().to_batches())


def side_columns(table: pa.Table, schema: Schema) -> pa.Table:
    """Late rows and failed rows, as kernels emit them, with the columns that ``stamped_rows`` reads."""
    rows = table["side"].combine_chunks()
    columns = [pc.struct_field(rows, [i]) for i in range(len(schema.columns))]
    stamps = [table[name] for name in ("t", "w", "kind", "s")]
    return pa.table([*columns, *stamps], [*schema.names, "_event_time", "_watermark", "_kind", "_sequence"])


def output_ddl(schema: Schema) -> str:
    """The columns of an output table."""
    return f"{schema.ddl()}, {STAMP_DDL}"


_RESULTS = ("results", "results")

SIDE_TABLES = {"late": "side", "quarantine": "failed"}
"""Side output -> the table in a chunk of side rows."""
