"""What is said of differences while they are measured holds its level, however often somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from growing import Row, ms, pair, result

from floodmark.lifecycle.comparison import Drift
from floodmark.observe.comparison.closed import advance, read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.evidence import LEVEL, SCALED, drift
from floodmark.observe.comparison.page import page

RUNS, WINDOWS = 200, 250
DRAWS: dict[str, Callable[[Random], float]] = {
    "even tails": lambda random: random.gauss(0, 1),
    "no mean": lambda random: random.gauss(0, 1) / random.gauss(0, 1),
    "skewed arms": lambda random: random.lognormvariate(0, 1) - random.lognormvariate(0, 1),
    "mostly equal": lambda random: (random.random() < 0.05) * random.choice((-1.0, 1.0)),
}


def looks(differences: list[float]) -> list[Drift]:
    """What is said after each window."""
    totals, squares = list(accumulate(differences)), list(accumulate(x * x for x in differences))
    scale, said = None, []
    for at, (total, square) in enumerate(zip(totals, squares, strict=True)):
        if scale is None and at + 1 >= SCALED and square:
            scale = square / (at + 1)
        said.append(drift(at + 1, total, square, scale))
    return said


@pytest.mark.parametrize(
    "name", ["even tails", *(pytest.param(name, marks=pytest.mark.soak) for name in DRAWS if name != "even tails")]
)
def test_equal_arms_are_called_different_no_more_often_than_the_level_says(name: str) -> None:
    random = Random(29)
    wrong = once = 0
    for _ in range(RUNS):
        differences = [DRAWS[name](random) for _ in range(WINDOWS)]
        wrong += any(one.apart for one in looks(differences))
        sums = zip(accumulate(differences), accumulate(x * x for x in differences), strict=True)
        once += any(at >= SCALED and total**2 > 1.96**2 * square for at, (total, square) in enumerate(sums))
    print(  # noqa: T201 - the rate is for people
        f"{name}: {wrong / RUNS:.3f} of {RUNS} A/A runs called different at some look, level {LEVEL}; {once / RUNS:.3f} by a test for one look"
    )
    assert wrong / RUNS <= LEVEL
    assert once / RUNS > 2 * LEVEL or name != "even tails"


def test_a_difference_is_found_and_lies_in_the_interval() -> None:
    random = Random(1)
    said = looks([random.gauss(0.5, 1) for _ in range(400)])
    assert not said[0].apart
    assert said[-1].apart
    assert said[-1].low is not None and said[-1].high is not None
    assert said[-1].low < 0.5 < said[-1].high
    assert "95% sure between" in str(said[-1])
    assert str(said[0]).endswith("too few to tell it from chance")
    equal = looks([0.0] * 50)[-1]
    assert (equal.low, equal.high, equal.apart) == (0, 0, False)


def test_the_interval_does_not_hang_on_the_unit() -> None:
    random = Random(2)
    differences = [random.gauss(0.2, 1) for _ in range(100)]
    one, other = looks(differences)[-1], looks([x * 1e9 for x in differences])[-1]
    assert one.low is not None and other.low is not None
    assert other.low == pytest.approx(one.low * 1e9)


def test_steps_say_what_the_means_of_windows_drift_by(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder, random, differences = f"{tmp_path}/comparison", Random(3), []
    for begin in range(0, 40, 10):
        rows: tuple[list[Row], list[Row]] = ([], [])
        for hour in range(begin, begin + 10):
            noise = [random.gauss(0, 1) for _ in range(8)]
            rows[0].extend(result(f"k{n}", hour, mean=100 + x) for n, x in enumerate(noise[:4]))
            rows[1].extend(result(f"k{n}", hour, mean=103 + x) for n, x in enumerate(noise[4:]))
            differences.append(3 + sum(noise[4:]) / 4 - sum(noise[:4]) / 4)
        left.write(*rows[0])
        right.write(*rows[1])
        advance(folder, left.side(), right.side(), How(), until=ms(begin + 10))
    steps = read_comparison(folder)
    assert steps is not None
    said = {column.name: column.drift for column in steps.columns}
    mean, count = said["mean"], said["n"]
    assert mean is not None and count is not None
    assert mean.level == LEVEL / 2  # two columns of numbers
    assert (mean.windows, mean.mean) == (40, pytest.approx(sum(differences) / 40))
    assert mean.apart
    assert not count.apart
    assert said["carrier"] is None
    drawn = page(steps)
    assert drawn.index("of the rows are the same") < drawn.index("<h3>Drift</h3>") < drawn.index("<h3>Windows</h3>")
    assert "It says nothing of single rows" in drawn
    assert "different values, about" not in drawn  # steps do not know them
