"""Kafka: changes as messages, in a transaction in which the position is committed too."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

from floodmark.connectors.readers.brokers import Seen, client_config, library
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.deliveries import claims
from floodmark.deliveries.leftover import Leftover
from floodmark.deliveries.sink import Away, Changes, Documents, Sink
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_kafka import ToKafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

_ANSWER_SECONDS, _COMMIT_SECONDS = 10.0, 60.0
"""Longest waits for an answer, and for the end of a transaction, whose messages leave then."""
_SPARE_SECONDS = 5.0
"""Time that a call of the library has beyond the time it is given."""
_TOGETHER_SECONDS = 0.5
_ROOM_SECONDS = 0.5
"""Longest wait for room among the messages that the library holds."""
_LINGER_MILLISECONDS = 20
"""Wait for further messages of a request, unless the settings say another one; the end of a delivery does not wait."""
_IN_FLIGHT = 1
"""Requests to a broker at a time. With more, a leader that is new to a partition can refuse the first request and take the second one, whose
sequence it has nothing to compare with; librdkafka then confirms the messages of both, also within a transaction (KAFKA-15591)."""
_OUTPUT = "floodmark-output"
"""Header with the table of the output: others may write to the topic as well."""
_PARTITION = 0
"""Of the topic, under which the group's position is committed."""


