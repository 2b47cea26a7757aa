"""Calls that Sail answers otherwise than Spark, in words in which it answers alike.

The suite (``make parity``) compares each rewrite with Spark; one that is wrong is refused like any other call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from floodmark.core.types import MAX_DIGITS, known
from floodmark.engines.embedded.parity import times
from floodmark.engines.embedded.parity.patterns import pattern, replacement
from floodmark.spec.expressions.tree import Call, Column, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS, common_of, digits

Rewrite = Callable[[Typed, Sequence[str]], str | None]
"""(a call, its arguments as SQL) -> SQL; None where the call itself will do."""

_WIDER = {"tinyint": "int", "smallint": "int", "int": "bigint", "bigint": "decimal(19,0)"}


_TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


def _arithmetic(operator: str) -> Rewrite:
    """Whole numbers one type wider, so that the cast back fails where Spark's arithmetic overflows: Sail's own wraps around."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kinds = node.kinds
        if node.type == "bigint" and len(parts) > 1 and all(_simple(child) for child in node.children):
            return _tried(operator, *parts)
        if node.type in INTEGERS and all(kind in {*INTEGERS, "void"} for kind in kinds):
            values = [f"CAST({part} AS {_WIDER[node.type]})" for part in parts]
        elif node.type in FLOATS and len(parts) > 1 and kinds[0] != kinds[1]:
            values = [f"CAST({part} AS {node.type})" for part in parts]
        else:
            return None
        return f"({f' {operator} '.join(values)})" if len(values) > 1 else f"({operator} {values[0]})"

    return rewrite


def _simple(node: Typed) -> bool:
    """Whether a value may be written twice."""
    return isinstance(node.node, (Column, Literal)) and node.type in INTEGERS


def _tried(operator: str, one: str, other: str) -> str:
    """Two bigints, checked: twice as fast as by way of decimals, but it takes the arguments twice."""
    left, right = f"CAST({one} AS bigint)", f"CAST({other} AS bigint)"
    overflow = "CAST(raise_error('ARITHMETIC_OVERFLOW of bigint') AS bigint)"
    given = f"CASE WHEN {left} IS NULL OR {right} IS NULL THEN NULL ELSE {overflow} END"
    return f"coalesce({_TRIED[operator]}({left}, {right}), {given})"


