"""One attempt to match a row pattern from a row on: a search in the order of preference, which stops where a row is missing and goes on later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from floodmark.semantics.patterns.program import Again, AtEnd, AtStart, Enter, Fork, Program, Take

Verdict = Literal["waits", "fails", "matches"]


class Taken:
    """The rows that a branch of the search has taken: the newest one with its label, and those before it."""

    __slots__ = ("before", "excluded", "label", "position")

    def __init__(self, label: str, position: int, before: Taken | None, *, excluded: bool) -> None:
        self.label, self.position, self.before, self.excluded = label, position, before, excluded

    def all(self) -> list[Taken]:
        """Oldest first."""
        taken, row = [], self
        while True:
            taken.append(row)
            if row.before is None:
                return taken[::-1]
            row = row.before


class Missing(Exception):  # noqa: N818 - says that the search waits
    """A row is needed that has not come."""


class TooLong(Exception):  # noqa: N818 - made a UserCodeError by the kernel
    """A search has taken more steps than it may: how many these are, and whether it is local."""

    def __init__(self, steps: int, *, local: bool) -> None:
        super().__init__(f"{steps:,}")
        self.local = local


Fits = Callable[[str, int, "Taken | None"], bool]
"""(label, position of a row, rows taken before it) -> whether the row fits; raises ``Missing``."""


class Attempt:
    """A search for the preferred match that begins at a row.

    Args:
        program: of the pattern.
        start: position of the row.
        first_row: whether it is the first one of the partition.
        fits: whether a row fits a label.
        local: whether that depends on the row and the rows around it alone: a state that has failed fails again.
        ended: (position) -> whether no row can be at that position; raises ``Missing`` if that is not known.
        most_steps: greatest number of steps; a search that is not local may try all combinations of rows.
    """

    __slots__ = (
        *("ended", "failed", "first_row", "fits", "local", "match", "matched", "most_steps", "program", "stack"),
        *("start", "steps"),
    )

    def __init__(
        self,
        program: Program,
        start: int,
        fits: Fits,
        ended: Callable[[int], bool],
        *,
        first_row: bool,
        local: bool,
        most_steps: int,
    ) -> None:
        self.program, self.start, self.fits, self.ended = program, start, fits, ended
        self.first_row, self.local = first_row, local
        self.most_steps, self.steps = most_steps, 0
        self.match: Taken | None = None
        self.matched = False
        self.failed: set[tuple[int, int, tuple[int, ...]]] = set()
        self.stack: list[tuple[int, int, Taken | None, tuple[int, ...]]] = [(0, start, None, (-1,) * program.slots)]

    def run(self) -> Verdict:
        """Search on, as far as the rows that are there allow."""
        code, stack = self.program.instructions, self.stack
        if self.matched:
            return "matches"
        while stack:
            pc, position, taken, slots = stack[-1]
            if self.local and (pc, position, slots) in self.failed:
                stack.pop()
                continue
            try:
                pushed = self._step(code[pc], pc, position, taken, slots)
            except Missing:
                return "waits"
            self.steps += 1
            if self.local:
                self.failed.add((pc, position, slots))
            if self.steps > self.most_steps:
                raise TooLong(self.most_steps, local=self.local)
            stack.pop()
            if pushed is None:
                self.match, self.matched = taken, True
                return "matches"
            stack.extend(pushed)
        return "fails"

    def _step(
        self, instruction: object, pc: int, position: int, taken: Taken | None, slots: tuple[int, ...]
    ) -> list[tuple[int, int, Taken | None, tuple[int, ...]]] | None:
        """What to search next, the preferred last; None if the pattern has matched."""
        match instruction:
            case Take(label=label, excluded=excluded):
                if self.ended(position) or not self.fits(label, position, taken):
                    return []
                return [(pc + 1, position + 1, Taken(label, position, taken, excluded=excluded), slots)]
            case Fork(targets=targets):
                return [(target, position, taken, slots) for target in reversed(targets)]
            case AtStart():
                return [(pc + 1, position, taken, slots)] if self.first_row and taken is None else []
            case AtEnd():
                return [(pc + 1, position, taken, slots)] if self.ended(position) else []
            case Enter(slot=slot):
                return [(pc + 1, position, taken, (*slots[:slot], position, *slots[slot + 1 :]))]
            case Again(slot=slot, target=target, exit=leave):
                return [(target if position > slots[slot] else leave, position, taken, slots)]
            case _:
                return None
