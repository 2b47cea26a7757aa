"""Upkeep beside streams on the embedded engine: killed between any two of its writes, with readers near and far behind, beside rollbacks and rebuilds.

A stream reads a log, another one reads its output, and a third begins late. Whatever upkeep does, and wherever it is killed, they end with the
rows they have where nobody keeps the lake up, and no file is missing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import forked
import pytest
from deltalake import DeltaTable
from events import disorder
from seeds import seed_of

from floodmark import Operator, Stream, Tumbling, count, max, min, operator, sum
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.engines import upgrading
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.values.schema import MARKER
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

sys.path.insert(0, str(Path(__file__).parent))
from stream_process import DIVIDED, WINDOWED

POINTS = [point for kind in ("compaction", "markers", "vacuum", "expiry", "removal") for point in crash.POINTS[kind]]
PROGRAM = (
    "import sys; from floodmark.control.processes.upkeep import keep_up; from floodmark.lake.folder.paths import Lake; "
    "keep_up([Lake(sys.argv[1])], hours=0, days=0)"
)
ROWS, CUTS = 240, 24


def _hourly(upstream: Operator, name: str, *, most: bool = False) -> Operator:
    """A reader of an output; ``most`` is another definition of it."""

    def hourly(results: Stream) -> Stream:
        window = results.key_by("key").window(Tumbling("1 hour"))
        return window.aggregate(n=count(), all=sum("total"), extreme=max("total") if most else min("total"))

    return operator(hourly, name=name, inputs={"results": upstream})


class Schedule:
    """A lake in which everything happens in a random order."""

    def __init__(self, sail: Sail, root: Path, seed: int) -> None:
        self.sail, self.draw, self.lake = sail, random.Random(seed), Lake(str(root))
        self.first = self.draw.choice([WINDOWED, DIVIDED])
        self.definitions = [_hourly(self.first, "near", most=most) for most in (False, True)]
        self.log, self.landed, self.killed, self.went_back = disorder(self.first, seed, ROWS), 0, 0, 0
        self.savepoints: list[str] = []

    @property
    def near(self) -> Operator:
        """The reader, as its stream is defined now: a rollback may go back behind a rebuild."""
        deployed = Timeline.current(self.lake, "near").identity.deployed()
        named = (code for code in self.definitions if deployed is not None and deployed.version == code.version)
        return next(named, self.definitions[0])

    def _run(self, code: Operator, lake: Lake | None = None, **options: Any) -> None:
        run_unbounded(self.sail, code, lake or self.lake, until_caught_up=True, **options)

    def land(self, cuts: int = 1) -> None:
        for _ in range(cuts):
            size = len(self.log.entries)
            if self.landed < size:
                until = self.landed + size // CUTS + 1
                time.sleep(0.002)  # files of one millisecond have no order
                land(self.lake, self.first, self.log, self.landed, until)
                self.landed = until

    def step(self) -> None:
        """The first stream takes what is there, a file at a time; its reader now and then."""
        self.land()
        self._run(self.first, files_per_batch=self.draw.choice([1, 1, None]))

    def read(self) -> None:
        """The reader takes some of what is there."""
        stop, batches = threading.Event(), self.draw.choice([1, 3, 100])
        done: list[object] = []

        def on_batch(info: object) -> None:
            done.append(info)
            if len(done) >= batches:
                stop.set()

        self._run(self.near, files_per_batch=self.draw.choice([1, 2]), stop=stop, on_batch=on_batch)

    def save(self) -> None:
        """A savepoint of the first stream, and of its reader where they have a cut in common."""
        try:
            self.savepoints.append(create_coordinated_savepoints(self.first.name, self.lake)[0].manifest.id)
        except LifecycleError as error:
            assert error.code == "LIFECYCLE-040"  # noqa: PT017 - any other one is a failure

    def drop(self) -> None:
        if self.savepoints:
            name = self.savepoints.pop(self.draw.randrange(len(self.savepoints)))
            savepoints.delete(savepoints.find(self.lake, name))

    def go_back(self) -> None:
        """To a savepoint, with the reader where it has a cut in common."""
        if not self.savepoints:
            return
        try:
            roll_back(self.lake, savepoints.find(self.lake, self.draw.choice(self.savepoints)))
            self.went_back += 1
        except LifecycleError as error:
            assert error.code == "LIFECYCLE-035"  # noqa: PT017 - any other one is a failure

    def rebuild(self) -> None:
        """The reader goes over to its other definition, computed beside it; upkeep runs in the middle of it."""
        if Timeline.current(self.lake, "near").checkpoint.last_committed() < 0:
            return
        run = partial(run_unbounded, self.sail)
        other = self.draw.choice(self.definitions)
        upgrading.rebuild(run, other, self.lake, on_batch=lambda _: maintain(self.lake, hours=1))

    def upkeep(self) -> None:
        """In a process of its own, which may be killed."""
        time.sleep(0.002)  # what was written a millisecond ago stays
        at = f"{self.draw.choice(POINTS)}:{self.draw.choice([1, 1, 2, 3, 5])}" if self.draw.random() < 0.7 else ""
        done = forked.run([sys.executable, "-c", PROGRAM, self.lake.root], env={**os.environ, crash.VARIABLE: at})
        assert done.returncode in {0, -signal.SIGKILL}
        self.killed += done.returncode != 0

    def upkeep_beside(self) -> None:
        """While the first stream writes and its reader reads."""
        self.land(4)
        failed: list[BaseException] = []

        def forever() -> None:
            try:
                while not over.is_set():
                    maintain(self.lake, hours=1)
            except BaseException as error:  # noqa: BLE001 - of another thread
                failed.append(error)

        over = threading.Event()
        thread = threading.Thread(target=forever)
        thread.start()
        try:
            self._run(self.first, files_per_batch=1)
            self.read()
        finally:
            over.set()
            thread.join()
        assert not failed, failed

    def end(self, truth: Lake) -> None:
        """Everything is read to the end, and is what it is where nobody keeps up the lake; nothing is left over."""
        self.land(CUTS)
        late = _hourly(self.first, "late")
        land(truth, self.first, self.log)
        for code in (self.first, self.near, late):
            self._run(code)
            self._run(code, truth)
            found, expected = (outputs(lake, code) for lake in (self.lake, truth))
            assert {name: final([table]) for name, table in found.items()} == {
                n: final([table]) for n, table in expected.items()
            }, code.name
            assert final([expected[""]])
        for one in savepoints.savepoints(self.lake):
            savepoints.delete(one)
        for _ in range(2):
            time.sleep(0.002)
            maintain(self.lake, hours=0)
        for code in (self.first, self.near, late):
            for output in code.outputs:
                path = Path(self.lake.output(output.table))
                if path.exists():
                    table = DeltaTable(str(path))
                    there = [file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts]
                    assert len(there) == len(table.file_uris()), "nobody needs any other"
                    kinds = table.to_pyarrow_table()["_kind"].to_pylist()
                    assert kinds.count(MARKER) <= len(there)


def run(sail: Sail, root: Path, seed: int, steps: int) -> Schedule:
    """A random schedule, to its end."""
    schedule = Schedule(sail, root / "lake", seed)
    schedule.step()
    schedule.read()
    ways: dict[Callable[[], None], float] = {
        schedule.step: 4,
        schedule.read: 2,
        schedule.save: 2,
        schedule.drop: 0.5,
        schedule.go_back: 1,
        schedule.rebuild: 0.5,
        schedule.upkeep: 4,
        schedule.upkeep_beside: 0.5,
    }
    for _ in range(steps):
        schedule.draw.choices(list(ways), list(ways.values()))[0]()
    schedule.upkeep()
    schedule.end(Lake(str(root / "truth")))
    return schedule


def test_streams_are_exact_whatever_upkeep_does(sail: Sail, tmp_path: Path) -> None:
    assert run(sail, tmp_path, 3, 12).killed


@pytest.mark.soak
@pytest.mark.parametrize("schedule", range(100))
def test_streams_are_exact_in_a_hundred_schedules(sail: Sail, tmp_path: Path, schedule: int) -> None:
    run(sail, tmp_path, seed_of(f"upkeep {schedule}"), 20)
