"""Shared fixtures: one Spark session per test process, a fresh lake per test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from floodmark.spec.workspace import Settings

settings.register_profile("floodmark", deadline=None)  # a busy machine is no failure
settings.load_profile("floodmark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.control.engine import Computing
    from floodmark.lake.paths import Lake


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process."""
    from floodmark.engines.spark.session.builder import spark_session

    session = spark_session(app="tests")
    yield session
    session.stop()


@pytest.fixture(params=["spark", "embedded"])
def engine(request: pytest.FixtureRequest) -> Computing:
    """Each engine in turn; the embedded one starts a server when it is needed, which ends with this process."""
    from floodmark.control.engine import OnEmbedded, OnSpark

    settings = Settings(memory=300)
    if request.param == "embedded":
        return OnEmbedded(settings, lambda _: nullcontext())
    return OnSpark(settings, "tests", lambda _: nullcontext(), request.getfixturevalue("spark"))


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Spark compiles what it runs here, as it does for users, where the run of the group has it interpret (tests/run.py)."""
    wanted = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake of the test's own."""
    from floodmark.lake.paths import Lake

    return Lake(str(tmp_path / "lake"))


@pytest.fixture(scope="session")
def flights_inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of flights, about 3,300 rows, in 20 files."""
    from flights import write_small_inbox

    return write_small_inbox(tmp_path_factory.mktemp("flights"), days=4, pieces=5)


@pytest.fixture(scope="session")
def landed(spark: SparkSession, flights_inbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose log holds the four days in 20 commits, and their end."""
    from flights import land_all

    from floodmark.lake.paths import Lake

    lake = Lake(str(tmp_path_factory.mktemp("landed")))
    land_all(spark, flights_inbox, lake, end=True)
    return lake
