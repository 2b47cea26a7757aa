"""Operators that are written as a statement of SQL."""

# ruff: noqa: PLC0415 - sqlglot is imported when the first statement is read

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.core.errors import CapabilityError, DefinitionError, closest
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.graph.operator import Binding, Operator, bound_input, built
from floodmark.spec.graph.steps import Late, OnError
from floodmark.spec.graph.stream import Stream
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.lookup import LookupTable
from floodmark.spec.rows.source import check_name
from floodmark.sql.options import Options

Readable = Binding | type[Contract] | SourceAsset | OperatorAsset | LookupTable


def sql_operator(  # noqa: PLR0913 - settings by name
    name: str,
    sql: str,
    *,
    inputs: Mapping[str, Readable] | None = None,
    lateness: str = "0 s",
    late: Late = "drop",
    on_error: OnError = "stop",
    within: str = "",
    ttl: str = "",
    functions: Sequence[Any] = (),
    description: str = "",
    revision: int = 0,
    key_groups: int | None = None,
    location: str = "",
) -> Operator:
    """An operator whose steps are those of a SELECT. A statement and the fluent form of the same steps are one version.

    Args:
        name: of the operator, and of the table of its result.
        sql: one SELECT, in Spark's SQL with windows as table functions; ``INSERT INTO name SELECT ...`` is the same with the operator's name.
        inputs: table of the statement -> a source, the contract of the source of that name, an operator, one of its outputs, or a lookup table.
        lateness: rows at most this late still revise the result of a window, as ``allowed_lateness``.
        late: what happens to later rows: ``"drop"`` or ``"side_output"``.
        on_error: as of ``Stream.filter``, for all expressions of the statement.
        within: event time between a row and its repetition, at most, for ``ROW_NUMBER() ... = 1`` and SELECT DISTINCT without a window; between the
            rows of a pair, for a join of rows of any time.
        ttl: event time without a row of a key after which its aggregate without a window, or its first rows, end as they are and begin anew.
        functions: that the statement calls by their names: those that ``function`` has marked, and classes of ``Aggregate``.
        description: for people.
        revision: as of ``operator``.
        key_groups: as of ``operator``.
        location: where the statement stands, for messages; by default the line that calls this function.

    Raises:
        DefinitionError: DEFINITION-380 to 399, and those of the steps.
        CapabilityError: those of the steps.

    Example:
        >>> hourly = sql_operator(
        ...     "hourly_departures",
        ...     "SELECT origin, window_start, window_end, COUNT(*) AS departures "
        ...     "FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR)) "
        ...     "GROUP BY origin, window_start, window_end",
        ...     inputs={"flights": Flight},
        ... )
    """
    from floodmark.sql.functions import named_functions
    from floodmark.sql.insertion import inserted, named
    from floodmark.sql.joining.lookups import relation_of_lookup
    from floodmark.sql.measures import own_aggregates
    from floodmark.sql.refusals import check_quotes, check_statement
    from floodmark.sql.rows.inputs import relation_of
    from floodmark.sql.statement import Statement, tables_of
    from floodmark.sql.text import parsed

    where = f"operator '{name}'"
    check_name(name, where)
    if location.endswith(".sql"):
        where = location
    elif not location:
        frame = sys._getframe(1)  # noqa: SLF001 - the caller's line
        location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    text, tree = parsed(sql, where)
    tree, renamed = inserted(text, tree, name)
    check_statement(text, tree)
    known = {table: _definition(bound) for table, bound in (inputs or {}).items()}
    bindings: dict[str, Any] = {}
    for table in tables_of(tree):
        match = next((key for key in known if key.lower() == table.name.lower()), None)
        if match is None or table.args.get("db") is not None:
            full = ".".join(part.name for part in table.parts)
            fix = f"{closest(table.name, known)}Tables: {', '.join(known) or 'none'}; add others by inputs={{...}}."
            raise DefinitionError(
                text.at(table), "a source or an operator's output", f"'{full}'", fix, code="DEFINITION-394"
            )
        bindings[match] = known[match]
    lookups = {table: bound for table, bound in bindings.items() if isinstance(bound, LookupTable)}
    read = tuple(_input(table, bound, where) for table, bound in bindings.items() if table not in lookups)
    options = Options(
        lateness=lateness,
        late=late,
        on_error=on_error,
        within=within,
        ttl=ttl,
        functions=named_functions(functions, where),
        changing=frozenset(i.name for i in read if i.revisable),
    )
    statement = Statement(text, tree, options)

    def body(*streams: Stream) -> Stream:
        tables = {i.name: relation_of(i, bindings[i.name], stream) for i, stream in zip(read, streams, strict=True)}
        tables |= {table: relation_of_lookup(table, lookup, name) for table, lookup in lookups.items()}
        check_quotes(text, [column.name for relation in tables.values() for column in relation.names])
        with own_aggregates(options.functions):
            try:
                stream = statement.stream(tables)
            except (DefinitionError, CapabilityError) as error:
                raise text.placed(error, tree) from None
        return named(text, tree, stream, renamed) if renamed else stream

    settings: dict[str, Any] = {"description": description, "location": location, "revision": revision}
    try:
        return built(body, name, read, key_groups=key_groups, **settings)
    except CapabilityError as error:
        raise text.placed(error, tree) from None


def _definition(bound: Any) -> Any:
    """A source or operator without the settings of its asset."""
    if isinstance(bound, SourceAsset):
        return bound.source
    return bound.operator if isinstance(bound, OperatorAsset) else bound


def _input(table: str, bound: Any, where: str) -> Any:
    contract = bound if isinstance(bound, type) and issubclass(bound, Contract) else None
    return bound_input(table, contract, None if contract else bound, where)
