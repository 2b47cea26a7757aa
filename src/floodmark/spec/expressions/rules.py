"""Result types of functions that depend on the types of the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.spec.expressions import numbers
from floodmark.spec.expressions.tree import Column, Literal
from floodmark.spec.expressions.typed import Mismatch, Rule, Typed, kinds, together
from floodmark.spec.expressions.widening import INTEGERS, SCALARS, common, common_of, element, members


def _same(children: Sequence[Typed]) -> str:
    return children[0].type if children else ""


def _text(children: Sequence[Typed]) -> str:
    """The type of functions of text that take bytes too."""
    kind = children[0].type if children else ""
    return "binary" if kind == "binary" else "string" if kind else ""


def _concatenated(children: Sequence[Typed]) -> str:
    types = kinds(children)
    if "" in types or not types:
        return "" if types else "string"
    if all(kind == "binary" for kind in types):
        return "binary"
    arrays = [kind for kind in types if element(kind) is not None]
    if arrays:
        if len(arrays) != len([kind for kind in types if kind != "void"]):
            raise Mismatch("arrays alone, or none, in concat", ", ".join(types))
        return together(children, "concat")
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
    kind = together(children, "array")
    return f"array<{kind}>" if kind else ""


def _array_of_first(children: Sequence[Typed]) -> str:
    kind = children[0].type
    if kind and kind != "void" and element(kind) is None:
        raise Mismatch("an array", kind)
    return kind


def _extended(children: Sequence[Typed]) -> str:
    """The type of an array extended by an element."""
    kind = common(_array_of_first(children), f"array<{children[-1].type}>") if children[-1].type else ""
    return children[0].type if kind == children[0].type else ""


def _sequence(children: Sequence[Typed]) -> str:
    kind = common_of(kinds(children[:2])) or ""
    return f"array<{kind}>" if kind in INTEGERS or kind in {"date", "timestamp"} else ""


def _folded(children: Sequence[Typed]) -> str:
    start, merged = children[1].type, children[2].type
    if len(children) > 3:  # noqa: PLR2004 - with a finish
        return children[3].type
    return start if start == merged else ""


def _optional(children: Sequence[Typed]) -> str:
    return together(children, "coalesce")


def _if(children: Sequence[Typed]) -> str:
    return together(children[1:], "if") if len(children) > 1 else ""


def _when(children: Sequence[Typed]) -> str:
    values = [child for position, child in enumerate(children) if position % 2 or position == len(children) - 1]
    return together(values, "when")


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
    keys, values = (common_of(kinds(children[side::2])) for side in (0, 1))
    return f"map<{keys},{values}>" if keys and values and children else ""


def _map_part(side: int) -> Rule:
    def rule(children: Sequence[Typed]) -> str:
        inner = members(children[0].type)
        return f"array<{inner[side][1]}>" if inner else ""

    return rule


def _cast(kind: str) -> Rule:
    return lambda _: kind


RULES: Mapping[str, Rule] = {
    **numbers.RULES,
    **dict.fromkeys(("coalesce", "ifnull", "nvl", "greatest", "least", "array_union"), _optional),
    **dict.fromkeys(("if", "nvl2"), _if),
    "when": _when,
    **dict.fromkeys(("nullif", "nullifzero", "slice"), _same),
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
    "unix_timestamp": lambda _: "bigint",
}
"""Function -> rule: typed arguments -> result type."""
