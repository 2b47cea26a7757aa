"""Decoding of messages: bytes of Avro, Protobuf or JSON as dictionaries of typed values."""

from __future__ import annotations

import json
from typing import Any

from floodmark.connectors.judging.strictness import exact
from floodmark.connectors.messages.registry import Registry, headed
from floodmark.connectors.unit import Decode, Undecodable
from floodmark.core.errors import SetupError
from floodmark.spec.rows.kafka import Kafka


def decoder(settings: Kafka, where: str, source: str) -> Decode:
    """The decoding of a topic's messages, in a worker.

    Args:
        settings: of the topic.
        where: for errors.
        source: name of the source, for the command to type.

    Raises:
        SetupError: SETUP-110, the library of the format is not installed.
        ConnectorError: CONNECTOR-243, the schema of the settings is none.
    """
    registry = None if settings.registry is None else Registry(settings.registry, where, source)
    try:
        match settings.format:
            case "avro":
                from floodmark.connectors.messages import avro  # noqa: PLC0415 - an extra

                return avro.decoder(settings.schema, registry, where)
            case "protobuf":
                from floodmark.connectors.messages import protobuf  # noqa: PLC0415 - an extra

                return protobuf.decoder(settings.schema, settings.message, registry, where)
            case "json":
                return json_object if registry is None else lambda value: json_object(headed(value)[1])
    except ImportError as error:
        fix = f"Install it where floodmark runs and on workers of a cluster: pip install 'floodmark[kafka,{settings.format}]'"
        raise SetupError(
            where, f"the library of {settings.format}", f"none ({error})", fix, code="SETUP-110"
        ) from error


def json_object(value: bytes) -> dict[str, Any]:
    """The object in a text of JSON, each number with all its digits. Raises Undecodable."""
    try:
        row = json.loads(value, parse_float=exact)
    except (ValueError, RecursionError) as error:
        reason = f"expected a JSON object: {error}"
        raise Undecodable(reason) from error
    if not isinstance(row, dict):
        reason = f"expected a JSON object, got {type(row).__name__}"
        raise Undecodable(reason)
    return row
