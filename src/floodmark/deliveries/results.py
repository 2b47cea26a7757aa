"""Results of an output as changes: the last value of each key among some rows, or each row where results are final. DuckDB spills what memory does not hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.core.errors import ConnectorError, shown
from floodmark.core.sql import literal, quoted
from floodmark.deliveries.by_columns import identities_of, objects_of, of_key, texts_of
from floodmark.deliveries.sink import Change, Documents
from floodmark.semantics.encoding.dates import first_beyond, row_of
from floodmark.spec.assets.delivery import Route
from floodmark.spec.values.schema import BOUNDED, MARKER, ROW

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyarrow import dataset

_ROWS = 2_000
"""Changes of a batch."""
_KEY_BYTES = 16
"""Of the lasting name of a result, a digest."""
_THREADS = 2
"""Of a delivery, as many of them share a host."""
_KEY = ("_sequence", "_event_time")
"""What names a row of final results, with its number among equals: numbers of bounded runs are unique within their interval."""
_STAYING = f"s._kind = {ROW} AND s._sequence >= {BOUNDED}"
"""Condition of last values by bounded runs, which stay until the stream has reached them; others may be ahead of the version that is delivered."""
_NUMBER = "_floodmark_number"
_REMOVED = ("No such file", "not found", "does not exist", "NO_SUCH_KEY")
"""What Arrow says of a file that was removed, on a disk or in a bucket."""
HAS = "_floodmark_has"
"""Column that is false for a result that is taken back."""


@dataclass(slots=True)
class Database:
    """DuckDB of a delivery, in memory. It begins with the first query and stays, as to begin takes longer than to select the changes of a commit.

    Args:
        scratch: folder for what memory does not hold.
    """

    scratch: Path
    _database: duckdb.DuckDBPyConnection | None = field(default=None, init=False)

    @contextmanager
    def connected(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of one query's own. After an error the database begins anew: some errors leave one that answers no more."""
        import duckdb  # noqa: PLC0415 - declarations load without it

        if self._database is None:
            self._database = duckdb.connect()
            self._database.execute(f"SET threads = {_THREADS}")
            self._database.execute(f"SET temp_directory = {literal(str(self.scratch))}")
        try:
            with self._database.cursor() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                yield connection
        except duckdb.Error:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        if self._database is not None:
            self._database.close()
        self._database = None


