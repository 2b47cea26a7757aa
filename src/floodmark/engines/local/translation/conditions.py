"""Comparisons, logic, and the functions that choose among values or look for NULL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from floodmark.engines.local.casts import NotTranslated, text
from floodmark.engines.local.translation.operand import Operand, Rule, template, widened
from floodmark.spec.expressions.tree import Call, Column, Literal
from floodmark.spec.expressions.widening import SCALARS, common_of, element, is_number


def _comparison(operator: str) -> Rule:
    def rule(call: Operand) -> str:
        left, right = call.children
        kind = _comparable([left.type, right.type])
        return f"{left.cast(kind)} {operator} {right.cast(kind)}"

    return rule


def _comparable(kinds: Sequence[str]) -> str:
    """The type in which values are compared; arrays, maps, structs and intervals are refused."""
    kind = common_of(kinds)
    if kind == "void":
        return "boolean"
    if not kind or element(kind) is not None or kind.startswith(("map", "struct", "interval")):
        raise NotTranslated(f"values of type {kind or 'unknown'} compared")
    return kind


def _between(call: Operand) -> str:
    value, low, high = call.children
    lower, upper = _comparable([value.type, low.type]), _comparable([value.type, high.type])
    parts = [f"({value.cast(lower)} >= {low.cast(lower)})", f"({value.cast(upper)} <= {high.cast(upper)})"]
    return _in_turn("AND", parts, plain=_never_fails(high))


def _in(call: Operand) -> str:
    kind = _comparable(call.typed.kinds)
    value, *options = (child.cast(kind) for child in call.children)
    if all(_never_fails(child) for child in call.children[2:]):
        return f"{value} IN ({', '.join(options)})"
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {_in_turn('OR', [f'({value} = {option})' for option in options])} END"


def _logic(operator: str) -> Rule:
    def rule(call: Operand) -> str:
        parts = _chain(call, operator.lower())
        settled = any(
            isinstance(part.typed.node, Literal) for part in parts[1:]
        )  # DuckDB stops at it, wherever it stands
        plain = all(_never_fails(part) for part in (parts if settled else parts[1:]))
        return _in_turn(operator, [part.cast("boolean") for part in parts], plain=plain)

    return rule


def _chain(call: Operand, name: str) -> list[Operand]:
    """What stands between the ``and`` of a chain, or the ``or``, from left to right."""
    left, right = call.children
    node = left.typed.node
    before = _chain(left, name) if isinstance(node, Call) and node.name == name else [left]
    return [*before, right]


def _in_turn(operator: str, parts: Sequence[str], *, plain: bool = False) -> str:
    """Conditions joined by AND or OR. DuckDB computes them all; Spark stops at the first that decides, and so fails for less.

    Args:
        operator: AND or OR.
        parts: the conditions.
        plain: none but the first can fail.
    """
    whole = f" {operator} ".join(parts)
    if plain:
        return whole
    decided = "false" if operator == "AND" else "true"
    stops = " ".join(f"WHEN {'NOT ' if operator == 'AND' else ''}{part} THEN {decided}" for part in parts[:-1])
    return f"CASE {stops} ELSE {whole} END"


def _never_fails(operand: Operand) -> bool:
    """Whether it has a value for every row: columns, constants, and comparisons of what is not cast."""
    node, kinds = operand.typed.node, set(operand.typed.kinds)
    if isinstance(node, (Column, Literal)):
        return True
    uncast = len(kinds - {"void"}) == 1 or all(is_number(kind) for kind in kinds)
    fixed = isinstance(node, Call) and (node.name in _TESTS or (node.name in _COMPARISONS and uncast))
    return fixed and all(_never_fails(child) for child in operand.children)


def _like(operator: str) -> Rule:
    def rule(call: Operand) -> str:
        pattern, escape = str(call.children[1].constant), str(call.option(2, "\\"))
        unescaped = re.sub(re.escape(escape) + "[%_" + re.escape(escape) + "]", "", pattern)
        if escape in unescaped or len(escape) != 1:
            raise NotTranslated(f"the pattern {pattern!r}")
        return f"{call.children[0].cast('string')} {operator} {text(pattern)} ESCAPE {text(escape)}"

    return rule


def _extreme(name: str) -> Rule:
    """Of greatest and least."""

    def rule(call: Operand) -> str:
        _comparable([call.known_type])
        return widened(f"{name}({{0}})")(call)

    return rule


def _if(call: Operand) -> str:
    condition, yes, no = call.children
    return _chosen(condition.cast("boolean"), yes, no, call.known_type)


def _nvl2(call: Operand) -> str:
    value, yes, no = call.children
    return _chosen(f"{value.sql()} IS NOT NULL", yes, no, call.known_type)


def _chosen(condition: str, yes: Operand, no: Operand, kind: str) -> str:
    return f"CASE WHEN {condition} THEN {yes.cast(kind)} ELSE {no.cast(kind)} END"


def _nullif(call: Operand) -> str:
    left, right = call.children
    kind = _comparable([left.type, right.type])
    return f"CASE WHEN {left.cast(kind)} = {right.cast(kind)} THEN NULL ELSE {left.sql()} END"


def _conversion(kind: str) -> Rule:
    return lambda call: call.children[0].cast(kind)


_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "like", "ilike", "startswith", "endswith"}
)
_TESTS = frozenset({"isnull", "isnotnull", "and", "or", "not"})

RULES: Mapping[str, Rule] = {
    **{name: _comparison(name) for name in ("=", "<>", "<", "<=", ">", ">=")},
    **dict.fromkeys(("<=>", "equal_null"), _comparison("IS NOT DISTINCT FROM")),
    "between": _between,
    "in": _in,
    "and": _logic("AND"),
    "or": _logic("OR"),
    "not": template("NOT {0}", "boolean"),
    "like": _like("LIKE"),
    "ilike": _like("ILIKE"),
    "isnull": template("{0} IS NULL", "*"),
    "isnotnull": template("{0} IS NOT NULL", "*"),
    **dict.fromkeys(("coalesce", "ifnull", "nvl"), widened("coalesce({0})")),
    "if": _if,
    "nvl2": _nvl2,
    "nullif": _nullif,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    **{kind: _conversion(kind) for kind in SCALARS - {"binary", "float"}},
}
"""Function or operator -> its translation."""
