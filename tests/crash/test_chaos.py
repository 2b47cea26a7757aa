"""Random schedules of everything that can be done to streams, with kills at random points: the tables end exactly right whatever came before."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import pytest
from chaos_process import WORLDS
from deltalake import DeltaTable
from operator_process import source
from seeds import seed_of

from demo.comparison import compare
from demo.tables import final
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.switch import pending

PROGRAM = Path(__file__).with_name("chaos_process.py")
COMMITS = 10
"""Of the whole log."""
RUN = {
    "spark": (*crash.POINTS["micro_batch"], *crash.POINTS["restate"]),
    "embedded": tuple(
        point
        for point in (
            *crash.POINTS["embedded"],
            *crash.POINTS["restate"],
            "micro_batch.before_current",
            "micro_batch.after_current",
        )
        if "merge" not in point  # it takes many micro-batches to come to it
    ),
}
KILLABLE = {
    "savepoint": crash.POINTS["savepoint"],
    "upgrade": (*crash.POINTS["upgrade"], *crash.POINTS["savepoint"]),
    "rollback": crash.POINTS["switch"],
    "rescale": crash.POINTS["rescale"],
    "backfill": crash.POINTS["bounded"],
    "fork": crash.POINTS["fork"],
    "land": crash.POINTS["landing"],
    "upkeep": (*crash.POINTS["compaction"], *crash.POINTS["vacuum"], *crash.POINTS["removal"]),
}
REFUSED = {
    "LIFECYCLE-030": "there is no stream yet",
    "LIFECYCLE-035": "no cut with the reader: it was not there yet, or has gone on alone",
    "LIFECYCLE-040": "no cut right now",
    "EXECUTION-002": "nothing has landed yet",
    "LIFECYCLE-034": "a rollback has to be finished first",
    "LIFECYCLE-044": "a micro-batch was killed half written, and has to be ended first",
}


@dataclass
class Chaos:
    """One schedule: what is drawn, and the process it is done in."""

    world: str
    engine: str
    lake: Lake
    seed: int
    landed: int = 0
    forks: list[Path] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    kills: int = 0
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def ask(self, action: dict[str, Any]) -> dict[str, Any] | None:
        """What the process answers; None when it was killed on the way."""
        if self.process is None:
            command = [sys.executable, str(PROGRAM), self.world, self.lake.root, self.engine]
            pipe = subprocess.PIPE
            with Path(f"{self.lake.root}.log").open("a") as log:
                self.process = forked.begin(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == "ready\n"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(action) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        self.told.append(f"{json.dumps(action)} -> {answer.strip()[:300] or 'killed'}")
        if not answer:
            assert self.process.wait(300) == -signal.SIGKILL, Path(f"{self.lake.root}.log").read_text()[-3000:]
            self.process, self.kills = None, self.kills + 1
            return None
        return dict(json.loads(answer))

    def next(self) -> dict[str, Any]:
        """An action that makes sense now."""
        kinds = ["run"] * 4 + ["land"] * 2 + ["savepoint"] * 2 + ["upgrade", "backfill"] + ["upkeep"] * 3
        kinds += ["rescale"] if self.engine == "spark" else []
        made = [one.manifest.id for one in savepoints.savepoints(self.lake, "totals")]
        kinds += ["rollback"] * 2 + ["fork"] if made else []
        what: dict[str, Any] = {"do": self.draw.choice(kinds)}
        match what["do"]:
            case "land":
                self.landed = min(self.landed + 1, COMMITS - 1)
                what |= {"commits": self.landed, "end": False}
            case "run":
                what["streams"] = self.draw.choice((1, 2, 2))
            case "rollback" | "fork":
                what["to"] = self.draw.choice(made)
            case "rescale":
                what["partitions"] = self.draw.choice((2, 3, 5))
            case "backfill":
                what["from"] = self.draw.randrange(-30, 30 * max(self.landed, 1), 30)
        if what["do"] == "fork":
            self.forks.append(Path(self.lake.root).parent / f"fork-{len(self.forks)}")
            what["into"] = str(self.forks[-1])
        return what

    def step(self, *, kill: float) -> None:
        """Do one thing; killed with a probability, and then done again, or as it is when something else is done to the stream."""
        what = self.next()
        if self.draw.random() < kill:
            point = self.draw.choice(RUN[self.engine] if what["do"] == "run" else KILLABLE[what["do"]])
            if self.ask(what | {"die": f"{point}:{self.draw.choice((1, 1, 2))}"}) is not None:
                return  # it did not come to that point
            if what["do"] == "run" and self.draw.random() < 0.5:
                return
        answer = self.ask(what)
        assert answer is not None, self.told
        code = answer.get("error")
        assert code is None or code in REFUSED or self.closed(what, str(code)), self.told
        self.finish()

    def closed(self, what: dict[str, Any], code: str) -> bool:
        """A backfill of what the log or the stream has not reached is refused; one that was forked already too."""
        return (what["do"], code[:4]) in {("backfill", "PLAN"), ("backfill", "LIFE"), ("fork", "LIFE")}

    def finish(self) -> None:
        """Whoever finds a switch that was left finishes it."""
        left = pending(self.lake)
        if left is not None:
            name = left.again.split(" --to ")[1]
            answer = self.ask({"do": "rollback", "to": name})
            assert answer == {"ok": None}, self.told

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def chaos(world: str, engine: str, lake: Lake, seed: int) -> Iterator[Chaos]:
    found = Chaos(world, engine, lake, seed)
    try:
        yield found
    finally:
        found.close()


def people(lake: Lake, output: Any) -> Any:
    """Final values; a column that one version adds is not looked at."""
    table = DeltaTable(lake.output(output.table)).to_pyarrow_table()
    return final(table.drop_columns([c for c in ("double",) if c in table.column_names]), output)


@pytest.fixture(scope="module")
def log(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All that will land."""
    lake = Lake(str(tmp_path_factory.mktemp("log")))
    for commits in range(1, COMMITS + 1):
        embedded.land(source(commits), lake, end=commits == COMMITS)
    return lake


