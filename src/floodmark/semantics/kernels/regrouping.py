"""State of key groups divided among another number of key groups: (state of a group) -> pieces by key -> state of the new groups.

A piece is a chunk of state with the keys in it. The pieces of all groups go to the groups that their keys belong to, where they are joined.
Keys of two groups are two keys, so that no piece needs to be merged with another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import NEVER
from floodmark.semantics.encoding.columns import arrow_type, decode, encode
from floodmark.semantics.encoding.identity import key_of
from floodmark.semantics.encoding.plain import pack, unpack
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage
from floodmark.semantics.kernels.functions.duplicates import is_deduplication, marks_of
from floodmark.semantics.kernels.joins import JoinStage
from floodmark.semantics.kernels.process import SHARED
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.index import Chunk, Index
from floodmark.semantics.state.marks import Rows
from floodmark.semantics.state.store import Store

Chosen = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some state of a key group.

    Args:
        keys: key columns, one row per item of the piece.
        part: (which items) -> these items, for ``join``.
        size: bytes in memory, about.
    """

    keys: pa.Table
    part: Callable[[Chosen], bytes]
    size: int


def pieces(stage: AnyStage, store: Store) -> Iterator[Piece]:
    """The state of a key group, chunk by chunk. The store may be changed, but holds the same state afterwards."""
    match stage:
        case Stage():
            return _windows(stage, store)
        case JoinStage():
            return _buffered(stage, store)
        case ProcessStage() if is_deduplication(stage):
            return _marked(stage, store)
        case _:
            return _entries(stage, store)


def shared(stage: AnyStage, store: Store) -> list[bytes]:
    """What every key group has alike, as parts: broadcast states, and rows for all keys that wait for progress."""
    if not isinstance(stage, ProcessStage) or stage.step.broadcast is None or store.index() is None:
        return []
    extra, parts = KeyGroup.open(store).extra, list[bytes]()
    if extra.get("shared"):
        states, layout = unpack(store.get(SHARED))
        parts.append(pack(("shared", _common(extra), (states, extra["layouts"][layout]))))
    for number in extra.get("held", {}):
        rows = decode(store.get(number))["rows"]
        everywhere = pc.equal(rows["v0"], stage.step.broadcast)
        if pc.any(everywhere).as_py():
            parts.append(_held_part(_common(extra), rows, everywhere.to_numpy()))
    return parts


def join(stage: AnyStage, store: Store, parts: Iterable[bytes]) -> None:
    """Write parts of pieces into the empty store of their key group.

    Args:
        stage: of the state.
        store: of the group.
        parts: of pieces, in the order in which ``pieces`` has them; what is shared comes first.
    """
    match stage:
        case Stage():
            _join_windows(store, parts)
        case JoinStage():
            _join_buffered(store, parts)
        case ProcessStage() if is_deduplication(stage):
            _join_marked(store, parts)
        case _:
            _join_entries(store, parts)


