"""Hash functions."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.engines.local.casts import NotTranslated
from floodmark.engines.local.translation.numbers import NARROW_DIGITS, unscaled
from floodmark.engines.local.translation.operand import Operand, Rule
from floodmark.spec.expressions.widening import digits

_SHA2_BITS = 256


def _of_bytes(name: str) -> Rule:
    def rule(call: Operand) -> str:
        value = call.children[0]
        return f"{name}({value.sql() if value.type == 'binary' else value.cast('string')})"

    return rule


def _sha2(call: Operand) -> str:
    if call.children[1].constant != _SHA2_BITS:
        raise NotTranslated(f"sha2 of other than {_SHA2_BITS} bits")
    return _of_bytes("sha256")(call)


def _xxhash64(call: Operand) -> str:
    """Spark starts with 42, and hashes each value that is not null with the hash so far as seed."""
    seed = "CAST(42 AS BIGINT)"
    for child in call.children:
        if child.type != "void":
            seed = f"CASE WHEN {child.sql()} IS NULL THEN {seed} ELSE {_seeded(child, seed)} END"
    return seed


def _seeded(child: Operand, seed: str) -> str:
    """The hash of a value that is not null."""
    value = child.sql()
    match child.type:
        case "bigint":
            return f"spark_hash_long({value}, {seed})"
        case "tinyint" | "smallint" | "int" | "boolean":
            return f"spark_hash_int(CAST({value} AS INTEGER), {seed})"
        case "string":
            return f"spark_hash_bytes(encode({value}), {seed})"
        case "binary":
            return f"spark_hash_bytes({value}, {seed})"
        case "timestamp":
            return f"spark_hash_long(epoch_us({value}), {seed})"
        case "date":
            return f"spark_hash_int(CAST({value} - DATE '1970-01-01' AS INTEGER), {seed})"
        case "double":
            return f"spark_hash_double({value}, {seed})"
        case kind if (shape := digits(kind)) and shape[0] <= NARROW_DIGITS:
            return f"spark_hash_long(CAST({unscaled(value)} AS BIGINT), {seed})"
        case kind:
            raise NotTranslated(f"xxhash64 of {kind}")


RULES: Mapping[str, Rule] = {
    "md5": _of_bytes("md5"),
    **dict.fromkeys(("sha1", "sha"), _of_bytes("sha1")),
    "sha2": _sha2,
    "xxhash64": _xxhash64,
}
"""Function -> its translation."""
