"""Rendering of the user's expressions as SQL for Sail, from their tree, so that Sail never parses the user's own text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from floodmark.core.sql import spark_literal
from floodmark.core.types import known
from floodmark.engines.embedded.parity import arithmetic
from floodmark.engines.embedded.parity.casts import cast, converted, wide
from floodmark.engines.embedded.parity.evaluation import beside_nulls, fails
from floodmark.engines.embedded.parity.patterns import OtherPattern
from floodmark.engines.embedded.parity.rewrites import REWRITES
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS

_INFIX = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "div",
        "&",
        "|",
        "^",
        "<<",
        ">>",
        ">>>",
        "||",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "and",
        "or",
        "rlike",
    ]
)
_SUFFIXES = {"tinyint": "Y", "smallint": "S", "bigint": "L"}
_SMALLEST = {"tinyint": -(1 << 7), "smallint": -(1 << 15), "int": -(1 << 31), "bigint": -(1 << 63)}
CONDITIONAL = frozenset({"if", "coalesce", "ifnull", "nvl", "nvl2", "and", "or"})
"""Calls that compute some of their arguments depending on the values of others."""
_ORDERED = frozenset({"in", "between"})
"""Calls whose rewrites compute an argument only if the arguments before it do not decide the result."""
_STOPPING = frozenset({"exists", "forall"})
"""Calls whose condition Spark computes up to the element that decides the result, Sail for all elements."""
LIBRARY = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "exp",
        "expm1",
        "ln",
        "log",
        "log2",
        "log10",
        "log1p",
        "pow",
        "power",
        "cbrt",
        "hypot",
    ]
)
"""Calls of a mathematical library, whose last bits the standard of floating numbers leaves open; Sail's results are close to Spark's."""
_NAN = LIBRARY | frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "mod",
        "try_divide",
        "try_mod",
        "negative",
        "sqrt",
        "try_add",
        "try_subtract",
        "try_multiply",
        "[]",
        "element_at",
        "try_element_at",
        "get",
    ]
)
"""Calls that may give a negative NaN, as columns may, which Sail orders before all numbers. Spark has one NaN, after all numbers."""
_NUMBER = re.compile(r"[-+]?[0-9]{1,9}([.][0-9]*)?")
_MOMENTS = ("epoch", "now", "today", "tomorrow", "yesterday")
_TAKES_NULL = frozenset(
    [
        "and",
        "or",
        "if",
        "nvl2",
        "isnull",
        "isnotnull",
        "<=>",
        "in",
        "nullif",
        "greatest",
        "least",
        "array",
        "struct",
        "named_struct",
        "map",
    ]
)
"""Calls of which Sail computes all arguments even if one is NULL for every row."""
_FIRST_KNOWN = frozenset({"coalesce", "ifnull", "nvl"})
_UNTYPED = frozenset({"boolean", "void", "variant", "decimal"})


class NotRendered(Exception):  # noqa: N818 - a reason, made a CapabilityError by ``check``
    """A part of an expression that cannot be rendered for Sail."""


def rendered(node: Typed) -> str:
    """The SQL of an expression for Sail.

    Raises:
        NotRendered: a part of the expression cannot be rendered.
    """
    match node.node:
        case Literal() as literal:
            return _literal(literal)
        case Column(name=name):
            return one_nan(quoted(node.column) if node.column else _parameter(name), node.type)
        case Cast(type=kind, attempt=attempt):
            _check_moment(node.children[0], kind)
            _check_single(node.children[0], kind)
            return cast(rendered(node.children[0]), node.children[0], kind, attempt=attempt)
        case Case():
            return _case(node)
        case Field(name=name):
            return one_nan(_field(node.children[0], name), node.type)
        case Lambda(parameters=parameters):
            names = ", ".join(_parameter(name) for name in parameters)
            return f"({names}) -> {rendered(node.children[0])}"
        case Call(name=name):
            return _call(node, name)


def one_nan(text: str, kind: str) -> str:
    """SQL of a value in which NaN has no sign; unchanged if the type has no NaN."""
    return f"nanvl({text}, CAST('NaN' AS {kind}))" if kind in FLOATS else text


def _check_moment(value: Typed, kind: str) -> None:
    match value.node:
        case Literal(value=str(text)) if kind in {"date", "timestamp"} and text.strip().lower().startswith(_MOMENTS):
            message = f"'{text}' as {kind}, which Spark reads where it is constant,"
            raise NotRendered(message)
        case _:
            return


def _check_single(value: Typed, kind: str) -> None:
    """Refuse a cast of an int or bigint to float, which may lose digits: Spark leaves this cast out if the float is then cast to double."""
    if kind != "float" or value.type not in {"int", "bigint"}:
        return
    message = f"CAST({value.type} AS float), which Spark leaves out where a double is made of it (write double)"
    raise NotRendered(message)


def _field(value: Typed, name: str) -> str:
    """SQL of a field that is null if its struct, or a struct around that, is null; Sail's own field access reads memory below a null."""
    if not value.type.startswith("struct<"):  # a key of a map; a field of each element of an array
        return f"({rendered(value)}).{quoted(name)}"
    path, structs = _path(value)
    missing = " OR ".join(f"{struct} IS NULL" for struct in structs)
    return f"CASE WHEN {missing} THEN NULL ELSE {path}.{quoted(name)} END"


