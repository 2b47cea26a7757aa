"""The Spark type of each node of a tree (Spark 4.2, ANSI mode)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from floodmark.spec.expressions.functions import BARE, fixed_type
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal, Node
from floodmark.spec.expressions.widening import (
    FLOATS,
    INTEGERS,
    SCALARS,
    arithmetic,
    as_decimal,
    bounded,
    common,
    common_of,
    digits,
    element,
    is_number,
    members,
)


class UnknownColumn(Exception):  # noqa: N818 - made a DefinitionError by ``check``
    """A name that is no column."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Mismatch(Exception):  # noqa: N818 - made a DefinitionError by ``check``
    """Types Spark refuses: what was expected, and what is there."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got


@dataclass(frozen=True, slots=True)
class Typed:
    """A node with its type and those below it, in the order of ``tree.children``.

    Args:
        node: of the tree.
        type: Spark SQL type; ``void`` of NULL, empty if it is not known.
        children: typed.
        column: the column of the schema a name stands for; empty for everything else.
    """

    node: Node
    type: str
    children: tuple[Typed, ...] = ()
    column: str = ""

    @property
    def kinds(self) -> list[str]:
        """The types of the children."""
        return [child.type for child in self.children]


def infer(node: Node, columns: Mapping[str, str]) -> Typed:
    """Type a tree.

    Args:
        node: its root.
        columns: name -> type.

    Raises:
        UnknownColumn, Mismatch: as Spark's analyser would.
    """
    return _infer(node, {name.lower(): (name, kind) for name, kind in columns.items()}, {})


_Columns = Mapping[str, tuple[str, str]]
_Scope = Mapping[str, str]


def _infer(node: Node, columns: _Columns, scope: _Scope) -> Typed:
    match node:
        case Literal(type=kind):
            return Typed(node, kind)
        case Column(name=name):
            return _column(node, name, columns, scope)
        case Cast(value=value, type=kind):
            inner = _infer(value, columns, scope)
            _check_cast(inner.type, kind)
            return Typed(node, kind, (inner,))
        case Case(branches=branches, otherwise=otherwise):
            return _case(node, branches, otherwise, columns, scope)
        case Field(value=value, name=name):
            inner = _infer(value, columns, scope)
            return Typed(node, _field(inner.type, name), (inner,))
        case Call(name=name, arguments=arguments):
            return _call(node, name, arguments, columns, scope)
        case Lambda():
            expected = "a function that takes a lambda, such as transform"
            raise Mismatch(expected, "a lambda alone")


def _column(node: Column, name: str, columns: _Columns, scope: _Scope) -> Typed:
    if name.lower() in scope:
        return Typed(node, scope[name.lower()])
    if name.lower() in columns:
        column, kind = columns[name.lower()]
        return Typed(node, kind, column=column)
    if not node.quoted and name.lower() in BARE:
        return Typed(Call(name.lower(), ()), fixed_type(name.lower()))
    raise UnknownColumn(name)


def _field(kind: str, name: str) -> str:
    if not kind:
        return ""
    if kind.startswith("map<"):
        return members(kind)[1][1]
    for field, inner in members(kind):
        if field.lower() == name.lower():
            return inner
    raise Mismatch(f"a struct with a field '{name}'", f"a value of type {kind}")


def _case(
    node: Case, branches: tuple[tuple[Node, Node], ...], otherwise: Node | None, columns: _Columns, scope: _Scope
) -> Typed:
    conditions = [_infer(condition, columns, scope) for condition, _ in branches]
    values = [_infer(value, columns, scope) for _, value in branches]
    for condition in conditions:
        if condition.type not in {"boolean", "void", ""}:
            raise Mismatch("a condition after WHEN", f"a value of type {condition.type}")
    below = [part for pair in zip(conditions, values, strict=True) for part in pair]
    if otherwise is not None:
        values.append(_infer(otherwise, columns, scope))
        below.append(values[-1])
    return Typed(node, _together(values, "CASE"), tuple(below))


def _call(node: Call, name: str, arguments: tuple[Node, ...], columns: _Columns, scope: _Scope) -> Typed:
    if any(isinstance(argument, Lambda) for argument in arguments):
        children = _with_lambdas(name, arguments, columns, scope)
    else:
        children = tuple(_infer(argument, columns, scope) for argument in arguments)
    expected = _COUNTS.get(name, len(children))
    if len(children) != expected:
        raise Mismatch(f"{name} of {expected} argument{'s' * (expected > 1)}", str(len(children)))
    check = _CHECKS.get(name)
    rule = RULES.get(name)
    try:
        if check is not None:
            check(name, children)
        kind = fixed_type(name) if rule is None else rule(children)
    except IndexError:
        raise Mismatch(f"more arguments of {name}", str(len(children))) from None
    return Typed(node, kind, children)


def _with_lambdas(name: str, arguments: tuple[Node, ...], columns: _Columns, scope: _Scope) -> tuple[Typed, ...]:
    """Children of a higher-order function; a lambda's parameters have the types of what it is applied to."""
    children: list[Typed] = []
    for argument in arguments:
        if not isinstance(argument, Lambda):
            children.append(_infer(argument, columns, scope))
            continue
        kinds = _parameters(name, children, len(argument.parameters))
        inner = {**scope, **{p.lower(): k for p, k in zip(argument.parameters, kinds, strict=True)}}
        body = _infer(argument.body, columns, inner)
        children.append(Typed(argument, body.type, (body,)))
    return tuple(children)


