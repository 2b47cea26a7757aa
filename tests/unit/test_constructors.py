"""Arrays and structs of any number of values, and CASE over them, on the embedded engine."""

from __future__ import annotations

import pytest

from floodmark.core.errors import CapabilityError
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.spec.values.schema import Column, Schema

SCHEMA = Schema(
    tuple(
        Column(name=name, type=kind)
        for name, kind in {"n": "bigint", "s": "string", "d": "double", "a": "array<bigint>", "t": "timestamp"}.items()
    )
)


@pytest.mark.parametrize(
    "text",
    [
        "array(0, 1, 2)",
        "array(n)",
        "array(n, 1, 2, n + 1)",
        "named_struct('a', n, 'b', s, 'c', d, 'd', t, 'e', a)",
        "CASE WHEN n > 0 THEN a ELSE array(n, n, n) END",
        "CASE WHEN n > 0 THEN a END",
    ],
)
def test_constructors_of_any_number_of_values_are_computed(text: str) -> None:
    assert sail_sql(text, SCHEMA)


def test_an_array_of_three_types_was_not_compared() -> None:
    with pytest.raises(CapabilityError, match="CAPABILITY-031"):
        sail_sql("array(n, s, d)", SCHEMA)
