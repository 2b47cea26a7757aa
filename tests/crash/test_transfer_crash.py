"""Streams that go back and forth between the engines and are killed with SIGKILL on the way: rows equal to those of one that never did."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from borrowed import lend, take_back
from events import disorder
from processes import paths
from pyspark.sql import SparkSession
from seeds import seed_of
from streams import CLOCKED, STREAMS, WINDOWED, check

from floodmark.core import crash
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import shared
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.stream import ticks
from floodmark.lake.stream.checkpoint import engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Engine
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final

PROGRAM = Path(__file__).with_name("transfer_process.py")
OTHER: dict[Engine, Engine] = {"spark": "embedded", "embedded": "spark"}
RUNNING = {
    "spark": crash.POINTS["micro_batch"],
    "embedded": (*crash.POINTS["embedded"], "micro_batch.before_current", "micro_batch.after_current"),
}
PATIENCE_SECONDS = 300


@dataclass
class Moving:
    """One stream, in a process that is begun again after each kill.

    Args:
        code: of the stream.
        lake: it runs in.
        spark: of this process, lent to that one.
    """

    code: Operator
    lake: Lake
    spark: SparkSession
    told: list[str] = field(default_factory=list)
    kills: int = 0
    process: subprocess.Popen[str] | None = None

    @property
    def engine(self) -> Engine:
        """That the stream is of now."""
        found: Engine = engine_of(Timeline.current(self.lake, self.code.name).folder(CHECKPOINT))  # type: ignore[assignment]
        return found

    def run(self, engine: Engine, *, die: str = "", kill_after: float | None = None) -> bool:
        """Let the stream catch up on an engine; False where the process was killed on the way.

        Args:
            engine: it goes over to first, where it is the other one's.
            die: crash point at which the process kills itself.
            kill_after: seconds after which it is killed wherever it is.
        """
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"run": self.code.name, "engine": engine, "die": die}) + "\n")
        process.stdin.flush()
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        answer = process.stdout.readline()
        self.told.append(f"{engine} {die or kill_after or ''}: {answer.strip() or 'killed'}")
        if answer:
            if kill_after is not None:  # it had answered before
                self.close()
            return True
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, (self.told, self._log.read_text()[-3000:])
        self.kills += 1
        self.close()
        return False

    @property
    def _log(self) -> Path:
        return Path(f"{self.lake.root}.log")

    def _process(self) -> subprocess.Popen[str]:
        if self.process is None:
            with self._log.open("a") as log:
                self.process = subprocess.Popen(
                    [sys.executable, str(PROGRAM), self.lake.root],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={**os.environ, "PYTHONPATH": paths(), **lend(self.spark)},
                )
        return self.process

    def close(self) -> None:
        """End the process; Java, which lives on where it would die with its driver, has no more work of it."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None
        self.spark.sparkContext.cancelAllJobs()
        take_back(self.spark)
        end = time.monotonic() + PATIENCE_SECONDS
        while self.spark.sparkContext.statusTracker().getActiveJobsIds():
            assert time.monotonic() < end, "Java goes on with the work of a driver that is gone"
            time.sleep(0.05)


@contextmanager
def moving(code: Operator, lake: Lake, spark: SparkSession) -> Iterator[Moving]:
    found = Moving(code, lake, spark)
    try:
        yield found
    finally:
        found.close()


POINTS = ("transfer.after_export", "step.fence")
"""Before the stream is the other engine's, and behind it; ``make soak`` tries each step."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("first", "points"),
    [
        pytest.param("embedded", POINTS, id="embedded", marks=[pytest.mark.soak, pytest.mark.feature("Z22")]),
        *(
            pytest.param(engine, crash.POINTS["transfer"], id=f"{engine}-each", marks=pytest.mark.soak)
            for engine in ("spark", "embedded")
        ),
    ],
)
def test_killed_at_each_step_of_a_transfer(
    spark: SparkSession, lake: Lake, first: Engine, points: tuple[str, ...]
) -> None:
    log, second = disorder(WINDOWED, 1, 160), OTHER[first]
    with moving(WINDOWED, lake, spark) as stream:
        land(lake, WINDOWED, log, 0, 40)
        assert stream.run(first)
        for point in points:
            assert not stream.run(second, die=point), point
            assert stream.engine == (second if point == "step.fence" else first)
        assert len(savepoints.savepoints(lake, WINDOWED.name)) == 1, "each goes on with that of the one before"
        land(lake, WINDOWED, log, 40, 100)
        assert stream.run(second)
        land(lake, WINDOWED, log, 100)
        assert stream.run(first)
    check(lake, WINDOWED, log)


def schedule(stream: Moving, log: Log, draw: random.Random, steps: int) -> None:
    """Rows in some, turns of both engines, kills at a point or at any time; at the end of it the stream has read all of the log."""
    read = 0
    for _ in range(steps):
        if draw.random() < 0.7 and read < len(log.entries) - 1:
            last = min(read + draw.randrange(1, 30), len(log.entries) - 1)
            land(stream.lake, stream.code, log, read, last)
            read = last
        if read == 0:
            continue
        engine: Engine = draw.choice(("spark", "embedded"))
        how: dict[str, Any] = {}
        points = (*crash.POINTS["transfer"], *crash.POINTS["savepoint"]) if draw.random() < 0.5 else RUNNING[engine]
        match draw.choice(("point", "point", "any time", "peace")):
            case "point":
                how["die"] = f"{draw.choice(points)}:{draw.choice((1, 1, 2))}"
            case "any time":
                how["kill_after"] = draw.uniform(0, 6)
        stream.run(engine, **how)
    land(stream.lake, stream.code, log, read)
    assert stream.run(draw.choice(("spark", "embedded")))


SCHEDULES = [
    pytest.param(name, 12, None, id=f"{name}-{number}")
    for number in range(10)
    for name in ("windowed", "watched", "paired", "visits", "clocked")
]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "steps", "seed"), [("watched", 5, 4), *SCHEDULES])
def test_back_and_forth_through_kills_every_row_is_there_once(
    spark: SparkSession,
    lake: Lake,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    name: str,
    steps: int,
    seed: int | None,
) -> None:
    """One known schedule, and fifty that are drawn."""
    seed = int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))
    code, draw = STREAMS[name], random.Random(seed)
    log = disorder(code, seed, 240)
    with moving(code, lake, spark) as stream:
        try:
            schedule(stream, log, draw, steps)
            if code is CLOCKED:
                check_repeated(lake, log)
            else:
                check(lake, code, log)
        except AssertionError as error:
            told = "\n".join(stream.told)
            raise AssertionError(f"replay {name} with FLOODMARK_SEED={seed}\n{told}\n{error}") from error
    record_property("kills", stream.kills)
    record_property("transfers", Timeline.current(lake, name).number)


def check_repeated(lake: Lake, log: Log) -> None:
    """Each row is in one window of the clock, and a bounded run that repeats the record of the clock has the same windows."""
    found = final([outputs(lake, CLOCKED)[""]])
    rows = [entry for entry in log.entries if entry["_kind"] == ROW]
    assert sum(row["n"] for row in found) == len(rows)
    assert sum(row["total"] for row in found) == sum(entry["value"] for entry in rows)
    again = Lake(f"{lake.root}-again", logs=lake.root)
    shutil.copytree(ticks.folder(CLOCKED, lake), ticks.folder(CLOCKED, again))
    run_bounded(shared(300), CLOCKED, again)
    assert final([outputs(again, CLOCKED)[""]]) == found
