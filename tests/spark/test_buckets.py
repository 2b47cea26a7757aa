"""A lake in a bucket on Spark: the rows of the embedded engine, and no commit of Spark's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from events import disorder
from s3_server import Plan, environment
from streams import ONCE, PAIRED, PLAIN, WINDOWED

from floodmark import Ascending, Contract, EventTime, Files, Hourly, Source, operator_asset
from floodmark.core.time import Interval
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.landing import run as spark_landing
from floodmark.engines.spark.session import store
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import PARTITION, ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from s3_server import Proxy, Server

HOURLY: Operator = operator_asset(WINDOWED, partitions=Hourly("2020-01-01")).operator
"""Its table is divided by asset partition."""


@pytest.fixture
def on_s3(spark: SparkSession, s3_proxy: Proxy) -> SparkSession:
    """The session, which reaches the store: its Java has begun without the variables of the store."""
    variables = environment(s3_proxy.url)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    secrets = {
        "fs.s3a.access.key": variables["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": variables["AWS_SECRET_ACCESS_KEY"],
    }
    for name, value in (store.settings(variables) | secrets).items():
        hadoop.set(name, value)
    spark.sparkContext.environment |= variables
    return spark


def _landed(lake: Lake, code: Operator, log: Log, commits: int) -> None:
    for first, last in pairwise(len(log.entries) * n // commits for n in range(commits + 1)):
        land(lake, code, log, first, last)


def _check(lake: Lake, code: Operator, log: Log) -> None:
    """Every output has the rows of the engine of tests, once, and nothing was committed by Spark."""
    expected = MemoryRun(code).batch({code.inputs[0].name: log.table()})
    got = outputs(lake, code)
    for name, table in expected.items():
        rows = got[name].drop_columns([PARTITION]) if PARTITION in got[name].column_names else got[name]
        assert final([rows]) == final([table]), name
    for output in code.outputs:
        _check_commits(lake.output(output.table))


def _check_commits(path: str) -> None:
    for version in range(entries.version_of(path) + 1):
        entry = entries.entry(path, version)
        assert entry is not None
        engines = {
            action["commitInfo"].get("engineInfo", "") for action in entries.actions(entry) if "commitInfo" in action
        }
        assert not any("Spark" in engine for engine in engines), (version, engines)


@pytest.mark.feature("F12")
@pytest.mark.parametrize(
    "code",
    [pytest.param(HOURLY, id="hourly"), *(pytest.param(o, id=o.name, marks=pytest.mark.soak) for o in (PAIRED, PLAIN))],
)
def test_a_bounded_run_replaces_rows_in_a_bucket(on_s3: SparkSession, s3: Server, code: Operator) -> None:
    """All of time, then an interval again in which files hold other rows too."""
    lake, log = Lake(f"{s3.bucket()}/lake"), disorder(code, 3, 180)
    _landed(lake, code, log, 3)
    run_bounded(on_s3, code, lake)
    _check(lake, code, log)
    moments = [moment for moment in log.table()["_event_time"].to_pylist() if moment is not None]
    first = min(moments) // 3_600_000 * 3_600_000
    run_bounded(on_s3, code, lake, Interval(start=first + 3_600_000, end=first + 7_200_000), force=True)
    _check(lake, code, log)


@pytest.mark.feature("F12")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(WINDOWED, id="windowed"),
        *(pytest.param(o, id=o.name, marks=pytest.mark.soak) for o in (PLAIN, ONCE, PAIRED)),
    ],
)
def test_a_stream_in_a_bucket_has_the_embedded_engines_rows(on_s3: SparkSession, s3: Server, code: Operator) -> None:
    """It is started a second time, and goes on from its checkpoint in the bucket."""
    lake, log = Lake(f"{s3.bucket()}/lake"), disorder(code, 4, 120)
    half = len(log.entries) // 2
    for first, last in ((0, half // 2), (half // 2, half), (half, None)):
        land(lake, code, log, first, last)
        if last != half // 2:
            run_unbounded(on_s3, code, lake, until_caught_up=True, files_per_batch=1)
    _check(lake, code, log)
    assert run_unbounded(on_s3, code, lake, until_caught_up=True).micro_batches == 0


class Reading(Contract):
    at: EventTime
    value: int


@pytest.mark.parametrize(
    "by_workers", [pytest.param(False, id="driver", marks=pytest.mark.soak), pytest.param(True, id="workers")]
)
def test_files_land_once_behind_a_store_that_fails(
    on_s3: SparkSession,
    s3: Server,
    s3_proxy: Proxy,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    *,
    by_workers: bool,
) -> None:
    """Each landing has a file more, the last one a column more; some rows break the contract."""
    if by_workers:
        request.getfixturevalue("read_by_workers")
    lake, inbox = Lake(f"{s3.bucket()}/lake"), tmp_path / "inbox"
    inbox.mkdir()
    files = Files(str(inbox), format="csv", min_age="0 s")
    source = Source("readings", contract=Reading, connector=files, watermark=Ascending(), max_quarantine_share=1)
    s3_proxy.plan(Plan(seed=5, share=0.1))
    for number in range(3):
        lines = [f"2001-01-01T00:0{number}:{n:02d},{n if n else 'none'}" for n in range(20)]
        (inbox / f"{number}.csv").write_text("\n".join(["at,value", *lines]))
        spark_landing.land(on_s3, source, lake)
    (inbox / "3.csv").write_text("at,value,note\n2001-01-01T00:03:00,77,last")
    wider = Source("readings", contract=Noted, connector=files, watermark=Ascending(), max_quarantine_share=1)
    spark_landing.land(on_s3, wider, lake)
    assert s3_proxy.faults()
    s3_proxy.plan()
    rows = [row for row in DeltaTable(lake.log("readings")).to_pyarrow_table().to_pylist() if row["_kind"] == ROW]
    assert sorted(row["value"] for row in rows) == sorted([*list(range(1, 20)) * 3, 77])
    assert {row["note"] for row in rows} == {None, "last"}
    assert DeltaTable(lake.quarantine("readings")).to_pyarrow_table().num_rows == 3
    assert spark_landing.land(on_s3, wider, lake).rows == 0
    _check_commits(lake.log("readings"))
    _check_commits(lake.quarantine("readings"))


class Noted(Reading):
    note: str | None = None
