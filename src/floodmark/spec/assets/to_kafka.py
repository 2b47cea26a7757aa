"""Kafka: settings of a delivery into a topic. Frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Delivery, Guarantee
from floodmark.spec.rows.kafka import Kafka
from floodmark.spec.values.secret import Secret

OWN = {
    "enable.idempotence": "nothing: floodmark needs it",
    "max.in.flight.requests.per.connection": "nothing: with more than one a broker can lose messages and confirm them",
    "max.in.flight": "nothing, as max.in.flight.requests.per.connection",
    "transactional.id": "name=",
    "transaction.timeout.ms": "transaction_seconds=",
    "partitioner": "nothing: messages of one key go to one partition, as with Kafka's own clients",
}
"""Property of librdkafka that floodmark sets -> what says it instead."""


@dataclass(frozen=True, slots=True)
class ToKafka(Delivery):
    """The changes of an output as messages of a topic: the key says which result, the value is its last value as JSON, or nothing where it is taken back.

    A topic that is compacted has the last value of each result. Headers say where a message is from: ``floodmark-output``, ``floodmark-commit``
    (version of the output's table) and ``floodmark-number`` (of the delivery).

    Args:
        topic: its name; it has to be there, unless the brokers make topics by themselves.
        servers: of the first connection: ``"host:port"``, several separated by commas.
        transactions: each delivery is one transaction, in which its position is committed too: readers with ``isolation.level=read_committed``
            see each change once. False: the messages of a delivery that is cut short are sent again; readers tell these by ``floodmark-commit`` and the key.
        transaction_seconds: longest time of a transaction; the brokers may allow less than 900.
        properties: further ones of librdkafka, as in ``Kafka``.

    Raises:
        DefinitionError: DEFINITION-311 and 312, as ``Kafka``; 298, a secret that is written out.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.kafka:KafkaSink"
    kind: ClassVar[str] = "kafka"

    topic: str
    servers: str
    _: KW_ONLY
    transactions: bool = True
    transaction_seconds: int = 600
    properties: Mapping[str, str | int | bool | Secret] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the settings as those of a source in Kafka."""
        _ = self.connection
        for name in self.properties.keys() & OWN.keys():
            fix = f"Leave it out; what says it is {OWN[name]}."
            where = f"ToKafka({self.topic!r})"
            raise DefinitionError(where, "properties that floodmark does not set", name, fix, code="DEFINITION-312")

    @property
    def connection(self) -> Kafka:
        """The brokers and the topic."""
        return Kafka(self.topic, self.servers, properties=self.properties)

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override]  # a property here, as settings decide
        """With transactions each change takes effect once."""
        return "transaction" if self.transactions else "key"

    @property
    def retracts(self) -> bool:
        """A result is taken back by a message without a value."""
        return True
