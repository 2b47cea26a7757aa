"""The text of a statement: its places for messages, and the text of its expressions."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.sql.dialect import SPAN, FloodmarkDialect
from floodmark.sql.reading.single_values import as_values, text_of
from floodmark.sql.reading.spellings import composed, respelled

LONGEST_TEXT = 100_000
"""Longest text of a statement, characters."""
_CONSTANTS = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)
_UNDERLINE = re.compile(r"\x1b\[\d+m")
Replacement = Callable[[exp.Expr], str | None]
"""A node of an expression -> the text in its place; None for its own."""


@dataclass(frozen=True, slots=True)
class Text:
    """A statement's text and tokens.

    Args:
        where: the operator or the file, for messages.
        sql: the text.
        tokens: of the text, without comments.
    """

    where: str
    sql: str
    tokens: tuple[Token, ...]

    def at(self, node: exp.Expr | int) -> str:
        """The place of a node, or of a character, for messages: ``operator 'x', line 3, column 8``."""
        begin = node if isinstance(node, int) else begin_of(node)
        lines = self.sql[:begin].split("\n")
        return f"{self.where}, line {len(lines)}, column {len(lines[-1]) + 1}"

    def placed(self, error: DefinitionError | CapabilityError, tree: exp.Expr) -> DefinitionError | CapabilityError:
        """(error of a step, the statement) -> the error at the place of the column or of the text that it names; at the statement's begin if it names none."""
        if ", line " in error.where:
            return error
        named = re.search(r"column '([^']+)'", error.where)
        node = next((a for a in tree.find_all(exp.Alias) if named is not None and a.alias == named[1]), None)
        words = [*re.findall(r"'([^']+)'", error.got), error.got.split(" of ")[0], error.got.split()[-1]]
        begins = [match.start() for word in words if (match := _word(word).search(self.sql)) is not None]
        at = self.at(node if node is not None else begins[0] if begins else tree)
        detail = error.where.removeprefix(self.where).strip(", ")
        where = f"{at}, {detail}" if detail else at
        return type(error)(where, error.expected, error.got, error.fix, code=error.code)

    def of(self, node: exp.Expr, replacement: Replacement | None = None) -> str:
        """The text of an expression without comments and line breaks, with replacements for some of its nodes.

        Raises:
            DefinitionError: DEFINITION-382, a part that sqlglot has put there itself, for a form that no step has.
        """
        if SPAN not in node.meta and isinstance(
            node, _CONSTANTS
        ):  # an argument alone, whose place sqlglot does not write down
            return node.sql(FloodmarkDialect)
        if SPAN not in node.meta and isinstance(node, exp.And):  # made of conditions that stand apart in the text
            return f"{self.of(node.left, replacement)} AND {self.of(node.right, replacement)}"
        if SPAN not in node.meta and isinstance(node, exp.Paren):
            return f"({self.of(node.this, replacement)})"
        if SPAN not in node.meta:
            fix = "Write it in another way: docs/sql.md names what a stream computes."
            expected, got = "an expression that a stream computes", node.sql(FloodmarkDialect)[:200]
            raise DefinitionError(self.at(node), expected, got, fix, code="DEFINITION-382")
        begin, end = node.meta[SPAN]
        replaced = sorted(self._replaced(node, replacement))
        parts: list[str] = []
        before = begin
        for token in self.tokens:
            if token.start < max(begin, before) or token.end >= end:
                continue  # sqlglot makes several tokens of `10L`, all of them at one place
            inside = next(((low, high, text) for low, high, text in replaced if low <= token.start < high), None)
            if inside is not None and token.start != inside[0]:
                before = token.end + 1
                continue
            parts.append(" " if token.start > before else "")
            parts.append(inside[2] if inside else text_of(token, self.sql))
            before = token.end + 1
        return "".join(parts)

    def _replaced(self, node: exp.Expr, replacement: Replacement | None) -> Iterator[tuple[int, int, str]]:
        text = replacement(node) if replacement is not None else None
        if text is None:
            text = respelled(node, self.sql, lambda part: self._written(part, replacement))
        if text is not None:
            yield (*span_of(node), text)
            return
        if isinstance(node, exp.Column):
            return
        for child in node.iter_expressions():
            yield from self._replaced(child, replacement)

    def _written(self, node: exp.Expr, replacement: Replacement | None) -> str:
        """The text of a part of what is spelled otherwise."""
        text = replacement(node) if replacement is not None else None
        if text is None and isinstance(node, exp.Literal) and SPAN not in node.meta:
            return node.sql(FloodmarkDialect)
        return self.of(node, replacement) if text is None else text


def _word(text: str) -> re.Pattern[str]:
    """The pattern of a text that is not a part of another word."""
    return re.compile(rf"(?<![\w]){re.escape(text)}(?![\w])")


