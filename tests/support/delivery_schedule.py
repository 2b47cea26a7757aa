"""A lake whose stream is landed for, rolled back, computed anew and cleaned up in an order that is drawn, and deliveries of it that are killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import forked
from deltalake import DeltaTable
from events import Event, disorder
from processes import paths

import floodmark as fm
from floodmark import Stream, Tumbling, count, operator
from floodmark.core import crash
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


@operator
def windowed(events: Stream[Event]) -> Stream:
    """As the stream of that name, of other rows."""
    keyed = events.filter("value % 5 <> 0").key_by("key")
    wide = keyed.window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return wide.aggregate(n=count(), total=fm.sum("value"))


@operator
def plain_other(events: Stream[Event]) -> Stream:
    """As the stream ``plain``, of other rows."""
    return events.filter("value % 2 = 0").with_columns(double="value * 2")


_OTHERS = {"windowed": windowed, "plain": replace(plain_other, name="plain")}
"""Name of a stream -> another definition with the same columns."""


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
        self._own = code
        self.log: Log = disorder(code, seed, 240)
        self.done: list[str] = []
        self._landed = 0
        self._saved: list[str] = []
        self._steps: dict[str, Callable[[], None]] = {
            "land": self.land,
            "save": self.save,
            "back": self.back,
            "bounded": self.bounded,
            "anew": self.anew,
            "upkeep": self.upkeep,
            "rebuild": self.rebuild,
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
        upto = min(len(self.log.entries), self._landed + self.drawn.randint(10, 80))
        if upto > self._landed:
            land(self.lake, self.code, self.log, self._landed, upto)
        self._landed = upto
        run_unbounded(self.sail, self.code, self.lake, until_caught_up=True)

    def save(self) -> None:
        """A savepoint."""
        self._saved.append(savepoints.create(self.code.name, self.lake).manifest.id)

    def back(self) -> None:
        """Back to a savepoint, and perhaps on from there."""
        if self._saved:
            name = self.drawn.choice(self._saved)
            roll_back(self.lake, savepoints.of(self.lake, self.code.name, name), backfills=True)
            if self.drawn.random() < 0.5:
                run_unbounded(self.sail, self.code, self.lake, until_caught_up=True)

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
        """The stream goes over to its other definition, computed beside it, as an experiment's arm does when it is promoted."""
        other = _OTHERS[self.code.name]
        self.code = self._own if self.code is other else other
        upgrading.rebuild(partial(run_unbounded, self.sail), self.code, self.lake)
        self._saved.clear()

    def upkeep(self) -> None:
        """Files and entries that nothing needs are removed."""
        maintain(self.lake, hours=0)

    def deliver(self, *sink: str, kills: int) -> int:
        """Deliver until caught up, after kills at points that are drawn; how many of these there were.

        Args:
            sink: kind and address.
            kills: processes that may be killed.
        """
        points = self.drawn.sample(crash.POINTS["delivery"], kills)
        killed = sum(process(self.lake, self.code, *sink, at=point) != 0 for point in points)
        assert process(self.lake, self.code, *sink) == 0
        return killed


def process(lake: Lake, code: Operator, *sink: str, at: str = "") -> int:
    """The exit status of a process that delivers until caught up, and is killed at a point if it comes there."""
    program = Path(__file__).parent / "delivery_process.py"
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    done = forked.run([sys.executable, str(program), lake.root, code.name, *sink], env=environment)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def results(lake: Lake, code: Operator) -> list[str]:
    """The results of the lake: the table of last values, or the rows of an output whose rows are final."""
    output = code.outputs[0]
    table = output if output.current is None else output.current
    rows = DeltaTable(lake.output(table.table)).to_pyarrow_table().to_pylist()
    return sorted(plain({name: row[name] for name in output.schema.names}) for row in rows if row["_kind"] == 0)


def plain(row: dict[str, Any]) -> str:
    """A row as every sink has it: times to the second, without a zone."""
    return repr(
        {name: f"{value}"[:19].replace("T", " ") if "-" in f"{value}" else value for name, value in row.items()}
    )
