"""A topic of Kafka into a table: how fast, beside Spark's own Kafka source; and how long from the producer to the committed row.

    python bench/kafka.py [--messages 1000000] [--rates 1000,20000] [--seconds 30] [--systems embedded,spark,raw]

A broker of one node is started on loopback, as the tests do. The rate is that of a topic of three partitions with JSON of some 90 bytes, after a small topic
has warmed the process: ``embedded`` and ``spark`` are landings of floodmark, ``raw`` is Spark's own source with ``from_json`` and an append to Delta, which checks no
contract and stamps no row. The delay of a message is the end of the commit that has it less the moment at which it was given to the producer, of a landing that
goes on; the first seconds are left out.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import kafka_broker
from deltalake import DeltaTable

import floodmark as fm
from floodmark.control.processes.engine import Computing, computing
from floodmark.engines.spark.setup import jars
from floodmark.lake.folder.paths import Lake

PARTITIONS, WARM_MESSAGES, WARM_SECONDS, BASE = 3, 5_000, 10, 1_767_225_600_000
CONNECTOR = jars.Jars(
    name="Spark's connector of Kafka",
    folder="jars-spark4.2-kafka",
    coordinates=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    # Spark has the others
    excluded=(
        "org.apache.hadoop:*",
        "com.google.*:*",
        "com.github.*:*",
        "org.scala-*:*",
        "org.slf4j:*",
        "org.xerial*:*",
        "*.lz4:*",
    ),
    files=(
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
        "kafka-clients-3.9.2.jar",
        "commons-pool2-2.13.1.jar",
    ),
)


class Reading(fm.Contract):
    """A message."""

    at: fm.EventTime
    sensor: str
    value: float
    number: int
    sent: int


def source(servers: str, topic: str) -> fm.Source:
    """The source of a topic."""
    return fm.Source(
        "readings",
        contract=Reading,
        connector=fm.Kafka(topic, servers),
        watermark=fm.BoundedOutOfOrderness("1 minute"),
    )


def message(number: int, sent: int) -> bytes:
    """A message's value."""
    row = {"at": BASE + number, "sensor": f"sensor{number % 100}", "value": number / 7, "number": number, "sent": sent}
    return json.dumps(row).encode()


def measured(
    land: Callable[[str, str], None], servers: str, topics: list[str], lake: str, messages: int
) -> dict[str, float]:
    """Messages a second, and seconds of the processor for a million: of the second topic, after the first one."""
    land(topics[0], f"{lake}-warm")
    before, cpu = time.monotonic(), _cpu()
    land(topics[1], lake)
    seconds = time.monotonic() - before
    return {"per_second": messages / seconds, "cpu_seconds_per_million": (_cpu() - cpu) / messages * 1e6}


def _cpu() -> float:
    """Seconds of the processor that this process and its living children have used."""
    import psutil

    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in [own, *own.children(recursive=True)])


def ours(engine: str, servers: str) -> tuple[Computing, Callable[[str, str], None]]:
    """An engine of floodmark, and a landing."""
    settings = fm.Settings(engine=engine)  # type: ignore[arg-type]
    chosen = computing(settings)
    return chosen, lambda topic, lake: chosen.land(source(servers, topic), Lake(lake))


def raw(servers: str) -> Callable[[str, str], None]:
    """Spark's own source."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    paths = ",".join(map(str, [*jars.DELTA.paths, *CONNECTOR.paths]))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", paths)
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    spark = builder.config("spark.sql.catalog.spark_catalog", catalog).config("spark.ui.enabled", "false").getOrCreate()
    schema = "at bigint, sensor string, value double, number bigint, sent bigint"

    def land(topic: str, lake: str) -> None:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka").options(**options).load()
        rows = rows.select(f.from_json(f.col("value").cast("string"), schema).alias("row"), "partition", "offset")
        rows = rows.select("row.*", f.timestamp_millis("row.at").alias("event_time"), "partition", "offset")
        writer = rows.writeStream.format("delta").option("checkpointLocation", f"{lake}-checkpoint")
        writer.trigger(availableNow=True).start(lake).awaitTermination()

    return land


def follow(engine: str, servers: str, topic: str, lake: str) -> None:
    """Land a topic until a line comes in; a line is written per commit: its rows, and its end."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    chosen, _ = ours(engine, servers)

    def told(done: Any) -> None:
        sys.stdout.write(f"{done.rows} {time.time()}\n")
        sys.stdout.flush()

    chosen.land(source(servers, topic), Lake(lake), until_caught_up=False, poll_seconds=0.05, stop=stop, on_commit=told)


