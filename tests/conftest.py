"""Shared fixtures: one Spark session per test process, a fresh lake per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.engines.spark.lake import Lake


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process."""
    from floodmark.engines.spark.session import spark_session  # noqa: PLC0415 - unit tests need no Spark

    session = spark_session(app="tests")
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake of the test's own."""
    from floodmark.engines.spark.lake import Lake  # noqa: PLC0415 - its package imports Spark

    return Lake(str(tmp_path / "lake"))
