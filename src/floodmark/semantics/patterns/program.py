"""A row pattern compiled to instructions, in the order in which alternatives are preferred."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.spec.patterns.syntax import Alternatives, Anchor, Label, Part, Repeated, Sequence, nullable


@dataclass(frozen=True, slots=True)
class Take:
    """Take one row under a label, then go on with the next instruction."""

    label: str
    excluded: bool


@dataclass(frozen=True, slots=True)
class Fork:
    """Go on with one of several instructions, the first one preferred."""

    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AtStart:
    """Go on if the match begins at the first row of the partition, and has no row yet."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Go on if no row follows."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Note in a slot where a round of a loop begins, which may take no row."""

    slot: int


@dataclass(frozen=True, slots=True)
class Again:
    """Go on with another round if the last one has taken a row; else leave the loop: a round without a row would repeat for ever."""

    slot: int
    target: int
    exit: int


@dataclass(frozen=True, slots=True)
class Match:
    """The pattern has matched."""


Instruction = Take | Fork | AtStart | AtEnd | Enter | Again | Match


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of a pattern.

    Args:
        instructions: from the first one to ``Match``.
        slots: number of loops whose rounds may take no row.
    """

    instructions: tuple[Instruction, ...]
    slots: int


def program(part: Part) -> Program:
    """Compile a pattern."""
    compiler = _Compiler()
    compiler.add(part)
    compiler.code.append(Match())
    return Program(tuple(compiler.code), compiler.slots)


class _Compiler:
    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.slots = 0

    def add(self, part: Part) -> None:
        """Append the instructions of a part; they end before the next one."""
        match part:
            case Label(name=name, excluded=excluded):
                self.code.append(Take(name, excluded))
            case Anchor(at=at):
                self.code.append(AtStart() if at == "start" else AtEnd())
            case Sequence(parts=parts):
                for inner in parts:
                    self.add(inner)
            case Alternatives(parts=parts):
                self._alternatives(parts)
            case Repeated():
                self._repeated(part)

    def _alternatives(self, parts: tuple[Part, ...]) -> None:
        fork, starts, ends = self._reserve(), [], []
        for inner in parts:
            starts.append(len(self.code))
            self.add(inner)
            ends.append(self._reserve())
        self.code[fork] = Fork(tuple(starts))
        for end in ends:
            self.code[end] = Fork((len(self.code),))

    def _repeated(self, part: Repeated) -> None:
        for _ in range(part.least):
            self.add(part.part)
        if part.most is None:
            self._endless(part)
            return
        forks = []
        for _ in range(part.most - part.least):
            forks.append(self._reserve())
            self.add(part.part)
        for fork in forks:
            self.code[fork] = self._choice(fork + 1, len(self.code), reluctant=part.reluctant)

    def _endless(self, part: Repeated) -> None:
        empty, fork = nullable(part.part), self._reserve()
        slot = self.slots
        if empty:
            self.slots += 1
            self.code.append(Enter(slot))
        self.add(part.part)
        end = len(self.code) + 1
        self.code.append(Again(slot, fork, end) if empty else Fork((fork,)))
        self.code[fork] = self._choice(fork + 1, end, reluctant=part.reluctant)

    def _choice(self, inside: int, behind: int, *, reluctant: bool) -> Fork:
        return Fork((behind, inside) if reluctant else (inside, behind))

    def _reserve(self) -> int:
        self.code.append(Match())
        return len(self.code) - 1
