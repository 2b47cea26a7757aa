"""Subqueries without FROM, which are one value: ``(SELECT 5)`` as ``(5)``, ``x IN (SELECT 5)`` as ``x IN (5)``, ``EXISTS (SELECT 5)`` as ``true``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.sql.reading.spellings import NAMED_AGGREGATES

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSED = {TokenType.R_PAREN, TokenType.R_BRACKET}
_NO_VALUE = {
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.UNION,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
    TokenType.ALIAS,
    TokenType.DISTINCT,
    TokenType.ALL,
    TokenType.STAR,
    TokenType.LATERAL,
}
"""Tokens of a SELECT that is more than one value."""
_SETS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
_CLAUSES = {TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.JOIN}
"""Words that say what stands behind a comma."""
_BEFORE = {
    TokenType.SELECT,
    TokenType.WHERE,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.IN,
    TokenType.AND,
    TokenType.OR,
    TokenType.NOT,
    TokenType.BETWEEN,
    TokenType.WHEN,
    TokenType.THEN,
    TokenType.ELSE,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.GT,
    TokenType.GTE,
    TokenType.LT,
    TokenType.LTE,
    TokenType.PLUS,
    TokenType.DASH,
    TokenType.STAR,
    TokenType.SLASH,
    TokenType.MOD,
    TokenType.DPIPE,
}
"""Tokens behind which a parenthesis is a value."""

_AGGREGATES = frozenset(
    {
        *(name for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()),
        *NAMED_AGGREGATES,
        *("ANY", "COLLECT_LIST", "COLLECT_SET", "LISTAGG", "PERCENTILE", "PERCENTILE_APPROX", "STD", "STRING_AGG"),
    }
)
"""Names of aggregates."""
_ROWS = frozenset({"EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "INLINE_OUTER", "UNNEST"})
"""Names of functions that make rows."""


def as_values(tokens: Sequence[Token], *, expression: bool = False) -> list[Token]:
    """The tokens without the SELECT of subqueries that are one value.

    Args:
        tokens: of a statement, or of a part of it.
        expression: whether they are an expression, so that their first parenthesis is a value.
    """
    read: list[Token] = []
    behind = 0
    for index, token in enumerate(tokens):
        if index < behind:
            continue
        following = [each.token_type for each in tokens[index + 1 : index + 3]]
        if token.token_type == TokenType.EXISTS and following == [TokenType.L_PAREN, TokenType.SELECT]:
            behind = _end(tokens, index + 2, rows=True)
            if behind:
                end = tokens[behind - 1].end
                read.append(Token(TokenType.TRUE, "true", token.line, token.col, start=token.start, end=end))
                continue
        opened = index > 0 and tokens[index - 1].token_type == TokenType.L_PAREN
        selects = token.token_type == TokenType.SELECT and opened
        if not (selects and _is_value(tokens, index - 1, expression=expression) and _is_alone(tokens, index)):
            read.append(token)
    return read


def text_of(token: Token, sql: str) -> str:
    """The text of a token in a statement: as it is written there, unless it stands for EXISTS."""
    return token.text if token.token_type == TokenType.TRUE else sql[token.start : token.end + 1]


def _is_value(tokens: Sequence[Token], opening: int, *, expression: bool) -> bool:
    """Whether a value stands at a parenthesis: it is neither a table nor a statement."""
    depth = 0
    for index in range(opening - 1, -1, -1):
        kind = tokens[index].token_type
        if depth == 0 and kind == TokenType.L_PAREN:  # of a function, of IN, or parentheses around the value
            if index and tokens[index - 1].token_type in {TokenType.VAR, TokenType.IN}:
                return True
            return _is_value(tokens, index, expression=expression)
        if depth == 0 and index == opening - 1 and kind != TokenType.COMMA:
            return kind in _BEFORE
        if depth == 0 and kind in _CLAUSES:
            return kind == TokenType.SELECT
        depth += (kind in _CLOSED) - (kind in _OPEN)
    return expression


def _is_alone(tokens: Sequence[Token], select: int) -> bool:
    """Whether a SELECT is one value, and no part of a UNION within parentheses around it."""
    end = _end(tokens, select)
    within = select > 1 and tokens[select - 2].token_type == TokenType.L_PAREN
    return end > 0 and not (within and end < len(tokens) and tokens[end].token_type in _SETS)


def _end(tokens: Sequence[Token], select: int, *, rows: bool = False) -> int:
    """The index behind the parenthesis of a SELECT that is one expression and nothing else; 0 if it is more, an aggregate of its own, or a function that makes rows.

    With ``rows`` alone its number of rows matters, of which an aggregate is one.
    """
    depth, selects = 0, list[int]()
    for index in range(select + 1, len(tokens)):
        kind = tokens[index].token_type
        if kind == TokenType.SELECT and depth:
            selects.append(depth)
        if kind in _CLOSED and selects and selects[-1] == depth:
            selects.pop()
        if not selects and (_makes_rows(tokens, index) or (not rows and _is_of_rows(tokens, index))):
            return 0
        if kind in _CLOSED and depth == 0:
            return index + 1 if index > select + 1 else 0
        if depth == 0 and kind in _NO_VALUE and not (kind == TokenType.STAR and index > select + 1):
            return 0
        depth += (kind in _OPEN) - (kind in _CLOSED)
    return 0


def _is_of_rows(tokens: Sequence[Token], index: int) -> bool:
    """Whether an aggregate or an OVER begins at a token, which belong to the rows of their own SELECT."""
    if tokens[index].token_type == TokenType.OVER:
        return True
    following = [each.token_type for each in tokens[index + 1 : index + 3]]
    called = following[:1] == [TokenType.L_PAREN] and following[1:] != [TokenType.SELECT]
    return called and tokens[index].text.upper() in _AGGREGATES and not _names_column(tokens, index + 1)


def _makes_rows(tokens: Sequence[Token], index: int) -> bool:
    """Whether a function begins at a token that makes several rows of one, or none."""
    called = [each.token_type for each in tokens[index + 1 : index + 2]] == [TokenType.L_PAREN]
    return called and tokens[index].text.upper() in _ROWS


def _names_column(tokens: Sequence[Token], opening: int) -> bool:
    """Whether the arguments in a parenthesis name a column; without FROM it is one of the statement around the SELECT, whose aggregate it is then."""
    depth, selects = 0, list[int]()
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind in _OPEN) - (kind in _CLOSED)
        if depth == 0:
            return False
        while selects and selects[-1] > depth:
            selects.pop()
        if kind == TokenType.SELECT:
            selects.append(depth)
        called = index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN
        if not selects and not called and kind in {TokenType.VAR, TokenType.IDENTIFIER}:
            return True
    return False