SOAK = [
    pytest.param(world, 100, 0.2, None, marks=pytest.mark.soak, id=f"{world}-{schedule}")
    for world, schedules in {"windows": 8, "retractions": 6, "buffers": 6}.items()
    for schedule in range(schedules)
]


@pytest.mark.feature("F14", "V1", "V3", "V7", "K11")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("world", "steps", "kill", "seed"), [("retractions", 15, 0.5, 2), *SOAK])
def test_whatever_is_done_the_tables_end_exactly_right(
    engine: Computing,
    log: Lake,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    world: str,
    steps: int,
    kill: float,
    seed: int | None,
) -> None:
    """One known schedule, so that a failure is of the change at hand; ``make soak`` draws others."""
    seed = int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))
    lake, truth = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "truth"), logs=log.root)
    streams = [plain for plain, _ in WORLDS[world]]
    for one in streams:  # never interrupted
        engine.run_unbounded(one, truth, until_caught_up=True)
    with chaos(world, engine.name, lake, seed) as found:
        try:
            for _ in range(steps):
                found.step(kill=kill)
            for commits in range(found.landed, COMMITS + 1):
                assert found.ask({"do": "land", "commits": commits, "end": commits == COMMITS}) == {"ok": None}
            assert found.ask({"do": "run"}) == {"ok": None}
            outputs = [output for one in streams for output in one.outputs]
            outputs += [output.current for output in outputs if output.current]
            for output in outputs:
                same = compare(people(lake, output), people(truth, output), names=("chaos", "truth"))
                assert same.rows, output.table
                assert same.differences == 0, (output.table, same.examples)
        except AssertionError as error:
            text = "\n".join(found.told)
            raise AssertionError(f"replay {world} with FLOODMARK_SEED={seed}\n{text}\n{error}") from error
    assert found.kills
