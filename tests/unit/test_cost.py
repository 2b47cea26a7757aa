"""What starts, status, looks and savepoints read does not grow with the commits of a lake."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
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


def so_far() -> tuple[int, int]:
    """Bytes that this process has read, and how often it has asked for some, whether in Python, Arrow or delta-rs."""
    told = dict(line.split(": ") for line in READ.read_text().splitlines())
    return int(told["rchar"]), int(told["syscr"])


@pytest.mark.skipif(not READ.exists(), reason="this system does not say what a process reads")
@pytest.mark.parametrize("many", [500, pytest.param(5_000, marks=pytest.mark.soak)])
def test_what_is_read_does_not_grow_with_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import year

    def read(commits: int) -> dict[str, tuple[int, int]]:
        year.age(tmp_path, commits, 200)
        found = {}
        for name, operation in year.operations(tmp_path):
            if name not in OPERATIONS:
                break
            operation()
            before = so_far()
            operation()
            found[name] = tuple(after - was for after, was in zip(so_far(), before, strict=True))
        return found

    few, now = read(300), read(many)
    assert few.keys() == OPERATIONS
    for name, (size, times) in now.items():
        assert size <= few[name][0] + (LIST if name == "start of a landing" else BYTES), (
            f"{name} reads {size:,} bytes, and read {few[name][0]:,}"
        )
        assert times <= few[name][1] + READS, f"{name} reads {times} times, and read {few[name][1]} times"
