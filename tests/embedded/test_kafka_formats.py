"""Messages of Avro and Protobuf land by their writers' schemas, with and without a registry; what cannot be read is set aside and replayed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
import schema_server
from deltalake import DeltaTable
from following import following
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from kafka_topic import BASE, land, no_sail, source
from pydantic import Field

from floodmark import Contract, Env, EventTime, Kafka, SchemaRegistry, SecretFile
from floodmark.connectors.messages.records import Messages, Stored, store
from floodmark.core.errors import ConnectorError, DefinitionError
from floodmark.engines.embedded.landing import run as embedded
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    from kafka_broker import Broker

AT = datetime.fromtimestamp(BASE / 1000, UTC)
FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "number", "type": "int"},
    ],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
RENAMED = {**FIRST, "fields": [FIRST["fields"][0], {"name": "amount", "type": "int"}]}
WIDER = {
    **FIRST,
    "fields": [FIRST["fields"][0], {"name": "number", "type": "long"}, {"name": "more", "type": "string"}],
}


class Order(Contract, key="number"):
    """An order."""

    at: EventTime
    number: int
    note: str | None = None
    offset: int = Field(alias="_offset")


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_server.Registry]:
    with schema_server.running() as server:
        yield server


def avro(schema: Any, row: dict[str, Any], head: bytes = b"") -> bytes:
    """A message of Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return head + out.getvalue()


def table(path: str) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def rows(lake: Path) -> list[dict[str, Any]]:
    landed = (row for row in table(Lake(str(lake)).log("clicks")) if row["_kind"] == 0)
    return sorted(landed, key=lambda row: row["_sequence"])


def open_entries(lake: Path) -> list[dict[str, Any]]:
    return [row for row in table(Lake(str(lake)).quarantine("clicks")) if row["_replayed"] is None]


@pytest.mark.feature("D3")
def test_messages_of_any_schema_land_by_the_fields_of_the_contract(
    broker: Broker, registry: schema_server.Registry, tmp_path: Path
) -> None:
    topic = broker.topic(1)
    ids = {name: registry.add(schema) for name, schema in (("1", FIRST), ("2", SECOND), ("w", WIDER), ("r", RENAMED))}
    sent = [
        avro(FIRST, {"at": AT, "number": 1}, registry.head(ids["1"])),
        avro(SECOND, {"at": AT, "number": 2, "note": "late"}, registry.head(ids["2"])),
        avro(WIDER, {"at": AT, "number": 3, "more": "x"}, registry.head(ids["w"])),
        avro(RENAMED, {"at": AT, "amount": 4}, registry.head(ids["r"])),
        avro(FIRST, {"at": AT, "number": 5}, registry.head(999)),
        b'{"at": 1}',
        avro(FIRST, {"at": AT, "number": 6}, registry.head(ids["1"]))[:-1] + b"\xff",
        avro(FIRST, {"at": AT, "number": 7}, registry.head(ids["1"])) + b"more",
        avro(FIRST, {"at": AT, "number": 8}, registry.head(ids["2"])),
    ]
    broker.put(topic, ((0, value) for value in sent))
    clicks = source(
        broker.servers, topic, Order, format="avro", registry=SchemaRegistry(url=registry.url), max_quarantine_share=1
    )
    registry.asked.clear()
    land(clicks, tmp_path)
    assert [(row["number"], row["note"], row["offset"]) for row in rows(tmp_path)] == [
        (1, None, 0),
        (2, "late", 1),
        (3, None, 2),
    ]
    assert rows(tmp_path)[0]["at"] == AT
    assert len(registry.asked) == 5, "each schema once, and the one that is missing"
    reasons = {row["position"]: row["reason"] for row in open_entries(tmp_path)}
    assert sorted(reasons) == [3, 4, 5, 6, 7, 8]
    assert reasons[3] == "number: expected a value, got nothing"
    assert "no schema of the id 999" in reasons[4]
    assert "byte 0 and the id of a schema" in reasons[5]
    assert "record of Avro" in reasons[6]
    assert "with 4 behind it" in reasons[7]
    registry.add(FIRST, id_=999)

    class Renamed(Order, key="number"):
        """With the number under either name."""

        number: int | None = None  # type: ignore[assignment]
        amount: int | None = None

    mended = source(broker.servers, topic, Order, format="avro", registry=SchemaRegistry(url=registry.url))
    embedded.replay(no_sail, mended, Lake(str(tmp_path)))
    assert [(row["number"], row["offset"]) for row in rows(tmp_path)[3:]] == [(5, 4)]
    wider = source(broker.servers, topic, Renamed, format="avro", registry=SchemaRegistry(url=registry.url))
    embedded.replay(no_sail, wider, Lake(str(tmp_path)))
    assert [row["offset"] for row in rows(tmp_path)[4:]] == [3]
    assert sorted(row["position"] for row in open_entries(tmp_path)) == [5, 6, 7, 8]


