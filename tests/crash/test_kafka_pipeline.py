"""A topic through landing, windows and delivery into another topic, while all that does it is killed and partitions are added: nothing is lost, nothing is there twice.

A landing is in no consumer group: it reads the partitions that the broker names, and new ones with its next look. A group of somebody else's reads both topics meanwhile
and is rebalanced all the time, as its members come and go.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.compute as pc
import pytest
from background import check, in_background
from confluent_kafka import Consumer, KafkaException
from deltalake import DeltaTable
from kafka_topic import committed
from seeds import seed_of
from supervised import fleet_of, supervisors

from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.lake.stream.delivered import delivered
from floodmark.spec.values.schema import ROW

if TYPE_CHECKING:
    from kafka_broker import Broker

BASE, LONG_MS, KEYS, AFTER = 1_700_000_000_000, 10_000_000, 50, -1
"""First event time; event time of all messages; keys; key of the messages that close all windows."""
STREAMS = ("readings", "minutely", "minutely_to_kafka")
PATIENCE_SECONDS = 900
WORKERS = "floodmark.engines.spark.session.daemon"
"""Module of the process that forks the Python workers of Spark."""
CODE = '''
"""A topic, sums of its windows, and the topic that they are delivered to."""
from floodmark import BoundedOutOfOrderness, Contract, EventTime, Kafka, Restart, Settings, Source, Stream, ToKafka, Tumbling, Workspace
from floodmark import count, operator, operator_asset, source_asset, sum

AGAIN = Restart.fixed("0 s", budget=None)

class Reading(Contract):
    """A message."""
    at: EventTime
    number: int

source = Source(
    "readings",
    contract=Reading,
    connector=Kafka("TOPIC", "SERVERS", messages_per_unit=UNIT),
    watermark=BoundedOutOfOrderness("5 seconds"),
)
readings = source_asset(source, poll="50 ms", restart=AGAIN)

@operator
def minutely(readings: Stream[Reading]) -> Stream:
    """Sums of a minute."""
    keyed = readings.with_columns(key="CASE WHEN number < 0 THEN -1 ELSE number % 50 END").key_by("key")
    return keyed.window(Tumbling("1 minute"), allowed_lateness="1 hour").aggregate(n=count(), total=sum("number"))

sums = operator_asset(minutely, deliver=[ToKafka("SINK", "SERVERS", restart=AGAIN)], restart=AGAIN)

def workspace(environment: str = "dev") -> Workspace:
    """All of it, each stream in a process of its own."""
    settings = Settings(lake="lake", engine="ENGINE", streams="isolated")
    return Workspace(sources=[readings], operators=[sums], settings=settings)
'''


class Pipeline:
    """The pipeline, whose processes a test kills.

    Args:
        fleet: of its streams.
        broker: of both topics.
        topic: that is landed.
    """

    def __init__(self, fleet: Fleet, broker: Broker, topic: str) -> None:
        self.fleet, self.broker, self.topic = fleet, broker, topic
        self.kills = Counter[str]()

    def kill(self, name: str) -> None:
        """SIGKILL to the driver of a stream, to a worker, which is Sail's server or one of Spark's in Python, or to the broker, and wait until it is there again."""
        if name == "broker":
            self.broker.kill()
            self.broker.start()
        elif name == "worker":
            until(self._kill_worker, name)
        else:
            driver = self.running(name)
            assert driver.pid is not None
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(driver.pid, signal.SIGKILL)
            self.running(name, behind=driver.epoch)
        self.kills[name] += 1

    def _kill_worker(self) -> bool:
        """SIGKILL to Sail's server or to a worker of Spark; False if there is none now."""
        for process in self._spark_workers():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                return True
        for file in self.fleet.home.rglob("server*.json"):
            with suppress(ProcessLookupError, FileNotFoundError):  # it has gone since it was listed
                os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)
                return True
        return False

    def _spark_workers(self) -> Iterator[psutil.Process]:
        """The workers in Python of the streams on Spark, which are forked from one process for each stream."""
        for name in STREAMS:
            driver = self.fleet.driver(name)
            if driver is None or driver.pid is None:
                continue
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(driver.pid).children(recursive=True):
                    parent = process.parent()
                    if parent is not None and WORKERS in process.cmdline() and WORKERS in parent.cmdline():
                        yield process

    def running(self, name: str, behind: int = -1) -> Driver:
        """The running driver of a stream, of a later epoch."""

        def newest() -> Driver | None:
            driver = self.fleet.driver(name)
            is_there = driver is not None and driver.state == "running" and driver.ended_at is None
            return driver if is_there and driver is not None and driver.epoch > behind else None

        driver: Driver = until(newest, name)
        return driver

    def put(self, numbers: range, step: int, partitions: int) -> None:
        """Send the messages of some numbers, in turn to each partition."""
        producer = self.broker.producer(queue_buffering_max_messages=2_000_000)
        for number in numbers:
            value = json.dumps({"at": BASE + number * step, "number": number}).encode()
            producer.produce(self.topic, value, partition=number % partitions)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0

    def close_windows(self, partitions: int) -> None:
        """Send a message to each partition that is behind all windows."""
        late = {"at": BASE + LONG_MS + 86_400_000, "number": AFTER}
        self.broker.put(self.topic, ((partition, json.dumps(late).encode()) for partition in range(partitions)))


