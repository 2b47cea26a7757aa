"""The whole comparison: ``python -m parity [FOLDER [NAME...]]`` asks Spark, then Sail, and writes the package's ``table.json``.

Spark's answers are kept in the folder (build/parity), and asked again only if it is removed; Sail's where what it is asked is the same.
With names of functions or operators, these alone are compared, and the rest of the table stays as it is.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from parity import aggregates, comparison, judgement, kept
from parity.outcome import Outcome
from parity.sail_side import Sail

from floodmark.engines.embedded.parity.table import FILE

ROOT = Path(__file__).resolve().parents[3]


def main(folder: Path, names: Sequence[str] = ()) -> None:
    """Compare, and write the table."""
    if not (folder / "aggregates.pickle").exists():  # in a process of its own: Java takes memory that Sail needs
        subprocess.run(
            [sys.executable, "-m", "parity.spark_run", str(folder), *names], check=True, env=os.environ | {"TZ": "UTC"}
        )
    before = folder / "outcomes.pickle"
    known = pickle.loads(before.read_bytes()) if before.exists() else {}  # written below
    found = comparison.in_parts(folder, known)
    before.write_bytes(pickle.dumps(found))
    table = judgement.judged(found, named=frozenset(names))
    if names:
        kept.merge(FILE, table, names)
    else:
        kept.write(FILE, table, _aggregates(folder))
    counts = Counter(outcome.verdict for outcome in found.values())
    sys.stdout.write(f"{len(found)} expressions: {dict(counts)}\nforms of arguments: {dict(kept.counted(table))}\n")


def _aggregates(folder: Path) -> dict[tuple[str, str], Outcome]:
    expected = pickle.loads((folder / "aggregates.pickle").read_bytes())  # written by ``spark_run``
    sail = Sail(folder)
    try:
        return aggregates.compared(expected, aggregates.answers(sail.query, folder, sail=True), folder)
    finally:
        sail.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "parity", sys.argv[2:])
