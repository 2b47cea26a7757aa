"""The part of a stream's state that belongs to one stage of its operator: key groups of its own in the same checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from floodmark.engines.embedded.state.store import GroupStore, State, stand_in
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

    def stand_in(self, groups: int) -> int:
        """The number of the group that stands for all key groups without state of their own, of so many (``stand_in``)."""
        return stand_in(self.stage, groups) - self.first

    def stand_in_is_due(self, groups: int, progress: int) -> bool:
        """Whether the progress has reached what key groups without state of their own wait for."""
        deadline = self.state.deadlines.get(stand_in(self.stage, groups))
        return deadline is not None and deadline <= progress

    def part(self, groups: Iterable[int], of: int) -> None:
        """Give key groups without state of their own what all of those have, before their first row.

        Args:
            groups: that get their first row, or have state.
            of: number of all key groups.
        """
        self.state.part([self.first + group for group in groups], stand_in(self.stage, of))

    def held(self, computed: Sequence[int]) -> set[int]:
        """Those of some key groups that have state. Costs what they are, not what there are."""
        return {group - self.first for group in self.state.groups() if group - self.first in computed}

    def weight(self, group: int) -> int:
        """Bytes of the values of a key group, as of the last micro-batch."""
        return self.state.weight(self.first + group)

    def store(self, group: int) -> GroupStore:
        """A kernel's store for a key group."""
        return GroupStore(self.state, self.first + group)