@contextmanager
def supervising(fleet: Fleet) -> Iterator[None]:
    """A supervisor at work in a thread."""
    over = threading.Event()
    with supervisors(fleet) as supervisor:
        running = in_background(supervisor().run, over)
        try:
            yield
        finally:
            over.set()
            running.result(PATIENCE_SECONDS)


@dataclass
class Group:
    """A consumer group of somebody else's over both topics, of two members: the older one leaves, and a new one comes.

    Args:
        broker: of the topics.
        topics: that it reads.
    """

    broker: Broker
    topics: list[str]
    rebalances: int = 0
    _over: threading.Event = field(init=False, default_factory=threading.Event)
    _members: Future[None] = field(init=False)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Members come and go in a thread, until the end."""
        self._members = in_background(self._run)
        try:
            yield
        finally:
            self._over.set()
            self._members.result(PATIENCE_SECONDS)

    def has_rebalanced(self, before: int) -> bool:
        """Whether there was a rebalance since; raises what has ended the members before their time."""
        check(self._members)
        return self.rebalances > before

    def _run(self) -> None:
        members = [self._member(), self._member()]
        while not self._over.is_set():
            before, end = self.rebalances, time.monotonic() + 10
            while self.rebalances == before and not self._over.is_set() and time.monotonic() < end:
                for member in members:
                    with suppress(KafkaException):  # the broker is killed meanwhile
                        member.consume(1000, timeout=0.1)
            with suppress(KafkaException):
                members.pop(0).close()
            members.append(self._member())
        for member in members:
            with suppress(KafkaException):
                member.close()

    def _member(self) -> Consumer:
        settings = {"group.id": "others", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        member = Consumer({"bootstrap.servers": self.broker.servers, "log_level": 0, **settings})
        member.subscribe(self.topics, on_assign=self._assigned)
        return member

    def _assigned(self, *_: object) -> None:
        self.rebalances += 1


def until(ask: Callable[[], Any], what: object) -> Any:
    """Wait for an answer that is true."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := ask()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return answer


# ---- what there should be, and what there is


