"""Messages of Sail about a failing expression, translated to the messages of Spark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal

from floodmark.core.errors import printable
from floodmark.engines.embedded.parity.arithmetic import TRIED, overflow
from floodmark.engines.embedded.parity.casts import malformed
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Call, Cast
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS

_TYPES = {
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "Float32": "float",
    "Float64": "double",
    "Boolean": "boolean",
}
"""Arrow's names -> Spark's."""
_MALFORMED = re.compile(r"Cannot cast (?:string|value) '(?P<value>.*)' to value of (?P<type>\w+) type", re.DOTALL)
_TIMESTAMP = re.compile(r"invalid timestamp: (?P<value>.*)", re.DOTALL)
_BEYOND = re.compile(r"Can't cast value (?P<value>\S+) to type (?P<type>\w+)")
_SUFFIXES = {"tinyint": "Y", "smallint": "S", "bigint": "L", "double": "D"}
_UNNUMBERED = "[CAST_INVALID_INPUT]"
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
"""Doubles that Java writes without an exponent."""


def refusal(message: str) -> str | None:
    """The refused value in an error that ``parity`` has raised for a row which Sail would compute otherwise; None for other errors."""
    match = re.search(r"CAPABILITY-031 ([^:]*)", message)
    return None if match is None else match[1]


def reason(attempt: Attempt, message: str) -> str:
    """The first line of Spark's message for an error of Sail; the first line of Sail's message if Spark's is unknown.

    Args:
        attempt: the expression that has failed.
        message: of Sail.
    """
    text = printable(message.strip())
    if (match := _MALFORMED.search(text)) is not None and match["type"] in _TYPES:
        return _first(malformed(match["value"], _TYPES[match["type"]]))
    if (match := _BEYOND.search(text)) is not None and match["type"] in _TYPES:
        return _beyond(attempt, match["value"], _TYPES[match["type"]]) or _first(text)
    if (match := _TIMESTAMP.match(text)) is not None:
        return _first(malformed(match["value"], "timestamp"))
    return _first(text) + (" SQLSTATE: 22018" if text.startswith(_UNNUMBERED) and "SQLSTATE" not in text else "")


def _first(text: str) -> str:
    return text.splitlines()[0]


def _beyond(attempt: Attempt, value: str, kind: str) -> str | None:
    """Spark's message for a number outside its type, if exactly one cast or operator can have failed; None if several can."""
    says = {text for node in _nodes(_tree(attempt)) if (text := _overflow(node, value, kind)) is not None}
    if attempt.type == kind != _tree(attempt).type:
        says |= {_cast(value, _tree(attempt).type, kind)}
    return says.pop() if len(says) == 1 else None


def _tree(attempt: Attempt) -> Typed:
    return expression(attempt.text, attempt.schema, attempt.step).tree


def _nodes(tree: Typed) -> Iterator[Typed]:
    yield tree
    for child in tree.children:
        yield from _nodes(child)


def _overflow(node: Typed, value: str, kind: str) -> str | None:
    match node.node:
        case Cast(type=target, attempt=False) if target == kind:
            return _cast(value, node.children[0].type, kind)
        case Call(name=name) if node.type == kind and kind in {"int", "bigint"} and name in {*TRIED, "negative", "abs"}:
            return overflow(name)
        case Call(name=name) if node.type == kind and name in {*TRIED, "negative", "abs"}:
            return ""  # Spark's message for smaller types has both operands, which are unknown here
        case _:
            return None


def _cast(value: str, source: str, kind: str) -> str:
    if source not in {*INTEGERS, *FLOATS}:
        return ""
    written = _java(float(value)) if source in FLOATS else value
    return (
        f'[CAST_OVERFLOW] The value {written}{_SUFFIXES.get(source, "")} of the type "{source.upper()}" cannot be cast to "{kind.upper()}" '
        "due to an overflow. Use `try_cast` to tolerate overflow and return NULL instead. SQLSTATE: 22003"
    )


def _java(number: float) -> str:
    """A floating number in Java's notation."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_TO:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    first, *others = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{len(others) + int(exponent)}"
