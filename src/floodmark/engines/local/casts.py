"""Spark's casts in DuckDB's SQL: an error where Spark's ANSI mode has one, and no rounding where Spark truncates."""

from __future__ import annotations

from floodmark.core.types import Type, parse

BLANKS = r"^[\x00-\x20]+|[\x00-\x20]+$"
_INTEGER = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_INSTANT = _DAY + r"([ T][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
_TRUE, _FALSE = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"


class NotTranslated(Exception):  # noqa: N818 - made a CapabilityError by whoever knows the step
    """What DuckDB does not compute as Spark does."""


def sql_type(kind: str) -> str:
    """The DuckDB type of a Spark SQL type."""
    return parse(kind).duckdb


def text(value: str) -> str:
    """A string literal."""
    if "\0" in value:
        raise NotTranslated("a text with a NUL character")
    return "'" + value.replace("'", "''") + "'"


def failure(reason: str, *, attempt: bool) -> str:
    """What stands where a value cannot be: an error, or null for ``try_`` functions."""
    return "NULL" if attempt else f"error({text(reason)})"


def cast(sql: str, source: str, target: str, *, attempt: bool = False) -> str:
    """A value cast to a type.

    Args:
        sql: the value, in DuckDB's words.
        source: its Spark type.
        target: the Spark type wanted.
        attempt: null instead of an error: ``try_cast``.

    Raises:
        NotTranslated: DuckDB's answer may differ from Spark's.
    """
    if source == target:
        return sql
    if source == "void":
        return f"CAST(NULL AS {sql_type(target)})"
    before, after = parse(source), parse(target)
    if before.name == "array" and after.name == "array":
        inner = cast("item", str(before.inner[0]), str(after.inner[0]), attempt=attempt)
        return f"list_transform({sql}, lambda item: {inner})"
    found = _cast(sql, before, after, attempt=attempt)
    if found is None:
        raise NotTranslated(f"CAST from {source} to {target}")
    return found


def _cast(sql: str, before: Type, after: Type, *, attempt: bool) -> str | None:
    plain = f"{'TRY_CAST' if attempt else 'CAST'}({sql} AS {after.duckdb})"
    if before.is_integer:
        numeric = after.is_numeric or after.name == "string"
        return plain if numeric else f"({sql} <> 0)" if after.name == "boolean" else None
    if before.is_decimal:
        return _of_decimal(sql, before, after, plain)
    if before.is_floating:
        return _of_float(sql, before, after, attempt=attempt)
    if before.name == "string":
        return _of_string(sql, after, attempt=attempt)
    if before.name == "boolean" and (after.name == "string" or after.is_integer or after.is_floating):
        return plain
    return _of_time(sql, before, after, plain)


def _of_time(sql: str, before: Type, after: Type, plain: str) -> str | None:
    match before.name, after.name:
        case "date", "timestamp":
            return f"CAST(CAST({sql} AS TIMESTAMP) AS TIMESTAMPTZ)"
        case "date", "string":
            return _four_digits(sql, plain)
        case "timestamp", "date":
            return f"CAST(CAST({sql} AS TIMESTAMP) AS DATE)"
        case "timestamp", "string":
            return _four_digits(sql, f"CAST(CAST({sql} AS TIMESTAMP) AS VARCHAR)")
        case "timestamp", "bigint":
            return f"spark_floor_div(epoch_us({sql}), 1000000)"
        case "timestamp", "double":
            return f"(epoch_us({sql}) / 1000000.0::DOUBLE)"
        case _:
            return None


def _four_digits(sql: str, written: str) -> str:
    """Years are written alike from 1000 to 9999."""
    return f"CASE WHEN year({sql}) BETWEEN 1000 AND 9999 THEN {written} WHEN {sql} IS NOT NULL THEN {failure('a year outside 1000 to 9999 as text', attempt=False)} END"


def _of_decimal(sql: str, before: Type, after: Type, plain: str) -> str | None:
    if after.is_integer:
        return plain.replace(sql, f"trunc({sql})", 1)
    if after.is_floating:
        return f"CAST(CAST({sql} AS VARCHAR) AS {after.duckdb})"
    if after.name == "boolean":
        return f"({sql} <> 0)"
    if after.name == "string" and before.precision == before.scale:  # DuckDB writes no zero before the point
        return f"regexp_replace({plain}, '^(-?)[.]', '\\10.')"
    return plain if after.is_decimal or after.name == "string" else None


