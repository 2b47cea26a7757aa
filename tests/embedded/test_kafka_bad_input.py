"""Topics as they should not be: huge messages, very many broken ones, two landings, refused credentials."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
import kafka_broker
import kafka_topic
import pytest
from deltalake import DeltaTable
from following import following
from kafka_topic import BASE, Bare, land, message, source
from processes import paths

from floodmark import BoundedOutOfOrderness, Contract, Env, EventTime, Kafka, Source
from floodmark.connectors.readers import brokers, kafka
from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.engines.landing.run import locked
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.entries import is_table

if TYPE_CHECKING:
    from kafka_broker import Broker


def numbers(lake: Path) -> list[int]:
    table = DeltaTable(Lake(str(lake)).log("clicks")).to_pyarrow_table().to_pylist()
    return sorted(row["number"] for row in table if row["_kind"] == 0)


def secure(broker: Broker, topic: str, **properties: Any) -> Source:
    """A source through the listener with TLS and SASL."""
    own = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.folder / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "lander",
        "sasl.password": Env("KAFKA_PASSWORD"),
    }
    return source(f"127.0.0.1:{broker.secure}", topic, properties=own | properties)


def test_a_topic_is_read_through_tls_with_a_password_by_reference(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic(1)
    broker.put(topic, [(0, message(1))])
    monkeypatch.setenv("KAFKA_PASSWORD", kafka_broker.PASSWORD)
    land(secure(broker, topic), tmp_path)
    assert numbers(tmp_path) == [1]
    monkeypatch.setattr(brokers, "ASK_SECONDS", 6.0)  # long enough for a busy machine to hear why
    monkeypatch.setenv("KAFKA_PASSWORD", "another")
    refused = {"sasl.username": "somebody"}, {"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}
    for properties, reason in zip(refused, ("uthentication failed", "ertificate"), strict=True):
        with pytest.raises(ConnectorError, match=f"CONNECTOR-230.*{reason}"):
            land(secure(broker, topic, **properties), tmp_path)


def test_a_landing_that_goes_on_waits_for_a_broker_that_is_away_at_its_start(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "ASK_SECONDS", 0.5)
    topic = broker.topic(1)
    broker.put(topic, [(0, message(1))])
    broker.kill()
    try:
        with following(partial(land, source(broker.servers, topic), tmp_path)) as landing:
            for _ in range(2):
                landing.until_said(f"clicks: the brokers {broker.servers} do not answer", capsys)
            broker.start()
            landing.until(lambda: is_table(Lake(str(tmp_path)).log("clicks")) and numbers(tmp_path) == [1])
    finally:
        if not broker.alive:
            broker.start()


def test_a_message_of_30_mb_lands(broker: Broker, tmp_path: Path) -> None:
    class Long(Contract):
        """A long message."""

        at: EventTime
        number: int
        text: str

    topic = broker.topic(1, max_message_bytes=40_000_000)
    producer = broker.producer(message_max_bytes=40_000_000)
    for number in range(3):
        row = {"at": BASE, "number": number, "text": "x" * (30_000_000 if number == 1 else 1)}
        producer.produce(topic, json.dumps(row).encode(), partition=0)
    assert producer.flush(60) == 0
    land(source(broker.servers, topic, Long), tmp_path)
    table = DeltaTable(Lake(str(tmp_path)).log("clicks")).to_pyarrow_table().to_pylist()
    lengths = {row["number"]: len(row["text"]) for row in table if row["_kind"] == 0}
    assert lengths == {0: 1, 1: 30_000_000, 2: 1}


def test_very_many_broken_messages_stop_the_landing_or_are_set_aside(broker: Broker, tmp_path: Path) -> None:
    topic, count = broker.topic(1), 100_000
    broker.put(topic, ((0, b"poison%d" % number) for number in range(count)))
    broker.put(topic, [(0, message(1))])
    with pytest.raises(ConnectorError, match="CONNECTOR-012.*100,000 of 100,001"):
        land(source(broker.servers, topic, messages_per_unit=50_000), tmp_path)
    tolerant = source(broker.servers, topic, messages_per_unit=50_000, max_quarantine_share=1)
    assert land(tolerant, tmp_path).quarantined == count
    assert numbers(tmp_path) == [1]
    assert DeltaTable(Lake(str(tmp_path)).quarantine("clicks")).to_pyarrow_dataset().count_rows() == count


def test_two_sources_of_one_topic_land_apart_and_two_landings_of_one_source_do_not(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(2)
    broker.put(topic, ((number % 2, message(number)) for number in range(40)))
    clicks = source(broker.servers, topic)
    other = Source(
        "others", contract=Bare, connector=Kafka(topic, broker.servers), watermark=BoundedOutOfOrderness("0 s")
    )
    land(other, tmp_path)
    with locked(Lake(str(tmp_path)), clicks), pytest.raises(LifecycleError, match="LIFECYCLE-003"):
        land(clicks, tmp_path)
    command = [sys.executable, kafka_topic.__file__, broker.servers, topic, str(tmp_path)]
    environment = {"PYTHONPATH": paths(), "PATH": "/usr/bin:/bin"}
    landings = [forked.begin(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [landing.communicate()[1] for landing in landings]
    assert all(
        landing.returncode == 0 or "LIFECYCLE-003" in error for landing, error in zip(landings, errors, strict=True)
    ), errors
    assert numbers(tmp_path) == [*range(40)]
    table = DeltaTable(Lake(str(tmp_path)).log("others")).to_pyarrow_table().to_pylist()
    assert sorted(row["number"] for row in table if row["_kind"] == 0) == [*range(40)]


def test_a_broker_that_has_not_read_its_own_log_yet_is_waited_for(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL it answers with an earlier end for a moment: that is no topic that was made anew."""
    topic, ask, answers = broker.topic(1), kafka.ask, [*range(4)]
    broker.put(topic, ((0, message(number)) for number in range(9)))
    land(source(broker.servers, topic), tmp_path)

    def early(*arguments: Any) -> Any:
        seen = ask(*arguments)
        if not answers:
            return seen
        answers.pop()
        return seen._replace(offsets={0: (0, 5)})

    monkeypatch.setattr(kafka, "ask", early)
    broker.put(topic, [(0, message(9))])
    land(source(broker.servers, topic), tmp_path)
    assert numbers(tmp_path) == [*range(10)]
    monkeypatch.setattr(kafka, "ASK_SECONDS", 0.3)
    answers += range(1000)
    lost = "CONNECTOR-236 .*partition 0 ends at offset 5, and 10 have landed.*floodmark land clicks.*new source name"
    with pytest.raises(ConnectorError, match=lost):
        land(source(broker.servers, topic), tmp_path)


