"""What a key group keeps per key, in buckets: a micro-batch reads and writes the buckets of the keys it touches, and no others.

Buckets are split one at a time as keys come (linear hashing, Litwin 1980), so that they stay small whatever the group holds. Each
entry has the progress and the clock it waits for; the index knows the earliest of each bucket.
"""

from __future__ import annotations

import io
import math
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from floodmark.core.errors import StateError, UserCodeError
from floodmark.core.time import END
from floodmark.semantics.store import Store

CODEC = 2
"""Version of the format of buckets and index."""

NONE = END + 1
"""Waits for nothing."""

_FULL = 64
"""Entries per bucket on average."""

_LARGE = 1_000_000
"""Bytes from which a store may keep a chunk in pieces: it is then removed before it is written anew."""

_ALLOWED = {
    ("decimal", "Decimal"),
    ("datetime", "datetime"),
    ("datetime", "date"),
    ("datetime", "timezone"),
    ("zoneinfo", "ZoneInfo"),
}
_ALLOWED |= {("datetime", "timedelta"), ("builtins", "set")}


class _Pickler(pickle.Pickler):
    """Refuses on the way in what the other way would refuse to read."""

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type) else type(obj)
        if kind is ZoneInfo and obj is not ZoneInfo:
            return ZoneInfo, (obj.key,)
        if (kind.__module__, kind.__qualname__) not in _ALLOWED:
            fix = "Keep numbers, texts, times, lists, sets and dictionaries; of a numpy value take .item()."
            got = f"a {kind.__module__}.{kind.__qualname__}"
            raise UserCodeError("what a function keeps in its state", "plain data", got, fix, code="USER-003")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Plain data only: nothing a chunk names can run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            fix = "Run with the floodmark release that wrote it."
            raise StateError("state chunk", "plain data", f"{module}.{name}", fix, code="STATE-001")
        return super().find_class(module, name)


def pack(value: Any) -> bytes:
    """Plain data (numbers, texts, times, lists, dictionaries) as bytes.

    Raises:
        UserCodeError: USER-003, anything else.
    """
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(value)
    return out.getvalue()


def unpack(data: bytes) -> Any:
    """What ``pack`` made of it."""
    return _Unpickler(io.BytesIO(data)).load()


@dataclass(slots=True)
class Entry:
    """What is kept for one key.

    Args:
        key: its values.
        value: plain data.
        event: the progress it waits for.
        tick: the clock it waits for.
    """

    key: tuple[Any, ...]
    value: Any
    event: int = NONE
    tick: int = NONE


@dataclass(slots=True)
class _Bucket:
    entries: dict[bytes, tuple[int, int, bytes]]
    stored: int = 0
    changed: bool = False


