"""Arithmetic and the functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.types import MAX_DIGITS
from floodmark.engines.local.casts import NotTranslated, failure, sql_type
from floodmark.engines.local.translation.operand import Operand, Rule, template, widened
from floodmark.engines.local.translation.times import moved
from floodmark.spec.expressions.widening import INTEGERS, as_decimal, digits, is_number

NARROW_DIGITS = 18
"""A decimal of at most so many digits is held in 64 bits."""
_ROUNDED_DIGITS = 10
"""Places a DECIMAL(38, n) holds beside a whole part of 1e16."""
_NEGATED_DIGITS = 34
"""Spark's minus and abs round a negated decimal to so many digits; ``0 - x`` does not."""
_BY_ZERO = failure("DIVIDE_BY_ZERO", attempt=False)


def _arithmetic(operator: str) -> Rule:
    def rule(call: Operand) -> str:
        if len(call.children) == 1:
            return call.children[0].sql()
        left, right = call.children
        kind = call.known_type
        if kind in {"date", "timestamp"}:
            return moved(operator, left, right, kind)
        if digits(kind):
            return _decimals(operator, left, right, kind)
        if not is_number(kind):
            raise NotTranslated(f"{left.type} {operator} {right.type}")
        a, b = left.cast(kind), right.cast(kind)
        if operator == "/":
            return _divided(a, b, f"{a} / {b}")
        if operator == "%":
            least = f"WHEN {b} = -1 THEN CAST(0 AS {sql_type(kind)}) " if kind in INTEGERS else ""
            return _divided(a, b, f"{a} % {b}", before=least)
        return f"{a} {operator} {b}"

    return rule


def _divided(dividend: str, divisor: str, result: str, *, before: str = "") -> str:
    """A division: NULL of NULL, an error if the divisor is zero, then the branches ``before``, else the result."""
    return f"CASE WHEN {dividend} IS NULL THEN NULL WHEN {divisor} = 0 THEN {_BY_ZERO} {before}ELSE {result} END"


def _decimals(operator: str, left: Operand, right: Operand, kind: str) -> str:
    shapes, shape = (_decimal_shape(left), _decimal_shape(right)), digits(kind)
    assert shape is not None
    (p1, s1), (p2, s2), (precision, scale) = *shapes, shape
    a, b = left.cast(f"decimal({p1},{s1})"), right.cast(f"decimal({p2},{s2})")
    whole = max(p1 - s1, p2 - s2) + max(s1, s2)
    exact = {"*": p1 + p2 + 1, "/": p1 - s1 + s2 + max(6, s1 + p2 + 1), "%": precision}.get(operator, whole + 1)
    if exact > MAX_DIGITS:
        raise NotTranslated(f"decimals of more than {MAX_DIGITS} digits in between")
    if operator == "*":
        return f"CAST({_product(a, shapes[0], b, shapes[1])} AS {sql_type(kind)})"
    if operator == "/":
        quotient = f"spark_quotient({unscaled(a)} * {10 ** (scale - s1 + s2)}, {unscaled(b)})"
        return _divided(a, b, f"CAST(spark_shifted({quotient}, {scale}) AS {sql_type(kind)})")
    wide = f"DECIMAL({whole},{max(s1, s2)})"
    a, b = f"CAST({a} AS {wide})", f"CAST({b} AS {wide})"
    result = f"CAST({a} {operator} {b} AS {sql_type(kind)})"
    return _divided(a, b, result) if operator == "%" else result


def _decimal_shape(operand: Operand) -> tuple[int, int]:
    """Precision and scale of a decimal or a whole number; other types are refused."""
    shape = as_decimal(operand.type, operand.typed.node)
    if shape is None:
        raise NotTranslated(f"a {operand.type} among decimals")
    return shape


def unscaled(value: str) -> str:
    """The digits of a decimal, a whole number."""
    return f"CAST(replace(CAST({value} AS VARCHAR), '.', '') AS HUGEINT)"


def _product(left: str, left_shape: tuple[int, int], right: str, right_shape: tuple[int, int]) -> str:
    """A product of decimals; DuckDB multiplies decimals of up to 18 digits in 64 bits, so these are widened before."""
    (p1, s1), (p2, s2) = left_shape, right_shape
    if p1 + p2 > NARROW_DIGITS >= max(p1, p2):
        p1 = NARROW_DIGITS + 1
    return f"CAST({left} AS DECIMAL({p1},{s1})) * CAST({right} AS DECIMAL({p2},{s2}))"


def _div(call: Operand) -> str:
    left, right = call.children
    if not {left.type, right.type} <= {*INTEGERS, "void"}:
        raise NotTranslated(f"{left.type} div {right.type}")
    a, b = left.cast("bigint"), right.cast("bigint")
    return _divided(a, b, f"{a} // {b}")


