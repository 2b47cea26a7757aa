"""A typed node that writes itself and all nodes below it in DuckDB's SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from floodmark.engines.local.casts import NotTranslated, cast, sql_type
from floodmark.engines.local.translation.literals import literal, name
from floodmark.spec.expressions import Typed
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Lambda, Literal
from floodmark.spec.expressions.widening import is_number


@dataclass(frozen=True, slots=True)
class Operand:
    """A node with the rules that translate the calls in it.

    Args:
        typed: the node.
        rules: function or operator -> its translation.
    """

    typed: Typed
    rules: Mapping[str, Rule]

    @property
    def type(self) -> str:
        """The Spark SQL type; empty if it is not known."""
        return self.typed.type

    @property
    def known_type(self) -> str:
        """The Spark SQL type; an unknown type is refused."""
        if not self.type:
            raise NotTranslated("a value of unknown type")
        return self.type

    @property
    def children(self) -> tuple[Operand, ...]:
        """The nodes directly below: the arguments of a call."""
        return tuple(Operand(child, self.rules) for child in self.typed.children)

    @property
    def constant(self) -> object:
        """The value of a literal; any other node is refused."""
        if not isinstance(self.typed.node, Literal):
            raise NotTranslated("an argument that is not written out")
        return self.typed.node.value

    def option(self, position: int, default: object) -> object:
        """The value of a literal argument that may be missing."""
        return self.children[position].constant if len(self.children) > position else default

    def sql(self) -> str:
        """The node in DuckDB's SQL.

        Raises:
            NotTranslated: DuckDB's answer may differ from Spark's.
        """
        match self.typed.node:
            case Literal() as node:
                return literal(node)
            case Column() as node:
                return name(self.typed.column or node.name)
            case Cast(type=target, attempt=attempt):
                (value,) = self.children
                return cast(value.sql(), value.known_type, target, attempt=attempt)
            case Case():
                return self._case()
            case Call() as node:
                return self._call(node.name)
            case Lambda(parameters=parameters):
                return f"lambda {', '.join(name(parameter) for parameter in parameters)}: {self.children[0].sql()}"
            case _:
                raise NotTranslated("fields of structs")

    def cast(self, kind: str) -> str:
        """The node, cast to a type as Spark casts implicitly."""
        value = self.typed.node.value if isinstance(self.typed.node, Literal) and is_number(kind) else None
        if isinstance(value, str) and not re.fullmatch(r"\s*[-+]?\d+\s*", value):
            raise NotTranslated(f"the text {value!r} as a number")  # Spark's answer depends on the other side
        return cast(self.sql(), self.known_type, kind)

    def _case(self) -> str:
        kind, children = self.type, list(self.children)
        if kind == "void":
            return "NULL"
        otherwise = children.pop().cast(kind) if len(children) % 2 else f"CAST(NULL AS {sql_type(kind)})"
        pairs = zip(children[::2], children[1::2], strict=True)
        return f"CASE {' '.join(f'WHEN {c.sql()} THEN {v.cast(kind)}' for c, v in pairs)} ELSE {otherwise} END"

    def _call(self, function: str) -> str:
        rule = self.rules.get(function)
        if rule is None:
            raise NotTranslated(f"{function}(...)" if function.isidentifier() else f"the operator {function}")
        try:
            return f"({rule(self)})"
        except (IndexError, ValueError, AssertionError):
            raise NotTranslated(f"{function} of {len(self.children)} arguments") from None


Rule = Callable[[Operand], str]
"""A call -> its SQL. Too few or too many arguments raise IndexError or ValueError."""


def template(form: str, *kinds: str) -> Rule:
    """A rule that fills a form with the arguments, each cast to its type (``*``: as the argument is)."""

    def rule(call: Operand) -> str:
        if len(call.children) != len(kinds):
            raise NotTranslated(f"{len(call.children)} arguments")
        return form.format(
            *(
                child.sql() if kind == "*" else child.cast(kind)
                for child, kind in zip(call.children, kinds, strict=True)
            )
        )

    return rule


def widened(form: str) -> Rule:
    """A rule that fills a form with all arguments, cast to the type of the call."""

    def rule(call: Operand) -> str:
        kind = call.known_type
        if kind == "void":
            return "NULL"
        return form.format(", ".join(child.cast(kind) for child in call.children))

    return rule
