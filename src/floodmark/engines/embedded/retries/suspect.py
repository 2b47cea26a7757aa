"""The suspect of an expression: the only part that can fail first. One query finds the rows for which it fails; halving needs many."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.engines.embedded.parity.casts import cast
from floodmark.engines.embedded.parity.evaluation import fails, hidden
from floodmark.engines.embedded.parity.implicit import explicit
from floodmark.engines.embedded.parity.rendering import CONDITIONAL, rendered
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Call, Case, Cast, Lambda, Literal
from floodmark.spec.expressions.typed import Typed

_ARROW = {
    "tinyint": "Int8",
    "smallint": "Int16",
    "int": "Int32",
    "bigint": "Int64",
    "float": "Float32",
    "double": "Float64",
}
"""Type to which texts are cast -> Arrow's name of the type in Sail's messages."""
_DIVIDING = frozenset(["/", "%", "mod"])


@dataclass(frozen=True, slots=True)
class Suspect:
    """A part of an expression that is computed for each row, before every other part that may fail.

    Args:
        fails: SQL condition for the rows for which the part fails.
        shown: SQL of the text in Sail's message; NULL if all rows have one message.
        message: of Sail, with ``{}`` for that text; empty where all messages are one.
    """

    fails: str
    shown: str = "CAST(NULL AS string)"
    message: str = ""


def suspect(attempt: Attempt) -> Suspect | None:
    """The suspect of an expression: a text cast to a number, or a division; None if another part, or one of several, can fail first."""
    node = _innermost(explicit(expression(attempt.text, attempt.schema, attempt.step).tree))
    match node:
        case Typed(node=Cast(type=kind, attempt=False), children=(value,)) if value.type == "string" and kind in _ARROW:
            tried = cast(rendered(value), value, kind, attempt=True)
            read = tried.removeprefix("TRY_CAST(").removesuffix(f" AS {kind})")
            message = f"Cannot cast string '{{}}' to value of {_ARROW[kind]} type"
            return Suspect(f"({read} IS NOT NULL AND {tried} IS NULL)", read, message)
        case Typed(node=Call(name=name), children=(dividend, divisor)) if name in _DIVIDING:
            return Suspect(f"({hidden(divisor, rendered(divisor))} = 0 AND {rendered(dividend)} IS NOT NULL)")
        case _:
            return None


def _innermost(node: Typed) -> Typed | None:
    failing = [child for child in node.children if fails(child)]
    if not failing:
        return node if fails(node) else None
    others = [child for child in node.children if child is not failing[0]]
    optional = isinstance(node.node, (Case, Lambda)) or (isinstance(node.node, Call) and node.node.name in CONDITIONAL)
    if optional or not all(isinstance(other.node, Literal) and other.node.value is not None for other in others):
        return None
    return _innermost(failing[0])