def test_a_landing_waits_for_a_registry_that_is_away(
    broker: Broker, registry: schema_server.Registry, tmp_path: Path, capsys: Any
) -> None:
    topic, number = broker.topic(1), registry.add(FIRST)
    broker.put(topic, [(0, avro(FIRST, {"at": AT, "number": 1}, registry.head(number)))])
    clicks = source(broker.servers, topic, Order, format="avro", registry=SchemaRegistry(url=registry.url + "/"))
    registry.status = 503
    try:
        with pytest.raises(ConnectorError, match="CONNECTOR-240.*HTTP 503"):
            land(clicks, tmp_path)
        with following(partial(land, clicks, tmp_path)) as landing:
            landing.until_said("clicks: the schema registry", capsys)
            registry.status = 0
            landing.until(lambda: [row["number"] for row in rows(tmp_path)] == [1])
    finally:
        registry.status = 0
    assert [row["number"] for row in rows(tmp_path)] == [1]


def test_credentials_of_a_registry_are_references(
    broker: Broker, registry: schema_server.Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, number = broker.topic(1), registry.add(FIRST)
    broker.put(topic, [(0, avro(FIRST, {"at": AT, "number": 1}, registry.head(number)))])
    (tmp_path / "password").write_text("word\n")
    registry.credentials = "Basic bGFuZGVyOndvcmQ="

    def clicks(**settings: Any) -> Any:
        return source(
            broker.servers, topic, Order, format="avro", registry=SchemaRegistry(url=registry.url, **settings)
        )

    try:
        with pytest.raises(ConnectorError, match="CONNECTOR-235.*REGISTRY_TOKEN"):
            land(clicks(token=Env("REGISTRY_TOKEN")), tmp_path)
        monkeypatch.setenv("REGISTRY_TOKEN", "old")
        with pytest.raises(ConnectorError, match="CONNECTOR-241.*401"):
            land(clicks(token=Env("REGISTRY_TOKEN")), tmp_path)
        land(clicks(user="lander", password=SecretFile(str(tmp_path / "password"))), tmp_path)
    finally:
        registry.credentials = ""
    assert [row["number"] for row in rows(tmp_path)] == [1]


def test_a_tombstone_deletes_what_has_its_key(broker: Broker, registry: schema_server.Registry, tmp_path: Path) -> None:
    class Entry(Contract, key="number"):
        """An entry of a compacted topic."""

        at: EventTime = Field(alias="_timestamp")
        number: int
        note: str | None = None
        deleted: bool = Field(alias="_deleted")

    topic = broker.topic(1, retention_ms=-1)
    broker.put(topic, [(0, b'{"number": 4, "note": "x"}'), (0, None)], key=b"4", timestamp=BASE)
    broker.put(topic, [(0, None)], key=b'{"number": 5}', timestamp=BASE)
    broker.put(topic, [(0, None)], key=b"none", timestamp=BASE)
    land(source(broker.servers, topic, Entry), tmp_path)
    expected = [(4, "x", False), (4, None, True), (5, None, True)]
    assert [(row["number"], row["note"], row["deleted"]) for row in rows(tmp_path)] == expected
    assert [row["position"] for row in open_entries(tmp_path)] == [3]
    other, lake = broker.topic(1, retention_ms=-1), tmp_path / "avro"
    key = {"type": "record", "name": "Key", "fields": [{"name": "number", "type": "int"}]}
    head = registry.head(registry.add(key, subject="key"))
    broker.put(other, [(0, None)], key=avro(key, {"number": 6}, head), timestamp=BASE)
    land(source(broker.servers, other, Entry, format="avro", registry=SchemaRegistry(url=registry.url)), lake)
    assert [(row["number"], row["deleted"]) for row in rows(lake)] == [(6, True)]


def test_types_of_avro_come_as_the_contract_has_them() -> None:
    schema = {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "micro", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
            {
                "name": "inner",
                "type": ["null", {"type": "record", "name": "In", "fields": [{"name": "x", "type": "double"}]}],
            },
        ],
    }
    uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    row = {"micro": 1_700_000_000_000_001, "day": date(2025, 2, 3), "price": Decimal("1.10"), "id": uuid}
    row |= {"tags": {"a": [1, 2]}, "inner": {"x": 1.5}}
    read = Messages(Kafka("t", "h:1", format="avro", schema=json.dumps(schema)), Order, "here", "orders")
    (record,) = read.records(Stored(parts(avro(schema, row))))
    expected = row | {"micro": datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=1), "_offset": 7}
    assert record.value == expected
    assert record.stored is not None
    assert [row.value for row in read.again(record.stored())] == [expected]


