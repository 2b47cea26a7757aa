"""A source that is a topic, and the process that is killed while it lands: servers, topic, lake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pydantic import Field

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Kafka, Source
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    from kafka_broker import Broker

BASE, BOUND = 1_700_000_000_000, 5_000
_OF_SOURCE = ("idle_timeout", "watermark", "max_quarantine_share")


class Click(Contract):
    """A message, and where it was."""

    at: EventTime
    number: int
    partition: int = Field(alias="_partition")
    offset: int = Field(alias="_offset")
    key: str | None = Field(alias="_key")
    headers: dict[str, str] = Field(alias="_headers")


class Bare(Contract):
    """A message alone."""

    at: EventTime
    number: int


def source(servers: str, topic: str, contract: type[Contract] = Bare, **settings: Any) -> Source:
    """A source of a topic, with tiny units."""
    own = {name: settings.pop(name) for name in _OF_SOURCE if name in settings}
    return Source(
        "clicks",
        contract=contract,
        connector=Kafka(topic, servers, **{"messages_per_unit": 7, **settings}),
        files_per_commit=5,
        **{"watermark": BoundedOutOfOrderness("5 seconds"), **own},
    )


def message(number: int, at: int = BASE) -> bytes:
    """A message's value."""
    return json.dumps({"at": at, "number": number}).encode()


def land(clicks: Source, lake: Path, **how: Any) -> LandingResult:
    """Land a source that has no predicate."""
    return embedded.land(no_sail, clicks, Lake(str(lake)), **how)


def no_sail() -> Any:
    """Fail: no predicate is to be computed."""
    raise AssertionError("Sail was asked for")


def committed(broker: Broker, topic: str, partitions: int = 1) -> list[Message]:
    """The messages of a topic that a reader of committed ones sees, in the order of each partition."""
    settings = {"group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True}
    broker.await_committed(topic, partitions)
    consumer = Consumer({"bootstrap.servers": broker.servers, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages, ended = list[Message](), set[int]()
    while len(ended) < partitions:
        for message in consumer.consume(1000, timeout=0.3):
            if (error := message.error()) is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    consumer.close()
    return messages


if __name__ == "__main__":
    servers, topic, lake = sys.argv[1:]
    land(source(servers, topic, Click), Path(lake))
