"""A topic of Kafka is landed once, whatever is killed, with the watermark of its partitions; against a real broker on loopback."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafka_topic
import pytest
from confluent_kafka import KafkaError, KafkaException
from deltalake import DeltaTable
from following import following
from kafka_topic import BASE, BOUND, Bare, Click, land, message, no_sail, source
from processes import killed_at

from floodmark import BoundedOutOfOrderness, Env, Kafka, Source
from floodmark.connectors.readers import brokers, kafka
from floodmark.connectors.unit import Moved
from floodmark.core.errors import ConnectorError, DefinitionError
from floodmark.core.time import NEVER
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.landing.lander import reader_of
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from kafka_broker import Broker


def rows(lake: Path) -> list[dict[str, Any]]:
    """The rows of the log in order, without markers."""
    table = DeltaTable(Lake(str(lake)).log("clicks")).to_pyarrow_table().to_pylist()
    return sorted((row for row in table if row["_kind"] == 0), key=lambda row: row["_sequence"])


def numbers(lake: Path) -> list[int]:
    return sorted(row["number"] for row in rows(lake))


def set_aside(lake: Path) -> list[dict[str, Any]]:
    table = DeltaTable(Lake(str(lake)).quarantine("clicks")).to_pyarrow_table().to_pylist()
    return sorted(table, key=lambda row: (row["file"], row["position"]))


@pytest.mark.feature("D3")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 9))])
def test_each_message_lands_once_in_order_with_the_watermark_of_its_partitions(
    broker: Broker, tmp_path: Path, seed: int
) -> None:
    """Messages of random times come in while each landing is killed at a random point; the watermark is walked by hand."""
    drawn, topic, sent, killed = random.Random(seed), broker.topic(3), list[tuple[int, int, int]](), 0
    points = ["landing.before_log", "landing.after_log", "landing.after_create", "landing.after_files"]
    for _ in range(5):
        more = [(drawn.randrange(3), len(sent) + n, BASE + drawn.randrange(60_000)) for n in range(40)]
        broker.put(topic, ((partition, message(number, at)) for partition, number, at in more))
        sent += more
        killed += killed_at(
            f"{drawn.choice(points)}:{drawn.randint(1, 3)}", kafka_topic.__file__, broker.servers, topic, str(tmp_path)
        )
    assert killed >= 2
    land(source(broker.servers, topic, Click), tmp_path)
    landed = rows(tmp_path)
    assert Counter((row["partition"], row["number"]) for row in landed) == Counter((p, n) for p, n, _ in sent)
    reached, watermark = dict.fromkeys(range(3), NEVER), NEVER
    for row in landed:
        assert row["_watermark"] == watermark
        reached[row["partition"]] = max(reached[row["partition"]], int(row["at"].timestamp() * 1000) - BOUND - 1)
        watermark = max(watermark, min(reached.values()))
    for partition in range(3):
        offsets = [row["offset"] for row in landed if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    assert land(source(broker.servers, topic, Click), tmp_path).commits == 0


@pytest.mark.feature("D3")
def test_the_fields_that_a_contract_names_are_added(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    broker.put(
        topic, [(1, b'{"at": 1700000000000, "number": 4, "_offset": 77} \n')], key=b"k\xc3\xa9", headers=[("h", b"x")]
    )
    broker.put(topic, [(0, b"{}")])
    land(source(broker.servers, topic, Click), tmp_path)
    (row,) = rows(tmp_path)
    fields = {name: row[name] for name in ("number", "partition", "offset", "key", "headers")}
    assert fields == {"number": 4, "partition": 1, "offset": 0, "key": "ké", "headers": [("h", "x")]}
    (broken,) = set_aside(tmp_path)
    assert (broken["file"], broken["position"]) == (f"{topic}/0/0-0", 0)


def test_a_look_at_a_topic_asks_its_broker_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where new partitions begin and which messages there are come from one answer."""
    topic, looks, ask = broker.topic(2), list[str](), kafka.ask
    broker.put(topic, [(0, message(1)), (1, message(2))])
    clicks = source(broker.servers, topic)
    monkeypatch.setattr(kafka, "ask", lambda *which: looks.append("look") or ask(*which))
    reader = reader_of(clicks)
    first = reader.pending({})
    assert [unit.name for unit in first.units] == [f"{topic}/0/0-0", f"{topic}/1/0-0"]
    assert sorted(first.begun) == [f"{topic}/0", f"{topic}/1"]
    assert reader.pending({}, first.begun).units == first.units
    assert len(looks) == 2


