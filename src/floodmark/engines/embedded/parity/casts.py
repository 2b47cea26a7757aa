"""Casts rewritten if Sail parses or formats a value otherwise than Spark."""

from __future__ import annotations

from floodmark.engines.embedded.parity.evaluation import hidden
from floodmark.engines.embedded.parity.times import refused, seconds
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import FLOATS, INTEGERS, digits

_SUFFIXED = r"^\\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?[dDfF]\\s*$"
"""A double with Java's suffix."""
_PLAIN = {
    "decimal": r"^ *[-+]?[0-9]{1,28}([.][0-9]{0,10})? *$",
    "date": r"^ *[0-9]{4}-[0-9]{1,2}-[0-9]{1,2} *$",
    "timestamp": r"^ *[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.][0-9]{1,6})?(Z|[-+][0-9]{2}:[0-9]{2})?)? *$",
}
"""Type -> pattern of the texts that Sail parses as Spark does. Spark parses other texts, too; rows with these are refused."""
_READ = {
    "decimal": r"\\p{Nd}",
    "date": r"^[^0-9A-Za-z]*[0-9]{4,7}([^0-9A-Za-z/.,_]|[Tt]|$)",
    "timestamp": r"^[^0-9A-Za-z]*([0-9]{4,7}([^0-9A-Za-z/.,_]|[Tt]|$)|[Tt]?[0-9]{1,2}:)",
}
"""Type -> pattern that matches every text that Spark parses: a year or an hour; a digit of any script. Spark fails for other texts."""
_FAITHFUL = {"float": 7, "double": 15}
"""Type -> most digits of decimals that Sail converts to the type as Spark does; decimals with more digits are converted through text."""


def wide(kind: str, most: int = _FAITHFUL["double"]) -> bool:
    """Whether a type is a decimal of more than ``most`` digits; by default, of more digits than a double holds."""
    precision = digits(kind)
    return precision is not None and precision[0] > most


def converted(value: str, source: str, target: str, word: str = "CAST") -> str:
    """SQL of a plain cast, without a rewrite for the types.

    Args:
        value: SQL of the value.
        source: type of the value.
        target: the type.
        word: of the cast in SQL.
    """
    if target in _FAITHFUL and wide(source, _FAITHFUL[target]):
        value = f"CAST({value} AS string)"
    return f"{word}({value} AS {target})"


def cast(value: str, source: Typed, target: str, *, attempt: bool) -> str:
    """SQL of a cast with which Sail gives Spark's answer.

    Args:
        value: SQL of the value.
        source: node of the value.
        target: the type.
        attempt: whether the cast gives null instead of an error.
    """
    word, kind = "TRY_CAST" if attempt else "CAST", source.type
    name = "decimal" if target.startswith("decimal") else target
    if kind == "timestamp" and target in INTEGERS:
        value = seconds(value)
    elif kind == "timestamp" and target in FLOATS:
        value = f"(CAST(unix_micros({value}) AS double) / 1000000D)"
    elif kind.startswith("decimal") and target == "boolean":
        return f"({hidden(source, value)} <> 0)"
    elif (
        kind in FLOATS and target == "bigint"
    ):  # Spark casts 2^63, the double next to the largest bigint, to the largest bigint
        return f"CASE WHEN {value} = 9223372036854775808D THEN 9223372036854775807L ELSE {word}(nullif({value}, 9223372036854775808D) AS bigint) END"
    elif kind == "boolean" and name == "decimal":
        value = f"CAST({value} AS int)"
    elif kind == "string" and target in FLOATS:
        value = f"CASE WHEN {value} RLIKE '{_SUFFIXED}' THEN left(rtrim({value}), length(rtrim({value})) - 1) ELSE {value} END"
    elif kind == "string" and name in _PLAIN and not attempt:
        reads = f"{value} IS NULL OR {value} RLIKE '{_PLAIN[name]}'"
        fails = f"NOT {value} RLIKE '{_READ[name]}' THEN {_failing(value, target)}"
        unsure = refused(f"a text as {name}", target)
        return f"CASE WHEN {reads} THEN CAST(trim({value}) AS {target}) WHEN {fails} ELSE {unsure} END"
    return converted(value, kind, target, word)


def malformed(value: str, kind: str) -> str:
    """Spark's message for a text that it cannot parse as a type."""
    written = value.replace("\\", "\\\\").replace("'", "\\'")
    return _MALFORMED.format(written, kind.upper())


_MALFORMED = (
    '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "{}" because it is malformed. Correct the value as per the '
    "syntax, or change its target type. Use `try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018"
)


def _failing(value: str, target: str) -> str:
    """SQL that raises Spark's error for a text that Spark cannot parse."""
    before, after = _MALFORMED.format("\0", target.upper()).replace("'", "\\'").split("\0")
    written = f"replace(replace({value}, '\\\\', '\\\\\\\\'), '\\'', '\\\\\\'')"
    return f"CAST(raise_error(concat('{before}', {written}, '{after}')) AS {target})"


def rewritten(source: str, target: str, *, attempt: bool) -> bool:
    """Whether a cast is rewritten."""
    plain = Typed(None, source)  # type: ignore[arg-type]  # only its type is read
    return cast("x", plain, target, attempt=attempt) != f"{'TRY_CAST' if attempt else 'CAST'}(x AS {target})"
