"""Chains of three windowed operators, each link cut into random micro-batches of its own, against one micro-batch each."""

from __future__ import annotations

import random

import pytest
from chains import chain, drive, equal, landed


@pytest.mark.feature("W11", "B9")
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 30))])
def test_a_chain_of_three_gives_the_same_however_each_link_is_cut(seed: int) -> None:
    operators, rows = chain(seed), landed(seed)
    expected = drive(operators, rows, None)
    assert expected[0][3], "nothing was late: the case is empty"
    for variant in range(1, 4):
        got = drive(operators, rows, random.Random(seed * 100 + variant))
        for link, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            assert equal(mine[0], theirs[0]), f"final values of link {link + 1}, seed {seed}, variant {variant}"
            assert mine[2] == theirs[2], f"dropped rows of link {link + 1}"
            if link == 0:
                assert mine[1] == theirs[1], "late rows of the first link"
