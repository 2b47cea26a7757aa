"""A frame over tables in memory that is made once and computed for each micro-batch: one request to Sail each time.

A session of Spark Connect asks the server four times where once is enough: for its settings, for the columns of the frame, for those of the
result, for the rows. The plan of a frame is made anew from its parts for each request, so that other rows can be put into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from floodmark.engines.embedded.session import Connection


def frame_of(connection: Connection, table: pa.Table) -> DataFrame:
    """Rows in memory as a frame, also where there are none."""
    leaf, _ = _leaf(table.schema, table)
    frame: DataFrame = _frame(leaf, connection)
    return frame


def _leaf(columns: pa.Schema, table: pa.Table | None = None) -> tuple[Any, pa.Schema]:
    """The leaf of a plan that rows are put into, and their columns there."""
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - imports pandas, while a stream starts
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415 - the same

    structure = from_arrow_schema(columns)
    schema = to_arrow_schema(structure, timezone="UTC")
    return LocalRelation(schema.empty_table() if table is None else table.cast(schema), structure.json()), schema


def _frame(leaf: Any, connection: Connection) -> Any:
    from pyspark.sql.connect.dataframe import DataFrame as Frame  # noqa: PLC0415 - the same

    return Frame(leaf, connection.spark)


Framing = Callable[[Mapping[str, DataFrame]], DataFrame]
"""Input name -> its rows as a frame; the frame over them."""


@dataclass(slots=True)
class Prepared:
    """A frame on one server.

    Args:
        session: of the server.
        relations: input name -> the leaf of the plan its rows are put into, and their columns there.
        frame: over them.
        schema: of its rows.
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
            tables: with the columns of all later ones.
            framing: makes it.
        """
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - imports pandas, while a stream starts

        leaves = {name: _leaf(table.schema) for name, table in tables.items()}
        frame: Any = framing({name: _frame(leaf, connection) for name, (leaf, _) in leaves.items()})
        schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        return Prepared(connection.spark, leaves, frame, schema)

    def rows(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The rows of the frame over tables; by one thread at a time."""
        for name, (leaf, schema) in self.relations.items():
            leaf._table = tables[name].cast(schema)  # noqa: SLF001 - see above
        table, _ = self.frame._to_table()  # noqa: SLF001 - ``toArrow`` asks for the columns again
        return table.cast(self.schema)
