"""The places of the values of a state on disk. A large state has millions of values, so each place is one number: 100 bytes with its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from floodmark.engines.embedded.state.segment import REMOVED, Key, Place, Segment

_FOLDERS = ("batches", "merged")
_OFFSET, _FILE = 40, 88
"""Bits below the offset, which are the length, and below the file."""
_LENGTH, _OFFSETS = (1 << _OFFSET) - 1, (1 << (_FILE - _OFFSET)) - 1


@dataclass(slots=True)
class Places:
    """The place of each value, by key."""

    weights: Counter[int] = field(init=False, default_factory=Counter)
    """Key group -> bytes of its values."""
    stand_ins: set[int] = field(init=False, default_factory=set)
    """Groups with values that stand for others: those below 0."""
    _groups: dict[int, dict[int, int]] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        return sum(len(numbers) for numbers in self._groups.values())

    def __contains__(self, key: Key) -> bool:
        return key[1] in self._groups.get(key[0], ())

    def __iter__(self) -> Iterator[Key]:
        return ((group, number) for group, numbers in self._groups.items() for number in numbers)

    def groups(self) -> Iterator[int]:
        """The key groups with values."""
        return iter(self._groups)

    def numbers(self, group: int) -> Collection[int]:
        """The numbers of the chunks of a group."""
        return self._groups.get(group, ())

    def get(self, key: Key) -> Place | None:
        """The place of a value; None if there is no value."""
        code = self._groups.get(key[0], {}).get(key[1])
        return None if code is None else Place(_file(code >> _FILE), (code >> _OFFSET) & _OFFSETS, code & _LENGTH)

    def take(self, segment: Segment) -> None:
        """Replace the places of values by those in a newer file."""
        file = _code(segment.file) << _FILE
        for group, number, offset, length in segment.rows():
            numbers = self._groups.setdefault(group, {})
            self.weights[group] -= numbers.pop(number, 0) & _LENGTH
            if length != REMOVED:
                numbers[number] = file | offset << _OFFSET | length
                self.weights[group] += length
            elif not numbers:
                del self._groups[group]
        listed = segment.directory[:, 0]
        touched = set(listed[listed < 0].tolist())
        self.stand_ins = self.stand_ins - touched | touched & self._groups.keys()

    def live(self, segment: Segment, *, removed: bool) -> Iterator[bool]:
        """For each row of a file, whether the row is the current one of its key.

        Args:
            segment: a file that was passed to ``take``.
            removed: whether a row that removes a value counts as current if the key still has no value.
        """
        file = _code(segment.file) << _FILE
        for group, number, offset, length in segment.rows():
            code = self._groups.get(group, {}).get(number)
            yield (removed and code is None) if length == REMOVED else code == file | offset << _OFFSET | length


def _code(file: str) -> int:
    """A file as a number."""
    folder, number = file.split("/")
    return int(number) * len(_FOLDERS) + _FOLDERS.index(folder)


def _file(code: int) -> str:
    number, folder = divmod(code, len(_FOLDERS))
    return f"{_FOLDERS[folder]}/{number}"
