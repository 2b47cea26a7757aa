"""Random values with odd ones among them, random cuts: every form of every aggregate gives the oracle's answer."""

from __future__ import annotations

import math
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.semantics.aggregates.sketch import (
    KEPT_HASHES,
    hash_of,
    hashes_of,
    sketch_add,
    sketch_count,
    sketch_merge,
)
from floodmark.semantics.columns import arrow_type
from tests.support.aggregate_forms import FUNCTIONS, NOTHING, accepts, forms
from tests.support.oracle_aggregates import answer, same, tolerance

_ODD_INTS = (2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1, 0, 1, -1)
_ODD_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e9 + 0.1, 1e9 + 0.2, 1e16, -1e16, 1.0, 0.1)
_DIGITS = Context(prec=60)

VALUES = {
    "bigint": st.one_of(st.sampled_from(_ODD_INTS), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5)),
    "int": st.one_of(st.sampled_from((2**31 - 1, -(2**31))), st.integers(-3, 3)),
    "double": st.one_of(
        st.sampled_from(_ODD_FLOATS), st.floats(1e-30, 1e30), st.floats(-1e30, -1e-30), st.floats(1e9, 1e9 + 1)
    ),
    "float": st.one_of(st.sampled_from((math.nan, -0.0, 0.5)), st.floats(-1024, 1024, width=16)),
    "decimal(38,2)": st.one_of(
        st.sampled_from((10**38 - 1, 1 - 10**38, 9 * 10**37, 1)), st.integers(1 - 10**38, 10**38 - 1)
    ).map(lambda units: Decimal(units).scaleb(-2, _DIGITS)),
    "decimal(9,2)": st.integers(1 - 10**9, 10**9 - 1).map(lambda units: Decimal(units).scaleb(-2)),
    "string": st.text(max_size=20).filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text)),
    "binary": st.binary(max_size=20),
    "boolean": st.booleans(),
    "date": st.dates(),
}


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_values_in_any_cut_are_aggregated_as_the_oracle_does(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=1, max_size=9))
    cuts = data.draw(st.lists(st.integers(1, 9), max_size=3))
    function = data.draw(st.sampled_from([name for name in FUNCTIONS if accepts(name, kind)]))
    wanted, scale = answer(function, kind, values), tolerance(function, values)
    for form, got in forms(function, kind, values, cuts):
        assert got != NOTHING
        assert same(got, wanted, scale), f"{function}, {form}: {got!r}, not {wanted!r}"


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_value_has_one_hash_alone_and_in_a_column(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=12))
    column = pa.chunked_array([pa.array(values, arrow_type(kind))])
    assert hashes_of(column).to_pylist() == [hash_of(value, kind) for value in column.to_pylist()]
    assert hashes_of(column.slice(1)).to_pylist() == hashes_of(column).to_pylist()[1:]


def test_a_sketch_by_row_is_bounded_and_does_not_depend_on_the_cut() -> None:
    numbers = [hash_of(value, "bigint") for value in range(30_000)]
    whole: set[int] = set()
    for number in numbers:
        whole = sketch_add(whole, number)
        assert len(whole) <= 2 * KEPT_HASHES
    parts: list[set[int]] = [set(), set()]
    for i, number in enumerate(numbers):
        parts[i % 2] = sketch_add(parts[i % 2], number)
    assert sketch_count(sketch_merge(*parts)) == sketch_count(whole)
    assert abs(sketch_count(whole) - 30_000) <= 0.06 * 30_000
