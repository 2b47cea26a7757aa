"""A side of a comparison: one table at one version, with the columns that decide which rows count and which rows are paired."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from floodmark.core.errors import CapabilityError, ExecutionError, LifecycleError, closest
from floodmark.core.sql import literal, quoted
from floodmark.core.time import END, NEVER
from floodmark.core.types import Type, array, parse
from floodmark.lake.folder.paths import is_local
from floodmark.lake.stream import last_values
from floodmark.lake.table import history
from floodmark.lake.table.files import rows_of
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import MARKER, PARTITION, RETRACTION, ROW, STAMPS

_BOUNDS = ("window_start", "window_end")
_TIME = "_event_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison, with its open table.

    Args:
        name: name for people: ``hourly@12``.
        table: the table at its version.
        types: column -> type, without stamps.
        stamped: whether floodmark wrote the table: rows may be retractions and markers.
        keys: columns that identify a result, if results of the table are revised; else empty.
        grain: columns by which rows of two sides are paired; empty if unknown.
        reached: progress of the table, ms; None if unknown, or if the table is complete.
    """

    name: str
    table: DeltaTable
    types: Mapping[str, Type]
    stamped: bool
    keys: tuple[str, ...]
    grain: tuple[str, ...]
    reached: int | None

    @staticmethod
    def of(path: str, output: Output | None, operator: Operator | None, version: int | None = None) -> Side:
        """Open a table as a side.

        Args:
            path: path of a Delta table.
            output: the output in the code that writes the table; None if no operator is known to write the table.
            operator: the operator that writes the table; None if unknown.
            version: version of the table; by default the newest.

        Raises:
            ExecutionError: EXECUTION-002, no such table.
            LifecycleError: LIFECYCLE-080, no such version.
            CapabilityError: CAPABILITY-040, a feature of Delta that only Spark reads.
        """
        name = path.rstrip("/").rsplit("/", 1)[-1]
        table = _opened(path, name, version)
        _check_features(table, name)
        types = {field["name"]: _type(field["type"]) for field in json.loads(table.schema().to_json())["fields"]}
        stamped = set(STAMPS) <= types.keys()
        own = {n: kind for n, kind in types.items() if not (stamped and n in {*STAMPS, PARTITION})}
        reached = history.progress(path, table.version()) if stamped else None
        keys = output.keys if output is not None and output.revisable else ()
        return Side(
            name=f"{name}@{table.version()}",
            table=table,
            types=own,
            stamped=stamped,
            keys=keys if set(keys) <= own.keys() else (),
            grain=_grain(output, operator, own, stamped=stamped),
            reached=None if reached is None or reached >= END else reached,
        )

    def check_columns(self, names: Iterable[str], what: str) -> None:
        """Refuse columns that the side does not have.

        Args:
            names: the columns.
            what: use of the columns, for the error: ``as a key``.

        Raises:
            LifecycleError: LIFECYCLE-081, a column does not exist.
        """
        known = (*self.types, *((_TIME,) if self.stamped else ()))
        for name in names:
            if name not in known:
                fix = closest(name, known) + f"Columns: {', '.join(known)}."
                where, got = f"table '{self.name}'", f"'{name}'"
                raise LifecycleError(where, f"columns of it {what}", got, fix, code="LIFECYCLE-081")

    @property
    def path(self) -> str:
        """The plain path of a table on a local disk; the URI of any other table."""
        root = self.table.table_uri
        return unquote(root.removeprefix("file://")) if root.startswith("file://") else root

    def live(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Sequence[str],
        upto: int | None,
        *,
        within: str = "true",
        files: Sequence[str] | None = None,
    ) -> tuple[str, bool]:
        """(query for the rows that count, True if the query costs more than a pass over the files). Retracted rows do not count.

        Args:
            connection: the DuckDB that will run the query.
            columns: columns to select; may include ``_event_time``.
            upto: only rows before this event time, ms; None for all rows.
            within: SQL condition over the table's columns. It must hold for all rows of a key and their retractions, or for none.
            files: files that hold these rows, as paths relative to the table's; by default all.
        """
        source = self.source(connection, files)
        selected = ", ".join(self._column(name) for name in columns)
        if not self.stamped:
            return f"SELECT {selected} FROM {source}", False
        before = (
            within if upto is None else f"{within} AND {_TIME}::TIMESTAMPTZ < epoch_ms({max(upto, NEVER)})::TIMESTAMPTZ"
        )
        taken_back = connection.sql(f"SELECT 1 FROM {source} WHERE _kind = {RETRACTION} AND {before} LIMIT 1")
        if not taken_back.fetchall():
            return f"SELECT {selected} FROM {source} WHERE _kind = {ROW} AND {before}", False
        if self.keys:
            return last_values.query(selected, source, self.keys, before), True
        names = ", ".join(map(quoted, columns))
        left = (
            f"SELECT {names} FROM (SELECT {names}, unnest(range(rows)) FROM (SELECT {selected}, "
            f"sum(CASE _kind WHEN {ROW} THEN 1 ELSE -1 END)::BIGINT AS rows FROM {source} WHERE _kind <> {MARKER} AND {before} GROUP BY ALL))"
        )
        return left, True

    def source(self, connection: duckdb.DuckDBPyConnection, some: Sequence[str] | None = None) -> str:
        """SQL after FROM that reads the table: its files if on a local disk, otherwise a registered Arrow dataset.

        Args:
            connection: DuckDB.
            some: files to read, as paths relative to the table's; by default all.
        """
        root = self.table.table_uri
        if not is_local(root) and not root.startswith("file://"):
            view = f"table_{uuid.uuid4().hex}"  # another one for other files, also in one statement
            wanted = None if some is None else frozenset(some)
            connection.register(view, rows_of(self.table, lambda path: wanted is None or path in wanted))
            return view
        if some is None:
            files = [literal(unquote(uri.removeprefix("file://"))) for uri in self.table.file_uris()]
        else:
            files = [literal(f"{self.path.rstrip('/')}/{name}") for name in some]
        if not files:
            types = {**self.types, **(dict.fromkeys(STAMPS, None) if self.stamped else {})}
            empty = ", ".join(
                f"NULL::{kind.duckdb if kind else _STAMPS.get(name, 'BIGINT')} AS {quoted(name)}"
                for name, kind in types.items()
            )
            return f"(SELECT {empty} WHERE false)"
        return f"read_parquet([{', '.join(files)}], hive_partitioning = false, union_by_name = true)"

    def _column(self, name: str) -> str:
        kind = "TIMESTAMPTZ" if name == _TIME and self.stamped else self.types[name].duckdb
        return f"CAST({quoted(name)} AS {kind}) AS {quoted(name)}"


