"""Arms of an experiment whose input was cleaned by somebody else while one of them was behind: what it has yet to read is told, or read from what is there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from events import disorder
from streams import STREAMS

from floodmark.control.processes.engine import Computing
from floodmark.core.errors import ExecutionError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

CODE = STREAMS["windowed"]
_SHARED, _ROWS = 60, 240


class Arms:
    """Two arms of the same code, of which the second has read nothing since they parted."""

    def __init__(self, engine: Computing, lake: Lake) -> None:
        self.engine, self.lake = engine, lake
        self.log: Log = disorder(CODE, 5, _ROWS)
        land(lake, CODE, self.log, 0, _SHARED)
        engine.run_unbounded(CODE, lake, until_caught_up=True)
        began = savepoints.create(CODE.name, lake)
        roots = {name: fork(lake, began, experiments.root_of(lake, "mine", name)).root for name in ("a", "b")}
        arms = tuple(
            Arm(name=name, code="@current", package="", version=CODE.version, root=root) for name, root in roots.items()
        )
        self.made = Experiment(
            name="mine", operator=CODE.name, savepoint=began.manifest.id, arms=arms, state="running", who="", why="",
            began_at=0, since=began.manifest.watermark,
        )  # fmt: skip
        experiments.keep(lake, self.made)
        for first in range(_SHARED, _ROWS, 60):
            land(lake, CODE, self.log, first, min(first + 60, _ROWS))
        self.run("a")

    def run(self, name: str) -> None:
        there = Lake.forked(self.made.arm(name).root)
        assert there is not None
        self.engine.run_unbounded(CODE, there, until_caught_up=True)

    def batch(self, name: str) -> int:
        return Timeline.current(Lake(self.made.arm(name).root), CODE.name).checkpoint.last_committed()

    @property
    def log_path(self) -> str:
        return self.lake.log(CODE.inputs[0].table)

    def same(self) -> int:
        """Rows that are the same, where none differs."""
        found = self.compared()
        assert found is not None
        assert found.counts.unlike == 0
        return found.counts.equal

    def compared(self) -> Comparison | None:
        found = compare_arms(self.lake, self.made, CODE, How())["b"].get(CODE.name)
        assert not isinstance(found, str), found
        return found


@pytest.fixture
def arms(embedded: Computing, lake: Lake) -> Arms:
    return Arms(embedded, lake)


def test_files_that_an_arm_has_yet_to_read_are_gone_until_they_are_put_back(arms: Arms) -> None:
    """The arm stops with what is gone and what to do, and writes nothing; the other arm and the stream are as they were."""
    files = [Path(unquote(uri.removeprefix("file://"))) for uri in DeltaTable(arms.log_path).file_uris()]
    gone, before = max(files, key=lambda file: file.stat().st_mtime_ns), arms.batch("b")
    aside = gone.rename(f"{gone}.aside")
    for _ in range(2):
        with pytest.raises(
            ExecutionError, match="EXECUTION-060.*got 1 gone: .*60 rows.*Put a copy of the file back"
        ) as told:
            arms.run("b")
        assert arms.made.arm("b").root in told.value.where
        assert str(gone) in told.value.got
    assert arms.batch("b") == before
    assert arms.compared() is None, "nothing has closed in both"
    aside.rename(gone)
    arms.run("b")
    assert arms.same() > 0


def test_an_input_that_somebody_compacts_and_vacuums_is_read_from_what_it_became(arms: Arms) -> None:
    table = DeltaTable(arms.log_path)
    table.optimize.compact()
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    arms.run("b")
    assert arms.same() > 0
