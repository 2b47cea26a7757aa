"""What starts, status, looks and savepoints read does not grow with the commits of a lake."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked
import pytest
from processes import failure, paths

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "reads_of_a_year.py"
READ = Path("/proc/self/io")
BYTES, READS = 20_000, 40
"""Bytes of entries, footers and the names of files replaced since the last upkeep; twice the files of the list of landed units before they are merged."""
LIST = 40_000
"""Bytes of the entries of that list, which a landing reads, and of the checkpoint behind which they lie."""
OPERATIONS = {
    "start of a landing",
    "start of two streams",
    "status",
    "look of the sensor",
    "plan",
    "check of a bounded run",
    "savepoint",
}


def read(folder: Path, commits: int) -> dict[str, tuple[int, int]]:
    """Operation -> bytes that it reads, and how often it asks for some."""
    command = [sys.executable, str(PROGRAM), str(folder), str(commits), *sorted(OPERATIONS)]
    done = forked.run(command, env=os.environ | {"PYTHONPATH": paths()})
    assert done.returncode == 0, failure(done.stderr)
    reads: dict[str, tuple[int, int]] = json.loads(done.stdout)
    return reads


@pytest.mark.skipif(not READ.exists(), reason="this system does not say what a process reads")
@pytest.mark.parametrize("many", [300, pytest.param(5_000, marks=pytest.mark.soak)])
def test_what_is_read_does_not_grow_with_the_commits(tmp_path: Path, many: int) -> None:
    few, now = read(tmp_path, 150), read(tmp_path, many)
    assert few.keys() == OPERATIONS
    for name, (size, times) in now.items():
        assert size <= few[name][0] + (LIST if name == "start of a landing" else BYTES), (
            f"{name} reads {size:,} bytes, and read {few[name][0]:,}"
        )
        assert times <= few[name][1] + READS, f"{name} reads {times} times, and read {few[name][1]} times"