def parts(value: bytes | None) -> dict[str, Any]:
    """A message as the quarantine keeps it."""

    class Sent:
        """A message."""

        topic, partition, offset = (lambda _: "t"), (lambda _: 0), (lambda _: 7)
        key, headers, timestamp = (lambda _: None), (lambda _: None), (lambda _: (1, BASE))

        def value(self) -> bytes | None:
            return value

    return dict(json.loads(store(Sent(), None)))  # type: ignore[arg-type]


def files() -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pb2.FileDescriptorProto]:
    """A file of Protobuf that another one imports, and the latter."""
    kinds = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    amount = money.message_type.add(name="Amount")
    amount.field.add(name="cents", number=1, type=kinds.TYPE_INT64, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["google/protobuf/timestamp.proto", "money.proto"])
    order.message_type.add(name="Other")
    message = order.message_type.add(name="Order")
    message.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    message.enum_type[0].value.add(name="GIFT", number=1)
    entry = message.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    message.field.add(name="at", number=1, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    message.field.add(name="number", number=2, type=kinds.TYPE_INT64, label=1)
    message.field.add(name="kind", number=3, type=kinds.TYPE_ENUM, type_name=".shop.Order.Kind", label=1)
    message.field.add(name="price", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Amount", label=1)
    message.field.add(name="tags", number=5, type=kinds.TYPE_STRING, label=3)
    message.field.add(name="labels", number=6, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.LabelsEntry", label=3)
    message.field.add(name="note", number=7, type=kinds.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    message.oneof_decl.add(name="_note")
    return money, order


def protobuf(**fields: Any) -> bytes:
    """A message of Protobuf."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files():
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**fields)
    message.at.FromDatetime(AT)
    return bytes(message.SerializeToString())


ROW = {"number": 3, "kind": 1, "price": {"cents": 7}, "tags": ["a", "b"], "labels": {"x": 2}}
READ = {"at": AT, **ROW, "kind": "GIFT", "note": None, "_offset": 7}


def test_protobuf_is_read_by_a_descriptor_set_or_by_a_registry(
    broker: Broker, registry: schema_server.Registry, tmp_path: Path
) -> None:
    money, order = files()
    timestamp = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    described = descriptor_pb2.FileDescriptorSet(file=[timestamp, money, order]).SerializeToString()
    settings = Kafka("t", "h:1", format="protobuf", schema=described, message="shop.Order")
    read = Messages(settings, Order, "here", "orders")
    assert [record.value for record in read.records(Stored(parts(protobuf(**ROW))))] == [READ]
    (broken,) = read.records(Stored(parts(b"\xff\xff")))
    assert "Protobuf" in broken.reason
    with pytest.raises(ConnectorError, match="CONNECTOR-243.*Did you mean 'shop.Order'"):
        Messages(Kafka("t", "h:1", format="protobuf", schema=described, message="shop.Ordr"), Order, "here", "orders")
    registry.add(money.SerializeToString(), "PROTOBUF", "money")
    number = registry.add(order.SerializeToString(), "PROTOBUF", "order", [("money.proto", "money", 1)])
    topic, body = broker.topic(1), protobuf(**{**ROW, "note": "n"})
    sent = [registry.head(number) + index + body for index in (b"\x02\x02", b"\x02\x09", b"\x80")]
    broker.put(topic, ((0, value) for value in sent))
    clicks = source(
        broker.servers,
        topic,
        Order,
        format="protobuf",
        registry=SchemaRegistry(url=registry.url),
        max_quarantine_share=1,
    )
    land(clicks, tmp_path)
    assert [(row["number"], row["note"], row["at"]) for row in rows(tmp_path)] == [(3, "n", AT)]
    assert [row["position"] for row in open_entries(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"format": "avro"}, "DEFINITION-314"),
        ({"format": "avro", "schema": b"bytes"}, "DEFINITION-314"),
        ({"format": "json", "schema": "{}"}, "DEFINITION-314"),
        ({"format": "protobuf", "schema": b"x"}, "DEFINITION-314"),
        ({"format": "xml"}, "DEFINITION-311"),
    ],
)
def test_a_format_has_one_schema(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        Kafka("orders", "localhost:9092", **settings)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"url": "registry:8081"}, "DEFINITION-313"),
        ({"url": "http://a:hush@registry:8081"}, "DEFINITION-313"),
        ({"user": "a"}, "DEFINITION-313"),
        ({"user": "a", "password": "hush"}, "DEFINITION-298"),
        ({"ca": "ca.pem"}, "DEFINITION-313"),
    ],
)
def test_settings_of_a_registry_hold_no_secret(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=code) as refused:
        SchemaRegistry(**{"url": "http://registry:8081", **settings})
    assert "hush" not in str(refused.value)
