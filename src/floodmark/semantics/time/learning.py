"""Learning: delays that landings have measured, and which bound was in force for which rows."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import Any

from floodmark.core.time import NEVER
from floodmark.semantics.time.delays import Delays
from floodmark.spec.rows.source import Learned


@dataclass(frozen=True, slots=True)
class Decision:
    """A bound that the source's author put in force.

    Args:
        sequence: of the first row stamped under the bound.
        bound: ms.
        held: the watermark at which a larger bound holds it, ms: the watermark never decreases, so it stays there until
            maximum event time - bound reaches it. NEVER if the bound holds nothing.
    """

    sequence: int
    bound: int
    held: int = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundEstimate:
    """The measurements of a source with ``Learned``, and every bound it has had.

    Args:
        front: the event time behind which delays are measured, ms: the newest so far, with several source partitions the slowest
            active one's; never goes back, and no bound moves it. NEVER before the first row.
        delays: of every row behind the front just before it.
        decisions: oldest first; the last is in force.
    """

    front: int = NEVER
    delays: Delays = field(default_factory=Delays)
    decisions: tuple[Decision, ...] = ()

    @property
    def bound(self) -> int:
        """The bound in force, ms."""
        return self.decisions[-1].bound

    def unclamped(self) -> int:
        """The unclamped watermark: the one that follows from the bound in force alone, ms. The watermark in force never goes back behind an earlier one."""
        return NEVER if self.front == NEVER else max(self.front - self.bound - 1, NEVER)

    def decided(self, decision: Decision) -> BoundEstimate:
        """The learning with another bound in force."""
        return replace(self, decisions=(*self.decisions, decision))

    def measured(self, unclamped: int, delays: Delays) -> BoundEstimate:
        """The learning after more rows.

        Args:
            unclamped: the watermark after these rows that follows from the bound in force alone, ms.
            delays: of these rows.
        """
        front = NEVER if unclamped == NEVER else unclamped + self.bound + 1
        return replace(self, front=max(self.front, front), delays=self.delays.plus(delays))

    def as_json(self) -> dict[str, Any]:
        """For a commit's metadata."""
        decisions = [list(astuple(decision)) for decision in self.decisions]
        return {"front": self.front, "delays": self.delays.as_json(), "decisions": decisions}

    @staticmethod
    def from_json(value: dict[str, Any]) -> BoundEstimate:
        """The learning that :meth:`as_json` wrote."""
        decisions = tuple(Decision(*decision) for decision in value["decisions"])
        return BoundEstimate(front=value["front"], delays=Delays.from_json(value["delays"]), decisions=decisions)


def next_bound(strategy: Learned, estimate: BoundEstimate | None) -> int:
    """The bound that a landing which starts puts in force, ms: the proposed one where enough rows have been measured for the strategy to adopt it.

    Args:
        strategy: of the source.
        estimate: of its last landing; None before the first.
    """
    rows = strategy.adopt_after
    if rows is None or estimate is None or estimate.delays.rows < rows:
        return strategy.bound
    return estimate.delays.bound(strategy.quantile)
