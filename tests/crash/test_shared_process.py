"""Streams that share a process: what happens to one of them does not stop the others, and what kills all of them loses no row."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from seeds import seed_of
from stored import rows
from supervised import PATIENCE_SECONDS, fleet_of, supervisors

from floodmark.control.processes import placement
from floodmark.control.processes import supervisor as supervising
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state import store as control_store
from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core import crash
from floodmark.core.errors import SetupError

OTHERS = ("readings", "sums", "counts")
STREAMS = (*OTHERS, "guilty")
CODE = '''
"""A source and three operators. One of them does what a value and a file say."""
import sys
import time
from pathlib import Path
from floodmark import (
    Ascending, Checkpoints, Contract, EventTime, Files, ProcessFunction, Restart, Settings, Source, Stream, Tumbling, Workspace, count, operator,
    operator_asset, source_asset, sum,
)

FOLDER = Path("ROOT")
AT_ONCE = Restart.fixed("0 s", budget=None)

class Reading(Contract):
    """A number."""
    at: EventTime
    lane: str
    value: int

class Seen(Contract):
    """A number that was seen."""
    value: int

readings = source_asset(
    Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending(), files_per_commit=1),
    poll="50 ms",
    restart=AT_ONCE,
)

class Guilty(ProcessFunction):
    """Each number; fails, exits or loops for some."""

    def on_element(self, row, ctx):
        print(f"saw {row['value']}")
        if row["value"] == 2 and (FOLDER / "fails").exists():
            raise ValueError("it is 2")
        if row["value"] == 3 and (FOLDER / "exits").exists():
            sys.exit(3)
        while row["value"] in (1, 6) and (FOLDER / "loops").exists():
            time.sleep(0.01)
        yield {"value": row["value"]}

@operator
def guilty(readings: Stream[Reading]) -> Stream:
    """Each number."""
    return readings.key_by("lane").process(Guilty(), schema=Seen)

@operator
def sums(readings: Stream[Reading]) -> Stream:
    """Sums by minute."""
    return readings.key_by("lane").window(Tumbling("1 minute")).aggregate(total=sum("value"))

@operator
def counts(readings: Stream[Reading]) -> Stream:
    """Counts by minute."""
    return readings.key_by("lane").window(Tumbling("1 minute")).aggregate(n=count())

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    timed = Checkpoints(timeout="20 s" if (FOLDER / "timed").exists() else None)
    operators = [operator_asset(guilty, restart=AT_ONCE, checkpoints=timed), *(operator_asset(one, restart=AT_ONCE) for one in (sums, counts))]
    return Workspace(sources=[readings], operators=operators, settings=Settings(lake="lake", engine="ENGINE"))
'''
POINTS = [
    point
    for kind in ("embedded", "landing")
    for point in crash.POINTS[kind]
    if point.rpartition("_")[2] not in {"end", "recover", "merge"}
]
"""Without those that a short life does not come to: an end of input, a landing taken up again, files of state that become one."""


@pytest.fixture
def fleet(tmp_path: Path, engine_name: str) -> Fleet:
    """A workspace in files, whose streams were started."""
    made = fleet_of(tmp_path, CODE.replace("ROOT", str(tmp_path)).replace("ENGINE", engine_name))
    put(tmp_path, 0)
    made.start(made.workspace.streams)
    return made


@pytest.fixture
def supervising_with(fleet: Fleet) -> Iterator[Callable[..., Supervisor]]:
    """Supervisors of all streams."""
    with supervisors(fleet) as supervisor:
        yield supervisor


def put(root: Path, number: int) -> None:
    """A file of two rows of a minute, and one that is set aside; it appears whole."""
    part, minute = root / "inbox" / f"{number}.csv.part", f"2001-01-01T00:{number:02}"
    part.write_text(f"at,lane,value\n{minute}:01,a,{number}\n{minute}:02,b,{number + 100}\n{minute}:03,c,none\n")
    part.replace(part.with_suffix(""))


def until(fleet: Fleet, one: Supervisor, seen: Callable[[dict[str, Driver]], object]) -> dict[str, Driver]:
    """Let a supervisor look until the newest drivers, by stream, are so."""
    end, drivers = time.monotonic() + PATIENCE_SECONDS, dict[str, Driver]()
    while time.monotonic() < end:
        with suppress(SetupError):  # a paused process holds a lock of the store
            assert one.tick()
        newest = {name: fleet.driver(name) for name in STREAMS}
        drivers = {name: driver for name, driver in newest.items() if driver is not None}
        if len(drivers) == len(STREAMS) and seen(drivers):
            return drivers
        time.sleep(0.02)
    logs = [Path(driver.log) for driver in drivers.values()]
    raise AssertionError("\n".join([str(drivers), *(log.read_text()[-2000:] for log in logs if log.exists())]))


def run(drivers: dict[str, Driver]) -> bool:
    return all(driver.state == "running" and driver.ended_at is None for driver in drivers.values())


def processes(drivers: dict[str, Driver]) -> int:
    return len({driver.pid for driver in drivers.values()})


def has_read(fleet: Fleet, files: int, *names: str) -> bool:
    """Whether the outputs of operators have all rows of the minutes that are closed."""
    return all(
        DeltaTable.is_deltatable(fleet.lake.output(name)) and results(fleet, name) == truth(name, files)
        for name in names or STREAMS[1:]
    )


def results(fleet: Fleet, name: str) -> list[tuple[object, ...]]:
    """The rows of an output, sorted, each as often as it is there."""
    found = [row for row in rows(fleet.lake.output(name)) if row._kind == 0]
    if name == "guilty":
        return sorted((row.value,) for row in found)
    value = "total" if name == "sums" else "n"
    return sorted((row.window_start.minute, row.lane, getattr(row, value)) for row in found)


def truth(name: str, files: int) -> list[tuple[object, ...]]:
    """What is right after some files: of the windows, all but the last one are closed."""
    if name == "guilty":
        return sorted((value,) for number in range(files) for value in (number, number + 100))
    by_window = defaultdict[tuple[int, str], list[int]](list)
    for number in range(files - 1):
        by_window[number, "a"].append(number)
        by_window[number, "b"].append(number + 100)
    return sorted((*window, sum(values) if name == "sums" else len(values)) for window, values in by_window.items())


@pytest.mark.timeout(900)
@pytest.mark.engines("embedded")
@pytest.mark.feature("O3", "F7", "N4", "Z14")
def test_what_happens_to_one_stream_does_not_stop_the_others_and_a_killed_process_loses_no_row(
    fleet: Fleet, supervising_with: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, root = supervising_with(), fleet.root
    monkeypatch.setattr(placement, "HEALTHY_SECONDS", 10.0 * PATIENCE_SECONDS)
    put(root, 1)
    first = until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 2))
    assert processes(first) == 1
    logs = {name: Path(driver.log) for name, driver in first.items()}
    until(fleet, one, lambda _: "saw 1\n" in logs["guilty"].read_text())
    until(fleet, one, lambda _: "commit 1: 2 rows" in logs["readings"].read_text())
    assert "saw" not in "".join(logs[name].read_text() for name in STREAMS if name != "guilty")

    for file, cause, reason in ((2, "fails", "it is 2"), (3, "exits", "SystemExit: 3")):
        (root / cause).touch()
        put(root, file)
        until(fleet, one, lambda _, text=reason: text in reasons(fleet, "guilty"))  # type: ignore[misc]
        now = until(fleet, one, lambda _, files=file + 1: has_read(fleet, files, "sums", "counts"))  # type: ignore[misc]
        assert [now[name].id for name in OTHERS] == [first[name].id for name in OTHERS], "they go on"
        (root / cause).unlink()
        now = until(fleet, one, lambda drivers, files=file + 1: run(drivers) and has_read(fleet, files))  # type: ignore[misc]
        assert processes(now) == 1, "it joins them again"

    (root / "timed").touch()
    os.kill(first["sums"].pid or 0, signal.SIGKILL)
    put(root, 4)
    now = until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 5))
    assert processes(now) == len(STREAMS), "whichever of them was the cause dies alone from now on"
    monkeypatch.setattr(placement, "LONGEST_ALONE_SECONDS", 0.0)
    now = until(fleet, one, lambda drivers: run(drivers) and processes(drivers) == 1)
    put(root, 5)
    until(fleet, one, lambda drivers: has_read(fleet, 6))

    (root / "loops").touch()
    put(root, 6)
    until(fleet, one, lambda _: "EXECUTION-091" in reasons(fleet, "guilty"))
    for flag in ("loops", "timed"):
        (root / flag).unlink()
    late = fleet.store.driver(now["guilty"].id)
    assert late.state == "crashed"
    assert "operator 'guilty', micro-batch: expected a commit within 20 s, got none" in (late.reason or "")
    assert "on_element" in Path(late.log).read_text(), "where it was"
    put(root, 7)
    until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 8))
    assert {fleet.store.driver(now[name].id).state for name in OTHERS} == {"stopped"}, "none of the others has crashed"
    now = until(fleet, one, lambda drivers: run(drivers) and processes(drivers) == 1)
    before = fleet.store.drivers(fleet.stream("guilty"))[1]
    assert before.shares is None, "it ran alone before it joined them again"
    host = psutil.Process(now["sums"].pid)
    for name in STREAMS:
        fleet.want(name, "stopped")
    ended = until(fleet, one, lambda drivers: all(driver.ended_at for driver in drivers.values()))
    assert {driver.reason for driver in ended.values()} == {
        "stopped at a commit boundary",
        "stopped at a micro-batch boundary",
    }
    host.wait(PATIENCE_SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.engines("embedded")
@pytest.mark.feature("O3")
def test_a_stream_that_does_not_stop_is_killed_once_the_others_have_moved(
    fleet: Fleet, supervising_with: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, root = supervising_with(), fleet.root
    first = until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 1))
    (root / "loops").touch()
    put(root, 1)
    until(fleet, one, lambda _: "saw 1\n" in Path(first["guilty"].log).read_text() and has_read(fleet, 2, *OTHERS[1:]))
    monkeypatch.setattr(supervising, "GRACE_SECONDS", 15.0)  # the others need less to stop, on a busy machine too
    fleet.want("guilty", "stopped")
    now = until(fleet, one, lambda drivers: drivers["guilty"].ended_at)
    assert (now["guilty"].state, now["guilty"].reason) == ("stopped", "killed by SIGKILL")
    monkeypatch.undo()
    now = until(fleet, one, lambda drivers: run({name: drivers[name] for name in OTHERS}))
    assert len({now[name].pid for name in OTHERS} - {first["guilty"].pid}) == 1
    assert [fleet.store.driver(first[name].id).state for name in OTHERS] == ["stopped"] * len(OTHERS), (
        "none has crashed"
    )
    (root / "loops").unlink()
    fleet.want("guilty", "running")
    put(root, 2)
    until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 3))


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.engines("embedded")
@pytest.mark.feature("O3")
@pytest.mark.parametrize("point", POINTS)
def test_all_streams_of_a_process_that_dies_between_two_writes_start_again_and_no_row_is_lost_or_double(
    fleet: Fleet, supervising_with: Callable[..., Supervisor], point: str
) -> None:
    for number in range(1, 4):
        put(fleet.root, number)

    def has_died() -> bool:  # the list of landed files is written in a pause, when all rows are there
        return any("killed by SIGKILL" in reasons(fleet, name) for name in STREAMS)

    until(fleet, supervising_with(point=point), lambda drivers: run(drivers) and has_read(fleet, 4) and has_died())


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.engines("embedded")
@pytest.mark.feature("O3", "F8")
@pytest.mark.parametrize("schedule", range(10))
def test_whatever_is_done_to_streams_of_a_process_their_tables_end_exactly_right(
    fleet: Fleet, supervising_with: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch, schedule: int
) -> None:
    """Processes are killed or stopped for longer than they may be silent, streams stopped, started and made to fail, the supervisor replaced."""
    draw, root, files = random.Random(seed_of(f"shared {schedule}")), fleet.root, 1
    monkeypatch.setattr(placement, "LONGEST_ALONE_SECONDS", 2.0)
    monkeypatch.setattr(supervising, "SILENT_SECONDS", 6.0)
    monkeypatch.setattr(supervising, "GRACE_SECONDS", 4.0)
    monkeypatch.setattr(control_store, "_PATIENCE_SECONDS", 2)
    object.__setattr__(fleet, "store", Store(fleet.store.url))
    one = supervising_with()
    until(fleet, one, run)
    for _ in range(20):
        living = sorted({driver.pid for driver in fleet.store.living() if driver.pid is not None})
        match draw.choice(["put", "put", "kill", "pause", "stop", "start", "cause", "replace"]):
            case "put":
                put(root, files)
                files += 1
            case "kill" if living:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(living), signal.SIGKILL)
            case "pause" if living:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(living), signal.SIGSTOP)
            case "stop" | "start" as asked:
                with suppress(SetupError):  # a paused process holds a lock of the store
                    fleet.want(draw.choice(STREAMS), "running" if asked == "start" else "stopped")
            case "cause":
                flag = root / draw.choice(["fails", "exits", "loops"])
                flag.unlink() if flag.exists() else flag.touch()
            case "replace":
                one = supervising_with()
        for _ in range(draw.randint(1, 60)):
            with suppress(SetupError):
                one.tick()
            time.sleep(0.05)
    for flag in ("fails", "exits", "loops"):
        (root / flag).unlink(missing_ok=True)
    for name in STREAMS:
        while True:
            with suppress(SetupError):
                fleet.want(name, "running")
                break
            with suppress(SetupError):
                one.tick()
    put(root, files)
    until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, files + 1))
    until(fleet, one, lambda drivers: run(drivers) and processes(drivers) == 1)


@pytest.mark.timeout(1800)
@pytest.mark.engines(soak=("spark",))
def test_streams_on_spark_share_java_and_outlive_it(
    fleet: Fleet, supervising_with: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, root = supervising_with(), fleet.root
    monkeypatch.setattr(placement, "HEALTHY_SECONDS", 10.0 * PATIENCE_SECONDS)
    first = until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 1))
    assert processes(first) == 1
    (root / "fails").touch()
    for file in (1, 2):
        put(root, file)
    now = until(fleet, one, lambda _: "it is 2" in reasons(fleet, "guilty") and has_read(fleet, 3, "sums", "counts"))
    assert [now[name].id for name in OTHERS] == [first[name].id for name in OTHERS]
    (root / "fails").unlink()
    until(fleet, one, lambda drivers: run(drivers) and processes(drivers) == 1 and has_read(fleet, 3))
    (java,) = [child for child in psutil.Process(first["sums"].pid).children() if child.name() == "java"]
    java.kill()
    put(root, 3)
    now = until(fleet, one, lambda drivers: run(drivers) and has_read(fleet, 4))
    assert processes(now) == len(STREAMS), "whichever of them was the cause dies alone from now on"
    monkeypatch.setattr(placement, "LONGEST_ALONE_SECONDS", 0.0)
    until(fleet, one, lambda drivers: run(drivers) and processes(drivers) == 1)
    put(root, 4)
    until(fleet, one, lambda drivers: has_read(fleet, 5))


def reasons(fleet: Fleet, name: str) -> str:
    """Why the drivers of a stream have ended."""
    return "\n".join(driver.reason or "" for driver in fleet.store.drivers(fleet.stream(name)))
