"""Spark Connect: bounded runs against Spark 4.2's own server, with the client alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from events import disorder
from ports import free_port, refusing_port
from pydantic import field_validator
from streams import ONCE, PAIRED, PLAIN, WINDOWED

from floodmark import (
    Ascending,
    Contract,
    EventTime,
    Files,
    Hourly,
    Source,
    Stream,
    Tumbling,
    count,
    operator,
    operator_asset,
    sum,
)
from floodmark.control.processes.engine import OnSpark, computing
from floodmark.core.errors import CapabilityError, ExecutionError, SetupError
from floodmark.core.time import Interval
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.connect import session as connect
from floodmark.engines.spark.connect.server import OnConnect
from floodmark.engines.spark.landing import workers
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.budget import Budget
from floodmark.spec.workspace import Settings
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    """Spark's own Connect server, in the Java of the tests; its address."""
    jvm = spark._jvm
    assert jvm is not None
    port = free_port()
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", str(port))
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{port}"
    none = jvm.scala.Option.empty()
    service.stop(none, none)


@pytest.fixture
def connected(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnConnect]:
    """The engine; for the time of a test, ``functions`` are those of Spark Connect."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    engine = computing(Settings(master=server, shuffle_partitions=1))
    assert isinstance(engine, OnConnect)
    yield engine
    if engine.session is not None:
        connect.stop(engine.session)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(WINDOWED, id="windowed"),
        *(pytest.param(o, id=o.name, marks=pytest.mark.soak) for o in (ONCE, PAIRED, PLAIN)),
    ],
)
def test_a_bounded_run_has_the_rows_of_the_embedded_engine(
    connected: OnConnect, tmp_path: Path, code: Operator
) -> None:
    lake, log = Lake(str(tmp_path)), disorder(code, 3, 180)
    land(lake, code, log)
    connected.run_bounded(code, lake, Interval())
    expected = MemoryRun(code).batch({code.inputs[0].name: log.table()})
    got = outputs(lake, code)
    for name, table in expected.items():
        assert final([got[name]]) == final([table]), name


def _rows(lake: Lake, code: Operator) -> dict[str, list[dict[str, Any]]]:
    own = ["_progress", "_sequence", "_ingest_time"]
    tables = {name: table.drop_columns(own) for name, table in outputs(lake, code).items()}
    return {name: sorted(table.to_pylist(), key=repr) for name, table in tables.items()}


class Reading(Contract):
    at: EventTime
    key: str
    text: str | None
    number: int


class Mended(Reading):
    """What was no number is one now."""

    @field_validator("number", mode="before")
    @classmethod
    def _number(cls, number: object) -> object:
        return 0 if number == "none" else number


TEXTS = ("1", "x", "", "2020-02-30", "9223372036854775808", None)


def _readings(folder: Path, contract: type[Reading] = Reading) -> Source:
    folder.mkdir(exist_ok=True)
    lines = [
        f"2001-01-01T00:00:{n % 60:02d},{'ab'[n % 2]},{TEXTS[n % 6] or ''},{n % 5 if n % 17 else 'none'}"
        for n in range(90)
    ]
    (folder / "0.csv").write_text("\n".join(["at,key,text,number", *lines]))
    connector = Files(str(folder), format="csv", min_age="0 s")
    return Source("readings", contract=contract, connector=connector, watermark=Ascending(), max_quarantine_share=1)


def _failing(readings: Stream[Reading]) -> Stream:
    good = readings.with_columns(whole="CAST(text AS int)", part="10 / number", on_error="quarantine")
    good = good.with_columns(pairs="map(key, 100 / (number - 3))", on_error="quarantine").key_by("key")
    return good.window(Tumbling("10 seconds"), on_error="quarantine").aggregate(
        total=sum("whole + 1 / (number - 4)"), n=count()
    )


def _stopping(readings: Stream[Reading]) -> Stream:
    return readings.with_columns(part="10 / number")


@pytest.mark.soak
def test_files_land_and_rows_that_fail_are_set_aside_as_where_the_driver_is_here(
    connected: OnConnect, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _readings(tmp_path / "inbox")
    lake, other = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "other"), logs=str(tmp_path / "lake"))
    monkeypatch.setattr(workers, "_AT_HAND_BYTES", 0)
    landed = connected.land(source, lake)
    assert (landed.rows, landed.quarantined) == (84, 6)
    replayed = connected.replay(_readings(tmp_path / "inbox", Mended), lake)
    assert (replayed.landed, replayed.still_broken) == (6, 0)
    assert connected.replay(_readings(tmp_path / "inbox", Mended), lake).landed == 0
    failing, stopping = operator(name="failing")(_failing), operator(name="stopping")(_stopping)
    connected.run_bounded(failing, lake, Interval())
    with pytest.raises(ExecutionError, match="EXECUTION-050 .*DIVIDE_BY_ZERO"):
        connected.run_bounded(stopping, lake, Interval())
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    run_bounded(spark, failing, other)
    expected = _rows(other, failing)
    assert len(expected["quarantine"]) > 20
    assert _rows(lake, failing) == expected


@pytest.mark.soak
def test_an_interval_of_a_divided_table_is_replaced(connected: OnConnect, tmp_path: Path) -> None:
    """All of time, then an interval in which files hold other rows too."""
    code = operator_asset(WINDOWED, partitions=Hourly("2020-01-01")).operator
    lake, log = Lake(str(tmp_path)), disorder(code, 3, 180)
    land(lake, code, log)
    connected.run_bounded(code, lake, Interval())
    before = _rows(lake, code)
    first = (
        min(moment for moment in log.table()["_event_time"].to_pylist() if moment is not None) // 3_600_000 * 3_600_000
    )
    connected.run_bounded(code, lake, Interval(start=first + 3_600_000, end=first + 7_200_000), force=True)
    assert _rows(lake, code) == before


def test_a_stream_is_refused_before_it_starts(tmp_path: Path) -> None:
    engine = computing(Settings(master="sc://127.0.0.1:1/;use_ssl=true"))
    with pytest.raises(CapabilityError, match=r"CAPABILITY-066 stream 'windowed'.* --unbounded --engine embedded"):
        engine.check_stream(WINDOWED, Lake(str(tmp_path)))


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("sc://127.0.0.1:{port}", r"SETUP-120 Spark master sc://127.0.0.1:\d+: .*within 3 s.*refused"),
        ("sc://127.0.0.1:{port}/;token=abc", r"SETUP-121 .*a secret by reference.*spark.connect.token"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_in_seconds(master: str, expected: str) -> None:
    with refusing_port() as port, pytest.raises(SetupError, match=expected) as error:
        computing(Settings(master=master.format(port=port))).start()
    assert "abc" not in str(error.value)


def test_cores_and_memory_of_a_budget_are_the_servers() -> None:
    with pytest.raises(CapabilityError, match="CAPABILITY-069"):
        computing(Settings(master="sc://127.0.0.1:1"), budget=Budget(cores=1))


def test_what_reads_sparks_state_asks_for_a_driver_here() -> None:
    engine = OnSpark(Settings(master="sc://127.0.0.1:1"), "tests", lambda _: nullcontext())
    with pytest.raises(CapabilityError, match=r"CAPABILITY-070 .*FLOODMARK_MASTER='local\[2\]'"):
        _ = engine.spark
