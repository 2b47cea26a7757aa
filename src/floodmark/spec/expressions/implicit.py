"""Implicit casts of text: Spark reads ``country > 5`` as ``CAST(country AS bigint) > 5``, and a row whose text is no number stops the run."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.spec.expressions.tree import Call, Case, Column, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import common_of, is_number

_COMPARED = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "nullif", "equal_null"])
_COMPUTED = frozenset(["+", "-", "*", "/", "%", "div", "mod", "pmod"])
_SIGNED = frozenset(["+", "-", "abs", "negative", "positive", "round", "bround", "ceil", "ceiling", "floor"])
_MERGED = frozenset(["coalesce", "ifnull", "nvl", "if", "nvl2"])
_CONDITIONS = frozenset(["and", "or", "not"])


def implicit_casts(tree: Typed) -> Iterator[tuple[str, str]]:
    """(SQL of the text, type Spark casts it to) for every operand that Spark casts from text to a number, a time or a condition.

    A literal that has the form of the type, as in ``at > '2025-01-01'`` or ``n = '5'``, is left out.
    """
    for child in tree.children:
        yield from implicit_casts(child)
    target = _read_as(tree)
    if target not in {"", "string", "void"}:
        for child in tree.children:
            if child.type == "string" and not _has_form(child, target):
                yield _shown(child), target


def _read_as(tree: Typed) -> str:
    """The type that Spark casts text operands of a node to; empty if it casts none."""
    match tree.node:
        case Case():
            return tree.type
        case Call(name=name) if name in _CONDITIONS:
            return "boolean"
        case Call(name=name) if name in _COMPARED:
            return common_of(tree.kinds) or ""
        case Call(name=name) if name in _MERGED:
            return tree.type
        case Call(name=name) if name in _COMPUTED and any(is_number(kind) for kind in tree.kinds):
            return common_of(tree.kinds) or ""
        case Call(name=name) if name in _SIGNED and tree.kinds[:1] == ["string"]:
            return "double"
        case _:
            return ""


def _has_form(child: Typed, target: str) -> bool:
    """True for a literal; if the type is a number, for a literal that is a number."""
    if not isinstance(child.node, Literal):
        return False
    if not is_number(target):
        return True
    try:
        float(str(child.node.value))
    except ValueError:
        return False
    return True


def _shown(child: Typed) -> str:
    match child.node:
        case Column(name=name):
            return name
        case Literal(value=value):
            return repr(value)
        case Call(name=name):
            return f"{name}(...)"
        case _:
            return "..."
