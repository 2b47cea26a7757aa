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
from floodmark.semantics.identity import identity
from floodmark.semantics.store import Store

CODEC = 3
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
    _live: dict[bytes, Entry | None] = field(default_factory=dict)

    @staticmethod
    def open(store: Store) -> Entries:
        """As it was last closed."""
        index = store.index()
        if index is None:
            return Entries(store)
        codec, extra, counts, events, ticks = unpack(index)
        if codec != CODEC:
            fix = "Run with the floodmark release that wrote it."
            raise StateError("state index", f"format version {CODEC}", f"version {codec}", fix, code="STATE-001")
        return Entries(store, extra, counts, events, ticks)

    def get(self, key: tuple[Any, ...]) -> Entry | None:
        """The entry of a key; changes to it are kept."""
        name = identity(key)
        if name in self._live:
            return self._live[name]
        stored = self._bucket(self._number(name)).entries.get(name) if self._counts else None
        entry = Entry(key, unpack(stored[2])[1], stored[0], stored[1]) if stored else None
        self._live[name] = entry
        return entry

    def put(self, entry: Entry) -> None:
        """A new entry."""
        self._live[identity(entry.key)] = entry

    def drop(self, key: tuple[Any, ...]) -> None:
        """Forget a key."""
        self._live[identity(key)] = None

    def due(self, progress: int, clock: int) -> Iterator[Entry]:
        """Every entry that waits for ``progress`` or ``clock``, or for less."""
        for number in range(len(self._counts)):
            if self._events[number] > progress and self._ticks[number] > clock:
                continue
            for name, (event, tick, data) in list(self._bucket(number).entries.items()):
                if event <= progress or tick <= clock:
                    key, value = unpack(data)
                    self._live.setdefault(name, Entry(_one_nan(key), value, event, tick))
        for entry in list(self._live.values()):
            if entry is not None and (entry.event <= progress or entry.tick <= clock):
                yield entry

    def __len__(self) -> int:
        """Keys held, as of the last ``close``."""
        return sum(self._counts)

    def close(self) -> tuple[int, int]:
        """Write what has changed; the earliest progress and clock any entry waits for."""
        for name, entry in self._live.items():
            self._keep(name, entry)
        self._live.clear()
        for number, bucket in self._open.items():
            self._settle(number, bucket)
        held = sum(self._counts)
        while held > _FULL * len(self._counts):
            self._split()
        for number, bucket in self._open.items():
            if not bucket.changed:
                continue
            if bucket.stored and (not bucket.entries or bucket.stored > _LARGE):
                self.store.remove(number)
            if bucket.entries:
                self.store.put(number, pack(bucket.entries))
        self._open.clear()
        if not held:
            self._counts, self._events, self._ticks = [], [], []
        keeps = bool(self._counts or self.extra)
        self.store.put_index(pack((CODEC, self.extra, self._counts, self._events, self._ticks)) if keeps else None)
        return min(self._events, default=NONE), min(self._ticks, default=NONE)

    def _keep(self, name: bytes, entry: Entry | None) -> None:
        if not self._counts:
            if entry is None:
                return
            self._grow()
        bucket = self._bucket(self._number(name))
        if entry is None:
            bucket.changed |= bucket.entries.pop(name, None) is not None
        else:
            bucket.entries[name] = entry.event, entry.tick, pack((entry.key, entry.value))
            bucket.changed = True

    def _number(self, name: bytes) -> int:
        """The bucket of a key. Linear hashing: buckets below the split point have one bit more."""
        size = len(self._counts)
        if not size:
            return 0
        level = 1 << (size.bit_length() - 1)
        code = zlib.crc32(name)
        number = code & (2 * level - 1)
        return number if number < size else code & (level - 1)

    def _bucket(self, number: int) -> _Bucket:
        bucket = self._open.get(number)
        if bucket is None:
            data = self.store.get(number) if self._counts[number] else b""
            bucket = self._open[number] = _Bucket(unpack(data) if data else {}, len(data))
        return bucket

    def _grow(self) -> None:
        self._counts.append(0)
        self._events.append(NONE)
        self._ticks.append(NONE)
        self._open[len(self._counts) - 1] = _Bucket({}, changed=True)

    def _split(self) -> None:
        """One bucket more: it takes its share of the one it is split from."""
        size = len(self._counts)
        number = size - (1 << (size.bit_length() - 1))
        old = self._bucket(number)
        self._grow()
        moved = {name: data for name, data in old.entries.items() if self._number(name) == size}
        for name in moved:
            del old.entries[name]
        old.changed = True
        new = self._open[size]
        new.entries.update(moved)
        self._settle(number, old)
        self._settle(size, new)

    def _settle(self, number: int, bucket: _Bucket) -> None:
        values = bucket.entries.values()
        self._counts[number] = len(values)
        self._events[number] = min((event for event, _, _ in values), default=NONE)
        self._ticks[number] = min((tick for _, tick, _ in values), default=NONE)


def _one_nan(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """There is one NaN, so that dictionaries find it."""
    return tuple(math.nan if isinstance(v, float) and math.isnan(v) else v for v in key)
