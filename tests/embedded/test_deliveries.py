"""Deliveries into a database: the table equals the last values after each step of a schedule, whatever is killed, rolled back or computed anew."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import forked
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from events import disorder
from processes import paths
from streams import PLAIN, WINDOWED

from floodmark.core import crash
from floodmark.core.time import NEVER, Interval, to_ms
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


def _of_lake(lake: Lake, code: Operator) -> list[str]:
    """The results of the lake: the table of last values, or the rows of an output whose rows are final."""
    output = code.outputs[0]
    table = output if output.current is None else output.current
    rows = DeltaTable(lake.output(table.table)).to_pyarrow_table().to_pylist()
    return sorted(_plain({name: row[name] for name in output.schema.names}) for row in rows if row["_kind"] == 0)


def _of_sink(url: str, code: Operator) -> list[str]:
    """The results of the sink, as those of the lake are written."""
    table = sa.table(code.outputs[0].table, *map(sa.column, code.outputs[0].schema.names))
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
    engine.dispose()
    return sorted(map(_plain, rows))


def _plain(row: dict[str, Any]) -> str:
    return repr({name: f"{value}"[:19] if "-" in f"{value}" else value for name, value in row.items()})


def _process(lake: Lake, code: Operator, url: str, at: str = "") -> int:
    program = Path(__file__).parent / "delivery_process.py"
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    done = forked.run([sys.executable, str(program), lake.root, code.name, url], env=environment)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


class _Schedule:
    """A lake whose stream is landed for, rolled back, computed anew and cleaned up, in an order that is drawn."""

    def __init__(self, sail: Sail, code: Operator, lake: Lake, seed: int) -> None:
        self.sail, self.code, self.lake, self.drawn = sail, code, lake, random.Random(seed)
        self.log: Log = disorder(code, seed, 240)
        self.done: list[str] = []
        self._landed = 0
        self._saved: list[str] = []
        self.steps: dict[str, Callable[[], None]] = {
            "land": self.land,
            "save": self.save,
            "back": self.back,
            "bounded": self.bounded,
            "anew": self.anew,
            "upkeep": self.upkeep,
        }

    def draw(self) -> None:
        """Take a step."""
        name = self.drawn.choice(["land", "land", "land", *self.steps]) if self.done else "land"
        self.done.append(name)
        self.steps[name]()

    def land(self) -> None:
        upto = min(len(self.log.entries), self._landed + self.drawn.randint(10, 80))
        if upto > self._landed:
            land(self.lake, self.code, self.log, self._landed, upto)
        self._landed = upto
        run_unbounded(self.sail, self.code, self.lake, until_caught_up=True)

    def save(self) -> None:
        self._saved.append(savepoints.create(self.code.name, self.lake).manifest.id)

    def back(self) -> None:
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
        run_unbounded(self.sail, self.code, self.lake, until_caught_up=True, from_scratch=True)
        self._saved.clear()

    def upkeep(self) -> None:
        maintain(self.lake, hours=0)


@pytest.mark.feature("Z28")
@pytest.mark.parametrize(
    ("code", "seed"),
    [
        (WINDOWED, 1),
        *(pytest.param(code, seed, marks=pytest.mark.soak) for seed in range(2, 102) for code in (WINDOWED, PLAIN)),
    ],
)
def test_the_table_has_the_last_values_after_each_step(sail: Sail, code: Operator, seed: int, tmp_path: Path) -> None:
    lake, url = Lake(str(tmp_path / "lake")), f"sqlite:///{tmp_path}/sink.db"
    schedule, killed = _Schedule(sail, code, lake, seed), 0
    for _ in range(4 if seed == 1 else 8):
        schedule.draw()
        for point in schedule.drawn.sample(crash.POINTS["delivery"], 1 if seed == 1 else 2):
            killed += _process(lake, code, url, point) != 0
        assert _process(lake, code, url) == 0
        assert _of_sink(url, code) == _of_lake(lake, code), schedule.done
    assert killed
