"""Stretches of event time: the same however rows are divided, and which few rows are far from all others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.time import END, NEVER
from floodmark.semantics.time.stretches import _MOST, GAP, Stretch, apart, joined, stretches

YEAR = 366 * 86_400_000


def of(moments: list[int], first: int = 0) -> tuple[Stretch, ...]:
    return stretches(np.array(moments, dtype=np.int64), lambda place: first + place)


def in_pieces(moments: list[int], cuts: list[int]) -> tuple[Stretch, ...]:
    found: tuple[Stretch, ...] = ()
    bounds = [0, *sorted(cuts), len(moments)]
    for start, end in pairwise(bounds):
        found = joined(found, of(moments[start:end], start))
    return found


@given(
    st.lists(st.integers(0, 5).map(lambda n: n * YEAR) | st.integers(0, 4 * YEAR), max_size=40),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_pieces_joined_are_the_whole(moments: list[int], cuts: list[int]) -> None:
    assert in_pieces(moments, [min(cut, len(moments)) for cut in cuts]) == of(moments)


@given(st.lists(st.integers(NEVER, END), min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_however_wide_rows_are_spread_all_are_counted_in_few_stretches(moments: list[int], cuts: list[int]) -> None:
    for found in (of(moments), in_pieces(moments, [min(cut, len(moments)) for cut in cuts])):
        assert sum(one.rows for one in found) == len(moments)
        assert len(found) <= _MOST
        assert (found[0].start, found[-1].end) == (min(moments), max(moments))
        assert all(later.start - earlier.end >= GAP for earlier, later in pairwise(found))
        assert min(one.earlier for one in found) == 0


def test_a_stretch_names_the_row_that_landed_first() -> None:
    early, middle, late = of([10 * YEAR, 10 * YEAR + 5, 0, 20 * YEAR, 7, 10 * YEAR])
    assert (early.start, early.end, early.rows, early.earlier, early.position) == (0, 7, 2, 2, 2)
    assert (middle.rows, middle.earlier, middle.position) == (3, 0, 0)
    assert (late.rows, late.earlier, late.position) == (1, 3, 3)
    assert Stretch.from_json(late.as_json()) == late


def rows_of(found: tuple[Stretch | None, Stretch | None, Stretch | None]) -> tuple[int, ...]:
    return tuple(0 if one is None else one.rows for one in found)


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([], (0, 0, 0)),
        ([0], (0, 1, 0)),
        ([0, 50 * YEAR], (0, 2, 0)),
        ([0, 50 * YEAR, 50 * YEAR], (1, 2, 0)),
        ([0, 0, 50 * YEAR], (0, 2, 1)),
        ([NEVER, *[50 * YEAR] * 30, END], (1, 30, 1)),
        ([NEVER, 0, *[50 * YEAR] * 30], (2, 30, 0)),
        ([0] * 4 + [50 * YEAR] * 30, (0, 34, 0)),
        ([n * 2 * YEAR for n in range(40)], (0, 40, 0)),
        ([*[n * 2 * YEAR for n in range(10)] * 4, 200 * YEAR], (0, 40, 1)),
        ([n * 1000 for n in range(1000)], (0, 1000, 0)),
    ],
    ids=[
        "none",
        "one",
        "two",
        "one early",
        "one ahead",
        "both",
        "two early",
        "too many",
        "sparse",
        "sparse and one",
        "dense",
    ],
)
def test_few_rows_are_far_if_their_gap_is_wider_than_those_among_the_others(
    moments: list[int], expected: tuple[int, ...]
) -> None:
    assert rows_of(apart(of(moments))) == expected
