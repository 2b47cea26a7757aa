"""What a statement may not hold, with the reason and the form that can be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.sql.text import Text

SORTED = (
    "A stream has no last row after which it is sorted: ORDER BY its event time, or the clock, without DESC, is the order in which rows come; ORDER BY x LIMIT 10 "
    'EMIT CHANGES keeps the first rows so far; ORDER BY x EMIT FINAL has all rows once the input ends. Or sort where the result is read: floodmark sql "SELECT ... ORDER BY ...".'
)
"""What can be said in place of ORDER BY."""
LIMITED = (
    "A stream has no first rows that stay the first: say that later rows displace them, at the end: EMIT CHANGES; or EMIT FINAL, for those of all rows once the "
    "input ends. Or limit where the result is read: "
    'floodmark sql "SELECT ... LIMIT 10".'
)
"""What can be said in place of LIMIT."""
_CLAUSES: Mapping[str, tuple[str, str]] = {
    "order": ("ORDER BY", f"Write it at the end of the statement. {SORTED}"),
    "limit": ("LIMIT", f"Write it at the end of the statement. {LIMITED}"),
    "offset": (
        "OFFSET",
        "A stream has no first rows that stay the first. Limit where the result is read, by floodmark sql.",
    ),
    "sample": (
        "TABLESAMPLE",
        "A sample of a stream differs with every run; filter by a column, such as pmod(hash(id), 100) = 0.",
    ),
    "hint": (
        "a hint",
        "Take it out; the engine plans the statement itself. How long rows are held is STATE_TTL('t' = '1 d'), or the setting within.",
    ),
    "into": ("INTO", "The result is the table of the operator's name; take INTO out."),
    "locks": ("FOR UPDATE", "Nothing is locked; take it out."),
    "connect": ("CONNECT BY", "Write a process function in Python for what refers to itself."),
    "pivots": ("PIVOT", "Write an aggregate per column: SUM(amount) FILTER (WHERE shop = 'a') AS a."),
    "match": ("MATCH_RECOGNIZE", "Write it behind the table in FROM."),
    "prewhere": ("PREWHERE", "Write WHERE."),
    "cluster": ("CLUSTER BY", "Take it out; rows are divided by their keys."),
    "distribute": ("DISTRIBUTE BY", "Take it out; rows are divided by their keys."),
    "sort": ("SORT BY", "Take it out; a stream is not sorted."),
    "replace": (
        "REPLACE of columns",
        "Name the columns that you want, or leave it out by * EXCEPT (a) and write a new one beside it.",
    ),
    "rename": (
        "RENAME of columns",
        "Name the columns that you want, or leave it out by * EXCEPT (a) and write a AS b beside it.",
    ),
    "operation_modifiers": ("a modifier of SELECT", "Take it out."),
    "kind": ("SELECT AS", "Name the columns that you want."),
}
_HINTS = frozenset({"BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN"})
"""Hints that change no result: the engine plans the statement itself."""
TTL = "STATE_TTL"
"""The hint of how long rows are held."""
_SELECT = frozenset(
    {"laterals", "expressions", "from_", "joins", "where", "group", "having", "with_", "distinct", "qualify", "windows"}
)
_STAR = frozenset({"except_", "exclude"})
_TABLE = frozenset({"this", "alias", "version", "joins"})
_STATEMENTS: Mapping[type[exp.Expr], str] = {
    exp.Insert: "The result of an operator is the table of its name; write the SELECT alone.",
    exp.Create: "The result of an operator is the table of its name; write the SELECT alone, and contracts of sources in Python.",
    exp.Update: "Tables are written by operators alone; write a SELECT.",
    exp.Delete: "Tables are written by operators alone; write a SELECT.",
    exp.Drop: "Tables are written by operators alone; write a SELECT.",
}


def unsayable(text: Text, node: exp.Expr | int, what: str, fix: str) -> DefinitionError:
    """DEFINITION-382: a part of SQL that no operator can say."""
    return DefinitionError(text.at(node), "a statement that can run on a stream", what, fix, code="DEFINITION-382")


def check_statement(text: Text, node: exp.Expr) -> None:
    """Refuse what is no SELECT."""
    if isinstance(node, (exp.Select, exp.SetOperation, exp.Subquery)):
        return
    raise unsayable(text, text.tokens[0].start, text.tokens[0].text.upper(), _fix_of(node))


def check_quotes(text: Text, columns: Iterable[str]) -> None:
    """Refuse a string in double quotes that has the name of a column: Spark reads it as a string, DuckDB, Trino and PostgreSQL as the column.

    Args:
        text: of the statement.
        columns: names of the columns of the tables that it reads.

    Raises:
        DefinitionError: DEFINITION-400.
    """
    known = {column.lower() for column in (*columns, "window_start", "window_end", "window_time")}
    for token in text.tokens:
        if token.token_type == TokenType.STRING and text.sql[token.start] == '"' and token.text.lower() in known:
            fix = f"Write `{token.text}` for the column, '{token.text}' for the string: what stands in double quotes is a string, as in Spark."
            raise DefinitionError(
                text.at(token.start), "a column or a string", f'"{token.text}"', fix, code="DEFINITION-400"
            )


def check_query(text: Text, node: exp.Expr) -> None:
    """Refuse what is no query of tables by their names, where a statement is answered over all rows at once."""
    if not isinstance(node, exp.Query):
        raise unsayable(text, text.tokens[0].start, text.tokens[0].text.upper(), _fix_of(node))
    for part in node.walk():
        if isinstance(part, (exp.DML, exp.DDL, exp.Command, exp.Into)):
            raise unsayable(text, part, part.key.upper(), _fix_of(part))
        if isinstance(part, exp.Table) and (not isinstance(part.this, exp.Identifier) or part.args.get("db")):
            raise unsayable(
                text, part, "another table than those of the lake", "Name a source or an output of an operator."
            )


def _fix_of(node: exp.Expr) -> str:
    return next((fix for kind, fix in _STATEMENTS.items() if isinstance(node, kind)), "Write SELECT ... FROM ...")


def check_clauses(text: Text, node: exp.Expr) -> None:
    """Refuse the clauses of a SELECT, a set operation or a table that are not on the list of those that are understood."""
    allowed = (
        _STAR
        if isinstance(node, exp.Star)
        else _TABLE
        if isinstance(node, exp.Table)
        else _SELECT | {"this", "expression", "alias", "version", "by_name"}
    )
    for name, value in node.args.items():
        if name in allowed or not value or (name == "hint" and all(map(_only_plans, value.expressions))):
            continue
        what, fix = _CLAUSES.get(
            name, (name.upper().strip("_").replace("_", " "), "Take it out, or write the operator in Python.")
        )
        raise unsayable(text, value if isinstance(value, exp.Expr) else node, what, fix)
    distinct = node.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
        fix = "Take the first row of each key: SELECT k, x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY y) = 1."
        raise unsayable(text, distinct.args["on"], "DISTINCT ON", fix)
    with_ = node.args.get("with_")
    if with_ is not None and with_.args.get("recursive"):
        fix = "Write a process function in Python for what refers to itself."
        raise unsayable(text, with_, "WITH RECURSIVE, a statement that reads its own result", fix)


def _only_plans(hint: exp.Expr) -> bool:
    """Whether a hint is about how a statement is planned, or how long rows are held."""
    name = str(hint.this).upper() if isinstance(hint, (exp.Anonymous, exp.JoinHint)) else ""
    return name in _HINTS or name == TTL


def ttl_of(tree: exp.Expr) -> str:
    """The longest time of ``/*+ STATE_TTL('a' = '1 d') */``; empty without the hint."""
    hints = [
        hint
        for hint in tree.find_all(exp.Anonymous)
        if str(hint.this).upper() == TTL and isinstance(hint.parent, exp.Hint)
    ]
    times = [str(part.expression.this) for hint in hints for part in hint.expressions if isinstance(part, exp.EQ)]
    return max(times, key=span, default="")


MAKES_ROWS = (exp.Explode, exp.Posexplode, exp.Inline, exp.Unnest)
"""Functions that make several rows of one, or none, as sqlglot reads them."""
INLINE_OUTER = "INLINE_OUTER"
"""Another one, which sqlglot reads as any function."""


def makes_rows(node: exp.Expr) -> bool:
    """Whether a node is a function that makes several rows of one, or none."""
    named = isinstance(node, exp.Anonymous) and str(node.this).upper() == INLINE_OUTER
    return named or isinstance(node, MAKES_ROWS)


def name_of(text: Text, node: exp.Expr) -> str:
    """The name of a function as it is written, in upper case."""
    return text.of(node).partition("(")[0].strip().upper()


def check_expression(text: Text, node: exp.Expr, *, over: bool = False) -> None:
    """Refuse parts of an expression that need more than a row, except OVER where it may stand."""
    for part in node.walk():
        if isinstance(part, exp.Window) and not over:
            fix = (
                "Write it as a column of SELECT, and what reads it around that: "
                "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) WHERE rn = 1."
            )
            raise unsayable(text, part, "OVER", fix)
        if isinstance(part, (exp.Any, exp.All)) and isinstance(part.this, exp.Query):
            fix = (
                "Compare with the greatest or the least: x > ALL (SELECT y ...) is x > (SELECT MAX(y) ...), x > ANY (SELECT y ...) is "
                "x > (SELECT MIN(y) ...), with EMIT CHANGES at the end; = ANY is IN, and <> ALL is NOT IN."
            )
            raise unsayable(text, part, f"a comparison with {part.key.upper()} rows of a subquery", fix)
        inner = part.this if isinstance(part, exp.Subquery) else part
        alone = isinstance(inner, exp.Select) and inner.args.get("from_") is None
        if isinstance(part, exp.Query) and not (alone and any(map(makes_rows, part.walk()))):
            fix = (
                "Write a semi-join: FROM a LEFT SEMI JOIN b ON a.k = b.k AND b.ts BETWEEN ...; LEFT ANTI JOIN for NOT. Or end the statement with "
                "EMIT CHANGES: IN (SELECT ...) and EXISTS (SELECT ...) in WHERE, and (SELECT MAX(x) FROM t) in WHERE and in columns, are joins of rows of "
                "any time then."
            )
            raise unsayable(text, part, "a subquery in an expression", fix)
        if makes_rows(part):
            fix = "Write it in FROM: CROSS JOIN UNNEST(words) AS w(word); what Python makes is flat_map(function, schema=...)."
            raise unsayable(text, part, f"{name_of(text, part)}, which makes several rows of one", fix)
        if isinstance(part, exp.Anonymous) and str(part.this).upper() == "CURRENT_WATERMARK":
            fix = (
                "The watermark decides which rows are late: late='side_output' writes these to an output, and ctx.watermark of a process function in Python is "
                "that of each row, which is recorded with the row and the same in every replay."
            )
            raise unsayable(text, part, "CURRENT_WATERMARK, which is no column of the rows", fix)
        if isinstance(part, (exp.Placeholder, exp.Parameter)):
            raise unsayable(
                text, part, "a parameter", "Write the value; a program fills it in before it calls sql_operator."
            )
