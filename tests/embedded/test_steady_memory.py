"""The memory of a stream does not grow with what it has read."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from processes import failure, paths

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "steady.py"
SERVER = 400
"""MB of a server of a hundred micro-batches: its queries have 300."""


def memory(micro_batches: int, rows: int) -> dict[str, list[float]]:
    """MB of a stream's process and of its server on the way, from the program that measures it."""
    command = [sys.executable, str(PROGRAM), str(micro_batches), "--rows", str(rows)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths()}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, failure(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == micro_batches * rows
    return {name: found[name] for name in ("driver", "server")}


@pytest.mark.feature("N5")
def test_memory_is_steady_under_load() -> None:
    """Behind the first third seventy micro-batches read 28 MB more; of that nothing may stay."""
    found = memory(100, 7_000)
    third = len(found["driver"]) // 3
    assert max(found["driver"][third:]) < statistics.median(found["driver"][third : third + 10]) + 15
    assert max(found["server"]) < SERVER


@pytest.mark.soak
def test_memory_is_steady_over_thousands_of_micro_batches() -> None:
    """What a checkpoint that is at work takes meanwhile does not stay, and each server grows until it is replaced as the first one did."""
    found = memory(4_000, 100)
    half = len(found["driver"]) // 2
    first, last = (statistics.median(some) for some in (found["driver"][half : half + 10], found["driver"][-10:]))
    assert last < first + 5, found["driver"]
    assert max(found["server"][half:]) < max(found["server"][:half]) + 50, found["server"]
