"""Punctuation on Spark: the predicate that decides which rows of a source advance its watermark, computed by Spark SQL during landing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from floodmark.connectors.judging.validation import ASKED, CHANGE, EVENT, of_partition, partition_of
from floodmark.engines.frames.attempts import OF_DATA, failures, message
from floodmark.engines.landing import units
from floodmark.engines.landing.judging import Refused
from floodmark.engines.landing.units import REPORT, ROWS, Blob
from floodmark.engines.spark.landing import blobs as of_spark
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import quoted
from floodmark.spec.rows.source import Punctuated, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")

ROW = "_row"
"""The index of a row among the rows of its unit that keep the contract."""
_MESSAGES = 20
"""Rows of a commit whose message is looked up, as each message costs a query. Other rows are quarantined without a message."""


def punctuated(blobs: DataFrame, source: Source) -> DataFrame:
    """Blobs whose rows advance the watermark only if Spark SQL finds the source's predicate true for them."""
    partition_by = source.partition_by

    def close(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(of_spark.batch_of, units.retraced(_closed(batches), partition_by))

    holds = f"CASE WHEN `_kind` = {ROWS} THEN coalesce(({quoted(_predicate(source))}), false) ELSE false END"
    moving = exploded(blobs, source).selectExpr(
        "*", f"{holds} AS _moves"
    )  # a blob without rows of the source is one row of nulls
    return moving.mapInArrow(close, of_spark.DDL)


def judged(parsed: Callable[[Refused], DataFrame], source: Source, compute: Callable[[DataFrame], Result]) -> Result:
    """The result of a query over the blobs of some units, after the source's predicate, if it has one, is computed for their rows.

    A row for which the predicate fails is a broken row. The units are then parsed again, to find these rows and to land the others.

    Args:
        parsed: the blobs of the units, in which the refused rows are broken.
        source: of the units.
        compute: runs a query over all blobs.
    """
    if not isinstance(source.watermark, Punctuated):
        return compute(parsed({}))
    try:
        return compute(punctuated(parsed({}), source))
    except (PySparkException, Py4JError) as error:
        refused = _refused(parsed({}), source) if OF_DATA.search(str(error)) else {}
        if not refused:
            raise
    return compute(punctuated(parsed(refused), source))


def _refused(blobs: DataFrame, source: Source) -> Refused:
    """The rows for which the predicate fails; the first ``_MESSAGES`` of them with Spark's message."""
    attempt = Attempt(step="Punctuated", text=_predicate(source), type="boolean", schema=source.schema)
    failing = failures(exploded(blobs, source).where(f"`_kind` = {ROWS}"), attempt).orderBy("_unit", ROW)
    refused: dict[int, dict[int, str]] = {}
    for row in failing.select("_unit", ROW).collect():
        refused.setdefault(row["_unit"], {})[row[ROW]] = f"Punctuated, {attempt.unexplained}"
    for row in failing.select("_unit", ROW, "given").limit(_MESSAGES).collect():
        if (reason := message(failing.sparkSession, attempt, row["given"])) is not None:
            refused[row["_unit"]][row[ROW]] = f"Punctuated, {reason}"
    return refused


def _predicate(source: Source) -> str:
    assert isinstance(source.watermark, Punctuated)
    return source.watermark.predicate


def exploded(blobs: DataFrame, source: Source) -> DataFrame:
    """Rows of a source, each with the coordinates of its blob; a blob without rows of the source is one row of nulls."""
    empty = _empty(source)

    def explode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = Counter[int]()  # all blobs of a unit are in one task
        for batch in batches:
            yield from _all_opened(zip(*(column.to_pylist() for column in batch.columns), strict=True), empty, seen)

    return blobs.mapInArrow(explode, _exploded_ddl(source))


def exploded_here(spark: SparkSession, blobs: Iterable[Blob], source: Source) -> DataFrame:
    """As ``exploded``, of blobs that this process holds."""
    batches = list(_all_opened(blobs, empty := _empty(source), Counter()))
    schema = batches[0].schema if batches else _opened((0, 0, REPORT, b""), empty, 0).schema
    return spark.createDataFrame(pa.Table.from_batches(batches, schema), _exploded_ddl(source))


def _added(source: Source) -> Mapping[str, str]:
    """Columns that a blob has beside those of the contract -> type."""
    return {**({CHANGE: "int"} if source.revisable else {}), EVENT: "bigint", ASKED: "bigint"}


def _exploded_ddl(source: Source) -> str:
    columns = ", ".join([source.schema.ddl(), *(f"`{name}` {kind}" for name, kind in _added(source).items())])
    return f"{of_spark.DDL}, {ROW} bigint, {columns}"


def _empty(source: Source) -> pa.Schema:
    return pa.schema(
        [(column.name, arrow_type(column.type)) for column in source.schema.columns]
        + [(name, pa.int32() if kind == "int" else pa.int64()) for name, kind in _added(source).items()]
    )


def _all_opened(blobs: Iterable[Blob], empty: pa.Schema, seen: Counter[int]) -> Iterator[pa.RecordBatch]:
    """Blobs' rows, in order; ``seen`` counts them per unit."""
    for blob in blobs:
        opened = _opened(blob, empty, seen[blob[0]])
        seen[blob[0]] += len(opened) if blob[2] == ROWS else 0
        yield opened


def _opened(blob: Blob, empty: pa.Schema, first: int) -> pa.RecordBatch:
    """A blob's rows, each with the blob's coordinates and its index in the unit; a blob of another kind is one row of nulls."""
    unit, part, kind, data = blob
    if kind == ROWS:
        rows = units.rows_of(data)
        data = partition_of(rows)  # all that is left to tell: the rows are in columns of their own
    else:
        rows = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in empty], schema=empty)
    size = len(rows)
    coordinates = [
        pa.array([value] * size, type=f.type) for value, f in zip((unit, part, kind, data), of_spark.BLOB, strict=True)
    ]
    indices = pa.array(range(first, first + size), pa.int64())
    names = [*of_spark.BLOB.names, ROW, *rows.schema.names]
    return pa.RecordBatch.from_arrays([*coordinates, indices, *rows.columns], names=names)


def _closed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Blob, pa.RecordBatch | None]]:
    """The blobs of which batches hold the opened rows, each with its rows: rows with equal coordinates are one blob."""
    for batch in batches:
        unit, part, kind = (batch.column(name).to_numpy() for name in ("_unit", "_part", "_kind"))
        changes = np.flatnonzero((np.diff(unit) != 0) | (np.diff(part) != 0)) + 1
        for start, stop in zip([0, *changes], [*changes, len(batch)], strict=True):
            piece = batch.slice(start, stop - start)
            blob = int(unit[start]), int(part[start]), int(kind[start]), piece.column("_data")[0].as_py()
            if blob[2] != ROWS:
                yield blob, None
                continue
            moves = piece.column("_moves").to_numpy(zero_copy_only=False)
            rows = piece.drop_columns([*of_spark.BLOB.names, ROW, "_moves"])
            yield blob, units.moving(of_partition(rows, blob[3]), moves)
