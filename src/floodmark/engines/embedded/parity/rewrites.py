"""Rewrites of calls that Sail computes otherwise than Spark, to SQL with which Sail gives Spark's answer.

The suite (``make parity``) compares each rewrite with Spark; a call with a wrong rewrite is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from floodmark.core.sql import spark_literal
from floodmark.core.types import known
from floodmark.engines.embedded.parity import arithmetic, times
from floodmark.engines.embedded.parity.arithmetic import Rewrite
from floodmark.engines.embedded.parity.casts import converted
from floodmark.engines.embedded.parity.evaluation import avoidable, fails, hidden, opaque
from floodmark.engines.embedded.parity.patterns import OtherPattern, pattern, replacement
from floodmark.engines.embedded.parity.times import refused
from floodmark.spec.expressions.tree import Call, Cast, Column, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS, common_of

_DAYS = 90_000_000
"""Most days that may be added to a date of the years 1 to 9999 on Sail."""
_MICROS = 8_200_000_000_000_000_000
"""Most microseconds from 1970 for which Sail makes a timestamp."""
_FLOAT_KEYS = re.compile(r"(array<(struct<\w+:)?|map<)?(double|float)\b")
"""Types of arguments with floating keys for a map: a key, an array of keys or of entries, another map."""
_NULL_KEY = "[NULL_MAP_KEY] Cannot use null as map key. SQLSTATE: 2200E"


def _shortened(decided: str) -> Rewrite:
    """``and``, ``or``: Spark computes the right side only for rows that the left side does not decide, Sail for every row.

    The rewrite is a CASE of numbers, which Sail computes row by row; Sail would turn a CASE of booleans into AND and OR again.
    """

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        first, second = node.children
        if fails(first) and parts[1] == decided:
            message = f"a condition that may fail beside {decided}, for which Sail leaves it out,"
            raise OtherPattern(message)
        if node.kinds != ["boolean", "boolean"] or not avoidable(second):
            return None
        left, right, number = parts[0], parts[1], int(decided == "true")
        unknown = f"CASE WHEN {right} = {decided} THEN {number} END"
        return f"(CASE WHEN {left} = {decided} THEN {number} WHEN {left} IS NULL THEN {unknown} ELSE CAST({right} AS int) END <> 0)"

    return rewrite


def _of_bigint(node: Typed, _: Sequence[str]) -> str | None:
    """A function of a bigint: refuses other numbers, which Sail does not cast as Spark does."""
    if node.kinds[0] not in {*INTEGERS, "void"}:
        message = f"{node.kinds[0]} where a whole number is expected"
        raise OtherPattern(message)
    return None


def _keyed(node: Typed, _: Sequence[str]) -> str | None:
    """A map: refuses floating keys, as 0.0 and -0.0 are one key for Spark and two for Sail."""
    keys = node.kinds[::2] if isinstance(node.node, Call) and node.node.name == "map" else node.kinds[:1]
    if any(map(_FLOAT_KEYS.match, keys)):
        message = "a map with floats as keys, of which 0.0 and -0.0 are one or two,"
        raise OtherPattern(message)
    return None


def _map(node: Typed, parts: Sequence[str]) -> str | None:
    """``map``: a null key raises Spark's error."""
    _keyed(node, parts)
    keys = {
        place: f"coalesce({parts[place]}, CAST(raise_error('{_NULL_KEY}') AS {node.kinds[place]}))"
        for place in range(0, len(parts), 2)
        if not isinstance(node.children[place].node, Literal)
    }
    return f"map({', '.join(keys.get(place, part) for place, part in enumerate(parts))})" if keys else None


def _decoded(node: Typed, _: Sequence[str]) -> str | None:
    """``decode`` of a text in a character set; refuses that of pairs of values, which Sail does not have."""
    if len(node.children) != len(("text", "character set")):
        message = "decode of pairs of values, for which CASE x WHEN a THEN b ELSE c END is written,"
        raise OtherPattern(message)
    return None


