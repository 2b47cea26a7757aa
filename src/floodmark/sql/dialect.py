"""The dialect: Spark's, with windows as table functions and as functions, and the place of every expression in its text."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.sql.reading.row_pattern import CLAUSE, RowPattern, row_pattern

WINDOW_TABLES = frozenset({"TUMBLE", "HOP", "SESSION", "CUMULATE", "CALENDAR"})
"""Windows that may stand in FROM as a table function."""
SPAN = "span"
"""Entry of a node's ``meta``: where its text begins, and the position behind its end."""
CHANGES, FINAL = "changes", "final"
_EMITS = ((("EMIT", "CHANGES"), CHANGES), (("EMIT", "ON", "WINDOW", "CLOSE"), FINAL), (("EMIT", "FINAL"), FINAL))
_FUNCTIONS = {TokenType.WINDOW, TokenType.SESSION}
"""Keywords that are names where a parenthesis or a dot follows: ``window(ts, '1 hour')``, ``window.start``."""
_FOLLOWING = {TokenType.L_PAREN, TokenType.DOT}
_SPANNED = (
    "_parse_disjunction",
    "_parse_conjunction",
    "_parse_equality",
    "_parse_comparison",
    "_parse_range",
    "_parse_bitwise",
    "_parse_term",
    "_parse_factor",
    "_parse_unary",
    "_parse_column",
    "_parse_primary",
    "_parse_paren",
    "_parse_function_call",
    "_parse_window",
)
"""Methods of the parser that return an expression from its first token to its last."""


class WindowTable(exp.Expression):
    """``TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR)`` in FROM.

    Args:
        kind: name of the function, upper case.
        this: the table or subquery.
        time: the column of event time.
        lengths: the arguments behind the time.
        partition: columns of PARTITION BY, for sessions.
        alias: of the result.
    """

    arg_types = {"kind": True, "this": True, "time": True, "lengths": True, "partition": False, "alias": False}  # noqa: RUF012 - sqlglot's own


def _spanned(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which also writes down the place of the expression that it returns."""

    @wraps(method)
    def parse(self: _Parser, *positional: Any, **named: Any) -> Any:
        begin = self._curr.start
        if positional and isinstance(positional[0], exp.Expr) and SPAN in positional[0].meta:
            begin = positional[0].meta[SPAN][0]
        before = self._index
        node = method(self, *positional, **named)
        if isinstance(node, exp.Expr) and self._index > before:
            node.meta[SPAN] = (begin, self._prev.end + 1)
        return node

    return parse


class _Parser(SparkParser):
    """Spark's parser, with methods of its own for what Spark's text lacks."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """The trees of all statements."""
        for token, following in pairwise(raw_tokens):
            if token.token_type in _FUNCTIONS and following.token_type in _FOLLOWING:
                token.token_type = TokenType.VAR
            elif token.text.upper() == CLAUSE and following.token_type == TokenType.L_PAREN:
                token.token_type = TokenType.MATCH_RECOGNIZE
            elif token.text.upper() == "EMIT" and following.text.upper() in {"CHANGES", "ON"}:
                token.token_type = TokenType.BREAK  # no alias of the table before it
        return super().parse(raw_tokens, sql)

    def _parse_table(self, *positional: Any, **named: Any) -> exp.Expr | None:
        table = self._parse_plain_table(*positional, **named)
        while table is not None and self._curr.token_type == TokenType.MATCH_RECOGNIZE:
            table = self._with_alias(row_pattern(self, table))
        return table

    def _parse_plain_table(self, *positional: Any, **named: Any) -> exp.Expr | None:
        if self._curr.text.upper() == "TABLE" and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            table = self._parse_table(*positional, **named)
            self._match_r_paren()
            return self._with_alias(table)
        if self._curr.text.upper() in WINDOW_TABLES and self._next.token_type == TokenType.L_PAREN:
            return self._with_alias(self._parse_window_table())
        table = super()._parse_table(*positional, **named)
        if isinstance(table, (exp.Subquery, exp.Table)) and table.args.get("version") is None:
            version = self._parse_version()
            if version is not None:
                table.set("version", version)
                alias = None if table.args.get("alias") else self._parse_table_alias()
                table.set("alias", alias or table.args.get("alias"))
        return table

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        """An alias, which the words of EMIT are none of."""
        if any(self._curr.text.upper() == words[0] and self._next.text.upper() == words[1] for words, _ in _EMITS):
            return None
        return super()._parse_table_alias(alias_tokens)

    def _with_alias(self, table: exp.Expr | None) -> exp.Expr | None:
        if isinstance(table, (WindowTable, RowPattern)) and not table.args.get("alias"):
            alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
            if alias:
                table.set("alias", alias)
        return table

    def _parse_window_table(self) -> WindowTable:
        name = self._curr
        self._advance(2)
        self._named_argument("DATA")
        self._match(TokenType.TABLE)
        table = self._parse_table()
        partition: list[Any] = []
        if self._match(TokenType.PARTITION_BY):
            partition.append(self._parse_column())
            while self._curr.token_type == TokenType.COMMA and self._next.text.upper() not in {"DESCRIPTOR", "TIMECOL"}:
                self._advance()
                partition.append(self._parse_column())
        self._expect_comma()
        self._named_argument("TIMECOL")
        time = self._parse_disjunction()
        lengths: list[Any] = []
        while self._match(TokenType.COMMA):
            self._named_argument("SIZE", "SLIDE", "STEP", "GAP", "OFFSET")
            lengths.append(self._parse_disjunction())
        self._match_r_paren()
        node = WindowTable(kind=name.text.upper(), this=table, time=time, lengths=lengths, partition=partition)
        node.meta[SPAN] = (name.start, self._prev.end + 1)
        return node

    def _expect_comma(self) -> None:
        if not self._match(TokenType.COMMA):
            self.raise_error("Expecting a comma and the column of event time")

    def _named_argument(self, *names: str) -> None:
        """Move behind ``DATA =>``."""
        if self._curr.text.upper() in names and self._next.token_type == TokenType.FARROW:
            self._advance(2)

    def _parse_query_modifiers(self, this: Any) -> Any:
        query = super()._parse_query_modifiers(this)
        if isinstance(query, exp.Select):
            self._parse_emit(query)
        return query

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        """EMIT at the end is of the whole, also where it is written behind the last SELECT without parentheses."""
        query = super()._parse_set_operations(this)
        if isinstance(query, exp.SetOperation):
            self._parse_emit(query)
            last = query.expression
            while isinstance(last, (exp.SetOperation, exp.Subquery)):
                last = last.expression if isinstance(last, exp.SetOperation) else last.this
            if "emit" in last.meta:
                query.meta["emit"] = last.meta.pop("emit")
        return query

    def _parse_emit(self, query: exp.Expr) -> None:
        for words, what in _EMITS:
            if self._match_text_seq(*words):
                query.meta["emit"] = what


for _name in _SPANNED:
    setattr(_Parser, _name, _spanned(getattr(_Parser, _name)))


class FloodmarkDialect(Spark):
    """Spark's SQL with windows as table functions."""

    Parser = _Parser
