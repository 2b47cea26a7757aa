"""The rows of a key of a regular join as they lie in state, to which rows are added without a look at those that stay: see ``sides``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.time import NEVER
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.kernels.functions import sides
from floodmark.semantics.kernels.functions.sides import SIDES, Item, JoinForm
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry, KeyGroup

Stored = list[Any]
"""A row: event time, how often it is there, partners when it came, values by name."""


@dataclass(slots=True)
class StoredSide:
    """A side of a key.

    Args:
        parts: how many parts it lies in.
        total: rows.
        count: different rows.
        rows: number of a part -> its rows, of those that were read.
        items: number of a part -> what its rows are known by, of those that were asked for.
    """

    parts: int = 1
    total: int = 0
    count: int = 0
    rows: dict[int, Sequence[Stored]] = field(default_factory=dict)
    items: dict[int, set[Item]] = field(default_factory=dict)


class StoredKey:
    """The rows of a key on both sides.

    Args:
        entry: of the key, as it was stored.
        entries: of the key group.
        form: of the rows.
    """

    __slots__ = ("entries", "entry", "fits", "form", "latest", "layout", "sides")

    def __init__(self, entry: Entry, entries: KeyGroup, form: JoinForm) -> None:
        self.entry, self.entries, self.form, self.layout = entry, entries, form, form.layout
        self.fits = True
        """Whether what was read is as this version writes it, and no retraction waits for its row."""
        self.latest = NEVER
        states: dict[str, Any] = {}
        if entry.value:
            layout, _, states, _, self.latest = entry.value
            self.fits = layout == self.layout and "on" not in states
        self.sides = self._side(states, 0), self._side(states, 1)

    def _side(self, states: dict[str, Any], tag: int) -> StoredSide:
        stored = states.get(f"{SIDES[tag]}_parts")
        if stored is not None:
            columns, size, total, count, _ = stored
            self.fits &= tuple(columns) == self.form.columns[tag]
            return StoredSide(size, total, count)
        rows = self._checked(states.get(SIDES[tag], ()), tag)
        return StoredSide(1, sum(row[1] for row in rows), len(rows), {0: rows})

    def _checked(self, rows: Sequence[Stored], tag: int) -> Sequence[Stored]:
        names = self.form.columns[tag]
        if any(row[1] < 1 or tuple(row[3]) != names for row in rows):
            self.fits = False
        return rows

    def parts_with(self, tag: int, extra: int) -> int:
        """How many parts a side has, or will have with so many rows more, whichever is greater."""
        return max(self.sides[tag].parts, self._wanted(tag, extra))

    def _wanted(self, tag: int, extra: int) -> int:
        side = self.sides[tag]
        count, wanted = side.count + extra, side.parts
        while count > wanted * sides.MOST:
            wanted *= 2
        while wanted > 1 and count < wanted * sides.FEWEST:
            wanted //= 2
        return wanted

    def all_rows(self, tag: int) -> Iterator[tuple[int, Sequence[Stored]]]:
        """(number, rows) of all parts of a side."""
        side = self.sides[tag]
        return ((number, side.rows[number]) for number in range(side.parts))

    def items(self, tag: int, number: int) -> set[Item]:
        """What the rows of a part are known by."""
        side = self.sides[tag]
        self.read(tag, [number])
        if number not in side.items:
            side.items[number] = set(self.form.loaded(side.rows[number], tag))
        return side.items[number]

    def read(self, tag: int, numbers: Iterable[int]) -> None:
        """Read parts of a side."""
        side = self.sides[tag]
        names = {number: self._name(tag, number) for number in numbers if number not in side.rows}
        if names:
            self.entries.expect(names.values())
        for number, name in names.items():
            entry = self.entries.opened(name)
            side.rows[number] = self._checked(entry.value[1] if entry.value else (), tag)

    def ready(self, tag: int, codes: Sequence[int], *, whole: bool) -> None:
        """Read what is needed of a side.

        Args:
            tag: of the side.
            codes: of the rows that come to it, as of ``add``.
            whole: rows come to the other side, whose partners are all of this one.
        """
        size = self.sides[tag].parts
        every = whole or self._wanted(tag, len(codes)) != size
        self.read(tag, range(size) if every else dict.fromkeys(code % size for code in codes))

    def add(self, fresh: Sequence[Sequence[Stored]], codes: Sequence[Sequence[int]], stamp: int, latest: int) -> None:
        """Write the key with rows more.

        Args:
            fresh: of each side.
            codes: what says in which part each of them is.
            stamp: of the last of them.
            latest: event time among them.
        """
        states = dict[str, Any]()
        for tag, name in enumerate(SIDES):
            side, wanted = self.sides[tag], self._wanted(tag, len(fresh[tag]))
            by_part = dict[int, list[tuple[Stored, int]]]()
            for row, code in zip(fresh[tag], codes[tag], strict=True):
                by_part.setdefault(code % side.parts, []).append((row, code))
            if wanted == side.parts:
                changed = {number: [*side.rows[number], *(row for row, _ in rows)] for number, rows in by_part.items()}
            else:
                changed = self._divided(tag, by_part, wanted)
            if wanted == 1:
                rows = changed.get(0, side.rows.get(0))
                if rows:
                    states[name] = rows
                continue
            for number, rows in changed.items():
                self._write(self._name(tag, number), rows)
            total, count = side.total + len(fresh[tag]), side.count + len(fresh[tag])
            states[f"{name}_parts"] = list(self.form.columns[tag]), wanted, total, count, []
        self.entry.value = self.layout, stamp, states, {}, max(self.latest, latest)
        self.entry.event = NONE
        self.entries.put(self.entry)

    def _divided(
        self, tag: int, fresh: Mapping[int, Sequence[tuple[Stored, int]]], wanted: int
    ) -> dict[int, list[Stored]]:
        """All rows of a side by so many parts; the parts that there were are removed.

        Args:
            tag: of the side.
            fresh: number of a part that there was -> its rows that have come, with their codes.
            wanted: number of parts.
        """
        side = self.sides[tag]
        divided: dict[int, list[Stored]] = {number: [] for number in range(wanted)}
        for number in range(side.parts):
            if side.parts > 1:
                self._write(self._name(tag, number), ())
            for row in side.rows[number]:
                divided[zlib.crc32(identity(tuple(row[3].values()))) % wanted].append(row)
            for row, code in fresh.get(number, ()):
                divided[code % wanted].append(row)
        return divided

    def _write(self, name: tuple[Any, ...], rows: Sequence[Stored]) -> None:
        entry = self.entries.opened(name)
        if rows:
            entry.value = self.layout, rows
            self.entries.put(entry)
        else:
            self.entries.drop(entry)

    def _name(self, tag: int, number: int) -> tuple[Any, ...]:
        """The key of the entry of a part."""
        return (*self.entry.key, tag, number)
