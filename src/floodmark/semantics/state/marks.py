"""Marks of keys in columns: instants that a key group keeps per key, and nothing else of the key. A kernel reads and writes them without an object per key.

A key is its identity; a key with several marks is there several times.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from floodmark.core.errors import StateError
from floodmark.semantics.state.buckets import Buckets, level
from floodmark.semantics.state.directory import NONE, Directory, Item, combined
from floodmark.semantics.state.store import Store

CODEC = 5
"""Version of the format of buckets and index; ``entries`` has 4 for its own."""

_FULL = 4_096
"""Average bytes per bucket; a longer mark counts as this many. Half as many requests for state as with the 2 kB of ``entries``."""
_FEW = 64
"""Marks that are all compared by identity, not by hash code first."""
_HEAD = struct.Struct("<cI")
_KIND = b"M"
_FIXED = 16
"""Bytes of a mark without its key's identity."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Codes = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(slots=True)
class Rows:
    """Some marks: hash code, instant and identity of the key of each; the identities lie one behind the other."""

    codes: Codes
    times: Numbers
    sizes: Codes
    names: bytes

    @staticmethod
    def of(names: Sequence[bytes], times: Sequence[int]) -> Rows:
        """The marks of some keys."""
        sizes = np.fromiter(map(len, names), np.uint32, len(names))
        return Rows(codes_of(names), np.array(times, np.int64), sizes, b"".join(names))

    @staticmethod
    def unpacked(data: bytes) -> Rows:
        """What ``packed`` made of them."""
        if not data:
            return _NOTHING
        kind, count = _HEAD.unpack_from(data)
        if kind != _KIND:
            fix = "Run with the floodmark release that wrote it."
            raise StateError("state chunk", "marks", f"a chunk of kind {kind!r}", fix, code="STATE-001")
        codes, times, sizes = (_HEAD.size + count * width for width in (0, 4, 12))
        return Rows(
            np.frombuffer(data, np.uint32, count, codes),
            np.frombuffer(data, np.int64, count, times),
            np.frombuffer(data, np.uint32, count, sizes),
            data[_HEAD.size + count * _FIXED :],
        )

    def packed(self) -> bytes:
        """The marks as a chunk."""
        parts = (self.codes, self.times, self.sizes)
        return b"".join((_HEAD.pack(_KIND, len(self)), *(part.tobytes() for part in parts), self.names))

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Rows:
        """Some of them."""
        names = np.frombuffer(self.names, np.uint8)[np.repeat(chosen, self.sizes)].tobytes()
        return Rows(self.codes[chosen], self.times[chosen], self.sizes[chosen], names)

    def taken(self, order: np.ndarray[Any, np.dtype[np.intp]]) -> Rows:
        """All of them, in another order."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        spans = zip((ends - self.sizes)[order].tolist(), ends[order].tolist(), strict=True)
        names = b"".join([self.names[start:end] for start, end in spans])
        return Rows(self.codes[order], self.times[order], self.sizes[order], names)

    def item(self) -> tuple[int, int, int]:
        """Weight, earliest instant and no clock, for the directory."""
        if not len(self):
            return 0, NONE, NONE
        weights = np.minimum(self.sizes.astype(np.int64) + _FIXED, _FULL)
        return int(weights.sum()), int(self.times.min()), NONE

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """All of several."""
        if len(parts) == 1:
            return parts[0]
        return Rows(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            b"".join(part.names for part in parts),
        )


_NOTHING = Rows(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.uint32), b"")


def codes_of(names: Sequence[bytes]) -> Codes:
    """The hash codes of identities of keys."""
    return np.fromiter(map(zlib.crc32, names), np.uint32, len(names))


@dataclass(slots=True)
class Marks(Buckets[Rows]):
    """The marks of one key group over a store; other arguments as of ``Buckets``.

    Args:
        form: layout of the function's states, and the names of the state and of the timer that marks stand for.
    """

    full = _FULL

    form: tuple[int, str, str] = (0, "", "")

    @staticmethod
    def empty(store: Store, extra: dict[str, Any]) -> Marks:
        """Of a group without marks."""
        return Marks(store, extra, Directory(store))

    @staticmethod
    def of_index(store: Store, index: tuple[Any, ...]) -> Marks:
        """As they were when last closed, from the index without its codec."""
        extra, size, top, form = index
        return Marks(store, extra, Directory(store, size, top), combined(top)[0], form=form)

    def known(self, names: Sequence[bytes], codes: Codes) -> dict[int, list[int]]:
        """The marks of some keys: place among the keys -> ascending instants; keys without marks are left out."""
        if not self.directory.size or not len(names):
            return {}
        numbers = self._touched(codes)
        self._expect(numbers)
        buckets = [bucket for number in numbers if len((bucket := self._bucket(number)).content)]
        if not buckets:
            return {}
        rows = Rows.joined([bucket.content for bucket in buckets])
        places = dict(zip(names, range(len(names)), strict=True))
        ends = np.cumsum(rows.sizes, dtype=np.int64)
        marks: dict[int, list[int]] = {}
        likely = np.flatnonzero(np.isin(rows.codes, codes)) if len(rows) > _FEW else np.arange(len(rows))
        starts, stops = (ends - rows.sizes)[likely].tolist(), ends[likely].tolist()
        for start, stop, time in zip(starts, stops, rows.times[likely].tolist(), strict=True):
            key = places.get(rows.names[start:stop])
            if key is not None:
                marks.setdefault(key, []).append(time)
        for times in marks.values():
            times.sort()
        return marks

    def add(self, rows: Rows) -> None:
        """Add marks that are not there yet."""
        if not len(rows):
            return
        if not self.directory.size:
            self._grow()
        self._expect(self._touched(rows.codes))
        for number, part in self._divided(rows):
            bucket = self._bucket(number)
            bucket.content, bucket.changed = Rows.joined([bucket.content, part]), True

    def free(self, progress: int) -> None:
        """Remove the marks that progress has reached."""
        due = [number for number in self.directory.due(progress, -1) if number not in self._open]
        self._expect(due)
        for number in (*self._open,):
            bucket = self._open[number]
            left = bucket.content.times > progress
            if not left.all():
                bucket.content, bucket.changed = bucket.content.where(left), True

    def due(self, progress: int, clock: int) -> tuple[()]:
        """As ``KeyGroup.due``: no key needs to be looked at, its marks are removed."""
        del clock
        self.free(progress)
        return ()

    def all(self) -> Rows:
        """All marks."""
        numbers = list(self.directory.due(NONE, NONE))
        self._expect(numbers)
        return Rows.joined([_NOTHING, *(bucket.content for bucket in self._open.values())])

    def taken(self) -> dict[bytes, list[int]]:
        """Remove all marks from the store: identity of a key -> its instants, ascending."""
        rows, times_by_name = self.all(), dict[bytes, list[int]]()
        ends = np.cumsum(rows.sizes, dtype=np.int64)
        for start, end, time in zip((ends - rows.sizes).tolist(), ends.tolist(), rows.times.tolist(), strict=True):
            times_by_name.setdefault(rows.names[start:end], []).append(time)
        self.free(NONE)
        self.close()
        return {name: sorted(times) for name, times in times_by_name.items()}

    def _touched(self, codes: Codes) -> list[int]:
        """The buckets of some hash codes."""
        return [0] if self.directory.size == 1 else np.unique(self._numbers(codes)).tolist()

    def _numbers(self, codes: Codes) -> Numbers:
        """The bucket of each hash code. Linear hashing: buckets below the split point have one bit more."""
        size, wide = self.directory.size, codes.astype(np.int64)
        numbers = wide & (2 * level(size) - 1)
        return np.where(numbers < size, numbers, wide & (level(size) - 1))

    def _unpacked(self, data: bytes) -> Rows:
        return Rows.unpacked(data)

    def _packed(self, content: Rows) -> bytes:
        return content.packed()

    def _item(self, content: Rows) -> Item:
        return content.item()

    def _divided(self, content: Rows) -> list[tuple[int, Rows]]:
        if self.directory.size == 1:
            return [(0, content)]
        return _divided(content, self._numbers(content.codes)) if len(content) else []

    def _index(self, size: int, top: list[Item]) -> tuple[Any, ...]:
        return CODEC, self.extra, size, top, self.form


def _divided(rows: Rows, numbers: Numbers) -> list[tuple[int, Rows]]:
    """Marks by bucket, each bucket's in their order."""
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows.taken(order), numbers[order]
    bounds = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1], True]).tolist()
    ends = np.r_[0, np.cumsum(rows.sizes, dtype=np.int64)][bounds].tolist()
    return [
        (
            int(numbers[start]),
            Rows(rows.codes[start:stop], rows.times[start:stop], rows.sizes[start:stop], rows.names[first:last]),
        )
        for start, stop, first, last in zip(bounds[:-1], bounds[1:], ends[:-1], ends[1:], strict=True)
    ]
