"""The inbox as topics of Kafka: each line of its files is a message, in the order of the files."""

from __future__ import annotations

import csv
import gzip
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from demo.inbox import FLIGHT_COLUMNS, WEATHER_COLUMNS
from floodmark import Kafka
from floodmark.core.errors import SetupError
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

COLUMNS = {"flights": FLIGHT_COLUMNS, "weather": WEATHER_COLUMNS}
"""Source, and folder of the inbox -> columns of its files."""
_WHOLE = {"flight", "dep_delay", "arr_delay", "air_time", "distance"}
_BROKEN = {"temp", "wind_speed", "precip", "visib", "pressure"}
"""Columns whose values are numbers; JSON says that of each value."""
_SECONDS, _PATIENCE_SECONDS = 60, 10


@contextmanager
def topics(inbox: Path, servers: str) -> Iterator[Mapping[str, str]]:
    """Topics with the rows of an inbox, which are gone afterwards: source -> topic.

    Args:
        inbox: folder of files.
        servers: of Kafka, ``host:port``.

    Raises:
        SetupError: SETUP-170, the client of Kafka is missing; SETUP-171, no broker answers, or it has not taken all messages.
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic
    except ImportError as error:
        fix = "Install it: .venv/bin/pip install -e '.[kafka]'"
        raise SetupError("demo", "the client of Kafka", "none", fix, code="SETUP-170") from error

    admin, mark = AdminClient({"bootstrap.servers": servers}), uuid.uuid4().hex[:8]
    names = {source: f"floodmark-demo-{source}-{mark}" for source in COLUMNS}
    try:
        admin.list_topics(timeout=_PATIENCE_SECONDS)  # where nobody answers, it is known after this
        for made in admin.create_topics(
            [NewTopic(name, 1) for name in names.values()], request_timeout=_SECONDS
        ).values():
            made.result(_SECONDS)
        for source, name in names.items():
            _send(inbox / source, source, name, servers)
    except KafkaException as error:
        raise _unreached(servers, str(error)) from error
    try:
        yield names
    finally:
        admin.delete_topics(list(names.values()))


def from_topic(source: Source, topic: str, servers: str) -> Source:
    """A source that reads a topic instead of its files."""
    spans = {
        name: getattr(source, name) for name in ("future_limit", "idle_timeout")
    }  # in ms, as no author writes them
    lengths: dict[str, Any] = {
        name: None if span is None else timedelta(milliseconds=span) for name, span in spans.items()
    }
    return attrs.evolve(source, connector=Kafka(topic, servers), **lengths)


def messages(folder: Path, source: str) -> Iterator[dict[str, object]]:
    """The rows of a folder of the inbox, file by file."""
    for file in sorted(folder.glob("*.csv*")):
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                yield {name: _value(name, row[name]) for name in COLUMNS[source]}


def _value(name: str, text: str) -> object:
    if not text or (text == "NA" and name in _WHOLE | _BROKEN):
        return None
    return int(float(text)) if name in _WHOLE else float(text) if name in _BROKEN else text


def _send(folder: Path, source: str, topic: str, servers: str) -> None:
    from confluent_kafka import Producer

    refused: list[str] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
    for row in messages(folder, source):
        while True:
            try:
                producer.produce(topic, json.dumps(row).encode(), on_delivery=told)
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    left = producer.flush(_SECONDS)
    if left or refused:
        raise _unreached(servers, refused[0] if refused else f"{left:,} messages that were not taken")


def _unreached(servers: str, got: str) -> SetupError:
    fix = "Start one there, or leave KAFKA out: make demo lands the files themselves."
    return SetupError("demo", f"a broker of Kafka at {servers} that takes the rows", got, fix, code="SETUP-171")
