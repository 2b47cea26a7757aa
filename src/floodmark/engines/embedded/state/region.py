"""The part of a stream's state that belongs to one stage of its operator: key groups of its own in the same checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.engines.embedded.state.store import GroupStore, State
from floodmark.spec.graph.stages import first_group
from floodmark.spec.graph.steps import MOST_KEY_GROUPS


@dataclass(frozen=True, slots=True)
class Region:
    """The key groups of one stage. Those of the first stage have their own numbers in the checkpoint.

    Args:
        state: of the stream.
        stage: number of the stage, from 0 on.
    """

    state: State
    stage: int = 0

    @property
    def first(self) -> int:
        """The number that key group 0 of the stage has in the checkpoint."""
        return first_group(self.stage)

    def due(self, progress: int) -> set[int]:
        """The key groups of the stage whose deadline the progress has reached."""
        reached = (group - self.first for group in self.state.due(progress))
        return {group for group in reached if 0 <= group < MOST_KEY_GROUPS}

    def weight(self, group: int) -> int:
        """Bytes of the values of a key group, as of the last micro-batch."""
        return self.state.weight(self.first + group)

    def holds(self, group: int) -> bool:
        """Whether a key group has state."""
        return self.state.holds(self.first + group)

    def store(self, group: int) -> GroupStore:
        """A kernel's store for a key group."""
        return GroupStore(self.state, self.first + group)
