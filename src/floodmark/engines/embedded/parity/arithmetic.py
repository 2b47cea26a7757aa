"""Arithmetic rewritten so that Sail computes as Spark does: in Spark's types, with errors for overflow and division by zero.

Sail's own integers wrap around, its quotients of decimals have other digits, and it raises for a division of NULL by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from floodmark.core.types import MAX_DIGITS
from floodmark.engines.embedded.parity.casts import cast
from floodmark.engines.embedded.parity.evaluation import hidden
from floodmark.engines.embedded.parity.patterns import OtherPattern
from floodmark.engines.embedded.parity.times import refused
from floodmark.spec.expressions.tree import Call, Column, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS, as_decimal, digits

Rewrite = Callable[[Typed, Sequence[str]], str | None]
"""(a call, its arguments as SQL) -> SQL; None if the call needs no rewrite."""

_WIDER = {"tinyint": "int", "smallint": "int", "int": "bigint", "bigint": "decimal(19,0)"}
TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
"""Operator -> the function that gives null for an overflow."""
_OPERATORS = {
    **{name: name for name in ("+", "-", "*", "/", "%", "div")},
    **{name: operator for operator, name in TRIED.items()},
    "try_divide": "/",
    **dict.fromkeys(("mod", "pmod", "try_mod"), "%"),
}
"""Function -> the operator whose precision and scale its decimals have."""
MOST_NESTED = 8
"""Whole numbers of a sum, above which it is computed by ``summed``: Sail plans casts within each other in a time that grows more than twofold with each."""
DEEPEST = 12
"""Most operations of whole numbers within each other: Sail plans so many in some seconds, and a few more in minutes."""
_LONGEST = 40
"""Most whole numbers of one sum."""
_EXTRA = 4
"""Fraction digits that Sail's quotient has beyond those of the dividend."""


def rounds(name: str, children: Sequence[Typed]) -> bool | None:
    """Whether arithmetic of decimals needs more than 38 digits, so that Spark rounds or overflows; None for other calls.

    Args:
        name: of the function or operator.
        children: arguments of the call.
    """
    operator, sides = _OPERATORS.get(name), _decimals(children)
    return None if operator is None or sides is None else _needed(operator, *sides) > MAX_DIGITS


