"""Sums of many columns on the embedded engine, whose time to plan grew more than twofold with each: as in Spark, to the first operand that is null or the first partial sum that is too large."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import floodmark as fm
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import END
from floodmark.engines.embedded.memory.rows import STAMP_SCHEMA
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import ROW

LARGEST = 2**63 - 1
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class Numbers(fm.Contract):
    """Whole numbers and a fraction."""

    at: fm.EventTime
    a: int | None
    b: int | None
    c: int | None
    f: float | None


SOURCE = fm.Source("numbers", contract=Numbers, connector=fm.DeltaTable("/nowhere"), watermark=fm.Ascending())


def computed(expression: str, rows: list[dict[str, object]]) -> list[object]:
    """The values of an expression over rows."""
    operator = fm.sql_operator("summed", f"SELECT {expression} AS total FROM numbers", inputs={"numbers": SOURCE})
    stamps = {"_watermark": 0, "_progress": END, "_kind": ROW}
    made = [{"at": BEGIN + timedelta(seconds=n), "_event_time": n, "_sequence": n, **stamps, **row} for n, row in enumerate(rows)]  # fmt: skip
    read = operator.inputs[0]
    table = pa.Table.from_pylist(made, schema=pa.schema([*arrow_schema(read.schema), *STAMP_SCHEMA]))
    out = MemoryRun(operator).batch({read.name: table})[""]
    return out.filter(pc.equal(out["_kind"], ROW)).sort_by("_sequence")["total"].to_pylist()


def by_hand(signs: list[str], names: list[str], row: dict[str, int | None]) -> int | None:
    """The sum from the left; OverflowError where a partial sum is no bigint."""
    total: int | None = None
    for sign, name in zip(signs, names, strict=True):
        value = row[name]
        if value is None:
            return None
        total = value if total is None else total + (value if sign == "+" else -value)
        if not -LARGEST - 1 <= total <= LARGEST:
            raise OverflowError
    return total


def test_a_sum_of_twenty_columns_is_the_sum_from_the_left() -> None:
    drawn = random.Random(5)
    signs, names = ["+", *drawn.choices("+-", k=19)], drawn.choices("abc", k=20)
    rows = [{name: drawn.choice([None, 0, 3, -7, 10**15]) for name in "abc"} | {"f": 0.5} for _ in range(30)]
    text = names[0] + "".join(f" {sign} {name}" for sign, name in zip(signs[1:], names[1:], strict=True))
    assert computed(text, rows) == [by_hand(signs, names, row) for row in rows]


def test_the_first_partial_sum_that_is_too_large_is_an_error_unless_a_null_came_before() -> None:
    text = f"a + b{' + 1' * 8} - b + c"
    assert computed(text, [{"a": None, "b": LARGEST, "c": LARGEST}, {"a": 5, "b": None, "c": 1}]) == [None, None]
    with pytest.raises(ExecutionError, match="ARITHMETIC_OVERFLOW"):
        computed(text, [{"a": LARGEST, "b": 1, "c": None}])
    assert computed(text, [{"a": LARGEST - 10, "b": 1, "c": None}]) == [None]


def test_a_sum_of_300_fractions_is_computed() -> None:
    assert computed(" + ".join(["f"] * 300), [{"f": 0.5}, {"f": None}]) == [150.0, None]


@pytest.mark.parametrize("text", [" + ".join(["a"] * 41), "(" * 13 + "a" + " * b)" * 13])
def test_more_than_the_engine_plans_in_a_moment_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(CapabilityError, match=r"CAPABILITY-031 .*take it apart with several with_columns.*subquery"):
        computed(text, [])
