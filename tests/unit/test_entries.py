"""Entries of a key group beside a dictionary, and what a micro-batch reads and writes of them."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.errors import StateError
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.encoding.plain import Packer, pack, unpack
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import CODEC, Entry, KeyGroup
from floodmark.semantics.state.marks import CODEC as MARKS
from floodmark.semantics.state.store import MemoryStore


@dataclass
class Counting(MemoryStore):
    """A store that counts."""

    written: int = 0
    index_bytes: int = 0
    read: int = 0

    def put(self, number: int, chunk: bytes) -> None:
        self.written += len(chunk)
        super().put(number, chunk)

    def put_index(self, index: bytes | None) -> None:
        self.index_bytes += len(index or b"")
        super().put_index(index)

    def get(self, number: int) -> bytes:
        self.read += 1
        return super().get(number)


KEYS = st.integers(0, 400)
WAITS = st.one_of(st.just(NONE), st.integers(0, 100))
OPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 900), WAITS, WAITS),
    st.tuples(st.just("many"), KEYS, st.integers(0, 120), WAITS, WAITS),
    st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("change"), KEYS, WAITS),
    st.tuples(st.just("free"), st.integers(0, 100), st.integers(0, 100)),
    st.tuples(st.just("close")),
)


def _content(store: MemoryStore) -> dict[tuple[int, ...], tuple[str, int, int]]:
    return {e.key: (e.value, e.event, e.tick) for e in KeyGroup.open(store).due(NONE, NONE)}


@given(st.lists(OPS, max_size=60))
def test_entries_are_those_of_a_dictionary_wherever_micro_batches_are_cut(program):
    store, wanted = MemoryStore(), {}
    entries = KeyGroup.open(store)
    for name, *given_values in program:
        match name, given_values:
            case "put", [key, size, event, tick]:
                entries.put(Entry((key,), "v" * size, event, tick))
                wanted[key,] = "v" * size, event, tick
            case "many", [first, count, event, tick]:
                for key in range(first, first + count):
                    entries.put(Entry((key,), str(key), event, tick))
                    wanted[key,] = str(key), event, tick
            case "drop", [key]:
                entries.drop(Entry((key,), None))
                wanted.pop((key,), None)
            case "change", [key, event]:
                entry = entries.get((key,))
                assert (entry is None) == ((key,) not in wanted)
                if entry is not None:
                    assert (entry.value, entry.event, entry.tick) == wanted[key,]
                    entry.event = event
                    wanted[key,] = entry.value, event, entry.tick
            case "free", [progress, clock]:
                due = {entry.key for entry in entries.due(progress, clock)}
                assert due == {key for key, (_, event, tick) in wanted.items() if event <= progress or tick <= clock}
                for key in due:
                    entries.drop(Entry(key, None))
                    del wanted[key]
            case _:
                waits = [(event, tick) for _, event, tick in wanted.values()]
                assert entries.close() == (
                    min((event for event, _ in waits), default=NONE),
                    min((tick for _, tick in waits), default=NONE),
                )
                entries = KeyGroup.open(store)
    entries.close()
    assert _content(store) == wanted
    if not wanted:
        assert store == MemoryStore()


def _filled(keys: int) -> Counting:
    store = Counting()
    KeyGroup.open(store).filled({identity((key,)): (key, NONE, pack(((key,), {"n": key}))) for key in range(keys)})
    store.written = store.index_bytes = store.read = 0
    return store


def _touched(store: Counting, keys: int) -> tuple[int, int, int]:
    """(chunk bytes, index bytes, chunks read) of a micro-batch that touches ten keys of so many."""
    entries = KeyGroup.open(store)
    for key in random.Random(1).sample(range(keys), 10):
        entry = entries.get((key,))
        assert entry is not None
        entry.event += 10**6
    entries.close()
    return store.written, store.index_bytes, store.read


def test_a_micro_batch_writes_no_more_where_more_keys_are_held():
    few, many = (_touched(_filled(keys), keys) for keys in (1_000, 100_000))
    assert many[0] < 1.8 * few[0], "buckets and pages"
    assert many[1] < 16 * 30 + 100, "one page and what is beside it"
    assert many[2] <= 10 * 4, "a bucket, and a page per level"


def test_what_is_due_is_found_without_reading_what_is_not():
    store = _filled(100_000)
    entries = KeyGroup.open(store)
    assert len(list(entries.due(0, 0))) == 1
    assert store.read <= 4


def test_large_entries_lie_alone():
    store = Counting()
    entries = KeyGroup.open(store)
    for key in range(100):
        entries.put(Entry((key,), "v" * 50_000))
    entries.close()
    store.written = 0
    entries = KeyGroup.open(store)
    entries.get((7,))
    entries.close()
    assert store.written < 6 * 50_000


def _as_lists(keys: int, extra: dict[str, object]) -> MemoryStore:
    """What format 3 has written: buckets of about 64 entries, all of them listed in the index."""
    store, size = MemoryStore(), 1
    names = {identity((key,)): (key, NONE, pack(((key,), f"v{key}"))) for key in range(keys)}
    while keys > 64 * size:
        size += 1
    level = 1 << (size.bit_length() - 1)
    buckets: list[dict[bytes, tuple[int, int, bytes]]] = [{} for _ in range(size)]
    for name, entry in names.items():
        code = zlib.crc32(name)
        number = code & (2 * level - 1)
        buckets[number if number < size else code & (level - 1)][name] = entry
    for number, bucket in enumerate(buckets):
        if bucket:
            store.put(number, pack(bucket))
    events = [min((event for event, _, _ in bucket.values()), default=NONE) for bucket in buckets]
    store.put_index(pack((3, extra, [len(bucket) for bucket in buckets], events, [NONE] * size)))
    return store


@pytest.mark.parametrize("keys", [0, 1, 64, 1_000])
def test_state_of_the_format_before_is_read_and_written_anew(keys):
    store = _as_lists(keys, {"clock": 5})
    entries = KeyGroup.open(store)
    assert entries.extra == {"clock": 5}
    assert {e.key for e in entries.due(2, 0)} == {(key,) for key in range(min(keys, 3))}
    entries.drop(Entry((0,), None))
    assert entries.close() == (1 if keys > 1 else NONE, NONE)
    assert store.head is not None
    assert unpack(store.head)[0] == CODEC
    assert _content(store) == {(key,): (f"v{key}", key, NONE) for key in range(1, keys)}


def test_state_of_an_older_format_is_refused():
    store = MemoryStore(head=pack((2, {}, [], [], [])))
    with pytest.raises(StateError, match=f"STATE-001 .*format version 3, {CODEC} or {MARKS}, got version 2"):
        KeyGroup.open(store)


@given(
    st.lists(
        st.one_of(
            st.datetimes(), st.decimals(), st.integers(), st.text(), st.binary(), st.lists(st.datetimes(), max_size=3)
        ),
        max_size=6,
    )
)
def test_entries_packed_one_after_the_other_have_the_bytes_that_each_has_alone(values):
    packer = Packer()
    packed = [packer(value) for value in values]
    assert packed == [pack(value) for value in values]
    assert repr([unpack(data) for data in packed]) == repr(values)
