"""Changes of a table in Debezium's envelope land as what the table holds, whatever is killed, sent again or overlaps; against a dictionary."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import debezium_topic
import fastavro
import pytest
from debezium_table import Database, Sent
from deltalake import DeltaTable
from kafka_topic import BASE, land, no_sail
from processes import killed_at
from pydantic import Field

from floodmark import BoundedOutOfOrderness, Contract, Debezium, EventTime, Files, Rescued, Source, Stream, operator
from floodmark.connectors.messages.debezium import Reached, rows_of
from floodmark.connectors.unit import Undecodable
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import DefinitionError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.landing import run as embedded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER, ROW

if TYPE_CHECKING:
    from kafka_broker import Broker

POINTS = ["landing.before_log", "landing.after_log", "landing.after_files"]


def held(lake: Path) -> Counter[tuple[int, int, int]]:
    """The rows of the log, those that were retracted taken away."""
    table = DeltaTable(Lake(str(lake)).log("clicks")).to_pyarrow_table().to_pylist()
    rows: Counter[tuple[int, int, int]] = Counter()
    for row in table:
        if row["_kind"] != MARKER:
            rows[row["id"], row["amount"], row["rev"]] += 1 if row["_kind"] == ROW else -1
    return Counter({row: count for row, count in rows.items() if count})


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.feature("D3", "Z27")),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 9)),
    ],
)
def test_what_has_landed_is_what_the_table_holds(broker: Broker, tmp_path: Path, seed: int) -> None:
    drawn, topic, killed = random.Random(seed), broker.topic(3), 0
    database, log = Database(drawn), list[list[Sent]]()
    form = "json" if seed % 2 else "avro"
    for number in range(8):
        database.rows[number] = database.row(number)
    log.append([*database.snapshot()])

    def send(transactions: list[list[Sent]]) -> None:
        for messages in transactions:
            for key, envelope in messages:
                value = None if envelope is None else debezium_topic.message(envelope, form)
                broker.put(topic, [(key % 3, value)], key=json.dumps({"id": key}).encode())

    send(log)
    for _ in range(4):
        transactions = database.transactions(6)
        log += transactions
        sent = drawn.randint(1, len(transactions))
        send(transactions[:sent])
        noted = drawn.randint(1, len(log) - len(transactions) + sent)
        send(log[noted:])  # the connector starts again at what it has noted last
        point = f"{drawn.choice(POINTS)}:{drawn.randint(1, 2)}"
        killed += killed_at(point, debezium_topic.__file__, broker.servers, topic, form, str(tmp_path))
    land(debezium_topic.source(broker.servers, topic, form), tmp_path)
    expected = Counter((row["id"], row["amount"], row["rev"]) for row in database.rows.values())
    assert held(tmp_path) == expected
    assert not DeltaTable.is_deltatable(Lake(str(tmp_path)).quarantine("clicks"))
    assert killed


class Event(Contract):
    """A change of the table."""

    id: int
    rev: int
    at: EventTime = Field(alias="_changed_at")
    op: str = Field(alias="_op")
    order: str = Field(alias="_order")


@operator
def history(clicks: Stream[Event]) -> Stream:
    """The versions of each row of the table."""
    return clicks.key_by("id").scd2(deleted="op = 'd'", sequence="order", track=["rev"])


def versions_of(log: list[list[Sent]]) -> Counter[tuple[int, int, int, int | None]]:
    """Key, revision, beginning and end of each version of a row."""
    expected, valid = Counter[tuple[int, int, int, int | None]](), dict[int, tuple[int, int]]()
    for messages in log:
        for key, envelope in messages:
            if envelope is not None:
                at = envelope["source"]["ts_ms"]
                if key in valid:
                    rev, since = valid.pop(key)
                    expected[key, rev, since, at] += 1
                if envelope["op"] != "d":
                    valid[key] = envelope["after"]["rev"], at
    expected += Counter({(key, rev, since, None): 1 for key, (rev, since) in valid.items()})
    return expected


@pytest.mark.engines("embedded")
def test_the_changes_of_a_table_are_the_versions_of_a_dimension(
    broker: Broker, engine: Computing, tmp_path: Path
) -> None:
    """Read as events, also sent twice and with a snapshot, by both modes; against a walk through the changes."""
    drawn, topic = random.Random(4), broker.topic(3)
    database, log = Database(drawn), list[list[Sent]]()
    for number in range(4):
        database.rows[number] = database.row(number)
    log.append([*database.snapshot()])
    log += database.transactions(12)
    for messages in [*log, *log[5:]]:
        for key, envelope in messages:
            value = None if envelope is None else json.dumps({"payload": envelope}).encode()
            broker.put(topic, [(key % 3, value)])
    orders = debezium_topic.source(broker.servers, topic, contract=Event, read="events")
    lake = Lake(str(tmp_path / "lake"))
    engine.land(orders, lake, end=True)
    for bounded in (True, False):
        other = Lake(str(tmp_path / f"{bounded}"), logs=lake.root)
        if bounded:
            engine.run_bounded(history, other, Interval(), force=True)
        else:
            engine.run_unbounded(history, other, until_caught_up=True)
        versions: Counter[tuple[int, int, int, int | None]] = Counter()
        for row in DeltaTable(other.output(history.outputs[0].table)).to_pyarrow_table().to_pylist():
            if row["_kind"] != MARKER:
                until = None if row["valid_to"] is None else to_ms(row["valid_to"])
                version = row["id"], row["rev"], to_ms(row["valid_from"]), until
                versions[version] += 1 if row["_kind"] == ROW else -1
        assert +versions == versions_of(log)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_changes_in_files_land_as_what_the_table_holds(tmp_path: Path, form: Any) -> None:
    drawn, inbox, lake = random.Random(1), tmp_path / "inbox", tmp_path / "lake"
    inbox.mkdir()
    database, schema = Database(drawn), fastavro.parse_schema(debezium_topic.ENVELOPE)
    for number in range(4):
        database.rows[number] = database.row(number)
    log = [[*database.snapshot()], *database.transactions(9)]
    files = [log[:4], [*log[4:8], *log[6:]]]  # the second one has some changes twice
    connector = Files(str(inbox), format=form, envelope=Debezium())
    for number, transactions in enumerate(files):
        changes = [envelope for messages in transactions for _, envelope in messages if envelope is not None]
        if form == "json":
            lines = [json.dumps({"payload": change}) for change in changes]
            (inbox / f"{number}.json").write_text("\n".join([*lines, '{"op": "t"}', ""]))
        else:
            with (inbox / f"{number}.avro").open("wb") as file:
                fastavro.writer(file, schema, changes)
    orders = Source(
        "clicks", contract=debezium_topic.Order, connector=connector, watermark=BoundedOutOfOrderness("1 hour")
    )
    land(orders, lake)
    assert held(lake) == Counter((row["id"], row["amount"], row["rev"]) for row in database.rows.values())
    if form == "json":
        entries = DeltaTable(Lake(str(lake)).quarantine("clicks")).to_pyarrow_table().to_pylist()
        assert len(entries) == 2
        assert embedded.replay(no_sail, orders, Lake(str(lake))).still_broken == 2


def test_a_broken_file_of_avro_is_told(tmp_path: Path) -> None:
    inbox, lake = tmp_path / "inbox", tmp_path / "lake"
    inbox.mkdir()
    with (inbox / "1.avro").open("wb") as file:
        rows = [{"id": n, "at": BASE, "amount": 1, "rev": 1} for n in range(3)]
        fastavro.writer(file, fastavro.parse_schema(debezium_topic.ORDER), rows)
    (inbox / "2.avro").write_bytes((inbox / "1.avro").read_bytes()[:-9])
    bound = BoundedOutOfOrderness("1 hour")
    land(
        Source("clicks", contract=debezium_topic.Order, connector=Files(str(inbox), format="avro"), watermark=bound),
        lake,
    )
    assert held(lake) == Counter({(n, 1, 1): 1 for n in range(3)})
    (entry,) = DeltaTable(Lake(str(lake)).quarantine("clicks")).to_pyarrow_table().to_pylist()
    assert entry["file"] == "2.avro"
    with pytest.raises(DefinitionError, match="DEFINITION-153.*envelope"):
        Files("inbox", envelope=Debezium())


def test_a_change_by_a_schema_has_its_times_and_decimals() -> None:
    kinds = [
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "nano", "type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "raw", "type": "bytes"},
        {"field": "tags", "type": "array", "items": {"type": "int64", "name": "io.debezium.time.Timestamp"}},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": kinds}]}
    after = {"at": 1_000_001, "nano": 1_999, "day": 3, "price": "AN0=", "raw": "AAE=", "tags": [1_000]}
    source = {"connector": "mysql", "name": "m", "file": "binlog.000009", "pos": 5, "row": 1, "server_id": 1}
    value = {"schema": schema, "payload": {"op": "c", "before": None, "after": after, "source": source}}
    (row,) = rows_of(value, Debezium(read="events"), Reached())
    assert row["at"] == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
    assert row["nano"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert (row["day"], row["price"], row["raw"]) == (date(1970, 1, 4), Decimal("2.21"), b"\x00\x01")
    assert row["tags"] == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
    assert row["_order"] == "binlog.0000000009-00000000000000000005-0000000001"


def by_schema(kind: dict[str, Any], value: Any, op: Any = "c") -> list[dict[str, Any]]:
    """The rows of a change with one field, by its schema."""
    row = {"type": "struct", "fields": [kind | {"field": "field"}]}
    schema = {"type": "struct", "fields": [{"field": "after"} | row]}
    payload = {"op": op, "before": None, "after": {"field": value}, "source": {"connector": "postgresql"}}
    return rows_of({"schema": schema, "payload": payload}, Debezium(read="events"), Reached())


def test_a_decimal_of_38_digits_keeps_them() -> None:
    number = 12345678901234567890123456789012345678
    text = base64.b64encode((-number).to_bytes(16, "big", signed=True)).decode()
    kind = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "10"}}
    (row,) = by_schema(kind, text)
    assert str(row["field"]) == "-1234567890123456789012345678.9012345678"


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("MicroTimestamp", 9223372036825200000, "9223372036825200000 microseconds since 1970"),  # PostgreSQL's infinity
        ("NanoTimestamp", 9223372036854775807, None),
        ("Timestamp", -9223372036832400000, "-9223372036832400000 milliseconds since 1970"),
        ("Date", 2932897, "2932897 days since 1970"),
    ],
)
def test_a_time_that_has_no_date_is_a_text_that_the_contract_judges(name: str, number: int, text: str | None) -> None:
    (row,) = by_schema({"type": "int64", "name": f"io.debezium.time.{name}"}, number)
    assert row["field"] == (text or datetime(2262, 4, 11, 23, 47, 16, 854_775, tzinfo=UTC))


def test_a_change_that_is_not_of_its_schema_is_set_aside() -> None:
    for kind, value in (
        ({"type": "bytes"}, "a"),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, "now"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "x"}}, "AA=="),
        ({"type": "struct", "fields": [{}]}, {"a": 1}),
    ):
        with pytest.raises(Undecodable, match="expected values as the schema of the change declares them"):
            by_schema(kind, value)
    with pytest.raises(Undecodable, match="expected a change in Debezium's envelope"):
        by_schema({"type": "int64"}, 1, op=["c"])


@pytest.mark.parametrize("read", ["changes", "events"])
@pytest.mark.parametrize("extra", ["forbid", "rescued"])
def test_fields_of_changes_that_no_contract_names_are_no_unknown_fields(tmp_path: Path, read: Any, extra: str) -> None:
    class Strict(debezium_topic.Order, key="id", extra="forbid"):
        """Without other fields."""

    class Saving(debezium_topic.Order, key="id"):
        """With what is not named."""

        more: Rescued

    inbox, lake, database = tmp_path / "inbox", tmp_path / "lake", Database(random.Random(3))
    inbox.mkdir()
    sent = [envelope for messages in database.transactions(5) for _, envelope in messages if envelope is not None]
    (inbox / "1.json").write_text("".join(f"{json.dumps(envelope)}\n" for envelope in sent))
    contract, connector = (
        Strict if extra == "forbid" else Saving,
        Files(str(inbox), format="json", envelope=Debezium(read=read)),
    )
    land(Source("clicks", contract=contract, connector=connector, watermark=BoundedOutOfOrderness("1 hour")), lake)
    table = DeltaTable(Lake(str(lake)).log("clicks")).to_pyarrow_table().to_pylist()
    assert {row.get("more") for row in table} == {None}
    assert not DeltaTable.is_deltatable(Lake(str(lake)).quarantine("clicks"))
    assert sum(row["_kind"] != MARKER for row in table) >= len(sent)


def change(op: str, source: dict[str, Any], **images: Any) -> dict[str, Any]:
    return {"op": op, "before": None, "after": None, **images, "source": {"table": "t", **source}}


MYSQL = {"connector": "mysql", "name": "m", "server_id": 1, "row": 0}
SERVER = {"connector": "sqlserver", "name": "s", "event_serial_no": 1}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({**MYSQL, "file": "b.999999", "pos": 9}, {**MYSQL, "file": "b.1000000", "pos": 4}),
        ({**MYSQL, "file": "b.000001", "pos": 99}, {**MYSQL, "file": "b.000001", "pos": 100}),
        ({**MYSQL, "file": "b.000001", "pos": 9}, {**MYSQL, "file": "b.000001", "pos": 9, "row": 1}),
        (
            {**SERVER, "commit_lsn": "0027:0758:0003", "change_lsn": "0027:0758:0002"},
            {**SERVER, "commit_lsn": "0027:0759:0003", "change_lsn": "0027:0751:0002"},
        ),
        ({"connector": "postgresql", "lsn": 99}, {"connector": "postgresql", "lsn": 100}),
    ],
)
def test_changes_of_each_database_are_in_the_order_of_its_log(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    reached, settings = Reached(), Debezium(read="events")
    for source, expected in ((earlier, 1), (later, 1), (earlier, 0), (later, 0)):
        assert len(rows_of(change("c", source, after={"id": 1}), settings, reached)) == expected
        reached = Reached.from_text(reached.as_text())


def test_changes_of_one_place_in_a_log_are_all_rows_and_another_server_begins_anew() -> None:
    reached, settings = Reached(), Debezium(read="events")
    place = {"connector": "postgresql", "name": "p", "lsn": 9}
    for number, expected in ((1, 1), (2, 1), (1, 0), (2, 0)):
        assert len(rows_of(change("c", place, after={"id": number}), settings, reached)) == expected
    for server in (1, 2):
        source = {**MYSQL, "server_id": server, "file": "b.000001", "pos": 9 - server}
        assert rows_of(change("c", source, after={"id": 1}), settings, reached)


def test_what_cannot_be_a_row_says_why() -> None:
    place = {"connector": "postgresql", "name": "p", "lsn": 9}
    reached, changes = Reached(), Debezium()
    for broken, reason in (
        (change("u", place, after={"id": 1}), "REPLICA IDENTITY FULL"),
        (change("d", place), "a delete without the row before it"),
        (change("t", place), "a truncate"),
        (change("c", place), "got none"),
        ({"op": "c"}, "Debezium's envelope.*got op"),
        ({}, "got no field"),
    ):
        with pytest.raises(Undecodable, match=reason):
            rows_of(broken, changes, None)
    assert rows_of(change("m", place), changes, reached) == []
    first, second = ({**place, "lsn": lsn, "snapshot": "true"} for lsn in (5, 6))
    assert len(rows_of(change("r", first, after={"id": 1}), changes, reached)) == 1
    with pytest.raises(Undecodable, match="further snapshot"):
        rows_of(change("r", second, after={"id": 1}), changes, reached)
    with pytest.raises(DefinitionError, match="DEFINITION-315"):
        Debezium(read="all")  # type: ignore[arg-type]
