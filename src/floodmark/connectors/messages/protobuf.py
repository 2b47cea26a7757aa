"""Protobuf: messages by descriptors, as dictionaries of typed values; no code has to be generated."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from floodmark.connectors.messages.registry import Registry, UnknownSchema, headed, unknown
from floodmark.connectors.unit import Decode, Undecodable
from floodmark.core.errors import ConnectorError, closest

_KNOWN = (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
"""Files that come with the library."""
_WRAPPERS = frozenset(f"google.protobuf.{name}" for name in wrappers_pb2.DESCRIPTOR.message_types_by_name)
_AS_JSON = frozenset(
    {
        "google.protobuf.Struct",
        "google.protobuf.Value",
        "google.protobuf.ListValue",
        "google.protobuf.Any",
        "google.protobuf.Duration",
    }
)
"""Messages that are written as JSON has them."""
_WORD, _LONGEST = 7, 10


def decoder(schema: str | bytes | None, message: str | None, registry: Registry | None, where: str) -> Decode:
    """The decoding of messages.

    Args:
        schema: a descriptor set, where there is no registry.
        message: full name of the message in it.
        registry: of their schemas.
        where: for errors.

    Raises:
        ConnectorError: CONNECTOR-243, the schema is none.
    """
    if registry is None:
        kind = _of_set(schema if isinstance(schema, bytes) else b"", str(message), where)
        return lambda value: _read(value, kind)
    files, kinds = dict[int, Any](), dict[tuple[int, tuple[int, ...]], Any]()

    def decode(value: bytes) -> dict[str, Any]:
        number, body = headed(value)
        path, body = _path(body)
        if (number, path) not in kinds:
            if number not in files:
                files[number] = _of_registry(registry, number)
            kinds[number, path] = _at(files[number], path)
        return _read(body, kinds[number, path])

    return decode


def _of_set(schema: bytes, message: str, where: str) -> Any:
    """The class of a message in a descriptor set. Raises ConnectorError CONNECTOR-243."""
    expected, fix = (
        "a descriptor set with the message",
        "protoc --include_imports --descriptor_set_out=click.desc click.proto",
    )
    pool = _pool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(schema).file:
            if file.name not in _names():
                pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError as error:
        names = [
            f"{f.package}.{m.name}".lstrip(".")
            for f in descriptor_pb2.FileDescriptorSet.FromString(schema).file
            for m in f.message_type
        ]
        got = f"none named {message}"
        raise ConnectorError(
            where, expected, got, f"{closest(message, names)}Write it by: {fix}", code="CONNECTOR-243"
        ) from error
    except (DecodeError, TypeError) as error:
        raise ConnectorError(where, expected, str(error), f"Write it by: {fix}", code="CONNECTOR-243") from error


def _of_registry(registry: Registry, number: int) -> Any:
    """The file descriptor of a schema. Raises Undecodable."""
    pool, added = _pool(), set(_names())

    def add(name: str, text: str, references: Mapping[str, str]) -> None:
        for other, path in references.items():
            if other not in added:
                reference = registry.of_path(path, protobuf=True)
                add(other, reference.text, reference.references)
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
        file.name = name
        added.add(name)
        pool.Add(file)

    try:
        text = registry.of_id(number, protobuf=True)
        if text.kind != "PROTOBUF":
            reason = f"the schema {number} is one of {text.kind}, not of Protobuf"
            raise Undecodable(reason)
        add(f"{number}.proto", text.text, text.references)
        return pool.FindFileByName(f"{number}.proto")
    except UnknownSchema as error:
        raise unknown(number) from error
    except (DecodeError, TypeError, ValueError, KeyError) as error:
        reason = f"the schema {number} cannot be read: {error}"
        raise Undecodable(reason) from error


def _names() -> Iterator[str]:
    return (module.DESCRIPTOR.name for module in _KNOWN)


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in _KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool


def _path(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """(bytes behind the id of the schema) -> the way to the message among those of its file, and the message's bytes. Raises Undecodable."""
    length, at = _number(body, 0)
    if length == 0:
        return (0,), body[at:]
    path = []
    for _ in range(min(max(length, 0), len(body))):
        index, at = _number(body, at)
        path.append(index)
    return tuple(path), body[at:]


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A number of variable length with its sign in the lowest bit, and where it ends. Raises Undecodable."""
    value = 0
    for shift, byte in enumerate(body[at : at + _LONGEST]):
        value |= (byte & 0x7F) << (_WORD * shift)
        if byte < 1 << _WORD:
            return (value >> 1) ^ -(value & 1), at + shift + 1
    reason = "expected the number of a message in its schema, got bytes that end before it"
    raise Undecodable(reason)


def _at(file: Any, path: tuple[int, ...]) -> Any:
    """The class of a message by the way to it. Raises Undecodable."""
    messages: Any = list(file.message_types_by_name.values())
    message = None
    for index in path:
        if not 0 <= index < len(messages):
            reason = f"expected a message of the schema {file.name.removesuffix('.proto')}, got the number {'.'.join(map(str, path))}"
            raise Undecodable(reason)
        message = messages[index]
        messages = message.nested_types
    return message_factory.GetMessageClass(message)


def _read(body: bytes, kind: Callable[[], Any]) -> dict[str, Any]:
    message = kind()
    try:
        message.ParseFromString(body)
        return _fields(message)
    except (
        DecodeError,
        ValueError,
        OverflowError,
        json_format.Error,
    ) as error:  # the latter: of an instant, or of a message in an Any
        reason = f"expected a message {message.DESCRIPTOR.full_name} of Protobuf: {error}"
        raise Undecodable(reason) from error


def _fields(message: Any) -> dict[str, Any]:
    """The fields by name. A field that may be absent and is so is null; a map is a dictionary, an instant is one."""
    fields = dict[str, Any]()
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            fields[field.name] = {str(key): _value(inner, value[key]) for key in value}
        elif field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
            fields[field.name] = [_value(field, inner) for inner in value]
        elif field.has_presence and not message.HasField(field.name):
            fields[field.name] = None
        else:
            fields[field.name] = _value(field, value)
    return fields


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return value.ToDatetime(tzinfo=UTC)
    if name in _WRAPPERS:
        return value.value
    return json_format.MessageToDict(value) if name in _AS_JSON else _fields(value)
