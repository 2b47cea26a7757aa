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
        from pyspark.sql.connect.dataframe import DataFrame as Frame  # noqa: PLC0415 - imports pandas, while a stream starts
        from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - the same
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415 - the same

        structures = {name: from_arrow_schema(table.schema) for name, table in tables.items()}
        schemas = {name: to_arrow_schema(structure, timezone="UTC") for name, structure in structures.items()}
        leaves = {name: LocalRelation(schemas[name].empty_table(), one.json()) for name, one in structures.items()}
        frame: Any = framing({name: Frame(leaf, connection.spark) for name, leaf in leaves.items()})
        schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        return Prepared(connection.spark, {name: (leaves[name], schemas[name]) for name in leaves}, frame, schema)

    def rows(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The rows of the frame over tables; by one thread at a time."""
        for name, (leaf, schema) in self.relations.items():
            leaf._table = tables[name].cast(schema)  # noqa: SLF001 - see above
        table, _ = self.frame._to_table()  # noqa: SLF001 - ``toArrow`` asks for the columns again
        return table.cast(self.schema)
