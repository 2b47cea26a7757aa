"""From one topic into another: how long it takes from the producer to a reader of committed messages, through landing, operator and delivery.

    python bench/pipeline.py [--rates 1000,20000] [--seconds 30] [--engines embedded,spark]

A broker of one node is started on loopback, as the tests do. The landing, an operator without state and the delivery are supervised streams, as ``floodmark start`` and
``floodmark supervise`` run them; the delivery sends in transactions. The delay of a message is the moment at which a reader with ``read_committed`` has it less the
moment at which it was given to the producer; the first seconds are left out. Each message has to be there once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import kafka_broker
from kafka import PARTITIONS, WARM_SECONDS, message

FLOODMARK = str(Path(sys.executable).with_name("floodmark"))
CODE = '''
"""A topic, its rows, and the topic that they are delivered to."""
from floodmark import BoundedOutOfOrderness, Contract, EventTime, Kafka, Settings, Source, Stream, ToKafka, Workspace
from floodmark import operator, operator_asset, source_asset

class Reading(Contract):
    """A message."""
    at: EventTime
    sensor: str
    value: float
    number: int
    sent: int

source = Source("readings", contract=Reading, connector=Kafka("TOPIC", "SERVERS"), watermark=BoundedOutOfOrderness("1 minute"))
readings = source_asset(source, poll="50 ms")

@operator
def doubled(readings: Stream[Reading]) -> Stream:
    """Each reading, and its double."""
    return readings.with_columns(double="value * 2")

rows = operator_asset(doubled, deliver=[ToKafka("SINK", "SERVERS")])

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    return Workspace(sources=[readings], operators=[rows], settings=Settings(lake="lake", engine="ENGINE"))
'''


@contextmanager
def streams(folder: Path, code: str) -> Iterator[None]:
    """The streams of a workspace at work."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "pipeline_of_bench"\n')
    (folder / "pipeline_of_bench.py").write_text(code)
    subprocess.run([FLOODMARK, "start", "--all"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with (folder / "supervisor.log").open("wb") as log:
        supervisor = subprocess.Popen([FLOODMARK, "supervise"], cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            subprocess.run([FLOODMARK, "stop", "--all"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            supervisor.terminate()
            supervisor.wait()


def read(servers: str, topic: str) -> None:
    """Read a topic, say that the first message is there, and end with the delays once as many are as a line of the input says."""
    from confluent_kafka import Consumer

    asked: list[int] = []
    threading.Thread(target=lambda: asked.append(int(sys.stdin.readline())), daemon=True).start()
    settings = {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "fetch.wait.max.ms": 20})
    consumer.subscribe([topic])
    received: list[tuple[float, bytes]] = []
    while not asked or len(received) < asked[0]:
        for one in consumer.consume(10_000, timeout=0.005):
            assert one.error() is None, one.error()
            if not received:
                sys.stdout.write("\n")
                sys.stdout.flush()
            received.append((time.time() * 1000, one.value()))
    consumer.close()
    rows = [(at, json.loads(value)) for at, value in received]
    assert sorted(row["number"] for _, row in rows) == [*range(asked[0])], "each message once"
    ordered = sorted((row["sent"], at) for at, row in rows)
    first = ordered[1][0] + 1_000 * WARM_SECONDS
    waited = [at - sent for sent, at in ordered if sent >= first]
    cut = statistics.quantiles(waited, n=100)
    sys.stdout.write(
        json.dumps({"messages": len(waited), "p50_ms": cut[49], "p99_ms": cut[98], "greatest_ms": max(waited)})
    )


def delays(broker: kafka_broker.Broker, engine: str, rate: int, seconds: int, folder: Path) -> dict[str, float]:
    """Milliseconds from the producer to the reader, at a rate."""
    topic, sink, producer = broker.topic(PARTITIONS), broker.topic(PARTITIONS), broker.producer(linger_ms=5)
    code = CODE.replace("TOPIC", topic).replace("SINK", sink).replace("SERVERS", broker.servers)
    command = [sys.executable, __file__, "read", broker.servers, sink]
    broker.put(topic, [(0, message(0, 0))])
    with (
        streams(folder, code.replace("ENGINE", engine)),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader,
    ):
        assert reader.stdout is not None
        assert reader.stdout.readline() == "\n", "the first message is there"
        begun, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < WARM_SECONDS + seconds:
            for number in range(sent + 1, int(passed * rate) + 1):
                producer.produce(topic, message(number, time.time_ns() // 1_000_000), partition=number % PARTITIONS)
            sent = max(sent, int(passed * rate))
            producer.poll(0.005)
        assert producer.flush(60) == 0
        answer, _ = reader.communicate(f"{sent + 1}\n")
    numbers: dict[str, float] = json.loads(answer)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1000,20000")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--engines", default="embedded,spark")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "kafka").mkdir()
        with kafka_broker.running(Path(path) / "kafka") as broker:
            for engine in arguments.engines.split(","):
                for rate in map(int, arguments.rates.split(",")):
                    numbers = delays(broker, engine, rate, arguments.seconds, Path(path) / f"{engine}-{rate}")
                    load = round(os.getloadavg()[0], 1)
                    print(json.dumps({"engine": engine, "rate": rate, **numbers, "load": load}), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read", servers, topic]:
            read(servers, topic)
        case _:
            main()
