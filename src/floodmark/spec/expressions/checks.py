"""Checks of argument types, as Spark's analyser does them: values that do not compare, casts that fail for every value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from floodmark.spec.expressions.tree import Column, Literal
from floodmark.spec.expressions.typed import Mismatch, Typed, kinds
from floodmark.spec.expressions.widening import INTEGERS, SCALARS, alike, common_of, element, is_number, members

_PARTS = """year y years yr yrs yearofweek quarter qtr month mon mons months week w weeks day d days
        dayofweek dow dayofweek_iso dow_iso doy hour h hours hr hrs minute m min mins minutes second
        s sec seconds secs"""
_OF_DATES = "year month day dayofmonth dayofyear dayofweek weekday weekofyear quarter last_day"


def _compared(name: str, children: Sequence[Typed]) -> None:
    if common_of(kinds(children)) is None:
        raise Mismatch(f"values that compare, around {name}", " and ".join(dict.fromkeys(kinds(children))))


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
    if of is not None and alike([of, value.type]) is None:
        raise Mismatch(f"a value of type {of} in {name}", value.type)


def _alike(name: str, children: Sequence[Typed]) -> None:
    if alike(kinds(children)) is None:
        raise Mismatch(f"values of one type in {name}", " and ".join(dict.fromkeys(kinds(children))))


def _index(name: str, children: Sequence[Typed]) -> None:
    holder, index = children[0].type, children[1].type
    if element(holder) is not None and index not in {*INDEXES[name], "void", ""}:
        raise Mismatch(f"an index of type {' or '.join(INDEXES[name])} in {name}", index)
    if holder.startswith("map<") and name != "[]" and alike([members(holder)[0][1], index]) is None:
        raise Mismatch(f"a key of type {members(holder)[0][1]} in {name}", index)


def _variant(_: str, children: Sequence[Typed]) -> None:
    if children[0].type not in {"variant", ""}:
        raise Mismatch("a variant before the colon", children[0].type)


def _part(name: str, children: Sequence[Typed]) -> None:
    node = children[0].node if children else None
    if isinstance(node, Column):
        raise Mismatch(f"a part of a date in {name} that is written out", f"the column {node.name}")
    if isinstance(node, Literal) and str(node.value).lower() not in _PARTS.split():
        raise Mismatch(f"a part of a date in {name}, such as YEAR or HOUR", repr(node.value))


def _date(name: str, children: Sequence[Typed]) -> None:
    if children and children[0].type not in {"date", "timestamp", "timestamp_ntz", "string", "void", ""}:
        raise Mismatch(f"a date or a timestamp in {name}", children[0].type)


INDEXES: Mapping[str, Sequence[str]] = {
    "[]": INTEGERS,
    **dict.fromkeys(("element_at", "try_element_at"), tuple(kind for kind in INTEGERS if kind != "bigint")),
}
"""Function or operator that does not cast its index -> the types it accepts as an array's index."""

CHECKS: Mapping[str, Callable[[str, Sequence[Typed]], None]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "nullif", "equal_null"), _compared),
    **dict.fromkeys(("and", "or", "not"), _conditions),
    "if": _if_condition,
    **dict.fromkeys(("array_contains", "array_position", "array_remove"), _membership),
    **dict.fromkeys(("array_append", "array_prepend"), _membership),
    **dict.fromkeys(("greatest", "least", "array_union", "array_except", "array_intersect", "arrays_overlap"), _alike),
    **dict.fromkeys(INDEXES, _index),
    ":": _variant,
    **dict.fromkeys(("extract", "date_part", "datepart"), _part),
    **dict.fromkeys((*_OF_DATES.split(), "add_months"), _date),
}
"""Function or operator -> the check of its arguments."""


def check_cast(source: str, target: str) -> None:
    """Refuse a cast that ANSI mode refuses for every value."""
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
    )
    if refused:
        raise Mismatch(f"a value that casts to {target}", source)
