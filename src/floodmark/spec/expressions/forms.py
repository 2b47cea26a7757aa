"""Forms with words of their own: intervals and typed literals, and calls such as ``CAST(a AS int)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from floodmark.core.types import known
from floodmark.spec.expressions.functions import WHY
from floodmark.spec.expressions.literals import check_day, interval_type, number
from floodmark.spec.expressions.reader import Reader
from floodmark.spec.expressions.tokens import Token, Unreadable
from floodmark.spec.expressions.tree import Call, Cast, Column, Field, Literal, Node

TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "X"})
"""Words that give the text after them another type: ``DATE '2024-01-31'``."""
UNITS = frozenset(
    [
        "YEAR",
        "YEARS",
        "MONTH",
        "MONTHS",
        "WEEK",
        "WEEKS",
        "DAY",
        "DAYS",
        "HOUR",
        "HOURS",
        "MINUTE",
        "MINUTES",
        "SECOND",
        "SECONDS",
        "MILLISECOND",
        "MILLISECONDS",
        "MICROSECOND",
        "MICROSECONDS",
    ]
)
"""Units of intervals."""


def typed(reader: Reader, word: str) -> Literal:
    """The literal whose type is written before it: ``DATE '2024-01-31'``."""
    text = reader.take().text
    if word == "TIME":
        raise Unreadable("a TIME", WHY["time"][1])
    if word == "X":
        if not re.fullmatch(r"[0-9a-fA-F]*", text):
            raise Unreadable(f"X'{text}'", "Write hexadecimal digits: X'1F'.")
        return Literal(bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}"), "binary")
    check_day(word, text)
    return Literal(text, str(known(word)))


def interval(reader: Reader) -> Node:
    """The interval whose word INTERVAL has been read."""
    parts: list[tuple[Node, str]] = []
    while _quantity(reader, first=not parts):
        value = _amount(reader)
        if reader.token.word not in UNITS:
            if parts or not isinstance(value, Literal) or value.type != "string":
                raise Unreadable("an interval without a unit", "Write INTERVAL 1 HOUR, or `interval` for the column.")
            units = [
                unit for unit in re.findall("[a-z]+", str(value.value), re.IGNORECASE) if unit.lower() != "interval"
            ]
            return Literal(value.value, interval_type(units))
        unit = reader.take().word.removesuffix("S")
        if reader.accept("TO"):
            last = reader.take().word.removesuffix("S")
            return Call("interval", (value, Literal(f"{unit} TO {last}", interval_type([unit, last]))))
        _check_amount(value, unit)
        parts.append((value, unit))
    if not parts:
        raise Unreadable("an interval without a number", "Write INTERVAL 1 HOUR, or `interval` for the column.")
    whole = interval_type([unit for _, unit in parts])
    return Call("interval", tuple(node for value, unit in parts for node in (value, Literal(unit, whole))))


def _amount(reader: Reader) -> Node:
    """The amount before a unit, a number or a text, with or without a sign."""
    sign = reader.accept("-", "+")
    if reader.token.kind not in {"number", "string"}:
        written = "Write the number itself, or multiply: n * INTERVAL 1 DAY, make_dt_interval(n)."
        raise Unreadable(reader.unexpected("a number expected behind INTERVAL, ").got, written)
    token = reader.take()
    if token.kind == "number":
        return number(token.text, negative=sign == "-")
    text = Literal(token.text, "string")
    return Call("negative", (text,)) if sign == "-" else text


def _quantity(reader: Reader, *, first: bool) -> bool:
    """Whether the amount of a unit is next. After the ``first`` amount a unit must follow, as ``+`` may also add another value to the interval."""
    signed = reader.token.kind == "operator" and reader.token.text in {"-", "+"}
    number, unit = (reader.ahead(), reader.ahead(2)) if signed else (reader.token, reader.ahead())
    if first:
        return signed or number.kind in {"number", "string"} or number.text == "(" or unit.word in UNITS
    return number.kind in {"number", "string"} and unit.word in UNITS


def _check_amount(value: Node, unit: str) -> None:
    """Refuse an amount that is no number, or has a fraction and is not of seconds."""
    written = value.arguments[0] if isinstance(value, Call) else value
    amount = str(written.value) if isinstance(written, Literal) else ""
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*" if unit == "SECOND" else r"\s*[+-]?\d+\s*", amount):
        raise Unreadable(f"an interval of {amount} {unit}", "Write whole numbers; seconds alone have a fraction.")


def _cast(reader: Reader, token: Token) -> Node:
    value = reader.expression()
    reader.expect("AS")
    kind = reader.type()
    reader.expect(")")
    return Cast(value, kind, attempt=token.word == "TRY_CAST")


def _extract(reader: Reader, _: Token) -> Node | None:
    if reader.token.kind == "end" or reader.ahead().word != "FROM":
        return None
    if reader.token.kind not in {"word", "quoted"}:
        shown = f"{reader.token.text!r} before FROM"
        raise Unreadable(shown, "Write the part as a word: extract(YEAR FROM at), or date_part('YEAR', at).")
    part = Literal(reader.take().text.lower(), "string")
    reader.expect("FROM")
    value = reader.expression()
    reader.expect(")")
    return Call("extract", (part, value))


def _trim(reader: Reader, _: Token) -> Node | None:
    start = reader.position
    side = reader.accept("BOTH", "LEADING", "TRAILING")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
    characters = None if reader.token.word == "FROM" else reader.binary(0)
    if not reader.accept("FROM"):
        reader.position = start
        return None
    value = reader.expression()
    reader.expect(")")
    return Call(name, (value,) if characters is None else (value, characters))


def _position(reader: Reader, _: Token) -> Node | None:
    start, needle = reader.position, reader.binary(0)
    if not reader.accept("IN"):
        reader.position = start
        return None
    text = reader.binary(0)
    reader.expect(")")
    return Call("position", (needle, text))


def _substring(reader: Reader, _: Token) -> Node | None:
    start, text = reader.position, reader.expression()
    if not reader.accept("FROM"):
        reader.position = start
        return None
    arguments = [text, reader.expression()]
    if reader.accept("FOR"):
        arguments.append(reader.expression())
    reader.expect(")")
    return Call("substring", tuple(arguments))


def _overlay(reader: Reader, _: Token) -> Node | None:
    start, text = reader.position, reader.expression()
    if not reader.accept("PLACING"):
        reader.position = start
        return None
    arguments = [text, reader.expression()]
    reader.expect("FROM")
    arguments.append(reader.expression())
    if reader.accept("FOR"):
        arguments.append(reader.expression())
    reader.expect(")")
    return Call("overlay", tuple(arguments))


def shift(reader: Reader, token: Token) -> Node:
    """A call with a unit and two arguments. With one argument the unit's word is a column, as in ``datediff(day, moment)``."""
    unit = reader.take()
    reader.expect(",")
    arguments = reader.arguments()
    if len(arguments) == 1:
        return Call(token.text.lower(), (Column(unit.text), *arguments))
    name = "timestampdiff" if "DIFF" in token.word else "timestampadd"
    return Call(name, (Literal(unit.text.lower(), "string"), *arguments))


def _struct(reader: Reader, _: Token) -> Node:
    parts: list[Node] = []
    while not reader.accept(")"):
        if parts:
            reader.expect(",")
        value = reader.expression()
        name = reader.take().text if reader.accept("AS") else value.name if isinstance(value, (Column, Field)) else ""
        parts += [Literal(name or f"col{len(parts) // 2 + 1}", "string"), value]
    return Call("named_struct", tuple(parts))


SPECIAL: Mapping[str, Callable[[Reader, Token], Node | None]] = {
    "CAST": _cast,
    "TRY_CAST": _cast,
    "EXTRACT": _extract,
    "TRIM": _trim,
    "POSITION": _position,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "OVERLAY": _overlay,
    "STRUCT": _struct,
}