def test_no_range_waits_for_what_is_asked_for_behind_another_one() -> None:
    """By default a broker keeps such a request for half a second, and the connection answers one after the other."""
    settings = Kafka("t", "localhost:9092")
    assert brokers._of_consumer(settings, print)["fetch.wait.max.ms"] <= 10
    slower = Kafka("t", "localhost:9092", properties={"fetch.wait.max.ms": 200})
    assert brokers._of_consumer(slower, print)["fetch.wait.max.ms"] == 200


def test_only_committed_messages_land_and_offsets_may_have_gaps(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    producer = broker.producer(**{"transactional.id": f"{topic}-writer"})
    producer.init_transactions()
    for first, committed in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(topic, message(number), partition=0)
        producer.flush()
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    land(source(broker.servers, topic), tmp_path)
    expected = [*range(10), *range(20, 30)]
    assert numbers(tmp_path) == expected
    producer.begin_transaction()
    producer.produce(topic, message(40), partition=0)
    producer.flush()
    broker.put(topic, [(0, message(41))])
    land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == expected, "what is behind an open transaction waits for it"
    producer.commit_transaction()
    land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == [*expected, 40, 41]
    other = tmp_path / "other"
    land(source(broker.servers, topic, isolation="read_uncommitted"), other)
    assert numbers(other) == [*range(30), 40, 41]


def test_a_consumer_goes_on_with_the_next_range_of_its_partition_from_what_it_has_taken_of_that(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of seven offsets of three partitions, with gaps where transactions were given up: seven messages may reach into the next range."""
    topic, drawn, expected, assigned = broker.topic(3), random.Random(1), list[int](), list[brokers.Start]()
    producer = broker.producer(**{"transactional.id": f"{topic}-writer"})
    producer.init_transactions()
    for first in range(0, 200, 5):
        producer.begin_transaction()
        for number in range(first, first + 5):
            producer.produce(topic, message(number), partition=drawn.randrange(3))
        producer.flush()
        if drawn.random() < 0.6:
            producer.commit_transaction()
            expected += range(first, first + 5)
        else:
            producer.abort_transaction()
    assign = brokers._assigned
    monkeypatch.setattr(
        brokers, "_assigned", lambda settings, start: (assigned.append(start), assign(settings, start))[1]
    )
    units = land(source(broker.servers, topic), tmp_path).units
    assert numbers(tmp_path) == expected
    assert 0 < len(assigned) < 2 * units / 3
    ahead = [ahead for (_, of, _), ahead in brokers._ahead.items() if of == topic]
    assert [(one.clients, one.wanted) for one in ahead] == [({}, frozenset())], "none fetches on behind the landing"


def test_ranges_at_the_end_of_a_partition_may_have_no_messages(broker: Broker, tmp_path: Path) -> None:
    """Behind three messages lie only those of a transaction that was given up: ranges of seven offsets, of which the first one alone has messages."""
    topic = broker.topic(1)
    producer = broker.producer(**{"transactional.id": f"{topic}-writer"})
    producer.init_transactions()
    for first, last in ((0, 3), (3, 30)):
        producer.begin_transaction()
        for number in range(first, last):
            producer.produce(topic, message(number), partition=0)
        producer.flush()
        if first == 0:
            producer.commit_transaction()
    producer.abort_transaction()
    broker.await_committed(topic, 1)
    assert land(source(broker.servers, topic), tmp_path).units == 5
    assert numbers(tmp_path) == [0, 1, 2]


def test_messages_that_retention_has_removed_are_counted(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1, segment_bytes=1_048_576, file_delete_delay_ms=0)
    broker.put(topic, [(0, message(0))])
    land(source(broker.servers, topic), tmp_path)
    broker.put(topic, ((0, message(number)) for number in range(1, 21)))
    broker.forget(topic, 0, 15)
    with pytest.raises(ConnectorError, match="CONNECTOR-232.*14 offsets of partition 0.*1 to 14"):
        land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == [0]
    land(source(broker.servers, topic, on_gap="continue"), tmp_path)
    assert numbers(tmp_path) == [0, *range(15, 21)]
    (gap,) = set_aside(tmp_path)
    assert gap["file"] == f"{topic}/0/gone 1-14"
    assert gap["reason"].startswith("the offsets 1 to 14 were removed")


def test_a_topic_that_was_made_anew_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    broker.put(topic, [(0, message(1))])
    land(source(broker.servers, topic), tmp_path)
    broker.remove(topic)
    with pytest.raises(ConnectorError, match="CONNECTOR-231"):
        land(source(broker.servers, topic), tmp_path)
    broker.make(topic, 1)
    broker.put(topic, [(0, message(2)), (0, message(3))])
    with pytest.raises(ConnectorError, match="CONNECTOR-233.*made anew"):
        land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == [1]


def test_a_partition_that_becomes_shorter_behind_the_look_at_it_is_looked_at_again(
    broker: Broker, tmp_path: Path
) -> None:
    """Its topic is made anew with fewer messages between the look and the reading."""
    topic = broker.topic(1)
    broker.put(topic, ((0, message(number)) for number in range(6)))
    reader = reader_of(source(broker.servers, topic))
    (unit,) = reader.pending({}).units
    broker.remove(topic)
    broker.make(topic, 1)
    broker.put(topic, ((0, message(number)) for number in range(3)))
    with pytest.raises(Moved, match="CONNECTOR-237.*the messages 0 to 5 of partition 0.*ends at offset 3"):
        list(reader.open(unit).records())


def test_new_partitions_are_read_from_their_first_message_and_an_idle_one_leaves_the_minimum(
    broker: Broker, tmp_path: Path
) -> None:
    topic, now = broker.topic(1), [BASE + 100_000]
    clicks = source(broker.servers, topic, idle_timeout="1 minute")

    def watermark() -> int:
        return land(clicks, tmp_path, clock=lambda: now[0]).watermark

    broker.put(topic, [(0, message(1, BASE))])
    assert watermark() == BASE - BOUND - 1
    broker.widen(topic, 2)
    broker.put(topic, [(0, message(2, BASE + 10_000))])
    assert watermark() == BASE - BOUND - 1, "the new partition has no message yet"
    broker.put(topic, [(1, message(3, BASE + 2_000))])
    assert watermark() == BASE + 2_000 - BOUND - 1
    now[0] += 30_000
    broker.put(topic, [(0, message(4, BASE + 20_000))])
    assert watermark() == BASE + 2_000 - BOUND - 1
    now[0] += 30_000
    assert watermark() == BASE + 20_000 - BOUND - 1
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_a_source_that_starts_at_the_latest_message_keeps_its_place(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2)
    broker.put(topic, [(0, message(1)), (1, message(2))])
    clicks = source(broker.servers, topic, start="latest")
    land(clicks, tmp_path)
    assert numbers(tmp_path) == []
    broker.put(topic, [(0, message(3)), (1, message(4))])
    broker.widen(topic, 3)
    broker.put(topic, [(2, message(5))])
    land(clicks, tmp_path)
    assert numbers(tmp_path) == [3, 4, 5]


def test_poison_is_set_aside_with_its_offset_and_lands_once_the_contract_takes_it(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.put(topic, [(0, message(1, BASE)), (0, b"\xff\xfe"), (0, None), (0, b"[1]"), (1, message(2, BASE + 9_000))])
    broker.put(topic, [(0, b'{"at": 1700000002000, "number": null}'), (0, message(3, BASE + 3_000))])
    land(source(broker.servers, topic, max_quarantine_share=1), tmp_path)
    assert numbers(tmp_path) == [1, 2, 3]
    poison = set_aside(tmp_path)
    assert [row["position"] for row in poison] == [1, 2, 3, 4]
    assert {row["file"] for row in poison} == {f"{topic}/0/0-5"}
    assert "tombstone" in poison[1]["reason"]

    class Mended(Bare):
        """With a number that may be missing."""

        number: int | None

    before = max(row["_watermark"] for row in rows(tmp_path))
    mended = source(broker.servers, topic, Mended)
    embedded.replay(no_sail, mended, Lake(str(tmp_path)))
    assert [row["number"] for row in rows(tmp_path)] == [1, 3, 2, None]
    assert before <= rows(tmp_path)[-1]["_watermark"] == BASE + 3_000 - BOUND - 1, "the row is of the first partition"


@pytest.mark.feature("Z15")
def test_a_landing_goes_on_through_the_death_of_the_broker(broker: Broker, tmp_path: Path, capsys: Any) -> None:
    topic = broker.topic(3)
    broker.put(topic, ((number % 3, message(number)) for number in range(30)))
    seen = threading.Event()
    how = {"on_commit": lambda done: seen.set() if done.rows else None}
    try:
        with following(partial(land, source(broker.servers, topic), tmp_path), **how) as landing:
            landing.until(seen.is_set)
            broker.kill()
            landing.until_said("clicks: the brokers", capsys)
            broker.start()
            broker.put(topic, ((number % 3, message(number)) for number in range(30, 60)))
            landing.until(lambda: numbers(tmp_path) == [*range(60)])
    finally:
        if not broker.alive:
            broker.start()


def test_why_a_connection_has_failed_is_told_rather_than_that_all_have() -> None:
    refused, down = (
        KafkaError(code, why)
        for code, why in ((KafkaError._TRANSPORT, "refused"), (KafkaError._ALL_BROKERS_DOWN, "0/2"))
    )
    for order, last in (((refused, down), "refused"), ((down, refused), "refused"), ((down,), "0/2")):
        seen = brokers.Seen()
        for error in order:
            seen(error)
        assert seen.last == last


def test_a_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    nowhere = Source(
        "clicks", contract=Bare, connector=Kafka("t", "127.0.0.1:1"), watermark=BoundedOutOfOrderness("0 s")
    )
    with pytest.raises(ConnectorError, match="CONNECTOR-230.*127.0.0.1:1") as refused:
        land(nowhere, tmp_path)
    assert "refused" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"servers": "localhost"}, "DEFINITION-311"),
        ({"start": "newest"}, "DEFINITION-311"),
        ({"properties": {"group.id": "mine"}}, "DEFINITION-312"),
        ({"properties": {"sasl.password": "hush"}}, "DEFINITION-298"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=code) as refused:
        Kafka("orders", **{"servers": "localhost:9092", **settings})
    assert "hush" not in str(refused.value)


def test_a_secret_that_is_missing_is_told(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(1)
    secretive = source(
        broker.servers, topic, properties={"sasl.username": "a", "sasl.password": Env("NO_SUCH_PASSWORD")}
    )
    with pytest.raises(ConnectorError, match="CONNECTOR-235.*NO_SUCH_PASSWORD"):
        land(secretive, tmp_path)


def test_a_topic_that_the_broker_lists_and_cannot_describe_yet_is_waited_for(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is for a moment after it was made."""
    topic, asked, real = broker.topic(1), list[str](), kafka.ask

    def ask(admin: AdminClient, settings: Kafka, since: int | None) -> object:
        asked.append(settings.topic)
        if len(asked) < 3:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return real(admin, settings, since)

    monkeypatch.setattr(kafka, "ask", ask)
    broker.put(topic, [(0, message(1))])
    land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == [1]
    assert len(asked) >= 3
