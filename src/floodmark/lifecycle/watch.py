"""The watch after a promotion: what is looked at, and what takes the promotion back. Pure: the evidence comes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from floodmark.core.time import describe_span
from floodmark.lifecycle.gates import Gate, Verdict
from floodmark.spec.rollout import Rollout

STREAM, LAG, ASIDE, EXPECTED = (f"watch: {what}" for what in ("stream", "lag", "rows set aside", "expectations"))
"""Gates of the watch."""
GATES = (STREAM, LAG, ASIDE, EXPECTED)
_TIMES, _SHARE, _FEWEST = 10, 0.001, 10
"""Far more rows are set aside where their share is so many times that of before, and this share, and they are so many."""
_FURTHER = 1.25
"""Expectations are looked at again once there are so many times the micro-batches: all looks together read a few times what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What looks of a watch know of those before.

    Args:
        after: number of the last micro-batch that the version before has written; -1 for none.
        share: of rows that version set aside, 0 to 1.
        late_since: look since which the stream has been too far behind, ms UTC; None while it is not.
        expected: number of the micro-batch up to which expectations were looked at; None for none.
    """

    after: int
    share: float
    late_since: int | None = None
    expected: int | None = None

    def due(self, batch: int, *, over: bool) -> bool:
        """Whether expectations are to be looked at now.

        Args:
            batch: number of the last micro-batch.
            over: this is the last look.
        """
        if batch <= self.after or batch == self.expected:
            return False
        return self.expected is None or over or batch - self.after >= _FURTHER * (self.expected - self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a promoted stream.

    Args:
        state: of its driver, in words.
        wanted: whether it should run.
        given_up: why its driver will not be started again by itself; ``""`` where it will.
        lag: event time between its input and itself, ms; None where that is not known.
        rows: it has read since its promotion.
        aside: of them set aside.
        now: ms UTC.
    """

    state: str
    wanted: bool
    given_up: str
    lag: int | None
    rows: int
    aside: int
    now: int


def watched(declared: Rollout, seen: Seen, memory: Memory) -> tuple[list[Gate], int | None]:
    """The gates of a look but that of expectations; since when the stream has been too far behind, ms UTC.

    Args:
        declared: the rollout.
        seen: what is known now.
        memory: of the look before.
    """
    runs = Gate(
        name=STREAM,
        wants="a stream that runs",
        sees=seen.given_up or seen.state,
        verdict="fails" if seen.given_up else "holds",
    )
    late_since = None
    gates = [runs]
    if declared.promote.lag_ms is not None:
        late = seen.wanted and seen.lag is not None and seen.lag > declared.promote.lag_ms
        late_since = (memory.late_since if memory.late_since is not None else seen.now) if late else None
        gates.append(_punctual(declared, seen, late_since))
    return [*gates, _aside(seen, memory.share)], late_since


def _punctual(declared: Rollout, seen: Seen, late_since: int | None) -> Gate:
    bound, longest = declared.promote.lag_ms or 0, declared.catch_up_ms
    behind = "not known" if seen.lag is None else f"{describe_span(seen.lag)} behind"
    verdict: Verdict = "holds"
    if late_since is not None:
        behind += f", more than that for {describe_span((seen.now - late_since) // 1000 * 1000)}"
        verdict = "fails" if seen.now - late_since >= longest else "waits"
    wants = f"at most {describe_span(bound)} behind its input, or more than that for less than {describe_span(longest)}"
    return Gate(name=LAG, wants=wants, sees=behind if seen.wanted else "it was stopped", verdict=verdict)


def _aside(seen: Seen, before: float) -> Gate:
    share = seen.aside / seen.rows if seen.rows else 0.0
    far = seen.aside >= _FEWEST and share > max(_SHARE, _TIMES * before)
    return Gate(
        name=ASIDE,
        wants=f"at most {100 * max(_SHARE, _TIMES * before):.4g}% of the rows read; before it were {100 * before:.4g}%",
        sees=f"{seen.aside:,} of {seen.rows:,}",
        verdict="fails" if far else "holds",
    )


def expectations(unmet: list[str], refused: str = "") -> Gate:
    """The gate of an asset's blocking expectations.

    Args:
        unmet: which are not met, with numbers.
        refused: why none could be looked at; ``""`` where they were.
    """
    sees = f"they cannot be looked at: {refused}" if refused else "; ".join(unmet) or "all are met"
    verdict: Verdict = "waits" if refused else "fails" if unmet else "holds"
    return Gate(
        name=EXPECTED, wants="the asset's blocking expectations of all rows of this version", sees=sees, verdict=verdict
    )


def names(declared: Rollout, *, expected: bool) -> Iterator[str]:
    """The gates a watch may have.

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
