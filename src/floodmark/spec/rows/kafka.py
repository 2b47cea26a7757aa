"""Kafka: settings of a source that lands the messages of a topic. Frozen, without I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.core.time import parse_instant
from floodmark.spec.rows.connector import Connector
from floodmark.spec.rows.debezium import Debezium
from floodmark.spec.rows.registry import SchemaRegistry
from floodmark.spec.values.secret import Env, Secret, SecretFile

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRETS = ("password", "secret", "key.pem", "certificate.pem")
"""Ends of the names of properties that hold a secret."""
OWN = {
    "bootstrap.servers": "servers=",
    "group.id": "no group: positions are kept with the rows",
    "enable.auto.commit": "no group: positions are kept with the rows",
    "enable.auto.offset.store": "no group: positions are kept with the rows",
    "auto.offset.reset": "start= and on_gap=",
    "enable.partition.eof": "nothing: floodmark needs it",
    "isolation.level": "isolation=",
}
"""Property of librdkafka that floodmark sets -> what says it instead."""


@dataclass(frozen=True, slots=True)
class Kafka(Connector):
    """A topic of Kafka, landed in ranges of offsets: each message once, whatever is killed, as the positions are in the commits of the log.

    No consumer group is used, so no other reader of the topic is touched. Seven fields are added to each message, which a contract may
    read: ``_topic``, ``_partition``, ``_offset``, ``_timestamp`` (ms since 1970), ``_key`` (text), ``_headers`` (a map of texts) and ``_deleted``,
    such as ``partition: int = Field(alias="_partition")``.

    A message without a value, a tombstone, says that what had its key is deleted. It lands where the contract has a key and reads ``_deleted``, with
    the fields of the contract's key from the message's key, and ``_deleted`` true; elsewhere it is set aside.

    Time: each partition of the topic is a source partition. Unless the source has ``partition_by``, the watermark is the minimum over
    the partitions; one without messages holds it back until it has some, or, with ``Source(idle_timeout=...)``, for that long.

    Args:
        topic: its name.
        servers: of the first connection: ``"host:port"``, several separated by commas.
        format: of a message's value: ``"json"``, one object; ``"avro"``, a record; ``"protobuf"``, a message. The contract is the schema of the
            reader: fields are taken by their names, of whatever schema a message was written with.
        registry: where the schema of each message is looked up. Without one, all messages are of ``schema``. With ``"json"`` the id before the
            object is skipped.
        schema: without a registry: of Avro, the text of the schema; of Protobuf, the bytes of a descriptor set, as ``protoc --include_imports
            --descriptor_set_out=FILE`` writes it.
        message: of Protobuf without a registry: the full name of the message, ``"shop.Click"``.
        envelope: ``Debezium()``: each message is a change of a table.
        start: where a source that has landed nothing begins: ``"earliest"`` message kept, ``"latest"``: only messages from now on. A partition
            that is added later begins at its first message.
        end: where the source ends: an instant, ``"2025-02-01T00:00Z"``, before the first message of that time or later, by the messages' own times;
            or partition -> offset behind the last message, ``{0: 1_000, 1: 980}``, of the partitions that are read. The landing of the last
            message lands the end of input; one that goes on ends then. None: the source goes on.
        on_gap: when messages that have not landed are gone, as retention has removed them. ``"stop"``: the landing stops and tells how many.
            ``"continue"``: it goes on with the first message kept; the gap has an entry in the quarantine.
        isolation: ``"read_committed"``: messages of transactions that are open or were given up do not land.
        messages_per_unit: most messages of a partition in one unit; ``files_per_commit`` of the source limits the units of a commit.
        properties: further ones of librdkafka: ``{"security.protocol": "SASL_SSL", "sasl.username": "lander", "sasl.password": Env("KAFKA_PASSWORD")}``.

    Raises:
        DefinitionError: DEFINITION-311, a setting; 316, an end that is none; 312, a property that floodmark sets; 314, a format without its schema; 298, a secret that is
            written out.

    Source: Kafka, consumer configuration; option names as in Flink's and Spark's connectors where they say the same.
    """

    implementation: ClassVar[str] = "floodmark.connectors.readers.kafka:reader"
    unit: ClassVar[str] = "a range of offsets of a partition"
    order: ClassVar[str] = "the offsets of each partition; partitions in turn"
    partitioned: ClassVar[bool] = True
    added: ClassVar[frozenset[str]] = frozenset(
        {"_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_deleted"}
    )

    topic: str
    servers: str
    format: Literal["json", "avro", "protobuf"] = "json"
    registry: SchemaRegistry | None = None
    schema: str | bytes | None = None
    message: str | None = None
    envelope: Debezium | None = None
    start: Literal["earliest", "latest"] = "earliest"
    end: str | datetime | Mapping[int, int] | None = field(default=None, hash=False)
    on_gap: Literal["stop", "continue"] = "stop"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    messages_per_unit: int = 50_000
    properties: Mapping[str, str | int | bool | Secret] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        where = f"Kafka({self.topic!r})"
        checks: dict[str, tuple[bool, str]] = {
            "topic": (isinstance(self.topic, str) and bool(_NAME.fullmatch(self.topic)), "the name of a topic"),
            "servers": (
                isinstance(self.servers, str)
                and all(
                    re.fullmatch(r"[^:,\s]+:\d+|\[[0-9a-fA-F:]+\]:\d+", server) for server in self.servers.split(",")
                ),
                '"host:port", several separated by commas',
            ),
            "format": (self.format in {"json", "avro", "protobuf"}, '"json", "avro" or "protobuf"'),
            "envelope": (isinstance(self.envelope, Debezium | None), "Debezium()"),
            "registry": (
                isinstance(self.registry, SchemaRegistry | None),
                'a SchemaRegistry(url="http://registry:8081")',
            ),
            "start": (self.start in {"earliest", "latest"}, '"earliest" or "latest"'),
            "on_gap": (self.on_gap in {"stop", "continue"}, '"stop" or "continue"'),
            "isolation": (
                self.isolation in {"read_committed", "read_uncommitted"},
                '"read_committed" or "read_uncommitted"',
            ),
            "messages_per_unit": (self.messages_per_unit >= 1, "at least 1"),
        }
        for name, (fits, expected) in checks.items():
            if not fits:
                got = f"{name}={getattr(self, name)!r}"
                raise DefinitionError(where, expected, got, f"Correct {name}.", code="DEFINITION-311")
        for name, value in self.properties.items():
            if name in OWN:
                fix = f"Leave it out; what says it is {OWN[name]}."
                raise DefinitionError(where, "properties that floodmark does not set", name, fix, code="DEFINITION-312")
            if name.endswith(_SECRETS) and not isinstance(value, Env | SecretFile):
                fix = f'Name the variable or the file that holds it: properties={{"{name}": Env("KAFKA_SECRET")}}.'
                where_ = f"{where}, property {name}"
                raise DefinitionError(
                    where_, "a secret by reference", "one that is written out", fix, code="DEFINITION-298"
                )

        self._check_schema(where)
        self._check_end(where)

    def _check_end(self, where: str) -> None:
        """Raise DefinitionError DEFINITION-316 if the end is neither an instant nor offsets of partitions."""
        if isinstance(self.end, Mapping):
            numbers = [*self.end, *self.end.values()]
            if not self.end or any(not isinstance(number, int) or number < 0 for number in numbers):
                fix = "For example Kafka(..., end={0: 1_000, 1: 980}): of each partition the offset behind its last message."
                got = repr(dict(self.end))
                raise DefinitionError(f"{where}, end", "partitions with offsets", got, fix, code="DEFINITION-316")
        elif self.end is not None:
            try:
                parse_instant(self.end, f"{where}, end")
            except LifecycleError as error:
                raise DefinitionError(
                    error.where, error.expected, error.got, error.fix, code="DEFINITION-316"
                ) from error

    def _check_schema(self, where: str) -> None:
        """Raise DefinitionError DEFINITION-314 if a format has no schema, or two."""
        shown = {"registry": self.registry, "schema": self.schema, "message": self.message}
        got = ", ".join(name for name, value in shown.items() if value is not None) or "none of them"
        fits, expected = {
            "json": (self.schema is None and self.message is None, "no schema= and no message="),
            "avro": (
                (self.registry is None) == isinstance(self.schema, str) and self.message is None,
                "registry=, or the text of a schema as schema=",
            ),
            "protobuf": (
                (self.registry is None) == isinstance(self.schema, bytes) == (self.message is not None),
                "registry=, or the bytes of a descriptor set as schema= with message=",
            ),
        }[self.format]
        if not fits or (self.schema is not None and self.registry is not None):
            fix = (
                'For example Kafka(..., format="avro", registry=SchemaRegistry(url="http://registry:8081")), or '
                'schema=Path(__file__).with_name("click.avsc").read_text().'
            )
            raise DefinitionError(f'{where}, format="{self.format}"', expected, got, fix, code="DEFINITION-314")

    def adds(self) -> frozenset[str]:
        """Those of messages, and those of changes."""
        return self.added if self.envelope is None else self.added | self.envelope.added

    def meaning(self) -> dict[str, Any]:
        """Which changes are rows."""
        return {} if self.envelope is None else self.envelope.meaning()

    @property
    def revisable(self) -> bool:
        """Whether changes retract rows."""
        return self.envelope is not None and self.envelope.read == "changes"

    def partition_of(self, unit: str) -> str:
        """The topic and partition of a unit's messages."""
        return unit.rpartition("/")[0]
