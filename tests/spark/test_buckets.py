"""A lake in a bucket on Spark: the rows of the embedded engine, and no commit of Spark's."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import caught_up_process
import forked
import pytest
from borrowed import lend, take_back
from deltalake import DeltaTable
from events import disorder
from fitted import FEATURES, expected_delays, fitted, flights, of_spark
from processes import failure, paths
from s3_server import Plan, environment
from streams import ONCE, PAIRED, PLAIN, WINDOWED

from floodmark import Ascending, Contract, EventTime, Files, Hourly, Source, operator_asset
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError, SetupError
from floodmark.core.time import Interval
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.landing import run as spark_landing
from floodmark.engines.spark.session import store
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder import bucket, storage
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import plans
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import entries
from floodmark.models.versions import row_of
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import PARTITION, ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from s3_server import Fault, Proxy, Server

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


@pytest.mark.soak
@pytest.mark.feature("F12")
@pytest.mark.parametrize(
    "code",
    [pytest.param(HOURLY, id="hourly"), pytest.param(PAIRED, id="paired"), pytest.param(PLAIN, id="plain")],
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


@pytest.mark.soak
@pytest.mark.feature("F12")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(WINDOWED, id="windowed"),
        *(pytest.param(o, id=o.name) for o in (PLAIN, ONCE, PAIRED)),
    ],
)
def test_a_stream_in_a_bucket_has_the_embedded_engines_rows(on_s3: SparkSession, s3: Server, code: Operator) -> None:
    """It is started a second time, and goes on from its checkpoint in the bucket; at last it begins from scratch."""
    lake, log = Lake(f"{s3.bucket()}/lake"), disorder(code, 4, 120)
    half = len(log.entries) // 2
    for first, last in ((0, half // 2), (half // 2, half), (half, None)):
        land(lake, code, log, first, last)
        if last != half // 2:
            run_unbounded(on_s3, code, lake, until_caught_up=True, files_per_batch=1)
    _check(lake, code, log)
    assert run_unbounded(on_s3, code, lake, until_caught_up=True).micro_batches == 0
    run_unbounded(on_s3, code, lake, until_caught_up=True, from_scratch=True)
    _check(lake, code, log)


@pytest.mark.soak
@pytest.mark.feature("F12", "M1")
def test_a_pipeline_of_spark_ml_is_fitted_and_applied_in_a_bucket(on_s3: SparkSession, s3: Server) -> None:
    """Its files are in the bucket while it is fitted, and none afterwards."""
    lake, rows = Lake(f"{s3.bucket()}/lake"), flights(60)
    log, known = (Log(given.schema) for given in expected_delays.inputs)
    log.rows(rows, "at", 0)
    log.end()
    land(lake, expected_delays, log)
    version = fitted(lake.root, estimator=of_spark(*FEATURES))
    assert [*files_of(lake.fitting("delay"))] == []
    known.rows([row_of(version)], "at", 0)
    known.end()
    land(lake, expected_delays, known, name="models")
    run_unbounded(on_s3, expected_delays, lake, until_caught_up=True)
    made = final([outputs(lake, expected_delays)[""]])
    assert len(made) == len(rows)
    for row in made:
        delay = row["wind"] + 20 * row["evening"] if row["model_version"] else None
        assert row["expected"] == (delay and pytest.approx(delay))
    assert {row["model_version"] for row in made} == {None, 1}


_POINTS = ("micro_batch.before_evaluate:2", "micro_batch.after_main:2")
"""The plan of a micro-batch is put, and nothing of it written; its rows are committed, and Spark does not know."""
_FURTHER = tuple(point for point in crash.POINTS["micro_batch"] if not point.endswith(("evaluate", "after_main")))


@pytest.mark.soak
@pytest.mark.feature("F12", "E1")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("points", [pytest.param(_POINTS, id="main"), pytest.param(_FURTHER, id="further")])
def test_killed_at_one_point_after_another_it_ends_exactly_right(
    on_s3: SparkSession, s3: Server, points: tuple[str, ...]
) -> None:
    """The driver is killed; the checkpoint and all that the next one needs are in the bucket."""
    lake, log = Lake(f"{s3.bucket()}/lake"), disorder(WINDOWED, 5, 240)
    _landed(lake, WINDOWED, log, 2 * len(points) + 2)
    for point in points:
        command = [sys.executable, caught_up_process.__file__, lake.root, WINDOWED.name]
        done = forked.run(command, env={**os.environ, **lend(on_s3), "PYTHONPATH": paths(), crash.VARIABLE: point})
        take_back(on_s3)
        assert done.returncode == -signal.SIGKILL, f"{point}: {failure(done.stderr)}"
    run_unbounded(on_s3, WINDOWED, lake, until_caught_up=True)
    _check(lake, WINDOWED, log)


@pytest.mark.soak
def test_of_two_drivers_of_one_stream_one_ends_and_the_plans_of_the_other_count(
    on_s3: SparkSession, s3: Server
) -> None:
    """The other one has put its plan of a micro-batch in the place of Spark's, which a rename there does not refuse."""
    lake, log, stop = Lake(f"{s3.bucket()}/lake"), disorder(ONCE, 6, 120), threading.Event()
    _landed(lake, ONCE, log, 5)
    run_unbounded(
        on_s3, ONCE, lake, stop=stop, files_per_batch=1, on_batch=lambda info: info.batch_id < 1 or stop.set()
    )
    checkpoint = Timeline.current(lake, ONCE.name).checkpoint.path
    last = Timeline.current(lake, ONCE.name).checkpoint.last_committed()
    storage.write(f"{checkpoint}/offsets/{last}", storage.read(f"{checkpoint}/offsets/{last - 1}") or b"")

    def plan(info: BatchInfo) -> None:
        planned = storage.read(f"{checkpoint}/offsets/{info.batch_id}") or b""
        content = json.dumps({"put": "another", "offsets": planned.decode()}).encode()
        if info.batch_id == last + 1:
            assert bucket.create(f"{checkpoint}/{plans.PLANS}/{last + 2}", content)

    with pytest.raises(LifecycleError, match="LIFECYCLE-220"):
        run_unbounded(on_s3, ONCE, lake, until_caught_up=True, files_per_batch=1, on_batch=plan)
    assert Timeline.current(lake, ONCE.name).newest_written == last + 1
    bucket.remove([f"{checkpoint}/{plans.PLANS}/{last + 2}"])  # that one never was
    run_unbounded(on_s3, ONCE, lake, until_caught_up=True, files_per_batch=1)
    _check(lake, ONCE, log)


