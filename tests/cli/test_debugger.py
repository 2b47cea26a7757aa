"""A program on one machine under Python's own debugger: it stops in a function of an operator, bounded and as a stream."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
from datetime import datetime, timedelta, timezone

import floodmark as fm
from floodmark.testing import IN_MEMORY


class Reading(fm.Contract):
    at: fm.EventTime
    value: int


class Total(fm.Contract):
    total: int


class Summing(fm.ProcessFunction):
    total = fm.ValueState(int)

    def on_element(self, row, ctx):
        self.total.update(self.total.get(0) + row["value"])
        yield {"total": self.total.get()}


@fm.operator
def sums(readings: fm.Stream[Reading]) -> fm.Stream:
    return readings.process(Summing(), schema=Total)


nine = datetime(2026, 3, 1, 9, tzinfo=timezone.utc)
rows = [{"at": nine, "value": 4}, {"at": nine + timedelta(minutes=1), "value": 7}]
for run in IN_MEMORY:
    print(run, run(sums, {"readings": rows}))
"""


@pytest.mark.feature("O5")
def test_a_debugger_stops_in_a_function_of_an_operator_and_sees_row_state_and_time(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    line = PROGRAM.splitlines().index('        yield {"total": self.total.get()}') + 1
    asked = [f"break program.py:{line}", "continue"]
    for _ in range(4):  # two rows in each mode
        asked += ["print('seen', row['value'], self.total.get(), ctx.timestamp)", "continue"]
    done = subprocess.run(
        [sys.executable, "-m", "pdb", "program.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        input="\n".join([*asked, "quit"]),
        capture_output=True,
        text=True,
        check=False,
    )
    seen = [line.split("seen ")[1] for line in done.stdout.splitlines() if "seen " in line]
    nine = 1_772_355_600_000
    assert seen == [f"4 4 {nine}", f"7 11 {nine + 60_000}"] * 2, done.stdout + done.stderr
