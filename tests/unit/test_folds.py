"""Aggregates by row: what two parts of a window say together is what all of its rows say, as when sessions are merged."""

from __future__ import annotations

import copy
import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import floodmark as fm
from floodmark.semantics.aggregates.table import fold

AGGREGATES = {
    "sum": fm.sum("v"),
    "mean": fm.mean("v"),
    "min": fm.min("v"),
    "max": fm.max("v"),
    "count": fm.count("v"),
    "rows": fm.count(),
    "min_by": fm.min_by("v", "b"),
    "max_by": fm.max_by("v", "b"),
    "first": fm.first("v"),
    "last": fm.last("v"),
    "median": fm.median("v"),
    "percentile": fm.percentile("v", 0.7),
    "percentile_disc": fm.percentile_disc("v", 0.7),
    "mode": fm.mode("v"),
    "count_distinct": fm.count_distinct("v"),
    "sum_distinct": fm.sum_distinct("v"),
    "mean_distinct": fm.mean_distinct("v"),
}
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.integers(-2, 2))), max_size=4
)


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=AGGREGATES)
@given(left=ROWS, right=ROWS)
def test_parts_that_are_merged_are_one_whole(aggregate: fm.Aggregate, left: list, right: list) -> None:
    form = fold("a", aggregate, "bigint")

    def of(rows: list) -> object:
        return functools.reduce(lambda state, row: form.add(state, *row), rows, form.create())

    assert form.result(form.merge(of(left), copy.deepcopy(of(right)))) == form.result(of(left + right))


def test_a_session_without_values_leaves_the_sum_of_zero_of_the_session_it_joins() -> None:
    form = fold("a", fm.sum("v"), "bigint")
    assert form.result(form.merge(form.add(form.create(), 0, None), form.create())) == 0