def _in(node: Typed, parts: Sequence[str]) -> str | None:
    """``in``: Spark computes a value of the list only if no value before it is equal."""
    kind = _common(node.children)
    held = opaque(node.children, parts, "coalesce")  # coalesce, as in a list Sail folds nullif(x, NULL) to NULL
    value, *others = held if kind is None else _as(kind, node.children, held)
    if (kind or node.children[0].type) in FLOATS:  # a list distinguishes -0.0 from 0.0
        kind = kind or node.children[0].type
        value, *others = (f"({part} + CAST(0 AS {kind}))" for part in (value, *others))
    if not any(avoidable(child) for child in node.children[2:]):
        if not all(isinstance(child.node, (Literal, Column)) for child in node.children[1:]):
            # in a list with a CASE that is null, Sail finds no null
            return " OR ".join(f"({value} = {other})" for other in others).join("()")
        return None if [value, *others] == list(parts) else f"({value} IN ({', '.join(others)}))"
    *others, last = others
    code = f"coalesce(CAST({value} = {last} AS int) * 2, 1)"  # 2 for true, 1 for null, 0 for false
    for other in reversed(others):
        equal = f"{value} = {other}"
        code = f"CASE WHEN {equal} THEN 2 ELSE greatest({code}, CASE WHEN ({equal}) IS NULL THEN 1 ELSE 0 END) END"
    return f"(nullif({code}, 1) <> 0)"


def _between(node: Typed, parts: Sequence[str]) -> str | None:
    """``between``: Spark computes the upper bound only if the lower bound does not decide the result."""
    kind = _common(node.children)
    held = opaque(node.children, parts)
    value, lower, upper = held if kind is None else _as(kind, node.children, held)
    if not avoidable(node.children[2]):
        return None if [value, lower, upper] == list(parts) else f"({value} BETWEEN {lower} AND {upper})"
    above, below = f"({value} >= {lower})", f"({value} <= {upper})"
    unknown = f"CASE WHEN {below} = false THEN 0 END"
    return f"(CASE WHEN {above} = false THEN 0 WHEN {above} IS NULL THEN {unknown} ELSE CAST({below} AS int) END <> 0)"


def _one_zero(name: str) -> Rewrite:
    """A function whose result on Spark is never -0.0."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        return f"({name}({', '.join(parts)}) + CAST(0 AS {node.type}))" if node.type in FLOATS else None

    return rewrite


def _compared(operator: str) -> Rewrite:
    """A comparison with both sides in the type in which Spark compares them."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kind = _common(node.children)
        sides = opaque(node.children, parts)
        text = f" {operator} ".join(sides if kind is None else _as(kind, node.children, sides)).join("()")
        return None if text == f"({parts[0]} {operator} {parts[1]})" else text

    return rewrite


def _widened(form: str, skipped: int = 0) -> Rewrite:
    """A call with all arguments after the first ``skipped`` in their common type."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kind = _common(node.children[skipped:])
        if kind is None:
            return None
        values = [*parts[:skipped], *_as(kind, node.children[skipped:], parts[skipped:])]
        return form.format(*values, all=", ".join(values))

    return rewrite


def _coalesced(node: Typed, parts: Sequence[str]) -> str:
    """``nvl`` as ``coalesce``, since Sail's ``nvl`` casts decimals to double."""
    return _widened("coalesce({all})")(node, parts) or f"coalesce({', '.join(parts)})"


def _common(children: Sequence[Typed]) -> str | None:
    """The common type of several values; None if they have one type already, or no known common type."""
    kinds = [child.type for child in children]
    kind = common_of(kinds)
    if not kind or kind == "void" or known(kind) is None or set(kinds) <= {kind}:
        return None
    return kind


def _as(kind: str, children: Sequence[Typed], parts: Sequence[str]) -> list[str]:
    return [
        part if child.type == kind else converted(part, child.type, kind)
        for child, part in zip(children, parts, strict=True)
    ]


def _substring(node: Typed, parts: Sequence[str]) -> str | None:
    """``substring``: a start before the text shortens the result."""
    if all(
        isinstance(child.node, Literal) and isinstance(child.node.value, int) and child.node.value > 0
        for child in node.children[1:]
    ):
        return None
    start = node.children[1]
    text, position = (
        parts[0],
        f"CAST({parts[1] if isinstance(start.node, Literal) else hidden(start, parts[1])} AS bigint)",
    )
    size = "length" if node.children[0].type == "binary" else "char_length"
    begin = f"CASE WHEN {position} > 0 THEN {position} WHEN {position} = 0 THEN 1L ELSE {size}({text}) + {position} + 1L END"
    if len(parts) == 2:  # noqa: PLR2004 - to the end of the text
        return f"substring({text}, CAST(greatest({begin}, 1L) AS int))"
    end = f"({begin} + CAST({parts[2]} AS bigint))"
    first = f"greatest({begin}, 1L)"
    length = f"least(greatest({end} - {first}, 0L), CAST({size}({text}) AS bigint))"
    return f"substring({text}, CAST(least({first}, 2147483647L) AS int), CAST({length} AS int))"