def _decimals(children: Sequence[Typed]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Precision and scale of each of two exact numbers, if one is a decimal; None for other arguments."""
    sides = [as_decimal(child.type, child.node) for child in children]
    if len(sides) != 2 or all(digits(child.type) is None for child in children):  # noqa: PLR2004 - left and right
        return None
    left, right = sides
    return None if left is None or right is None else (left, right)


def _needed(operator: str, left: tuple[int, int], right: tuple[int, int]) -> int:
    """Digits of the result with which Sail computes."""
    (p1, s1), (p2, s2) = left, right
    widest = max(p1 - s1, p2 - s2) + max(s1, s2)
    match operator:
        case "+" | "-":
            return widest + 1
        case "*":
            return p1 + p2 + 1
        case "/":
            return p1 - s1 + s2 + max(6, s1 + p2 + 1) + 1
        case "div":
            return p1 + _EXTRA + s2
        case _:
            return widest


def terms(node: Typed) -> list[tuple[str, Typed]]:
    """(+ or -, operand) of each operand of a sum of bigints, or of columns and numbers of one floating type, from the first one on; of any other node itself alone."""
    behind: list[tuple[str, Typed]] = []
    while _is_sum(node):
        assert isinstance(node.node, Call)
        behind.append((node.node.name, node.children[1]))
        node = node.children[0]
    return [("+", node), *reversed(behind)]


def _is_sum(node: Typed) -> bool:
    if not (isinstance(node.node, Call) and node.node.name in {"+", "-"} and len(node.children) == 2):  # noqa: PLR2004 - left and right
        return False
    if node.type in FLOATS:
        return set(node.kinds) == {node.type} and isinstance(node.children[1].node, (Column, Literal))
    return node.type == "bigint" and set(node.kinds) <= set(INTEGERS)


def summed(operands: Sequence[tuple[str, str]], kind: str) -> str:
    """SQL for a sum without casts within each other: of bigints an operand that is null ends it, as in Spark, and so does the first partial sum that is too large.

    Args:
        operands: (+ or -, SQL) of each, from the first one on.
        kind: type of the sum.

    Raises:
        OtherPattern: there are more than Sail plans in a moment.
    """
    if kind in FLOATS:
        total = operands[0][1]
        for operator, value in operands[1:]:
            total = f"({total} {operator} {value})"
        return f"nanvl({total}, CAST('NaN' AS {kind}))"
    if len(operands) > _LONGEST:
        message = f"a sum of {len(operands)} whole numbers, of which {_LONGEST} are computed at once,"
        raise OtherPattern(message)
    (_, first), *others = [(operator, f"CAST({sql} AS bigint)") for operator, sql in operands]
    ends, total = [f"WHEN {first} IS NULL THEN NULL"], first
    for operator, value in others:
        total = f"{TRIED[operator]}({total}, {value})"
        message = overflow(operator).replace("'", "\\'")
        ends.append(
            f"WHEN {value} IS NULL THEN NULL WHEN {total} IS NULL THEN CAST(raise_error('{message}') AS bigint)"
        )
    return f"CASE {' '.join(ends)} ELSE {total} END"


def nested(node: Typed) -> int:
    """How many operations of whole numbers are within each other, a long sum as one."""
    operands = [operand for _, operand in terms(node)]
    operands = operands if len(operands) > MOST_NESTED else list(node.children)
    own = isinstance(node.node, Call) and node.node.name in {*_OPERATORS, "negative"} and node.type in INTEGERS
    return own + max(map(nested, operands), default=0)


def _added(operator: str) -> Rewrite:
    """``+ - *``: integers are computed in the next wider type, so that the cast back fails if Spark's arithmetic overflows."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kinds = node.kinds
        if node.type == "bigint" and len(parts) > 1 and all(_simple(child) for child in node.children):
            return _checked(operator, *parts)
        if node.type in INTEGERS and all(kind in {*INTEGERS, "void"} for kind in kinds):
            values = [f"CAST({part} AS {_WIDER[node.type]})" for part in parts]
        elif node.type in FLOATS and len(parts) > 1 and kinds[0] != kinds[1]:
            values = [f"CAST({part} AS {node.type})" for part in parts]
        elif digits(node.type) is not None and len(parts) > 1:
            return _of_decimals(operator, node, parts)
        else:
            return None
        if len(values) == 1:
            return f"({operator} {values[0]})"
        return f" {operator} ".join(values).join("()")

    return rewrite


def _simple(node: Typed) -> bool:
    """Whether a value may be written twice."""
    return isinstance(node.node, (Column, Literal)) and node.type in INTEGERS


def _checked(operator: str, first: str, second: str) -> str:
    """SQL for two bigints, with each argument written twice; twice as fast as through decimals."""
    left, right = f"CAST({first} AS bigint)", f"CAST({second} AS bigint)"
    message = overflow(operator).replace("'", "\\'")
    failure = f"CAST(raise_error('{message}') AS bigint)"
    error_or_null = f"CASE WHEN {left} IS NULL OR {right} IS NULL THEN NULL ELSE {failure} END"
    return f"coalesce({TRIED[operator]}({left}, {right}), {error_or_null})"


def overflow(operator: str) -> str:
    """Spark's message for an overflow of ``int`` or ``bigint``.

    Args:
        operator: of the overflow; only for ``+``, ``-`` and ``*`` the message names a function that gives null instead.
    """
    use = f"Use '{TRIED[operator]}' to tolerate overflow and return NULL instead. " if operator in TRIED else ""
    return f"[ARITHMETIC_OVERFLOW] overflow. {use}{_ANSI} SQLSTATE: 22003"


def _of_decimals(operator: str, node: Typed, parts: Sequence[str]) -> str | None:
    sides = _decimals(node.children)
    if sides is None:
        return None
    text = f" {operator} ".join(_exact(node.children, parts)).join("()")
    if _needed(operator, *sides) > MAX_DIGITS:
        text = _within(f"CAST({text} AS {node.type})", node.type)
    return text


def _within(sum_: str, kind: str) -> str:
    """SQL that raises an error for a sum of more than 38 digits. Sail only raises above 2^127, so the sum is shifted there and back."""
    scale = (digits(kind) or (0, 0))[1]
    room = (1 << 127) - 10**MAX_DIGITS
    up, down = (f"CAST('{_placed(number, scale)}' AS {kind})" for number in (room, room + 1))
    return f"(((({sum_} + {up}) - {up}) - {down}) + {down})"


def _placed(number: int, scale: int) -> str:
    """A number's digits with a decimal point before the last ``scale`` digits."""
    text = str(number)
    return f"{text[:-scale]}.{text[-scale:]}" if scale else text


def _exact(children: Sequence[Typed], parts: Sequence[str]) -> list[str]:
    """SQL of arguments with integers cast to the decimals to which Spark casts them."""
    return [
        part
        if digits(child.type) is not None
        else f"CAST({part} AS decimal({','.join(map(str, as_decimal(child.type, child.node) or ()))}))"
        for child, part in zip(children, parts, strict=True)
    ]


def _attempted(operator: str) -> Rewrite:
    """``try_add`` and similar functions: null if the result is outside its type."""
    plain = _added(operator)

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        kind = node.type
        if kind in {"int", "bigint"}:
            return f"{TRIED[operator]}({', '.join(f'CAST({part} AS {kind})' for part in parts)})"
        if kind in INTEGERS:
            sides = f" {operator} ".join(f"CAST({part} AS {_WIDER[kind]})" for part in parts)
            return f"TRY_CAST(({sides}) AS {kind})"
        if kind in FLOATS:
            return f" {operator} ".join(f"CAST({part} AS {kind})" for part in parts).join("()")
        return None if rounds(TRIED[operator], node.children) is not False else plain(node, parts)

    return rewrite


def _divided(form: str, *, attempt: bool = False) -> Rewrite:
    """Division and remainder: NULL divided by zero is NULL; any other number divided by zero is an error, or NULL for an attempt."""

    def rewrite(node: Typed, parts: Sequence[str]) -> str | None:
        sides = _sides(form, node, parts)
        if sides is None:
            return None
        (left, right), kind = sides
        second = node.children[1]
        if not isinstance(second.node, Literal) or not second.node.value:
            zero = _REMAINDER_BY_ZERO if form in {_REMAINDER, _PMOD} else _DIVISION_BY_ZERO
            failure = f"CASE WHEN {parts[0]} IS NOT NULL THEN CAST(raise_error('{zero}') AS {kind}) END"
            exact = second.type in INTEGERS or digits(second.type) is not None
            right = f"CASE WHEN {hidden(second, parts[1]) if exact else right} = 0 THEN {'NULL' if attempt else failure} ELSE {right} END"
        text = form.format(left, right)
        if form == _WHOLE and _decimals(node.children) is not None:
            quotient = f"CAST(({left} / {right}) AS decimal(38,0))"
            text = f"CASE WHEN abs({left} / {right}) < CAST('9223372036854775808' AS decimal(38,0)) THEN {text} ELSE {_beyond(quotient)} END"
        elif form == _QUOTIENT:
            text = _limited(node, parts, text)
        return text

    return rewrite


def _beyond(quotient: str) -> str:
    """SQL that refuses a row with a quotient outside bigint, of which Spark keeps the last bits."""
    return f"CASE WHEN {quotient} IS NOT NULL THEN {refused('a quotient outside bigint', 'bigint')} END"


def _sides(form: str, node: Typed, parts: Sequence[str]) -> tuple[Sequence[str], str] | None:
    """SQL of both sides in the type in which Spark divides, and the type of the divisor."""
    decimals, kind = _decimals(node.children), node.type
    if decimals is not None:
        (p1, s1), (p2, s2) = decimals
        left, right = _exact(node.children, parts)
        if form == _QUOTIENT:
            scale = _scale(node, s1)
            left = f"CAST({left} AS decimal({min(p1 - s1 + scale, MAX_DIGITS)},{scale}))"
        return (left, right), f"decimal({p2},{s2})"
    if form == _WHOLE and set(node.kinds) <= {*INTEGERS, "void"}:
        kind = "bigint"
    elif form == _PMOD and kind in FLOATS:
        return None
    if kind not in {*INTEGERS, *FLOATS}:
        return None
    if set(node.kinds) & set(
        INTEGERS
    ):  # beside these Spark reads a text as a whole number, also where it divides doubles
        texts = zip(node.children, parts, strict=True)
        parts = [
            cast(part, child, "bigint", attempt=False) if child.type == "string" else part for child, part in texts
        ]
    return [f"CAST({part} AS {kind})" for part in parts], kind


def _scale(node: Typed, own: int) -> int:
    """The scale of the dividend for which Sail's quotient has one digit more than Spark's, as rounding needs one."""
    result = digits(node.type)
    return max(own, (result[1] if result is not None else 0) + 1 - _EXTRA)


def _limited(node: Typed, parts: Sequence[str], text: str) -> str:
    """SQL that refuses rows whose quotient needs more digits than Sail has."""
    decimals = _decimals(node.children)
    if decimals is None or _needed("/", *decimals) <= MAX_DIGITS:
        return text
    (_, s1), (_, s2) = decimals
    dividend = _exact(node.children, parts)[0]
    whole = MAX_DIGITS - _scale(node, s1) - _EXTRA - s2
    most = f"CAST('1{'0' * whole}' AS decimal(38,0))" if whole >= 0 else "0"
    few, other = f"{dividend} IS NULL OR abs({dividend}) < {most}", refused("a quotient of so many digits", node.type)
    return f"CASE WHEN {few} THEN CAST({text} AS {node.type}) ELSE {other} END"


def _size(node: Typed, parts: Sequence[str]) -> str | None:
    if node.type not in INTEGERS:
        return None
    return f"abs(CAST({parts[0]} AS {_WIDER[node.type]}))"


_ANSI = 'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.'
_INSTEAD = f"to tolerate divisor being 0 and return NULL instead. {_ANSI}"
_DIVISION_BY_ZERO = f"[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` {_INSTEAD} SQLSTATE: 22012"
_REMAINDER_BY_ZERO = f"[REMAINDER_BY_ZERO] Remainder by zero. Use `try_mod` {_INSTEAD} SQLSTATE: 22012"
_QUOTIENT, _WHOLE, _REMAINDER, _PMOD = "({} / {})", "({} DIV {})", "({} % {})", "pmod({}, {})"
REWRITES: Mapping[str, Rewrite] = {
    **{operator: _added(operator) for operator in "+-*"},
    "negative": _added("-"),
    "abs": _size,
    **{name: _attempted(operator) for operator, name in TRIED.items()},
    "/": _divided(_QUOTIENT),
    "div": _divided(_WHOLE),
    **{name: _divided(_REMAINDER) for name in ("%", "mod")},
    "pmod": _divided(_PMOD),
    "try_divide": _divided(_QUOTIENT, attempt=True),
    "try_mod": _divided(_REMAINDER, attempt=True),
}
"""Function or operator -> its rewrite."""
