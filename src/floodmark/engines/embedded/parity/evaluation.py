"""Evaluation of arguments as in Spark, for calls of which Sail computes other arguments: those beside NULL, and casts in comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.engines.embedded.parity.nulls import left_out
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Lambda, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS, digits

_ALIKE = frozenset(
    ["=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "between", "isnull", "isnotnull", "like"]
)
"""Calls that fail for no value if their arguments are of one type."""
_TOTAL = frozenset(
    [
        "coalesce",
        "ifnull",
        "nvl",
        "nvl2",
        "nullif",
        "if",
        "nanvl",
        "isnan",
        "concat",
        "||",
        "upper",
        "lower",
        "ucase",
        "lcase",
        "trim",
        "ltrim",
        "rtrim",
        "btrim",
        "length",
        "char_length",
        "octet_length",
        "reverse",
        "contains",
        "startswith",
        "endswith",
        "replace",
        "translate",
        "md5",
        "year",
        "quarter",
        "month",
        "day",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "hour",
        "minute",
        "second",
        "weekofyear",
        "date_trunc",
        "trunc",
        "unix_millis",
        "unix_micros",
        "unix_seconds",
        "sqrt",
        "exp",
        "ln",
        "sin",
        "cos",
        "tan",
        "greatest",
        "least",
        "xxhash64",
        "hash",
        "floor",
        "ceil",
        "signum",
        "size",
        "cardinality",
        "array_contains",
        "struct",
        "named_struct",
        "array",
    ]
)
"""Other calls that fail for no value."""


def fails(node: Typed) -> bool:
    """Whether an expression may fail for some value."""
    match node.node:
        case Column() | Literal():
            return False
        case Cast(type=target, attempt=attempt):
            safe = attempt or _widens(node.children[0].type, target)
        case Case():
            safe = True
        case Call(name=name):
            alike = len(set(node.kinds)) == 1 or set(node.kinds) <= {*INTEGERS, *FLOATS}
            floating = (
                name in {"+", "-", "*", "negative"} and node.type in FLOATS and set(node.kinds) <= {*INTEGERS, *FLOATS}
            )
            safe = name in _TOTAL or (name in _ALIKE and alike) or floating
        case _:
            safe = False
    return not safe or any(fails(child) for child in node.children)


def _widens(source: str, target: str) -> bool:
    if target == "string" or (source in {*INTEGERS, *FLOATS} and target in FLOATS):
        return True
    return source in INTEGERS and target in INTEGERS and INTEGERS.index(source) <= INTEGERS.index(target)


def avoidable(node: Typed) -> bool:
    """Whether an expression may fail for some value, and Spark does not compute the expression for rows that do not need it."""
    return fails(node) and not _ahead(node)


def _ahead(node: Typed) -> bool:
    """Whether Spark computes a part of an expression for every row before the rest, because the part's value is used twice."""
    match node.node:
        case Lambda():
            return False
        case Case() | Call(name="if" | "coalesce" | "ifnull" | "nvl" | "nvl2"):
            return _ahead(node.children[0])
        case Call(name="nullif" | "between") if fails(node.children[0]):
            return True
        case _:
            return any(map(_ahead, node.children))


def beside_nulls(node: Typed, parts: Sequence[str], text: str) -> str:
    """SQL of a call that is computed only for rows for which Spark computes all arguments; null if an argument before a failing one is null.

    Args:
        node: the call.
        parts: arguments of the call as SQL.
        text: the call as SQL.
    """
    if not isinstance(node.node, Call) or any(isinstance(child.node, Lambda) for child in node.children):
        return text
    order = left_out(node.node.name, len(parts))
    earlier = {place for later, some in order.items() if avoidable(node.children[later]) for place in some}
    nulls = [parts[place] for place in sorted(earlier) if not isinstance(node.children[place].node, Literal)]
    if not nulls:
        return text
    known = " AND ".join(f"{part} IS NOT NULL" for part in nulls)
    if (
        node.type == "boolean"
    ):  # as a number: Sail turns a CASE of booleans into AND and OR, and computes these for all rows
        return f"(CASE WHEN {known} THEN CAST({text} AS int) END <> 0)"
    return f"CASE WHEN {known} THEN {text} END"


def opaque(children: Sequence[Typed], parts: Sequence[str], hide: str = "nullif") -> list[str]:
    """SQL of values to be compared, with hidden casts: Sail leaves out a cast of exact numbers beside a constant, with its error and rounding.

    Args:
        children: of the comparison.
        parts: SQL of each child.
        hide: the function that hides a cast.
    """
    if all(_named(child) for child in children):
        return list(parts)
    return [
        part if _constant(child) else hidden(child, part, hide) for child, part in zip(children, parts, strict=True)
    ]


def hidden(node: Typed, part: str, by: str = "nullif") -> str:
    """SQL of a value in which Sail does not see a cast. ``coalesce`` does not hide the cast of a value that is never null."""
    exact = node.type in INTEGERS or digits(node.type) is not None
    return f"{by}({part}, NULL)" if exact and not isinstance(node.node, Column) else part


def _constant(node: Typed) -> bool:
    return isinstance(node.node, Literal)


def _named(node: Typed) -> bool:
    """Whether a value depends on a column also after Sail has folded constants, as of ``coalesce(100, x)``, which is 100."""
    match node.node:
        case Column():
            return True
        case Case() | Call(name="if" | "coalesce" | "ifnull" | "nvl" | "nvl2"):
            return _named(node.children[0])
        case _:
            return any(map(_named, node.children))