def _end(name: str) -> Rewrite:
    """``left`` and ``right``: a negative length counts as 0."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        length = node.children[1].node
        if isinstance(length, Literal) and isinstance(length.value, int) and length.value >= 0:
            return None
        count = parts[1] if isinstance(length, Literal) else hidden(node.children[1], parts[1])
        return f"{name}({parts[0]}, CASE WHEN {count} < 0 THEN 0 ELSE {parts[1]} END)"

    return rewrite


def _chosen(node: Typed, _: Sequence[str]) -> str | None:
    """``elt``: refuses an index that may be invalid, for which Sail raises no error."""
    match node.children[0].node:
        case Literal(value=int() as place) if 0 < place < len(node.children):
            return None
    message = "elt with an index that is not the number of an argument"
    raise OtherPattern(message)


def _differing(node: Typed, _: Sequence[str]) -> str | None:
    """``^``: refuses a repeated operand, as Sail simplifies ``a ^ a`` to 0 and ``a ^ b ^ a`` to ``b``, also if ``a`` is null."""
    operands = [part for part in _parts_of("^", node) if not isinstance(part.node, Literal)]
    if len(set(operands)) < len(operands):
        message = "^ of one value twice, of which Sail gives a value where it is null,"
        raise OtherPattern(message)
    return None


def _parts_of(operator: str, node: Typed) -> Iterator[Typed]:
    """The operands of an operator; an operand that is a call of the same operator is replaced by its operands."""
    for child in node.children:
        inner = child.children[0] if isinstance(child.node, Cast) else child
        match inner.node:
            case Call(name=name) if name == operator:
                yield from _parts_of(operator, inner)
            case _:
                yield inner


def _of_sets(name: str) -> Rewrite:
    """Functions of sets: refuses floats, of which Spark treats 0.0 and -0.0 as one value or as two."""
    widened = _widened(f"{name}({{all}})")

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        if any(float_ in kind for kind in node.kinds for float_ in FLOATS):
            message = f"{name} of floats, of which 0.0 and -0.0 are one or two,"
            raise OtherPattern(message)
        return widened(node, parts)

    return rewrite


def _reaching(name: str, most: int, otherwise: Rewrite = lambda _, __: None) -> Rewrite:
    """Arithmetic of dates: refuses rows with a distance above ``most``, as Sail has no dates after the year 262142."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        far = [place for place, child in enumerate(node.children) if child.type in INTEGERS]
        if node.type != "date" or not far or isinstance(node.children[far[0]].node, Literal):
            return otherwise(node, parts)
        count = f"CAST({hidden(node.children[far[0]], parts[far[0]])} AS bigint)"
        text = f"{name}({', '.join(parts)})" if name.isidentifier() else f" {name} ".join(parts).join("()")
        far_off = [f"{count} NOT BETWEEN -{most}L AND {most}L"]
        far_off += [f"{part} IS NOT NULL" for place, part in enumerate(parts) if place != far[0]]
        return f"CASE WHEN {' AND '.join(far_off)} THEN {refused('a date so far away', 'date')} ELSE {text} END"

    return rewrite


def _moment(node: Typed, parts: Sequence[str]) -> str | None:
    """``timestamp_micros``: refuses instants after the year 262142, for which Sail gives the text ERROR."""
    if node.kinds[0] not in INTEGERS or isinstance(node.children[0].node, Literal):
        return None
    far = f"CAST({hidden(node.children[0], parts[0])} AS bigint) NOT BETWEEN -{_MICROS}L AND {_MICROS}L"
    return (
        f"CASE WHEN {far} THEN {refused('an instant so far away', 'timestamp')} ELSE timestamp_micros({parts[0]}) END"
    )


def _element(node: Typed, parts: Sequence[str]) -> str | None:
    """``[]`` of a map as ``element_at``, since Sail's ``[]`` accepts no computed key."""
    match node.children[0]:
        case Typed(node=Call(name="map"), children=children) if not all(
            isinstance(key.node, Literal) for key in children[::2]
        ):
            message = "an element of map(...) with keys that are computed, for which Spark makes no map,"
            raise OtherPattern(message)
    return f"element_at({parts[0]}, {parts[1]})" if node.kinds[0].startswith("map<") else None


