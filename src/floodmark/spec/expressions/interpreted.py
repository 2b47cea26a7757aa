"""Expressions that are computed row by row in Python: which functions of which types are, and what in a tree is not.

``semantics.patterns.values`` computes them, with the meaning that an engine gives them in columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.types import known
from floodmark.spec.expressions.expression import expression
from floodmark.spec.expressions.literals import moment
from floodmark.spec.expressions.tree import Call, Case, Cast, Field, Lambda, Literal, levels
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import INTEGERS, common_of, is_number
from floodmark.spec.values.schema import Schema

DEEPEST = 200
"""Most levels of an expression that is computed row by row."""
TIMES = frozenset({"date", "timestamp"})
"""Types whose constants are written as text."""
INTERPRETED = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "div",
        "mod",
        "negative",
        "positive",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "||",
        "and",
        "or",
        "not",
        "isnull",
        "isnotnull",
        "between",
        "in",
        "like",
        "coalesce",
        "ifnull",
        "nvl",
        "nullif",
        "if",
        "abs",
        "least",
        "greatest",
        "lower",
        "upper",
        "length",
        "char_length",
        "concat",
        "startswith",
        "endswith",
        "contains",
        "substring",
        "substr",
        "trim",
        "unix_micros",
        "unix_millis",
        "unix_seconds",
    ]
)
"""Functions that ``semantics.patterns.values`` computes, beside CASE and casts between numbers."""
_OF_TEXTS = {
    "lower": 1,
    "upper": 1,
    "trim": 1,
    "length": 1,
    "char_length": 1,
    "like": 2,
    "startswith": 2,
    "endswith": 2,
    "contains": 2,
}
"""Functions of texts -> number of them."""
_OF_NUMBERS = frozenset(["+", "-", "*", "/", "%", "div", "mod", "negative", "positive", "abs"])


def own_row(text: str, schema: Schema, where: str) -> Typed | None:
    """The tree of an expression over one row; None if it calls what floodmark does not interpret by row, or is too deep for that.

    Raises:
        DefinitionError: as ``expression``.
    """
    tree = expression(text, schema, where).tree
    return None if levels(tree.node) > DEEPEST or uninterpreted(tree) else tree


def uninterpreted(tree: Typed) -> str:
    """What in a tree cannot be computed by row in Python, in words; empty if all of it can."""
    match tree.node:
        case Call(name=name) if name not in INTERPRETED:
            return f"{name}(...)"
        case Call(name=name) if not _taken(name, tree):
            return f"{name} of {', '.join(tree.kinds)}"
        case Case() if not _alike(tree.kinds[1::2] + tree.kinds[len(tree.kinds) - len(tree.kinds) % 2 :], ()):
            return f"CASE of {', '.join(tree.kinds)}"
        case Lambda() | Field():
            return "a part of a value"
        case Cast(type=kind, value=value) if not _castable(tree.children[0].type, kind) and not isinstance(
            value, Literal
        ):
            return f"CAST(... AS {kind})"
        case Literal(type=kind) if kind not in {"void", "boolean", "string"} and not _plain(kind):
            return f"a constant of type {kind}"
    return _unread(tree) or next((found for child in tree.children if (found := uninterpreted(child))), "")


def _unread(tree: Typed) -> str:
    """The first constant of a node that is a date or a time, or a text beside one, in a form which only an engine reads."""
    parts: Sequence[Typed] = tree.children
    match tree.node:
        case Literal(type=kind):
            parts = (tree,)
        case Cast(type=kind):
            pass
        case _:
            kind = common_of(tree.kinds) or ""
    if kind not in TIMES:
        return ""
    texts = [part.node.value for part in parts if isinstance(part.node, Literal) and part.type in {"string", *TIMES}]
    return next((f"the {kind} {text!r}" for text in texts if moment(kind, str(text)) is None), "")


def _taken(name: str, tree: Typed) -> bool:
    """Whether a function is computed by row of arguments of these types: text is not read as numbers, nor a date as a time."""
    kinds = [kind for kind in tree.kinds if kind != "void"]
    match name:
        case "isnull" | "isnotnull" | "and" | "or" | "not":
            return True
        case "||" | "concat":
            return set(kinds) <= {"string"}
        case "substring" | "substr":
            return tree.kinds[0] in {"string", "void"} and all(kind in INTEGERS for kind in tree.kinds[1:])
        case "unix_micros" | "unix_millis" | "unix_seconds":
            return set(kinds) <= {"timestamp"}
        case _ if name in _OF_TEXTS:
            return len(tree.kinds) == _OF_TEXTS[name] and set(kinds) <= {"string"}
        case _ if name in _OF_NUMBERS:
            return all(map(is_number, kinds))
        case "if":
            return _alike(tree.kinds[1:], ())
        case _:
            return _alike(tree.kinds, tree.children)


def _alike(kinds: Sequence[str], children: Sequence[Typed]) -> bool:
    """Whether values compare as they are: all numbers, or of one type; constants of text may be times."""
    kind = common_of(kinds)
    if not kind:
        return kind is not None
    if kind in TIMES:
        kinds = [
            kind if isinstance(child.node, Literal) and child.type == "string" else child.type for child in children
        ] or kinds
    return all(one in {kind, "void"} or (is_number(one) and is_number(kind)) for one in kinds)


def _plain(kind: str) -> bool:
    typed = known(kind)
    return typed is not None and (typed.is_numeric or kind in {"date", "timestamp"})


def _castable(source: str, target: str) -> bool:
    """Whether a cast is computed by row: between numbers without loss, or none at all."""
    before, after = known(source), known(target)
    if before is None or after is None:
        return source == target
    integers = before.is_integer and after.is_integer
    return source == target or integers or (before.is_numeric and after.is_floating)
