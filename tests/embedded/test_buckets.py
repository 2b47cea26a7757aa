"""A lake in a bucket on the embedded engine: the rows of a lake on a disk, behind a store that fails, and after kills at every write."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import followed
import forked
import psutil
import pytest
from deltalake import DeltaTable
from events import disorder
from processes import paths
from pyspark.errors import PySparkException
from s3_server import Plan
from streams import ONCE, PLAIN, WINDOWED

from floodmark import Ascending, Contract, Env, EventTime, Files, SecretFile, Settings, Source, Store
from floodmark.core import crash
from floodmark.core.errors import LifecycleError, SetupError
from floodmark.engines import upgrading
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.landing import run as embedded_landing
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.embedded.sail.session import Sail, ServerLost
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder import bucket, credentials
from floodmark.lake.folder.mirrored import ChangedMeanwhileError, mirrored
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork, move
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.table import entries
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

if TYPE_CHECKING:
    from s3_server import Proxy, Server

_POINTS = crash.POINTS["embedded"]
_ALWAYS = {"embedded.after_state"}
"""The rows are sent and the state is written: the next start owes the commit, and fetches the files."""


def _lake(s3: Server) -> Lake:
    return Lake(f"{s3.bucket()}/lake")


def _landed(lake: Lake, code: Operator, log: Log, commits: int) -> None:
    for first, last in pairwise(len(log.entries) * n // commits for n in range(commits + 1)):
        land(lake, code, log, first, last)


def _check(lake: Lake, code: Operator, log: Log) -> None:
    """Every output has the rows of the engine of tests, once."""
    expected = MemoryRun(code).batch({code.inputs[0].name: log.table()})
    got = outputs(lake, code)
    for name, table in expected.items():
        assert final([got[name]]) == final([table]), name


def _process(lake: Lake, code: Operator, at: str = "") -> int:
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    command = [sys.executable, str(Path(__file__).parent / "stream_process.py"), lake.root, code.name]
    done = forked.run(command, env=environment)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


@pytest.mark.parametrize(
    ("seed", "starts"), [(0, 2), *(pytest.param(seed, 6, marks=pytest.mark.soak) for seed in range(1, 31))]
)
def test_rows_are_exact_behind_a_store_that_fails(
    sail: Sail, s3: Server, s3_proxy: Proxy, seed: int, starts: int
) -> None:
    """503, slow answers, 409, and answers that are lost after a put took effect; the stream is started again now and then."""
    lake, log, met = _lake(s3), disorder(WINDOWED, seed, 240), set[str]()
    for first, last in pairwise(len(log.entries) * n // starts for n in range(starts + 1)):
        s3_proxy.plan()
        land(lake, WINDOWED, log, first, last)  # as another program would: its commits are not this test's
        s3_proxy.plan(Plan(seed=seed * 1_000 + first, share=0.1))
        run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
        met |= set(s3_proxy.faults())
    assert met
    s3_proxy.plan()
    _check(lake, WINDOWED, log)
    assert run_unbounded(sail, WINDOWED, lake, until_caught_up=True).micro_batches == 0


class Reading(Contract):
    at: EventTime
    value: int


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 11))])
def test_files_land_once_behind_a_store_that_fails(s3: Server, s3_proxy: Proxy, tmp_path: Path, seed: int) -> None:
    """Each landing has a file more; some rows break the contract. The quarantine and the list of landed files are tables of their own."""
    lake, inbox = _lake(s3), tmp_path / "inbox"
    inbox.mkdir()
    files = Files(str(inbox), format="csv", min_age="0 s")
    source = Source("readings", contract=Reading, connector=files, watermark=Ascending(), max_quarantine_share=1)
    s3_proxy.plan(Plan(seed=seed, share=0.1))
    for number in range(4):
        lines = [f"2001-01-01T00:0{number}:{n:02d},{n if n else 'none'}" for n in range(20)]
        (inbox / f"{number}.csv").write_text("\n".join(["at,value", *lines]))
        embedded_landing.land(_no_server, source, lake)
    assert s3_proxy.faults()
    s3_proxy.plan()
    rows = [row for row in DeltaTable(lake.log("readings")).to_pyarrow_table().to_pylist() if row["_kind"] == ROW]
    assert sorted(row["value"] for row in rows) == sorted(list(range(1, 20)) * 4)
    assert DeltaTable(lake.quarantine("readings")).to_pyarrow_table().num_rows == 4
    assert embedded_landing.land(_no_server, source, lake).rows == 0


def _no_server() -> Sail:
    raise AssertionError


@pytest.mark.feature("F12")
@pytest.mark.parametrize("point", [p if p in _ALWAYS else pytest.param(p, marks=pytest.mark.soak) for p in _POINTS])
def test_killed_at_a_write_it_resumes_exactly(s3: Server, s3_proxy: Proxy, point: str) -> None:
    lake, log = _lake(s3), disorder(ONCE, 5, 240)
    _landed(lake, ONCE, log, 10)
    assert _process(lake, ONCE, f"{point}:2" if "merge" not in point else point) == -signal.SIGKILL
    assert _process(lake, ONCE) == 0
    _check(lake, ONCE, log)


def test_a_bounded_run_replaces_rows_in_a_bucket(s3: Server, s3_proxy: Proxy) -> None:
    lake, log = _lake(s3), disorder(PLAIN, 3, 120)
    _landed(lake, PLAIN, log, 3)
    sail = Sail(memory=300)
    try:
        run_bounded(sail, PLAIN, lake)
        _check(lake, PLAIN, log)
        run_bounded(sail, PLAIN, lake, force=True)
    finally:
        sail.close()
    _check(lake, PLAIN, log)


def test_a_server_that_began_before_the_store_was_known_or_with_a_key_of_before_is_replaced(
    s3: Server, s3_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log, sail = _lake(s3), disorder(PLAIN, 3, 120), Sail(memory=300)
    _landed(lake, PLAIN, log, 3)
    key = tmp_path / "key"
    key.write_text("old")
    monkeypatch.setenv("FLOODMARK_STORE_FILES", "")
    known = s3_proxy.url
    try:
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        with sail.lent() as connection:
            assert connection.number == 1
        monkeypatch.setenv("AWS_ENDPOINT_URL", known)
        credentials.reach(Store(access_key=SecretFile(str(key))))
        run_bounded(sail, PLAIN, lake)
        assert sail.started == 2
        s3_proxy.plan(Plan(fault="refused", key="new"))
        key.write_text("new")
        run_bounded(sail, PLAIN, lake, force=True)
        assert sail.started == 3
        with sail.lent() as connection:
            refused = connection.spark.sql("SELECT nothing")
            with pytest.raises(PySparkException), connection.lost("while it was used"):
                refused.toArrow()
            monkeypatch.setenv("AWS_SESSION_TOKEN", "renewed meanwhile")
            with pytest.raises(ServerLost, match="reaches the lake's store"), connection.lost("while it was used"):
                refused.toArrow()
    finally:
        sail.close()
    _check(lake, PLAIN, log)


def test_a_micro_batch_is_state_rows_record_and_a_look_at_what_is_frozen(
    sail: Sail, s3: Server, s3_proxy: Proxy
) -> None:
    """Requests of a commit. Reading takes a look at the next commit of the log, one behind it, and the file."""
    lake, log = _lake(s3), disorder(PLAIN, 4, 240)
    _landed(lake, PLAIN, log, 12)
    counts = list[list[str]]()

    def count(_: object) -> None:
        counts.append([path for _, path, _ in s3_proxy.requests()])
        s3_proxy.plan()

    run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=count)
    commits = [[path for path in asked if "/outputs/" in path or "/_floodmark/" in path] for asked in counts]
    reads = [[path for path in asked if "/logs/" in path] for asked in counts]
    assert median(map(len, commits)) == 4
    assert median(map(len, reads)) <= 3


def test_of_two_processes_of_one_stream_one_goes(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    """A bucket has no locks: the second to write a micro-batch is refused, and the rows are there once."""
    lake, log = _lake(s3), disorder(PLAIN, 6, 120)
    _landed(lake, PLAIN, log, 4)
    together, refused = threading.Barrier(2), list[str]()

    def run() -> None:
        try:
            run_unbounded(
                sail, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=lambda _: together.wait(300)
            )
        except LifecycleError as error:
            refused.append(error.code)
            together.abort()
        except threading.BrokenBarrierError:
            pass

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["LIFECYCLE-220"]
    run_unbounded(sail, PLAIN, lake, until_caught_up=True)
    _check(lake, PLAIN, log)


def test_the_log_of_a_table_has_one_entry_per_version(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    lake, log = _lake(s3), disorder(PLAIN, 7, 90)
    _landed(lake, PLAIN, log, 3)
    s3_proxy.plan(Plan(seed=9, share=0.3))
    run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1)
    s3_proxy.plan()
    assert entries.version_of(lake.output(PLAIN.outputs[0].table)) == 3


def test_savepoints_share_their_state_and_bring_the_stream_back(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    """A second savepoint of unchanged state copies none of it."""
    lake, log = _lake(s3), disorder(ONCE, 8, 240)
    _landed(lake, ONCE, log, 8)
    stop = threading.Event()
    run_unbounded(sail, ONCE, lake, stop=stop, files_per_batch=1, on_batch=lambda info: info.batch_id < 3 or stop.set())
    made = savepoints.create(ONCE.name, lake)
    assert len(made.manifest.shared) >= 2 and not savepoints.verify(made)
    s3_proxy.plan()
    again = savepoints.create(ONCE.name, lake)
    assert again.manifest.shared == made.manifest.shared
    asked = [(method, path) for method, path, _ in s3_proxy.requests() if "/.objects/" in path]
    assert len(asked) == len(made.manifest.shared) and {method for method, _ in asked} == {"HEAD"}
    taken = savepoints.import_savepoint(_lake(s3), made.path)  # as a promotion takes the state of an arm
    assert not taken.manifest.shared and not savepoints.verify(taken)
    run_unbounded(sail, ONCE, lake, until_caught_up=True)
    _check(lake, ONCE, log)
    roll_back(lake, savepoints.find(lake, made.id))
    run_unbounded(sail, ONCE, lake, until_caught_up=True, files_per_batch=1)
    _check(lake, ONCE, log)


@pytest.mark.soak
def test_arms_in_a_bucket_are_compared_step_by_step(
    sail: Sail, s3: Server, s3_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB works on a copy of the comparison's files; those that have changed are sent back, and of two processes one is refused."""
    monkeypatch.chdir(tmp_path)
    lake, log = _lake(s3), disorder(WINDOWED, 15, 240)
    land(lake, WINDOWED, log, 0, 60)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    began = savepoints.create(WINDOWED.name, lake)
    arms = [fork(lake, began, experiments.root_of(lake, "mine", name)) for name in ("a", "b")]
    made = Experiment(
        name="mine", operator=WINDOWED.name, savepoint=began.manifest.id, state="running", who="", why="", began_at=0,
        arms=tuple(Arm(name=name, code=".", package="", version=WINDOWED.version, root=arm.root) for name, arm in zip("ab", arms, strict=True)),
        since=began.manifest.watermark,
    )  # fmt: skip
    equal = []
    for first, last in ((60, 150), (150, 240)):
        land(lake, WINDOWED, log, first, last)
        for arm in arms:
            run_unbounded(sail, WINDOWED, arm, until_caught_up=True)
        compared = compare_arms(lake, made, WINDOWED, How())["b"][WINDOWED.name]
        assert isinstance(compared, Comparison) and not compared.counts.unlike
        equal.append(compared.counts.equal)
    assert 0 < equal[0] < equal[1]
    assert not list(tmp_path.iterdir())
    home = experiments.comparison_of(lake, "mine", "b", WINDOWED.name)
    with ExitStack() as second, ExitStack() as first:
        for stack in (first, second):
            Path(stack.enter_context(mirrored(home)), "new").touch()
        first.close()
        with pytest.raises(ChangedMeanwhileError):
            second.close()
    assert compare_arms(lake, made, WINDOWED, How())["b"][WINDOWED.name] == compared