@dataclass(frozen=True, slots=True)
class Results:
    """Makes changes of rows.

    Args:
        route: the delivery.
        database: selects them.
    """

    route: Route
    database: Database

    def appended(self, rows: dataset.Dataset, at: int) -> Selection:
        """The changes by rows that were appended."""
        columns, final = self._columns(), not self.route.keys
        query = f"SELECT {columns}, _kind = {ROW} AS {HAS} FROM ({self._last('rows')})"
        if final:
            query = f"SELECT {columns}, true AS {HAS} FROM ({self._numbered('rows')})"
        return self._changes(query, {"rows": rows}, at)

    def whole(self, rows: dataset.Dataset, at: int, current: dataset.Dataset | None = None) -> Selection:
        """All results.

        Args:
            rows: of the output's table.
            at: its version.
            current: the table of last values, whose values stay for keys that the output has no row of; None for none.
        """
        tables, columns = {"rows": rows}, self._columns()
        if not self.route.keys:
            return self._changes(f"SELECT {columns}, true AS {HAS} FROM ({self._numbered('rows')})", tables, at)
        query = f"SELECT {columns}, true AS {HAS} FROM ({self._last('rows')}) WHERE _kind = {ROW}"
        if current is not None:
            tables["staying"] = current
            query += (
                f" UNION ALL SELECT {columns}, true AS {HAS} FROM staying AS s WHERE {_STAYING} AND NOT EXISTS "
                f"(SELECT 1 FROM rows AS r WHERE _kind <> {MARKER} AND {self._same('r', 's')})"
            )
        return self._changes(query, tables, at)

    def difference(
        self,
        touched: Mapping[str, dataset.Dataset],
        before: dataset.Dataset,
        after: dataset.Dataset,
        at: int,
        current: dataset.Dataset | None = None,
    ) -> Selection:
        """The changes by a commit that has replaced rows.

        Args:
            touched: name -> rows that were removed or added.
            before: rows of the table before the commit.
            after: rows of the table after the commit.
            at: version of the commit.
            current: the table of last values, whose values stay for keys that the output has no row of any more; None for none.
        """
        named = ", ".join(map(quoted, self.route.keys or _KEY))
        union = " UNION ALL ".join(f"SELECT {named} FROM {name} WHERE _kind <> {MARKER}" for name in touched)
        tables = {**touched, "now_rows": after}
        near = f"(SELECT n.* FROM now_rows AS n JOIN keys AS k ON {self._same('n', 'k')} WHERE n._kind <> {MARKER})"
        begin = f"WITH keys AS (SELECT DISTINCT {named} FROM ({union}))"
        if not self.route.keys:
            return self._rows_replaced(begin, near, {**tables, "old_rows": before}, at)
        columns = ", ".join(
            f"k.{quoted(name)}" if name in self.route.keys else f"v.{quoted(name)}"
            for name in self.route.output.schema.names
        )
        query = (
            f"{begin}, value AS ({self._last(near)}) SELECT {columns}, coalesce(v._kind = {ROW}, false) AS {HAS} "
            f"FROM keys AS k LEFT JOIN value AS v ON {self._same('v', 'k')}"
        )
        if current is not None:
            tables["staying"] = current
            query += (
                f" WHERE v._kind IS NOT NULL OR NOT EXISTS "
                f"(SELECT 1 FROM staying AS s WHERE {_STAYING} AND {self._same('s', 'k')})"
            )
        return self._changes(query, tables, at)

    def _rows_replaced(self, begin: str, near: str, tables: Mapping[str, dataset.Dataset], at: int) -> Selection:
        """``difference`` of final results, each row of which is one."""
        was = near.replace("now_rows", "old_rows")
        names = ", ".join((*_KEY, _NUMBER))
        query = (
            f"{begin}, after AS ({self._numbered(near)}), before AS ({self._numbered(was)}) "
            f"SELECT {self._columns()}, true AS {HAS} FROM after UNION ALL BY NAME "
            f"SELECT *, false AS {HAS} FROM (SELECT {names} FROM before EXCEPT SELECT {names} FROM after)"
        )
        return self._changes(query, tables, at)

    # ---- SQL

    def _columns(self) -> str:
        names = ", ".join(map(quoted, self.route.output.schema.names))
        return names if self.route.keys else f"{names}, {', '.join((*_KEY, _NUMBER))}"

    def _last(self, rows: str) -> str:
        """SQL for the last row of each key."""
        keys = ", ".join(map(quoted, self.route.keys))
        order = "ORDER BY _sequence DESC NULLS LAST, _kind DESC"
        return (
            f"SELECT * FROM {rows} WHERE _kind <> {MARKER} QUALIFY row_number() OVER (PARTITION BY {keys} {order}) = 1"
        )

    def _numbered(self, rows: str) -> str:
        """SQL for the rows, each with its number among those of equal names."""
        order = ", ".join(map(quoted, self.route.output.schema.names))
        number = f"row_number() OVER (PARTITION BY {', '.join(_KEY)} ORDER BY {order}) AS {_NUMBER}"
        return f"SELECT *, {number} FROM {rows} WHERE _kind = {ROW}"

    def _same(self, left: str, right: str) -> str:
        return " AND ".join(
            f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in self.route.keys or _KEY
        )

    def _changes(self, query: str, tables: Mapping[str, dataset.Dataset], at: int) -> Selection:
        return Selection(self.route, self.database, query, tables, at)


