"""Expressions of the user: parsed once, checked against a schema before anything runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType

from floodmark.core.errors import DefinitionError, closest, shown
from floodmark.core.types import known
from floodmark.spec.expressions.functions import WHY, classified, names
from floodmark.spec.expressions.inference import UnknownColumn, infer
from floodmark.spec.expressions.operators import parse
from floodmark.spec.expressions.reader import SCALAR_NAMES
from floodmark.spec.expressions.tokens import Unreadable, tokens
from floodmark.spec.expressions.tree import Call, Column, walk
from floodmark.spec.expressions.typed import Mismatch, Typed
from floodmark.spec.values.schema import Schema

_CODES = {"aggregate": "DEFINITION-023"}


@dataclass(frozen=True, slots=True)
class Expression:
    """Spark SQL text, parsed and typed over the columns of a schema.

    Args:
        text: as the user wrote it.
        tree: its nodes with their types.
        columns: the columns it reads, in their order in the schema.
        pure: False if its answer depends on the clock, on chance, on the session or on where a row lies.
    """

    text: str
    tree: Typed
    columns: tuple[str, ...]
    pure: bool

    @property
    def type(self) -> str:
        """Spark SQL type; empty if the type is unknown, or is the type of NULL."""
        return "" if "void" in self.tree.type or self.tree.type == "decimal" else self.tree.type

    @property
    def constant(self) -> bool:
        """True if the expression reads no column."""
        return not self.columns


@dataclass(frozen=True, slots=True)
class _Problem:
    expected: str
    got: str
    fix: str
    code: str


def expression(text: object, schema: Schema, where: str) -> Expression:
    """Read an expression; the same text over the same columns is read once.

    Args:
        text: Spark SQL, such as ``"dep_delay >= 60"``.
        schema: the columns it may name.
        where: for the message.

    Raises:
        DefinitionError: DEFINITION-020 not text, 021 not SQL, 022 unknown column, 023 an aggregate or subquery, 140 a comment,
            141 several statements, 142 unknown function, 143 a function no expression may call, 145 types Spark refuses.
    """
    if not isinstance(text, str):
        got = _kind(text)
        column = str(text).removeprefix("Column<'").removesuffix("'>") if type(text).__name__ == "Column" else ""
        fix = f'Write it as text: "{column}".' if column else 'Write it as text: "dep_delay >= 60".'
        if callable(text):
            fix += " Python code over rows goes into flat_map(function, schema=...)."
        raise DefinitionError(where, "Spark SQL text", got, fix, code="DEFINITION-020")
    read = _read(text, schema)
    if isinstance(read, _Problem):
        raise DefinitionError(where, read.expected, read.got, read.fix, code=read.code)
    return read


def _kind(value: object) -> str:
    """The value as an error names it: ``a pyspark Column``, ``a Python function``, ``5``."""
    if isinstance(value, FunctionType):
        return "a Python function"
    library = type(value).__module__.split(".")[0]
    return shown(value) if library == "builtins" else f"a {library} {type(value).__name__}"


@lru_cache(maxsize=4096)
def _read(text: str, schema: Schema) -> Expression | _Problem:
    try:
        return _understood(text, schema)
    except RecursionError:
        fix = "Take it apart with several with_columns(...); IN (...) for many alternatives."
        return _Problem("an expression that is not so deep", f"{text[:60]!r}...", fix, "DEFINITION-021")


def _understood(text: str, schema: Schema) -> Expression | _Problem:
    try:
        node = parse(text)
    except Unreadable as error:
        expected = "an expression over one row" if error.code == "DEFINITION-023" else "a Spark SQL expression"
        return _Problem(expected, f"{text!r} ({error.got})", error.fix, error.code)
    for call in (part for part in walk(node) if isinstance(part, Call)):
        if (problem := _uncallable(call.name, text)) is not None:
            return problem
    try:
        tree = infer(node, schema.types)
    except UnknownColumn as error:
        called = f"Write {error.name}() for the function. " if error.name.lower() in names() else ""
        fix = f"{called or closest(error.name, schema.names)}Columns: {schema.describe()}."
        return _Problem("columns of the stream", f"'{error.name}'", fix, "DEFINITION-022")
    except Mismatch as error:
        return _Problem(error.expected, f"{error.got} in {text!r}", error.fix, "DEFINITION-145")
    used = {part.column for part in _typed(tree)}
    impure = any(isinstance(part.node, Call) and _impure(part.node) for part in _typed(tree))
    return Expression(text, tree, tuple(name for name in schema.names if name in used), not impure)


def _typed(tree: Typed) -> Iterator[Typed]:
    yield tree
    for child in tree.children:
        yield from _typed(child)


def _impure(call: Call) -> bool:
    if call.name == "unix_timestamp" and call.arguments:
        return False
    return classified(call.name) == "impure"


def _uncallable(name: str, text: str) -> _Problem | None:
    kind = classified(name)
    if kind in {"pure", "impure"}:
        return None
    if kind is None:
        fix = f"{_nearest(name, names())}What Spark SQL lacks is a function for flat_map(function, schema=...)."
        return _Problem("a function of Spark SQL", f"{name}(...) in {text!r}", fix, "DEFINITION-142")
    expected, fix = WHY[kind]
    return _Problem(expected, f"{name}(...) in {text!r}", fix, _CODES.get(kind, "DEFINITION-143"))


def _nearest(name: str, known: frozenset[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.7)
    return f"Did you mean {', '.join(repr(word) for word in near)}? " if near else ""


def check(text: object, schema: Schema, where: str, *, boolean: bool = False) -> str:
    """Check an expression and infer its type.

    Args:
        text: Spark SQL, such as ``"dep_delay >= 60"``.
        schema: the columns it may name.
        where: for the message.
        boolean: refuse anything that is not a condition.

    Returns:
        The Spark SQL type, ``""`` where it is not known.

    Raises:
        DefinitionError: as ``expression``, and DEFINITION-024, no condition.
    """
    kind = expression(text, schema, where).type
    if boolean and kind not in {"boolean", ""}:
        fix = "Write a comparison, such as dep_delay >= 60 or tailnum IS NOT NULL."
        raise DefinitionError(
            where, "a condition (true or false)", f"{text!r} of type {kind}", fix, code="DEFINITION-024"
        )
    return kind


def known_type(text: object, schema: Schema, where: str, *, name: str = "") -> str:
    """As ``check``, for an expression whose value becomes a column: its type must be known, and a type a column may have.

    Args:
        text: Spark SQL.
        schema: the columns it may name.
        where: for the message.
        name: of the new column, if the user gives one.

    Raises:
        DefinitionError: as ``check``; DEFINITION-043, the type is not known; DEFINITION-146, no column has such a type.
    """
    kind = check(text, schema, where)
    if not kind:
        cast = f"CAST({text} AS double)"
        fix = f'Say the type: {name}="{cast}".' if name else f"Write {cast}, or the type you mean."
        raise DefinitionError(where, "an expression of known type", repr(text), fix, code="DEFINITION-043")
    typed = known(kind)
    if typed is None or not typed.is_column:
        fix = "Take a field of it, or make it text or a number: CAST(... AS string), unix_millis(a) - unix_millis(b)."
        expected = f"one of {', '.join(SCALAR_NAMES)}, decimal or an array of these"
        raise DefinitionError(where, expected, f"{text!r} of type {kind}", fix, code="DEFINITION-146")
    return kind


def itself(name: str) -> str:
    """(column name) -> the expression that reads the column: the name, in backticks if SQL reads the bare name otherwise (``null``, ``interval``)."""
    try:
        node = parse(name)
    except Unreadable:
        return f"`{name}`"
    return name if isinstance(node, Column) and node.name == name else f"`{name}`"


@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """The expression with names outside ASCII in backticks, as Spark requires."""
    if text.isascii():
        return text
    for token in reversed(tokens(text)):
        if token.kind == "word" and not token.text.isascii():
            text = f"{text[: token.start]}`{token.text}`{text[token.end :]}"
    return text
