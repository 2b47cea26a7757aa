"""Confidence sequences for the difference of two versions: valid while the experiment runs, for any number of looks.

A test made for a single look calls equal versions different in a quarter of all experiments if it is repeated after every window. The intervals
of ``drift`` hold for all looks together.
"""

from __future__ import annotations

import math

from floodmark.lifecycle.comparison import Drift

LEVEL = 0.05
"""Probability of calling equal versions different, over all looks and all columns of a comparison."""
SCALED = 10
"""Windows from which the usual size of a difference is estimated."""
_TUNED = 200
"""Windows at which the interval is narrowest for its level."""
_STEPS = 60
"""Halvings by which an end of an interval is found."""


def drift(windows: int, total: float, squares: float, scale: float | None, level: float = LEVEL) -> Drift:
    """The mean difference per window, with an interval of a confidence sequence.

    The interval follows from sums alone, so that old windows need not be kept. Between equal versions the sign of a difference is a fair coin,
    whatever the sizes are; for equal versions the level is exact, with any number of windows and any tails.

    Args:
        windows: number of windows compared.
        total: sum of the differences.
        squares: sum of the squares of the differences.
        scale: mean square of the first differences, fixed once; None while there are too few.
        level: probability that the interval ever excludes the true mean.

    Source: Howard, Ramdas, McAuliffe, Sekhon: Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of Statistics 49 (2021),
        the normal mixture of equation 14 for symmetric differences (table 3; de la Pena 1999).
    """
    mean = total / windows if windows else 0.0
    width: float | None = None
    if windows and not squares and windows >= SCALED:
        width = 0.0
    elif windows and scale:
        width = _width(windows, max(0.0, squares - total * mean), scale, level)
    low, high = (None, None) if width is None else (mean - width, mean + width)
    return Drift(windows=windows, mean=mean, low=low, high=high, level=level)


def _width(windows: int, spread: float, scale: float, level: float) -> float | None:
    """Distance from the mean to the nearest excluded value; None if no value is excluded."""
    threshold = -2 * math.log(level)
    mixed = scale * _TUNED / (threshold + math.log(threshold + 1))

    def left_out(distance: float) -> bool:
        grown = spread + windows * distance * distance + mixed
        return (windows * distance) ** 2 > grown * (math.log(grown / mixed) + threshold)

    near, far = 0.0, math.sqrt((spread + mixed) / windows)
    for _ in range(_STEPS):
        if left_out(far):
            break
        near, far = far, 2 * far
    else:
        return None
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (near, middle) if left_out(middle) else (middle, far)
    return far
