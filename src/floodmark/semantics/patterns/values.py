"""Values of expressions by row, with the meaning of Spark SQL in ANSI mode: a typed tree becomes a Python function.

Three-valued logic, NaN equal to NaN and greater than any number, overflow of integers an error: as the engines compute in columns.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from floodmark.core.time import to_ms
from floodmark.core.types import known
from floodmark.spec.expressions.literals import moment
from floodmark.spec.expressions.tree import Call, Case, Cast, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import common_of

Row = Mapping[str, Any]
Value = Callable[[Row], Any]
"""(a row, with the references of its expression as columns) -> value."""

_TIMES = frozenset({"date", "timestamp"})
_EPOCH, _MICRO = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_WIDE = Context(prec=76, rounding=ROUND_HALF_UP)


def compiled(tree: Typed) -> Value:
    """(tree) -> function of a row."""
    match tree.node:
        case Literal(value=value, type=kind):
            constant = _constant(value, kind)
            return lambda row: constant  # noqa: ARG005 - one shape for all
        case Cast(type=kind, value=Literal(value=str() as text)) if kind in _TIMES:
            return compiled(Typed(Literal(text, kind), kind))
        case Cast(type=kind):
            return _cast(compiled(tree.children[0]), kind)
        case Case(otherwise=otherwise):
            last = len(tree.children) - (otherwise is not None)
            conditions, values = tree.children[0:last:2], (*tree.children[1:last:2], *tree.children[last:])
            return _case([*map(compiled, conditions)], _widened(values), has_else=otherwise is not None)
        case Call(name=name):
            return _call(name, tree)
    name = tree.column
    return operator.itemgetter(name)


def _constant(value: Any, kind: str) -> Any:
    return moment(kind, value) if kind in _TIMES else value


def _cast(value: Value, kind: str) -> Value:
    typed = known(kind)
    if typed is None or not (typed.is_floating or typed.is_integer):
        return value
    convert: Callable[[Any], Any] = float
    if typed.is_integer:
        convert = _within(kind)
    return lambda row: None if (v := value(row)) is None else convert(v)


def _case(conditions: Sequence[Value], values: Sequence[Value], *, has_else: bool) -> Value:
    pairs = list(zip(conditions, values, strict=False))
    otherwise = values[-1] if has_else else None

    def value(row: Row) -> Any:
        for condition, result in pairs:
            if condition(row):
                return result(row)
        return None if otherwise is None else otherwise(row)

    return value


def _call(name: str, tree: Typed) -> Value:
    if name == "between":  # two comparisons, each with a type of its own
        value, low, high = tree.children
        return _connective([_compared(">=", [value, low]), _compared("<=", [value, high])], decisive=False)
    if name == "nullif":  # the value as it is, whatever it is compared as
        return _nullif(compiled(tree.children[0]), _compared("=", tree.children))
    if name in _COMPARED:
        return _compared(name, tree.children)
    if name in _CONNECTIVES:
        return _connective([*map(compiled, _chain(tree))], decisive=_CONNECTIVES[name])
    children = _alike(name, tree.children)
    if name == "if":
        parts = [compiled(children[0]), *_widened(children[1:])]
    else:
        parts = _widened(children) if name in _COMPARISONS or name in _LOGIC else [*map(compiled, children)]
    if name in _LOGIC:
        return _LOGIC[name](parts)
    if name in _ARITHMETIC:
        return _strict(_arithmetic(name, tree), parts)
    return _strict(_FUNCTIONS[name], parts)


def _compared(name: str, children: Sequence[Typed]) -> Value:
    return _strict(_COMPARED[name], _widened(_alike(name, children)))


def _widened(children: Sequence[Typed]) -> list[Value]:
    """Values that stand for each other: where one is a double, whole numbers and decimals are read as doubles."""
    double = common_of([child.type for child in children]) == "double"
    return [
        _cast(compiled(child), "double") if double and child.type != "double" else compiled(child) for child in children
    ]


def _alike(name: str, children: Sequence[Typed]) -> Sequence[Typed]:
    """The operands, constants of text read as times where the others are times."""
    times = {child.type for child in children} & _TIMES
    if len(times) != 1 or name not in _COMPARISONS:
        return children
    kind = times.pop()
    return [
        Typed(Literal(child.node.value, kind), kind)
        if isinstance(child.node, Literal) and child.type == "string"
        else child
        for child in children
    ]


def _strict(function: Callable[..., Any], parts: Sequence[Value]) -> Value:
    """A function that is null where an argument is null."""
    if len(parts) == 2:  # noqa: PLR2004 - most functions
        left, right = parts

        def of_two(row: Row) -> Any:
            a = left(row)
            if a is None:
                return None
            b = right(row)
            return None if b is None else function(a, b)

        return of_two

    def value(row: Row) -> Any:
        values = [part(row) for part in parts]
        return None if None in values else function(*values)

    return value


# ---- logic


def _connective(parts: Sequence[Value], *, decisive: bool) -> Value:
    """AND and OR: ``decisive`` of any part is the answer whatever the other parts are; else null of any part is null."""

    def value(row: Row) -> Any:
        result: bool | None = not decisive
        for part in parts:
            v = part(row)
            if v is decisive:
                return decisive
            if v is None:
                result = None
        return result

    return value


def _chain(tree: Typed) -> list[Typed]:
    """The operands of ``a OR b OR c``, or of AND, from left to right."""
    operands, left = [], tree
    while isinstance(left.node, Call) and isinstance(tree.node, Call) and left.node.name == tree.node.name:
        left, right = left.children
        operands.append(right)
    return [left, *reversed(operands)]


def _member(parts: Sequence[Value]) -> Value:
    subject, *others = parts

    def value(row: Row) -> Any:
        a = subject(row)
        if a is None:
            return None
        values = [other(row) for other in others]
        if any(b is not None and order(a) == order(b) for b in values):
            return True
        return None if None in values else False

    return value


def _same(parts: Sequence[Value]) -> Value:
    left, right = parts
    return lambda row: _identical(left(row), right(row))


def _identical(a: Any, b: Any) -> bool:
    return a is None and b is None if a is None or b is None else bool(order(a) == order(b))


def _coalesce(parts: Sequence[Value]) -> Value:
    return lambda row: next((v for part in parts if (v := part(row)) is not None), None)


def _extreme(better: Callable[[Any, Any], bool]) -> Callable[[Sequence[Value]], Value]:
    def of(parts: Sequence[Value]) -> Value:
        def value(row: Row) -> Any:
            best = None
            for part in parts:
                v = part(row)
                if v is not None and (best is None or better(order(v), order(best))):
                    best = v
            return best

        return value

    return of


def _if(parts: Sequence[Value]) -> Value:
    condition, yes, no = parts
    return lambda row: yes(row) if condition(row) else no(row)


def _nullif(value: Value, equal: Value) -> Value:
    return lambda row: None if equal(row) else value(row)


_CONNECTIVES = {"and": False, "or": True}
_LOGIC: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    "in": _member,
    "<=>": _same,
    "isnull": lambda parts: lambda row: parts[0](row) is None,
    "isnotnull": lambda parts: lambda row: parts[0](row) is not None,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "least": _extreme(operator.lt),
    "greatest": _extreme(operator.gt),
    "if": _if,
}


# ---- values


class _Largest:
    """NaN in comparisons: equal to itself, greater than any number."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, _Largest)

    def __le__(self, other: object) -> bool:
        return isinstance(other, _Largest)

    def __ge__(self, other: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Largest)

    __hash__ = None  # type: ignore[assignment]  # never a key