def _parameters(name: str, before: Sequence[Typed], count: int) -> tuple[str, ...]:
    kinds = [child.type for child in before]
    of = [element(kind) or "" for kind in kinds]
    match name:
        case "transform" | "filter" if kinds:
            shapes: tuple[tuple[str, ...], ...] = ((of[0],), (of[0], "int"))
        case "exists" | "forall" if kinds:
            shapes = ((of[0],),)
        case "array_sort" if kinds:
            shapes = ((of[0], of[0]),)
        case "aggregate" | "reduce" if len(kinds) > 1:
            shapes = ((kinds[1], of[0]),) if len(kinds) == 2 else ((kinds[1],),)  # noqa: PLR2004 - array and start
        case "zip_with" if len(kinds) > 1:
            shapes = ((of[0], of[1]),)
        case "map_filter" | "transform_keys" | "transform_values" if kinds:
            inner = [kind for _, kind in members(kinds[0])]
            shapes = ((inner[0], inner[1]) if len(inner) == 2 else ("", ""),)  # noqa: PLR2004 - key and value
        case "map_zip_with":
            shapes = (("", "", ""),)
        case _:
            expected = "a function that takes a lambda, such as transform"
            raise Mismatch(expected, f"{name}(... -> ...)")
    for shape in shapes:
        if len(shape) == count:
            return shape
    raise Mismatch(f"a lambda of {len(shapes[0])} parameters in {name}", f"one of {count}")


# ---- rules: children -> type


def _together(values: Sequence[Typed], what: str) -> str:
    kind = common_of([value.type for value in values])
    if kind is None:
        shown = ", ".join(dict.fromkeys(value.type for value in values))
        raise Mismatch(f"values of one type in {what}", shown)
    return kind


def _arithmetic(operator: str) -> Callable[[Sequence[Typed]], str]:
    def rule(children: Sequence[Typed]) -> str:
        if len(children) == 1 and operator in {"+", "-"}:
            return _signed(children)
        if len(children) != 2:  # noqa: PLR2004 - left and right
            raise Mismatch(f"two values around {operator}", str(len(children)))
        left, right = children
        return _dates(operator, left.type, right.type) or _numbers(operator, left, right)

    return rule


def _dates(operator: str, left: str, right: str) -> str:
    """The type where dates, timestamps or intervals take part; empty where none does."""
    temporal = {"date", "timestamp"}
    spans = [kind.startswith("interval") for kind in (left, right)]
    if left not in temporal and right not in temporal and not any(spans):
        return ""
    if operator == "-" and {left, right} <= temporal:
        return "interval day" if left == right == "date" else "interval day to second"
    if operator in {"+", "-"} and left == "date" and right in {"tinyint", "smallint", "int"}:
        return "date"
    if operator == "+" and right == "date" and left in {"tinyint", "smallint", "int"}:
        return "date"
    if operator in {"+", "-"} and left in temporal and spans[1]:
        return _moved(left, right)
    if operator == "+" and right in temporal and spans[0]:
        return _moved(right, left)
    if any(spans) or "" in {left, right} or "void" in {left, right} or "string" in {left, right}:
        return _UNKNOWN
    raise Mismatch(f"numbers, or a date and days, around {operator}", f"{left} and {right}")


