"""A source that is a topic of Debezium's changes, and the process that is killed while it lands: servers, topic, format, lake."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
from kafka_topic import land

from floodmark import BoundedOutOfOrderness, Contract, Debezium, EventTime, Kafka, Source

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": "long"} for name in ("id", "at", "amount", "rev")],
}
_SOURCE = [
    {"name": name, "type": "string"} for name in ("connector", "name", "db", "schema", "table", "sequence", "snapshot")
]
_NUMBERS = [{"name": name, "type": "long"} for name in ("lsn", "ts_ms")]
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ORDER]},
        {"name": "after", "type": ["null", "Order"]},
        {"name": "op", "type": "string"},
        {"name": "source", "type": {"type": "record", "name": "Origin", "fields": [*_SOURCE, *_NUMBERS]}},
    ],
}


class Order(Contract, key="id"):
    """A row of the table."""

    id: int
    at: EventTime
    amount: int
    rev: int


def source(
    servers: str, topic: str, form: Any = "json", *, contract: type[Contract] = Order, read: Any = "changes"
) -> Source:
    """A source of a topic, with tiny units."""
    schema = json.dumps(ENVELOPE) if form == "avro" else None
    connector = Kafka(topic, servers, format=form, schema=schema, envelope=Debezium(read=read), messages_per_unit=7)
    bound = BoundedOutOfOrderness("1 hour")
    return Source("clicks", contract=contract, connector=connector, watermark=bound, max_quarantine_share=1)


def message(envelope: Mapping[str, Any], form: str) -> bytes:
    """A message of a change."""
    if form == "json":
        return json.dumps(envelope).encode()
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ENVELOPE), envelope)
    return out.getvalue()


if __name__ == "__main__":
    land(source(*sys.argv[1:4]), Path(sys.argv[4]))
