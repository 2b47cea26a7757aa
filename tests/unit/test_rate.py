"""The arithmetic of how long a bounded run takes by past ones."""

from __future__ import annotations

import random

import pytest

from floodmark.lifecycle.rate import NEWEST, Cost, Rate


def cost(rows: int, seconds: float, **about: int) -> Cost:
    numbers = {"at": 0, "files": 1, "size": 1, "rows_written": 0, "size_written": 0} | about
    return Cost(engine="embedded", rows=rows, seconds=seconds, **numbers)


def test_runs_on_a_line_give_the_line() -> None:
    rate = Rate.of([cost(rows, 2 + rows / 1000) for rows in (10, 500, 4000)])
    assert rate is not None
    assert rate.fixed == pytest.approx(2)
    assert rate.seconds(100_000, 3) == pytest.approx(3 * 2 + 100)


def test_one_run_or_runs_of_one_size_grow_with_the_rows() -> None:
    rate = Rate.of([cost(1000, 4.0), cost(1000, 6.0)])
    assert rate is not None
    assert rate.fixed == 0
    assert rate.seconds(1000) == 6, "the newer one counts more"
    assert rate.seconds(2000) == 12


@pytest.mark.parametrize("points", [[(10, 9.0), (1000, 1.0)], [(10, 0.001), (1000, 9.0)]])
def test_no_part_of_a_rate_is_negative(points: list[tuple[int, float]]) -> None:
    rate = Rate.of([cost(rows, seconds) for rows, seconds in points])
    assert rate is not None
    assert rate.fixed >= 0
    assert rate.per_row >= 0


def test_a_run_on_a_cold_disk_moves_the_line_no_further_than_any_other() -> None:
    true = [cost(rows, 1 + rows / 50_000) for rows in (90_000, 8_000, 15_000, 120_000)]
    slow = cost(60_000, 10 * (1 + 60_000 / 50_000))
    for number in range(len(true) + 1):
        rate = Rate.of([*true[:number], slow, *true[number:]])
        assert rate is not None
        for rows in (5_000, 50_000, 200_000):
            assert rate.seconds(rows) == pytest.approx(1 + rows / 50_000)


def test_an_operator_that_has_become_slower_is_told_by_its_newest_runs() -> None:
    sizes = [(7919 * number) % 90_000 + 1_000 for number in range(20)]
    past = [cost(rows, (1 + rows / 20_000) * (1 if number < 12 else 3)) for number, rows in enumerate(sizes)]
    rate = Rate.of(past)
    assert rate is not None
    assert rate.seconds(40_000) == pytest.approx(9, rel=0.5)


def test_no_run_is_no_rate_and_what_is_written_is_a_share_of_what_is_read() -> None:
    assert Rate.of([]) is None
    assert Rate.of([cost(0, 1.0)]) is None
    rate = Rate.of([cost(100, 1, rows_written=10, size_written=1000), cost(300, 2, rows_written=30, size_written=3000)])
    assert rate is not None
    assert (rate.rows_per_row, rate.size_per_row, rate.runs) == (0.1, 10, 2)


def test_noisy_runs_are_told_within_a_factor_of_one_and_a_half_after_the_third() -> None:
    rng = random.Random(5)

    def took(rows: int) -> float:
        return (1.5 + rows / 20_000) * rng.uniform(0.85, 1.15)

    past: list[Cost] = []
    for number in range(60):
        rows = rng.randrange(1000, 200_000)
        rate = Rate.of(past)
        if number >= 3:
            assert rate is not None
            assert 1 / 1.5 < rate.seconds(rows) / took(rows) < 1.5
        past.append(cost(rows, took(rows)))
    assert Rate.of(past) == Rate.of(past[-NEWEST:]), "the newest alone"
