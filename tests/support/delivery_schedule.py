"""A lake whose stream is landed for, rolled back, computed anew, upgraded, replaced and cleaned up in an order that is drawn, and deliveries of it that are killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import forked
from delivery_process import DIES_BEHIND
from deltalake import DeltaTable
from events import disorder
from processes import paths
from promoted_arms import Fleets
from redefined import DEFINITIONS

from floodmark.core import crash
from floodmark.core.errors import PlanError
from floodmark.core.time import NEVER, Interval, to_ms
from floodmark.engines import upgrading
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.results.own_stream import left_to_stream
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

STATEMENT = "statement "
"""Before the number of a statement of SQL behind which a process dies."""


class Schedule:
    """Steps of a stream.

    Args:
        sail: computes.
        code: of the stream.
        lake: empty.
        seed: of the rows and of the order.
    """

    def __init__(self, sail: Sail, code: Operator, lake: Lake, seed: int) -> None:
        self.sail, self.code, self.lake, self.drawn = sail, code, lake, random.Random(seed)
        self.log: Log = disorder(code, seed, 240)
        self.done: list[str] = []
        self.fleets = Fleets(Path(f"{lake.root}-streams"), lake)
        self._landed = 0
        self._saved: list[tuple[str, Operator]] = []
        self._steps: dict[str, Callable[[], None]] = {
            "land": self.land,
            "save": self.save,
            "back": self.back,
            "bounded": self.bounded,
            "anew": self.anew,
            "upkeep": self.upkeep,
            "rebuild": self.rebuild,
            "upgrade": self.upgrade,
            "promote": self.promote,
        }

    def draw(self) -> None:
        """Take a step."""
        self.take(self.drawn.choice(["land", "land", "land", *self._steps]) if self.done else "land")

    def take(self, name: str) -> None:
        """Take a step of a name."""
        self.done.append(name)
        self._steps[name]()

    def land(self) -> None:
        """Rows land, and are computed."""
        self._land()
        self._compute(self.code, self.lake)

    def _land(self) -> None:
        upto = min(len(self.log.entries), self._landed + self.drawn.randint(10, 80))
        if upto > self._landed:
            land(self.lake, self.code, self.log, self._landed, upto)
        self._landed = upto

    def save(self) -> None:
        """A savepoint."""
        self._saved.append((savepoints.create(self.code.name, self.lake).manifest.id, self.code))

    def back(self) -> None:
        """Back to a savepoint, perhaps of another definition, and perhaps on from there."""
        if self._saved:
            name, code = self.drawn.choice(self._saved)
            roll_back(self.lake, savepoints.of(self.lake, code.name, name), backfills=True)
            self.code = code
            if self.drawn.random() < 0.5:
                self._compute(self.code, self.lake)

    def bounded(self) -> None:
        """A bounded run over some of what the stream is done with, with late rows on time."""
        own = left_to_stream(self.code, self.lake)
        first, reached = to_ms(datetime(2020, 1, 1, tzinfo=UTC)), NEVER if own is None else own.reached
        windows = (min(reached, first + 86_400_000) + 1 - first) // 600_000
        if windows > 1:
            start = first + self.drawn.randint(0, windows - 1) * 600_000
            interval = Interval(start=start, end=first + windows * 600_000)
            run_bounded(self.sail, self.code, self.lake, interval, late_rows="all", force=True)

    def anew(self) -> None:
        """From scratch."""
        run_unbounded(self.sail, self.code, self.lake, until_caught_up=True, from_scratch=True)
        self._saved.clear()

    def rebuild(self) -> None:
        """The stream goes over to another definition, computed beside it."""
        self.code = self._other()
        upgrading.rebuild(partial(run_unbounded, self.sail), self.code, self.lake)
        self._saved.clear()

    def upgrade(self) -> None:
        """The stream goes over to another definition with the state and the results that it has, or is rebuilt where it cannot."""
        self.save()
        other = self._other()
        try:
            upgrading.upgrade(other, self.lake, forward_only=True)
        except PlanError as error:  # a column less
            if error.code != "PLAN-011":
                raise
            upgrading.rebuild(partial(run_unbounded, self.sail), other, self.lake)
        self.code = other

    def promote(self) -> None:
        """Another definition runs beside the stream as an arm of an experiment, from its state or from the first row, and becomes the stream."""
        other = self._other()
        self.save()
        self._land()
        self.fleets.promote(self.code, other, self._compute, self.drawn.choice(["", "closed"]))
        self.code = other

    def _other(self) -> Operator:
        return self.drawn.choice([code for code in DEFINITIONS[self.code.name] if code is not self.code])

    def _compute(self, code: Operator, lake: Lake) -> None:
        run_unbounded(self.sail, code, lake, until_caught_up=True)

    def upkeep(self) -> None:
        """Files and entries that nothing needs are removed."""
        maintain(self.lake, hours=0)

    def deliver(self, *sink: str, kills: int) -> int:
        """Deliver until caught up, after kills at points or, of a database, behind statements that are drawn; how many of these there were.

        Args:
            sink: kind and address.
            kills: processes that may be killed.
        """
        points = self.drawn.sample(crash.POINTS["delivery"], kills)
        if sink[0] == "sql":
            points = [self.drawn.choice([point, f"{STATEMENT}{self.drawn.randint(1, 20)}"]) for point in points]
        killed = sum(process(self.lake, self.code, *sink, at=point) != 0 for point in points)
        assert process(self.lake, self.code, *sink) == 0
        return killed


def process(lake: Lake, code: Operator, *sink: str, at: str = "") -> int:
    """The exit status of a process that delivers until caught up, and is killed at a point, or behind a statement, if it comes there."""
    program = Path(__file__).parent / "delivery_process.py"
    variable = DIES_BEHIND if at.startswith(STATEMENT) else crash.VARIABLE
    environment = {**os.environ, "PYTHONPATH": paths(), variable: at.removeprefix(STATEMENT)}
    done = forked.run([sys.executable, str(program), lake.root, code.version, *sink], env=environment)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def results(lake: Lake, code: Operator) -> list[str]:
    """The results of the lake: the table of last values, or the rows of an output whose rows are final."""
    output = code.outputs[0]
    table = output if output.current is None else output.current
    rows = DeltaTable(lake.output(table.table)).to_pyarrow_table().to_pylist()
    return delivered((row for row in rows if row["_kind"] == 0), code)


def delivered(rows: Iterable[Mapping[str, Any]], code: Operator) -> list[str]:
    """Rows of a sink in the columns that the output now has: what was delivered by a definition without one of them has a null there."""
    names = code.outputs[0].schema.names
    return sorted(plain({name: row.get(name) for name in names}) for row in rows)


def plain(row: dict[str, Any]) -> str:
    """A row as every sink has it: times to the second, without a zone."""
    return repr(
        {name: f"{value}"[:19].replace("T", " ") if "-" in f"{value}" else value for name, value in row.items()}
    )