@pytest.mark.soak
@pytest.mark.feature("V2")
def test_a_savepoint_in_a_bucket_brings_a_stream_of_sparks_back(on_s3: SparkSession, s3: Server) -> None:
    """Rolled back to, and forked into another bucket."""
    lake, log, stop = Lake(f"{s3.bucket()}/lake"), disorder(ONCE, 8, 160), threading.Event()
    _landed(lake, ONCE, log, 5)
    run_unbounded(
        on_s3, ONCE, lake, stop=stop, files_per_batch=1, on_batch=lambda info: info.batch_id < 2 or stop.set()
    )
    made = savepoints.create(ONCE.name, lake)
    assert not savepoints.verify(made)
    run_unbounded(on_s3, ONCE, lake, until_caught_up=True)
    _check(lake, ONCE, log)
    forked_lake = fork(lake, savepoints.find(lake, made.id), f"{s3.bucket()}/fork")
    run_unbounded(on_s3, ONCE, forked_lake, until_caught_up=True)
    _check(forked_lake, ONCE, log)
    roll_back(lake, savepoints.find(lake, made.id))
    run_unbounded(on_s3, ONCE, lake, until_caught_up=True)
    _check(lake, ONCE, log)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["refused", None])
def test_what_is_wrong_with_a_store_ends_a_stream_with_what_mends_it(
    on_s3: SparkSession, s3: Server, s3_proxy: Proxy, fault: Fault | None
) -> None:
    """Java knows the credentials with which it has begun: a stream on Spark does not wait for others."""
    lake, log = Lake(f"{s3.bucket()}/lake"), disorder(PLAIN, 11, 120)
    _landed(lake, PLAIN, log, 3)

    def fail(info: BatchInfo) -> None:
        if info.batch_id == 0 and fault is None:
            s3.remove(lake.root.split("/")[2])
        elif info.batch_id == 0:
            s3_proxy.plan(Plan(fault=fault))

    with pytest.raises(SetupError, match="SETUP-057 .*(Renew the credentials|Make the bucket)"):
        run_unbounded(on_s3, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=fail)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_stream_are_exact_behind_a_store_that_fails(
    on_s3: SparkSession, s3: Server, s3_proxy: Proxy, seed: int
) -> None:
    """503, slow answers, 409, and lost answers, for Spark's own requests too. A query that gives up is started again, as a supervisor does."""
    lake, log, met, starts = Lake(f"{s3.bucket()}/lake"), disorder(WINDOWED, seed, 240), set[str](), 0
    for first, last in pairwise(len(log.entries) * n // 3 for n in range(4)):
        s3_proxy.plan()
        land(lake, WINDOWED, log, first, last)
        while True:
            s3_proxy.plan(Plan(seed=seed * 1_000 + first + starts, share=0.03))
            starts += 1
            try:
                run_unbounded(on_s3, WINDOWED, lake, until_caught_up=True)
            except FloodmarkError:
                assert starts < 20
                continue
            finally:
                met |= set(s3_proxy.faults())
            break
    assert met
    s3_proxy.plan()
    _check(lake, WINDOWED, log)
    assert run_unbounded(on_s3, WINDOWED, lake, until_caught_up=True).micro_batches == 0


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
