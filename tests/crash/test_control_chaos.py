"""Random schedules against the control plane: drivers, supervisors and appliers are killed, stopped past their leases, doubled, and all of them at once.

Streams run in memory, with the real control store, real tables and real checkpoints. Whatever was done, the tables end as if nothing had been.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from action_process import fleet
from control_process import LEASE_SECONDS
from deltalake import DeltaTable, write_deltalake
from events import START
from lifecycle_process import TOTALS, WIDER
from local_driver import run
from processes import paths
from seeds import seed_of

from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.testing.log import Log

HERE = Path(__file__).parent
COMMITS = 12
REFUSED = {
    "LIFECYCLE-030": "there is no stream yet",
    "LIFECYCLE-050": "there is no stream yet",
    "LIFECYCLE-003": "it is being made, or a process that was killed has not let go yet",
    "LIFECYCLE-053": "no supervisor is at work, or the stream was started again meanwhile",
    "LIFECYCLE-054": "another action is at work",
    "LIFECYCLE-055": "another one took over",
    "PLAN-011": "a column does not go away again but by a rollback",
    "STATE-021": "a savepoint of a stream that is at work was overtaken by a rollback",
}


def history_of_rows(seed: int) -> list[pa.Table]:
    """The log in commits: keyed numbers in disorder, a few of them too late."""
    draw, log = random.Random(seed), Log(TOTALS.inputs[0].schema)
    minutes = [max(0, i - draw.choice([0, 0, 0, 3, 20, 45])) for i in range(COMMITS * 12)]
    rows = [{"at": START + timedelta(minutes=m), "key": "abc"[i % 3], "value": i} for i, m in enumerate(minutes)]
    log.rows(rows, "at", bound=5 * 60_000)
    log.end()
    cuts = [i * 12 for i in range(COMMITS)] + [len(log.entries)]
    return [log.table(a, b) for a, b in itertools.pairwise(cuts)]


@dataclass
class World:
    """All processes of one schedule, and what they have done."""

    root: Path
    seed: int
    commits: list[pa.Table] = field(default_factory=list)
    supervisors: list[subprocess.Popen[str]] = field(default_factory=list)
    landed: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.commits = history_of_rows(self.seed)
        self.lake = Lake(str(self.root / "lake"))
        self.fleet: Fleet = fleet(self.root, self.lake.root, TOTALS)

    def process(self, action: str, *names: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "control_process.py"), action, self.lake.root, str(self.root), *names]
        environment = {**os.environ, "PYTHONPATH": paths()}
        log = (self.root / f"{action}.log").open("a")
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    # ---- what can happen

    def land(self) -> None:
        for _ in range(self.draw.randint(1, 2)):
            if self.landed < len(self.commits):
                write_deltalake(self.lake.log("events"), self.commits[self.landed], mode="append")
                self.landed += 1

    def wait(self) -> None:
        with suppress(AssertionError):
            self.until(self.caught_up, self.draw.choice([0.3, 3]))

    def savepoint(self) -> None:
        self.act("savepoint")

    def upgrade(self) -> None:
        self.act("upgrade", self.draw.choice([TOTALS, WIDER]).version)

    def rollback(self) -> None:
        made = savepoints.savepoints(self.lake, "totals")
        if made:
            self.act("rollback", self.draw.choice(made).manifest.id)

    def act(self, action: str, *names: str) -> None:
        """An action that is let be, or killed on the way."""
        killed = self.draw.random() < 0.5
        process = self.process(action, *names)
        try:
            process.wait(timeout=self.draw.uniform(1.0, 5.0) if killed else 300)
        except subprocess.TimeoutExpired:
            assert killed, (self.root / f"{action}.log").read_text()[-3000:]
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode > 0:
            text = (self.root / f"{action}.log").read_text()[-3000:]
            assert any(f"{code} " in text.splitlines()[-1] for code in REFUSED), text
        self.told[-1] += f" {'killed' if process.returncode < 0 else process.returncode}"

    def kill_driver(self) -> None:
        for process in self.drivers():
            with suppress(psutil.NoSuchProcess):  # it ends by itself
                process.kill()

    def stop_driver(self) -> None:
        """As long as it takes for its supervisor to give it up; or not."""
        for process in self.drivers():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
            if self.draw.random() < 0.5:
                time.sleep(self.draw.uniform(0.1, 1.0))
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)

    def kill_supervisor(self) -> None:
        for one in self.supervisors:
            one.kill()
            one.wait()
        self.supervisors = []
        time.sleep(self.draw.uniform(0, LEASE_SECONDS))
        self.supervise()

    def two_supervisors(self) -> None:
        """The first is stopped past its lease, and wakes up when the second one has taken over."""
        first = self.supervisors[-1]
        first.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.5, 1.5) * LEASE_SECONDS)
        self.supervise()
        time.sleep(self.draw.uniform(0.5, 2.0))
        first.send_signal(signal.SIGCONT)

    def reboot(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for one in self.supervisors:
            one.wait()
        self.supervisors = []
        time.sleep(LEASE_SECONDS)
        self.supervise()

    def pause(self) -> None:
        if self.fleet.deployments(["totals"]):
            self.fleet.want("totals", self.draw.choice(["running", "stopped"]))

    def fork(self) -> None:
        """An arm of its own, which ends like the stream itself."""
        made = savepoints.savepoints(self.lake, "totals")
        if not made:
            return
        one = self.draw.choice(made)
        version = next(v for v in (TOTALS, WIDER) if v.version == one.manifest.version)
        arm = fork(self.lake, one, str(self.root / f"arm-{len(self.told)}"))
        stopped = iter([False] * self.landed + [True] * 10_000)
        last = DeltaTable(self.lake.log("events")).version()

        def done() -> bool:
            return next(stopped) or position(arm) >= last

        run(version, arm, done, lambda _: None)
        if position(arm) == last:
            assert rows(arm) == self.truth(last + 1), "the arm"

    # ---- what is there

    def supervise(self) -> None:
        self.supervisors = [one for one in self.supervisors if one.poll() is None]
        self.supervisors.append(self.process("supervise"))

    def processes(self) -> Iterator[psutil.Process]:
        """All of this schedule, by its own folder."""
        return (process for process, _ in self._commands())

    def drivers(self) -> list[psutil.Process]:
        return [process for process, words in self._commands() if "floodmark.control.processes.driver" in words]

    def _commands(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        """Each process of this schedule with its command."""
        for process in psutil.process_iter():
            words = list[str]()
            with suppress(psutil.Error):  # it has ended
                words = process.cmdline()
            if str(self.root) in words and process.pid != os.getpid():
                yield process, words

    def caught_up(self) -> bool:
        driver = self.fleet.driver("totals")
        with suppress(FloodmarkError):
            return bool(driver and driver.state == "running" and position(self.lake) == self.landed - 1)
        return False

    def until(self, what: Any, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not what():
            if self.supervisors and self.supervisors[-1].poll() is not None:
                self.supervise()  # the lease of one that was killed had not run out yet
            assert time.monotonic() < end, (self.told, self.fleet.store.drivers(self.fleet.stream("totals"))[:3])
            time.sleep(0.05)

    def truth(self, commits: int) -> Counter[tuple[Any, ...]]:
        """What comes of the first commits in one go."""
        made = MemoryRun(TOTALS).batch({"events": pa.concat_tables(self.commits[:commits])})[TOTALS.outputs[0].name]
        return seen(made)


def seen(table: pa.Table) -> Counter[tuple[Any, ...]]:
    names = ("key", "window_end", "n", "total", "_event_time", "_watermark", "_kind")
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist() if row["_kind"] != 1)


def rows(lake: Lake) -> Counter[tuple[Any, ...]]:
    found = DeltaTable(lake.output("totals")).to_pyarrow_table()
    if "double" in found.column_names:
        assert all(row["double"] in {None, row["total"] * 2} for row in found.to_pylist() if row["_kind"] != 1)
    return seen(found)


def position(lake: Lake) -> int:
    timeline = Timeline.current(lake, "totals")
    last = timeline.checkpoint.last_committed()
    return timeline.checkpoint.positions(last)[0].version if last >= 0 else -1


def check_writers(lake: Lake) -> None:
    """On each timeline micro-batches follow one another, and no writer comes back after another one has written."""
    runs, batches = defaultdict[int, list[str]](list), defaultdict[int, list[int]](list)
    for commit in sorted(history.every(lake.output("totals")), key=lambda one: one.version):
        if isinstance(commit.record, MicroBatch):
            runs[commit.record.timeline].append(commit.record.run)
            batches[commit.record.timeline].append(commit.record.batch)
    for number, found in batches.items():
        assert found == list(range(found[0], found[0] + len(found))), (number, found)
        changes = [run for run, before in zip(runs[number], [None, *runs[number]], strict=False) if run != before]
        assert len(changes) == len(set(changes)), (number, runs[number])


ACTIONS = {
    World.land: 5,
    World.wait: 4,
    World.savepoint: 3,
    World.upgrade: 3,
    World.rollback: 3,
    World.kill_driver: 2,
    World.stop_driver: 2,
    World.kill_supervisor: 1,
    World.two_supervisors: 1,
    World.reboot: 1,
    World.pause: 1,
    World.fork: 1,
}


def play(root: Path, seed: int, actions: int) -> None:
    """One schedule from its seed."""
    root.mkdir()
    world = World(root, seed)
    (root / "code.py").write_text("")
    try:
        world.supervise()
        world.land()
        world.until(lambda: world.fleet.supervised)
        world.fleet.start([TOTALS])
        for action in world.draw.choices(list(ACTIONS), list(ACTIONS.values()), k=actions):
            world.told.append(action.__name__)
            action(world)
        while world.landed < len(world.commits):
            world.land()
        for process in world.drivers():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        world.until(lambda: world.fleet.supervised)
        version = world.fleet.store.actions(world.fleet.stream("totals"), 1)
        settled = version[0].version if version else TOTALS.version
        world.told.append(f"settle as {settled}")
        time.sleep(LEASE_SECONDS)  # of an applier that was killed
        finish(world)
        world.until(world.caught_up)
        assert rows(world.lake) == world.truth(len(world.commits))
        check_writers(world.lake)
    except BaseException as error:
        error.add_note(f"seed {seed}: {world.told}")
        raise
    finally:
        for process in world.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for one in world.supervisors:
            one.wait()


def finish(world: World) -> None:
    """Whatever was begun is ended by the next action on the stream, and the stream runs."""
    end = time.monotonic() + 300
    while world.process("upgrade", WIDER.version).wait(timeout=300) != 0:
        text = (world.root / "upgrade.log").read_text().splitlines()[-1]
        assert any(f"{code} " in text for code in REFUSED), text
        assert time.monotonic() < end, text
        world.until(lambda: world.fleet.supervised)
    world.fleet.want("totals", "running")


@pytest.mark.soak
@pytest.mark.feature("F8", "O3")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_whatever_dies_and_whoever_wakes_up_again_the_tables_end_exactly_right(tmp_path: Path, seed: int) -> None:
    play(tmp_path / "world", seed, actions=12)


@pytest.mark.soak
@pytest.mark.feature("F8", "O3")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("schedule", range(10))
def test_two_hundred_actions(tmp_path: Path, schedule: int) -> None:
    play(tmp_path / "world", seed_of(f"control {schedule}"), actions=200)
