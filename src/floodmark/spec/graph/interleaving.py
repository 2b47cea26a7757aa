"""How unions interleave the sequences of their parents' rows, so that these keep the order of their arrival."""

from __future__ import annotations

from attrs import frozen

from floodmark.spec.graph.steps import STATEFUL, Step, Union, walk

_MOST_NUMBERS = 1 << 16
"""Numbers in place of one ``_sequence`` that fit beside it into a bigint."""


@frozen
class Interleaving:
    """The ``_sequence`` of a union's rows from one of its parents, by which they keep the order of their arrival, whatever unions are behind each parent.

    Args:
        size: numbers that the parent has in place of one ``_sequence`` of what its unions read.
        most: the most that a parent has.
        parents: of the union.
        index: of the parent.
    """

    size: int
    most: int
    parents: int
    index: int

    def sql(self, number: str) -> str:
        """SQL of the number of a row."""
        if self.size == self.most:
            return f"{number} * {self.parents} + {self.index}"
        inner = f"pmod({number}, {self.size}L)"
        whole = number if self.size == 1 else f"({number} - {inner}) div {self.size}L"
        return f"({whole}) * {self.most * self.parents}L + {inner} * {self.parents} + {self.index}"


def interleaving(step: Union, index: int) -> Interleaving:
    """How the rows of a parent are numbered; as if all had as many unions behind them where the numbers would not fit."""
    sizes = [_numbers(each) for each in step.parents]
    if len(sizes) * max(sizes) > _MOST_NUMBERS:
        return Interleaving(1, 1, len(sizes), index)
    return Interleaving(sizes[index], max(sizes), len(sizes), index)


def keeps_arrival(step: Step) -> bool:
    """Whether the ``_sequence`` of a step's rows is in the order of their arrival."""
    unions = [each for each in walk(step) if isinstance(each, Union)]
    even = all(len({*map(_numbers, each.parents)}) == 1 for each in unions)
    return even or all(_numbers(each) <= _MOST_NUMBERS for each in unions)


def _numbers(step: Step) -> int:
    """How many numbers the rows of a step have in place of one ``_sequence`` of what its unions read."""
    if isinstance(step, Union):
        return len(step.parents) * max(map(_numbers, step.parents))
    return 1 if isinstance(step, STATEFUL) or not step.parents else _numbers(step.parents[0])
