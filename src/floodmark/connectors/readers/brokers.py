"""Clients of Kafka's brokers, through librdkafka: what they say of a topic, and consumers that are idle for the next range."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from floodmark.core.errors import SetupError
from floodmark.spec.rows.kafka import Kafka
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Env, SecretFile

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

ASK_SECONDS = 10.0
"""Longest wait for an answer about topics and offsets."""
_QUEUED_MESSAGES, _QUEUED_KILOBYTES = 20_000, 32_768
"""Messages that a consumer has at hand before it asks for further ones, and kilobytes that it has at most: what lies behind a range is mostly given up."""
_MOST_IDLE = 32
"""Idle consumers of a process, each with a connection and two threads to each broker; a source that is landed uses up to five at a time."""


class Topic(NamedTuple):
    """A topic as it is now.

    Args:
        id: of the topic; a topic that is deleted and made anew has another one.
        offsets: partition -> (first offset that the broker retains, offset behind the last message that may be read).
    """

    id: str
    offsets: Mapping[int, tuple[int, int]]


def library() -> Any:
    """The library, which only sources in Kafka need.

    Raises:
        SetupError: SETUP-110, it is not installed.
    """
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ImportError as error:
        fix = "Install it where floodmark runs and on workers of a cluster: pip install 'floodmark[kafka]'"
        raise SetupError("Kafka", "the package confluent-kafka", "none", fix, code="SETUP-110") from error
    return confluent_kafka


class Seen:
    """What a client has said last of its connections, which no answer tells: why one has failed, rather than that all of them have."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        """Note what a client says."""
        if not self.last or error.code() != library().KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its name
            self.last = error.str()


@dataclass(slots=True)
class Client:
    """A consumer.

    Args:
        consumer: of the library.
        seen: what it has said of its connections.
        surplus: messages and errors that were taken from it behind a range.
    """

    consumer: Consumer
    seen: Seen
    surplus: list[Message] = field(default_factory=list)


class Start(NamedTuple):
    """Where a range begins."""

    partition: int
    offset: int


@dataclass(slots=True)
class _Ahead:
    """What a reader has fetched ahead.

    Args:
        clients: that fetch already.
        wanted: ranges that are read next: a client that comes to the beginning of one stays assigned.
    """

    clients: dict[Start, Client] = field(default_factory=dict)
    wanted: frozenset[Start] = frozenset()


_idle: dict[tuple[tuple[int, str], str], list[Client]] = defaultdict(list)
"""By settings and topic: a consumer may take a second until it fetches of a topic that is new to it, a new one takes 10 ms."""
_ahead: dict[tuple[tuple[int, str], str, str], _Ahead] = defaultdict(_Ahead)
_admins: dict[tuple[int, str], tuple[AdminClient, Seen]] = {}
_keys: dict[tuple[int, str], tuple[int, str]] = {}
"""(process, settings) -> key of their clients, which depends on the secrets too."""
_lock = threading.Lock()


def client_config(settings: Kafka, seen: Callable[[KafkaError], None]) -> dict[str, Any]:
    """The properties of a client, with the secrets.

    Raises:
        ConnectorError: CONNECTOR-235, a variable or a file of a secret is missing or empty.
    """
    config: dict[str, Any] = {"log_level": 0, "client.id": "floodmark"}
    for name, value in settings.properties.items():
        if isinstance(value, Env | SecretFile):
            where, setting = f"topic '{settings.topic}'", "properties= of Kafka(...)"
            config[name] = secret.needed(value, where=where, name=name, setting=setting)
        else:
            config[name] = value
    return config | {"bootstrap.servers": settings.servers, "error_cb": seen}


def _of_process(settings: Kafka) -> tuple[int, str]:
    """Key of clients: one must not be used by a forked process, nor with other settings or secrets. Those of a secret that has changed since are given up."""
    named = repr((settings.servers, settings.isolation, sorted(settings.properties.items())))
    content = secret.digest_of(settings.properties.values())
    key = os.getpid(), f"{named} {content}"
    with _lock:
        former = _keys.get((key[0], named), key)
        _keys[key[0], named] = key
        given_up = [] if former == key else _given_up(former)
    for client in given_up:
        client.consumer.close()
    return key


def _given_up(key: tuple[int, str]) -> list[Client]:
    """The clients of a key, which nobody gets any more."""
    _admins.pop(key, None)
    ahead = [client for of in [*_ahead] if of[0] == key for client in _ahead.pop(of).clients.values()]
    return [*ahead, *(client for of in [*_idle] if of[0] == key for client in _idle.pop(of))]


def admin_of(settings: Kafka) -> tuple[AdminClient, Seen]:
    """A client that asks about topics, kept for as long as the process."""
    library()
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an extra

    key = _of_process(settings)
    with _lock:
        if key not in _admins:
            seen = Seen()
            _admins[key] = AdminClient(client_config(settings, seen)), seen
        return _admins[key]


def _of_consumer(settings: Kafka, seen: Callable[[KafkaError], None]) -> dict[str, Any]:
    """The properties of a consumer.

    A range is read once all of it is there. The request that the library sends ahead, for what is behind a range, holds up the next range for
    as long as the broker waits for messages, by default half a second.
    """
    own = {
        "group.id": "floodmark",  # the library wants one; nothing is ever committed to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": settings.isolation,
    }
    sizes = {"queued.min.messages": _QUEUED_MESSAGES, "queued.max.messages.kbytes": _QUEUED_KILOBYTES}
    waits = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5}  # the latter once so many are at hand
    return waits | sizes | client_config(settings, seen) | own


@contextmanager
def client_at(settings: Kafka, source: str, start: Start, behind: int) -> Iterator[Client]:
    """A consumer that fetches from the beginning of a range, and that nobody else uses.

    Behind the block the consumer stays assigned if the reader wants the range that follows. Otherwise the consumer is idle for another range, as a
    connection costs more than a small range.

    Args:
        settings: of the topic.
        source: that reads.
        start: of the range.
        behind: offset behind the range.
    """
    ahead = _ahead[_of_process(settings), settings.topic, source]
    client = ahead.clients.pop(start, None) or _assigned(settings, start)
    try:
        yield client
    except BaseException:
        client.consumer.close()
        raise
    following = Start(start.partition, behind)
    if following in ahead.wanted and following not in ahead.clients:
        ahead.clients[following] = client
    else:
        _release(settings, client)


def fetch_ahead(settings: Kafka, source: str, starts: Sequence[Start], wanted: Collection[Start]) -> None:
    """Let consumers fetch ranges that a source reads next, while it reads others.

    Args:
        settings: of the topic.
        source: that reads.
        starts: of ranges that are fetched from now on.
        wanted: all that are read next; what was fetched of others is given up.
    """
    ahead = _ahead[_of_process(settings), settings.topic, source]
    ahead.wanted = frozenset(wanted)
    for start in ahead.clients.keys() - ahead.wanted:
        _release(settings, ahead.clients.pop(start))
    for start in starts:
        if start not in ahead.clients:
            ahead.clients[start] = _assigned(settings, start)


def _assigned(settings: Kafka, start: Start) -> Client:
    """A consumer that fetches from an offset on."""
    kafka, key = library(), (_of_process(settings), settings.topic)
    with _lock:
        client = _idle[key].pop() if _idle[key] else None
    if client is None:
        seen = Seen()
        client = Client(kafka.Consumer(_of_consumer(settings, seen)), seen)
    client.consumer.assign([kafka.TopicPartition(settings.topic, start.partition, start.offset)])
    return client


def _release(settings: Kafka, client: Client) -> None:
    """Make a consumer idle; it is closed where the process has enough idle ones."""
    client.consumer.unassign()
    client.surplus.clear()
    process, topic = _of_process(settings), settings.topic
    with _lock:
        is_kept = sum(len(clients) for (owner, _), clients in _idle.items() if owner[0] == process[0]) < _MOST_IDLE
        if is_kept:
            _idle[process, topic].append(client)
    if not is_kept:
        client.consumer.close()


def ask(admin: AdminClient, settings: Kafka, since: int | None = None) -> Topic:
    """What the brokers say of a topic. Raises KafkaException.

    Args:
        admin: a client.
        settings: of the topic.
        since: ms; the first offsets are then those of the first messages of that instant or later, -1 where there is none.
    """
    from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition  # noqa: PLC0415 - an extra
    from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415 - as above

    described = admin.describe_topics(TopicCollection([settings.topic]), request_timeout=ASK_SECONDS)
    topic = described[settings.topic].result()
    partitions = [TopicPartition(settings.topic, partition.id) for partition in topic.partitions]
    committed = settings.isolation == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def offsets(spec: OffsetSpec) -> dict[int, int]:
        asked = dict.fromkeys(partitions, spec)
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=ASK_SECONDS)
        return {partition.partition: answer.result().offset for partition, answer in answers.items()}

    first = offsets(OffsetSpec.earliest() if since is None else OffsetSpec.for_timestamp(since))
    end = offsets(OffsetSpec.latest())
    return Topic(str(topic.topic_id), {number: (first[number], end[number]) for number in first})
