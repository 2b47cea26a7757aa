"""Implicit casts of Spark written out, as Sail's implicit casts differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from floodmark.engines.embedded.parity.signatures import general, variadic
from floodmark.spec.expressions.tree import Call, Cast, Literal
from floodmark.spec.expressions.typed import Typed

FILE = Path(__file__).with_name("implicit.json")


def explicit(tree: Typed) -> Typed:
    """An expression in which Spark's implicit casts of arguments are explicit. Literal texts stay, as they were compared in this form."""
    children = tuple(explicit(child) for child in tree.children)
    if isinstance(tree.node, Call):
        places = places_of(tree.node.name, len(children))
        targets = [_casts().get(place, {}) for place in places]
        children = tuple(_with_cast(child, kinds) for child, kinds in zip(children, targets, strict=True))
    return replace(tree, children=children)


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
