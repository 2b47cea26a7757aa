"""``apply``: the result of a function of the user as columns of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import digest, marked
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph import steps
from floodmark.spec.keyed.applied import Applied, signature_of
from floodmark.spec.rows.checks import new_columns, one_of
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import Stream

_ARGUMENT = "_argument_"
"""Begins the names of columns that hold arguments."""


def applied(
    stream: Stream[Any],
    function: Callable[..., Any],
    arguments: Sequence[str],
    names: Sequence[str],
    on_error: steps.OnError,
    *,
    outer: bool,
) -> steps.Step:
    """As ``Stream.apply``."""
    where, schema = stream.at_step("apply"), stream.schema
    one_of(steps.OnError, on_error, "on_error", where)
    signature = signature_of(function)
    if signature is None:
        fix = "Write @fm.function over its def, which says what it returns."
        raise DefinitionError(where, "a function that is marked", repr(function), fix, code="DEFINITION-051")
    made = [column.name for column in signature.columns]
    names = tuple(names) or tuple(made)
    if len(names) != max(len(made), 1):
        fix = f"Name each of them: {', '.join(made) or 'one name'}."
        raise DefinitionError(where, f"{max(len(made), 1)} names", f"{len(names)}", fix, code="DEFINITION-050")
    taken = [name for name in names if name in schema or name.startswith("_") or names.count(name) > 1]
    new_columns(dict.fromkeys(taken), where, "new column names", "Give the result another name.")
    held = {f"{_ARGUMENT}{number}": text for number, text in enumerate(arguments)}
    types = [Column(name=name, type=known_type(text, schema, where)) for name, text in held.items()]
    columns = (*((name, itself(name)) for name in schema.names), *held.items())
    parent = steps.Project(stream.step, columns, Schema((*schema.columns, *types)), on_error)
    call = Applied(function, tuple(held), names, tuple(made), outer=outer)
    kinds = [column.type for column in signature.columns] or [signature.returns]
    added = [Column(name=name, type=kind) for name, kind in zip(names, kinds, strict=True)]
    form = {"apply": str(Code.of(function)), "names": list(names), "rows": made, "outer": outer, "arguments": len(held)}
    return steps.FlatMap(parent, call, Schema((*schema.columns, *added)), Code(text=marked(digest(form))), on_error)
