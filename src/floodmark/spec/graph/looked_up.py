"""``lookup``: each row with the current rows of a table outside of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import digest, marked
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.expressions.widening import common
from floodmark.spec.graph import steps
from floodmark.spec.rows.checks import new_columns, unfit_setting
from floodmark.spec.rows.lookup import VERSION, Lookup, LookupTable
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import Stream

_KEY = "_key_"
"""Begins the names of columns that hold what is compared."""


def looked_up(
    stream: Stream[Any],
    table: object,
    on: Mapping[str, str] | str,
    kind: Literal["inner", "left"],
    columns: Iterable[str] | None,
    prefix: str,
) -> steps.Step:
    """As ``Stream.lookup``."""
    where, schema = stream.at_step("lookup"), stream.schema
    if not isinstance(table, LookupTable) or kind not in {"inner", "left"}:
        fix = (
            'Write lookup(LookupTable("rates", contract=Rate, path=...), on="currency"), with kind="left" for all rows.'
        )
        raise unfit_setting(where, f"{table!r}, kind={kind!r}", fix)
    compared = {on: itself(on)} if isinstance(on, str) else dict(on)
    wanted = list(table.schema.names if columns is None else columns)
    unknown = next((name for name in [*compared, *wanted] if name not in {*table.schema.names, VERSION}), None)
    if unknown is not None or not compared:
        got = "no column that is compared" if unknown is None else repr(unknown)
        fix = table.schema.nearest(unknown or "")
        raise DefinitionError(where, f"columns of {table.name}", got, fix, code="DEFINITION-022")
    held = {
        f"{_KEY}{number}": _compared(text, table, name, stream) for number, (name, text) in enumerate(compared.items())
    }
    types = [Column(name=name, type=known_type(text, schema, where)) for name, text in held.items()]
    pairs = [(name, f"{prefix}{name}") for name in dict.fromkeys([*wanted, VERSION])]
    new_columns(
        [new for _, new in pairs if new in schema or new.startswith("_")],
        where,
        "new columns",
        'Say prefix="rate_", or columns=[...].',
    )
    head = (*((name, itself(name)) for name in schema.names), *held.items())
    parent = steps.Project(stream.step, head, Schema((*schema.columns, *types)), "stop")
    answered = [_answered(table, name, new, kind) for name, new in pairs]
    function = Lookup(table, tuple(compared), tuple(pairs), kind)
    form = {"lookup": table.name, "on": list(compared), "columns": [list(pair) for pair in pairs], "kind": kind}
    call = steps.Call(
        parent=parent,
        function=function,
        schema=Schema((*parent.schema.columns, *answered)),
        code=Code(text=marked(digest(form))),
        uid=f"lookup_{table.name}",
        cache=tuple(held),
        cache_for=table.holds,
    )
    names = [*schema.names, *(new for name, new in pairs if name in wanted or columns is None)]
    shown = tuple((name, itself(name)) for name in names)
    by_name = {column.name: column for column in call.schema.columns}
    return steps.Project(call, shown, Schema(tuple(by_name[name] for name in names)), "stop")


def _answered(table: LookupTable, name: str, new: str, kind: str) -> Column:
    if name == VERSION:
        return Column(name=new, type="string", description=f"version of {table.name}")
    column = table.schema[name]
    return replace(column, name=new, nullable=column.nullable or kind == "left")


def _compared(text: str, table: LookupTable, name: str, stream: Stream[Any]) -> str:
    """What is compared with a column of the table, of its type where that holds all values."""
    where = stream.at_step("lookup")
    own, other = table.schema[name].type, known_type(text, stream.schema, where)
    if own == other:
        return text
    both = common(own, other)
    if both is None or ("string" in {own, other}):
        fix = f"Convert it: CAST({text} AS {own})."
        raise DefinitionError(
            where, f"{name} {own} of {table.name}", f"'{text}' of type {other}", fix, code="DEFINITION-471"
        )
    return f"CAST({text} AS {own})" if both == own else text