def expected(count: int, step: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(key, start of the window in minutes) -> number and sum of its messages."""
    sums: dict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for number in range(count):
        window = number % KEYS, (BASE + number * step) // 60_000
        n, total = sums[window]
        sums[window] = n + 1, total + number
    return dict(sums)


def landed(fleet: Fleet) -> list[int]:
    """The numbers of the rows of the log."""
    if not DeltaTable.is_deltatable(fleet.lake.log("readings")):
        return []
    rows = DeltaTable(fleet.lake.log("readings")).to_pyarrow_dataset()
    numbers = rows.to_table(columns=["number"], filter=(pc.field("_kind") == ROW) & (pc.field("number") >= 0))
    return sorted(numbers["number"].to_pylist())


def computed(fleet: Fleet) -> dict[tuple[int, int], tuple[int, int]]:
    """As ``expected``, of the results in the lake."""
    if not DeltaTable.is_deltatable(fleet.lake.output("minutely__current")):
        return {}
    rows = DeltaTable(fleet.lake.output("minutely__current")).to_pyarrow_table().to_pylist()
    kept = [row for row in rows if row["_kind"] == ROW and row["key"] != AFTER]
    results = {(row["key"], int(row["window_start"].timestamp()) // 60): (row["n"], row["total"]) for row in kept}
    assert len(results) == len(kept)
    return results


def read(broker: Broker, sink: str) -> dict[tuple[int, int], tuple[int, int]]:
    """As ``expected``, of the last message of each key that a reader of committed messages sees; no change is there twice."""
    messages = committed(broker, sink, partitions=3)
    times = Counter((message.key(), dict(message.headers())["floodmark-number"]) for message in messages)
    assert set(times.values()) == {1}
    rows = [json.loads(value) for value in {one.key(): one.value() for one in messages}.values() if value is not None]
    return {
        (row["key"], int(datetime.fromisoformat(row["window_start"]).timestamp()) // 60): (row["n"], row["total"])
        for row in rows
        if row["key"] != AFTER
    }


@pytest.mark.feature("D3", "E4", "Z12")
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    ("runs_on", "count", "rounds"),
    [
        ("embedded", 3_000, 1),
        pytest.param("embedded", 1_000_000, 10, marks=pytest.mark.soak),
        pytest.param("spark", 30_000, 2, marks=pytest.mark.soak),
        pytest.param("spark", 1_000_000, 10, marks=pytest.mark.soak),
    ],
)
def test_each_message_counts_once_in_the_lake_and_in_the_topic_of_the_delivery(
    broker: Broker, tmp_path: Path, runs_on: str, count: int, rounds: int
) -> None:
    drawn, partitions, step = random.Random(seed_of(f"pipeline of {count}")), 3, LONG_MS // count
    topic, sink = broker.topic(partitions), broker.topic(3)
    unit = max(100, count // 100)
    code = (
        CODE.replace("TOPIC", topic).replace("SINK", sink).replace("SERVERS", broker.servers).replace("ENGINE", runs_on)
    )
    fleet = fleet_of(tmp_path, code.replace("UNIT", f"{unit}"))
    victims = [*STREAMS, "broker", "worker"]
    pipeline, group, begun = Pipeline(fleet, broker, topic), Group(broker, [topic, sink]), time.monotonic()
    pipeline.put(range(count // (rounds + 1)), step, partitions)
    with supervising(fleet), group.at_work():
        fleet.start([fleet.workspace.stream("readings")])
        until(lambda: landed(fleet), "rows in the log")
        fleet.start([fleet.workspace.stream(name) for name in STREAMS[1:]])
        for name in STREAMS:
            pipeline.running(name)
        for number in range(1, rounds + 1):
            numbers = range(number * count // (rounds + 1), (number + 1) * count // (rounds + 1))
            before = group.rebalances
            for place, name in enumerate(drawn.sample(victims, len(victims))):
                # a share of the messages beside each kill: without messages Spark has no workers after a minute
                share = numbers[place * len(numbers) // len(victims) : (place + 1) * len(numbers) // len(victims)]
                sending = in_background(pipeline.put, share, step, partitions)
                time.sleep(drawn.random())
                pipeline.kill(name)
                sending.result(PATIENCE_SECONDS)
            until(partial(group.has_rebalanced, before), "a rebalance in each round")
            if number % 3 == 1:
                partitions += 1
                broker.widen(topic, partitions)
        pipeline.close_windows(partitions)
        until(lambda: len(landed(fleet)) >= count, "all messages in the log")
        assert landed(fleet) == [*range(count)]
        wanted = expected(count, step)
        until(lambda: computed(fleet) == wanted, "all results in the lake")
        path = fleet.lake.output("minutely")
        newest = DeltaTable(path).version()
        until(lambda: (at := delivered(fleet.lake, "minutely_to_kafka")) and at.version >= newest, "all delivered")
        assert read(broker, sink) == wanted
        assert pipeline.kills == dict.fromkeys(victims, rounds)
        seconds = time.monotonic() - begun
        commits = DeltaTable(path).version() + 1
    print(  # noqa: T201 - what it took
        f"{count:,} messages, {partitions} partitions, kills {dict(pipeline.kills)}, {group.rebalances} rebalances beside: {seconds:.0f} s, {count / seconds:,.0f} a second, {commits} micro-batches"
    )
