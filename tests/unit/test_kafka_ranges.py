"""Ranges of a partition that one consumer reads one after the other, told by what the consumer is asked."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition

from floodmark import Contract, EventTime, Kafka, SecretFile
from floodmark.connectors.entries import JsonTexts
from floodmark.connectors.readers import brokers
from floodmark.connectors.readers.kafka import KafkaReader
from floodmark.connectors.unit import Unit


class Click(Contract):
    at: EventTime


@dataclass
class Answer:
    """A message at an offset, or the end of the partition there."""

    at: int
    is_end: bool = False

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return None if self.is_end else b"{}"

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None


@dataclass
class Scripted:
    """A consumer that gives what lies at some offsets of a partition, then once the end of the partition; asked for more, it fails."""

    offsets: list[int]
    end: int
    log: list[Answer] = field(default_factory=list)
    closed: bool = False

    def close(self) -> None:
        self.closed = True

    def assign(self, partitions: list[TopicPartition]) -> None:
        first = partitions[0].offset
        self.log = [*(Answer(at) for at in self.offsets if at >= first), Answer(self.end, is_end=True)]

    def unassign(self) -> None:
        self.log = []

    def consume(self, most: int, _seconds: float) -> list[Answer]:
        assert self.log, "nothing comes behind the end of a partition"
        answers, self.log = self.log[:most], self.log[most:]
        return answers


@pytest.mark.parametrize("offsets", [[0, 1, 2], [], [0, 1, 9, 21], [8], [24]])
@pytest.mark.parametrize("rows", [1, 3, 7, 30])
def test_ranges_at_the_end_of_a_partition_may_be_empty(
    monkeypatch: pytest.MonkeyPatch, offsets: list[int], rows: int
) -> None:
    """Offsets without a message are those of transactions that were given up; the partition ends at 25."""
    settings = Kafka("clicks", "nowhere:1", messages_per_unit=rows)
    made = brokers.Client(Scripted(offsets, 25), brokers.Seen())  # type: ignore[arg-type]  # what is used of a consumer
    key = brokers._of_process(settings), "clicks"
    monkeypatch.setitem(brokers._idle, key, [made])
    reader = KafkaReader(settings, "clicks", Click)
    firsts = range(0, 25, rows)
    units = [Unit(name=f"clicks/0/{at}-{min(at + rows, 25) - 1}", position=f"{min(at + rows, 25)}@id") for at in firsts]
    read = list[int]()
    for number, unit in enumerate(units):
        reader.ahead(units[number : number + 8])
        for entry in reader.open(unit).records():
            assert isinstance(entry, JsonTexts)
            read += entry.positions
    reader.ahead(())
    assert read == offsets
    assert brokers._idle[key] == [made]
    assert made.surplus == []


def test_idle_consumers_of_a_process_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of many topics together; consumers of the process from which this one was forked do not count."""
    monkeypatch.setattr(brokers, "_idle", defaultdict(list))
    brokers._idle[(0, "of another process"), "clicks"] = [brokers.Client(Scripted([], 0), brokers.Seen())] * 100  # type: ignore[arg-type]
    scripted = [Scripted([], 0) for _ in range(brokers._MOST_IDLE + 3)]
    for number, consumer in enumerate(scripted):
        brokers._release(Kafka(f"topic_{number}", "nowhere:1"), brokers.Client(consumer, brokers.Seen()))  # type: ignore[arg-type]
    assert [consumer.closed for consumer in scripted] == [False] * brokers._MOST_IDLE + [True] * 3


def test_clients_of_a_secret_that_is_changed_are_given_up(tmp_path: Path) -> None:
    held = tmp_path / "password"
    held.write_text("one")
    settings = Kafka("changing", "broker:9092", properties={"sasl.password": SecretFile(str(held))})
    idle, seen = Scripted([], 0), brokers.Seen()
    brokers._release(settings, brokers.Client(idle, seen))
    admin, key = brokers.admin_of(settings), brokers._of_process(settings)
    assert (brokers._of_process(settings), idle.closed) == (key, False)
    held.write_text("two")
    assert brokers._of_process(settings) != key
    assert idle.closed
    assert brokers.admin_of(settings)[0] is not admin[0]
