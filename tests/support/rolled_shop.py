"""The shop of a new workspace with a rollout declared, on real drivers, and what tests do with it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import forked
import psutil
from deltalake import DeltaTable
from processes import end_drivers, paths

from floodmark.control.processes.supervisor import LEASE
from floodmark.control.state.records import Driver, StreamId
from floodmark.control.state.rollout import Record, Rollouts
from floodmark.control.state.store import CONTROL, Store
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.values.schema import MARKER, ROW

OPERATOR = "hourly_sales"
ROLLOUT = 'rollout=Rollout(shadow="1 s", watch="{watch}", promote=PromoteWhen(match=1, every="1 s", approve=True)),'
OLD = 'cents=sum("cents"))'
MEAN = 'cents=sum("cents"))\n        .with_columns(mean="cents / orders")'


def rows(path: Path | str, *more: str) -> list[tuple[Any, ...]]:
    """The results of an output that no retraction has taken back: country, end of the window, orders, cents, and more columns."""
    columns, found = ("country", "window_end", "orders", "cents", *more), Counter[tuple[Any, ...]]()
    for one in DeltaTable(str(path)).to_pyarrow_table().to_pylist():
        if one["_kind"] != MARKER:
            found[tuple(one[column] for column in columns)] += 1 if one["_kind"] == ROW else -1
    assert all(n >= 0 for n in found.values()), "taken back without having been there"
    return sorted(found.elements())


class Shop:
    """A workspace whose stream runs, and what the test does with it."""

    def __init__(self, folder: Path, store: str = "", lake: str = "") -> None:
        self.folder, self.lake = folder, lake or str(folder / "lake")
        self.url = store or f"sqlite:///{folder}/.floodmark/control/control.db"
        self.stream = StreamId(OPERATOR, self.lake)
        self.supervisor: subprocess.Popen[bytes] | None = None

    def supervise(self, *, looks: bool = False) -> None:
        """Let a supervisor be at work, which looks at rollouts or leaves that to the test."""
        home = str(self.folder / ".floodmark" / "control")
        arguments = ["-m", "floodmark.cli.main", "supervise"] if looks else [control_process(), home, self.url]
        environment = {**os.environ, "PYTHONPATH": paths(), **forked.starting_forks()}
        self.supervisor = forked.begin([sys.executable, *arguments], cwd=self.folder, env=environment)

    def unsupervised(self) -> None:
        """SIGKILL to it and to the looks it has begun; its lease, and the turns of actions, are over at once."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if "floodmark.control.delivery.rollouts" in words and words[-1].startswith(str(self.folder)):
                    process.kill()
        for lease in (LEASE, *(one.stream.action for one in self.store.deployments())):
            self.store.release(lease, self.store.holder(lease) or "")

    def again(self, *, looks: bool = False) -> None:
        """SIGKILL to its supervisor; another one takes its place."""
        self.unsupervised()
        self.supervise(looks=looks)

    @property
    def store(self) -> Store:
        return Store(self.url)

    @property
    def record(self) -> Record:
        return Rollouts(self.store).of(self.stream, 1)[0]

    @property
    def running(self) -> str:
        deployment = self.store.deployment(self.stream)
        assert deployment is not None
        return deployment.version

    def rows(self, *more: str) -> list[tuple[Any, ...]]:
        return rows(f"{self.lake}/outputs/{OPERATOR}", *more)

    def program(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(self.folder, [sys.executable, "-m", "floodmark.cli.main", *arguments])

    def said(self, *arguments: str) -> dict[str, Any]:
        done = self.program(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def look(self, at: str = "") -> int:
        """One look at the newest rollout, killed at a point; the turn of an action it killed is over at once."""
        package = self.folder / ".floodmark" / "control" / "packages" / self.record.package
        command = [sys.executable, "-m", "floodmark.control.delivery.rollouts", str(self.record.id), str(package)]
        more = {CONTROL: self.store.url, crash.VARIABLE: at, "PYTHONPATH": f"{package}{os.pathsep}{paths()}"}
        done = _run(package, command, **more)
        assert done.returncode in {0, -signal.SIGKILL}, done.stdout + done.stderr
        for one in self.store.deployments() if done.returncode else []:
            self.store.release(one.stream.action, self.store.holder(one.stream.action) or "")
        return done.returncode

    def killed(self, *points: str) -> None:
        """Looks that are killed at each of these, in turn."""
        for point in points:
            until(
                lambda point=point: self.look(f"{point}:1") == -signal.SIGKILL, lambda point=point: (point, self.record)
            )

    def reaches(self, state: str) -> None:
        """Looks until the newest rollout has come to a state; it may be further by then."""

        def reached() -> bool:
            self.look()
            return state in {one.state for one in self.record.steps}

        until(reached, lambda: self.record)

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def order(self, hours: range, countries: tuple[str, ...] = ("FR", "DE"), cents: int = 0) -> None:
        """Orders of some hours land: 20 an hour, of one country after the other; of so many cents each, or of 0, 100, 200 and so on."""
        lines = [
            f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{countries[n % len(countries)]},1,{cents or n * 100},"
            for hour in hours
            for n in range(20)
        ]
        inbox = self.folder / "inbox" / "orders"
        first = sorted(inbox.iterdir())[0].read_text().splitlines()[0]
        (inbox / f"more-{hours.start}.csv").write_text("\n".join([first, *lines]) + "\n")
        self.said("land", "orders")

    def freeze(self, driver: Driver) -> None:
        """SIGSTOP to a driver, at a moment at which it does not write to the control store: nobody else could either."""
        assert driver.pid is not None

        def frozen() -> bool:
            os.killpg(driver.pid, signal.SIGSTOP)
            until(lambda: psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED, driver)
            try:
                with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=5)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.killpg(driver.pid, signal.SIGCONT)
                return False
            return True

        until(frozen, driver)

    def driver(self, name: str = OPERATOR) -> Driver:
        """The one that runs a stream, once there is one."""
        found, stream = list[Driver](), StreamId(name, self.lake)

        def runs() -> bool:
            found[:] = [one for one in self.store.drivers(stream, 1) if one.state == "running" and one.pid]
            return bool(found)

        until(runs, lambda: self.store.drivers(stream, 3))
        return found[0]


def _run(folder: Path, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return forked.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": paths(), **more})


def until(what: Callable[[], object], *seen: object, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, [one() if callable(one) else one for one in seen]
        time.sleep(0.1)


def has_begun(lake: Path | str) -> bool:
    """Whether the stream has committed a micro-batch: its table is there a moment earlier."""
    return Timeline.current(Lake(str(lake)), OPERATOR).checkpoint.last_committed() >= 0


def control_process() -> str:
    """The program of a supervisor that looks at no rollout."""
    return str(Path(__file__).parent.parent / "crash" / "rollout_process.py")


@contextmanager
def running(
    folder: Path,
    rollout: str = ROLLOUT.format(watch="2 s"),
    *,
    looks: bool = False,
    store: str = "",
    lake: str = "",
    names: str = "",
) -> Iterator[Shop]:
    """A new shop whose stream runs; nothing of it is left afterwards.

    Args:
        folder: its workspace is made in.
        rollout: argument of its asset.
        looks: whether its supervisor looks at rollouts.
        store: URL of its control store; by default SQLite.
        lake: its lake, as its settings name it; by default the folder of a new shop.
        names: further names that the assets import, each with a comma behind it.
    """
    made = Shop(folder / "shop", store, lake)
    _run(folder, [sys.executable, "-m", "floodmark.cli.main", "init", "shop"])
    made.change(
        "assets/orders.py", "operator_asset, source_asset", f"PromoteWhen, Rollout, {names}operator_asset, source_asset"
    )
    made.change("assets/orders.py", "    expectations=", f"    {rollout}\n    expectations=")
    if store:
        made.change("resources/settings.py", "environment=environment,", f"environment=environment, control={store!r},")
    if lake:
        made.change("resources/settings.py", '"dev": "lake"', f'"dev": {lake!r}')
    made.said("land", "orders")
    made.supervise(looks=looks)
    try:
        made.said("start", OPERATOR)
        until(lambda: has_begun(made.lake))
        yield made
    finally:
        made.unsupervised()
        for one in made.store.deployments():
            end_drivers(made.store.drivers(one.stream, 5))