def _extreme(name: str, operator: str) -> Rewrite:
    """``greatest`` and ``least``: of 0.0 and -0.0, which are equal, the first is the result."""
    widened = _widened(f"{name}({{all}})")

    def better(best: str, other: str) -> str:
        return f"CASE WHEN {best} IS NULL OR {other} {operator} {best} THEN coalesce({other}, {best}) ELSE {best} END"

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        if node.type not in FLOATS:
            return widened(node, parts)
        values = _as(node.type, node.children, parts)
        if len(values) == 2:  # noqa: PLR2004 - more of them would be written many times
            return better(*values)
        return f"aggregate(array({', '.join(values)}), CAST(NULL AS {node.type}), (best, other) -> {better('best', 'other')})"

    return rewrite


def _null_where_equal(node: Typed, parts: Sequence[str]) -> str | None:
    """``nullif`` of floating numbers: 0.0 and -0.0 are equal."""
    kind = common_of(node.kinds)
    if kind not in FLOATS or "void" in node.kinds:
        return None
    left, right = _as(kind, node.children, opaque(node.children, parts))
    return f"CASE WHEN {left} = {right} THEN NULL ELSE {parts[0]} END"


def _joined(node: Typed, parts: Sequence[str]) -> str | None:
    """``concat`` of texts with other values, which are cast to text."""
    if node.type != "string" or all(child.type == "string" for child in node.children):
        return None
    return f"concat({', '.join(_as('string', node.children, parts))})"


def _matching(name: str) -> Rewrite:
    """A function of a regular expression, with Java's pattern translated to Sail's."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        literal = node.children[1].node
        if not isinstance(literal, Literal) or not isinstance(literal.value, str):
            return None
        made = spark_literal(pattern(literal.value, name))
        if name == "rlike":
            return f"({parts[0]} RLIKE {made})"
        others = list(parts[2:])
        if name == "regexp_replace" and isinstance(node.children[2].node, Literal):
            others[0] = spark_literal(replacement(str(node.children[2].node.value), literal.value))
        return f"{name}({', '.join([parts[0], made, *others])})"

    return rewrite


REWRITES: Mapping[str, Rewrite] = {
    "[]": _element,
    **arithmetic.REWRITES,
    "and": _shortened("false"),
    "or": _shortened("true"),
    **{name: _one_zero(name) for name in ("round", "bround", "rint")},
    **{operator: _compared(operator) for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
    "in": _in,
    "decode": _decoded,
    "between": _between,
    **{name: _widened(f"{name}({{all}})") for name in ("coalesce", "array")},
    **dict.fromkeys(("ifnull", "nvl"), _coalesced),
    **{name: _widened(f"{name}({{all}})", 1) for name in ("if", "nvl2")},
    **{name: _widened(f"{name}({{all}})") for name in ("array_union", "arrays_overlap")},
    **{name: _of_sets(name) for name in ("array_except", "array_intersect")},
    "elt": _chosen,
    "^": _differing,
    "timestamp_micros": _moment,
    **{name: _reaching(name, _DAYS) for name in ("date_add", "dateadd", "date_sub")},
    "add_months": _reaching("add_months", _DAYS // 31),
    "date_from_unix_date": _reaching("date_from_unix_date", _DAYS),
    **{operator: _reaching(operator, _DAYS, arithmetic.REWRITES[operator]) for operator in "+-"},
    **dict.fromkeys(("bitmap_bucket_number", "bitmap_bit_position"), _of_bigint),
    "map": _map,
    **dict.fromkeys(("map_from_arrays", "map_from_entries", "map_concat"), _keyed),
    "isnan": lambda _, parts: f"coalesce(isnan({parts[0]}), false)",
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _end("left"),
    "right": _end("right"),
    "greatest": _extreme("greatest", ">"),
    "least": _extreme("least", "<"),
    "nullif": _null_where_equal,
    **dict.fromkeys(("concat", "||"), _joined),
    **{name: _matching(name) for name in ("rlike", "regexp", "regexp_like", "regexp_extract", "regexp_extract_all")},
    **{name: _matching(name) for name in ("regexp_replace", "regexp_count", "regexp_instr", "regexp_substr", "split")},
    **times.REWRITES,
}
"""Function or operator -> its rewrite; its result is cast to the type of the call."""


def rewritten(node: Typed) -> bool:
    """Whether a call is rewritten."""
    if not isinstance(node.node, Call):
        return False
    rewrite = REWRITES.get(node.node.name)
    return rewrite is not None and rewrite(node, ["x"] * len(node.children)) is not None
