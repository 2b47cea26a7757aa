"""Reader of a topic of Kafka: ranges of offsets of each partition, through librdkafka, without a consumer group.

The positions are in the landing commits, so the broker has nothing to say about what has landed. Offsets may have gaps, where a topic is
compacted or has transactions: a range is complete once a message behind it, or the end of its partition, was seen; messages are never counted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from floodmark.connectors.entries import TOGETHER_BYTES, TOGETHER_ROWS, Entry, Form, Record
from floodmark.connectors.messages.debezium import Reached
from floodmark.connectors.messages.records import Messages
from floodmark.connectors.readers.brokers import (
    ASK_SECONDS,
    Client,
    Start,
    Topic,
    admin_of,
    ask,
    client_at,
    fetch_ahead,
    library,
)
from floodmark.connectors.unit import NOWHERE, Gone, Moved, Pending, Reader, Unit
from floodmark.core.errors import ConnectorError, closest
from floodmark.core.patience import waits
from floodmark.core.time import parse_instant
from floodmark.lake.table.commits import Landed
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.kafka import Kafka
from floodmark.spec.rows.source import Source
from floodmark.spec.values import secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_POLL_SECONDS = 0.1
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0
_FIRST_MESSAGES = 100
"""Messages that are taken over at once, before their size is known."""
_AHEAD = 4
"""Units that are fetched while one is read."""
_GONE = "gone "
"""Before the offsets in the name of a unit whose messages retention has removed."""


class _Position(NamedTuple):
    """How far a partition has landed.

    Args:
        offset: of the next message.
        topic: id of the topic.
        reached: of changes: how far their log has been read, as ``Reached`` writes it.
    """

    offset: int
    topic: str
    reached: str = ""

    def __str__(self) -> str:
        """For ``from_text``."""
        return "@".join([str(self.offset), self.topic, *([self.reached] if self.reached else [])])

    @staticmethod
    def from_text(text: str) -> _Position:
        """From its text."""
        offset, topic, *reached = text.split("@", 2)
        return _Position(int(offset), topic, *reached)


@dataclass(frozen=True, slots=True)
class KafkaReader(Reader):
    """Reads a topic.

    Args:
        settings: as the author wrote them.
        source: name of the source, for messages.
        contract: of its rows.
    """

    settings: Kafka
    source: str
    contract: type[Contract]

    def pending(
        self,
        landed: Mapping[str, Landed],  # noqa: ARG002 - the positions say it
        positions: Mapping[str, str] = NOWHERE,
    ) -> Pending:
        """The messages behind the positions, as units of each partition in turn; a partition without a position begins at its first message.

        Raises:
            ConnectorError: CONNECTOR-230 no broker answers, 231 no such topic, 232 messages are gone that have not landed, 233 the topic
                was deleted and made anew, 236 a partition ends before what has landed.
        """
        topic = self._look_behind(positions)
        latest = self.settings.start == "latest" and not positions
        ranges, begun, behind = list[tuple[int, int, Unit]](), dict[str, str](), dict[str, int]()
        limits, complete = self._limits(topic), self.settings.end is not None
        for partition, (first, end) in sorted(topic.offsets.items()):
            text = positions.get(self._key(partition))
            if text is None:
                position = _Position(end if latest else first, topic.id)
                begun[self._key(partition)] = str(position)
            else:
                position = _Position.from_text(text)
                if position.topic != topic.id:
                    raise self._made_anew(partition, position.offset, end)
            limit, is_last = limits.get(partition, (end, False))
            until = min(end, limit)
            behind[self._key(partition)] = max(0, until - position.offset)
            complete = complete and is_last and position.offset >= limit
            if position.offset < min(first, until):
                ranges.append((0, partition, self._gone(partition, position, first)))
                position = position._replace(offset=first)
            for number, unit in enumerate(self._units(partition, position, until), 1):
                ranges.append((number, partition, unit))
        return Pending(
            [unit for _, _, unit in sorted(ranges, key=lambda ranged: ranged[:2])], (), begun, behind, complete
        )

    def _limits(self, topic: Topic) -> Mapping[int, tuple[int, bool]]:
        """Partition -> where its reading ends by ``end=``, and whether that is final. Partitions that are not named have nothing to read.

        An instant that has not come yet is where messages of it or later begin, if there are any; else the reading has no end yet.
        """
        end = self.settings.end
        if end is None:
            return {}
        if isinstance(end, Mapping):
            return {partition: (end.get(partition, 0), True) for partition in topic.offsets}
        at, now = parse_instant(end, self.where), time.time_ns() // 1_000_000
        begins = self._look(at).offsets
        return {
            partition: (begins[partition][0], True) if begins[partition][0] >= 0 else (last, now >= at)
            for partition, (_, last) in topic.offsets.items()
        }

    def _units(self, partition: int, position: _Position, end: int) -> Iterator[Unit]:
        """The units of a partition behind a position. Of changes the first one alone, as reading the next one needs what that one has reached."""
        for low in range(position.offset, end, self.settings.messages_per_unit):
            high = min(low + self.settings.messages_per_unit, end)
            name = f"{self._key(partition)}/{low}-{high - 1}"
            yield Unit(name=name, position=str(position._replace(offset=high)), rows=high - low)
            if self.settings.envelope is not None:
                return

    def check_there(self) -> None:
        """As ``Reader``: the topic exists."""
        self._look()

    def open(self, unit: Unit) -> _Range:
        """The messages of a unit."""
        partition, offsets = self._parts(unit)
        first, last = (int(offset) for offset in offsets.removeprefix(_GONE).split("-"))
        behind = _Position.from_text(unit.position)
        return _Range(self, partition, first, last, behind, gone=offsets.startswith(_GONE))

    def ahead(self, units: Sequence[Unit]) -> None:
        """As ``Reader``: the next range of each of some partitions; a partition that is being read goes on by itself."""
        starts, wanted = dict[int, Start](), list[Start]()
        for unit in units[: 1 + _AHEAD]:
            partition, offsets = self._parts(unit)
            if not offsets.startswith(_GONE):
                start = Start(partition, int(offsets.partition("-")[0]))
                starts.setdefault(partition, start)
                wanted.append(start)
        fetch_ahead(self.settings, self.source, [*starts.values()], wanted)

    def _parts(self, unit: Unit) -> tuple[int, str]:
        """The partition of a unit, and its offsets as its name has them."""
        partition, _, offsets = unit.name.removeprefix(f"{self.settings.topic}/").partition("/")
        return int(partition), offsets

    def again(self) -> Callable[[bytes], Sequence[Record]]:
        """As ``Reader``."""
        return Messages(self.settings, self.contract, self.where, self.source).again

    @property
    def where(self) -> str:
        """For errors."""
        return f"source '{self.source}', topic '{self.settings.topic}'"

    def _key(self, partition: int) -> str:
        return f"{self.settings.topic}/{partition}"

    def _gone(self, partition: int, position: _Position, first: int) -> Unit:
        """A unit for messages that retention has removed before they landed.

        Raises:
            ConnectorError: CONNECTOR-232, ``on_gap`` is ``"stop"``.
        """
        start = position.offset
        if self.settings.on_gap == "stop":
            got = f"{first - start:,} offsets of partition {partition} removed by the topic's retention: {start} to {first - 1}"
            fix = (
                f'To go on with what is kept: Kafka(..., on_gap="continue"), then floodmark land {self.source}; the gap then has an entry in the '
                "quarantine. To keep messages for longer: raise retention.ms of the topic."
            )
            raise ConnectorError(self.where, f"messages from offset {start} on", got, fix, code="CONNECTOR-232")
        return Unit(
            name=f"{self._key(partition)}/{_GONE}{start}-{first - 1}",
            position=str(position._replace(offset=first)),
            rows=first - start,
        )

    def _made_anew(self, partition: int, start: int, end: int) -> ConnectorError:
        got = f"another topic of this name, whose partition {partition} ends at offset {end}; {start} have landed"
        fix = (
            "It was deleted and made anew. Its messages are those of another source: land them under a new source name, with a union of both for "
            "their readers."
        )
        return ConnectorError(self.where, "the topic that has landed so far", got, fix, code="CONNECTOR-233")

    def _look_behind(self, positions: Mapping[str, str]) -> Topic:
        """The topic once its partitions end behind what has landed: a broker that was killed answers with an earlier end until it has read its own log.

        Raises:
            ConnectorError: as ``_look``; CONNECTOR-236, an end stays before what has landed.
        """
        pause, until = _FIRST_PAUSE_SECONDS, time.monotonic() + ASK_SECONDS
        while True:
            topic = self._look()
            short = next(self._short(topic, positions), "")
            if not short:
                return topic
            if time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
                continue
            if not waits(
                f"the brokers {self.settings.servers} have lost messages that have landed, or are still starting: {short}",
                pause,
            ):
                fix = (
                    f"Wait until the brokers have started, and land again: floodmark land {self.source}. If they have lost messages, what is written now "
                    "gets offsets that have landed before: land the topic under a new source name."
                )
                expected = "partitions that end behind what has landed"
                raise ConnectorError(self.where, expected, short, fix, code="CONNECTOR-236")
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _short(self, topic: Topic, positions: Mapping[str, str]) -> Iterator[str]:
        """For people: the partitions of the topic that end before what has landed of them."""
        for partition, (_, end) in sorted(topic.offsets.items()):
            if (text := positions.get(self._key(partition))) is not None:
                position = _Position.from_text(text)
                if position.topic == topic.id and position.offset > end:
                    yield f"partition {partition} ends at offset {end}, and {position.offset} have landed"

    def _look(self, since: int | None = None) -> Topic:
        """The topic now; with ``since``, in the place of the first offsets those of the first messages of that instant, ms. Waits for a broker where the landing is one that goes on.

        Raises:
            ConnectorError: CONNECTOR-230, 231.
        """
        kafka, pause = library(), _FIRST_PAUSE_SECONDS
        unknown = {kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, kafka.KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001 - its name
        electing = {kafka.KafkaError.LEADER_NOT_AVAILABLE, kafka.KafkaError.NOT_LEADER_FOR_PARTITION}
        until = time.monotonic() + ASK_SECONDS
        while True:
            admin, seen = admin_of(self.settings)  # another one once a secret has changed
            try:
                return ask(admin, self.settings, since)
            except kafka.KafkaException as error:
                code, soon = error.args[0].code(), time.monotonic() < until
                if code in unknown:
                    topics = admin.list_topics(timeout=ASK_SECONDS).topics
                    if self.settings.topic not in topics or not soon:
                        raise self._no_topic(topics) from error
                admin.poll(0)  # tells what it has seen
                why = seen.last or str(error.args[0].str())
                if code in {*electing, *unknown} and soon:  # is over soon, as for a topic that is new
                    time.sleep(_POLL_SECONDS)
                    continue
            self.wait(why, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def wait(self, why: str, seconds: float) -> None:
        """Wait for the brokers, where the landing is one that goes on.

        Raises:
            ConnectorError: CONNECTOR-230, it is not.
        """
        if not waits(f"the brokers {self.settings.servers} do not answer ({why})", seconds):
            raise _no_answer(self.where, self.settings, why)

    def _no_topic(self, topics: Iterable[str]) -> ConnectorError:
        others = [name for name in topics if not name.startswith("__") and name != self.settings.topic]
        fix = f"{closest(self.settings.topic, others)}Make the topic, or correct its name in Kafka(...)."
        got = f"none on {self.settings.servers}"
        return ConnectorError(self.where, "a topic of this name", got, fix, code="CONNECTOR-231")


def reader(settings: Kafka, source: Source) -> KafkaReader:
    """The reader of a source that is a topic."""
    return KafkaReader(settings, source.name, source.contract)


def _no_answer(where: str, settings: Kafka, why: str) -> ConnectorError:
    """The error for brokers that do not answer."""
    fix = (
        "Start the broker, or correct servers= and properties= of Kafka(...): a listener with TLS or SASL needs security.protocol there. What has "
        "landed stays; the landing goes on where it was."
    )
    return ConnectorError(where, f"an answer of {settings.servers}", f"none: {why}", fix, code="CONNECTOR-230")


@dataclass(slots=True)
class _Range:
    """Consecutive offsets of a partition.

    Args:
        reader: of the topic.
        partition: number of the partition.
        first: offset.
        last: offset; there may be no message of that offset.
        behind: position behind the messages, but for what their changes reach.
        gone: whether retention has removed the messages.
    """

    reader: KafkaReader
    partition: int
    first: int
    last: int
    behind: _Position
    gone: bool
    read: Messages = field(init=False)
    form: Form = field(init=False)
    replay: str | None = field(init=False)
    left_out: None = field(default=None, init=False)
    default_nulls: Mapping[str, int] = field(default_factory=dict, init=False)
    _digest: Any = field(default_factory=hashlib.blake2b, init=False)

    def __post_init__(self) -> None:
        reader = self.reader
        reached = None if reader.settings.envelope is None else Reached.from_text(self.behind.reached)
        self.read = Messages(reader.settings, reader.contract, reader.where, reader.source, reached)
        self.form, self.replay = self.read.form, self.read.replay

    def records(self) -> Iterator[Entry]:
        """The records of the messages, whose position is the offset; of changes in the place of the table's row, twice the offset.

        Raises:
            Gone: retention has removed the messages.
            Moved: CONNECTOR-234, the broker no longer has the range; 237, the partition has become shorter since the look at it.
            ConnectorError: CONNECTOR-230 no broker answers, 234 the broker refuses the range; 240 to 242, the schema registry.
        """
        if self.gone:
            count = self.last - self.first + 1
            why = f"the offsets {self.first} to {self.last} were removed by the topic's retention before they landed: {count:,} of partition {self.partition}"
            raise Gone(why)
        start = Start(self.partition, self.first)
        with client_at(self.reader.settings, self.reader.source, start, self.last + 1) as client:
            for messages in self._messages(client):
                values = [message.value() for message in messages]
                self._digest.update(b"".join([value or b"" for value in values]))
                yield from self.read.entries(messages, values)

    @property
    def position(self) -> str:
        """As ``Content``: with what the changes have reached."""
        return "" if self.read.reached is None else str(self.behind._replace(reached=self.read.reached.as_text()))

    def fingerprint(self) -> tuple[int, str]:
        return 0, self._digest.hexdigest()

    def _messages(self, client: Client) -> Iterator[list[Message]]:
        """The messages of the range, those that are taken over at once together."""
        consumer, seen = client.consumer, client.seen
        heard, most, left = time.monotonic(), _FIRST_MESSAGES, self.last - self.first + 1
        secrets = secret.digest_of(self.reader.settings.properties.values())
        while True:
            messages = client.surplus or consumer.consume(min(most, left), _POLL_SECONDS)  # waits for all of them
            within, is_over, client.surplus = self._within(messages)
            if within:
                yield within
                left = self.last - (within[-1].offset() or 0)
                size = sum(len(message.value() or b"") for message in within[:_FIRST_MESSAGES]) // min(
                    len(within), _FIRST_MESSAGES
                )
                most = max(1, min(TOGETHER_ROWS, TOGETHER_BYTES // max(1, size), 8 * most))
            if is_over:
                return
            now = time.monotonic()
            if messages:
                heard, seen.last = now, ""
            elif now - heard > ASK_SECONDS:
                self.reader.wait(seen.last or "no message", _LONGEST_PAUSE_SECONDS)
                if secret.digest_of(self.reader.settings.properties.values()) != secrets:
                    got = "a consumer whose secret was changed meanwhile"
                    raise Moved(self.reader.where, self._expected, got, self._fix, code="CONNECTOR-234")

    def _within(self, messages: list[Message]) -> tuple[list[Message], bool, list[Message]]:
        """Of messages and errors those messages that are in the range, whether nothing of the range comes behind them, and what comes behind the range.

        Raises:
            Moved: as ``records``.
            ConnectorError: CONNECTOR-234.
        """
        if messages and not any(map(methodcaller("error"), messages)) and (messages[-1].offset() or 0) < self.last:
            return messages, False, []
        within: list[Message] = []
        for number, message in enumerate(messages):
            error: KafkaError | None = message.error()
            if error is None:
                left = self.last - (message.offset() or 0)
                if left < 0:
                    return within, True, messages[number:]
                within.append(message)
                if left == 0:
                    return within, True, messages[number + 1 :]
            elif self._is_end(message, error):  # which the client tells once: ranges behind this one may be empty, too
                return within, True, messages[number:]
        return within, False, []

    def _is_end(self, message: Message, error: KafkaError) -> bool:
        """Whether an error says that the partition has no more messages; False for one that passes.

        Raises:
            Moved: as ``records``: the partition has become shorter where its topic was made anew, or its broker has lost messages.
            ConnectorError: CONNECTOR-234.
        """
        kafka = library()
        passing = {kafka.KafkaError._TRANSPORT, kafka.KafkaError._ALL_BROKERS_DOWN, kafka.KafkaError._TIMED_OUT}  # noqa: SLF001
        if error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            if message.offset() <= self.last:
                got = f"a partition that ends at offset {message.offset()}"
                raise Moved(self.reader.where, self._expected, got, self._fix, code="CONNECTOR-237")
            return True
        if error.code() not in passing and not error.retriable():
            raise self._refused(error)
        return False

    @property
    def _expected(self) -> str:
        return f"the messages {self.first} to {self.last} of partition {self.partition}"

    @property
    def _fix(self) -> str:
        return f"Land again, which looks at the topic anew: floodmark land {self.reader.source}"

    def _refused(self, error: KafkaError) -> ConnectorError:
        """The error for a range that the broker does not give: Moved where a new look at the topic tells what became of the range."""
        kafka, got = library(), f"{error.name()}: {error.str()}"
        moved = {
            kafka.KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its name
            kafka.KafkaError.OFFSET_OUT_OF_RANGE,
            kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
            kafka.KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
            kafka.KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
        }
        kind = Moved if error.code() in moved else ConnectorError
        return kind(self.reader.where, self._expected, got, self._fix, code="CONNECTOR-234")
