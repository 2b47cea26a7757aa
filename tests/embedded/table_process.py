"""A table program on the embedded engine in a process of its own: table_process.py LAKE SUITE NAME PHASE lands the rows of a phase and runs until caught up."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from table_programs import ARRIVAL, FLINK, PATTERNS, QUIET

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land


def main(folder: str, suite: str, name: str, phase: str) -> None:
    """Land and run."""
    program = {"flink": FLINK, "patterns": PATTERNS}[suite].program(name)
    lake, (logs, cuts) = Lake(folder), program.logs()
    for table, log in logs.items():
        begin, end = (0, cuts[table][0]) if phase == "before" else (cuts[table][0], None)
        land(lake, program.operator, log, begin, end, name=table)
    sail = Sail(memory=300)
    run_unbounded(sail, program.operator, lake, until_caught_up=True, clock=ARRIVAL[phase] + QUIET)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
