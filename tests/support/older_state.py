"""State in the formats that older releases have written, made of a canonical savepoint."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.lake.restore import savepoints
from floodmark.lake.restore.canonical import ROWS, STATE
from floodmark.lifecycle.savepoint import MANIFEST
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.encoding.plain import pack, unpack
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import MemoryStore


def as_lists(store: MemoryStore) -> MemoryStore:
    """A key group in format 3: buckets of about 64 entries, all of them listed in the index; chunks beside them stay."""
    index = store.index()
    assert index is not None
    older, size = MemoryStore(), 1
    older.chunks |= {number: chunk for number, chunk in store.chunks.items() if number < 0}
    entries = {identity(e.key): (e.event, e.tick, pack((e.key, e.value))) for e in KeyGroup.open(store).due(NONE, NONE)}
    while len(entries) > 64 * size:
        size += 1
    level = 1 << (size.bit_length() - 1)
    buckets: list[dict[bytes, tuple[int, int, bytes]]] = [{} for _ in range(size)]
    for name, entry in entries.items():
        number = zlib.crc32(name) & (2 * level - 1)
        buckets[number if number < size else number & (level - 1)][name] = entry
    for number, bucket in enumerate(buckets):
        if bucket:
            older.put(number, pack(bucket))
    events, ticks = ([min((one[place] for one in b.values()), default=NONE) for b in buckets] for place in (0, 1))
    older.put_index(pack((3, unpack(index)[1], [len(bucket) for bucket in buckets], events, ticks)))
    return older


def numbered(store: MemoryStore, version: int) -> MemoryStore:
    """A key group whose index says that it is of another format."""
    index = store.index()
    assert index is not None
    return MemoryStore(head=pack((version, *unpack(index)[1:])), chunks=dict(store.chunks))


def rewrite(place: str, as_before: Any) -> int:
    """Put the state of every key group of a canonical savepoint into another format; how many there are.

    Args:
        place: its folder.
        as_before: makes a store of one.
    """
    stores: dict[int, tuple[int | None, MemoryStore]] = {}
    rows = [row for file in sorted(Path(place, STATE).glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    for row in sorted(rows, key=lambda row: (row["index"] is None, row["piece"] or 0)):
        if row["index"] is not None:
            stores[row["group"]] = row["deadline"], MemoryStore(head=row["index"])
        else:
            chunks = stores[row["group"]][1].chunks
            chunks[row["number"]] = chunks.get(row["number"], b"") + row["chunk"]
    found = list[dict[str, Any]]()
    for group, (deadline, store) in stores.items():
        older = as_before(store)
        found.append({"group": group, "deadline": deadline, "index": older.index()})
        for number, chunk in older.chunks.items():
            found.append({"group": group, "number": number, "piece": 0, "pieces": 1, "chunk": chunk})
    for file in Path(place, STATE).glob("*.parquet"):
        file.unlink()
    pq.write_table(pa.Table.from_pylist(found, ROWS), Path(place, STATE, "0.parquet"))
    manifest = savepoints.opened(place).manifest
    Path(place, MANIFEST).write_text(replace(manifest, files=savepoints.digests(place)).as_json())
    return len(stores)
