"""Lengths of time in expressions that are computed row by row: ``b.at - a.at < INTERVAL '10' MINUTES`` as whole microseconds on both sides."""

from __future__ import annotations

from fractions import Fraction

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.spec.expressions.tree import Call, Case, Cast, Literal, Node

_COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>", "between"})
_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def in_micros(node: Node) -> Node:
    """The expression with comparisons of times and lengths of time, and TIMESTAMPDIFF, in microseconds; as it is where there are none.

    Months and years have no length; what names them stays as it is.
    """
    match node:
        case Call(name=name, arguments=arguments) if name in _COMPARED and any(map(_is_timed, arguments)):
            return Call(name, tuple(map(_micros, arguments)))
        case Call(name="timestampdiff", arguments=(Literal(value=str() as unit), begin, end)) if (
            unit.upper() in _MICROS
        ):
            between = Call("-", (_micros(end), _micros(begin)))
            return Call("div", (between, Literal(_MICROS[unit.upper()], "bigint")))
        case Call(name=name, arguments=arguments):
            return Call(name, tuple(map(in_micros, arguments)))
        case Cast(value=value, type=kind, attempt=attempt):
            return Cast(in_micros(value), kind, attempt)
        case Case(branches=branches, otherwise=otherwise):
            pairs = tuple((in_micros(condition), in_micros(value)) for condition, value in branches)
            return Case(pairs, None if otherwise is None else in_micros(otherwise))
        case _:
            return node


def _is_timed(node: Node) -> bool:
    """Whether a length of time is added or compared."""
    if isinstance(node, Call) and node.name in {"+", "-"}:
        return any(map(_is_timed, node.arguments))
    return _length(node) is not None


def _micros(node: Node) -> Node:
    length = _length(node)
    if length is not None:
        return Literal(length, "bigint")
    if isinstance(node, Call) and node.name in {"+", "-"}:
        return Call(node.name, tuple(map(_micros, node.arguments)))
    return Call("unix_micros", (node,))


def _length(node: Node) -> int | None:
    """Microseconds of an INTERVAL of weeks to microseconds; None for anything else."""
    match node:
        case Literal(value=str() as text, type=kind) if kind.startswith("interval "):
            try:
                return span(text) * 1_000
            except DefinitionError:
                return None
        case Call(name="interval", arguments=arguments):
            return _sum(arguments)
    return None


def _sum(arguments: tuple[Node, ...]) -> int | None:
    total = Fraction(0)
    for number, unit in zip(arguments[::2], arguments[1::2], strict=True):
        if not isinstance(number, Literal) or not isinstance(unit, Literal) or str(unit.value) not in _MICROS:
            return None
        try:
            total += Fraction(str(number.value)) * _MICROS[str(unit.value)]
        except ValueError:
            return None
    return int(total) if total.denominator == 1 else None
