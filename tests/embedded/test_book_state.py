"""State belongs to steps by their ids, and each state that is kept can be gone on from."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

import floodmark as fm
from floodmark.core.errors import LifecycleError, StateError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import check, upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.testing.lakes import land

sys.path.insert(0, str(Path(__file__).parent))
from book_process import OPERATORS, Number, RunningSum, Total
from test_book_crash import log_of, numbers, remembered, seen


def sums(name: str, *, wide: bool) -> fm.Operator:
    """Sums per key; ``wide`` with a step behind the state."""

    def body(numbers: fm.Stream[Number]) -> fm.Stream:
        found = numbers.key_by("key").process(RunningSum(), schema=Total)
        return found.with_columns(double="total * 2") if wide else found

    return fm.operator(body, name=name)


@pytest.mark.feature("V10")
def test_state_goes_to_the_operator_of_its_name_and_to_no_other(sail: Sail, tmp_path: Path) -> None:
    """With other code the operator goes on from it; the same code under another name begins with nothing, and takes nothing away."""
    lake, old, rows = Lake(str(tmp_path / "lake")), sums("sums", wide=False), numbers(8)
    log, other = log_of(old, rows), sums("others", wide=False)
    land(lake, old, log, 0, 40)
    run_unbounded(sail, old, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-030"):
        savepoints.create("others", lake)
    run_unbounded(sail, other, lake, until_caught_up=True)
    assert seen(lake, other, "key", "total") == seen(lake, old, "key", "total"), "of all rows, once"
    new = sums("sums", wide=True)
    with pytest.raises(StateError, match="STATE-003"):
        run_unbounded(sail, new, lake, until_caught_up=True)
    assert check(new, lake).verdict in {"stateless change", "compatible state"}
    upgrade(new, lake, why="a step more")
    land(lake, new, log, 40)
    run_unbounded(sail, new, lake, until_caught_up=True)
    wanted = {key: sum(value for _, k, value in rows if k == key) for key in "abc"}
    assert dict(sorted(seen(lake, new, "key", "total"))) == wanted
    assert sum(seen(lake, new, "key", "total").values()) == len(rows), "a row for each, from one state"


@pytest.mark.feature("V11")
def test_every_state_that_is_kept_can_be_gone_on_from(sail: Sail, tmp_path: Path) -> None:
    lake, code, rows = Lake(str(tmp_path / "lake")), OPERATORS["remembering"], numbers(9)
    log, columns = log_of(code, rows), ("key", "row", "rises", "mean", "history")
    parts = [0, 15, 30, 45, 60, len(log.entries)]
    for first, stop in pairwise(parts):
        land(lake, code, log, first, stop)
        run_unbounded(sail, code, lake, until_caught_up=True)
    whole = list(remembered(rows))
    kept = Timeline.current(lake, code.name).checkpoint.restorable()
    assert len(kept) == len(parts) - 1
    made = [savepoints.create(code.name, lake, batch=batch) for batch in kept]
    for savepoint, read in reversed(list(zip(made, parts[1:], strict=True))):
        roll_back(lake, savepoint)
        assert sorted(seen(lake, code, *columns)) == sorted(whole[:read]), "the tables are as they were with that state"
        run_unbounded(sail, code, lake, until_caught_up=True)
        assert sorted(seen(lake, code, *columns)) == sorted(whole), "what came behind it is computed from that state"