@dataclass(slots=True)
class Entries:
    """The entries of one key group over a store; open it, work, ``close`` it.

    Args:
        store: of the group.
        extra: plain data the kernel keeps beside the entries; written with the index.
    """

    store: Store
    extra: dict[str, Any] = field(default_factory=dict)
    _counts: list[int] = field(default_factory=list)
    _events: list[int] = field(default_factory=list)
    _ticks: list[int] = field(default_factory=list)
    _open: dict[int, _Bucket] = field(default_factory=dict)
    _live: dict[tuple[Any, ...], Entry | None] = field(default_factory=dict)

    @staticmethod
    def open(store: Store) -> Entries:
        """As it was last closed."""
        found = store.index()
        if found is None:
            return Entries(store)
        codec, extra, counts, events, ticks = unpack(found)
        if codec != CODEC:
            fix = "Run with the floodmark release that wrote it."
            raise StateError("state index", f"format version {CODEC}", f"version {codec}", fix, code="STATE-001")
        return Entries(store, extra, counts, events, ticks)

    def get(self, key: tuple[Any, ...]) -> Entry | None:
        """The entry of a key; changes to it are kept."""
        if key in self._live:
            return self._live[key]
        identity = repr(key).encode()
        place = self._place(identity)
        found = self._bucket(place).entries.get(identity) if self._counts else None
        entry = Entry(key, unpack(found[2])[1], found[0], found[1]) if found else None
        self._live[key] = entry
        return entry

    def put(self, entry: Entry) -> None:
        """A new entry."""
        self._live[entry.key] = entry

    def drop(self, key: tuple[Any, ...]) -> None:
        """Forget a key."""
        self._live[key] = None

    def due(self, progress: int, clock: int) -> Iterator[Entry]:
        """Every entry that waits for ``progress`` or ``clock``, or for less."""
        for place in range(len(self._counts)):
            if self._events[place] > progress and self._ticks[place] > clock:
                continue
            for event, tick, data in list(self._bucket(place).entries.values()):
                if event <= progress or tick <= clock:
                    key, value = unpack(data)
                    key = _one_nan(key)
                    self._live.setdefault(key, Entry(key, value, event, tick))
        for entry in list(self._live.values()):
            if entry is not None and (entry.event <= progress or entry.tick <= clock):
                yield entry

    def __len__(self) -> int:
        """Keys held, as of the last ``close``."""
        return sum(self._counts)

    def close(self) -> tuple[int, int]:
        """Write what has changed; the earliest progress and clock any entry waits for."""
        for key, entry in self._live.items():
            self._keep(key, entry)
        self._live.clear()
        for place, bucket in self._open.items():
            self._settle(place, bucket)
        held = sum(self._counts)
        while held > _FULL * len(self._counts):
            self._split()
        for place, bucket in self._open.items():
            if not bucket.changed:
                continue
            if bucket.stored and (not bucket.entries or bucket.stored > _LARGE):
                self.store.remove(place)
            if bucket.entries:
                self.store.put(place, pack(bucket.entries))
        self._open.clear()
        if not held:
            self._counts, self._events, self._ticks = [], [], []
        keeps = bool(self._counts or self.extra)
        self.store.put_index(pack((CODEC, self.extra, self._counts, self._events, self._ticks)) if keeps else None)
        return min(self._events, default=NONE), min(self._ticks, default=NONE)

    def _keep(self, key: tuple[Any, ...], entry: Entry | None) -> None:
        if not self._counts:
            if entry is None:
                return
            self._grow()
        identity = repr(key).encode()
        bucket = self._bucket(self._place(identity))
        if entry is None:
            bucket.changed |= bucket.entries.pop(identity, None) is not None
        else:
            bucket.entries[identity] = entry.event, entry.tick, pack((key, entry.value))
            bucket.changed = True

    def _place(self, identity: bytes) -> int:
        """Linear hashing: buckets below the split point have one bit more."""
        size = len(self._counts)
        if not size:
            return 0
        level = 1 << (size.bit_length() - 1)
        code = zlib.crc32(identity)
        place = code & (2 * level - 1)
        return place if place < size else code & (level - 1)

    def _bucket(self, place: int) -> _Bucket:
        found = self._open.get(place)
        if found is None:
            data = self.store.get(place) if self._counts[place] else b""
            found = self._open[place] = _Bucket(unpack(data) if data else {}, len(data))
        return found

    def _grow(self) -> None:
        self._counts.append(0)
        self._events.append(NONE)
        self._ticks.append(NONE)
        self._open[len(self._counts) - 1] = _Bucket({}, changed=True)

    def _split(self) -> None:
        """One bucket more: it takes its share of the one it is split from."""
        size = len(self._counts)
        place = size - (1 << (size.bit_length() - 1))
        old = self._bucket(place)
        self._grow()
        moved = {identity: data for identity, data in old.entries.items() if self._place(identity) == size}
        for identity in moved:
            del old.entries[identity]
        old.changed = True
        new = self._open[size]
        new.entries.update(moved)
        self._settle(place, old)
        self._settle(size, new)

    def _settle(self, place: int, bucket: _Bucket) -> None:
        values = bucket.entries.values()
        self._counts[place] = len(values)
        self._events[place] = min((event for event, _, _ in values), default=NONE)
        self._ticks[place] = min((tick for _, tick, _ in values), default=NONE)


def _one_nan(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """There is one NaN, so that dictionaries find it."""
    return tuple(math.nan if isinstance(v, float) and math.isnan(v) else v for v in key)
