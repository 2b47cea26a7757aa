"""Casts in other words, where Sail reads or writes a value otherwise than Spark."""

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
"""Type -> the texts that Sail reads as Spark does. Spark reads some others, too; they are refused when they come."""
_READ = {
    "decimal": r"\\p{Nd}",
    "date": r"^[^0-9A-Za-z]*[0-9]{4,7}([^0-9A-Za-z/.,_]|[Tt]|$)",
    "timestamp": r"^[^0-9A-Za-z]*([0-9]{4,7}([^0-9A-Za-z/.,_]|[Tt]|$)|[Tt]?[0-9]{1,2}:)",
}
"""Type -> what is found in each text that Spark reads: it fails for all others. A year, or an hour; a digit of any script."""


_FAITHFUL = {"float": 7, "double": 15}
"""Type -> digits of decimals that Sail makes one of as Spark does; one with more is read anew from its text."""


def wide(kind: str, most: int = _FAITHFUL["double"]) -> bool:
    """Whether a type is a decimal of more digits than a double holds, or than so many."""
    precision = digits(kind)
    return precision is not None and precision[0] > most


def converted(value: str, source: str, target: str, word: str = "CAST") -> str:
    """A value as another type, where nothing else than the type has to be said.

    Args:
        value: SQL.
        source: its type.
        target: the type.
        word: of SQL.
    """
    if target in _FAITHFUL and wide(source, _FAITHFUL[target]):
        value = f"CAST({value} AS string)"
    return f"{word}({value} AS {target})"


def cast(value: str, source: Typed, target: str, *, attempt: bool) -> str:
    """A cast as Sail answers it like Spark.

    Args:
        value: SQL.
        source: the node it is of.
        target: the type.
        attempt: null instead of an error.
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
    ):  # 2^63 is the double next to the largest bigint, and Spark takes it for that
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
    """What Spark says of a text that it does not read as a type."""
    written = value.replace("\\", "\\\\").replace("'", "\\'")
    return _MALFORMED.format(written, kind.upper())


_MALFORMED = (
    '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "{}" because it is malformed. Correct the value as per the '
    "syntax, or change its target type. Use `try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018"
)


def _failing(value: str, target: str) -> str:
    """SQL of the error for a text that Spark does not read either."""
    before, after = _MALFORMED.format("\0", target.upper()).replace("'", "\\'").split("\0")
    written = f"replace(replace({value}, '\\\\', '\\\\\\\\'), '\\'', '\\\\\\'')"
    return f"CAST(raise_error(concat('{before}', {written}, '{after}')) AS {target})"


def rewritten(source: str, target: str, *, attempt: bool) -> bool:
    """Whether a cast is put in other words."""
    plain = Typed(None, source)  # type: ignore[arg-type]  # only its type is read
    return cast("x", plain, target, attempt=attempt) != f"{'TRY_CAST' if attempt else 'CAST'}(x AS {target})"
