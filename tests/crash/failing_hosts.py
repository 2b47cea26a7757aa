"""Hosts of tests of failovers, each with a name and process ids of its own, and the workspace that they run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
from deltalake import DeltaTable
from postgres import data_folder, database, serving
from stored import rows
from supervised import PATIENCE_SECONDS, fleet_of

from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet

STREAMS = ("readings", "sums")
CODE = '''
"""A source, and sums of its numbers by minute."""
from floodmark import Ascending, Contract, EventTime, Files, Restart, Settings, Source, Stream, Tumbling, Workspace, operator, operator_asset, source_asset, sum

class Reading(Contract):
    """A number."""
    at: EventTime
    lane: str
    value: int

AT_ONCE = Restart.fixed("0 s", budget=None)
readings = source_asset(
    Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending()), poll="50 ms", restart=AT_ONCE
)

@operator
def sums(readings: Stream[Reading]) -> Stream:
    """Sums by minute."""
    return readings.key_by("lane").window(Tumbling("1 minute")).aggregate(total=sum("value"))

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    settings = Settings(lake="lake", engine="embedded", control="CONTROL")
    return Workspace(sources=[readings], operators=[operator_asset(sums, restart=AT_ONCE)], settings=settings)
'''
SHIFTED = """
import os
import time

_shift = float(os.environ.get("SHIFT_SECONDS", "0"))
_seconds, _nanoseconds = time.time, time.time_ns
if _shift:
    time.time = lambda: _seconds() + _shift
    time.time_ns = lambda: _nanoseconds() + int(_shift * 1e9)
"""
"""Imported at the start of each Python of a host, as a module of the workspace: its clock is wrong."""


@dataclass(slots=True)
class Host:
    """A host: namespaces in which a supervisor and its drivers run.

    Args:
        root: folder of the workspace.
        name: of the host.
        shift: how far its clock is ahead, s.
        times: lease of its supervisor, and the time after which another host counts as silent, s; by default those of every supervisor.
        stopped: True if its supervisor was stopped.
    """

    root: Path
    name: str
    shift: float
    times: tuple[float, ...] = ()
    stopped: bool = False
    process: subprocess.Popen[bytes] = field(init=False)
    _before: int = field(init=False)

    def __post_init__(self) -> None:
        program = [sys.executable, str(Path(__file__).with_name("failover_process.py")), str(self.root)]
        program += map(str, self.times)
        script = 'hostname "$0"; "$@" & wait $!; exec sleep infinity'  # the host outlives its supervisor
        spaces = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        paths = os.pathsep.join(map(str, (self.root, Path(__file__).parent, os.environ.get("PYTHONPATH", ""))))
        self._before = self.log.read_text("utf-8").count("stands by") if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*spaces, "bash", "-c", script, self.name, *program],
                env=os.environ | {"SHIFT_SECONDS": str(self.shift), "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def stands_by(self) -> bool:
        """True once its supervisor has begun to wait for its turn."""
        return self.log.read_text("utf-8").count("stands by") > self._before

    @property
    def log(self) -> Path:
        """What its supervisor says."""
        return self.root / f"{self.name}.txt"

    @property
    def supervisor(self) -> psutil.Process:
        """The process of its supervisor."""
        return next(filter(_is_supervisor, psutil.Process(self.process.pid).children(recursive=True)))

    def kill(self) -> None:
        """Let everything on it end at once."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)


def _is_supervisor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it has ended since it was listed
        return any("failover_process" in word for word in process.cmdline()[:3]) and process.name() != "bash"
    return False


@contextmanager
def started(root: Path) -> Iterator[Fleet]:
    """A workspace in files, whose control store is in PostgreSQL, and whose streams were started."""
    with data_folder() as data, serving(data) as server:
        (root / "sitecustomize.py").write_text(SHIFTED)
        made = fleet_of(root, CODE.replace("CONTROL", database(server, "control")))
        put(root, 0)
        made.start(made.workspace.streams)
        yield made


def put(root: Path, number: int) -> None:
    """A file of two rows of a minute; it appears whole."""
    part, minute = root / "inbox" / f"{number}.csv.part", f"2001-01-01T00:{number:02}"
    part.write_text(f"at,lane,value\n{minute}:01,a,{number}\n{minute}:02,b,{number + 100}\n")
    part.replace(part.with_suffix(""))


def drivers(fleet: Fleet) -> dict[str, Driver]:
    """Stream -> its newest driver."""
    newest = {name: fleet.driver(name) for name in STREAMS}
    return {name: driver for name, driver in newest.items() if driver is not None}


def run_on(fleet: Fleet, name: str) -> bool:
    """True if all streams run on a host."""
    now = drivers(fleet)
    return len(now) == len(STREAMS) and all(
        one.state == "running" and one.ended_at is None and (one.host or "").split("/")[0] == name
        for one in now.values()
    )


def has_summed(fleet: Fleet, files: int) -> bool:
    """True if the output has the sums of all closed minutes, each once, and nothing else."""
    path = fleet.lake.output("sums")
    if not DeltaTable.is_deltatable(path):
        return False
    found = sorted((row.window_start.minute, row.lane, row.total) for row in rows(path) if row._kind == 0)
    right = sorted(
        (number, lane, number + more) for number in range(files - 1) for lane, more in (("a", 0), ("b", 100))
    )
    assert len(found) <= len(right), "a row is there twice"
    return found == right


def until(fleet: Fleet, seen: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        if time.monotonic() > end:
            said = [path.read_text("utf-8")[-2000:] for path in fleet.root.glob("*.txt")]
            logs = [
                Path(one.log).read_text("utf-8")[-2000:] for one in drivers(fleet).values() if Path(one.log).exists()
            ]
            raise AssertionError("\n".join([str(drivers(fleet)), *said, *logs]))
        time.sleep(0.1)


def check_turns(fleet: Fleet) -> None:
    """No driver of a stream was started before the one before had ended, by the store's clock."""
    for name in STREAMS:
        ordered = sorted(fleet.store.drivers(fleet.stream(name), 100), key=lambda one: one.epoch)
        for before, after in pairwise(ordered):
            assert before.ended_at is not None
            assert before.ended_at <= after.started_at, (name, before, after)