_UNKNOWN = "?"


def _moved(kind: str, span: str) -> str:
    if kind == "timestamp":
        return kind
    if span in {"interval day", "interval year", "interval month", "interval year to month", "interval"}:
        return "date"
    return "timestamp"


def _numbers(operator: str, left: Typed, right: Typed) -> str:
    kinds = left.type, right.type
    if "" in kinds:
        return ""
    for kind in kinds:
        if kind in {"boolean", "binary"} or element(kind) is not None or kind.startswith(("map", "struct")):
            raise Mismatch(f"numbers around {operator}", f"{kinds[0]} and {kinds[1]}")
    one, two = (_promoted(kind, other) for kind, other in (kinds, kinds[::-1]))
    if one == "void" or two == "void":
        one, two = (two, two) if one == "void" else (one, one)
    if one == "void" or not one or not two or not is_number(one) or not is_number(two):
        return ""
    if operator == "div":
        if one in FLOATS or two in FLOATS:
            raise Mismatch("whole numbers or decimals around div", f"{kinds[0]} and {kinds[1]}")
        return "bigint"
    if one in FLOATS or two in FLOATS:
        return "double" if operator == "/" or one != two else one
    if one in INTEGERS and two in INTEGERS:
        return "double" if operator == "/" else max(one, two, key=INTEGERS.index)
    first, second = as_decimal(one, left.node), as_decimal(two, right.node)
    assert first is not None
    assert second is not None
    return arithmetic(operator, first, second)


def _promoted(kind: str, other: str) -> str:
    """A string beside a number is read as a number."""
    if kind != "string":
        return kind
    return "bigint" if other in INTEGERS else "double" if is_number(other) or other == "string" else ""


def _known(rule: Callable[[Sequence[Typed]], str]) -> Callable[[Sequence[Typed]], str]:
    def known(children: Sequence[Typed]) -> str:
        kind = rule(children)
        return "" if kind == _UNKNOWN else kind

    return known


def _signed(children: Sequence[Typed]) -> str:
    kind = children[0].type
    if kind in {"boolean", "binary", "date", "timestamp"} or element(kind) is not None:
        raise Mismatch("a number behind the sign", kind)
    return "double" if kind in {"string", "void"} else kind


def _rounded(children: Sequence[Typed]) -> str:
    kind, places = children[0].type, _places(children)
    if kind in INTEGERS or kind in FLOATS:
        return kind
    if kind in {"string", "void"}:
        return "double"
    known = digits(kind)
    if known is None or places is None:
        return ""
    precision, scale = known
    whole = precision - scale + 1
    if places < 0:
        return bounded(max(whole, -places + 1), 0)
    kept = min(scale, places)
    return f"decimal({min(whole + kept, 38)},{kept})"


def _places(children: Sequence[Typed]) -> int | None:
    if len(children) == 1:
        return 0
    node = children[1].node
    return node.value if isinstance(node, Literal) and isinstance(node.value, int) else None


def _whole(children: Sequence[Typed]) -> str:
    """Of ceil and floor."""
    kind = children[0].type
    if len(children) > 1:
        return ""
    known = digits(kind)
    if known is not None:
        return bounded(known[0] - known[1] + 1, 0) if known[1] else kind
    return "bigint" if kind in INTEGERS or kind in FLOATS else ""


def _bits(children: Sequence[Typed]) -> str:
    kind = common_of(children_kinds(children))
    if kind is None or kind in FLOATS or kind == "boolean" or digits(kind or "") is not None:
        raise Mismatch("whole numbers", " and ".join(children_kinds(children)))
    return kind if kind in INTEGERS else ""


def children_kinds(children: Sequence[Typed]) -> list[str]:
    """The types of several nodes."""
    return [child.type for child in children]


def _shifted(children: Sequence[Typed]) -> str:
    kind = children[0].type
    return "int" if kind in {"tinyint", "smallint", "int"} else kind if kind == "bigint" else ""


def _same(children: Sequence[Typed]) -> str:
    return children[0].type if children else ""


def _text(children: Sequence[Typed]) -> str:
    """Of functions of text that take bytes, too."""
    kind = children[0].type if children else ""
    return "binary" if kind == "binary" else "string" if kind else ""


