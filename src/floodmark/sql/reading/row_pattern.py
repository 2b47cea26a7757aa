"""The clause ``MATCH_RECOGNIZE`` of a table, read from its tokens: its parts are texts, which the fluent form reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.sql.reading.single_values import as_values, text_of

CLAUSE = "MATCH_RECOGNIZE"
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSED = {TokenType.R_PAREN, TokenType.R_BRACKET}
_NAMES = {
    "PARTITION",
    "ORDER",
    "MEASURES",
    "ONE",
    "ALL",
    "AFTER",
    "INITIAL",
    "SEEK",
    "PATTERN",
    "WITHIN",
    "SUBSET",
    "DEFINE",
}
"""First words of the parts."""


class RowPattern(exp.Expression):
    """``t MATCH_RECOGNIZE (PARTITION BY ... PATTERN (...) DEFINE ...) AS m`` in FROM.

    Args:
        this: the table.
        partition: columns.
        order: expressions with their direction.
        measures: ``[(name, text), ...]``.
        rows: text of rows per match; empty for none.
        skip: text behind AFTER MATCH; empty for none.
        pattern: its text.
        within: the duration; None for none.
        subset: ``[(name, names), ...]``.
        define: ``[(name, text), ...]``.
        alias: of the result.
    """

    arg_types = dict.fromkeys(
        ("partition", "order", "measures", "rows", "skip", "within", "subset", "define", "alias"), False
    ) | {"this": True, "pattern": True}


def row_pattern(parser: Any, table: exp.Expr) -> RowPattern:
    """(parser at ``MATCH_RECOGNIZE``, the table before it) -> the clause; the parser stands behind its parenthesis."""
    begin = parser._curr  # noqa: SLF001 - a method of the parser's
    parser._advance()  # noqa: SLF001 - the same
    parser._match_l_paren()  # noqa: SLF001 - the same
    return _Reader(parser, table, begin).clause()


class _Reader:
    """Reads one clause.

    Args:
        parser: of the statement, behind the opening parenthesis.
        table: before the clause.
        begin: the token ``MATCH_RECOGNIZE``.
    """

    def __init__(self, parser: Any, table: exp.Expr, begin: Token) -> None:
        self.parser, self.table, self.begin = parser, table, begin
        self.parts: dict[str, Any] = {"this": table}

    def clause(self) -> RowPattern:
        """The clause."""
        while self.parser._curr and self.parser._curr.token_type != TokenType.R_PAREN:  # noqa: SLF001 - the parser's own
            self._part()
        self.parser._match_r_paren()  # noqa: SLF001 - the same
        if "pattern" not in self.parts:
            self.parser.raise_error("Expecting PATTERN (...) in MATCH_RECOGNIZE", self.begin)
        node = RowPattern(**self.parts)
        node.meta["span"] = (self.begin.start, self.parser._prev.end + 1)  # noqa: SLF001 - the same
        return node

    def _part(self) -> None:
        parser = self.parser
        word = parser._curr.text.upper()  # noqa: SLF001 - the parser's own
        name = {"ONE": "rows", "ALL": "rows", "AFTER": "skip"}.get(word.split()[0], word.split()[0].lower())
        if word.split()[0] not in _NAMES or name in self.parts:
            parser.raise_error(
                f"Expecting PARTITION BY, ORDER BY, MEASURES, ..., PATTERN, WITHIN, SUBSET or DEFINE once each, got {word}"
            )
        match word.split()[0]:
            case "PARTITION":
                parser._match(TokenType.PARTITION_BY)  # noqa: SLF001 - the same
                self.parts[name] = parser._parse_csv(parser._parse_column)  # noqa: SLF001 - the same
            case "ORDER":
                parser._match(TokenType.ORDER_BY)  # noqa: SLF001 - the same
                self.parts[name] = parser._parse_csv(parser._parse_ordered)  # noqa: SLF001 - the same
            case "MEASURES":
                self.parts[name] = [self._measure(tokens) for tokens in self._list()]
            case "DEFINE":
                self.parts[name] = [self._definition(tokens) for tokens in self._list()]
            case "SUBSET":
                self.parts[name] = [self._union(tokens) for tokens in self._list()]
            case "PATTERN":
                parser._advance()  # noqa: SLF001 - the same
                self.parts[name] = self._within_parentheses()
            case "WITHIN":
                parser._advance()  # noqa: SLF001 - the same
                self.parts[name] = parser._parse_interval() or parser._parse_primary()  # noqa: SLF001 - the same
            case _:
                self.parts[name] = self._text(list(self._until_next()))

    def _within_parentheses(self) -> str:
        parser = self.parser
        parser._match_l_paren()  # noqa: SLF001 - the parser's own
        first, depth = parser._prev.end + 1, 1  # noqa: SLF001 - the same
        while parser._curr:  # noqa: SLF001 - the same
            token = parser._curr  # noqa: SLF001 - the same
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            parser._advance()  # noqa: SLF001 - the same
            if not depth:
                return str(parser.sql[first : token.start]).strip()
        parser.raise_error("Expecting ) behind PATTERN", self.begin)
        return ""

    def _until_next(self) -> Iterator[Token]:
        """The tokens up to the next part or the end of the clause; the first one is none of a part."""
        parser, depth, first = self.parser, 0, True
        while parser._curr:  # noqa: SLF001 - the parser's own
            token = parser._curr  # noqa: SLF001 - the same
            word = token.text.upper().split()[0] if token.text.strip() else ""
            if depth == 0 and (token.token_type == TokenType.R_PAREN or (not first and self._begins(token, word))):
                return
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSED)
            first = False
            parser._advance()  # noqa: SLF001 - the same
            yield token

    def _begins(self, token: Token, word: str) -> bool:
        """Whether a part begins at the parser's token: a word alone is a name where ``AS``, a dot or a sign follows."""
        behind = self.parser._next  # noqa: SLF001 - the parser's own
        follows = behind.text.upper() if behind else ""
        match word:
            case "PATTERN":
                return follows == "("
            case "ONE" | "ALL":
                return follows in {"ROW", "ROWS"}
            case "AFTER":
                return follows == "MATCH"
            case "WITHIN":
                return follows == "INTERVAL"
            case "MEASURES" | "SUBSET" | "DEFINE":
                return follows not in {"AS", ".", ",", ")", "", "="}
            case _:
                return token.token_type in {TokenType.PARTITION_BY, TokenType.ORDER_BY}

    def _list(self) -> list[list[Token]]:
        """The elements of a list between commas, behind its word."""
        self.parser._advance()  # noqa: SLF001 - the parser's own
        elements: list[list[Token]] = [[]]
        depth = 0
        for token in self._until_next():
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSED)
            if depth == 0 and token.token_type == TokenType.COMMA:
                elements.append([])
            else:
                elements[-1].append(token)
        return elements

    def _text(self, tokens: Sequence[Token]) -> str:
        """The text of some tokens as it is written, with a space in place of comments and of words that are read over."""
        parts, before = [], tokens[0].start if tokens else 0
        for token in as_values(tokens, expression=True):
            if (
                token.start >= before
            ):  # of a number with a suffix sqlglot makes several tokens, all of them at one place
                between = self.parser.sql[before : token.start]
                parts.append(" " if between.strip() else between)  # versions are of texts: white space is left as it is
                parts.append(text_of(token, self.parser.sql))
                before = token.end + 1
        return "".join(parts).strip()

    def _named(self, tokens: Sequence[Token], at: int, what: str) -> None:
        if not 0 < at < len(tokens) - 1:
            self.parser.raise_error(f"Expecting {what}", tokens[0] if tokens else self.begin)

    def _measure(self, tokens: list[Token]) -> tuple[str, str]:
        """``LAST(A.price) AS low`` -> name and expression."""
        depth, at = 0, -1
        for position, token in enumerate(tokens):
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSED)
            at = position if depth == 0 and token.text.upper() == "AS" else at
        self._named(tokens, at if at == len(tokens) - 2 else -1, "an expression AS a name in MEASURES")
        return self._text(tokens[at + 1 :]).strip("`"), self._text(tokens[:at])

    def _definition(self, tokens: list[Token]) -> tuple[str, str]:
        """``A AS price > 1`` -> name and condition."""
        at = next((position for position, token in enumerate(tokens) if token.text.upper() == "AS"), -1)
        self._named(tokens, at, "a name AS a condition in DEFINE")
        return self._text(tokens[:at]), self._text(tokens[at + 1 :])

    def _union(self, tokens: list[Token]) -> tuple[str, list[str]]:
        """``U = (A, B)`` -> name and names."""
        at = next((position for position, token in enumerate(tokens) if token.text == "="), -1)
        self._named(tokens, at, "a name = (names) in SUBSET")
        names = [
            self._text([token])
            for token in tokens[at + 1 :]
            if token.token_type not in {*_OPEN, *_CLOSED, TokenType.COMMA}
        ]
        return self._text(tokens[:at]), names
