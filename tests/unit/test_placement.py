"""Which streams share a process, whose output is whose, and how the usage of a process is divided."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from floodmark import Settings
from floodmark.control.processes import meter, placement
from floodmark.control.processes.meter import Division, ShareMeter
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import SetupError
from floodmark.lifecycle.usage import Usage

SHARED = Deployment(
    operator="totals",
    root="/",
    lake="/lake",
    environment="dev",
    package="p",
    version="totals@1",
    desired="running",
    hosting="shared",
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/control.db")


def died(store: Store, lived: float, reason: str = "killed by SIGKILL") -> Driver:
    """A driver whose process has died."""
    driver = store.begin(SHARED, "/log", SHARED.process)
    store.end(driver.id, "crashed", reason)
    ended = store.driver(driver.id)
    store.update(driver.id, started_at=(ended.ended_at or 0) - lived)
    return store.driver(driver.id)


@pytest.mark.parametrize("reason", ["killed by SIGKILL", "it is gone", "exit 1"])
def test_a_stream_whose_process_died_starts_alone(store: Store, reason: str) -> None:
    assert placement.shares(SHARED, []) == SHARED.process
    assert placement.shares(SHARED, [died(store, 10, reason)]) is None
    assert placement.shares(SHARED, [died(store, 10, "ValueError: exit 1")]) == SHARED.process, (
        "it has failed by itself"
    )
    assert placement.shares(replace(SHARED, hosting="isolated"), []) is None


@pytest.mark.parametrize(("lived", "alone"), [(10, 60), (100, 200), (100_000, 1800)])
def test_a_stream_that_runs_well_alone_joins_the_others_again(store: Store, lived: float, alone: float) -> None:
    died(store, lived)
    driver = store.begin(SHARED, "/log")
    store.update(driver.id, state="running")
    driver = store.driver(driver.id)
    assert not placement.may_join(SHARED, driver, store, driver.started_at + alone - 1)
    assert placement.may_join(SHARED, driver, store, driver.started_at + alone + 1)
    assert not placement.may_join(replace(SHARED, hosting="isolated"), driver, store, driver.started_at + alone + 1)


def test_one_that_runs_alone_for_another_reason_stays(store: Store) -> None:
    store.end(store.begin(SHARED, "/log").id, "stopped", "stopped at a micro-batch boundary")
    driver = store.begin(SHARED, "/log")
    store.update(driver.id, state="running")
    assert not placement.may_join(SHARED, store.driver(driver.id), store, driver.started_at + 10_000)


def test_a_driver_joins_a_process_of_its_package_alone(store: Store) -> None:
    host = store.begin(SHARED, "/log", SHARED.process)
    store.update(host.id, pid=os.getpid())
    other = replace(SHARED, operator="others")
    joins, package = store.begin(other, "/log", other.process), replace(other, package="another")
    alone = store.begin(package, "/log", package.process)
    assert (placement.joined(store, joins) or joins).id == host.id
    assert placement.joined(store, alone) is None
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for driver in store.living():
        store.update(driver.id, pid=gone.pid)
    assert placement.joined(store, alone) is None


def test_the_end_of_a_process_is_in_the_log_of_each_of_its_streams(store: Store, tmp_path: Path) -> None:
    first, second = (store.begin(one, str(tmp_path / one.operator), SHARED.process) for one in (SHARED, SHARED))
    for driver in (first, second):
        Path(driver.log).parent.mkdir(exist_ok=True)
        store.update(driver.id, pid=4711, born=1.0)
    placement.process_log(first).write_text("x" * 5000 + "out of memory")
    placement.append_tail(store, store.driver(second.id))
    assert Path(second.log).read_text().endswith("out of memory")
    assert len(Path(second.log).read_text()) == 4000
    placement.append_tail(store, replace(second, shares=None))
    assert len(Path(second.log).read_text()) == 4000


def test_what_streams_use_adds_up_to_what_the_process_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    process, threads = iter([(10.0, 900), (16.0, 1200), (17.0, 500)]), {1: 1.0, 2: 3.0}
    monkeypatch.setattr(meter, "_measured", lambda: next(process))
    monkeypatch.setattr(meter, "_seconds", lambda thread: threads[int(thread.name)])
    streams = {number: threading.Thread(name=str(number)) for number in threads}
    division, counted = Division(), Usage(rows=7)
    first = ShareMeter(division, 1)
    first.count(counted)
    assert first.read() == counted
    division.measure(streams)
    assert {n: one.processor for n, one in division.usages.items()} == {1: 1.0 + 3.0, 2: 3.0 + 3.0}
    threads[1] = 5.0
    division.measure(streams)
    assert {n: one.processor for n, one in division.usages.items()} == {1: 4.0 + 4.0 + 1.0, 2: 6.0 + 1.0}
    division.measure({1: streams[1]})
    assert division.usages[1].processor == 10.0
    assert first.read() == Usage(rows=7, processor=10.0, memory=600)


def test_the_time_of_a_thread_is_measured() -> None:
    ends, began = threading.Event(), threading.Event()

    def work() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        began.set()
        ends.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(60)
    assert meter._seconds(thread) > 0.02
    ends.set()
    thread.join()
    end = time.monotonic() + 60
    while meter._seconds(thread) and time.monotonic() < end:  # the system's thread ends after Python's
        time.sleep(0.001)
    assert meter._seconds(thread) == 0.0


PROGRAM = """
import logging, sys, threading, traceback, warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from floodmark.control.processes import output

output.install()
logging.basicConfig(format="%(message)s")

def stream(name):
    with output.into(Path(name)):
        print(f"{name} says")
        logging.warning(f"{name} logs")
        print(f"{name} errs", file=sys.stderr)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(print, f"{name} in a pool").result()
        try:
            raise ValueError(f"{name} raises")
        except ValueError:
            traceback.print_exc()

threads = [threading.Thread(target=stream, args=(name,)) for name in ("one.log", "two.log")]
for thread in threads:
    thread.start()
print("process")
for thread in threads:
    thread.join()
print("process again")
"""


def test_what_a_stream_writes_is_in_its_log_whichever_thread_writes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("process\nprocess again\n", "")
    for name in ("one.log", "two.log"):
        lines = (tmp_path / name).read_text().splitlines()
        assert lines[:4] == [f"{name} says", f"{name} logs", f"{name} errs", f"{name} in a pool"]
        assert lines[-1] == f"ValueError: {name} raises"


def test_an_unknown_word_for_streams_is_refused() -> None:
    with pytest.raises(SetupError, match=r"SETUP-073 .*streams: shared or isolated, got streams='alone'"):
        Settings(streams="alone")  # type: ignore[arg-type]
