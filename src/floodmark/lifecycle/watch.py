"""The watch after a promotion: the guardrails whose failure reverts the promotion. Pure: the caller supplies the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from floodmark.core.time import describe_span
from floodmark.lifecycle.guardrails import Guardrail, Verdict
from floodmark.spec.assets.rollout import Rollout

STREAM, LAG, ASIDE, EXPECTED = (f"watch: {what}" for what in ("stream", "lag", "rows set aside", "expectations"))
"""Guardrails of the watch."""
GUARDRAILS = (STREAM, LAG, ASIDE, EXPECTED)
_TIMES, _SHARE, _FEWEST = 10, 0.001, 10
"""The guardrail of quarantined rows fails at more than ``_TIMES`` the share of the version before, more than ``_SHARE``, and ``_FEWEST`` rows or more."""
_FURTHER = 1.25
"""Expectations are checked again once there are this many times the micro-batches, so that all checks together read the output a few times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory that a watch carries from one look to the next.

    Args:
        after: number of the last micro-batch that the version before has written; -1 for none.
        share: share of rows that the version before quarantined, 0 to 1.
        late_since: time of the look since which the stream has been too far behind, ms UTC; None while it is not.
        expected: number of the micro-batch up to which expectations were checked; None for none.
    """

    after: int
    share: float
    late_since: int | None = None
    expected: int | None = None

    def due(self, batch: int, *, over: bool) -> bool:
        """Whether expectations are to be checked now.

        Args:
            batch: number of the last micro-batch.
            over: whether this is the last look.
        """
        if batch <= self.after or batch == self.expected:
            return False
        return self.expected is None or over or batch - self.after >= _FURTHER * (self.expected - self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The evidence about a promoted stream at one look.

    Args:
        state: of its driver, in words.
        wanted: whether the stream should run.
        given_up: why the supervisor has stopped restarting the driver; ``""`` if it restarts it.
        lag: event time between the stream and its input, ms; None if unknown.
        rows: number of rows read since the promotion.
        aside: number of those rows that were quarantined.
        now: ms UTC.
    """

    state: str
    wanted: bool
    given_up: str
    lag: int | None
    rows: int
    aside: int
    now: int


def watched(declared: Rollout, seen: Seen, memory: Memory) -> tuple[list[Guardrail], int | None]:
    """Judges a look: (all guardrails but the expectations', time since which the stream has been too far behind in ms UTC or None).

    Args:
        declared: the rollout.
        seen: the evidence of this look.
        memory: from the previous look.
    """
    runs = Guardrail(
        name=STREAM,
        wants="a stream that runs",
        sees=seen.given_up or seen.state,
        verdict="fails" if seen.given_up else "holds",
    )
    late_since = None
    guardrails = [runs]
    if declared.promote.lag_ms is not None:
        late = seen.wanted and seen.lag is not None and seen.lag > declared.promote.lag_ms
        late_since = (memory.late_since if memory.late_since is not None else seen.now) if late else None
        guardrails.append(_punctual(declared, seen, late_since))
    return [*guardrails, _aside(seen, memory.share)], late_since


def _punctual(declared: Rollout, seen: Seen, late_since: int | None) -> Guardrail:
    bound, longest = declared.promote.lag_ms or 0, declared.catch_up_ms
    behind = "not known" if seen.lag is None else f"{describe_span(seen.lag)} behind"
    verdict: Verdict = "holds"
    if late_since is not None:
        behind += f", more than that for {describe_span((seen.now - late_since) // 1000 * 1000)}"
        verdict = "fails" if seen.now - late_since >= longest else "waits"
    wants = f"at most {describe_span(bound)} behind its input, or more than that for less than {describe_span(longest)}"
    return Guardrail(name=LAG, wants=wants, sees=behind if seen.wanted else "it was stopped", verdict=verdict)


def _aside(seen: Seen, before: float) -> Guardrail:
    share = seen.aside / seen.rows if seen.rows else 0.0
    far = seen.aside >= _FEWEST and share > max(_SHARE, _TIMES * before)
    return Guardrail(
        name=ASIDE,
        wants=f"at most {100 * max(_SHARE, _TIMES * before):.4g}% of the rows read; before it were {100 * before:.4g}%",
        sees=f"{seen.aside:,} of {seen.rows:,}",
        verdict="fails" if far else "holds",
    )


def expectations(unmet: list[str], refused: str = "") -> Guardrail:
    """The guardrail of an asset's blocking expectations.

    Args:
        unmet: the expectations that are not met, with numbers.
        refused: why the expectations could not be checked; ``""`` if they were checked.
    """
    sees = f"they cannot be looked at: {refused}" if refused else "; ".join(unmet) or "all are met"
    verdict: Verdict = "waits" if refused else "fails" if unmet else "holds"
    return Guardrail(
        name=EXPECTED, wants="the asset's blocking expectations of all rows of this version", sees=sees, verdict=verdict
    )


def names(declared: Rollout, *, expected: bool) -> Iterator[str]:
    """The guardrails a watch may have.

    Args:
        declared: the rollout.
        expected: whether the asset has blocking expectations.
    """
    yield STREAM
    if declared.promote.lag_ms is not None:
        yield LAG
    yield ASIDE
    if expected:
        yield EXPECTED
