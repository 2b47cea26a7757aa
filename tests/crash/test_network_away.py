"""The bucket of a lake and the control store are away while rows keep coming, and a process is killed meanwhile: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from s3_server import Plan, environment
from supervised import PATIENCE_SECONDS, fleet_of, supervisors

from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state import store as control_store
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import SetupError

if TYPE_CHECKING:
    from s3_server import Proxy, Server

STREAMS = ("readings", "sums")
CODE = '''
"""A source and an operator, in a bucket."""
from floodmark import (
    Ascending, Contract, EventTime, Files, Settings, Source, Stream, Tumbling, Workspace, operator, operator_asset, source_asset, sum,
)

class Reading(Contract):
    """A number."""
    at: EventTime
    lane: str
    value: int

readings = source_asset(
    Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending()), poll="50 ms"
)

@operator
def sums(readings: Stream[Reading]) -> Stream:
    """Sums by minute."""
    return readings.key_by("lane").window(Tumbling("1 minute")).aggregate(total=sum("value"))

def workspace(environment: str = "dev") -> Workspace:
    """Both."""
    return Workspace(sources=[readings], operators=[operator_asset(sums)], settings=Settings(lake="LAKE", engine="embedded"))
'''


@contextmanager
def hanging(proxy: Proxy) -> Iterator[None]:
    """Requests are taken, and nobody answers."""
    os.kill(proxy.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(proxy.pid, signal.SIGCONT)


@contextmanager
def refusing(proxy: Proxy) -> Iterator[None]:
    """Every request is answered with 503."""
    proxy.plan(Plan(fault="503"))
    try:
        yield
    finally:
        proxy.plan()


def put(root: Path, number: int) -> None:
    """A file of two rows of a minute; it appears whole."""
    part, minute = root / "inbox" / f"{number:05}.csv.part", f"2001-01-01T{number // 60:02}:{number % 60:02}"
    part.write_text(f"at,lane,value\n{minute}:01,a,{number}\n{minute}:02,b,{number + 100}\n")
    part.replace(part.with_suffix(""))


def results(fleet: Fleet) -> list[tuple[int, str, int]]:
    """(minute, lane, total), sorted, each as often as it is there."""
    table = DeltaTable(fleet.lake.output("sums")).to_pyarrow_table().to_pylist()
    minutes = [(row["window_start"].hour * 60 + row["window_start"].minute, row) for row in table if row["_kind"] == 0]
    return sorted((minute, row["lane"], row["total"]) for minute, row in minutes)


def batch(fleet: Fleet) -> int:
    driver = fleet.driver("sums")
    return -1 if driver is None or driver.batch is None else driver.batch


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.feature("Z15", "O3")
@pytest.mark.parametrize(
    ("away", "seconds"),
    [
        pytest.param(hanging, 9, id="hangs"),
        pytest.param(hanging, 60, id="hangs for a minute"),
        pytest.param(refusing, 60, id="refuses for a minute"),
    ],
)
def test_a_bucket_and_a_store_that_are_away_under_load_lose_no_row_though_a_process_is_killed(
    s3: Server,
    s3_proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: Callable[..., object],
    seconds: float,
) -> None:
    for name, value in environment(s3_proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(control_store, "_PATIENCE_SECONDS", 1)
    fleet = fleet_of(tmp_path, CODE.replace("LAKE", f"{s3.bucket()}/lake"))
    object.__setattr__(fleet, "store", Store(fleet.store.url))
    put(tmp_path, 0)
    fleet.start(fleet.workspace.streams)
    files, control = 1, fleet.store.url.removeprefix("sqlite:///")

    def load(one: Supervisor, until: Callable[[], object], limit: float = PATIENCE_SECONDS) -> None:
        """Files come and the supervisor looks, until then."""
        nonlocal files
        end = time.monotonic() + limit
        while not until() and time.monotonic() < end:
            with suppress(SetupError):
                one.tick()
            put(tmp_path, files)
            files += 1
            time.sleep(0.2)

    with supervisors(fleet, STREAMS) as supervisor:
        one = supervisor()
        load(one, lambda: batch(fleet) >= 2)
        first = fleet.driver("sums")
        assert first is not None
        with away(s3_proxy):  # type: ignore[attr-defined]
            with sqlite3.connect(control, isolation_level=None) as other:
                other.execute("BEGIN EXCLUSIVE")
                load(one, lambda: False, seconds / 3)
                os.kill(first.pid or 0, signal.SIGKILL)
                load(one, lambda: False, seconds / 3)
                other.execute("ROLLBACK")
            load(one, lambda: False, seconds / 3)
        last = files
        wanted = sorted(row for n in range(last - 1) for row in ((n, "a", n), (n, "b", n + 100)))
        load(one, lambda: set(wanted) <= set(results(fleet)))
        assert [row for row in results(fleet) if row[0] < last - 1] == wanted
        drivers = [driver for name in STREAMS for driver in fleet.store.drivers(fleet.stream(name))]
        assert "killed by SIGKILL" in {driver.reason for driver in drivers}
        assert sum(driver.state == "crashed" for driver in drivers) <= len(STREAMS) + 2, drivers
