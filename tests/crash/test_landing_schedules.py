"""Random schedules against supervised landings and the streams that read them: processes die at any write, hang, and are doubled; actions run meanwhile, and the control store is away.

Source and streams are real ones, on the embedded engine. Whatever was done, each row has landed once, and the tables of the streams hold what a plain loop over the rows finds.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from background import check, in_background
from seeds import seed_of
from stored import rows
from supervised import supervisors

from floodmark.control.processes import supervisor as supervisor_module
from floodmark.control.processes.package import load
from floodmark.control.processes.supervisor import LEASE, Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams import actions
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.verification import Verification
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.lake.restore import savepoints
from floodmark.lake.table import entries

CODE = '''
"""A source, and two streams that read it."""
from floodmark import Ascending, Contract, EventTime, Files, Restart, Settings, Source, Stream, Tumbling, Workspace, operator, operator_asset, source_asset, sum

AT_ONCE = Restart.fixed("0 s", budget=None)

class Reading(Contract):
    """A number."""
    at: EventTime
    lane: str
    value: int

readings = source_asset(
    Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending(), files_per_commit=1),
    poll="50 ms",
    restart=AT_ONCE,
)

@operator
def sums(readings: Stream[Reading]) -> Stream:
    """Sums by minute."""
    return readings.key_by("lane").window(Tumbling("1 minute")).aggregate(total=sum("value"))WIDER

@operator
def evens(readings: Stream[Reading]) -> Stream:
    """Even numbers."""
    return readings.filter("value % 2 = 0")

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    operators = [operator_asset(one, restart=AT_ONCE) for one in (sums, evens)]
    return Workspace(sources=[readings], operators=operators, settings=Settings(lake="lake", engine="embedded", streams="HOSTING"))
'''
STREAMS = ("readings", "sums", "evens")
WIDER = '.with_columns(double="total * 2")'
POINTS = [
    f"{point}:{hit}"
    for kind in ("landing", "landed", "embedded", "micro_batch", "checkpoint")
    for point in crash.POINTS[kind]
    if point not in {"landing.before_end", "landing.after_end"}
    for hit in (1, 2)
]
"""At which a process dies, the first or the second time that it comes there; one that does not come there lives."""
REFUSED = {
    "LIFECYCLE-003": "a savepoint is being made",
    "LIFECYCLE-030": "there is no stream yet",
    "LIFECYCLE-050": "the same",
    "LIFECYCLE-053": "the stream was started again meanwhile",
    "LIFECYCLE-054": "another action is at work",
    "LIFECYCLE-055": "another one took over",
    "PLAN-011": "a column does not go away again but by a rollback",
    "STATE-021": "a savepoint of a stream that is at work was overtaken by a rollback",
}
PATIENCE_SECONDS = 300


def fleet_of(root: Path, hosting: str, wider: str = "") -> Fleet:
    """The streams by the code as it is now."""
    (root / "inbox").mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "streams_of_schedule"\n')
    (root / "streams_of_schedule.py").write_text(CODE.replace("WIDER", wider).replace("HOSTING", hosting))
    workspace = load(root, "dev", str(root), str(root / "lake"))
    sys.path.remove(str(root))
    del sys.modules["streams_of_schedule"]
    return Fleet(workspace=workspace, root=root, say=lambda _: None)


@dataclass
class World:
    """What one schedule has done.

    Args:
        root: folder of its workspace.
        seed: what it draws from.
        away: seconds for which the control store is away each time.
    """

    root: Path
    seed: int
    away: float
    files: int = 0
    calm: bool = False
    """Whether processes die no more."""
    history: list[str] = field(default_factory=list)
    supervisors: list[Supervisor] = field(default_factory=list)
    rows_away: int = 0
    """Rows that have landed while the control store was away."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.hosting = self.draw.choice(["shared", "isolated"])
        self.fleet = fleet_of(self.root, self.hosting)
        self.over, self.turn = threading.Event(), threading.Lock()

    def dies(self, driver: Driver) -> str:
        """The point at which the process of a driver dies; empty if it lives."""
        draw = random.Random(f"{self.seed} {driver.stream.operator} {driver.epoch}")
        return "" if self.calm or draw.random() < 0.4 else draw.choice(POINTS)

    def supervise(self) -> None:
        """Let all supervisors look, one after the other, until all is over."""
        while not self.over.wait(0.02):
            with self.turn:
                now = list(self.supervisors)
            for one in now:
                with suppress(FloodmarkError):  # the control store is away
                    one.tick()

    def drivers(self) -> list[Driver]:
        """The newest driver of each stream."""
        return [one for name in STREAMS for one in self.fleet.store.drivers(self.fleet.stream(name))[:1]]

    def signal(self, number: int) -> int | None:
        """Send a signal to one of the processes of the streams; returns its id."""
        lives = [one.pid for one in self.drivers() if one.ended_at is None and one.pid is not None]
        pid = self.draw.choice(lives) if lives else None
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def until(self, seen: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether something is so within a time."""
        end = time.monotonic() + seconds
        while not seen():
            check(self.looking)
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    # ---- what can happen

    def put(self) -> None:
        """Files of two rows of a minute, and one that is set aside; each appears whole."""
        for _ in range(self.draw.randint(1, 3)):
            number = self.files
            part, minute = (
                self.root / "inbox" / f"{number:03}.csv.part",
                f"2001-01-01T{number // 60:02}:{number % 60:02}",
            )
            part.write_text(
                f"at,lane,value\n{minute}:01,a,{number}\n{minute}:02,b,{number + 100}\n{minute}:03,c,none\n"
            )
            part.replace(part.with_suffix(""))
            self.files += 1

    def wait(self) -> None:
        """For what is there to land, or not."""
        self.until(lambda: len(self.landed()) == 2 * self.files, self.draw.choice([0.1, 1, 5]))

    def run(self) -> None:
        """All there is has landed and is read."""
        assert self.until(lambda: len(self.landed()) == 2 * self.files and self.counts()["evens"] >= self.files)

    def kill(self) -> None:
        """A process of a stream."""
        self.signal(signal.SIGKILL)

    def hang(self) -> None:
        """A process that is at work again a little later, or when its supervisor has given it up."""
        pid = self.signal(signal.SIGSTOP)
        self.put()
        if pid is not None and self.draw.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def pause(self) -> None:
        """A stream is stopped, or started again."""
        self.fleet.want(self.draw.choice(STREAMS), self.draw.choice(["stopped", "running", "running"]))

    def replace_supervisor(self) -> None:
        """One looks no more, as if it were killed; or it does, beside the one that has taken over."""
        self.fleet.store.release(LEASE, self.supervisors[-1].holder)
        made = self.supervisor(f"{len(self.history)}")
        with self.turn:
            self.supervisors = [*self.supervisors[-1:], made] if self.draw.random() < 0.5 else [made]

    def savepoint(self) -> None:
        """Of the stream with state."""
        self.act(lambda: savepoints.create("sums", self.fleet.lake))

    def upgrade(self) -> None:
        """To one of two versions."""
        fleet = fleet_of(self.root, self.hosting, self.draw.choice(["", WIDER]))
        verification = Verification(patience=30, soak=0.1)
        self.act(lambda: actions.upgrade(fleet, fleet.workspace.operator("sums"), verification=verification))

    def roll_back(self) -> None:
        """To any savepoint."""
        made = savepoints.savepoints(self.fleet.lake, "sums")
        if made:
            chosen = self.draw.choice(made)
            self.act(lambda: actions.roll_back(self.fleet, chosen))

    def act(self, action: Callable[[], Any]) -> None:
        """An action may be refused for what else goes on."""
        try:
            action()
        except FloodmarkError as error:
            if error.code not in REFUSED:
                raise
            self.history[-1] += f" {error.code}"

    def store_away(self) -> None:
        """Nobody can read or write the control store, while files arrive."""
        file = self.fleet.store.url.removeprefix("sqlite:///")
        before = len(self.landed())
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            with suppress(sqlite3.OperationalError):  # one that hangs has it: it is away, too
                connection.execute("BEGIN EXCLUSIVE")
            end = time.monotonic() + self.away
            while time.monotonic() < end:
                self.put()
                self.until(lambda: len(self.landed()) == 2 * self.files, self.away / 5)
            connection.rollback()
        self.rows_away += len(self.landed()) - before
        self.history[-1] += f" {len(self.landed()) - before} rows landed"

    # ---- what comes of it

    def landed(self) -> list[int]:
        """The numbers of the log, in its order."""
        path = self.fleet.lake.log("readings")
        made = rows(path, "_sequence") if entries.is_table(path) else []
        return [one.value for one in made if one.value is not None]

    def settle(self) -> None:
        """Processes die no more; all is started, reads all there is, and stops."""
        self.calm = True
        for name in STREAMS:
            self.fleet.want(name, "running")
        for driver in self.drivers():
            if driver.pid is not None and driver.ended_at is None:
                with suppress(ProcessLookupError):
                    os.kill(driver.pid, signal.SIGCONT)
        self.put()  # its minute is the last, and stays open
        assert self.until(lambda: len(self.landed()) >= 2 * self.files), (self.history, self.drivers())
        assert self.until(lambda: all(self.counts()[name] >= n.total() for name, n in self.expected().items())), (
            self.history,
            self.drivers(),
        )
        for name in STREAMS:
            self.fleet.want(name, "stopped")
        assert self.until(lambda: all(one.ended_at is not None for one in self.drivers())), self.history

    def output(self, name: str) -> list[Any]:
        """The rows of an output, without markers."""
        path = self.fleet.lake.output(name)
        return [one for one in rows(path) if one._kind != 1] if entries.is_table(path) else []

    def counts(self) -> dict[str, int]:
        """Output -> its number of rows."""
        return {name: len(self.output(name)) for name in ("sums", "evens")}

    def expected(self) -> dict[str, Counter[Any]]:
        """By a plain loop."""
        values = [value for number in range(self.files) for value in (number, number + 100)]
        closed = [(lane, number + more) for number in range(self.files - 1) for lane, more in (("a", 0), ("b", 100))]
        return {"sums": Counter(closed), "evens": Counter(value for value in values if value % 2 == 0)}

    def check(self) -> None:
        """Each row is there once, and so is each result."""
        assert self.landed() == [value for number in range(self.files) for value in (number, number + 100)]
        aside = Counter(one.file for one in rows(self.fleet.lake.quarantine("readings")))
        assert aside == Counter(f"{number:03}.csv" for number in range(self.files))
        sums, evens = self.output("sums"), self.output("evens")
        assert Counter((one.lane, one.total) for one in sums) == self.expected()["sums"]
        assert Counter(one.value for one in evens) == self.expected()["evens"]
        assert all(getattr(one, "double", None) in {None, one.total * 2} for one in sums)

    supervisor: Callable[..., Supervisor] = field(init=False)
    looking: Future[None] = field(init=False)
    """The looks of all supervisors."""


ACTIONS = {
    World.put: 5,
    World.wait: 4,
    World.kill: 3,
    World.hang: 2,
    World.pause: 1,
    World.replace_supervisor: 2,
    World.savepoint: 2,
    World.upgrade: 1,
    World.roll_back: 1,
    World.store_away: 1,
}


Action = Callable[[World], None]


@contextmanager
def supervised(world: World) -> Iterator[None]:
    """Supervisors look beside the block; behind it no process is left."""
    with ExitStack() as stack:
        world.supervisor = stack.enter_context(supervisors(world.fleet, world.dies))
        world.supervisors = [world.supervisor("first")]
        world.looking = in_background(world.supervise)
        try:
            yield
        finally:
            world.over.set()
            world.looking.result(PATIENCE_SECONDS)


def play(root: Path, seed: int, *, away: float, schedule: Sequence[Action] = (), count: int = 0) -> World:
    """One schedule from its seed: so many actions, a kill and an outage of the control store; or one that is given, of processes that do not die by themselves."""
    root.mkdir()
    world = World(root, seed, away, calm=bool(schedule))
    world.put()
    world.fleet.start(world.fleet.workspace.streams)
    drawn = [*schedule, *world.draw.choices(list(ACTIONS), list(ACTIONS.values()), k=count)]
    if not schedule:
        drawn += [World.kill, World.store_away]
        world.draw.shuffle(drawn)
    try:
        with supervised(world):
            for action in drawn:
                world.history.append(action.__name__)
                action(world)
            world.settle()
        world.check()
    except BaseException as error:
        error.add_note(f"seed {seed}: {world.history}")
        raise
    return world


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "LEASE_SECONDS", 5.0)
    monkeypatch.setattr(supervisor_module, "SILENT_SECONDS", 6.0)
    monkeypatch.setattr(supervisor_module, "GRACE_SECONDS", 5.0)


@pytest.mark.feature("Z7", "Z14", "Z15", "F8")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("schedule", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 50))])
def test_whatever_dies_each_row_lands_once_and_each_result_is_there_once(tmp_path: Path, schedule: int) -> None:
    """The first schedule is that of each run of the tests."""
    play(tmp_path / "world", seed_of(f"landing {schedule}"), away=1.0, count=12 if schedule else 4)


@pytest.mark.soak
@pytest.mark.feature("Z15")
@pytest.mark.timeout(1800)
def test_the_control_store_is_away_for_a_minute_while_rows_arrive(tmp_path: Path) -> None:
    schedule = [World.run, World.store_away, World.kill, World.put, World.run]
    world = play(tmp_path / "world", seed_of("a minute"), away=60.0, schedule=schedule)
    assert world.rows_away > 0, world.history
