"""Expressions: Spark SQL text, checked against a schema before anything runs."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.types import known, parse
from floodmark.spec.schema import Schema

_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime, exp.Rand, exp.Uuid)
_CLOCK_NAMES = {
    "now",
    "current_timestamp",
    "current_date",
    "rand",
    "randn",
    "random",
    "uuid",
    "unix_timestamp",
    "shuffle",
}


def check(text: object, schema: Schema, where: str, *, boolean: bool = False) -> str:
    """Check an expression and infer its type.

    Args:
        text: Spark SQL, such as ``"dep_delay >= 60"``.
        schema: the columns it may name.
        where: for the message.
        boolean: refuse anything that is not a condition.

    Returns:
        The Spark SQL type, ``""`` where sqlglot cannot tell.

    Raises:
        DefinitionError: DEFINITION-020 not text, 021 not SQL, 022 unknown column, 023 an aggregate or subquery, 024 no condition.
    """
    tree = _parse(text, where)
    for column in tree.find_all(exp.Column):
        if column.name.lower() not in {name.lower() for name in schema.names}:
            fix = f"{closest(column.name, schema.names)}Columns: {schema.describe()}."
            raise DefinitionError(where, "columns of the stream", f"'{column.name}'", fix, code="DEFINITION-022")
    if tree.find(exp.AggFunc, exp.Query, exp.Window):
        fix = "Aggregates belong into .window(...).aggregate(name=count()); a subquery into an operator of its own."
        raise DefinitionError(where, "an expression over one row", repr(text), fix, code="DEFINITION-023")
    kind = _infer(tree, schema)
    if boolean and kind not in {"boolean", ""}:
        fix = "Write a comparison, such as dep_delay >= 60 or tailnum IS NOT NULL."
        raise DefinitionError(
            where, "a condition (true or false)", f"{text!r} of type {kind}", fix, code="DEFINITION-024"
        )
    return kind


def known_type(text: object, schema: Schema, where: str) -> str:
    """As ``check``, for what must have a type that can be told.

    Raises:
        DefinitionError: as ``check``, and DEFINITION-043, the type is not known.
    """
    kind = check(text, schema, where)
    if not kind or not parse(kind, where).is_column:
        fix = f"Write CAST({text} AS double), or the type you mean."
        raise DefinitionError(where, "an expression of known type", repr(text), fix, code="DEFINITION-043")
    return kind


def itself(name: str) -> str:
    """The expression that is the column of a name, also where SQL would read the name as something else (``desc``, ``current_date``)."""
    try:
        tree = sqlglot.parse_one(name, read="spark")
    except SqlglotError:
        return f"`{name}`"
    return name if isinstance(tree, exp.Column) and tree.name == name else f"`{name}`"


def quoted(text: str) -> str:
    """The expression as Spark reads it, which takes names that are not of ASCII in backticks alone."""
    if text.isascii():
        return text
    for token in reversed(sqlglot.tokenize(text, read="spark")):
        if token.token_type.name == "VAR" and not token.text.isascii():
            text = f"{text[: token.start]}`{token.text}`{text[token.end + 1 :]}"
    return text


def clocks(text: str) -> bool:
    """True when the expression reads the clock or a random number, so that its answer is not a function of the data."""
    tree = sqlglot.parse_one(text, read="spark")
    names = {node.name.lower() for node in tree.find_all(exp.Anonymous)}
    return tree.find(*_CLOCKS) is not None or bool(names & _CLOCK_NAMES)


def _parse(text: object, where: str) -> exp.Expr:
    if not isinstance(text, str):
        got = f"a {type(text).__module__.split('.')[0]} {type(text).__name__}"
        shown = str(text).removeprefix("Column<'").removesuffix("'>") if type(text).__name__ == "Column" else ""
        fix = f'Write it as text: "{shown}".' if shown else 'Write it as text: "dep_delay >= 60".'
        raise DefinitionError(where, "Spark SQL text", got, fix, code="DEFINITION-020")
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        line = str(error).split("\n")[0]
        fix = "Correct the SQL; strings stand in single quotes."
        raise DefinitionError(
            where, "a Spark SQL expression", f"{text!r} ({line})", fix, code="DEFINITION-021"
        ) from None
    if isinstance(tree, (exp.Query, exp.Command, exp.Alias)):
        fix = 'Write one expression over the columns; names come from the keyword: with_columns(total="a + b").'
        raise DefinitionError(where, "a Spark SQL expression", repr(text), fix, code="DEFINITION-021")
    return tree


def _infer(tree: exp.Expr, schema: Schema) -> str:
    tree = tree.copy()
    if isinstance(tree, exp.Column):
        return next(c.type for c in schema.columns if c.name.lower() == tree.name.lower())
    types = {name.lower(): kind for name, kind in schema.types.items()}
    for column in tree.find_all(exp.Column):
        column.set("this", exp.to_identifier(column.name.lower()))
        column.set("table", exp.to_identifier("row"))
    query = exp.select(exp.alias_(tree, "value")).from_(exp.to_table("row"))
    typed = annotate_types(query, schema={"row": types}, dialect="spark").selects[0]
    if typed.type is None or typed.type.this in {exp.DType.UNKNOWN, exp.DType.NULL}:
        return ""
    kind = str(known(typed.type.sql("spark")) or "")
    mixed = any(isinstance(node, exp.Binary) for node in tree.walk()) and not isinstance(tree, exp.Cast)
    return (
        "" if kind.startswith("decimal") and mixed else kind
    )  # Spark widens decimals by rules sqlglot does not follow
