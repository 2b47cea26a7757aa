"""``unnest``: a row for each element of an array, or each entry of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.types import parse
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph import steps
from floodmark.spec.keyed.unnest import Repeat, Unnest
from floodmark.spec.rows.checks import new_columns, one_of
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import Stream

_HELD = "_unnested"
"""The column of the elements."""


def unnested(
    stream: Stream[Any], expression: str, names: Sequence[str], position: str, on_error: steps.OnError, *, outer: bool
) -> steps.Step:
    """As ``Stream.unnest``."""
    where, schema = stream.at_step("unnest"), stream.schema
    one_of(steps.OnError, on_error, "on_error", where)
    kind = known_type(expression, schema, where)
    held = parse(kind, where)
    if held.name not in {"array", "map"}:
        fix = "Give it an array or a map: split(words, ' ')."
        raise DefinitionError(where, "an array or a map", f"'{expression}' of type {kind}", fix, code="DEFINITION-041")
    element = held.inner[0]
    fields = element.names if held.name == "array" and element.name == "struct" and len(names) != 1 else ()
    types = held.inner if held.name == "map" else element.inner if fields else held.inner[:1]
    if len(names) != len(types):
        fix = f"Name each of them: {', '.join(fields) or ('key, value' if held.name == 'map' else 'value')}."
        got = f"{len(names)} names for {kind}"
        raise DefinitionError(where, f"{len(types)} names", got, fix, code="DEFINITION-050")
    new = [*names, *([position] if position else [])]
    taken = [name for name in new if name in schema or name.startswith("_") or new.count(name) > 1]
    new_columns(dict.fromkeys(taken), where, "new column names", "Give the elements another name.")
    columns = (*((name, itself(name)) for name in schema.names), (_HELD, expression))
    parent = steps.Project(stream.step, columns, Schema((*schema.columns, Column(name=_HELD, type=kind))), on_error)
    function = Unnest(_HELD, tuple(names), fields, held.name == "map", position, outer)
    added = [Column(name=name, type=str(kind)) for name, kind in zip(names, types, strict=True)]
    added += [Column(name=position, type="bigint")] if position else []
    result = Schema((*schema.columns, *added))
    return steps.FlatMap(parent, function, result, Code(text=function.text()), on_error)


def repeated(stream: Stream[Any], name: str, count: int) -> Stream[Any]:
    """Every row ``count`` times, with a column of numbers from 0."""
    function = Repeat(name, count)
    schema = Schema((*stream.schema.columns, Column(name=name, type="bigint", nullable=False)))
    return replace(stream, step=steps.FlatMap(stream.step, function, schema, Code(text=function.text())))
