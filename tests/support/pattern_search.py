"""Patterns as drawn stages: what a search through all rows finds of them, and the same through the builder.

A stage has ``name``, ``letter``, ``contiguity``, ``least``, ``most``, ``repetition`` and ``optional``; ``group``, its stages in place of a letter; ``greedy``; ``until``, a letter;
``gap``, ms since the row before; ``without``, which rows must not come before the stage, and ``other``, their letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import floodmark as fm
from floodmark.spec.patterns.pattern import Pattern

Taken = tuple[tuple[str, int], ...]
"""(stage, position of a row) of each row of a match."""
Drawn = dict[str, Any]
"""A stage."""
Then = Callable[[int, Taken], Iterator[Any]]
"""(position of the row before, rows so far) -> what comes of it."""


def candidates(how: str, fits: Sequence[bool], after: int) -> Iterator[int]:
    """Positions of rows that may come next after a row, -1 for the first row of a match."""
    positions = [position for position in range(after + 1, len(fits)) if fits[position]]
    if after == -1 or how in {"followed_by_any", "combinations"}:
        yield from positions
    elif how in {"next", "consecutive"}:
        yield from [position for position in positions if position == after + 1]
    else:
        yield from positions[:1]


class Search:
    """All matches of stages among some rows.

    Args:
        text: a letter for each row.
        times: of the rows, ms.
    """

    def __init__(self, text: str, times: Sequence[int]) -> None:
        self.text, self.times = text, times

    def matches(self, stages: Sequence[Drawn], window: int | None) -> set[Taken]:
        """Those whose rows are less than a window apart, ms."""

        def ended(_: int, taken: Taken) -> Iterator[Taken]:
            yield taken

        whole = self._from(stages, 0, "", -1, (), ended)
        return {taken for taken in whole if taken and (window is None or self._lasts(taken) < window)}

    def _lasts(self, taken: Taken) -> int:
        return self.times[taken[-1][1]] - self.times[taken[0][1]]

    def _from(
        self, stages: Sequence[Drawn], number: int, how: str, after: int, taken: Taken, then: Then
    ) -> Iterator[Any]:
        """What comes of the stages from one on; ``how`` its first row follows, or as it says itself."""
        if number == len(stages):
            yield from then(after, taken)
            return
        stage = stages[number]

        def following(after: int, taken: Taken) -> Iterator[Any]:
            yield from self._from(stages, number + 1, "", after, taken, then)

        if stage["optional"]:
            yield from following(after, taken)
        before = stages[number - 1] if number else None
        for position, rows in self._once(stage, how or stage["contiguity"], after, taken):
            if self._follows(before, stage, after, rows[len(taken)][1]):
                yield from self._again(stage, 1, position, rows, following)

    def _again(self, stage: Drawn, count: int, after: int, taken: Taken, following: Then) -> Iterator[Any]:
        """What comes of a stage that has had so many rows, or repetitions of its group."""
        if count >= stage["least"]:
            yield from following(after, taken)
        if stage["most"] is None or count < stage["most"]:
            for position, rows in self._once(stage, stage["repetition"], after, taken):
                if not stage.get("until") or stage["until"] not in self.text[after + 1 : rows[len(taken)][1]]:
                    yield from self._again(stage, count + 1, position, rows, following)

    def _once(self, stage: Drawn, how: str, after: int, taken: Taken) -> Iterator[tuple[int, Taken]]:
        """(position, rows) behind a row of a stage, or behind its group."""

        def whole(after: int, taken: Taken) -> Iterator[tuple[int, Taken]]:
            yield after, taken

        if stage.get("group"):
            yield from self._from(stage["group"], 0, how, after, taken, whole)
            return
        for position in candidates(how, [letter == stage["letter"] for letter in self.text], after):
            yield position, (*taken, (stage["name"], position))

    def _follows(self, before: Drawn | None, stage: Drawn, after: int, position: int) -> bool:
        """Whether a row may be the first of a stage: soon enough, behind none that must not come, and none that a greedy stage before takes."""
        between = self.text[after + 1 : position] if after != -1 else ""
        greedy = before is not None and before.get("greedy") and before["least"] != before["most"]
        if greedy and before["letter"] in between + self.text[position]:
            return False
        if after == -1:
            return True
        forbidden = {"not_next": self.text[after + 1 : after + 2], "not_followed_by": between}
        gap = stage.get("gap")
        soon = gap is None or self.times[position] - self.times[after] < gap
        return soon and stage.get("other", "") not in forbidden.get(stage.get("without", ""), ())


def built(stages: Sequence[Drawn], window: int | None = None) -> Pattern:
    """The pattern of stages."""
    pattern: Pattern | None = None
    for stage in stages:
        if pattern is not None and stage.get("without"):
            pattern = getattr(pattern, stage["without"])(f"no_{stage['name']}").where(f"name = '{stage['other']}'")
        inner = built(stage["group"]) if stage.get("group") else stage["name"]
        pattern = fm.begin(inner) if pattern is None else getattr(pattern, stage["contiguity"])(inner)
        pattern = pattern if stage.get("group") else pattern.where(f"name = '{stage['letter']}'")
        pattern = _settings(pattern, stage)
    assert pattern is not None
    return pattern if window is None else pattern.within(timedelta(milliseconds=window))


def _settings(pattern: Pattern, stage: Drawn) -> Pattern:
    """The pattern with what the newest stage says beside its condition."""
    if (stage["least"], stage["most"]) != (1, 1):
        several = stage["most"] is not None
        pattern = pattern.times(stage["least"], stage["most"]) if several else pattern.times_or_more(stage["least"])
        word = {"combinations": "allow_combinations"}.get(stage["repetition"], stage["repetition"])
        pattern = pattern if word == "relaxed" else getattr(pattern, word)()
    pattern = pattern.optional() if stage["optional"] else pattern
    pattern = pattern.greedy() if stage.get("greedy") else pattern
    pattern = pattern.until(f"name = '{stage['until']}'") if stage.get("until") else pattern
    return pattern.within(timedelta(milliseconds=stage["gap"]), "previous") if stage.get("gap") else pattern
