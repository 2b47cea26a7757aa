"""Backpressure of a stream: the share of the last minute in which the stream was at work, or should have been, while rows waited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from floodmark.observe.measure import Measure

Pressure = Literal["ok", "low", "high"]
"""Level of backpressure. Source: Flink's levels OK, LOW, HIGH."""

PRESSURES = get_args(Pressure)
WINDOW_SECONDS = 60.0
"""The time over which shares are computed."""
OK, LOW = 0.1, 0.5
"""Greatest share of the levels ``ok`` and ``low``."""


def level(share: float) -> Pressure:
    """The level of a share: ``ok`` up to 10 %, ``low`` up to 50 %, else ``high``."""
    return "ok" if share <= OK else "low" if share <= LOW else "high"


def busy_share(commits: Iterable[Measure], now: float) -> float:
    """The share of the last minute in which a stream was in a commit, 0 to 1.

    Args:
        commits: its newest commits.
        now: s since 1970.
    """
    return min(1.0, sum(_within(one.at - one.seconds, one.at, now) for one in commits) / WINDOW_SECONDS)


def pressure_share(commits: Iterable[Measure], since: float | None, now: float) -> float:
    """The share of the last minute in which rows waited for a stream, 0 to 1: its commits behind which input was left, and the time since then.

    Args:
        commits: its newest commits.
        since: time of the oldest commit of an input that is not read now, s since 1970; None if all are read.
        now: s since 1970.
    """
    measures = list(commits)
    waited = sum(_within(one.at - one.seconds, one.at, now) for one in measures if one.waiting)
    if since is not None:
        last = max((one.at for one in measures), default=0.0)
        waited += _within(max(last, since), now, now)
    return min(1.0, waited / WINDOW_SECONDS)


def _within(start: float, end: float, now: float) -> float:
    """Seconds of an interval inside the last minute."""
    return max(0.0, min(end, now) - max(start, now - WINDOW_SECONDS))
