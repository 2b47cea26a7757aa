"""Spark SQL text -> tree, by Spark's own grammar (``SqlBaseParser.g4``): operators from loose to tight, then primaries."""

from __future__ import annotations

from functools import lru_cache

from floodmark.spec.expressions.literals import number
from floodmark.spec.expressions.primaries import Primaries
from floodmark.spec.expressions.tokens import Unreadable, tokens
from floodmark.spec.expressions.tree import Call, Literal, Node

_BINARY: tuple[tuple[str, ...], ...] = (
    ("=", "==", "<=>", "<>", "!=", "<", "<=", "!>", ">", ">=", "!<"),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>", ">>>"),
    ("+", "-", "||"),
    ("*", "/", "%", "DIV"),
)
"""Operators of values, from loose to tight; all of them group from the left."""
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
_DEEPEST = 200


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        Unreadable: no expression of Spark SQL, or one that needs more than a row.
    """
    reader = _Operators(tokens(text))
    try:
        node = reader.expression()
    except RecursionError:  # the caller was deep, too
        raise _too_deep(reader.depth) from None
    reader.finished()
    return node


def _too_deep(levels: int) -> Unreadable:
    return Unreadable(f"{levels} levels within each other", "Take it apart with several with_columns(...).")


class _Operators(Primaries):
    """Reads operators and their operands."""

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _too_deep(self.depth)
        left = self.conjunction()
        while self.accept("OR"):
            left = Call("or", (left, self.conjunction()))
        self.depth -= 1
        return left

    def conjunction(self) -> Node:
        """Conditions joined by AND."""
        left = self.negation()
        while self.accept("AND"):
            left = Call("and", (left, self.negation()))
        return left

    def negation(self) -> Node:
        """NOT, any number of times."""
        if self.token.word == "NOT" and not self.behind_name(1):
            self.take()
            return Call("not", (self.negation(),))
        if self.accept("!"):
            return Call("not", (self.negation(),))
        return self.predicate()

    def predicate(self) -> Node:
        """A value, then IS, BETWEEN, IN or LIKE if one of them follows."""
        value = self.binary(0)
        if self.accept("IS"):
            return self.described(value)
        negated = bool(self.accept("NOT"))
        if self.accept("BETWEEN"):
            low = self.binary(0)
            self.expect("AND")
            node: Node = Call("between", (value, low, self.binary(0)))
        elif self.accept("IN"):
            node = self.member(value)
        elif word := self.accept("LIKE", "ILIKE"):
            return self.like(word.lower(), value, negated=negated)
        elif self.accept("RLIKE", "REGEXP"):
            node = Call("rlike", (value, self.binary(0)))
        elif negated:
            raise self.unexpected("BETWEEN, IN, LIKE or RLIKE expected after NOT, ")
        else:
            return value
        return Call("not", (node,)) if negated else node

    def described(self, value: Node) -> Node:
        """The predicate after IS."""
        negated = bool(self.accept("NOT"))
        if self.accept("NULL"):
            return Call("isnotnull" if negated else "isnull", (value,))
        if word := self.accept("TRUE", "FALSE"):
            node = Call("<=>", (value, Literal(word == "TRUE", "boolean")))
        elif self.accept("UNKNOWN"):
            node = Call("isnull", (value,))
        elif self.accept("DISTINCT"):
            self.expect("FROM")
            node, negated = Call("<=>", (value, self.binary(0))), not negated
        else:
            raise self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM expected, ")
        return Call("not", (node,)) if negated else node

    def member(self, value: Node) -> Node:
        """The list after IN."""
        self.expect("(")
        self.no_query()
        if self.token.text == ")":
            raise Unreadable("IN (), an empty list", "Name at least one value: code IN ('a', 'b').")
        return Call("in", (value, *self.arguments()))

    def like(self, word: str, value: Node, *, negated: bool) -> Node:
        """LIKE with one pattern or several. NOT negates each pattern: NOT LIKE ANY is true if one of them does not match."""

        def fits(*arguments: Node) -> Node:
            node = Call(word, (value, *arguments))
            return Call("not", (node,)) if negated else node

        if self.token.word in {"ANY", "SOME", "ALL"} and self.ahead().text == "(":
            quantifier = "and" if self.take().word == "ALL" else "or"
            self.expect("(")
            patterns = self.arguments()
            if not patterns:
                raise Unreadable("LIKE of an empty list", "Name at least one pattern.")
            node = fits(patterns[0])
            for pattern in patterns[1:]:
                node = Call(quantifier, (node, fits(pattern)))
            return node
        pattern = self.binary(0)
        return fits(pattern, self.binary(0)) if self.accept("ESCAPE") else fits(pattern)

    def binary(self, level: int) -> Node:
        """Operators of values of this level and of tighter ones."""
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.accept(*_BINARY[level]):
            name = _SAME.get(operator, operator).lower()
            left = Call(name, (left, self.binary(level + 1)))
        return left

    def unary(self) -> Node:
        """A value with its sign."""
        if self.token.text == "-" and self.token.kind == "operator" and self.ahead().kind == "number":
            self.take()
            return self.suffixed(number(self.take().text, negative=True))
        if operator := self.accept("-", "+", "~"):
            return Call({"-": "negative", "+": "positive"}.get(operator, operator), (self.unary(),))
        return self.suffixed(self.primary())