def _path(value: Typed) -> tuple[str, list[str]]:
    """The path of a struct, and the paths of the structs that must not be null, the outermost first."""
    if isinstance(value.node, Field) and value.children[0].type.startswith("struct<"):
        path, around = _path(value.children[0])
        path = f"{path}.{quoted(value.node.name)}"
    else:
        path, around = f"({rendered(value)})", []
    return path, [*around, path]


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def _parameter(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        message = f"the parameter {name!r} of a lambda"
        raise NotRendered(message)
    return name


def _literal(literal: Literal) -> str:
    kind, value = literal.type, literal.value
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case bytes():
            return f"X'{value.hex()}'"
        case int() if value == _SMALLEST[kind]:  # its digits alone are no number of the type
            return f"CAST('{value}' AS {kind})"
        case int():
            written = f"{value}{_SUFFIXES.get(kind, '')}"
            return written if value >= 0 else f"({written})"
        case Decimal():
            return f"CAST('{value:f}' AS {kind})"
        case float():
            return f"CAST('{value}' AS {kind})"
        case _:
            return spark_literal(value) if kind == "string" else _named(value, kind)


def _named(value: str, kind: str) -> str:
    """SQL of a literal of a named type: a date, a timestamp, an interval."""
    if kind == "date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)):
        message = f"DATE {value!r}, which is not written YYYY-MM-DD,"
        raise NotRendered(message)
    if kind.startswith("interval"):
        return f"INTERVAL {spark_literal(str(value))}"
    return f"CAST({spark_literal(str(value))} AS {kind})"


def _check_constants(node: Typed) -> None:
    """Refuse a constant cast below a condition that may fail: Sail computes it before any row, Spark only for rows that need it."""
    for child in node.children:
        _check_constants(child)
    match node.node:
        case Cast(value=Literal(value=str() as text), type=kind) if kind != "string" and not _NUMBER.fullmatch(text):
            message = f"the constant CAST({text!r} AS {kind}) below a condition"
            raise NotRendered(message)


def _case(node: Typed) -> str:
    _check_constants(node)
    parts = [rendered(child) for child in node.children]
    kind = "int" if node.type == "boolean" else node.type
    otherwise = f" ELSE {as_type(parts.pop(), node.children[-1], kind)}" if len(parts) % 2 else ""
    whens = (
        f"WHEN {parts[i]} THEN {as_type(parts[i + 1], node.children[i + 1], kind)}" for i in range(0, len(parts), 2)
    )
    text = f"CASE {' '.join(whens)}{otherwise} END"
    return f"({text} <> 0)" if node.type == "boolean" else text


def as_type(text: str, node: Typed, kind: str) -> str:
    """SQL of a value as a type; unchanged if the value has the type, or if the type is unknown."""
    return (
        text
        if node.type == kind or not kind or known(kind) is None or kind == "void"
        else converted(text, node.type, kind)
    )


def _summed(operands: Sequence[tuple[str, Typed]], kind: str) -> str:
    try:
        return arithmetic.summed([(operator, rendered(operand)) for operator, operand in operands], kind)
    except OtherPattern as reason:
        raise NotRendered(str(reason)) from None


def _call(node: Typed, name: str) -> str:
    if name == "interval":
        return _interval(node)
    if name in CONDITIONAL:
        _check_constants(node)
    if name not in _FIRST_KNOWN and any(map(_nothing, _deciding(node))) and any(map(fails, node.children)):
        message = f"{name} of NULL beside what may fail, which Sail leaves out,"
        raise NotRendered(message)
    if name == "float":
        _check_single(node.children[0], "float")
    if name in _STOPPING and any(fails(condition) for condition in node.children[1].children[:1]):  # NULL has none
        message = (
            f"{name} with a condition that may fail, which Spark does not compute behind the element that decides,"
        )
        raise NotRendered(message)
    operands = arithmetic.terms(node)
    if len(operands) > arithmetic.MOST_NESTED:
        return _summed(operands, node.type)
    node = _floating(node)
    parts = [rendered(child) for child in node.children]
    rewrite = REWRITES.get(name)
    try:
        text = rewrite(node, parts) if rewrite is not None else None
    except OtherPattern as reason:
        raise NotRendered(str(reason)) from None
    if text is None:
        text = plain(node, name, parts)
    kind = node.type
    if name in _NAN:
        text = one_nan(text, kind)
    parsed = known(kind) if kind not in _UNTYPED else None
    text = text if parsed is None or not parsed.is_column else f"CAST({text} AS {kind})"
    return text if name in CONDITIONAL | _ORDERED else beside_nulls(node, parts, text)


def _nothing(node: Typed) -> bool:
    """Whether Sail knows before any row that a value is NULL for every row."""
    match node.node:
        case Literal(value=None):
            return True
        case Call(name=name) if name in _FIRST_KNOWN:
            return all(map(_nothing, node.children))
        case Cast() | Call():
            return any(map(_nothing, _deciding(node)))
        case _:
            return False


def _deciding(node: Typed) -> Sequence[Typed]:
    """The arguments of which any one, if it is NULL for every row, makes the result NULL for every row."""
    match node.node:
        case Call(name=name) if name in _TAKES_NULL:
            return ()
        case Call(name="concat_ws"):
            return node.children[:1]
        case _:
            return node.children


def _floating(node: Typed) -> Typed:
    """A call with its wide decimals cast to double, if its result is a floating number."""
    if node.type not in FLOATS:
        return node
    return replace(node, children=tuple(_as_double(child) if wide(child.type) else child for child in node.children))


def _as_double(node: Typed) -> Typed:
    return Typed(Cast(value=node.node, type="double"), "double", (node,))


def plain(node: Typed, name: str, parts: Sequence[str]) -> str:
    """SQL of a call without a rewrite."""
    form = _FORMS.get(name)
    if form is not None:
        return form(node, parts)
    if name in _INFIX and len(parts) == 2:  # noqa: PLR2004 - left and right
        return f"({parts[0]} {name.upper()} {parts[1]})"
    return f"{name}({', '.join(parts)})"


def _trimmed(side: str) -> Callable[[Typed, Sequence[str]], str]:
    def form(_: Typed, parts: Sequence[str]) -> str:
        return f"trim({side} {parts[1]} FROM {parts[0]})" if len(parts) > 1 else f"trim({side} FROM {parts[0]})"

    return form


def _word(node: Typed) -> str:
    """A word among arguments, such as the part of a date."""
    literal = node.node
    if not isinstance(literal, Literal) or not isinstance(literal.value, str) or not literal.value.isidentifier():
        message = "a part of a date that is not written out"
        raise NotRendered(message)
    return literal.value.upper()


def _extract(node: Typed, parts: Sequence[str]) -> str:
    return f"extract({_word(node.children[0])} FROM {parts[1]})"


def _shifted(name: str) -> Callable[[Typed, Sequence[str]], str]:
    return lambda node, parts: f"{name}({_word(node.children[0])}, {parts[1]}, {parts[2]})"


def _interval(node: Typed) -> str:
    written = []
    for value, unit in zip(node.children[::2], node.children[1::2], strict=True):
        amount, sign = value.node, ""
        if isinstance(amount, Call):
            amount, sign = amount.arguments[0], "-"
        if not isinstance(amount, Literal) or not isinstance(unit.node, Literal):
            message = "an interval that is not written out"
            raise NotRendered(message)
        number, name = str(amount.value), str(unit.node.value)
        written.append(f"INTERVAL '{sign}{number}' {name}")
    return f"({' + '.join(written)})"


def _like(word: str) -> Callable[[Typed, Sequence[str]], str]:
    def form(_: Typed, parts: Sequence[str]) -> str:
        escape = f" ESCAPE {parts[2]}" if len(parts) > 2 else ""  # noqa: PLR2004 - with an escape
        return f"({parts[0]} {word} {parts[1]}{escape})"

    return form


_FORMS: Mapping[str, Callable[[Typed, Sequence[str]], str]] = {
    "not": lambda _, parts: f"(NOT {parts[0]})",
    "~": lambda _, parts: f"(~ {parts[0]})",
    "[]": lambda _, parts: f"({parts[0]})[{parts[1]}]",
    "in": lambda _, parts: f"({parts[0]} IN ({', '.join(parts[1:])}))",
    "between": lambda _, parts: f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})",
    "isnull": lambda _, parts: f"({parts[0]} IS NULL)",
    "isnotnull": lambda _, parts: f"({parts[0]} IS NOT NULL)",
    "like": _like("LIKE"),
    "ilike": _like("ILIKE"),
    "negative": lambda _, parts: f"(- {parts[0]})",
    "trim": _trimmed("BOTH"),
    "ltrim": _trimmed("LEADING"),
    "rtrim": _trimmed("TRAILING"),
    "extract": _extract,
    "date_part": _extract,
    "datepart": _extract,
    "timestampadd": _shifted("timestampadd"),
    "timestampdiff": _shifted("timestampdiff"),
}