_SAFE = frozenset(
    ["=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "between", "isnull", "isnotnull", "like"]
)
"""Calls that fail for no value."""


def fails(node: Typed) -> bool:
    """Whether an expression may fail for some value."""
    if isinstance(node.node, (Column, Literal)):
        return False
    alike = len(set(node.kinds)) == 1 or set(node.kinds) <= {*INTEGERS, *FLOATS}
    safe = isinstance(node.node, Call) and node.node.name in _SAFE and alike
    return not safe or any(fails(child) for child in node.children)


def _shortened(decided: str) -> Rewrite:
    """``and``, ``or``: Spark computes the right side only where the left one does not decide, Sail for every row.

    A CASE with a number for its result is computed row by row; of a CASE of booleans Sail makes AND and OR again.
    """

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        if node.kinds != ["boolean", "boolean"] or not fails(node.children[1]):
            return None
        left, right, number = parts[0], parts[1], int(decided == "true")
        unknown = f"CASE WHEN {right} = {decided} THEN {number} END"
        return f"(CASE WHEN {left} = {decided} THEN {number} WHEN {left} IS NULL THEN {unknown} ELSE CAST({right} AS int) END <> 0)"

    return rewrite


def _in(node: Typed, parts: Sequence[str]) -> str | None:
    """Spark computes a value of the list only where those before it are not equal."""
    kind = _common(node.children)
    value, *others = parts if kind is None else _as(kind, node.children, parts)
    if not any(fails(child) for child in node.children[2:]):
        return None if kind is None else f"({value} IN ({', '.join(others)}))"
    *others, last = others
    found = f"coalesce(CAST({value} = {last} AS int) * 2, 1)"  # 2 for true, 1 for null, 0 for false
    for other in reversed(others):
        equal = f"{value} = {other}"
        found = f"CASE WHEN {equal} THEN 2 ELSE greatest({found}, CASE WHEN ({equal}) IS NULL THEN 1 ELSE 0 END) END"
    return f"(nullif({found}, 1) <> 0)"


def _between(node: Typed, parts: Sequence[str]) -> str | None:
    """Spark computes the upper bound only where the lower one does not decide."""
    kind = _common(node.children)
    value, lower, upper = parts if kind is None else _as(kind, node.children, parts)
    if not fails(node.children[2]):
        return None if kind is None else f"({value} BETWEEN {lower} AND {upper})"
    above, below = f"({value} >= {lower})", f"({value} <= {upper})"
    unknown = f"CASE WHEN {below} = false THEN 0 END"
    return f"(CASE WHEN {above} = false THEN 0 WHEN {above} IS NULL THEN {unknown} ELSE CAST({below} AS int) END <> 0)"


def _divided(node: Typed, parts: Sequence[str]) -> str | None:
    left, right, result = (digits(kind) for kind in (*node.kinds, node.type))
    if left is not None and right is not None and result is not None:
        whole = left[0] - left[1] + result[1]
        return f"(CAST({parts[0]} AS decimal({whole},{result[1]})) / {parts[1]})" if whole <= MAX_DIGITS else None
    if node.type != "double" or node.kinds == ["double", "double"]:
        return None
    return f"(CAST({parts[0]} AS double) / CAST({parts[1]} AS double))"


def _size(node: Typed, parts: Sequence[str]) -> str | None:
    if node.type not in INTEGERS:
        return None
    return f"abs(CAST({parts[0]} AS {_WIDER[node.type]}))"


def _one_zero(name: str) -> Rewrite:
    """Spark's answer has no negative zero."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        return f"({name}({', '.join(parts)}) + CAST(0 AS {node.type}))" if node.type in FLOATS else None

    return rewrite


def _compared(operator: str) -> Rewrite:
    """Both sides in the type Spark compares them in."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kind = _common(node.children)
        return None if kind is None else f" {operator} ".join(_as(kind, node.children, parts)).join("()")

    return rewrite


def _widened(form: str, skipped: int = 0) -> Rewrite:
    """All arguments behind the first ``skipped`` in the type of the call."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kind = _common(node.children[skipped:])
        if kind is None:
            return None
        values = [*parts[:skipped], *_as(kind, node.children[skipped:], parts[skipped:])]
        return form.format(*values, all=", ".join(values))

    return rewrite


def _common(children: Sequence[Typed]) -> str | None:
    """The type several values have in common; None if they have one type already, or none that is known."""
    kinds = [child.type for child in children]
    kind = common_of(kinds)
    if not kind or kind == "void" or known(kind) is None or set(kinds) <= {kind}:
        return None
    return kind


def _as(kind: str, children: Sequence[Typed], parts: Sequence[str]) -> list[str]:
    return [
        part if child.type == kind else f"CAST({part} AS {kind})" for child, part in zip(children, parts, strict=True)
    ]


def _substring(node: Typed, parts: Sequence[str]) -> str | None:
    """A start that lies before the text takes away from the length."""
    if all(
        isinstance(child.node, Literal) and isinstance(child.node.value, int) and child.node.value > 0
        for child in node.children[1:]
    ):
        return None
    text, place = parts[0], f"CAST({parts[1]} AS bigint)"
    size = "length" if node.children[0].type == "binary" else "char_length"
    begin = f"CASE WHEN {place} > 0 THEN {place} WHEN {place} = 0 THEN 1L ELSE {size}({text}) + {place} + 1L END"
    if len(parts) == 2:  # noqa: PLR2004 - to the end of the text
        return f"substring({text}, CAST(greatest({begin}, 1L) AS int))"
    end = f"({begin} + CAST({parts[2]} AS bigint))"
    first = f"greatest({begin}, 1L)"
    length = f"least(greatest({end} - {first}, 0L), CAST({size}({text}) AS bigint))"
    return f"substring({text}, CAST(least({first}, 2147483647L) AS int), CAST({length} AS int))"


def _end(name: str) -> Rewrite:
    """``left`` and ``right``: a negative length is none."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        length = node.children[1].node
        if isinstance(length, Literal) and isinstance(length.value, int) and length.value >= 0:
            return None
        return f"{name}({parts[0]}, CASE WHEN {parts[1]} < 0 THEN 0 ELSE {parts[1]} END)"

    return rewrite


def _extreme(name: str, operator: str) -> Rewrite:
    """``greatest`` and ``least``: of 0.0 and -0.0, which are equal, the first."""
    widened = _widened(f"{name}({{all}})")

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        if node.type not in FLOATS or len(parts) > 3:  # noqa: PLR2004 - each repeats those before it
            return widened(node, parts)
        best, *others = _as(node.type, node.children, parts)
        for other in others:
            best = f"CASE WHEN {other} IS NULL OR {other} {operator} {best} THEN coalesce({best}, {other}) ELSE {other} END"
        return best

    return rewrite


def _joined(node: Typed, parts: Sequence[str]) -> str | None:
    """Texts joined; other values are cast."""
    if node.type != "string" or all(child.type == "string" for child in node.children):
        return None
    return f"concat({', '.join(_as('string', node.children, parts))})"


def _matching(name: str) -> Rewrite:
    """A pattern of Java's as Sail's regular expressions have to be written."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        literal = node.children[1].node
        if not isinstance(literal, Literal) or not isinstance(literal.value, str):
            return None
        made = text_literal(pattern(literal.value, name))
        if name == "rlike":
            return f"({parts[0]} RLIKE {made})"
        others = list(parts[2:])
        if name == "regexp_replace" and isinstance(node.children[2].node, Literal):
            others[0] = text_literal(replacement(str(node.children[2].node.value), literal.value))
        return f"{name}({', '.join([parts[0], made, *others])})"

    return rewrite


def text_literal(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


REWRITES: Mapping[str, Rewrite] = {
    **{operator: _arithmetic(operator) for operator in "+-*"},
    "and": _shortened("false"),
    "or": _shortened("true"),
    "negative": _arithmetic("-"),
    "/": _divided,
    "abs": _size,
    **{name: _one_zero(name) for name in ("round", "bround", "rint")},
    **{operator: _compared(operator) for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
    "in": _in,
    "between": _between,
    **{name: _widened(f"{name}({{all}})") for name in ("coalesce", "ifnull", "nvl", "array")},
    **{name: _widened(f"{name}({{all}})", 1) for name in ("if", "nvl2")},
    **{
        name: _widened(f"{name}({{all}})")
        for name in ("array_union", "array_except", "array_intersect", "arrays_overlap")
    },
    "isnan": lambda _, parts: f"coalesce(isnan({parts[0]}), false)",
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _end("left"),
    "right": _end("right"),
    "greatest": _extreme("greatest", "<"),
    "least": _extreme("least", ">"),
    **dict.fromkeys(("concat", "||"), _joined),
    **{name: _matching(name) for name in ("rlike", "regexp", "regexp_like", "regexp_extract", "regexp_extract_all")},
    **{name: _matching(name) for name in ("regexp_replace", "regexp_count", "regexp_instr", "regexp_substr", "split")},
    **times.REWRITES,
}
"""Function or operator -> its rewrite; its result is cast to the type of the call."""


def rewritten(node: Typed) -> bool:
    """Whether a call is put in other words."""
    if not isinstance(node.node, Call):
        return False
    rewrite = REWRITES.get(node.node.name)
    return rewrite is not None and rewrite(node, ["x"] * len(node.children)) is not None