_NAN = _Largest()


def order(value: Any) -> Any:
    """A value that compares as Spark compares: NaN as the greatest number."""
    return _NAN if isinstance(value, float) and value != value else value  # noqa: PLR0124 - NaN


def _compare(how: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: how(order(a), order(b))


def _within(kind: str) -> Callable[[Any], int]:
    typed = known(kind)
    assert typed is not None
    low, high = typed.bounds or (0, 0)

    def checked(value: Any) -> int:
        whole = int(value)
        if not low <= whole <= high:
            msg = f"{whole} is no {kind}"
            raise OverflowError(msg)
        return whole

    return checked


def _arithmetic(name: str, tree: Typed) -> Callable[..., Any]:
    plain, kind = _ARITHMETIC[name], known(tree.type)
    if kind is None:
        return plain
    if kind.is_integer:
        fit = _within(tree.type)
        return lambda *values: fit(plain(*values))
    if kind.is_decimal:
        step = Decimal(1).scaleb(-kind.scale)
        wide = _DECIMALS[name]
        return lambda *values: _WIDE.quantize(wide(*map(Decimal, values)), step)
    if tree.type == "float":
        return lambda *values: plain(*map(float, values))
    return lambda *values: plain(*map(float, values)) if name != "/" else _divided(*map(float, values))


def _divided(a: Any, b: Any) -> Any:
    if b == 0:
        msg = "division by zero"
        raise ZeroDivisionError(msg)
    return a / b


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        msg = "division by zero"
        raise ZeroDivisionError(msg)
    return math.fmod(a, b) if isinstance(a, float) else int(math.copysign(abs(a) % abs(b), a))


def _whole(a: Any, b: Any) -> int:
    _remainder(a, b)
    return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
    "mod": _remainder,
    "div": _whole,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": abs,
}
_DECIMALS: Mapping[str, Callable[..., Any]] = {
    "+": _WIDE.add,
    "-": _WIDE.subtract,
    "*": _WIDE.multiply,
    "/": _WIDE.divide,
    "%": _WIDE.remainder,
    "mod": _WIDE.remainder,
    "negative": _WIDE.minus,
    "positive": _WIDE.plus,
    "abs": _WIDE.abs,
}


def _like(text: str, pattern: str) -> bool:
    parts, position = [], 0
    while position < len(pattern):
        letter = pattern[position]
        if letter == "\\" and position + 1 < len(pattern):
            position += 1
            parts.append(re.escape(pattern[position]))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter, re.escape(letter)))
        position += 1
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _substring(text: str, start: int, length: int | None = None) -> str:
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


_COMPARED: Mapping[str, Callable[..., Any]] = {
    "=": _compare(operator.eq),
    "<>": _compare(operator.ne),
    "<": _compare(operator.lt),
    "<=": _compare(operator.le),
    ">": _compare(operator.gt),
    ">=": _compare(operator.ge),
}
_COMPARISONS = frozenset([*_COMPARED, "<=>", "in", "coalesce", "ifnull", "nvl", "least", "greatest"])
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": operator.not_,
    "like": _like,
    "||": lambda *parts: "".join(parts),
    "concat": lambda *parts: "".join(parts),
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "char_length": len,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "substring": _substring,
    "substr": _substring,
    "trim": lambda text: text.strip(" "),
    "unix_micros": lambda moment: (moment - _EPOCH) // _MICRO,
    "unix_millis": to_ms,
    "unix_seconds": lambda moment: to_ms(moment) // 1000,
}