# ---- messages that are removed while they are read


@pytest.mark.feature("D3")
@pytest.mark.parametrize(("removed", "further"), [(9, 17), pytest.param(40, 40, marks=pytest.mark.soak)])
def test_messages_that_are_removed_between_the_look_and_the_read_are_a_gap_like_others(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int, further: int
) -> None:
    topic = broker.topic(2)
    broker.put(topic, ((number % 2, message(number)) for number in range(80)))
    remove_after_look(broker, topic, removed, monkeypatch)
    with pytest.raises(ConnectorError, match=f'CONNECTOR-232.*{removed} offsets of partition 1.*on_gap="continue"'):
        land(source(broker.servers, topic), tmp_path)
    remove_after_look(broker, topic, further, monkeypatch)
    with following(partial(land, source(broker.servers, topic, on_gap="continue"), tmp_path)) as landing:
        landing.until(lambda: len(numbers(tmp_path)) == 80 - further)
        broker.put(topic, [(1, message(100))])
        landing.until(lambda: 100 in numbers(tmp_path))
    assert numbers(tmp_path) == sorted([*range(0, 80, 2), *range(2 * further + 1, 80, 2), 100])
    entries = DeltaTable(Lake(str(tmp_path)).quarantine("clicks")).to_pyarrow_table().to_pylist()
    counts = [int(re.search(r"before they landed: (\d+) of partition 1", entry["reason"])[1]) for entry in entries]  # type: ignore[index]
    assert sum(counts) == further


def remove_after_look(broker: Broker, topic: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of partition 1 before an offset are removed as soon as a landing has planned what it reads."""
    pending = kafka.KafkaReader.pending

    def planned(*arguments: Any) -> Any:
        units = pending(*arguments)
        monkeypatch.setattr(kafka.KafkaReader, "pending", pending)
        broker.forget(topic, 1, before)
        return units

    monkeypatch.setattr(kafka.KafkaReader, "pending", planned)
