"""Typed nodes, and the mismatch of types that Spark refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floodmark.spec.expressions.tree import Node
from floodmark.spec.expressions.widening import common_of


class Mismatch(Exception):  # noqa: N818 - made a DefinitionError by ``check``
    """Types Spark refuses: what was expected, what is there, and what to do."""

    def __init__(self, expected: str, got: str, fix: str = "Cast one of them, such as CAST(amount AS double).") -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got, self.fix = expected, got, fix


@dataclass(frozen=True, slots=True)
class Typed:
    """A node with its type and its typed children, in the order of ``tree.children``.

    Args:
        node: of the tree.
        type: Spark SQL type; ``void`` of NULL, empty if it is not known.
        children: typed.
        column: the schema's column that the node names; empty for any other node.
    """

    node: Node
    type: str
    children: tuple[Typed, ...] = ()
    column: str = ""

    def __deepcopy__(self, memo: object) -> Typed:
        return self  # never changed; a copy of each level would bound how deep a tree may be

    @property
    def kinds(self) -> list[str]:
        """The types of the children."""
        return [child.type for child in self.children]


Rule = Callable[[Sequence[Typed]], str]
"""The arguments of a call -> its type; empty if it is not known."""


def kinds(children: Sequence[Typed]) -> list[str]:
    """The types of several nodes."""
    return [child.type for child in children]


def together(values: Sequence[Typed], what: str) -> str:
    """The type that all values are widened to.

    Raises:
        Mismatch: the values have no common type; ``what`` names the call.
    """
    kind = common_of(kinds(values))
    if kind is None:
        raise Mismatch(f"values of one type in {what}", ", ".join(dict.fromkeys(kinds(values))))
    return kind
