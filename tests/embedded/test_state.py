"""Files of state that become one: nothing of a state larger than memory is in memory for it, and what a file has lost is no value."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import pytest

from floodmark.core.errors import StateError
from floodmark.engines.embedded.state.batch import Batch, file_of
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import GroupStore, State
from floodmark.lake.stream.timeline import CHECKPOINT

FILES, VALUES, SIZE = 8, 20, 100_000


def commit(state: State, number: int) -> None:
    state.commit(Batch(number=number, progress=number, reached={}, clock=0, positions=(), owed=(), segments=()))


def about_to_merge(path: Path) -> tuple[Checkpoint, dict[int, bytes]]:
    """A state whose files become one with the next micro-batch, and its values."""
    checkpoint, rng, expected = Checkpoint(str(path / CHECKPOINT)), random.Random(3), dict[int, bytes]()
    checkpoint.begin()
    state = State(checkpoint)
    for number in range(FILES):
        for chunk in range(number * VALUES, (number + 1) * VALUES):
            expected[chunk] = rng.randbytes(SIZE)
            GroupStore(state, 0).put(chunk, expected[chunk])
        commit(state, number)
    return checkpoint, expected


def test_files_become_one_without_their_values_in_memory(tmp_path: Path) -> None:
    checkpoint, expected = about_to_merge(tmp_path)
    state = State(checkpoint)
    tracemalloc.start()
    try:
        commit(state, FILES)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert state.batch is not None
    assert state.batch.segments == ("merged/0",)
    assert Path(checkpoint.path, "merged/0").stat().st_size > FILES * VALUES * SIZE
    assert most < VALUES * SIZE / 2
    again = State(checkpoint)
    assert {chunk: again.get((0, chunk)) for chunk in expected} == expected


def test_a_file_that_has_been_cut_gives_no_value_and_becomes_no_other_file(tmp_path: Path) -> None:
    checkpoint, _ = about_to_merge(tmp_path)
    state, cut = State(checkpoint), Path(checkpoint.path, file_of(2))
    os.truncate(cut, cut.stat().st_size - 1)
    with pytest.raises(StateError, match=r"STATE-036 .*batches/2"):
        state.get((0, 3 * VALUES - 1))
    with pytest.raises(StateError, match=r"STATE-036 .*batches/2"):
        commit(state, FILES)
    assert not Path(checkpoint.path, "merged/0").exists()


def test_a_value_on_disk_takes_less_than_200_bytes_of_memory(tmp_path: Path) -> None:
    checkpoint, values = Checkpoint(str(tmp_path / CHECKPOINT)), 20_000
    checkpoint.begin()
    state = State(checkpoint)
    for value in range(values):
        GroupStore(state, value % 64).put((1 << 48) + value, b"of a page")
    commit(state, 0)
    tracemalloc.start()
    try:
        again = State(checkpoint)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(again.keys()) == values
    assert taken < 200 * values