def _pmod(call: Operand) -> str:
    kind = call.known_type
    if kind not in INTEGERS:
        raise NotTranslated(f"pmod of {kind}")
    a, b = (child.cast(kind) for child in call.children)
    remainder = f"({a} % {b})"
    branches = f"WHEN {b} = -1 THEN 0 WHEN {remainder} < 0 THEN ({remainder} + {b}) % {b} "
    return _divided(a, b, remainder, before=branches)


def _numeric(name: str) -> Rule:
    """Of abs, negative and positive."""

    def rule(call: Operand) -> str:
        kind = call.known_type
        if not is_number(kind):
            raise NotTranslated(f"{name} of {kind}")
        shape = digits(kind)
        if name != "+" and shape is not None and shape[0] > _NEGATED_DIGITS:
            raise NotTranslated(f"{name} of a decimal of more than {_NEGATED_DIGITS} digits, which Spark rounds,")
        return f"{name}({call.children[0].cast(kind)})"

    return rule


def _round(call: Operand) -> str:
    child, kind, places = call.children[0], call.known_type, call.option(1, 0)
    if not isinstance(places, int) or not 0 <= places <= _ROUNDED_DIGITS:
        raise NotTranslated(f"round to {places} places")
    if kind in INTEGERS:
        return child.sql()
    if digits(kind):
        return f"CAST({child.sql()} AS {sql_type(kind)})"
    if kind != "double":
        raise NotTranslated(f"round of {kind}")
    value = child.cast("double")
    rounded = f"CAST(CAST(CAST(CAST({value} AS VARCHAR) AS DECIMAL(38,{places})) AS VARCHAR) AS DOUBLE)"
    return f"CASE WHEN isfinite({value}) AND abs({value}) < 1e16 THEN {rounded} ELSE {value} END"


def _whole(name: str) -> Rule:
    """Of ceil and floor."""

    def rule(call: Operand) -> str:
        (child,) = call.children
        if child.type in INTEGERS:
            return child.cast("bigint")
        if digits(child.type):
            return f"CAST({name}({child.sql()}) AS {sql_type(call.known_type)})"
        value = child.cast("double")
        return (
            f"CASE WHEN isnan({value}) THEN 0 WHEN {value} >= 9223372036854775807 THEN 9223372036854775807 "
            f"WHEN {value} <= -9223372036854775808 THEN CAST('-9223372036854775808' AS BIGINT) ELSE CAST({name}({value}) AS BIGINT) END"
        )

    return rule


def _bits(operator: str) -> Rule:
    def rule(call: Operand) -> str:
        kind = call.known_type
        a, b = (child.cast(kind) for child in call.children)
        return f"xor({a}, {b})" if operator == "^" else f"{a} {operator} {b}"

    return rule


_SIGN = "CASE WHEN isnan({0}) OR {0} = 0 THEN {0} WHEN {0} > 0 THEN 1.0::DOUBLE WHEN {0} < 0 THEN -1.0::DOUBLE END"

RULES: Mapping[str, Rule] = {
    **{name: _arithmetic(name) for name in "+-*/%"},
    "mod": _arithmetic("%"),
    "div": _div,
    "pmod": _pmod,
    **{name: _bits(name) for name in "&|^"},
    "~": template("~{0}", "*"),
    "negative": _numeric("-"),
    "positive": _numeric("+"),
    "abs": _numeric("abs"),
    **dict.fromkeys(("sign", "signum"), template(_SIGN, "double")),
    "round": _round,
    **dict.fromkeys(("ceil", "ceiling"), _whole("ceil")),
    "floor": _whole("floor"),
    "zeroifnull": widened("coalesce({0}, 0)"),
    "nullifzero": template("CASE WHEN {0} = 0 THEN NULL ELSE {0} END", "*"),
    "isnan": template("coalesce(isnan({0}), false)", "double"),
    "nanvl": template("CASE WHEN isnan({0}) THEN {1} ELSE {0} END", "double", "double"),
    "pi": lambda _: "pi()",
    "sqrt": template("CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({0}) END", "double"),
    "log": template("CASE WHEN {0} > 0 THEN ln({0}) END", "double"),
    **{name: template(f"CASE WHEN {{0}} > 0 THEN {name}({{0}}) END", "double") for name in ("ln", "log10", "log2")},
    **{name: template(f"{name}({{0}})", "double") for name in ("exp", "atan", "radians", "degrees")},
    **dict.fromkeys(("pow", "power"), template("pow({0}, {1})", "double", "double")),
}
"""Function or operator -> its translation."""