def delays(broker: kafka_broker.Broker, engine: str, rate: int, seconds: int, lake: str) -> dict[str, float]:
    """Milliseconds from the producer to the committed row, at a rate."""
    topic, producer = broker.topic(PARTITIONS), broker.producer(linger_ms=5)
    command = [sys.executable, __file__, "follow", engine, broker.servers, topic, lake]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        commits = list[tuple[int, float]]()
        lines = process.stdout

        def read() -> None:
            for line in lines:
                rows, end = line.split()
                commits.append((int(rows), float(end)))

        reading = threading.Thread(target=read)
        reading.start()
        broker.put(topic, [(0, message(0, 0))])
        while not commits:  # until the landing follows
            time.sleep(0.1)
        begun, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            for number in range(sent, int(passed * rate)):
                producer.produce(topic, message(number, time.time_ns() // 1_000_000), partition=number % PARTITIONS)
            sent = max(sent, int(passed * rate))
            producer.poll(0.005)
        assert producer.flush(60) == 0
        while sum(rows for rows, _ in commits) <= sent:
            time.sleep(0.1)
        process.stdin.write("\n")
        process.stdin.close()
        reading.join()
    columns = ["_sequence", "_kind", "sent", "number"]
    rows = DeltaTable(Lake(lake).log("readings")).to_pyarrow_table(columns=columns).sort_by("_sequence").to_pydict()
    moments = [at for at, kind in zip(rows["sent"], rows["_kind"], strict=True) if kind == 0]
    ends = [end for count, end in commits for _ in range(count)]
    assert len(moments) == len(ends) == sent + 1
    first = moments[1] + 1_000 * min(WARM_SECONDS, seconds // 2)
    waited = [1_000 * end - at for at, end in zip(moments, ends, strict=True) if at >= first]
    cut = statistics.quantiles(waited, n=100)
    return {"messages": sent, "p50_ms": cut[49], "p99_ms": cut[98], "greatest_ms": max(waited), "commits": len(commits)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rates", default="1000,20000")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--systems", default="embedded,spark,raw")
    arguments = parser.parse_args()
    systems = [name for name in arguments.systems.split(",") if name]
    if "raw" in systems:
        jars.fetch(CONNECTOR)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kafka").mkdir()
        with kafka_broker.running(Path(folder) / "kafka") as broker:
            topics = [broker.topic(PARTITIONS), broker.topic(PARTITIONS)]
            for topic, count in zip(topics, (WARM_MESSAGES, arguments.messages), strict=True):
                broker.put(topic, ((number % PARTITIONS, message(number, 0)) for number in range(count)))
            for system in systems if arguments.messages else ():
                command = [
                    sys.executable,
                    __file__,
                    "rate",
                    system,
                    broker.servers,
                    *topics,
                    f"{folder}/{system}",
                    str(arguments.messages),
                ]
                subprocess.run(command, check=True)
            for rate in (int(rate) for rate in arguments.rates.split(",") if rate):
                for engine in (name for name in systems if name != "raw"):
                    numbers = delays(broker, engine, rate, arguments.seconds, f"{folder}/{engine}-{rate}")
                    print(json.dumps({"system": engine, "rate": rate, **numbers}), flush=True)


def _rate(system: str, servers: str, first: str, second: str, lake: str, messages: int) -> None:
    land = raw(servers) if system == "raw" else ours(system, servers)[1]
    print(json.dumps({"system": system, **measured(land, servers, [first, second], lake, messages)}), flush=True)
    os._exit(0)  # Spark's own end takes seconds that nobody measures


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["rate", system, servers, first, second, lake, messages]:
            _rate(system, servers, first, second, lake, int(messages))
        case ["follow", engine, servers, topic, lake]:
            follow(engine, servers, topic, lake)
        case _:
            main()
