"""The tree of an expression. Operators are calls: ``a + b`` is ``Call("+", (a, b))``, ``x IS NULL`` is ``Call("isnull", (x,))``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

LiteralValue = bool | int | float | str | bytes | Decimal | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant with its Spark type; dates, timestamps and intervals hold their text."""

    value: LiteralValue
    type: str


@dataclass(frozen=True, slots=True)
class Column:
    """A name: a column, a parameter of a lambda, or one of the functions SQL writes without parentheses."""

    name: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator, by its name in lower case."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(value AS type)``; ``try_cast`` if ``attempt``."""

    value: Node
    type: str
    attempt: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE WHEN condition THEN value ... ELSE otherwise END``; ``CASE x WHEN y`` has ``x = y`` as its condition."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Field:
    """``value.name`` of a struct."""

    value: Node
    name: str


@dataclass(frozen=True, slots=True)
class Lambda:
    """``(a, b) -> body``."""

    parameters: tuple[str, ...]
    body: Node


Node = Literal | Column | Call | Cast | Case | Field | Lambda


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below a node."""
    match node:
        case Call(arguments=arguments):
            return arguments
        case Cast(value=value) | Field(value=value):
            return (value,)
        case Case(branches=branches, otherwise=otherwise):
            below = [part for branch in branches for part in branch]
            return (*below, otherwise) if otherwise is not None else tuple(below)
        case Lambda(body=body):
            return (body,)
        case Literal() | Column():
            return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all nodes below it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(reversed(children(part)))


def levels(node: Node) -> int:
    """Nodes within each other, from a node down to its deepest one."""
    count, level = 0, [node]
    while level:
        count, level = count + 1, [child for part in level for child in children(part)]
    return count
