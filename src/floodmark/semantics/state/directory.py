"""Weight, earliest progress and earliest clock of each bucket of a key group, in a tree of pages: a changed bucket rewrites one page per level.

A page has the items of 16 buckets, or of 16 pages of the level below it. The page at the top is part of the index of the group, the
others are chunks of their own. A page is read only to reach a bucket below it, or when something below it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from floodmark.core.time import END
from floodmark.semantics.encoding.plain import pack, unpack
from floodmark.semantics.state.store import Store

NONE = END + 1
"""Timer value meaning: no timer set."""

Item = tuple[int, int, int]
"""(weight, earliest progress, earliest clock) of a bucket, or of all buckets below a page; weight 0: there is no chunk."""

EMPTY: Item = (0, NONE, NONE)

_WIDTH = 16
"""Items per page."""

_BUCKETS = 1 << 48
"""Chunk numbers per level; those of buckets come first."""


def is_bucket(number: int) -> bool:
    """Whether a chunk number is that of a bucket."""
    return 0 <= number < _BUCKETS


def combined(items: list[Item]) -> Item:
    """The item of several items: sum of weights, minimum of progress and of clock."""
    if not items:
        return EMPTY
    weights, events, ticks = zip(*items, strict=True)
    return sum(weights), min(events), min(ticks)


@dataclass(slots=True)
class Directory:
    """The items of the buckets of one key group; ``close`` it to write the pages that have changed.

    Args:
        store: of the group.
        size: buckets.
        top: the page at the top, as ``close`` returned it.
    """

    store: Store
    size: int = 0
    top: list[Item] = field(default_factory=list)
    _height: int = 1
    _pages: dict[tuple[int, int], list[Item]] = field(default_factory=dict)
    _changed: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        while _WIDTH**self._height < self.size:
            self._height += 1
        self._pages[self._height, 0] = self.top

    def __getitem__(self, number: int) -> Item:
        return self._item(1, number)

    def __setitem__(self, number: int, item: Item) -> None:
        self._put(1, number, item)

    def expect(self, numbers: Iterable[int]) -> None:
        """Read the pages above buckets that are about to be asked for, those of a level at once.

        Args:
            numbers: of buckets.
        """
        below = dict.fromkeys(numbers)
        for level in range(self._height - 1, 0, -1):
            width = _WIDTH**level
            pages = [page for page in dict.fromkeys(n // width for n in below) if (level, page) not in self._pages]
            stored = [page for page in pages if self._item(level + 1, page)[0]]
            self.store.expect([level * _BUCKETS + page for page in stored])
            for page in pages:
                self._page(level, page)

    def grow(self) -> None:
        """Add an empty bucket."""
        self.size += 1
        if self.size > _WIDTH**self._height:
            self._changed.add((self._height, 0))
            self._height += 1
            self._pages[self._height, 0] = []

    def due(self, progress: int, clock: int) -> Iterator[int]:
        """Numbers of the buckets that have timers up to ``progress`` or ``clock``."""
        return self._due(self._height, 0, progress, clock)

    def close(self) -> list[Item]:
        """Write changed pages below the top; returns the page at the top."""
        for level in range(1, self._height):
            for changed in sorted(number for at, number in self._changed if at == level):
                page, chunk = self._pages[level, changed], level * _BUCKETS + changed
                item = combined(page)
                if item[0]:
                    self.store.put(chunk, pack(page))
                elif self._item(level + 1, changed)[0]:
                    self.store.remove(chunk)
                self._put(level + 1, changed, item)
        self._changed.clear()
        self.top = self._pages[self._height, 0]
        return self.top

    def _due(self, level: int, number: int, progress: int, clock: int) -> Iterator[int]:
        for position, (weight, event, tick) in enumerate(self._page(level, number)):
            if weight and (event <= progress or tick <= clock):
                below = number * _WIDTH + position
                if level == 1:
                    yield below
                else:
                    yield from self._due(level - 1, below, progress, clock)

    def _item(self, level: int, number: int) -> Item:
        page = self._page(level, number // _WIDTH)
        position = number % _WIDTH
        return page[position] if position < len(page) else EMPTY

    def _put(self, level: int, number: int, item: Item) -> None:
        page = self._page(level, number // _WIDTH)
        page.extend([EMPTY] * (number % _WIDTH + 1 - len(page)))
        page[number % _WIDTH] = item
        self._changed.add((level, number // _WIDTH))

    def _page(self, level: int, number: int) -> list[Item]:
        page = self._pages.get((level, number))
        if page is None:
            stored = self._item(level + 1, number)[0]
            page = unpack(self.store.get(level * _BUCKETS + number)) if stored else []
            self._pages[level, number] = page
        return page
