"""Implicit casts of Spark written out, as Sail's implicit casts differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from floodmark.engines.embedded.parity.signatures import general, variadic
from floodmark.spec.expressions.tree import Call, Case, Cast, Literal
from floodmark.spec.expressions.typed import Typed

FILE = Path(__file__).with_name("implicit.json")

_OF_ONE_TYPE = frozenset({"in", "coalesce", "greatest", "least"})
"""Functions of any number of arguments, which become one type."""


def explicit(tree: Typed) -> Typed:
    """An expression in which Spark's implicit casts of arguments are explicit. Literal texts stay, as they were compared in this form."""
    children = tuple(explicit(child) for child in tree.children)
    if isinstance(tree.node, Call):
        places = places_of(tree.node.name, len(children))
        targets = [_casts().get(place, {}) for place in places]
        children = tuple(_with_cast(child, kinds) for child, kinds in zip(children, targets, strict=True))
    return replace(tree, children=_with_typed_nulls(tree, children))


def _with_typed_nulls(tree: Typed, children: tuple[Typed, ...]) -> tuple[Typed, ...]:
    """The children of a node; those that are NULL in a CASE, or beside two types among the arguments of IN, COALESCE, GREATEST and LEAST, have the type of another one, as in what was compared."""
    case, last = isinstance(tree.node, Case), len(children) - 1
    values = [child for at, child in enumerate(children) if not case or at % 2 or at == last]
    kinds = [child.type for child in values if child.type != "void"]
    variable = isinstance(tree.node, Call) and tree.node.name in _OF_ONE_TYPE and len(set(kinds)) > 1
    if not (case or variable) or not kinds or "" in kinds:
        return children
    return tuple(
        Typed(Cast(value=child.node, type=kinds[0]), kinds[0], (child,))
        if child.type == "void" and any(child is v for v in values)
        else child
        for child in children
    )


def places_of(name: str, count: int) -> list[str]:
    """The names of a call's arguments in the file; all arguments of a variadic function have one name.

    Args:
        name: of the function.
        count: number of arguments.
    """
    return [f"{name}/*" if variadic(name) else f"{name}/{count}/{place}" for place in range(count)]


def _with_cast(child: Typed, kinds: Mapping[str, str]) -> Typed:
    target = kinds.get(general(child.type))
    if target is None or (isinstance(child.node, Literal) and child.type == "string"):
        return child
    return Typed(Cast(value=child.node, type=target), target, (child,))


@cache
def _casts() -> Mapping[str, Mapping[str, str]]:
    """Name of an argument -> its type -> the type to which Spark casts it; written by ``make parity``."""
    casts: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text("utf-8"))
    return casts
