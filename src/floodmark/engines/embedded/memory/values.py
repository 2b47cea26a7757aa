"""Values of expressions over Arrow tables: columns and constants by Arrow, all other expressions of a step by one query of Sail."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from floodmark.core.errors import CapabilityError, ExecutionError, printable
from floodmark.engines.embedded.memory.remembered import Remembered
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.engines.embedded.retries.reasons import refusal
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.attempts import Attempt, is_column
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Literal

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.prepared import Query
    from floodmark.engines.embedded.sail.session import Connection

_PLACE, _NONE = "_place", "_none"
_WIDER = {"int": {"tinyint", "smallint"}, "bigint": {"tinyint", "smallint", "int"}, "double": {"float", "int"}}
"""Type -> types whose values Arrow makes values of this type without a check."""
_WRITTEN = {"boolean", "tinyint", "smallint", "int", "bigint", "string"}
"""Types whose constants have the value that Python parses."""


def values(rows: pa.Table, attempts: Sequence[Attempt]) -> list[pa.ChunkedArray]:
    """The value of each expression for each row.

    Args:
        rows: of a step; no markers.
        attempts: expressions over columns of the rows.

    Raises:
        CapabilityError: CAPABILITY-031, Sail would compute a value otherwise than Spark.
        ExecutionError: EXECUTION-006, an expression fails for some row.
        SetupError: SETUP-070 or SETUP-071, Sail is not installed.
    """
    known = {place: _plain(rows, attempt) for place, attempt in enumerate(attempts)}
    asked = [place for place, column in known.items() if column is None]
    if asked:
        known.update(zip(asked, _computed(rows, [attempts[place] for place in asked]), strict=True))
    return [column for column in known.values() if column is not None]


def check_computable(attempts: Sequence[Attempt]) -> None:
    """Raise as ``values`` if Sail cannot compute an expression for any row."""
    kinds = {name: arrow_type(attempt.schema[name].type) for attempt in attempts for name in attempt.schema.names}
    nulls = pa.table({name: pa.nulls(1, kind) for name, kind in kinds.items()})
    asked = [attempt for attempt in attempts if _plain(nulls, attempt) is None]
    if asked:
        _Query(tuple(asked), "false").of(_numbered(nulls.select(_read(asked))))


def _plain(rows: pa.Table, attempt: Attempt) -> pa.ChunkedArray | None:
    """The values of an expression that is a column or a constant of its type or a narrower type; None for all other expressions."""
    if not is_column(attempt.text, attempt.schema):
        return _constant(rows, attempt)
    column = rows[attempt.text.strip("`")]
    kind = attempt.schema[attempt.text.strip("`")].type
    if kind == attempt.type:
        return column
    return column.cast(arrow_type(attempt.type)) if kind in _WIDER.get(attempt.type, ()) else None


def _constant(rows: pa.Table, attempt: Attempt) -> pa.ChunkedArray | None:
    literal = expression(attempt.text, attempt.schema, attempt.step).tree.node
    if not isinstance(literal, Literal) or not isinstance(literal.value, (bool, int, str)):
        return None
    if literal.type != attempt.type and literal.type not in _WIDER.get(attempt.type, ()):
        return None
    if literal.type not in _WRITTEN:
        return None
    return pa.chunked_array([pa.repeat(pa.scalar(literal.value, arrow_type(attempt.type)), rows.num_rows)])


def _computed(rows: pa.Table, attempts: Sequence[Attempt]) -> list[pa.ChunkedArray]:
    if not rows.num_rows:
        for attempt in attempts:
            _sql(attempt)
        return [pa.chunked_array([], arrow_type(attempt.type)) for attempt in attempts]
    return list(_remembered(tuple(attempts)).of(_numbered(rows.select(_read(attempts)))).columns)


@lru_cache(maxsize=256)
def _remembered(attempts: tuple[Attempt, ...]) -> Remembered:
    return Remembered(_Query(attempts).of)


def _numbered(rows: pa.Table) -> pa.Table:
    """The rows; rows without any column get a column of nulls, as a table without columns does not keep its number of rows."""
    return rows if rows.num_columns else pa.table({_NONE: pa.nulls(rows.num_rows, pa.int32())})


def _read(attempts: Sequence[Attempt]) -> list[str]:
    """The columns that expressions read."""
    read = [expression(attempt.text, attempt.schema, attempt.step) for attempt in attempts]
    return list(dict.fromkeys(name for one in read for name in one.columns))


def _sql(attempt: Attempt) -> str:
    return f"CAST(({sail_sql(attempt.text, attempt.schema, attempt.step)}) AS {attempt.type})"


@dataclass(slots=True)
class _Query:
    """The values of expressions, a column each, as one prepared query.

    Args:
        attempts: expressions.
        condition: SQL condition for the rows to compute.
    """

    attempts: tuple[Attempt, ...]
    condition: str = "true"
    _query: Query | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, rows: pa.Table) -> pa.Table:
        """The values for rows, in the order of the rows."""
        from grpc import RpcError  # noqa: PLC0415 - only where Sail is needed
        from pyspark.errors import PySparkException  # noqa: PLC0415 - the same

        from floodmark.engines.embedded.sail.prepared import pieces  # noqa: PLC0415 - the same
        from floodmark.engines.embedded.sail.session import on_sail, shared  # noqa: PLC0415 - the same

        table = rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows), pa.int64()))
        try:
            with self._lock:
                parts = [on_sail(shared(), partial(self._asked, piece)) for piece in pieces(table)]
        except (PySparkException, RpcError) as error:
            raise _failed(self.attempts, printable(str(error).strip().splitlines()[0])) from error
        computed = pa.concat_tables(parts).sort_by(_PLACE)
        kinds = [arrow_type(attempt.type) for attempt in self.attempts]
        columns = [computed[place].cast(kind) for place, kind in enumerate(kinds)]
        return pa.table(columns, [str(place) for place in range(len(columns))])

    def _asked(self, table: pa.Table, connection: Connection) -> pa.Table:
        from floodmark.engines.embedded.sail.prepared import Query  # noqa: PLC0415 - only where Sail is needed

        if self._query is None:
            columns = [f"{_sql(attempt)} AS v{place}" for place, attempt in enumerate(self.attempts)]
            self._query = Query(lambda frames: frames[""].filter(self.condition).selectExpr(*columns, _PLACE))
        return self._query.rows(connection, {"": table})


def _failed(attempts: Sequence[Attempt], message: str) -> CapabilityError | ExecutionError:
    where = " and ".join(dict.fromkeys(attempt.step for attempt in attempts))
    if (refused := refusal(message)) is not None:
        fix = "Run it on Spark: --engine spark, or floodmark.testing.spark.SparkCase in a test."
        return CapabilityError(where, "values that Sail computes as Spark does", refused, fix, code="CAPABILITY-031")
    fix = "Mend the expression, or the row it fails for."
    return ExecutionError(where, "a value for every row", message, fix, code="EXECUTION-006")
