"""Spark lands a topic of Kafka as the embedded engine does: its workers read ranges of offsets, or this process the few messages that there are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import debezium_topic
import pytest
from debezium_table import Database
from deltalake import DeltaTable
from kafka_topic import BASE, Click, message, source
from pyspark.sql import SparkSession

from floodmark import BoundedOutOfOrderness, Punctuated
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.spark.landing import run as on_spark
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.source import Strategy
from floodmark.spec.values.schema import RETRACTION, ROW

if TYPE_CHECKING:
    from kafka_broker import Broker


@pytest.mark.parametrize(
    ("strategy", "few"),
    [
        pytest.param(BoundedOutOfOrderness("5 seconds"), False, marks=pytest.mark.feature("D3")),
        pytest.param(BoundedOutOfOrderness("5 seconds"), True, marks=pytest.mark.feature("Z11")),
        pytest.param(Punctuated("number % 5 = 0"), False, marks=pytest.mark.soak),
    ],
    ids=["bounded", "here", "punctuated"],
)
def test_spark_lands_what_the_embedded_engine_lands(
    request: pytest.FixtureRequest,
    broker: Broker,
    spark: SparkSession,
    sail: Sail,
    tmp_path: Path,
    strategy: Strategy,
    few: bool,
) -> None:
    if not few:
        request.getfixturevalue("read_by_workers")
    topic, here, there = broker.topic(3), Lake(str(tmp_path / "embedded")), Lake(str(tmp_path / "spark"))
    clicks = source(broker.servers, topic, Click, watermark=strategy, max_quarantine_share=1)
    for sent in (0, 30):
        broker.put(topic, ((n % 3, message(n, BASE + n * 7919 % 60_000)) for n in range(sent, sent + 30)))
        broker.put(topic, [(1, b"poison"), (2, None)])
        embedded.land(lambda: sail, clicks, here, clock=lambda: BASE + 100_000)
        on_spark.land(spark, clicks, there, clock=lambda: BASE + 100_000)
    assert log(there) == log(here)
    assert {row["number"] for row in log(here)} == {None, *range(60)}
    assert len({row["_watermark"] for row in log(here)}) > 1


@pytest.mark.usefixtures("read_by_workers")
def test_spark_lands_changes_as_the_embedded_engine_does(
    broker: Broker, spark: SparkSession, sail: Sail, tmp_path: Path
) -> None:
    """Where the changes have come to travels from the workers into the next commit, also where they are sent twice."""
    database, topic = Database(random.Random(2)), broker.topic(2)
    here, there = Lake(str(tmp_path / "embedded")), Lake(str(tmp_path / "spark"))
    orders = debezium_topic.source(broker.servers, topic, "avro")
    sent = database.transactions(6)
    for transactions in (sent, [*sent[3:], *database.transactions(3)]):
        for messages in transactions:
            for key, envelope in messages:
                value = None if envelope is None else debezium_topic.message(envelope, "avro")
                broker.put(topic, [(key % 2, value)])
        embedded.land(lambda: sail, orders, here, clock=lambda: BASE + 100_000)
        on_spark.land(spark, orders, there, clock=lambda: BASE + 100_000)
    assert log(there) == log(here)
    retracted = {row["rev"] for row in log(here) if row["_kind"] == RETRACTION}
    assert {row["rev"] for row in log(here) if row["_kind"] == ROW} - retracted == {
        row["rev"] for row in database.rows.values()
    }


def log(lake: Lake) -> list[dict[str, Any]]:
    """The rows of the log and its markers, in order."""
    table = DeltaTable(lake.log("clicks")).to_pyarrow_table().to_pylist()
    return sorted(table, key=lambda row: row["_sequence"])
