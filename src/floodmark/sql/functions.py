"""Functions of the user in a statement: their calls become columns before the expressions that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.keyed.applied import signature_of
from floodmark.spec.windowing.aggregates import Aggregate
from floodmark.sql.dialect import SPAN
from floodmark.sql.options import Options
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import BOUNDS, Name, Relation
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import function_name


def named_functions(functions: Sequence[Any], where: str) -> Mapping[str, Any]:
    """The functions and aggregates of the user by their names.

    Raises:
        DefinitionError: DEFINITION-051, one that is neither marked nor an aggregate.
    """
    known: dict[str, Any] = {}
    for value in functions:
        own = isinstance(value, type) and issubclass(value, Aggregate)
        if signature_of(value) is None and not own:
            fix = "Write @fm.function over its def; an aggregate is a class of Aggregate."
            raise DefinitionError(
                f"{where}, functions", "functions that are marked", repr(value), fix, code="DEFINITION-051"
            )
        known[value.__name__.lower()] = value
    return known


def with_results(
    text: Text, select: exp.Select, relation: Relation, conditions: list[exp.Expr], options: Options
) -> tuple[Relation, list[exp.Expr]]:
    """The rows of a SELECT with a column for each call of a function of the user, in place of which its expressions read that column.

    Args:
        text: of the statement.
        select: a copy of the SELECT, which is changed.
        relation: its rows.
        conditions: of its WHERE, parts of the SELECT.
        options: with the functions.
    """
    scalars = {name: call for name, call in options.functions.items() if getattr(signature_of(call), "returns", "")}
    parts = [*select.expressions, *conditions]
    parts += [part for name in ("group", "having", "qualify") if (part := select.args.get(name)) is not None]
    replaced: dict[int, exp.Expr] = {}
    columns: dict[tuple[str, ...], str] = {}
    for call in [call for part in parts for call in _calls(part, scalars)]:
        if relation.windowed is not None and any(column.name.lower() in BOUNDS for column in call.find_all(exp.Column)):
            raise unsayable(text, call, "a function of a window's bounds", "Call it in a SELECT around the aggregate.")
        name = function_name(call).lower()
        arguments = [argument_of(text, argument, relation) for argument in call.expressions]
        column = columns.get((name, *arguments), "")
        label = f"{column}()"
        if not column:
            column = new_name(derived_name(text.of(call)), [*relation.stream.schema.names, *BOUNDS])
            columns[name, *arguments], label = column, f"{column}()"
            stream = relation.stream.apply(scalars[name], *arguments, names=column, on_error=options.on_error)
            relation = replace(
                relation,
                stream=stream,
                names=(*relation.names, Name(table="", name=label, text=itself(column), column=column)),
            )
        node: exp.Expr = exp.column(label, quoted=True)
        node.meta[SPAN] = call.meta[SPAN]
        if call.parent is select and call in select.expressions:
            node = exp.Alias(this=node, alias=exp.to_identifier(column))
        replaced[id(call)] = node
        call.replace(node)
    return relation, [replaced.get(id(condition), condition) for condition in conditions]


def _calls(node: exp.Expr, functions: Mapping[str, Any]) -> Iterable[exp.Expr]:
    """The calls of functions in an expression, inner ones first."""
    for part in node.iter_expressions():
        yield from _calls(part, functions)
    if function_name(node).lower() in functions:
        yield node


def argument_of(text: Text, node: exp.Expr, relation: Relation) -> str:
    """The text of an argument over the columns of the stream; sqlglot writes no place down for a literal alone."""
    return relation.scalar(text, node) if SPAN in node.meta else node.sql("spark")