def _concatenated(children: Sequence[Typed]) -> str:
    kinds = children_kinds(children)
    if "" in kinds or not kinds:
        return "" if kinds else "string"
    if all(kind == "binary" for kind in kinds):
        return "binary"
    arrays = [kind for kind in kinds if element(kind) is not None]
    if arrays:
        if len(arrays) != len([kind for kind in kinds if kind != "void"]):
            raise Mismatch("arrays alone, or none, in concat", ", ".join(kinds))
        return _together(children, "concat")
    return "string"


def _element(children: Sequence[Typed]) -> str:
    kind = children[0].type
    if kind.startswith("map<"):
        return members(kind)[1][1]
    of = element(kind)
    if of is None and kind:
        raise Mismatch("an array or a map", kind)
    return of or ""


def _array(children: Sequence[Typed]) -> str:
    kind = _together(children, "array")
    return f"array<{kind}>" if kind else ""


def _array_of_first(children: Sequence[Typed]) -> str:
    kind = children[0].type
    if kind and kind != "void" and element(kind) is None:
        raise Mismatch("an array", kind)
    return kind


def _extended(children: Sequence[Typed]) -> str:
    """An array and something of its kind."""
    kind = common(_array_of_first(children), f"array<{children[-1].type}>") if children[-1].type else ""
    return children[0].type if kind == children[0].type else ""


def _sequence(children: Sequence[Typed]) -> str:
    kind = common_of(children_kinds(children[:2])) or ""
    return f"array<{kind}>" if kind in INTEGERS or kind in {"date", "timestamp"} else ""


def _folded(children: Sequence[Typed]) -> str:
    start, merged = children[1].type, children[2].type
    if len(children) > 3:  # noqa: PLR2004 - with a finish
        return children[3].type
    return start if start == merged else ""


def _optional(children: Sequence[Typed]) -> str:
    return _together(children, "coalesce")


def _if(children: Sequence[Typed]) -> str:
    return _together(children[1:], "if") if len(children) > 1 else ""


def _when(children: Sequence[Typed]) -> str:
    values = [child for position, child in enumerate(children) if position % 2 or position == len(children) - 1]
    return _together(values, "when")


def _extracted(children: Sequence[Typed]) -> str:
    part, source = children[0].node, children[1].type
    if not isinstance(part, Literal) or source not in {"date", "timestamp", "string"}:
        return ""
    name = str(part.value).lower()
    return "decimal(8,6)" if name in {"second", "s", "sec", "seconds", "secs"} else "int"


def _struct(children: Sequence[Typed]) -> str:
    fields = []
    for name, value in zip(children[::2], children[1::2], strict=False):
        if not isinstance(name.node, Literal) or not isinstance(name.node.value, str) or not value.type:
            return ""
        fields.append(f"{name.node.value}:{value.type}")
    return f"struct<{','.join(fields)}>"


def _plain_struct(children: Sequence[Typed]) -> str:
    if not all(child.type for child in children):
        return ""
    named = [
        (child.node.name if isinstance(child.node, Column) else f"col{number}", child.type)
        for number, child in enumerate(children, 1)
    ]
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in named)}>"


def _map(children: Sequence[Typed]) -> str:
    keys, values = (common_of(children_kinds(children[side::2])) for side in (0, 1))
    return f"map<{keys},{values}>" if keys and values and children else ""


def _map_part(side: int) -> Callable[[Sequence[Typed]], str]:
    def rule(children: Sequence[Typed]) -> str:
        inner = members(children[0].type)
        return f"array<{inner[side][1]}>" if inner else ""

    return rule


def _cast(kind: str) -> Callable[[Sequence[Typed]], str]:
    return lambda _: kind


def _zero(children: Sequence[Typed]) -> str:
    return common(children[0].type, "int") or ""


