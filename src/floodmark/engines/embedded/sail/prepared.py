"""Prepared frames over tables in memory, made once and computed for each micro-batch by a single request to Sail.

A session of Spark Connect sends four requests for a frame: for settings, columns of the frame, columns of the result, and rows. A prepared
frame only requests the rows. The plan is built from its parts at each request, so that other rows can be put into its leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from floodmark.engines.embedded.sail.session import Connection

_PIECE_BYTES = 16_000_000
"""Most bytes of rows that are sent to Sail in one message, about."""


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in pieces that a message holds, at least one."""
    size = max(1, rows.num_rows * _PIECE_BYTES // max(rows.nbytes, _PIECE_BYTES))
    for start in range(0, max(1, rows.num_rows), size):
        yield rows.slice(start, size)


def frame_of(connection: Connection, table: pa.Table) -> DataFrame:
    """Rows in memory as a frame; there may be none."""
    leaf, _ = _leaf(table.schema, table)
    frame: DataFrame = _frame(leaf, connection)
    return frame


def _leaf(columns: pa.Schema, table: pa.Table | None = None) -> tuple[Any, pa.Schema]:
    """A leaf of a plan, into which rows are put, and the schema of these rows."""
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - imports pandas, while a stream starts
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415 - the same

    structure = from_arrow_schema(columns)
    schema = to_arrow_schema(structure, timezone="UTC")
    return LocalRelation(schema.empty_table() if table is None else table.cast(schema), structure.json()), schema


def _frame(leaf: Any, connection: Connection) -> Any:
    from pyspark.sql.connect.dataframe import DataFrame as Frame  # noqa: PLC0415 - the same

    return Frame(leaf, connection.spark)


Framing = Callable[[Mapping[str, DataFrame]], DataFrame]
"""(input name -> frame of its rows) -> the frame computed from them."""


class Query:
    """A frame that is prepared once for each server that it is asked on; for a server that follows, before its first use.

    Args:
        framing: makes the frame, always the same one. It may be called in another thread.
    """

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._empty: dict[str, pa.Table] = {}
        """Input name -> its columns, without rows."""
        self._prepared: Prepared | None = None
        self._ahead: Prepared | None = None
        """For a server that may follow."""

    def rows(self, connection: Connection, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The rows of the frame over tables, which have the same columns each time. Only one thread at a time may call this."""
        if self._prepared is None or self._prepared.session is not connection.spark:
            ahead, self._ahead = self._ahead, None
            is_ready = ahead is not None and ahead.session is connection.spark
            self._prepared = ahead if is_ready else Prepared.of(connection, tables, self._framing)
            self._empty = {name: table.schema.empty_table() for name, table in tables.items()}
            connection.asks(self)
        assert self._prepared is not None
        return self._prepared.rows(tables)

    def rehearse(self, connection: Connection) -> None:
        """Prepare the frame for a server that is not in use yet, and compute it over no rows, so that its first use takes no longer than others."""
        ahead = Prepared.of(connection, self._empty, self._framing)
        ahead.rows(self._empty)
        self._ahead = ahead


@dataclass(slots=True)
class Prepared:
    """A prepared frame on one server.

    Args:
        session: of the server.
        relations: input name -> the leaf of the plan for its rows, and their schema.
        frame: over the leaves.
        schema: of the frame's rows.
    """

    session: Any
    relations: dict[str, tuple[Any, pa.Schema]]
    frame: Any
    schema: pa.Schema

    @staticmethod
    def of(connection: Connection, tables: Mapping[str, pa.Table], framing: Framing) -> Prepared:
        """Make the frame.

        Args:
            connection: to the server.
            tables: input name -> rows with the columns that all later rows have.
            framing: makes the frame.
        """
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - imports pandas, while a stream starts

        leaves = {name: _leaf(table.schema) for name, table in tables.items()}
        frame: Any = framing({name: _frame(leaf, connection) for name, (leaf, _) in leaves.items()})
        schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        return Prepared(connection.spark, leaves, frame, schema)

    def rows(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Compute the rows of the frame over tables. Only one thread at a time may call this."""
        for name, (leaf, schema) in self.relations.items():
            leaf._table = tables[name].cast(schema)  # noqa: SLF001 - see above
        table, _ = self.frame._to_table()  # noqa: SLF001 - ``toArrow`` asks for the columns again
        return table.cast(self.schema)
