"""Avro: messages with their writers' schemas, as dictionaries of typed values; the contract chooses among their fields."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast
from uuid import UUID

import fastavro
from fastavro.schema import SchemaParseException

from floodmark.connectors.messages.registry import Registry, UnknownSchema, headed, unknown
from floodmark.connectors.unit import Decode, Undecodable, Unreadable
from floodmark.core.errors import ConnectorError

_TIMES = {
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "org.apache.kafka.connect.data.Date": "date",
}
"""``connect.name`` of a number in a schema of Kafka Connect -> the logical type of Avro that says the same."""


def decoder(schema: str | bytes | None, registry: Registry | None, where: str) -> Decode:
    """The decoding of messages.

    Args:
        schema: of all messages, where there is no registry.
        registry: of their schemas.
        where: for errors.

    Raises:
        ConnectorError: CONNECTOR-243, the schema is none.
    """
    if registry is None:
        try:
            parsed = _parsed(str(schema), {})
        except Undecodable as error:
            fix = "Correct the text that is given as Kafka(schema=...)."
            raise ConnectorError(where, "a schema of Avro", str(error), fix, code="CONNECTOR-243") from error
        return lambda value: _read(value, parsed)
    schemas = dict[int, Any]()

    def decode(value: bytes) -> dict[str, Any]:
        number, body = headed(value)
        if number not in schemas:
            schemas[number] = _of_registry(registry, number)
        return _read(body, schemas[number])

    return decode


def _of_registry(registry: Registry, number: int) -> Any:
    """A schema with those that it refers to. Raises Undecodable."""
    names = dict[str, Any]()

    def refer(references: Mapping[str, str]) -> None:
        for path in references.values():
            text = registry.of_path(path)
            refer(text.references)
            _parsed(text.text, names)

    try:
        text = registry.of_id(number)
        refer(text.references)
    except UnknownSchema as error:
        raise unknown(number) from error
    if text.kind != "AVRO":
        reason = f"the schema {number} is one of {text.kind}, not of Avro"
        raise Undecodable(reason)
    return _parsed(text.text, names)


def _parsed(text: str, names: dict[str, Any]) -> Any:
    """A schema in the library's form. Raises Undecodable."""
    try:
        return fastavro.parse_schema(_timed(json.loads(text)), named_schemas=names)
    except (ValueError, TypeError, KeyError, SchemaParseException) as error:
        reason = f"the schema cannot be read: {type(error).__name__}: {error}"
        raise Undecodable(reason) from error


def _timed(schema: Any) -> Any:
    """A schema in which numbers that Kafka Connect names as times have the logical type of a time."""
    if isinstance(schema, list):
        return [_timed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {
        name: _timed(inner) if name in {"type", "items", "values", "fields"} else inner
        for name, inner in schema.items()
    }
    logical = _TIMES.get(str(schema.get("connect.name")))
    return parts | {"logicalType": logical} if logical and "logicalType" not in schema else parts


def _read(body: bytes, schema: Any) -> dict[str, Any]:
    stream = io.BytesIO(body)
    try:
        row = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # the library raises whatever broken bytes lead to
        reason = f"expected a record of Avro: {type(error).__name__}: {error}"
        raise Undecodable(reason) from error
    if not isinstance(row, dict):
        reason = f"expected a record of Avro, got {type(row).__name__}"
        raise Undecodable(reason)
    if stream.tell() != len(body):
        reason = (
            f"expected a record of Avro, got one of {stream.tell()} bytes with {len(body) - stream.tell()} behind it"
        )
        raise Undecodable(reason)
    return cast("dict[str, Any]", plain(row))


def file_rows(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The rows of a file of Avro, an object container file.

    Raises:
        Unreadable: the file is broken.
    """
    try:
        for row in fastavro.reader(file):
            yield plain(row) if isinstance(row, dict) else {"value": plain(row)}
    except Exception as error:  # the library raises whatever broken bytes lead to
        reason = f"{type(error).__name__}: {error}"
        raise Unreadable(reason) from error


def plain(value: Any) -> Any:
    """A value whose UUIDs are texts, as contracts have them."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, UUID) else value
