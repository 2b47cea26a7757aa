"""Table programs on the embedded engine, each phase in a process of its own: before a savepoint, and from the savepoint to the end; and bounded."""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest
from table_programs import FLINK, PATTERNS, Program, Rows, Suite

from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.testing.lakes import outputs

SUITES = {"flink": FLINK, "patterns": PATTERNS}
PROGRAMS = {
    "group-aggregate-simple": "flink",
    "window-join-full-outer-tumble-event-time": "flink",
    "lookup-join-left-join": "flink",
    "match-order-by-int-column": "patterns",
}


def _rows(program: Program, lake: Lake) -> Rows:
    return program.net([outputs(lake, program.operator)[""]])


@pytest.mark.feature("Q1", "Q3")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.few(1)
def test_a_program_goes_on_from_its_savepoint_in_another_process(
    embedded: Computing, tmp_path: Path, name: str
) -> None:
    suite: Suite = SUITES[PROGRAMS[name]]
    program, lake = suite.program(name), Lake(str(tmp_path))
    before, end = program.expected()

    def run(phase: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("table_process.py")), lake.root, PROGRAMS[name], name]
        done = forked.run([*command, phase])
        assert done.returncode == 0, done.stderr

    run("before")
    assert _rows(program, lake) == before
    savepoint = savepoints.create(program.operator.name, lake, why="test")
    run("after")
    assert _rows(program, lake) == end
    roll_back(lake, savepoint)
    assert _rows(program, lake) == before
    embedded.run_unbounded(program.operator, lake, until_caught_up=True)
    assert _rows(program, lake) == end
    embedded.run_bounded(program.operator, lake, Interval(), force=True)
    assert _rows(program, lake) == end