def _of_float(sql: str, before: Type, after: Type, *, attempt: bool) -> str | None:
    if after.name == "double":
        return f"CAST({sql} AS DOUBLE)"
    if after.is_integer:
        whole = f"{'TRY_CAST' if attempt else 'CAST'}(trunc({sql}) AS {after.duckdb})"
        if after.name != "bigint":
            return whole
        # the largest bigint is no double; as one it is 2 to the power of 63, which Java takes for it
        return f"CASE WHEN {sql} = 9223372036854775808.0::DOUBLE THEN 9223372036854775807 ELSE {whole} END"
    if after.name == "boolean":
        return f"({sql} <> 0)"
    if before.name == "double" and after.is_decimal:
        number = f"{'TRY_CAST' if attempt else 'CAST'}(CAST({sql} AS VARCHAR) AS {after.duckdb})"
        return f"CASE WHEN isfinite({sql}) THEN {number} END"
    if before.name == "double" and after.name == "string":
        return f"spark_double_text({sql})"
    return None


def _of_string(sql: str, after: Type, *, attempt: bool) -> str | None:
    trimmed = f"regexp_replace({sql}, {text(BLANKS)}, '', 'g')"
    way = "TRY_CAST" if attempt else "CAST"
    reason = failure(f"CAST_INVALID_INPUT: a text that is no {after}", attempt=attempt)
    if after.name == "boolean":
        word = f"lower({trimmed})"
        return f"CASE WHEN {word} IN {_TRUE} THEN true WHEN {word} IN {_FALSE} THEN false WHEN {sql} IS NOT NULL THEN {reason} END"
    shapes = {"date": _DAY, "timestamp": _INSTANT}
    pattern = _INTEGER if after.is_integer else _NUMBER if after.is_numeric else shapes.get(after.name)
    if pattern is None or after.name == "float":
        return f"encode({sql})" if after.name == "binary" else None
    if not after.is_exact:  # Spark reads more than this: a time of today, a zone, a number in hexadecimal
        odd = failure(f"CAPABILITY-030 a text that may be a {after}", attempt=False)
        reason = f"CASE WHEN regexp_matches({trimmed}, '^[-+0-9.T]') THEN {odd} ELSE {reason} END"
    unsigned = f"ltrim({trimmed}, '+')" if after.is_numeric else trimmed
    value = f"{way}({unsigned} AS {after.duckdb})"
    if after.name == "double":
        special = f"lower(ltrim({trimmed}, '+'))"
        words = "('nan', 'inf', 'infinity', '-inf', '-infinity')"
        return f"CASE WHEN regexp_full_match({trimmed}, {text(pattern)}) OR {special} IN {words} THEN {value} WHEN {sql} IS NOT NULL THEN {reason} END"
    return (
        f"CASE WHEN regexp_full_match({trimmed}, {text(pattern)}) THEN {value} WHEN {sql} IS NOT NULL THEN {reason} END"
    )


MACROS = (
    "spark_floor_div(a, b) AS (a - ((a % b) + b) % b) // b",
    # Java writes a double so from 0.001 to 10,000,000; outside it writes an exponent
    r"""spark_double_text(x) AS CASE WHEN isnan(x) THEN 'NaN' WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END
        WHEN x = 0 OR abs(x) BETWEEN 0.001 AND 9999999 THEN CAST(x AS VARCHAR)
        WHEN x IS NOT NULL THEN error('CAPABILITY-030 a double outside 0.001 to 10000000 as text') END""",
    """spark_substring(s, p, n) AS CASE WHEN s IS NULL OR p IS NULL OR n IS NULL THEN NULL ELSE
        substring(s, greatest(CASE WHEN p > 0 THEN p - 1 WHEN p < 0 THEN length(s) + p ELSE 0 END, 0) + 1,
        greatest(CASE WHEN p > 0 THEN p - 1 WHEN p < 0 THEN length(s) + p ELSE 0 END + n, 0)
        - greatest(CASE WHEN p > 0 THEN p - 1 WHEN p < 0 THEN length(s) + p ELSE 0 END, 0)) END""",
    # a whole number as the text of a decimal with s digits behind the point
    """spark_shifted(q, s) AS CASE WHEN q < 0 THEN '-' ELSE '' END
        || substring(lpad(CAST(abs(q) AS VARCHAR), 40, '0'), 1, 40 - s) || '.' || right(lpad(CAST(abs(q) AS VARCHAR), 40, '0'), s)""",
    # a quotient of whole numbers, rounded half away from zero
    """spark_quotient(n, d) AS CAST(sign(n) * sign(d) AS HUGEINT) * (abs(n) // abs(d)
        + CASE WHEN abs(n) % abs(d) >= abs(d) - abs(n) % abs(d) THEN 1 ELSE 0 END)""",
)
"""Macros the translations use."""