@dataclass(slots=True)
class KafkaSink(Sink):
    """A topic.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    forgets: ClassVar[bool] = True  # brokers keep offsets of a group without members for a week, by default

    settings: ToKafka
    route: Route
    _producer: Producer | None = field(default=None, init=False)
    _consumer: Consumer | None = field(default=None, init=False)
    _seen: Seen = field(default_factory=Seen, init=False)
    _failed: list[KafkaError] = field(default_factory=list, init=False)
    _begun: float = field(default=math.inf, init=False)
    """When the last transaction was begun, s of the monotonic clock."""

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # settings decide
        """With transactions the brokers have the position."""
        return self.settings.transactions

    @property
    def commit_by_commit(self) -> bool:  # type: ignore[override]  # as above
        """Without transactions, so that a message that is sent again has the headers that it had."""
        return not self.settings.transactions

    def prepare(self) -> None:
        """Connect, and look for the topic."""
        kafka = library()
        self.close()
        self._seen = Seen()
        common, group = client_config(self.settings.connection, self._seen), self._of_group("read_committed")
        own: dict[str, Any] = {
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": _IN_FLIGHT,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
        }
        if self.settings.transactions:
            milliseconds = self.settings.transaction_seconds * 1000
            own |= {"transactional.id": self._group, "transaction.timeout.ms": milliseconds}
        self._consumer, self._producer = (
            kafka.Consumer(common | group | {"auto.offset.reset": "earliest", "enable.partition.eof": True}),
            kafka.Producer({"linger.ms": _LINGER_MILLISECONDS} | common | own),
        )
        with self._reaching():
            topics = self._producer.list_topics(self.settings.topic, timeout=_ANSWER_SECONDS).topics
        error = topics[self.settings.topic].error
        if error is not None:
            fix = f"Make it: kafka-topics --create --topic {self.settings.topic}; with cleanup.policy=compact it has the last value of each result."
            raise ConnectorError(
                self._where, f"the topic '{self.settings.topic}'", error.str(), fix, code="DELIVERY-009"
            )

    def claim(self, lake: str) -> None:
        """With transactions, fence an earlier process of this delivery and end what it left open; a process of another lake goes on, and this one is refused.

        Raises:
            LifecycleError: LIFECYCLE-241, another lake delivers there.
        """
        if not self.settings.transactions:
            return
        assert self._producer is not None
        own = client_config(self.settings.connection, self._seen)
        # the transaction that the other process may have open holds up the answer to a reader of committed messages
        looking = library().Consumer(own | self._of_group("read_uncommitted"))
        try:
            at = self._committed(looking)
        finally:
            looking.close()
        if at is not None and at.lake not in {"", lake}:
            raise claims.other_lake(self.route.name, lake, at.lake, self.takeover)
        with self._reaching():
            self._answered(self._producer.init_transactions, _ANSWER_SECONDS)

    def position(self) -> Delivered | None:
        """As it was committed with the last transaction; where it was too long ago for the brokers, as the lake says."""
        assert self._consumer is not None
        return self._committed(self._consumer)

    def _committed(self, consumer: Consumer) -> Delivered | None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

        with self._reaching():
            asked = [TopicPartition(self.settings.topic, _PARTITION)]
            (committed,) = consumer.committed(asked, timeout=_ANSWER_SECONDS)
        return Delivered.from_json(committed.metadata) if committed.metadata else None

    def _of_group(self, isolation: str) -> dict[str, Any]:
        """Properties of a consumer that asks for the position."""
        return {"group.id": self._group, "enable.auto.commit": False, "isolation.level": isolation}

    @property
    def takeover(self) -> str:
        """As ``Sink``."""
        servers = self.settings.servers
        return f"kafka-consumer-groups --bootstrap-server {servers} --delete --group {self._group}, which delivers all anew"

    def deliver(self, changes: Changes, number: int) -> None:
        """Send each change, and the position with them."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

        assert self._producer is not None
        assert self._consumer is not None
        self._failed = []
        gone = self._gone() if changes.whole and changes.before is not None else None
        headers = self._headers(changes.position.version, number)
        with self._reaching(sending=True):
            if self.settings.transactions:
                self._begun = time.monotonic()
                self._producer.begin_transaction()
            for keys, values in changes.documents if gone is None else gone.without(changes.documents):
                self._send(zip(keys, values, strict=True), headers)
                crash.point("delivery.after_batch")
            if gone is not None:
                self._send(((key, None) for key in gone.left()), headers)
            self._flush()
            crash.point("delivery.before_position")
            if self.settings.transactions:
                offset = TopicPartition(self.settings.topic, _PARTITION, number, changes.position.to_json())
                group = self._consumer.consumer_group_metadata()
                send = partial(self._producer.send_offsets_to_transaction, [offset], group)
                self._answered(send, _ANSWER_SECONDS)
                crash.point("delivery.before_commit")
                self._answered(self._producer.commit_transaction, _COMMIT_SECONDS)
        crash.point("delivery.after_commit")

    def close(self) -> None:
        """Close the clients."""
        if self._consumer is not None:
            self._consumer.close()
        if self._producer is not None:
            self._producer.purge()  # what was not sent is sent by the next one
            # one that is only let go may live on in an error, and fence the next one once the brokers answer
            ending = Thread(target=_end, args=(self._producer,), daemon=True, name="kafka-end")
            ending.start()
            ending.join(_TOGETHER_SECONDS)
        self._consumer = self._producer = None

    # ---- messages

    def _headers(self, version: int, number: int) -> list[tuple[str, str]]:
        """Of the messages of a delivery.

        Args:
            version: of the output's table, whose changes are delivered.
            number: of the delivery.
        """
        return [
            (_OUTPUT, self.route.output.table),
            ("floodmark-commit", f"{version}"),
            ("floodmark-number", f"{number}"),
        ]

    def _send(self, messages: Iterable[tuple[bytes, bytes | None]], headers: list[tuple[str, str]]) -> None:
        """Hand messages, keys and values, to the library."""
        assert self._producer is not None
        produce, topic, sent = self._producer.produce, self.settings.topic, self._sent
        for key, value in messages:
            while True:
                try:
                    produce(topic, value, key, headers=headers, on_delivery=sent)
                except BufferError:  # wait for messages to leave
                    self._producer.poll(_ROOM_SECONDS)
                else:
                    break
        self._producer.poll(0)

    def _flush(self) -> None:
        """Wait until the brokers have all messages: calls that end a transaction are silent for as long as it may take."""
        assert self._producer is not None
        waiting, heard = len(self._producer), time.monotonic()
        while left := self._producer.flush(0.5):
            if left < waiting:
                waiting, heard = left, time.monotonic()
            elif time.monotonic() - heard > _ANSWER_SECONDS:
                raise self._away(self._seen.last or "no answer")
        if self._failed:
            raise library().KafkaException(self._failed[0])

    def _sent(self, error: Any, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _answered(self, call: Callable[[float], object], seconds: float) -> None:
        """Make a call about a transaction. Where the brokers end meanwhile, the library may wait for ever, whatever time the call is given.

        Args:
            call: of the producer, with the longest wait for an answer, seconds.
            seconds: that wait.

        Raises:
            Away: DELIVERY-001, the call has not ended. It is left alone with its producer, which the next one fences.
        """
        ended = SimpleQueue[BaseException | None]()

        def make() -> None:
            try:
                call(seconds)
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
                ended.put(error)
            else:
                ended.put(None)

        Thread(target=make, daemon=True, name="kafka").start()
        try:
            error = ended.get(timeout=seconds + _SPARE_SECONDS)
        except Empty:
            self._producer = None
            raise self._away(self._seen.last or "no answer") from None
        if error is not None:
            raise error

    def _gone(self) -> Leftover[Documents]:
        """The keys in the topic whose last message is of this output and has a value: those that are not among all results are to be taken back."""
        from confluent_kafka import KafkaError, TopicPartition  # noqa: PLC0415 - an extra

        assert self._consumer is not None
        keys, topic = Leftover[Documents](lambda batch: batch.keys), self.settings.topic
        with self._reaching():
            partitions = self._consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic].partitions
            self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            open_partitions = set(partitions)
            heard = time.monotonic()
            while open_partitions:
                messages = self._consumer.consume(
                    5000, timeout=_TOGETHER_SECONDS
                )  # returns after this time, or with so many
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _ANSWER_SECONDS:
                    raise self._away(self._seen.last or "no answer")
                for message in messages:
                    if (error := message.error()) is None:
                        own = (_OUTPUT, self.route.output.table.encode()) in (message.headers() or [])
                        keys.put(message.key(), alive=own and message.value() is not None)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name in the library
                        open_partitions.discard(message.partition())
                    else:
                        raise self._away(error.str())
            self._consumer.unassign()
        return keys

    # ---- the brokers

    @property
    def _group(self) -> str:
        """The transactional id, and the group in which the position is committed."""
        return f"floodmark-delivery-{self.route.name}"

    @property
    def _where(self) -> str:
        return f"delivery '{self.route.name}'"

    def _away(self, why: str) -> Away:
        fix = "It goes on once the brokers answer."
        return Away(self._where, "an answer of the brokers", why, fix, code="DELIVERY-001")

    def _too_long(self) -> ConnectorError:
        seconds = self.settings.transaction_seconds
        fix = (
            "The brokers have ended its transaction, and no reader of committed messages sees any of it. Give it longer, ToKafka(..., transaction_seconds=...), and the "
            "brokers, whose transaction.max.timeout.ms allows 900 seconds by default; or send each message by itself, transactions=False. Then restart the "
            f"delivery: floodmark restart {self.route.name}"
        )
        expected, got = f"a delivery within {seconds} seconds, the time of a transaction", "one that takes longer"
        return ConnectorError(self._where, expected, got, fix, code="DELIVERY-029")

    @contextmanager
    def _reaching(self, *, sending: bool = False) -> Iterator[None]:
        """Errors of the library as what a delivery does about them. What was begun is given up."""
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an extra

        try:
            yield
        except (KafkaException, SystemError) as raised:
            cause = (
                raised if isinstance(raised, KafkaException) else raised.__cause__
            )  # raised by the library inside of a callback
            if not isinstance(cause, KafkaException):
                raise
            error = cause.args[0]
            if self._producer is not None:
                try:
                    self._producer.poll(0)  # tells what it has seen of its connections
                except KafkaException as told:  # what is worse than what it has said before
                    error = told.args[0]
            if sending and self._producer is not None and not error.fatal():
                with suppress(KafkaException, Away):
                    self._answered(self._producer.abort_transaction, _ANSWER_SECONDS)
            fenced = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001 - as above
            if error.code() in fenced or "fenced" in self._seen.last:
                if sending and time.monotonic() - self._begun >= self.settings.transaction_seconds:
                    raise self._too_long() from raised
                fix = "Only one process may run it: stop the other one, or give this delivery a name of its own, deliver=[ToKafka(..., name=...)]."
                raise LifecycleError(
                    self._where, "to be the only one", "another process of it", fix, code="LIFECYCLE-240"
                ) from raised
            if error.code() in _REFUSED:
                fix = f"Mend it, and restart the delivery: floodmark restart {self.route.name}"
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    fix = (
                        'Let larger ones through, properties={"message.max.bytes": 40_000_000} of ToKafka and max.message.bytes of the topic, or make '
                        f"results smaller in the operator, and restart the delivery: floodmark restart {self.route.name}"
                    )
                raise ConnectorError(
                    self._where, "brokers that take it", error.str(), fix, code="DELIVERY-008"
                ) from raised
            raise self._away(f"{error.str()}{f' ({self._seen.last})' if self._seen.last else ''}") from raised


def _end(producer: Producer) -> None:
    """End a producer. Where brokers are away, this may wait for them."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - as above

    # it may still wait for the brokers' first answer
    warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
    with suppress(KafkaException):
        producer.close()


_REFUSED = frozenset({10, 29, 30, 31, 53, 87})
"""Codes of Kafka's errors that no repetition mends: a message that is too large (10), no permission for topic, group, cluster or transactional id (29, 30, 31,
53), a message that the topic does not take (87)."""
