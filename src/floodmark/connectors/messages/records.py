"""Messages of a topic as records: their values decoded, the fields that a contract may read of a message, and what the quarantine keeps of one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from pydantic import ValidationError

from floodmark.connectors.entries import Entry, Form, JsonTexts, Record, extended, together
from floodmark.connectors.judging.strictness import check_of
from floodmark.connectors.judging.validation import explain, kinds_of
from floodmark.connectors.messages.debezium import Reached, Repeated, rows_of
from floodmark.connectors.messages.decoding import decoder
from floodmark.connectors.messages.registry import headed
from floodmark.connectors.unit import Decode, Undecodable
from floodmark.spec.rows.contract import Contract, inputs_of
from floodmark.spec.rows.debezium import Debezium
from floodmark.spec.rows.kafka import Kafka

_DELETED = "_deleted"
_READER = '{"format": "reader"}'


class Message(Protocol):
    """A message, as the client has it."""

    def topic(self) -> str | None: ...  # noqa: D102 - as the client names them
    def partition(self) -> int | None: ...  # noqa: D102
    def offset(self) -> int | None: ...  # noqa: D102
    def key(self) -> bytes | str | None: ...  # noqa: D102
    def value(self) -> bytes | str | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def headers(self) -> Sequence[tuple[str, bytes | str | None]] | None: ...  # noqa: D102


class Stored(NamedTuple):
    """A message of the quarantine."""

    parts: Mapping[str, Any]

    def topic(self) -> str | None:  # noqa: D102 - as of Message
        return str(self.parts["topic"])

    def partition(self) -> int | None:  # noqa: D102 - as above
        return int(self.parts["partition"])

    def offset(self) -> int | None:  # noqa: D102 - as above
        return int(self.parts["offset"])

    def key(self) -> bytes | None:  # noqa: D102 - as above
        return _bytes(self.parts["key"])

    def value(self) -> bytes | None:  # noqa: D102 - as above
        return _bytes(self.parts["value"])

    def timestamp(self) -> tuple[int, int]:  # noqa: D102 - as above
        kind, at = self.parts["timestamp"]
        return kind, at

    def headers(self) -> list[tuple[str, bytes | None]]:  # noqa: D102 - as above
        return [(name, _bytes(content)) for name, content in self.parts["headers"]]


@dataclass(slots=True)
class Messages:
    """How the messages of a topic are read.

    Args:
        settings: of the topic.
        contract: of its rows.
        where: for errors.
        source: name of the source.
        reached: of changes: how far their log has been read before; None: unknown, as for messages of the quarantine.
    """

    settings: Kafka
    contract: type[Contract]
    where: str
    source: str
    reached: Reached | None = None
    added: frozenset[str] = field(init=False)
    _decode: Decode = field(init=False)
    _kinds: Mapping[str, str] = field(init=False)
    """Name in the source -> type of a field."""

    def __post_init__(self) -> None:
        self.added = self.settings.adds() & inputs_of(self.contract).keys()
        self._decode = decoder(self.settings, self.where, self.source)
        self._kinds = kinds_of(self.contract)

    @property
    def form(self) -> Form:
        """Of the records' values."""
        return "json" if self.settings.format == "json" and self.settings.envelope is None else "python"

    @property
    def replay(self) -> str:
        """How a row of the quarantine is read again."""
        return '{"format": "json"}' if self.form == "json" else _READER

    def entries(self, messages: Sequence[Message], values: Sequence[bytes | str | None]) -> Iterator[Entry]:
        """The records of messages, those of JSON together, as far as each has a text.

        Args:
            messages: consecutive ones.
            values: of the messages.
        """
        if self.form != "json":
            for message in messages:
                yield from self.records(message)
            return
        if self.settings.registry is None and set(map(type, values)) == {bytes}:
            offsets = [message.offset() or 0 for message in messages]
            added = {name: [*map(read, messages)] for name, read in _FIELDS.items() if name in self.added}
            yield JsonTexts(offsets, cast("Sequence[bytes]", values), added)
            return
        yield from together(map(self.record, messages))

    def records(self, message: Message) -> Iterator[Record]:
        """The records of a message: one; of a change in the place of the table's row, none, one, or the old and the new row."""
        if self.settings.envelope is not None:
            yield from self._changes(message, self.settings.envelope)
        else:
            yield self.record(message)

    def again(self, raw: bytes) -> list[Record]:
        """The records of a message of the quarantine; of a change of which one row was set aside, that row."""
        parts = json.loads(raw)
        if parts["repeats"]:
            return [Record(0, b"", None, parts["repeats"], lambda: raw)]
        records = list(self.records(Stored(parts)))
        if parts["row_number"] is not None:
            return [records[min(parts["row_number"], len(records) - 1)]]
        reason = next((reason for reason in map(self._broken, records) if reason), "")
        return [records[0]._replace(value=None, reason=reason)] if reason and len(records) > 1 else records

    def _broken(self, record: Record) -> str:
        """Why a row breaks the contract; empty if it does not. Of a change both rows land, or none."""
        try:
            check_of(self.contract, self.form)(record.value)
        except ValidationError as error:
            return record.reason or explain(error)
        return record.reason

    def _changes(self, message: Message, envelope: Debezium) -> Iterator[Record]:
        """The rows of a change; where a change may have two, their positions are twice its offset and the number behind that."""
        value, offset = message.value(), message.offset() or 0
        if value is None:  # behind a delete, for the compaction of the topic
            return
        position = 2 * offset if envelope.read == "changes" else offset
        try:
            rows = rows_of(self._decode(_as_bytes(value)), envelope, self.reached)
        except Undecodable as error:
            repeats = str(error) if isinstance(error, Repeated) else ""
            yield Record(position, _as_bytes(value), None, str(error), partial(store, message, None, repeats=repeats))
            return
        fields = self._fields(message)
        for number, row in enumerate(rows):
            stored = partial(store, message, row, number)
            yield Record(position + number, _as_bytes(value), row | fields, "", stored)

    def record(self, message: Message) -> Record:
        """The record of a message that is no change."""
        value = message.value()
        if value is None:
            return self._tombstone(message)
        body = _as_bytes(value)
        return self._json(message, body) if self.form == "json" else self._decoded(message, body)

    def _json(self, message: Message, value: bytes) -> Record:
        offset = message.offset() or 0
        if self.settings.registry is not None:
            try:
                _, value = headed(value)
            except Undecodable as error:
                return Record(offset, value, None, str(error))
        if not self.added:
            return Record(offset, value, value)
        return extended(offset, value, self._fields(message))

    def _decoded(self, message: Message, value: bytes) -> Record:
        offset = message.offset() or 0
        try:
            row = self._decode(value)
        except Undecodable as error:
            return Record(offset, value, None, str(error), partial(store, message, None))
        return Record(offset, value, row | self._fields(message), "", partial(store, message, row))

    def _tombstone(self, message: Message) -> Record:
        """The row of a message without a value: the fields of the contract's key; others are missing."""
        offset, stored = message.offset() or 0, partial(store, message, None)
        if _DELETED not in self.added or not self.contract.floodmark_key:
            reason = "a message without a value: a tombstone, which deletes what had its key"
            return Record(offset, b"", None, reason, None if self.form == "json" else stored)
        row = self._of_key(message.key()) | self._fields(message) | {_DELETED: True}
        if self.form == "json":
            text = json.dumps(row, default=str).encode()
            return Record(offset, text, text)
        return Record(offset, b"", row, "", stored)

    def _of_key(self, key: bytes | str | None) -> dict[str, Any]:
        """The fields of the contract's key from the key of a message: an object, or a value where the contract's key is one field."""
        names = {model_field: name for name, model_field in self._names().items()}
        wanted = [names[name] for name in self.contract.floodmark_key]
        content: Any = None if key is None else _as_bytes(key)
        if content is not None and self.settings.registry is not None and content[:1] == b"\0":
            try:
                content = self._decode(content) if self.form == "python" else headed(content)[1]
            except Undecodable:
                return {}
        if isinstance(content, bytes):
            text = _text(content) or ""
            try:
                content = json.loads(content)
            except (ValueError, RecursionError):
                content = text
            if len(wanted) == 1 and not isinstance(content, dict | str) and self._kinds[wanted[0]] == "string":
                content = text  # ``42`` and ``true`` are texts, too
        if isinstance(content, dict):
            return {name: content[name] for name in wanted if name in content}
        return {wanted[0]: content} if len(wanted) == 1 and content is not None else {}

    def _names(self) -> dict[str, str]:
        """Name of a field in the source -> its name in the contract."""
        fields = {id(model_field): name for name, model_field in self.contract.model_fields.items()}
        return {name: fields[id(model_field)] for name, model_field in inputs_of(self.contract).items()}

    def _fields(self, message: Message) -> dict[str, Any]:
        """The fields of a message that the contract reads."""
        return {name: read(message) for name, read in _FIELDS.items() if name in self.added}


