"""Session of a landing: its commits until none is pending, a stop or a limit, and their sum."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from floodmark.engines.landing.lander import Lander
from floodmark.lake.logs.far import FarRows, newly_far
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.default_nulls import DefaultNulls
from floodmark.lake.table.left_out import LeftOut

_OFTEN_SECONDS = 1.0
"""Time between two looks at a source below which not all of it is looked at each time."""


class Stop(Protocol):
    """The part of ``threading.Event`` that a landing uses."""

    def is_set(self) -> bool:
        """True if the landing should end after its current commit."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for the timeout, s, at most until the event is set; True if it is set."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One landing commit.

    Args:
        source: name of the source.
        ordinal: of the commit; 0 is the first of the log.
        units: files (or versions, or lists) that landed or were reported.
        rows: landed.
        quarantined: entries.
        watermark: after the commit, ms.
        pending: units already seen that are still to land.
        behind: rows that were still to land by the last look; None if the source's connector does not tell it.
        seconds: duration of the commit.
    """

    source: str
    ordinal: int
    units: int
    rows: int
    quarantined: int
    watermark: int
    pending: int
    behind: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingResult:
    """The result of a landing.

    Args:
        source: name of the source.
        commits: written.
        units: landed or reported.
        rows: landed.
        quarantined: entries.
        watermark: of the log now, ms.
        waiting: name of a unit that waits -> why; the next landing reads it.
        ended: whether the log has its end of input.
        far: groups of few rows of this landing that are far from all other rows of the log, or that have made rows of this landing late.
        left_out: fields of the rows that the contract does not name and has no rule for.
        default_nulls: texts that were read as null by default.
    """

    source: str
    commits: int = 0
    units: int = 0
    rows: int = 0
    quarantined: int = 0
    watermark: int
    waiting: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False
    far: tuple[FarRows, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    default_nulls: DefaultNulls = field(default_factory=DefaultNulls)


@dataclass(slots=True)
class Session:
    """Counts and ends one call of ``land``. Keeps sums, so that it does not grow with the commits of a landing that goes on."""

    landing: Lander
    on_commit: Callable[[Committed], None] | None
    stop: Stop | None
    max_commits: int | None
    commits: int = 0
    units: int = 0
    rows: int = 0
    quarantined: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    default_nulls: DefaultNulls = field(default_factory=DefaultNulls)
    _before: Landing = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.landing.last

    def run(self, *, until_caught_up: bool, poll_seconds: float) -> None:
        """Land pending units until none is left, ``stop`` is set or ``max_commits`` is reached."""
        if not until_caught_up and poll_seconds < _OFTEN_SECONDS:
            self.landing.reader = self.landing.reader.glancing()
        while not self.is_over():
            now, begun = self.landing.clock(), time.monotonic()
            units = self.landing.pending()
            if not units:
                self.count(self.landing.idle(now), begun=begun)
                if until_caught_up or (self.landing.complete and not self.landing.last.ended):
                    return
                self.landing.write_in_pause(poll_seconds)
                self.landing.waiting.clear()
                if self.wait(poll_seconds):
                    return
            while units and not self.is_over():
                size = self.landing.source.files_per_commit
                begun = time.monotonic()
                first, units = units[:size], units[size:]
                self.count(self.landing.commit(first), pending=len(units), begun=begun)
                if self.landing.moved:  # look again
                    break

    def is_over(self) -> bool:
        """True if ``stop`` is set or ``max_commits`` is reached."""
        return self.is_stopped() or (self.max_commits is not None and self.commits >= self.max_commits)

    def is_stopped(self) -> bool:
        """True if ``stop`` is set."""
        return self.stop is not None and self.stop.is_set()

    def count(self, landing: Landing | None, *, pending: int = 0, begun: float | None = None) -> None:
        """Record a commit and call ``on_commit``."""
        if landing is None:
            return
        self.commits += 1
        self.units += len(landing.units)
        self.rows += landing.rows
        self.quarantined += landing.quarantined
        self.left_out = self.left_out.plus(landing.left_out)
        self.default_nulls = self.default_nulls.plus(landing.default_nulls)
        if self.on_commit is not None:
            self.on_commit(
                Committed(
                    source=landing.source,
                    ordinal=landing.ordinal,
                    units=len(landing.units),
                    rows=landing.rows,
                    quarantined=landing.quarantined,
                    watermark=landing.state.watermark,
                    pending=pending,
                    behind=sum(landing.behind.values()) if landing.behind else None,
                    seconds=0.0 if begun is None else time.monotonic() - begun,
                )
            )

    def result(self) -> LandingResult:
        """The sum of the commits."""
        last = self.landing.last
        return LandingResult(
            source=last.source,
            commits=self.commits,
            units=self.units,
            rows=self.rows,
            quarantined=self.quarantined,
            watermark=last.state.watermark,
            waiting={name: str(waiting) for name, waiting in sorted(self.landing.waiting.items())},
            ended=last.ended,
            far=newly_far(self.landing.source, self._before, last),
            left_out=self.left_out,
            default_nulls=self.default_nulls,
        )

    def wait(self, seconds: float) -> bool:
        """Sleep, at most until ``stop`` is set; True if it is set."""
        return wait(self.stop, seconds)


def wait(stop: Stop | None, seconds: float) -> bool:
    """Sleep, at most until ``stop`` is set; True if it is set."""
    if stop is not None:
        return stop.wait(seconds)
    time.sleep(seconds)
    return False


def waits(source: str, stop: Stop | None, why: str, seconds: float) -> bool:
    """Wait while what a source is read from is away, and say so. False once ``stop`` is set."""
    sys.stderr.write(f"{source}: {why}. The landing waits, and goes on once that is over.\n")
    return not wait(stop, seconds)