def span_of(node: exp.Expr) -> tuple[int, int]:
    """Where a node's text begins, and the position behind its end; of a column the name with its qualifier."""
    if isinstance(node, exp.Column):
        parts = [part for part in node.parts if "start" in part.meta]
        if parts:
            return parts[0].meta["start"], parts[-1].meta["end"] + 1
    begin, end = node.meta[SPAN]
    return begin, end


def begin_of(node: exp.Expr) -> int:
    """Where a node's text begins; 0 if the node has no place."""
    begins = [part.meta[SPAN][0] for part in node.walk() if part.meta.get(SPAN) is not None]
    begins += [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(begins, default=0)


def derived_name(text: str) -> str:
    """(text of an expression) -> a name for its column: ``AVG(dep_delay)`` -> ``avg_dep_delay``."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:60].strip("_")
    return name if name and not name[0].isdigit() else f"value_{name}".strip("_")


def new_name(name: str, taken: Sequence[str], suffix: str = "2") -> str:
    """The name, with a suffix as often as it takes to be none of those that are taken."""
    while name in taken:
        name = f"{name}_{suffix}"
    return name


_TAIL = frozenset({TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET})


def tail_of(text: Text) -> int:
    """Where ORDER BY, LIMIT or OFFSET of the whole statement begin; the length of the text if there are none."""
    depth, ends = 0, len(text.sql)
    for token in reversed(text.tokens):
        depth += (token.token_type == TokenType.R_PAREN) - (token.token_type == TokenType.L_PAREN)
        if depth == 0 and token.token_type in _TAIL:
            ends = token.start
    return ends


def parsed(sql: object, where: str) -> tuple[Text, exp.Expr]:
    """Read one statement.

    Raises:
        DefinitionError: DEFINITION-380 not text, too long or several statements; DEFINITION-381 not SQL.
    """
    if not isinstance(sql, str) or not sql.strip() or len(sql) > LONGEST_TEXT:
        got = f"{len(sql):,} characters" if isinstance(sql, str) else repr(sql)
        fix = "Write SELECT ... FROM ...; what is longer than that belongs into several operators that read each other."
        raise DefinitionError(
            where, f"a statement of 1 to {LONGEST_TEXT:,} characters", got, fix, code="DEFINITION-380"
        )
    dialect = FloodmarkDialect()
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it does not read is refused with its place
    try:
        tokens = as_values(dialect.tokenize(sql))
        trees = [tree for tree in dialect.parser().parse(list(tokens), sql) if tree is not None]
    except RecursionError:
        got, fix = "one that is nested too deeply", "Take it apart into several operators that read each other."
        raise DefinitionError(where, "a statement of SQL", got, fix, code="DEFINITION-381") from None
    except SqlglotError as error:
        raise _unreadable(error, where) from None
    text = Text(where, sql, tuple(tokens))
    pipe = next((token for token in tokens if token.token_type == TokenType.PIPE_GT), None)
    if pipe is not None:
        fix = "Write SELECT ... FROM ... WHERE ..."
        raise DefinitionError(text.at(pipe.start), "a statement of SQL", "|>", fix, code="DEFINITION-381")
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        fix = "Write each statement as an operator of its own; a file holds one."
        got = f"{len(trees)} statements"
        raise DefinitionError(text.at(trees[1]) if trees else where, "one statement", got, fix, code="DEFINITION-380")
    return text, composed(trees[0])


def _plainly(description: str) -> str:
    """A message of sqlglot without its own objects."""
    if "SENTINEL" in description:
        return "the end of the statement where a table or a column is expected"
    if description.startswith("Invalid expression"):
        return "a word or a sign that nothing reads"
    if description.startswith("Expecting ") and len(description) == len("Expecting )"):
        return f"no {description[-1]} where it is due"
    missing = re.match(r"Required keyword: '\w+' missing for <class '[\w.]+\.(\w+)'>", description)
    return f"an operand is missing ({missing[1].upper()})" if missing else description


def _unreadable(error: SqlglotError, where: str) -> DefinitionError:
    message = _UNDERLINE.sub("", str(error)).split("\n")[0].strip().rstrip(".")
    if isinstance(error, TokenError):
        message = f"a string, a name or a comment without its end, behind {message.partition(chr(39))[2][-20:].rstrip(chr(39))!r}"
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        column = max(1, (first["col"] or 1) - len(first["highlight"] or "") + 1)
        where = f"{where}, line {first['line']}, column {column}"
        near = f" at {first['highlight']!r}" if first["highlight"] else ""
        message = f"{_plainly(str(first['description']))}{near}"
    fix = "Names that are words of SQL stand in backticks: `order`; strings in single quotes."
    return DefinitionError(where, "a statement of SQL", message, fix, code="DEFINITION-381")
