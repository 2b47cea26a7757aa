"""Entries: what the content of a unit is read as, a row, or consecutive rows that can be checked together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from floodmark.semantics.encoding.dates import rows_of

TOGETHER_ROWS, TOGETHER_BYTES = 16_384, 4 << 20
"""Most rows that are checked together, and bytes from which on no further row is added to them."""

Form = Literal["json", "text", "python"]
"""Form of a record's value: JSON, a dictionary of texts, a dictionary of typed values."""


class Record(NamedTuple):
    """One row as it stands in the source.

    Args:
        position: of the row in its unit, for people: the 1-based line of its first line, or the row number.
        raw: the row's bytes as they are.
        value: checked against the contract: a dictionary, or JSON.
        reason: why there is no value to check; empty when there is.
        stored: () -> what the quarantine keeps of the row in place of ``raw``, as ``Reader.again`` takes it; None: ``raw``.
    """

    position: int
    raw: bytes
    value: object
    reason: str = ""
    stored: Callable[[], bytes] | None = None


class Columns(NamedTuple):
    """Consecutive rows of a columnar source.

    Args:
        position: of the first row in its unit, from 1.
        batch: the rows.
    """

    position: int
    batch: pa.RecordBatch

    def position_of(self, index: int) -> int:
        """Position in the unit of a row by its index."""
        return self.position + index

    def records(self) -> Iterator[Record]:
        """The rows one by one."""
        return (Record(number, b"", row) for number, row in enumerate(rows_of(self.batch), self.position))


class JsonTexts(NamedTuple):
    """Consecutive rows, each a text of JSON that is checked as it stands.

    Args:
        positions: of the rows in their unit.
        texts: of the rows.
        added: further field -> its value for each row, which wins over a field of that name in the text.
    """

    positions: Sequence[int]
    texts: Sequence[bytes]
    added: Mapping[str, Sequence[Any]] = MappingProxyType({})

    def position_of(self, index: int) -> int:
        """Position in the unit of a row by its index."""
        return self.positions[index]

    def records(self) -> Iterator[Record]:
        """The rows one by one."""
        rows = zip(self.positions, self.texts, strict=True)
        if not self.added:
            return (Record(at, text, text) for at, text in rows)
        fields = (dict(zip(self.added, values, strict=True)) for values in zip(*self.added.values(), strict=True))
        return (extended(at, text, own) for (at, text), own in zip(rows, fields, strict=True))

    def pieces(self, rows: int) -> Iterator[JsonTexts]:
        """The same in pieces of so many rows."""
        for first in range(0, len(self.texts), rows):
            part = slice(first, first + rows)
            added = {name: values[part] for name, values in self.added.items()}
            yield JsonTexts(self.positions[part], self.texts[part], added)


def extended(position: int, text: bytes, fields: Mapping[str, Any]) -> Record:
    """An object of JSON with further fields, which are behind its own, so that they win over fields of the same name."""
    body = text.rstrip()
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return Record(position, text, None, "expected a JSON object")
    comma = b"," if body[1:-1].strip() else b""
    whole = body[:-1] + comma + json.dumps(fields).encode()[1:]
    return Record(position, whole, whole)


Entry = Record | Columns | JsonTexts
"""What a unit's content is read as: a row, or consecutive rows that can be checked together."""


def together(records: Iterable[Record]) -> Iterator[Entry]:
    """Records of JSON, those that are texts to be checked as they stand together, some thousand at a time. An error of ``records`` comes behind all records before it."""
    positions, texts, size = list[int](), list[bytes](), 0
    try:
        for record in records:
            is_text = record.value is record.raw and not record.reason and record.stored is None
            if texts and (not is_text or len(texts) >= TOGETHER_ROWS or size >= TOGETHER_BYTES):
                yield JsonTexts(positions, texts)
                positions, texts, size = [], [], 0
            if is_text:
                positions.append(record.position)
                texts.append(record.raw)
                size += len(record.raw)
            else:
                yield record
    except Exception:
        if texts:
            yield JsonTexts(positions, texts)
        raise
    if texts:
        yield JsonTexts(positions, texts)