_STAMPS = {_TIME: "TIMESTAMPTZ", "_ingest_time": "TIMESTAMPTZ", "_kind": "INTEGER"}


def _opened(path: str, name: str, version: int | None) -> DeltaTable:
    try:
        newest = DeltaTable(path)
    except TableNotFoundError as error:
        fix = "Name an output of an operator (floodmark status), or the path of a Delta table."
        raise ExecutionError(
            f"table '{name}'", "a Delta table", f"none at {path}", fix, code="EXECUTION-002"
        ) from error
    if version is None:
        return newest
    try:
        return DeltaTable(path, version=version)
    except DeltaError as error:
        fix = f"Take one that is kept, of 0 to {newest.version()}, or a savepoint, which keeps its own: floodmark savepoint list"
        got = (
            f"a table whose newest is {newest.version()}"
            if version > newest.version()
            else f"one whose log is gone: {str(error).splitlines()[0]}"
        )
        raise LifecycleError(f"table '{name}'", f"version {version}", got, fix, code="LIFECYCLE-080") from error


def _check_features(table: DeltaTable, name: str) -> None:
    unknown = set(table.protocol().reader_features or ()) - {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
    if unknown:
        fix = "Write what is to be compared into a table without them, with Spark."
        got = ", ".join(sorted(unknown))
        raise CapabilityError(f"table '{name}'", "plain files of a Delta table", got, fix, code="CAPABILITY-040")


def _type(kind: Any) -> Type:
    """(type in the JSON of a Delta schema) -> the ``Type``."""
    match kind:
        case {"type": "array", "elementType": element}:
            return array(_type(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return Type("map", inner=(_type(key), _type(value)))
        case {"type": "struct", "fields": fields}:
            names = tuple(field["name"] for field in fields)
            return Type("struct", inner=tuple(_type(field["type"]) for field in fields), names=names)
        case _:
            return parse(str(kind))


def _grain(
    output: Output | None, operator: Operator | None, types: Mapping[str, Type], *, stamped: bool
) -> tuple[str, ...]:
    """The columns that identify a row: the output's keys, else the step's keys with the window or the event time; empty if unknown."""
    if output is None or operator is None:
        return ()
    if output.keys and set(output.keys) <= types.keys():
        return output.keys
    step = operator.stateful
    named = (*(step.keys if step is not None else ()), *_BOUNDS)
    key_columns = tuple(name for name in named if name in types and types[name].is_groupable)
    return key_columns if set(_BOUNDS) <= set(key_columns) else (*key_columns, *((_TIME,) if stamped else ()))
