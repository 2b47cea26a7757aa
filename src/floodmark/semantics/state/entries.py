"""The state of a key group per key, in buckets: a micro-batch reads and writes the buckets of the keys it touches, and no others.

Each entry has the progress and the clock it waits for; the directory knows the earliest of each bucket.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.errors import StateError
from floodmark.core.time import NEVER
from floodmark.semantics.encoding.identity import identity, key_of
from floodmark.semantics.encoding.plain import Packer, pack, packed_bytes, unpack
from floodmark.semantics.state.buckets import Buckets, level
from floodmark.semantics.state.directory import EMPTY, NONE, Directory, Item, combined
from floodmark.semantics.state.marks import CODEC as MARKS
from floodmark.semantics.state.marks import Marks
from floodmark.semantics.state.store import Store

CODEC = 4
"""Version of the format of buckets, directory and index."""

_LISTS = 3
"""The previous version, whose index lists all buckets: it is read, and written in the current version."""

_FULL = 2_048
"""Average bytes per bucket; a larger entry counts as this many."""

_Stored = tuple[int, int, bytes]
"""(earliest progress, earliest clock, packed key and value) of an entry."""


@dataclass(slots=True)
class Entry:
    """The stored state of one key.

    Args:
        key: its values.
        value: plain data.
        event: the progress it waits for.
        tick: the clock it waits for.
        name: identity of the key; computed if it is not known.
    """

    key: tuple[Any, ...]
    value: Any
    event: int = NONE
    tick: int = NONE
    name: bytes = b""

    def __post_init__(self) -> None:
        self.name = self.name or identity(self.key)


@dataclass(slots=True)
class KeyGroup(Buckets[dict[bytes, _Stored]]):
    """The entries of one key group over a store, by identity of their keys; arguments as of ``Buckets``."""

    full = _FULL

    _live: dict[bytes, Entry | None] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    """Identities of keys that are about to be opened."""
    _pack: Packer = field(default_factory=Packer)

    @staticmethod
    def open(store: Store) -> KeyGroup:
        """The entries as they were when last closed.

        Raises:
            StateError: STATE-001, written in a format this release does not read.
        """
        index = store.index()
        if index is None:
            return KeyGroup(store, {}, Directory(store))
        codec, extra, *buckets = unpack(index)
        if codec == MARKS:
            group = Marks.of_index(store, (extra, *buckets))
            return KeyGroup(store, extra, Directory(store)).filled(_taken_from_marks(group))
        if codec == _LISTS:
            return KeyGroup(store, extra, Directory(store)).filled(_taken_from_lists(store, buckets[0]))
        if codec != CODEC:
            fix = (
                "Run with the floodmark release that wrote it (floodmark savepoint show SAVEPOINT names it, pip install floodmark==RELEASE), or "
                "compute it anew: floodmark run OPERATOR --unbounded --from-scratch"
            )
            raise StateError(
                "state index", f"format version {_LISTS}, {CODEC} or {MARKS}", f"version {codec}", fix, code="STATE-001"
            )
        size, top = buckets
        return KeyGroup(store, extra, Directory(store, size, top), combined(top)[0])

    def holds_columns(self) -> None:
        """From now on all entries are made of values of columns of tables."""
        self._pack = Packer(of_columns=True)

    def filled(self, stored: dict[bytes, _Stored]) -> KeyGroup:
        """Write these entries into an empty key group.

        Args:
            stored: by identity of the key.
        """
        weight = sum(min(_weight(name, entry[2]), _FULL) for name, entry in stored.items())
        while self.directory.size * _FULL < weight:
            self._grow()
        for name, entry in stored.items():
            self._open[self._number(name)].content[name] = entry
        self.close()
        return self

    def add(self, stored: Mapping[bytes, _Stored]) -> None:
        """Add stored entries of keys that have none, by identity of the key."""
        if stored and not self.directory.size:
            self._grow()
        self._expect([self._number(name) for name in stored])
        for name, entry in stored.items():
            bucket = self._bucket(self._number(name))
            bucket.content[name], bucket.changed = entry, True

    def get(self, key: tuple[Any, ...]) -> Entry | None:
        """The entry of a key, None if there is none; ``close`` writes its changes."""
        return self._stored(identity(key), key)

    def expect(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Read the buckets of keys that are about to be opened, all at once."""
        self._names = {key: identity(key) for key in keys}
        if self.directory.size:
            self._expect([self._number(name) for name in self._names.values()])

    def opened(self, key: tuple[Any, ...]) -> Entry:
        """The entry of a key; without one a new entry, which ``put`` adds."""
        name = self._names.pop(key, b"") or identity(key)
        return self._stored(name, key) or Entry(key, None, name=name)

    def put(self, entry: Entry) -> None:
        """Add an entry."""
        self._live[entry.name] = entry

    def drop(self, entry: Entry) -> None:
        """Remove an entry."""
        self._live[entry.name] = None

    def due(self, progress: int, clock: int) -> Iterator[Entry]:
        """Every entry that has timers up to ``progress`` or ``clock``."""
        numbers = list(self.directory.due(progress, clock))
        self._expect(numbers)
        for number in numbers:
            for name, (event, tick, data) in list(self._bucket(number).content.items()):
                if event <= progress or tick <= clock:
                    key, value = unpack(data)
                    self._live.setdefault(name, Entry(_one_nan(key), value, event, tick, name))
        for entry in list(self._live.values()):
            if entry is not None and (entry.event <= progress or entry.tick <= clock):
                yield entry

    def close(self) -> tuple[int, int]:
        """Write changed buckets; returns the earliest progress and the earliest clock of all timers."""
        for name, entry in self._live.items():
            self._keep(name, entry)
        self._live.clear()
        self._names.clear()
        return Buckets.close(self)

    def _stored(self, name: bytes, key: tuple[Any, ...]) -> Entry | None:
        if name in self._live:
            return self._live[name]
        stored = self._bucket(self._number(name)).content.get(name) if self.directory.size else None
        entry = Entry(key, unpack(stored[2])[1], stored[0], stored[1], name) if stored else None
        self._live[name] = entry
        return entry

    def _keep(self, name: bytes, entry: Entry | None) -> None:
        if not self.directory.size:
            if entry is None:
                return
            self._grow()
        bucket = self._bucket(self._number(name))
        if entry is None:
            bucket.changed |= bucket.content.pop(name, None) is not None
            return
        stored = entry.event, entry.tick, self._pack((entry.key, entry.value))
        if bucket.content.get(name) != stored:
            bucket.content[name] = stored
            bucket.changed = True

    def _number(self, name: bytes) -> int:
        """The bucket of a key. Linear hashing: buckets below the split point have one bit more."""
        size, code = self.directory.size, zlib.crc32(name)
        number = code & (2 * level(size) - 1)
        return number if number < size else code & (level(size) - 1)

    def _unpacked(self, data: bytes) -> dict[bytes, _Stored]:
        entries: dict[bytes, _Stored] = unpack(data) if data else {}
        return entries

    def _packed(self, content: dict[bytes, _Stored]) -> bytes:
        return packed_bytes(content)

    def _item(self, content: dict[bytes, _Stored]) -> Item:
        weight, event, tick = EMPTY
        for name, (entry_event, entry_tick, data) in content.items():
            weight += min(_weight(name, data), _FULL)
            event = entry_event if entry_event < event else event  # noqa: FURB136 - called for every entry, which min() doubles
            tick = entry_tick if entry_tick < tick else tick  # noqa: FURB136 - as above
        return weight, event, tick

    def _divided(self, content: dict[bytes, _Stored]) -> Iterable[tuple[int, dict[bytes, _Stored]]]:
        parts: dict[int, dict[bytes, _Stored]] = {}
        for name, stored in content.items():
            parts.setdefault(self._number(name), {})[name] = stored
        return parts.items()

    def _index(self, size: int, top: list[Item]) -> tuple[Any, ...]:
        return CODEC, self.extra, size, top


def _taken_from_lists(store: Store, counts: list[int]) -> dict[bytes, _Stored]:
    """The entries of a group of format 3, by identity of the key; its buckets are removed."""
    entries: dict[bytes, _Stored] = {}
    for number, count in enumerate(counts):
        if count:
            entries |= unpack(store.get(number))
            store.remove(number)
    return entries


def _taken_from_marks(group: Marks) -> dict[bytes, _Stored]:
    """The entries of a group that kept marks alone, as a process function has them; its buckets are removed."""
    layout, state, timer = group.form
    entries = dict[bytes, _Stored]()
    for name, times in group.taken().items():
        value = layout, NEVER, {state: True}, {timer: times}, times[-1]
        entries[name] = times[0], NONE, pack((key_of(name), value))
    return entries


def _weight(name: bytes, data: bytes) -> int:
    """Approximate bytes of an entry in its bucket."""
    return len(name) + len(data) + 24


def _one_nan(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with a single NaN object, so that dictionaries find it."""
    return tuple(math.nan if isinstance(v, float) and math.isnan(v) else v for v in key)
