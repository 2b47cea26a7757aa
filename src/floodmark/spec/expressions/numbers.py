"""The types of arithmetic and of the functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.spec.expressions.tree import Literal
from floodmark.spec.expressions.typed import Mismatch, Rule, Typed, kinds
from floodmark.spec.expressions.widening import (
    FLOATS,
    INTEGERS,
    arithmetic,
    as_decimal,
    bounded,
    common,
    common_of,
    digits,
    element,
    is_number,
)

_TEMPORAL = frozenset({"date", "timestamp"})


def _arithmetic(operator: str) -> Rule:
    def rule(children: Sequence[Typed]) -> str:
        if len(children) == 1 and operator in {"+", "-"}:
            return _signed(children)
        if len(children) != 2:  # noqa: PLR2004 - left and right
            raise Mismatch(f"two values around {operator}", str(len(children)))
        left, right = children
        temporal = any(kind in _TEMPORAL or kind.startswith("interval") for kind in (left.type, right.type))
        return _dates(operator, left.type, right.type) if temporal else _numbers(operator, left, right)

    return rule


def _dates(operator: str, left: str, right: str) -> str:
    """The type of arithmetic over a date, a timestamp or an interval."""
    spans = [kind.startswith("interval") for kind in (left, right)]
    if operator == "-" and {left, right} <= _TEMPORAL:
        return "interval day" if left == right == "date" else "interval day to second"
    if operator in {"+", "-"} and left == "date" and right in {"tinyint", "smallint", "int"}:
        return "date"
    if operator == "+" and right == "date" and left in {"tinyint", "smallint", "int"}:
        return "date"
    if operator in {"*", "/"} and spans[0] and is_number(right):
        return _multiplied(left)
    if operator == "*" and spans[1] and is_number(left):
        return _multiplied(right)
    if operator in {"+", "-"} and left in _TEMPORAL and spans[1]:
        return _moved(left, right)
    if operator == "+" and right in _TEMPORAL and spans[0]:
        return _moved(right, left)
    if operator == "-" and "string" in {left, right} and not any(spans):
        return "interval day" if "date" in {left, right} else "interval day to second"
    if any(spans) or "" in {left, right} or "void" in {left, right}:
        return ""
    raise Mismatch(f"numbers, or a date and days, around {operator}", f"{left} and {right}")


def _multiplied(span: str) -> str:
    """The type of an interval times a number: days and seconds, or years and months; empty for an interval with both."""
    months = span.rsplit(maxsplit=1)[-1] in {"year", "month"}
    return "" if span == "interval" else "interval year to month" if months else "interval day to second"


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
        if kind in {"boolean", "binary", "variant"} or element(kind) is not None or kind.startswith(("map", "struct")):
            raise Mismatch(f"numbers around {operator}", f"{kinds[0]} and {kinds[1]}")
    first, second = _promoted_both(operator, *kinds)
    if first == "void":
        return "bigint" if operator == "div" else "double"
    if not is_number(first) or not is_number(second):
        return ""
    if operator == "div":
        if first in FLOATS or second in FLOATS:
            raise Mismatch("whole numbers or decimals around div", f"{kinds[0]} and {kinds[1]}")
        return "bigint"
    if first in FLOATS or second in FLOATS:
        return "double" if operator == "/" or first != second else first
    if first in INTEGERS and second in INTEGERS:
        return "double" if operator == "/" else max(first, second, key=INTEGERS.index)
    left_shape, right_shape = as_decimal(first, left.node), as_decimal(second, right.node)
    assert left_shape is not None
    assert right_shape is not None
    return arithmetic(operator, left_shape, right_shape)


def _promoted_both(operator: str, left: str, right: str) -> tuple[str, str]:
    """The types of both sides read as numbers; NULL takes the other side's type."""
    if "string" in {left, right} and {left, right} <= {"string", "void"}:
        raise Mismatch(f"a number on one side of {operator}", f"{left} and {right}")
    first, second = _promoted(left, right), _promoted(right, left)
    if "void" in {first, second}:
        first, second = (second, second) if first == "void" else (first, first)
    return first, second


def _promoted(kind: str, other: str) -> str:
    """The type of one side read as a number: Spark casts a string beside a number to a number."""
    if kind != "string":
        return kind
    return "bigint" if other in INTEGERS else "double" if is_number(other) or other == "string" else ""


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
    fraction = min(scale, places)
    return f"decimal({min(whole + fraction, 38)},{fraction})"


def _places(children: Sequence[Typed]) -> int | None:
    if len(children) == 1:
        return 0
    node = children[1].node
    return node.value if isinstance(node, Literal) and isinstance(node.value, int) else None


def _whole(children: Sequence[Typed]) -> str:
    """The type of ceil and floor."""
    kind = children[0].type
    if len(children) > 1:
        return ""
    known = digits(kind)
    if known is not None:
        return bounded(known[0] - known[1] + 1, 0) if known[1] else kind
    return "bigint" if kind in INTEGERS or kind in FLOATS else ""


def _bits(children: Sequence[Typed]) -> str:
    kind = common_of(kinds(children))
    if kind is None or kind in FLOATS or kind == "boolean" or digits(kind or "") is not None:
        raise Mismatch("whole numbers", " and ".join(kinds(children)))
    return kind if kind in INTEGERS else ""


def _shifted(children: Sequence[Typed]) -> str:
    kind = children[0].type
    return "int" if kind in {"tinyint", "smallint", "int"} else kind if kind == "bigint" else ""


def _zero(children: Sequence[Typed]) -> str:
    return common(children[0].type, "int") or ""


RULES: Mapping[str, Rule] = {
    **{name: _arithmetic(name) for name in ("+", "-", "*", "/", "%", "div")},
    **{name: _arithmetic("%") for name in ("mod", "pmod", "try_mod")},
    "try_add": _arithmetic("+"),
    "try_subtract": _arithmetic("-"),
    "try_multiply": _arithmetic("*"),
    "try_divide": _arithmetic("/"),
    **dict.fromkeys(("abs", "negative", "positive"), _signed),
    **dict.fromkeys(("round", "bround"), _rounded),
    **dict.fromkeys(("ceil", "ceiling", "floor"), _whole),
    **dict.fromkeys(("&", "|", "^", "~"), _bits),
    **dict.fromkeys(("<<", ">>", ">>>", "shiftleft", "shiftright", "shiftrightunsigned"), _shifted),
    "nanvl": lambda children: "double" if children[0].type == "double" and is_number(children[-1].type) else "",
    "zeroifnull": _zero,
    "uniform": lambda children: common_of(kinds(children[:2])) or "",
}
"""Function or operator of numbers -> the type that follows from the arguments."""
