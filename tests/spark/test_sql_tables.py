"""Spark lands a table of a database as the embedded engine does: its workers read ranges of values."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sql_orders import land, landed, source
from sqlalchemy import create_engine, text

from floodmark.engines.spark.landing import run as on_spark
from floodmark.lake.folder.paths import Lake

NOW = int(datetime(2025, 2, 1, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.soak
def test_spark_lands_what_the_embedded_engine_lands(spark: SparkSession, tmp_path: Path) -> None:
    url, here, there = f"sqlite:///{tmp_path}/shop.db", tmp_path / "embedded", tmp_path / "spark"
    shop = create_engine(url)
    with shop.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id BIGINT PRIMARY KEY, at TEXT, cents BIGINT)"))
    for begin in (0, 50):
        with shop.begin() as connection:
            for number in range(begin, begin + 50):
                at = datetime(2025, 1, 1, 0, number * 7 % 60, tzinfo=UTC).isoformat()
                values = {"id": number, "at": at, "cents": None if number % 10 == 0 else number}
                connection.execute(text("INSERT INTO orders VALUES (:id, :at, :cents)"), values)
        land(source(url), here, clock=lambda: NOW)
        on_spark.land(spark, source(url), Lake(str(there)), clock=lambda: NOW)
    assert len(landed(here)) == 90
    assert landed(there) == landed(here)
    shop.dispose()
