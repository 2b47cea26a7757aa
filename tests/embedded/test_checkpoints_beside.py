"""Delta's checkpoints of outputs that are written beside micro-batches: a process killed meanwhile costs no row, a failure is told."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import forked
import pytest
from deltalake import DeltaTable
from events import disorder
from processes import paths
from streams import CLOCKED, PLAIN, WINDOWED, check

from floodmark.core import crash
from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.lake.table import entries
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

BEGUN = 20
"""Rows of the first micro-batch, which makes the tables."""


def begun(sail: Sail, lake: Lake, code: Operator, log: Log, *also: str) -> None:
    """A stream that has taken one micro-batch; from here on its outputs, and other tables, are due for a checkpoint at every second commit."""
    land(lake, code, log, 0, BEGUN)
    run_unbounded(sail, code, lake, until_caught_up=True)
    for path in (*(lake.output(output.table) for output in code.outputs), *also):
        DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "2"})


def landed(lake: Lake, code: Operator, log: Log, start: int, end: int | None = None) -> None:
    """Twenty rows in each commit."""
    end = len(log.entries) if end is None else end
    for first, last in pairwise([*range(start, end, 20), end]):
        land(lake, code, log, first, last)


def in_process(lake: Lake, code: Operator, at: str = "") -> int:
    """The status of a process that catches up, unless it dies at a point."""
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    program = str(Path(__file__).with_name("stream_process.py"))
    return forked.run([sys.executable, program, lake.root, code.name], env=environment).returncode


@pytest.mark.parametrize(
    "point", ["checkpoint.after_file", pytest.param("checkpoint.before_file", marks=pytest.mark.soak)]
)
def test_killed_while_a_checkpoint_is_written_every_row_is_there_once(sail: Sail, lake: Lake, point: str) -> None:
    """No process reads all: an output's next checkpoint waits for the one before it."""
    log = disorder(WINDOWED, 4, 400)
    begun(sail, lake, WINDOWED, log)
    landed(lake, WINDOWED, log, BEGUN)
    for at in (point, f"{point}:2", point):
        assert in_process(lake, WINDOWED, at) == -signal.SIGKILL
    assert in_process(lake, WINDOWED) == 0
    check(lake, WINDOWED, log)
    for output in WINDOWED.outputs:
        assert entries.checkpointed(lake.output(output.table))


def test_failures_are_told_and_end_the_stream_when_they_come_one_after_the_other(sail: Sail, lake: Lake) -> None:
    log, path = disorder(PLAIN, 6, 240), lake.output(PLAIN.outputs[0].table)
    begun(sail, lake, PLAIN, log)
    first, *later = (version for version in range(entries.version_of(path) + 1, 40) if version % 2)
    occupy(path, first)
    landed(lake, PLAIN, log, BEGUN, 80)
    result = run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1)
    assert result.micro_batches == 3
    (told,) = result.warnings
    assert told.startswith(f"no checkpoint was written of table {path} at version {first}: ")

    reached, seen = entries.version_of(path), list[BatchInfo]()
    places = [occupy(path, version) for version in later if version > reached]
    landed(lake, PLAIN, log, 80)
    with pytest.raises(ExecutionError, match=r"EXECUTION-062 .* [23] failures in a row"):
        run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1, on_batch=seen.append)
    assert [text for info in seen for text in info.warnings]
    for place in places:
        place.rmdir()
    assert run_unbounded(sail, PLAIN, lake, until_caught_up=True, files_per_batch=1).warnings == ()
    check(lake, PLAIN, log)


def test_the_recorded_clock_has_its_checkpoints_too(sail: Sail, lake: Lake) -> None:
    log = disorder(CLOCKED, 5, 240)
    land(lake, CLOCKED, log, 0, 1)
    # two micro-batches where the row's second ends meanwhile
    first = run_unbounded(sail, CLOCKED, lake, until_caught_up=True)
    path = ticks.folder(CLOCKED, lake)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    landed(lake, CLOCKED, log, 1)
    result = run_unbounded(sail, CLOCKED, lake, until_caught_up=True, files_per_batch=1)
    assert result.warnings == ()
    assert entries.checkpointed(path)
    assert len(ticks.recorded(CLOCKED, lake)) == first.micro_batches + result.micro_batches


def occupy(path: str, version: int) -> Path:
    """Put a folder in the place of a checkpoint, so that it cannot be written."""
    place = Path(path, entries.LOG, entries.checkpoint_of(version))
    place.mkdir()
    return place