def store(message: Message, row: Mapping[str, Any] | None, number: int | None = None, *, repeats: str = "") -> bytes:
    """What the quarantine keeps of a message: its bytes, and for people what they mean.

    Args:
        message: the message.
        row: its fields, as far as they were read.
        number: of the row among those of the message; None: all.
        repeats: why no replay can land it; empty: one can.
    """
    parts = {
        "row": row,
        "row_number": number,
        "repeats": repeats,
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp(),
        "key": _base64(message.key()),
        "value": _base64(message.value()),
        "headers": [[name, _base64(content)] for name, content in message.headers() or ()],
    }
    return json.dumps(parts, default=_shown).encode()


def _shown(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def _base64(content: bytes | str | None) -> str | None:
    return None if content is None else base64.b64encode(_as_bytes(content)).decode()


def _bytes(content: str | None) -> bytes | None:
    return None if content is None else base64.b64decode(content)


def _as_bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _text(content: bytes | str | None) -> str | None:
    """Bytes as text; those that are no UTF-8 in hex behind a backslash, so that keys which differ stay two."""
    return content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content


def _timestamp(message: Message) -> int | None:
    kind, at = message.timestamp()
    return at if kind else None


_FIELDS: Mapping[str, Callable[[Message], Any]] = {
    "_topic": lambda message: message.topic(),
    "_partition": lambda message: message.partition(),
    "_offset": lambda message: message.offset(),
    "_timestamp": _timestamp,
    "_key": lambda message: _text(message.key()),
    "_headers": lambda message: {name: _text(content) for name, content in message.headers() or ()},
    _DELETED: lambda _: False,
}
"""Field that a contract may read of a message -> its value."""
