"""Spark SQL expressions and stateless steps as DuckDB queries over Arrow tables.

A table here has the columns of its step, then ``_event_time`` in ms, ``_watermark``, ``_progress``, ``_sequence`` and ``_kind``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import duckdb
import pyarrow as pa

from floodmark.core.errors import ExecutionError
from floodmark.engines.local.casts import MACROS, sql_type
from floodmark.engines.local.hashes import register
from floodmark.engines.local.translation import duckdb_sql, unlike
from floodmark.semantics.attempts import Attempt, attempts, stage_attempts
from floodmark.semantics.columns import arrow_schema
from floodmark.semantics.failures import Failure, expression_failure, flat_mapped, set_aside
from floodmark.semantics.stage import AnyStage
from floodmark.spec import steps
from floodmark.spec.expressions import expression
from floodmark.spec.schema import ROW, Schema

STAMPS = ("_event_time", "_watermark", "_progress", "_sequence", "_kind")

STAMP_SCHEMA = pa.schema([*((name, pa.int64()) for name in STAMPS[:-1]), ("_kind", pa.int32())])


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One database per process; runs take cursors of it."""
    connection = duckdb.connect(config={"threads": 1}).execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    register(connection)
    return connection


@dataclass(slots=True)
class Queries:
    """Runs steps over tables. One connection, in memory.

    Args:
        connection: of DuckDB; its time zone is UTC.
    """

    connection: duckdb.DuckDBPyConnection = field(default_factory=lambda: _connection().cursor())
    failures: dict[steps.Step, pa.Table] = field(default_factory=dict)
    """What each step has set aside since this was last cleared, as side rows."""
    _tables: int = 0

    def rows(
        self, step: steps.Step, inputs: Mapping[str, pa.Table], known: Mapping[steps.Step, pa.Table] | None = None
    ) -> pa.Table:
        """The rows of a step.

        Args:
            step: stateless from here down to ``known`` and the inputs.
            inputs: input name -> stamped rows.
            known: steps that are tables already: the stateful one.
        """
        if known and step in known:
            found = known[step]
        elif isinstance(step, steps.Read):
            found = inputs[step.input].select([*step.schema.names, *STAMPS])
        else:
            found = self.run(self._sql(step, inputs, known or {}), f"step of {type(step).__name__.lower()}")
        return found.cast(pa.schema([*arrow_schema(step.schema), *STAMP_SCHEMA]))

    def stage_rows(self, stage: AnyStage, rows: pa.Table) -> pa.Table:
        """Rows as the stage's ``pack`` wants them."""
        step = stage.step
        where = f"step '{step.uid}'"
        keys = [_plain(rows, key) for key in step.keys]
        group = f"CAST(hash({', '.join(keys)}) % {step.groups} AS INTEGER)" if keys else "CAST(0 AS INTEGER)"
        if step.broadcast is not None:
            every = f"CAST(range({step.groups}) AS INTEGER[])"
            group = f"unnest(CASE WHEN {steps.TAG} = {step.broadcast} THEN {every} ELSE [{group}] END)"
        columns = [f'{group} AS "group"', *(f"{key} AS k{i}" for i, key in enumerate(keys))]
        columns += ["coalesce(_event_time, 0) AS t", "_watermark AS w", "_sequence AS s", "_kind AS kind"]
        columns += [f"{_value(v.sql, v.type, step.parent.schema, where)} AS v{j}" for j, v in enumerate(stage.values)]
        whole = "{" + ", ".join(f"'{n}': {_quoted(n)}" for n in step.parent.schema.names) + "}"
        columns += [f'{whole} AS "row"'] if stage.whole_rows or step.reduces else []
        columns += [f"{whole} AS side"] if step.late == "side_output" else []
        query = f"SELECT {', '.join(columns)} FROM "
        tried = [attempt for _, attempt in stage_attempts(stage)] if steps.quarantines(step) else []
        if tried:
            return self._attempted(step, rows, lambda source: query + source, tried, step.keys)
        return self.run(query + self._named(rows), where)

    def run(self, sql: str, where: str) -> pa.Table:
        """The result of a query."""
        try:
            found: pa.Table = self.connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            if (refusal := re.search(r"CAPABILITY-030 (.*)", str(error))) is not None:
                raise unlike(where, refusal[1]) from error
            fix = "The local engine computes expressions with DuckDB; run it on Spark if DuckDB lacks the function."
            raise ExecutionError(where, "a result", str(error).split("\n")[0], fix, code="EXECUTION-006") from error
        finally:
            for number in range(self._tables):
                self.connection.unregister(f"_t{number}")
            self._tables = 0
        return found

    def _named(self, table: pa.Table) -> str:
        name = f"_t{self._tables}"
        self._tables += 1
        self.connection.register(name, table)
        return name

    def _sql(self, step: steps.Step, inputs: Mapping[str, pa.Table], known: Mapping[steps.Step, pa.Table]) -> str:
        if step in known:
            return f"SELECT * FROM {self._named(known[step])}"
        stamps = ", ".join(STAMPS)
        match step:
            case steps.Read():
                columns = ", ".join(_quoted(name) for name in step.schema.names)
                return f"SELECT {columns}, {stamps} FROM {self._named(inputs[step.input])}"
            case steps.Filter() | steps.Project():
                tried = attempts(step) if steps.quarantines(step) else ()
                if not tried:
                    return _query(step, f"({self._sql(step.parent, inputs, known)})")
                before = Queries(failures=self.failures).rows(step.parent, inputs, known)
                after = self._attempted(step, before, partial(_query, step), tried)
                return f"SELECT * FROM {self._named(after)}"
            case steps.FlatMap():
                before = Queries(failures=self.failures).rows(step.parent, inputs, known)
                return f"SELECT * FROM {self._named(self._flat_mapped(step, before))}"
            case steps.Union():
                parts = [
                    f"SELECT * REPLACE (_sequence * {len(step.parents)} + {i} AS _sequence) FROM ({self._sql(p, inputs, known)})"
                    for i, p in enumerate(step.parents)
                ]
                return " UNION ALL ".join(parts)
            case _:
                message = "a stateful step is computed by its kernel"
                raise TypeError(message)

    def _attempted(
        self,
        step: steps.Step,
        rows: pa.Table,
        query: Callable[[str], str],
        tried: Sequence[Attempt],
        keys: Sequence[str] = (),
    ) -> pa.Table:
        """What a query makes of rows, one by one where it fails; the rows it fails for are set aside.

        Args:
            step: whose query it is.
            rows: stamped.
            query: from the name of a table to SQL.
            tried: the expressions in it.
            keys: columns of the key, for the quarantine.
        """
        queries = Queries()

        def run(part: pa.Table, sql: Callable[[str], str]) -> pa.Table:
            return queries.run(sql(queries._named(part)), f"step of {type(step).__name__.lower()}")

        found, failed, parts = [run(rows.slice(0, 0), query)], [], [rows]
        while parts:
            part = parts.pop()
            try:
                found.append(run(part, query))
            except ExecutionError as error:
                half = part.num_rows // 2
                if half:
                    parts += [part.slice(half), part.slice(0, half)]
                elif part["_kind"][0].as_py() == ROW:  # what a retraction takes back was set aside, too
                    failed.append((part, self._blamed(part, run, tried) or (tried[0], error.got)))
        self.failures[step] = set_aside([_failure(part, *blamed, keys) for part, blamed in failed])
        return pa.concat_tables(found)

    def _blamed(
        self, row: pa.Table, run: Callable[[pa.Table, Callable[[str], str]], pa.Table], tried: Sequence[Attempt]
    ) -> tuple[Attempt, str] | None:
        """The expression that fails for a row, and its message."""
        for attempt in tried:
            try:
                run(row, lambda source, a=attempt: f"SELECT {_value(a.text, a.type, a.schema, a.step)} FROM {source}")  # type: ignore[misc]
            except ExecutionError as error:
                return attempt, error.got
        return None

    def _flat_mapped(self, step: steps.FlatMap, rows: pa.Table) -> pa.Table:
        mapped = flat_mapped(step, rows.select(list(step.parent.schema.names)), rows["_kind"].to_pylist())
        stamps = rows.select(STAMPS).take(mapped.origin)
        table = mapped.rows
        for name in STAMPS:
            table = table.append_column(name, stamps[name])
        if steps.quarantines(step):
            whose = ("_event_time", "_watermark", "_sequence")
            at = list(zip(*(stamps[name].to_pylist() for name in whose), strict=True))
            self.failures[step] = set_aside([(*at[place], why) for place, why in mapped.failures.items()])
            table = table.filter(
                pa.array([place not in mapped.failures for place in range(table.num_rows)], pa.bool_())
            )
        return table


