"""A workspace that is deleted or moved while it runs: supervisors and drivers end, with the reason; nothing of it runs on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from scripted_waits import ScriptedWaits
from supervised import forked_drivers

from floodmark import Workspace
from floodmark.cli.shell.console import Console
from floodmark.cli.verbs import up
from floodmark.control.processes import host as hosting
from floodmark.control.processes import running
from floodmark.control.processes import supervisor as supervising
from floodmark.control.processes.host import Host
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Deployment, Driver, StreamId
from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError

FAKE = Path(__file__).parent.parent / "support" / "fake_driver.py"
HERE = StreamId("totals", "/lake")
REASON = r"LIFECYCLE-305 supervisor: .*removed or moved while it ran"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "POLL_SECONDS", 0.02)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "control"


@pytest.fixture
def store(home: Path) -> Store:
    """With one stream that should run."""
    made = Store(f"sqlite:///{home}/control.db")
    about = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "totals@1"}
    made.deploy(Deployment(operator="totals", desired="running", **about))
    return made


def delete(home: Path) -> None:
    """Delete a folder at once: beside a process that writes its journal into it, a folder that is emptied file by file may not be empty at the end."""
    home.rename(home.with_name("deleted"))
    shutil.rmtree(home.with_name("deleted"))


@pytest.mark.parametrize("made_anew", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_supervisor_stops_its_drivers_and_ends(home: Path, store: Store, *, waits: bool, made_anew: bool) -> None:
    """Even where something else has made a folder of that path since."""
    drivers = list[psutil.Process]()

    def command(driver: Driver) -> list[str]:
        return [sys.executable, str(FAKE), store.url, str(driver.id), "runs"]

    def say(_: str) -> None:
        driver = next(iter(store.drivers(HERE)))
        if not drivers and driver.pid is not None:
            drivers.append(psutil.Process(driver.pid))
            delete(home)
            if made_anew:
                home.mkdir()

    one = Supervisor(store=store, home=home, holder="one", command=command, say=say)
    with forked_drivers(), pytest.raises(LifecycleError, match=REASON):
        (one.stand_by if waits else one.run)(threading.Event())
    assert drivers
    assert not any(driver.is_running() for driver in drivers), "nobody would ever stop it"


def test_a_supervisor_that_waits_for_another_one_ends(home: Path, store: Store) -> None:
    store.lease(supervising.LEASE, "another", 3600)
    one = Supervisor(store=store, home=home, holder="one", command=lambda _: ["false"], say=lambda _: None)
    with pytest.raises(LifecycleError, match=REASON):
        one.stand_by(ScriptedWaits(lambda: home.rename(home.with_name("moved"))))


class Waiting:
    """A job whose input never comes."""

    version = "totals@1"

    def awaits(self) -> str:
        return "waiting for its input"


@pytest.fixture
def _handlers() -> Iterator[None]:
    """Signals are handled behind the test as before it; one that comes before there is a handler does not end the tests."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_a_process_of_several_streams_stops_them_although_its_store_is_gone(
    home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "_UNREACHABLE_SECONDS", 0.1)
    monkeypatch.setattr(hosting, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(running, "job_of", lambda *_: Waiting())
    monkeypatch.setattr(running.Measuring, "begin", lambda _: None)
    (deployment,) = store.deployments()
    (home / "logs").mkdir()
    first = store.begin(deployment, str(home / "logs"), "p")

    def delete_and_end() -> None:
        try:
            while store.driver(first.id).reason is None:
                pass
            delete(home)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete_and_end)
        assert Host(store, first, lambda _: Workspace()).run() == 1
        deleting.result()
    assert not [thread for thread in threading.enumerate() if thread.name == "totals"]


def test_up_ends_with_the_reason(home: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    one = Supervisor(store=store, home=home, holder="one", command=lambda _: ["false"], say=lambda _: None)
    monkeypatch.setattr(up, "fleet", lambda *_: SimpleNamespace(supervised=False, store=store))
    monkeypatch.setattr(up, "supervisor", lambda *_: one)
    with pytest.raises(LifecycleError, match=REASON):
        deleted_below(home, store, stop)


def deleted_below(home: Path, store: Store, stop: threading.Event) -> None:
    """What runs beside a supervisor is stopped once the workspace is gone."""
    with up._supervising(None, Console(as_json=False), "127.0.0.1", 0, stop, wanted=True):
        while store.holder(supervising.LEASE) is None and not stop.is_set():
            pass
        home.rename(home.with_name("moved"))  # at once, while the supervisor writes there
        assert stop.wait(300)


def test_up_ends_with_whatever_its_supervisor_has_failed_for(
    home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams would run on with nobody to look after them, and nobody would know."""
    stop = threading.Event()
    one = Supervisor(store=store, home=home, holder="one", command=lambda _: [str(1 / 0)], say=lambda _: None)
    monkeypatch.setattr(up, "fleet", lambda *_: SimpleNamespace(supervised=False, store=store))
    monkeypatch.setattr(up, "supervisor", lambda *_: one)
    with (
        pytest.raises(ZeroDivisionError),
        up._supervising(None, Console(as_json=False), "127.0.0.1", 0, stop, wanted=True),
    ):
        assert stop.wait(300)
