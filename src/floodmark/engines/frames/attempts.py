"""Expressions that may fail for a row: the row is quarantined with the reason.

On Spark, ``TryEval`` catches the exception: the expression that Spark's own ``try_`` functions are made of. SQL has no name for it, and a client of
Spark Connect no JVM: there ``try_add`` of a timestamp that depends on the value stands for it. Sail has no such expression:
a query of Sail ends if one row fails, and ``embedded.retries.attempts`` marks the failing rows before the query is run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core.errors import FloodmarkError, printable
from floodmark.engines.frames.client import is_connected
from floodmark.engines.frames.expressions import Rendering, as_written, on_sail, typed, value, with_columns
from floodmark.semantics.kernels.attempts import Attempt, all_attempts, matching, quarantining, stopped
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import FAILED, FAILURE, QUARANTINE, ROW, Schema

_MESSAGES = 20
"""Rows of a micro-batch whose message is looked up, as each message costs a query. Other rows are quarantined without a message."""


def attempted(
    rows: DataFrame, attempts: Sequence[Attempt], keys: Sequence[str] = (), rendering: Rendering = as_written
) -> DataFrame:
    """Rows with the value of each attempt, as ``made(rows, 0)``, ``made(rows, 1)``...; a row for which one fails is ``FAILED``, with the reason.

    A retraction that fails is left out, as the row that it takes back was quarantined. On Sail the query ends if an attempt fails for a row
    that is not ``FAILED`` already.

    Args:
        rows: stamped.
        attempts: at least one, over columns of the rows.
        keys: columns of the key, for the quarantine.
        rendering: of expressions, for the session of the rows.
    """
    if on_sail(rows):
        return _attempted_on_sail(rows, attempts, rendering)
    tries = [_try(rows, attempt).alias(_tried(number)) for number, attempt in enumerate(attempts)]
    before = F.col(FAILURE) if FAILURE in rows.columns else F.lit(None).cast(f"struct<{QUARANTINE.ddl()}>")
    rows = rows.select("*", *tries)
    fails = " OR ".join(f"`{_tried(number)}` IS NULL" for number in range(len(attempts)))
    why = F.when(F.expr(f"`_kind` > {ROW}"), before)
    for number, attempt in enumerate(attempts):
        why = why.when(F.expr(f"`{_tried(number)}` IS NULL"), _failure(attempt, keys))
    kind = F.expr(f"CASE WHEN `_kind` <= {ROW} AND ({fails}) THEN {FAILED} ELSE `_kind` END")
    return rows.filter(f"`_kind` >= {ROW} OR NOT ({fails})").withColumns({FAILURE: why, "_kind": kind})


def _attempted_on_sail(rows: DataFrame, attempts: Sequence[Attempt], rendering: Rendering) -> DataFrame:
    """``attempted`` on Sail. ``_kind`` is made to depend on each attempt, as Sail would not compute an attempt that no column reads."""
    tries = [
        f"{value(attempt.text, attempt.type, attempt.schema, rendering)} AS `{_tried(number)}`"
        for number, attempt in enumerate(attempts)
    ]
    if FAILURE not in rows.columns:
        tries.append(f"CAST(NULL AS struct<{QUARANTINE.ddl()}>) AS `{FAILURE}`")
    missing = " - ".join(f"CASE WHEN `{_tried(number)}` IS NULL THEN 1 ELSE 0 END" for number in range(len(attempts)))
    # every kind is above -9, so this leaves `_kind` as it is
    return with_columns(rows.selectExpr("*", *tries), {"_kind": f"CAST(greatest(`_kind`, -9 - {missing}) AS int)"})


def failures(rows: DataFrame, attempt: Attempt) -> DataFrame:
    """The rows for which an expression fails, with the row as JSON in ``given``."""
    rows = rows.withColumn(_tried(0), _try(rows, attempt))
    return rows.filter(f"`{_tried(0)}` IS NULL").withColumn("given", _json(attempt.schema.names, attempt.schema))


def made(rows: DataFrame, number: int) -> str:
    """The value of an attempt of ``attempted``, as SQL text; null where it failed, and for markers."""
    return f"`{_tried(number)}`" if on_sail(rows) else f"`{_tried(number)}`.`value`"


def _tried(number: int) -> str:
    return f"_tried_{number}"


def _try(rows: DataFrame, attempt: Attempt) -> Column:
    """A struct of the value; null if the expression fails. In a branch of ``CASE``, so that Spark does not compute a common part before."""
    if is_connected(rows):
        return F.expr(_caught(attempt))
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 - the way to Spark's optimizer
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    value = F.expr(f"named_struct('value', {typed(attempt.text, attempt.type)})")
    caught = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(value._jc))  # noqa: SLF001 - as above
    return F.when(F.col("_kind") > ROW, F.lit(None)).otherwise(Column(utils.column(caught)))


def _caught(attempt: Attempt) -> str:
    """SQL of ``_try``: whatever an argument raises, ``try_add`` of a timestamp and an interval is null (``TryEval`` of all of the sum)."""
    text = typed(attempt.text, attempt.type)
    fails = f"try_add(timestamp_millis(xxhash64({text}) % 1000), INTERVAL '0' SECOND) IS NULL"
    return f"CASE WHEN `_kind` > {ROW} OR {fails} THEN NULL ELSE named_struct('value', {text}) END"


def _failure(attempt: Attempt, keys: Sequence[str]) -> Column:
    """The row of the quarantine, without stamps, for a row for which an attempt fails."""
    fields = {
        "step": F.lit(attempt.step),
        "key": _json(keys, attempt.schema) if keys else F.lit(None).cast("string"),
        "reason": F.lit(attempt.unexplained),
        "given": _json(attempt.schema.names, attempt.schema),
    }
    return F.struct(*(column.alias(name) for name, column in fields.items()))


def _json(names: Sequence[str], schema: Schema) -> Column:
    """Columns as JSON, with the texts of ``semantics.kernels.failures`` for values of each type."""
    columns = [F.expr(as_json(name, schema.types[name])).alias(name) for name in names]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def as_json(name: str, kind: str) -> str:
    """SQL, for Spark, of a column's value as it is written into the JSON of a row."""
    column = f"`{name}`"
    if kind == "timestamp":
        micros = f"CASE WHEN unix_micros({column}) % 1000000 = 0 THEN '' ELSE date_format({column}, '.SSSSSS') END"
        return f"concat(date_format({column}, 'yyyy-MM-dd HH:mm:ss'), {micros}, '+00:00')"
    if kind == "binary":
        return f"lower(hex({column}))"
    if kind == "float":
        return f"CAST({column} AS double)"
    return f"CAST({column} AS string)" if kind.startswith("decimal") else column