def empty(schema: Schema) -> pa.Table:
    """No rows of a step."""
    return pa.schema([*arrow_schema(schema), *STAMP_SCHEMA]).empty_table()


def _query(step: steps.Filter | steps.Project, source: str) -> str:
    """What a step makes of a table.

    Args:
        step: that computes.
        source: the table's name, or a query in parentheses.
    """
    schema = step.parent.schema
    if isinstance(step, steps.Filter):
        wanted = duckdb_sql(expression(step.condition, schema, "filter"), "filter")
        return f"SELECT * FROM {source} WHERE CASE WHEN _kind > {ROW} THEN true ELSE ({wanted}) END"
    kinds = step.schema.types
    values = (_value(text, kinds[name], schema, f"column '{name}'") for name, text in step.columns)
    columns = ", ".join(f"{v} AS {_quoted(name)}" for v, name in zip(values, step.schema.names, strict=True))
    return f"SELECT {columns}, {', '.join(STAMPS)} FROM {source}"


def _failure(row: pa.Table, attempt: Attempt, message: str, keys: Sequence[str]) -> tuple[int, int, int, Failure]:
    """One row as ``set_aside`` wants it."""
    values = row.to_pylist()[0]
    given = {name: values[name] for name in attempt.schema.names}
    key = {name: values[name] for name in keys} if keys else None
    why = expression_failure(attempt.step, attempt.explained(message), given, key)
    return values["_event_time"], values["_watermark"], values["_sequence"], why


def _value(text: str, kind: str, schema: Schema, where: str) -> str:
    """An expression of the user's as a value of a type; null for markers and ticks, which have no values of their own."""
    value = duckdb_sql(expression(text, schema, where), where)
    return f"CASE WHEN _kind > {ROW} THEN NULL ELSE CAST(({value}) AS {sql_type(kind)}) END"


def _plain(rows: pa.Table, key: str) -> str:
    """-0.0 and 0.0 are one key."""
    return f"({_quoted(key)} + 0.0)" if pa.types.is_floating(rows.schema.field(key).type) else _quoted(key)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
