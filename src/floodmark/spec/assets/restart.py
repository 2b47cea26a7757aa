"""Restart strategies: when a supervisor starts a stream again that has crashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span

BUDGET = 5
"""Default number of crashes within ``WITHIN`` after which a stream is not started again."""
WITHIN = "10 minutes"
_MOST = 20
"""Largest budget: the control store retains that many drivers of a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """When a supervisor starts a stream again that has crashed; made by ``exponential``, ``fixed`` and ``never``.

    A stream that is stopped, or whose driver is replaced by another version, has not crashed. Crashes are counted from the last ``floodmark start``,
    ``restart``, upgrade or rollback of the stream, and from its last regular stop. Those of the ``within`` before the newest crash count; the age of the
    newest one does not matter, so that a stream whose budget is used up stays down until ``floodmark restart``. A crash that no restart can mend, such as
    a log that the source no longer fits, ends the stream at once, whatever the strategy.

    Args:
        first: time from the first crash to the next start, ms.
        factor: each further crash that counts multiplies the time by this factor.
        longest: longest such time, ms.
        budget: number of crashes that count with which the stream is not started again; None: it always is.
        within: time before the newest crash in which earlier ones count, ms.
    """

    first: int
    factor: float
    longest: int
    budget: int | None
    within: int

    @staticmethod
    def exponential(
        first: str = "1 second", *, longest: str = "1 minute", budget: int | None = BUDGET, within: str = WITHIN
    ) -> Restart:
        """Start again after ``first``, and after twice as long with each further crash, up to ``longest``. The default of every stream.

        Args:
            first: time from the first crash to the next start.
            longest: longest time from a crash to the next start.
            budget: crashes within ``within`` after which the stream is not started again, 1 to 20; None: it always is.
            within: time before the newest crash in which earlier ones count.

        Raises:
            DefinitionError: DEFINITION-097, a negative time, or another budget; DEFINITION-001, no duration.
        """
        return _checked("exponential", first=first, factor=2.0, longest=longest, budget=budget, within=within)

    @staticmethod
    def fixed(pause: str = "10 seconds", *, budget: int | None = BUDGET, within: str = WITHIN) -> Restart:
        """Start again ``pause`` after each crash.

        Args:
            pause: time from a crash to the next start.
            budget: crashes within ``within`` after which the stream is not started again, 1 to 20; None: it always is.
            within: time before the newest crash in which earlier ones count.

        Raises:
            DefinitionError: DEFINITION-097, a negative time, or another budget; DEFINITION-001, no duration.
        """
        return _checked("fixed", first=pause, factor=1.0, longest=pause, budget=budget, within=within)

    @staticmethod
    def never() -> Restart:
        """Do not start again: the first crash ends the stream, until ``floodmark restart``."""
        return Restart(first=0, factor=1.0, longest=0, budget=1, within=0)

    def pause_seconds(self, crashes: int) -> float | None:
        """(number of crashes that count) -> seconds from the newest one to the next start; None if the stream is not started again.

        Args:
            crashes: 1 or more.
        """
        if self.budget is not None and crashes >= self.budget:
            return None
        return min(self.first * self.factor ** min(crashes - 1, 64), self.longest) / 1000

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in Restart.__slots__}

    @staticmethod
    def parse(value: dict[str, Any] | None) -> Restart | None:
        """The strategy from its fields; None for none."""
        return None if value is None else Restart(**value)


def check_restart(restart: object, where: str) -> Restart | None:
    """The strategy, or None for the default.

    Raises:
        DefinitionError: DEFINITION-097, it is something else.
    """
    if restart is None or isinstance(restart, Restart):
        return restart
    fix = 'For example restart=Restart.fixed("10 seconds", budget=None).'
    raise DefinitionError(f"{where}, restart", "a Restart", repr(restart), fix, code="DEFINITION-097")


def _checked(kind: str, *, first: str, factor: float, longest: str, budget: int | None, within: str) -> Restart:
    where = f"Restart.{kind}"
    times = [span(text, where) for text in (first, longest, within)]
    whole = budget is None or (isinstance(budget, int) and not isinstance(budget, bool) and 1 <= budget <= _MOST)
    if not whole or min(times) < 0:
        got = f"budget={budget!r}, times of {', '.join(describe_span(time) for time in times)}"
        fix = f'For example Restart.{kind}("10 seconds", budget=5, within="10 minutes").'
        expected = f"times of 0 s or more, and a budget of 1 to {_MOST} crashes, or None"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-097")
    return Restart(first=times[0], factor=factor, longest=times[1], budget=budget, within=times[2])
