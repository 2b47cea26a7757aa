"""The last values of a fork, before its stream starts. No JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from small_lake import CHANGELOG, CURRENT, batch, make, row, totals

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream import last_values
from floodmark.lake.stream.timeline import Timeline


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make(tmp_path / "lake")


def test_a_fork_has_the_last_values_of_its_savepoint_before_its_stream_starts(lake: Lake, tmp_path: Path) -> None:
    made = savepoints.create("totals", lake)
    batch(lake, 2, [row("a", 99, 7)])
    forked = fork(lake, made, str(tmp_path / "fork"))
    assert totals(forked, CURRENT) == {"a": 10, "b": 2}
    first = last_values.follows_from(Timeline.current(forked, "totals"), CHANGELOG)
    assert first == DeltaTable(forked.output(CHANGELOG)).version() + 1
    assert totals(lake, CURRENT)["a"] == 99


def test_a_fresh_fork_has_none(lake: Lake, tmp_path: Path) -> None:
    forked = fork(lake, savepoints.create("totals", lake), str(tmp_path / "fork"), fresh=True)
    assert not DeltaTable.is_deltatable(forked.output(CURRENT))


def test_a_fork_that_was_killed_before_its_state_was_there_is_done_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = savepoints.create("totals", lake)

    def die(*_: object, **__: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(savepoints, "restore", die)
        with pytest.raises(RuntimeError):
            fork(lake, made, str(tmp_path / "fork"))
    assert totals(fork(lake, made, str(tmp_path / "fork")), CURRENT) == {"a": 10, "b": 2}