@pytest.mark.soak
def test_fork_export_import_and_upkeep_in_a_bucket(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    lake, log = _lake(s3), disorder(WINDOWED, 8, 240)
    _landed(lake, WINDOWED, log, 12)
    stop = threading.Event()
    run_unbounded(
        sail, WINDOWED, lake, stop=stop, files_per_batch=1, on_batch=lambda info: info.batch_id < 5 or stop.set()
    )
    made = savepoints.create(WINDOWED.name, lake)
    forked_lake = fork(lake, savepoints.find(lake, made.id), f"{s3.bucket()}/fork")
    run_unbounded(sail, WINDOWED, forked_lake, until_caught_up=True)
    _check(forked_lake, WINDOWED, log)
    exported = f"{s3.bucket()}/kept"
    savepoints.export(made, exported)
    savepoints.delete(made)
    with pytest.raises(LifecycleError, match="LIFECYCLE-031"):
        savepoints.find(lake, made.id)
    imported = savepoints.import_savepoint(lake, f"{exported}/{made.id}")
    assert not savepoints.verify(imported)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    roll_back(lake, imported)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    _check(lake, WINDOWED, log)
    maintain(lake, hours=0)
    _check(lake, WINDOWED, log)


@pytest.mark.soak
def test_a_rebuild_beside_the_stream_takes_its_place_in_a_bucket(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    lake, log, wide = _lake(s3), disorder(WINDOWED, 14, 240), replace(WINDOWED.grouped(1 << 10), key_groups=1 << 10)
    half = len(log.entries) // 2
    land(lake, WINDOWED, log, 0, half)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    land(lake, WINDOWED, log, half)
    upgrading.rebuild(partial(run_unbounded, sail), wide, lake)
    run_unbounded(sail, wide, lake, until_caught_up=True)
    _check(lake, wide, log)


@pytest.mark.soak
def test_readers_follow_a_rebuild_as_a_difference_in_a_bucket(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    lake, events = _lake(s3), followed.log(rows=120)
    readers = [followed.evens(), followed.sums()]
    followed.land_some(lake, events, 0, 90, pieces=1)
    for one in (followed.totals("plain"), *readers):
        run_unbounded(sail, one, lake, until_caught_up=True)
    upgraded = upgrading.rebuild(partial(run_unbounded, sail), followed.totals("few"), lake)
    assert upgraded.followers == ("evens", "sums"), upgraded.because
    followed.land_some(lake, events, 90, 121, pieces=1)
    for one in (followed.totals("few"), *readers):
        run_unbounded(sail, one, lake, until_caught_up=True)
    after = [followed.results(lake, one.name) for one in readers]
    for one in readers:
        run_unbounded(sail, one, lake, until_caught_up=True, from_scratch=True)
    assert after == [followed.results(lake, one.name) for one in readers]
    assert all(after)


@pytest.mark.soak
def test_a_stream_moves_from_a_disk_into_a_bucket_and_back(
    sail: Sail, s3: Server, s3_proxy: Proxy, tmp_path: Path
) -> None:
    lake, log = Lake(str(tmp_path / "lake")), disorder(WINDOWED, 9, 240)
    half = len(log.entries) // 2
    land(lake, WINDOWED, log, 0, half)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    there, _ = move(lake, WINDOWED.name, f"{s3.bucket()}/lake")
    land(lake, WINDOWED, log, half, None)
    run_unbounded(sail, WINDOWED, there, until_caught_up=True)
    _check(there, WINDOWED, log)
    back, _ = move(there, WINDOWED.name, str(tmp_path / "again"))
    run_unbounded(sail, WINDOWED, back, until_caught_up=True)
    _check(back, WINDOWED, log)


def test_a_stale_driver_is_fenced_by_a_rollback(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    """The fence is an entry of the log, put under the condition that it is the next: what the old driver puts comes behind it, and is refused."""
    lake, log = _lake(s3), disorder(PLAIN, 10, 120)
    _landed(lake, PLAIN, log, 6)
    fenced = list[str]()

    def late(info: BatchInfo) -> None:
        if info.batch_id == 2 and not fenced:
            made = savepoints.create(PLAIN.name, lake, batch=0)
            roll_back(lake, made)
            fenced.append(made.id)

    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=late)
    run_unbounded(sail, PLAIN, lake, until_caught_up=True)
    _check(lake, PLAIN, log)


def test_a_stream_waits_while_its_credentials_are_expired_and_says_so(
    sail: Sail, s3: Server, s3_proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, log = _lake(s3), disorder(PLAIN, 11, 120)
    _landed(lake, PLAIN, log, 3)

    def expire(info: BatchInfo) -> None:
        if info.batch_id == 0:
            s3_proxy.plan(Plan(fault="refused", times=3))

    run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=expire)
    assert s3_proxy.faults() == {"refused": 3}
    assert capsys.readouterr().err.count("the store refuses the credentials") == 3
    _check(lake, PLAIN, log)


def test_a_bucket_that_disappears_ends_the_stream_with_its_name(sail: Sail, s3: Server, s3_proxy: Proxy) -> None:
    lake, log = _lake(s3), disorder(PLAIN, 12, 120)
    _landed(lake, PLAIN, log, 3)
    with pytest.raises(SetupError, match=f"SETUP-057 .*{lake.root}.*NoSuchBucket.*Make the bucket"):
        run_unbounded(
            sail,
            PLAIN,
            lake,
            until_caught_up=True,
            files_per_batch=1,
            on_batch=lambda _: s3.remove(lake.root.split("/")[2]),
        )


def test_a_secret_is_in_no_object_no_output_and_no_command(
    sail: Sail, s3: Server, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plans, manifests, records and state are objects of the bucket; a driver and its server are processes."""
    secret, commands = uuid.uuid4().hex, set[str]()
    monkeypatch.setenv("LAKE_SECRET", secret)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    root = f"{s3.bucket()}/lake"
    settings = Settings(lake=root, store=Store(secret_key=Env("LAKE_SECRET")))
    lake, log = Lake.of(settings), disorder(ONCE, 13, 120)
    _landed(lake, ONCE, log, 2)

    def look(_: BatchInfo) -> None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # one of an earlier test ends
                commands.add(" ".join(child.cmdline()))

    fresh = Sail(memory=300)
    try:
        run_bounded(fresh, ONCE, Lake(f"{root}-other", logs=root))
        run_unbounded(fresh, ONCE, lake, until_caught_up=True, on_batch=look)
    finally:
        fresh.close()
    savepoints.create(ONCE.name, lake, code={"settings": repr(settings)})
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == secret and any("child.py" in command for command in commands)
    objects = [f"s3://{root.split('/')[2]}/{stat.path}" for stat in bucket.below(root)]
    assert len(objects) > 20
    texts = [bucket.read(location) or b"" for location in objects]
    texts += [text.encode() for text in (*commands, *capfd.readouterr())]
    assert not any(secret.encode() in text for text in texts)
