"""What each operation of bench/year.py reads over a lake of some commits, as JSON: python reads_of_a_year.py FOLDER COMMITS NAME...

In a process of its own: threads that other tests have left read too.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
COUNTS = Path("/proc/self/io")


def so_far() -> tuple[int, int]:
    """Bytes that this process has read, and how often it has asked for some, whether in Python, Arrow or delta-rs."""
    counts = dict(line.split(": ") for line in COUNTS.read_text().splitlines())
    return int(counts["rchar"]), int(counts["syscr"])


def main(folder: Path, commits: int, names: set[str]) -> None:
    """Print operation -> (bytes, times) of its second call."""
    sys.path.insert(0, str(BENCH))
    import year

    reads = {}
    with redirect_stdout(sys.stderr):
        year.age(folder, commits, 200)
        for name, operation in year.operations(folder):
            if name not in names:
                break
            operation()
            before = so_far()
            operation()
            reads[name] = tuple(after - was for after, was in zip(so_far(), before, strict=True))
    sys.stdout.write(json.dumps(reads))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3:]))
