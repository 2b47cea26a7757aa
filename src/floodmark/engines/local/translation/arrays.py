"""Arrays, their elements, and the functions that take a lambda."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.engines.local.casts import NotTranslated, failure
from floodmark.engines.local.translation.operand import Operand, Rule
from floodmark.spec.expressions.tree import Lambda
from floodmark.spec.expressions.widening import common, element

_OUTSIDE = failure("INVALID_ARRAY_INDEX", attempt=False)


def _array(call: Operand) -> str:
    inner = element(call.known_type)
    assert inner is not None
    if "void" in inner or not call.children:
        raise NotTranslated("an array of nothing")
    return f"list_value({', '.join(child.cast(inner) for child in call.children)})"


def _items(operand: Operand) -> str:
    """An array; other types are refused."""
    if element(operand.type) is None:
        raise NotTranslated(f"an element of {operand.type or 'an unknown type'}")
    return operand.sql()


def _of_items(form: str) -> Rule:
    """A rule that fills a form with the array alone."""
    return lambda call: form.format(_items(call.children[0]))


def _element(form: str) -> Rule:
    """A rule that fills a form with the array and an index."""
    return lambda call: form.format(_items(call.children[0]), call.children[1].cast("bigint"), outside=_OUTSIDE)


def _array_contains(call: Operand) -> str:
    array, value = call.children
    of = element(array.type)
    kind = common(of, value.type) if of else None
    if not kind or kind != of:
        raise NotTranslated(f"array_contains of {array.type} and {value.type}")
    items, wanted = array.sql(), value.cast(kind)
    return (
        f"CASE WHEN {items} IS NULL OR {wanted} IS NULL THEN NULL WHEN list_contains({items}, {wanted}) THEN true "
        f"WHEN list_count({items}) < len({items}) THEN NULL ELSE false END"
    )


def _sort_array(call: Operand) -> str:
    order = "'ASC', 'NULLS FIRST'" if call.option(1, default=True) else "'DESC', 'NULLS LAST'"
    return f"list_sort({_items(call.children[0])}, {order})"


def _lambda(name: str) -> Rule:
    def rule(call: Operand) -> str:
        array, function = call.children
        node = function.typed.node
        if not isinstance(node, Lambda) or len(node.parameters) != 1:
            raise NotTranslated(f"{name} with a place")
        return f"{name}({_items(array)}, {function.sql()})"

    return rule


RULES: Mapping[str, Rule] = {
    "array": _array,
    "[]": _element(
        "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN {1} < 0 OR {1} >= len({0}) THEN {outside} ELSE list_extract({0}, {1} + 1) END"
    ),
    "element_at": _element(
        "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN {1} = 0 OR abs({1}) > len({0}) THEN {outside} ELSE list_extract({0}, {1}) END"
    ),
    "get": _element("CASE WHEN {1} < 0 OR {1} >= len({0}) THEN NULL ELSE list_extract({0}, {1} + 1) END"),
    **dict.fromkeys(("size", "cardinality", "array_size"), _of_items("CAST(len({0}) AS INTEGER)")),
    "array_max": _of_items("list_max({0})"),
    "array_min": _of_items("list_min({0})"),
    "array_contains": _array_contains,
    "sort_array": _sort_array,
    "transform": _lambda("list_transform"),
    "filter": _lambda("list_filter"),
    "reverse": _of_items("list_reverse({0})"),
}
"""Function or operator -> its translation."""
