"""Broadcast rows among many key groups: those without a row of their own are one in the state, and rows are those of a run over all of the log."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from events import disorder
from ruled import KEYS, ROWS, RULED, spread
from streams import WINDOWED, check

from floodmark.core.errors import StateError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import canonical, segment
from floodmark.engines.embedded.state.batch import Batch
from floodmark.engines.embedded.state.canonical import unfold
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded import compute
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.frames.compile import stage_rows
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lifecycle import savepoint
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

BY_THEMSELVES = 32_749
"""A prime number, so that so many key groups lie in no bundles."""


def _started_anew(sail: Sail, lake: Lake, log: Log, cuts: list[int], groups: int) -> set[int]:
    """Land a log in parts and run a stream of its own over each; returns the key groups that have state."""
    code = RULED.grouped(groups)
    for start, stop in zip(cuts, [*cuts[1:], None], strict=True):
        land(lake, code, log, start, stop)
        run_unbounded(sail, code, lake, until_caught_up=True)
    return set(_state(lake).groups())


def _state(lake: Lake) -> State:
    return State(Checkpoint(Timeline.current(lake, RULED.name).folder(CHECKPOINT)))


@pytest.mark.feature("K10")
@pytest.mark.parametrize("groups", [3, BY_THEMSELVES])
def test_key_groups_without_rows_are_one_in_the_state(sail: Sail, tmp_path: Path, groups: int) -> None:
    """With random cuts and a new process's state at each of them; few key groups all get rows in the end."""
    lake, log, rng = Lake(str(tmp_path / "lake")), spread(RULED, groups), random.Random(groups)
    cuts = [0, *sorted(rng.sample(range(1, ROWS), 2))]
    held = _started_anew(sail, lake, log, cuts, groups)
    check(lake, RULED, log)
    if groups < KEYS:
        assert held <= {*range(groups), -groups}
    else:
        assert min(held) == -groups
        assert len(held) <= KEYS + 1


@pytest.mark.feature("K10")
def test_a_savepoint_of_all_engines_has_the_broadcast_rows_in_every_key_group(sail: Sail, tmp_path: Path) -> None:
    lake, log, groups = Lake(str(tmp_path / "lake")), spread(RULED, 5), 307
    _started_anew(sail, lake, log, [0], groups)
    folder = Timeline.current(lake, RULED.name).folder(CHECKPOINT)
    batch = _state(lake).batch
    assert batch is not None
    unfold(folder, batch.number, str(tmp_path / "rows"))
    rows = pq.read_table(tmp_path / "rows" / "0.parquet").to_pylist()
    assert sorted(row["group"] for row in rows if row["index"] is not None) == list(range(groups))
    by_group: dict[int, set[bytes]] = {}
    for row in rows:
        if row["index"] is None and row["number"] == 1 << 62:  # the broadcast states
            by_group.setdefault(row["group"], set()).add(row["chunk"])
    assert len(by_group) == groups
    assert len(set.union(*by_group.values())) == 1


@pytest.mark.feature("K10")
def test_state_in_which_every_key_group_has_its_own_goes_on(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As releases before wrote it: there a broadcast row was a row of each key group."""
    lake, log, code = Lake(str(tmp_path / "lake")), spread(RULED, 6), RULED.grouped(50)

    def each(*args: object, spread: bool) -> object:
        assert not spread
        return partial(stage_rows, spread=True)(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as before:
        before.setattr(compute, "stage_rows", each)
        land(lake, code, log, 0, 120)
        run_unbounded(sail, code, lake, until_caught_up=True)
    assert set(_state(lake).groups()) == set(range(50))
    land(lake, code, log, 120, None)
    run_unbounded(sail, code, lake, until_caught_up=True)
    check(lake, code, log)
    assert set(_state(lake).groups()) == set(range(50))


@pytest.mark.feature("K10", "V5")
def test_state_with_a_group_for_others_is_refused_by_releases_that_do_not_know_it(
    sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log, code = Lake(str(tmp_path / "lake")), spread(RULED, 9), RULED.grouped(BY_THEMSELVES)
    _started_anew(sail, lake, log, [0], BY_THEMSELVES)
    made, batch = savepoints.create(RULED.name, lake), _state(lake).batch
    assert batch is not None
    folder = Path(Timeline.current(lake, RULED.name).folder(CHECKPOINT))
    fronts = {name: (folder / name).read_bytes()[:8] for name in (*batch.segments, f"batches/{batch.number}")}
    assert fronts[f"batches/{batch.number}"] not in {b"FMSTATE1", b"FMSTATE2"}  # what a release before has looked for
    exported = savepoints.opened(canonical.export(made, str(tmp_path / "out")))
    assert (made.manifest.format, exported.manifest.format) == (2, 1)
    with monkeypatch.context() as before:
        before.setattr(segment, "STANDING", 2)
        before.setattr(savepoint, "STANDING", 1)
        with pytest.raises(StateError, match=r"STATE-001 file .*: expected format 2 or older, got format 3"):
            run_unbounded(sail, code, lake, until_caught_up=True)
        with pytest.raises(StateError, match=r"STATE-020 .*: expected format 1 or older, got format 2"):
            savepoints.find(lake, made.manifest.id)
    roll_back(lake, savepoints.find(lake, made.manifest.id))
    run_unbounded(sail, code, lake, until_caught_up=True)
    check(lake, RULED, log)


@pytest.mark.feature("K10", "V5")
def test_state_without_a_group_for_others_is_what_releases_before_read(sail: Sail, tmp_path: Path) -> None:
    lake, log = Lake(str(tmp_path / "lake")), disorder(WINDOWED, 5, 120)
    land(lake, WINDOWED, log)
    run_unbounded(sail, WINDOWED, lake, until_caught_up=True)
    made = savepoints.create(WINDOWED.name, lake)
    assert '"format": 1,' in made.manifest.as_json()
    files = [path for path in Path(made.path, CHECKPOINT).glob("*/*") if path.parent.name in {"batches", "merged"}]
    assert {path.read_bytes()[:8] for path in files} == {b"FMSTATE2"}


def test_a_stand_in_that_is_removed_leaves_the_format_of_before(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / CHECKPOINT))
    checkpoint.begin()
    for number, value in enumerate((b"rules", None, b"index", b"index")):
        state = State(checkpoint)
        state.write_index(-4 if number < 2 else 3, value, None)
        state.commit(Batch(number=number, progress=0, reached={}, clock=0, positions=(), owed=(), segments=()))
    assert [checkpoint.manifest_format(number) for number in range(4)] == [2, 2, 1, 1]