# ---- messages


def explained(rows: DataFrame, attempts: Sequence[Attempt]) -> DataFrame:
    """Rows of a quarantine with Spark's messages: each failed expression is computed once more, row by row, for ``_MESSAGES`` rows."""
    if not attempts:
        return rows
    reasons = [attempt.unexplained for attempt in attempts]
    columns = ("step", "reason", "given")
    failed = rows.filter(F.col("reason").isin(reasons)).select(*columns).distinct().orderBy(*columns).limit(_MESSAGES)
    reason = F.col("reason")
    for row in failed.collect():
        explanation = next(
            (text for a in matching(attempts, row.asDict()) if (text := message(rows.sparkSession, a, row["given"]))),
            None,
        )
        if explanation is not None:
            same = [F.col(name) == row[name] for name in columns]
            reason = F.when(same[0] & same[1] & same[2], F.lit(explanation)).otherwise(reason)
    return rows.withColumn("reason", reason)


def message(spark: SparkSession, attempt: Attempt, row_json: str) -> str | None:
    """(session, attempt, row as JSON) -> why the attempt fails for the row; None if the attempt does not fail for the values that JSON holds."""
    row = spark.range(1).select(F.from_json(F.lit(row_json), attempt.schema.ddl()).alias("row"))
    try:
        row.select("row.*").select(F.expr(typed(attempt.text, attempt.type))).collect()
    except PySparkException as error:
        return attempt.explained(printable(str(error).strip().splitlines()[0]))
    return None


# ---- runs that stop

OF_DATA = re.compile(r"SQLSTATE: (22\w{3}|P0001)")
"""Spark's errors about values that an expression has no result for, and of ``raise_error``."""


@contextmanager
def blaming(operator: Operator, mode: str, places: Callable[[Operator], Iterable[DataFrame | None]]) -> Iterator[None]:
    """A context that turns the error of an expression into an error that names the failing row.

    Args:
        operator: that runs.
        mode: bounded or unbounded.
        places: (the operator with quarantining steps) -> frames in which to look for the row, in this order: rows of the quarantine, or of
            ``set_aside_before``.

    Raises:
        ExecutionError: EXECUTION-050.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        failed_row = _blamed(operator, places) if OF_DATA.search(str(error)) else None
        if failed_row is None:
            raise
        raise stopped(operator, mode, failed_row, failed_row["_event_time"], failed_row["_sequence"]) from error


def attempts_of(operator: Operator) -> tuple[Attempt, ...]:
    """The expressions of all links of an operator whose failures quarantine rows."""
    return tuple(attempt for link in operator.links for attempt in all_attempts(link, stage_of(link)))


def _blamed(operator: Operator, places: Callable[[Operator], Iterable[DataFrame | None]]) -> dict[str, Any] | None:
    """The first row that fails, with its message; None if no row fails, or the search fails too: the caller raises the original error then."""
    twin = quarantining(operator)
    attempts = attempts_of(twin)
    reasons = [attempt.unexplained for attempt in attempts]
    try:
        for rows in places(twin):
            first = None if rows is None else rows.filter(F.col("reason").isin(reasons)).orderBy("_sequence").limit(1)
            first = first if first is None else first.withColumn("_event_time", F.expr("unix_millis(`_event_time`)"))
            for row in () if first is None else first.collect():
                assert rows is not None
                spark = rows.sparkSession
                messages = (message(spark, attempt, row["given"]) for attempt in matching(attempts, row.asDict()))
                return {**row.asDict(), "reason": next(filter(None, messages), row["reason"])}
    except (PySparkException, Py4JError, FloodmarkError):
        return None
    return None
