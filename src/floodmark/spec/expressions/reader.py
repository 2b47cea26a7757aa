"""A cursor over tokens: the base of the parser of expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from floodmark.core.errors import closest
from floodmark.core.types import SCALARS, known
from floodmark.spec.expressions.tokens import Token, Unreadable
from floodmark.spec.expressions.tree import Node

SUBQUERY = "A subquery belongs into an operator of its own; join its result."
SCALAR_NAMES = tuple(form.name for form in SCALARS if form.column)
"""Scalar types a column may have."""
SEPARATORS = frozenset({",", ")", "=", "<>", "<", ">", "<=", ">=", "+", "-", "/", "%", "||", "IS", "AND", "OR", "."})
"""Tokens that may follow a column; none of them begins a query."""
_FOLLOWING = frozenset(
    {*SEPARATORS, "==", "!=", "<=>", "!>", "!<", "*", "|", "^", "&", "]", "::", "[", "DIV", "THEN", "ELSE", "END"}
) - {"+", "-"}
"""Tokens that may follow a value and cannot begin one."""


class Reader(ABC):
    """Tokens and the position of the next one; the grammar is in the subclasses."""

    def __init__(self, read: list[Token]) -> None:
        self.tokens, self.position, self.depth = read, 0, 0

    @abstractmethod
    def expression(self) -> Node:
        """A whole expression: conditions joined by OR, the loosest operator."""

    @abstractmethod
    def binary(self, level: int) -> Node:
        """A value of operators of this level and of tighter ones; 0 is the loosest."""

    @abstractmethod
    def arguments_of(self, token: Token) -> Node:
        """The call of a function whose opening parenthesis is taken."""

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def ahead(self, count: int = 1) -> Token:
        """The token ``count`` positions after the next one."""
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The next token; moves behind it."""
        token = self.token
        self.position += token.kind != "end"
        return token

    def accept(self, *texts: str) -> str:
        """The next token's text, if it is one of these operators or words, and moves behind it; else empty."""
        token = self.token
        text = token.word or (token.text if token.kind == "operator" else "")
        if text and text in texts:
            self.take()
            return text
        return ""

    def expect(self, text: str) -> None:
        """Move behind this operator or word, which must be next."""
        if not self.accept(text):
            raise self.unexpected(f"{text!r} expected, found ")

    def unexpected(self, lead: str = "") -> Unreadable:
        """The error that names the next token."""
        shown = "its end" if self.token.kind == "end" else f"{self.token.text!r} at character {self.token.start + 1}"
        return Unreadable(f"{lead}{shown}")

    def finished(self) -> None:
        """Refuse tokens after the end of the expression."""
        if self.token.kind == "end":
            return
        if self.token.word in {"AS", "OVER"} or self.token.kind in {"word", "quoted"}:
            fix = 'Write one expression over the columns; names come from the keyword: with_columns(total="a + b").'
            shown = f"{self.token.text!r} at character {self.token.start + 1}"
            raise Unreadable(shown, fix)
        raise self.unexpected()

    def behind_name(self, ahead: int = 0) -> bool:
        """Whether the token ``ahead`` can only follow a value, so that the word before it, CASE or NOT, names a column."""
        token = self.ahead(ahead)
        return (
            token.kind == "end" or token.word in _FOLLOWING or (token.kind == "operator" and token.text in _FOLLOWING)
        )

    def arguments(self) -> tuple[Node, ...]:
        """Expressions up to and including a closing parenthesis."""
        parts: list[Node] = []
        while not self.accept(")"):
            if parts:
                self.expect(",")
            if self.token.kind in {"word", "quoted"} and self.ahead().text == "=>":
                raise Unreadable("a named argument", "Give arguments by their order.")
            parts.append(self.expression())
        return tuple(parts)

    def no_query(self) -> None:
        """Refuse a subquery."""
        if self.token.word in {"SELECT", "WITH"} and self.ahead().text not in SEPARATORS:
            raise Unreadable("a subquery", SUBQUERY, "DEFINITION-023")

    def type(self) -> str:
        """A type with its parameters: ``array<decimal(10,2)>``."""
        first = self.take()
        if first.kind != "word":
            self.position -= 1
            raise self.unexpected("a type expected, ")
        words, depth = [first.text], 0
        while (
            depth
            or self.token.text in {"(", "<"}
            or self.token.word == "TO"
            or self.tokens[self.position - 1].word
            in {
                "INTERVAL",
                "TO",
            }
        ):
            if self.token.kind == "end":
                raise self.unexpected("a type expected, ")
            depth += {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2}.get(self.token.text, 0)
            words.append(self.take().text)
        return _known(" ".join(words))


def _known(text: str) -> str:
    kind = known(text)
    if kind is None and text.lower() not in {"variant", "interval"}:
        near = closest(text, SCALAR_NAMES)
        fix = f"{near}Types are {', '.join(SCALAR_NAMES)}, decimal(p,s) and array<...>."
        raise Unreadable(f"the type {text!r}", fix)
    return str(kind) if kind else text.lower()