RULES: Mapping[str, Callable[[Sequence[Typed]], str]] = {
    **{name: _known(_arithmetic(name)) for name in ("+", "-", "*", "/", "%", "div")},
    **{name: _known(_arithmetic("%")) for name in ("mod", "pmod", "try_mod")},
    "try_add": _known(_arithmetic("+")),
    "try_subtract": _known(_arithmetic("-")),
    "try_multiply": _known(_arithmetic("*")),
    "try_divide": _known(_arithmetic("/")),
    **dict.fromkeys(("abs", "negative", "positive"), _signed),
    **dict.fromkeys(("round", "bround"), _rounded),
    **dict.fromkeys(("ceil", "ceiling", "floor"), _whole),
    **dict.fromkeys(("&", "|", "^", "~"), _bits),
    **dict.fromkeys(("<<", ">>", ">>>", "shiftleft", "shiftright", "shiftrightunsigned"), _shifted),
    **dict.fromkeys(("coalesce", "ifnull", "nvl", "greatest", "least", "array_union"), _optional),
    **dict.fromkeys(("if",), _if),
    "nvl2": _if,
    "when": _when,
    **dict.fromkeys(("nullif", "nullifzero", "reverse_array", "slice"), _same),
    "nanvl": lambda children: "double" if children[0].type == "double" and is_number(children[-1].type) else "",
    "zeroifnull": _zero,
    **dict.fromkeys(("concat", "||"), _concatenated),
    **dict.fromkeys(
        ("trim", "ltrim", "rtrim", "left", "right", "lpad", "rpad", "substr", "substring", "overlay"), _text
    ),
    "reverse": lambda children: children[0].type if element(children[0].type) is not None else _text(children),
    **dict.fromkeys(("[]", "element_at", "try_element_at", "get"), _element),
    **dict.fromkeys(("array_max", "array_min", "flatten"), _element),
    "array": _array,
    "array_repeat": lambda children: f"array<{children[0].type}>" if children[0].type else "",
    **dict.fromkeys(
        ("array_compact", "array_distinct", "array_sort", "sort_array", "array_remove", "filter", "shuffle"),
        _array_of_first,
    ),
    **dict.fromkeys(("array_append", "array_prepend", "array_insert"), _extended),
    **dict.fromkeys(
        ("array_except", "array_intersect"), lambda children: _optional(children) if len(children) > 1 else ""
    ),
    "sequence": _sequence,
    "transform": lambda children: f"array<{children[1].type}>" if len(children) > 1 and children[1].type else "",
    "zip_with": lambda children: f"array<{children[2].type}>" if len(children) > 2 and children[2].type else "",  # noqa: PLR2004
    **dict.fromkeys(("aggregate", "reduce"), _folded),
    **dict.fromkeys(("extract", "date_part", "datepart"), _extracted),
    "dateadd": lambda _: "date",
    "named_struct": _struct,
    "struct": _plain_struct,
    "map": _map,
    "map_keys": _map_part(0),
    "map_values": _map_part(1),
    "map_filter": _same,
    "interval": lambda children: children[1].type,
    **{name: _cast(name) for name in (*SCALARS,)},
    "decimal": _cast("decimal(10,0)"),
    "uniform": lambda children: common_of(children_kinds(children[:2])) or "",
    "unix_timestamp": lambda _: "bigint",
    "getdate": lambda _: "timestamp",
}
"""Name -> the type that follows from the arguments."""


# ---- checks: what Spark's analyser refuses


def _compared(name: str, children: Sequence[Typed]) -> None:
    kinds = children_kinds(children)
    if common_of(kinds) is None:
        raise Mismatch(f"values that compare, around {name}", " and ".join(dict.fromkeys(kinds)))


def _conditions(name: str, children: Sequence[Typed]) -> None:
    for child in children:
        if child.type not in {"boolean", "void", "string", ""}:
            raise Mismatch(f"conditions around {name.upper()}", child.type)


def _if_condition(name: str, children: Sequence[Typed]) -> None:
    if children[0].type not in {"boolean", "void", "string", ""}:
        raise Mismatch(f"a condition in {name}", children[0].type)


def _membership(name: str, children: Sequence[Typed]) -> None:
    array, value = children[0], children[1]
    of = element(array.type)
    if (array.type and of is None) or value.type == "void":
        raise Mismatch(f"an array and a value in {name}", f"{array.type} and {value.type}")
    if of is not None and common(of, value.type) is None:
        raise Mismatch(f"a value of type {of} in {name}", value.type)