@dataclass(frozen=True, slots=True)
class Selection:
    """Changes that a query selects, to be read one way or the other.

    Args:
        route: the delivery.
        database: selects them.
        query: DuckDB's SQL, with the columns of results, and ``HAS``.
        tables: name in the query -> rows.
        at: version of the output.
    """

    route: Route
    database: Database
    query: str
    tables: Mapping[str, dataset.Dataset]
    at: int

    def changes(self) -> Iterator[list[Change]]:
        """The changes one by one, some thousand at a time."""
        names = self.route.output.schema.names
        keys = self.route.keys
        with self._selected(self.query) as selected:
            for batch in selected.to_arrow_reader(_ROWS):
                with self._with_dates(batch):
                    rows = zip(self._lasting(batch), batch.to_pylist(maps_as_pydicts="strict"), strict=True)
                    changes = [
                        Change(
                            key,
                            {name: row[name] for name in names} if row[HAS] else None,
                            {name: row[name] for name in keys},
                            self.at,
                        )
                        for key, row in rows
                    ]
                yield changes

    def documents(self) -> Iterator[Documents]:
        """The changes as JSON documents, some thousand at a time."""
        names, keys = self.route.output.schema.names, self.route.keys
        with self._selected(self.query) as selected:
            for batch in selected.to_arrow_reader(_ROWS):
                with self._with_dates(batch):
                    texts = {name: texts_of(batch[name]) for name in names}
                    if keys:
                        named = objects_of(keys, [texts_of(of_key(batch[name])) for name in keys])
                    else:
                        named = [*map(str.encode, self._lasting(batch))]
                rows = zip(objects_of(names, [*texts.values()]), batch[HAS].to_pylist(), strict=True)
                yield Documents(named, [row if is_there else None for row, is_there in rows])

    def columns(self, names: Sequence[str], order: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The changes as Arrow columns.

        Args:
            names: columns to select.
            order: columns to sort by; nulls come first, NaN last.
            rows: most rows of a batch.
        """
        by = ", ".join(f"{quoted(name)} NULLS FIRST" for name in order)
        query = f"SELECT {', '.join(map(quoted, names))} FROM ({self.query}) ORDER BY {by}"
        with self._selected(query) as selected:
            yield from selected.to_arrow_reader(rows)

    def _lasting(self, batch: pa.RecordBatch) -> list[str]:
        """The lasting names of results."""
        named = identities_of(batch[name] for name in self.route.keys or (*_KEY, _NUMBER))
        return [hashlib.blake2b(key, digest_size=_KEY_BYTES).hexdigest() for key in named]

    @contextmanager
    def _with_dates(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Values in Arrow become those of Python.

        Raises:
            ConnectorError: DELIVERY-028, a time that Python has no date for.
        """
        try:
            yield
        except OverflowError as error:
            beyond = first_beyond(batch)
            if beyond is None:
                raise
            row, column, text = beyond
            where = f"delivery '{self.route.name}', column {column}"
            whole = {name: value for name, value in row_of(batch, row).items() if name != HAS}
            fix = (
                "The results stay in the lake. Filter such results out in the operator, or bound the time there: "
                f"least({column}, timestamp'9999-12-31'); then floodmark restart {self.route.name}. The row: {shown(json.dumps(whole, default=str))}."
            )
            expected = "a time between the years 1 and 9999, as other programs have them"
            raise ConnectorError(where, expected, text, fix, code="DELIVERY-028") from error

    @contextmanager
    def _selected(self, query: str) -> Iterator[duckdb.DuckDBPyRelation]:
        import duckdb  # noqa: PLC0415 - as above

        try:
            with self.database.connected() as connection:
                for name, rows in self.tables.items():
                    connection.register(name, rows)
                yield connection.sql(query)
        except duckdb.Error as error:
            is_of_file = isinstance(error, duckdb.IOException | duckdb.InvalidInputException)
            if is_of_file and any(words in str(error) for words in _REMOVED):  # DuckDB has errors of its own
                raise FileNotFoundError(str(error)) from error
            raise