def _keys(stage: AnyStage, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Keys as plain data -> key columns."""
    types = stage.step.parent.schema.types
    columns = [
        pa.array([key[place] for key in keys], arrow_type(types[name])) for place, name in enumerate(stage.step.keys)
    ]
    return _table(stage, columns, len(keys))


def _columns(stage: AnyStage, tables: Iterable[pa.Table]) -> pa.Table:
    """The key columns of the rows of some tables."""
    types, rows = stage.step.parent.schema.types, list(tables)
    columns = []
    for key, name in zip(stage.keys, stage.step.keys, strict=True):
        kind = arrow_type(types[name])
        chunks = [chunk for table in rows for chunk in table[key].cast(kind).chunks]
        columns.append(pa.chunked_array(chunks, kind))
    return _table(stage, columns, sum(table.num_rows for table in rows))


def _table(stage: AnyStage, columns: Sequence[Any], count: int) -> pa.Table:
    return pa.table([*columns, pa.array(np.arange(count))], [*stage.keys, "place"])


def _some(tables: Mapping[str, pa.Table], chosen: Chosen) -> dict[str, pa.Table]:
    """Some of the rows of tables that lie one behind the other."""
    some, first = {}, 0
    for name, table in tables.items():
        some[name] = table.filter(pa.array(chosen[first : first + table.num_rows])).combine_chunks()
        first += table.num_rows
    return some


# ---- windows in columns


def _windows(stage: Stage, store: Store) -> Iterator[Piece]:
    text = store.index()
    if text is None:
        return
    index = Index.load(text)
    for number, chunk in index.parts.items():
        live = pa.array(
            sorted(set(chunk.slices)), pa.int64()
        )  # slices whose windows have all fired are still in the chunk
        tables = {
            name: table.filter(pc.is_in(table["slice"], live)) for name, table in decode(store.get(number)).items()
        }
        yield _tables_piece(stage, tables, ("parts", 0, index.fired_to))
    for number in index.pending:
        yield _tables_piece(stage, decode(store.get(number)), ("pending", 0, index.fired_to))
    for end, layers in index.fired.items():
        for number, _ in layers:
            yield _tables_piece(stage, decode(store.get(number)), ("fired", end, index.fired_to))


def _tables_piece(stage: Stage, tables: Mapping[str, pa.Table], about: tuple[str, int, int]) -> Piece:
    def part(chosen: Chosen) -> bytes:
        return pack((*about, encode(_some(tables, chosen))))

    return Piece(_columns(stage, tables.values()), part, sum(table.nbytes for table in tables.values()))


def _join_windows(store: Store, parts: Iterable[bytes]) -> None:
    index = Index()
    for part in parts:
        kind, end, fired_to, chunk = unpack(part)
        tables = decode(chunk)
        index.fired_to = max(index.fired_to, fired_to)
        number, index.next = index.next, index.next + 1
        if kind == "parts":
            main = tables["main"]
            pairs = list(dict.fromkeys(zip(main["slice"].to_pylist(), main["from_end"].to_pylist(), strict=True)))
            if not pairs:
                continue
            index.parts[number] = Chunk(main.num_rows, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        elif kind == "pending":
            late = tables["late"]
            index.pending[number], index.waiting[number] = pc.unique(late["end"]).to_pylist(), late.num_rows
        else:
            index.fired.setdefault(end, []).append([number, tables["main"].num_rows])
        store.put(number, chunk)
    store.put_index(index.dump() if index.parts or index.pending or index.fired else None)


# ---- joins


def _buffered(stage: JoinStage, store: Store) -> Iterator[Piece]:
    text = store.index()
    if text is None:
        return
    for tag, side in enumerate(json.loads(text)["chunks"]):
        for number, _, first, _, *flags in side:
            tables = decode(store.get(number))
            if flags:
                tables |= decode(store.get(flags[0]))
            rows = tables["rows"]
            if "matched" in tables:
                rows = rows.append_column("matched", tables["matched"]["m"])
            rows = rows.filter(pc.greater_equal(rows["t"], first))
            yield Piece(_columns(stage, [rows]), partial(_buffered_part, tag, rows), rows.nbytes)


def _buffered_part(tag: int, rows: pa.Table, chosen: Chosen) -> bytes:
    return pack((tag, encode({"rows": rows.filter(pa.array(chosen)).combine_chunks()})))


def _join_buffered(store: Store, parts: Iterable[bytes]) -> None:
    number, chunks = 0, list[list[list[int]]]([[], []])
    for part in parts:
        tag, chunk = unpack(part)
        rows = decode(chunk)["rows"]
        bounds, entry = pc.min_max(rows["t"]).as_py(), [number]
        if "matched" in rows.column_names:
            flags, rows = rows["matched"], rows.drop_columns(["matched"])
            store.put(number + 1, encode({"matched": pa.table({"m": flags})}))
            entry = [number + 1]
        store.put(number, encode({"rows": rows}))
        chunks[tag].append([number, rows.num_rows, bounds["min"], bounds["max"], *(entry if entry != [number] else [])])
        number += 2
    index = json.dumps({"chunks": chunks, "next": number}, separators=(",", ":")).encode()
    store.put_index(index if any(chunks) else None)


# ---- keys with entries


def _entries(stage: ElementStage | ProcessStage, store: Store) -> Iterator[Piece]:
    if store.index() is None:
        return
    group = KeyGroup.open(store)
    for bucket in group.contents():
        keys = [unpack(stored[2])[0] for stored in bucket.values()]
        size = sum(len(stored[2]) for stored in bucket.values())
        yield Piece(_keys(stage, keys), partial(_entries_part, _common(group.extra), bucket), size)
    yield from _held(stage, store, group.extra)


def _entries_part(common: dict[str, Any], entries: Mapping[bytes, Any], chosen: Chosen) -> bytes:
    some = {name: entry for (name, entry), taken in zip(entries.items(), chosen.tolist(), strict=True) if taken}
    return pack(("entries", common, some))


def _held(stage: ElementStage | ProcessStage, store: Store, extra: Mapping[str, Any]) -> Iterator[Piece]:
    """Rows that wait for progress."""
    for number in extra.get("held", {}):
        rows = decode(store.get(number))["rows"]
        if stage.step.broadcast is not None:  # those for all keys are ``shared``
            rows = rows.filter(pc.not_equal(rows["v0"], stage.step.broadcast))
        yield Piece(_columns(stage, [rows]), partial(_held_part, _common(extra), rows), rows.nbytes)


def _held_part(common: dict[str, Any], rows: pa.Table, chosen: Chosen) -> bytes:
    return pack(("held", common, encode({"rows": rows.filter(pa.array(chosen)).combine_chunks()})))


def _common(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a group has beside its keys, and what each part of it takes along."""
    return {name: extra[name] for name in ("clock", "arrived", "layouts") if name in extra}


def _join_entries(store: Store, parts: Iterable[bytes]) -> None:
    for part in parts:
        kind, common, content = unpack(part)
        group = KeyGroup.open(store)
        layouts = _add_common(group.extra, common)
        match kind:
            case "shared":
                states, layout = content
                number = _numbered(group.extra["layouts"], layout)
                store.put(SHARED, pack((states, number)))
                group.extra["shared"] = True
            case "held":
                _add_held(store, group.extra, content)
            case _:
                group.add(_laid_out(content, layouts))
        group.close()


def _add_common(extra: dict[str, Any], common: Mapping[str, Any]) -> list[int]:
    """Add what a part takes along to what a group has; returns the number in the group of each layout of the part."""
    for name in ("clock", "arrived"):
        if name in common:
            extra[name] = max(extra.get(name, NEVER), common[name])
    if "layouts" not in common:
        return []
    layouts = extra.setdefault("layouts", [])
    return [_numbered(layouts, layout) for layout in common["layouts"]]


def _numbered(layouts: list[Any], layout: Any) -> int:
    if layout not in layouts:
        layouts.append(layout)
    return layouts.index(layout)


def _laid_out(entries: Mapping[bytes, Any], layouts: Sequence[int]) -> Mapping[bytes, Any]:
    """Entries whose values have the numbers of layouts in their new group."""
    if all(before == now for before, now in enumerate(layouts)):
        return entries
    moved = {}
    for name, (event, tick, data) in entries.items():
        key, value = unpack(data)
        moved[name] = event, tick, pack((key, (layouts[value[0]], *value[1:]) if value else value))
    return moved


def _add_held(store: Store, extra: dict[str, Any], chunk: bytes) -> None:
    rows = decode(chunk)["rows"]
    held, sizes = extra.setdefault("held", {}), extra.setdefault("sizes", {})
    number = extra["next"] = extra.get("next", 0) - 1
    store.put(number, chunk)
    held[number] = pc.min(pc.max_element_wise(rows["t"], pc.add(rows["w"], 1))).as_py()
    sizes[number] = rows.num_rows


# ---- marks


def _marked(stage: ProcessStage, store: Store) -> Iterator[Piece]:
    if store.index() is None:
        return
    marks = marks_of(store)
    marks.close()  # writes those that were entries
    for rows in marks.contents():
        ends = np.cumsum(rows.sizes, dtype=np.int64)
        names = [rows.names[start:end] for start, end in zip((ends - rows.sizes).tolist(), ends.tolist(), strict=True)]
        yield Piece(
            _keys(stage, [key_of(name) for name in names]),
            partial(_marked_part, _common(marks.extra), marks.form, rows),
            len(rows.names),
        )
    yield from _held(stage, store, marks.extra)


def _marked_part(common: dict[str, Any], form: tuple[int, str, str], rows: Rows, chosen: Chosen) -> bytes:
    return pack(("marks", common, (form, rows.where(chosen).packed())))


def _join_marked(store: Store, parts: Iterable[bytes]) -> None:
    for part in parts:
        kind, common, content = unpack(part)
        marks = marks_of(store)
        layouts = _add_common(marks.extra, common)
        if kind == "held":
            _add_held(store, marks.extra, content)
        else:
            (layout, *names), rows = content
            marks.form = layouts[layout] if layouts else layout, names[0], names[1]
            marks.add(Rows.unpacked(rows))
        marks.close()