_FIELDS = frozenset(
    [
        "year",
        "y",
        "years",
        "yr",
        "yrs",
        "yearofweek",
        "quarter",
        "qtr",
        "month",
        "mon",
        "mons",
        "months",
        "week",
        "w",
        "weeks",
        "day",
        "d",
        "days",
        "dayofweek",
        "dow",
        "dayofweek_iso",
        "dow_iso",
        "doy",
        "hour",
        "h",
        "hours",
        "hr",
        "hrs",
        "minute",
        "m",
        "min",
        "mins",
        "minutes",
        "second",
        "s",
        "sec",
        "seconds",
        "secs",
    ]
)


def _part(name: str, children: Sequence[Typed]) -> None:
    node = children[0].node if children else None
    if isinstance(node, Literal) and str(node.value).lower() not in _FIELDS:
        raise Mismatch(f"a part of a date in {name}, such as YEAR or HOUR", repr(node.value))


def _date(name: str, children: Sequence[Typed]) -> None:
    if children and children[0].type not in {"date", "timestamp", "timestamp_ntz", "string", "void", ""}:
        raise Mismatch(f"a date or a timestamp in {name}", children[0].type)


_COUNTS = {
    **dict.fromkeys(
        [
            "upper",
            "ucase",
            "lower",
            "lcase",
            "length",
            "len",
            "char_length",
            "character_length",
            "reverse",
            "isnan",
            "isnull",
            "isnotnull",
            "not",
            "abs",
            "negative",
            "positive",
            "sqrt",
            "exp",
            "ln",
            "log2",
            "log10",
            "log1p",
            "expm1",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "year",
            "month",
            "day",
            "dayofmonth",
            "dayofyear",
            "dayofweek",
            "weekday",
            "weekofyear",
            "quarter",
            "hour",
            "minute",
            "second",
            "last_day",
            "unix_date",
            "unix_millis",
            "unix_seconds",
            "unix_micros",
            "md5",
            "sha1",
            "array_max",
            "array_min",
            "array_distinct",
            "array_compact",
            "size",
            "cardinality",
            "array_size",
            "initcap",
            "ascii",
            "sign",
            "signum",
            "flatten",
            "hex",
            "bin",
        ],
        1,
    ),
    **dict.fromkeys(
        [
            "trunc",
            "date_trunc",
            "mod",
            "pmod",
            "date_sub",
            "add_months",
            "next_day",
            "instr",
            "startswith",
            "endswith",
            "contains",
            "array_contains",
            "repeat",
            "left",
            "right",
            "pow",
            "power",
            "nullif",
            "ifnull",
            "nvl",
            "date_format",
            "from_utc_timestamp",
            "to_utc_timestamp",
        ],
        2,
    ),
    **dict.fromkeys(("if", "nvl2", "timestampdiff", "timestampadd", "split_part"), 3),
}
"""How many arguments a function takes, of those that always take as many and that people use."""
_OF_DATES = [
    "year",
    "month",
    "day",
    "dayofmonth",
    "dayofyear",
    "dayofweek",
    "weekday",
    "weekofyear",
    "quarter",
    "last_day",
    "add_months",
]
_CHECKS: Mapping[str, Callable[[str, Sequence[Typed]], None]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "nullif", "equal_null"), _compared),
    **dict.fromkeys(("and", "or", "not"), _conditions),
    "if": _if_condition,
    **dict.fromkeys(("array_contains", "array_position", "array_remove"), _membership),
    **dict.fromkeys(("extract", "date_part", "datepart"), _part),
    **dict.fromkeys(_OF_DATES, _date),
}


def _check_cast(source: str, target: str) -> None:
    """Casts ANSI mode refuses whatever the value."""
    complex_ = ("array", "map", "struct")
    refused = (
        (source == "boolean" and target in {"date", "timestamp"})
        or (source == "date" and (is_number(target) or target in {"boolean", "binary"}))
        or (source == "timestamp" and target in {"boolean", "binary"})
        or (is_number(source) and target == "date")
        or (is_number(source) and target == "binary")
        or (source == "binary" and (is_number(target) or target in {"boolean", "date", "timestamp"}))
        or (source.startswith(complex_) and target in SCALARS - {"string"})
        or (source in SCALARS and source != "string" and target.startswith(complex_))
        or (source == "string" and target.startswith(complex_))
        or (source in {"date", "timestamp"} and digits(target) is not None and source == "date")
    )
    if refused:
        raise Mismatch(f"a value that casts to {target}", source)
