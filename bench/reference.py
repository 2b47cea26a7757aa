"""A year of flights through every operator of the reference workspace, on both engines: seconds of whole processes, and whether all rows are equal.

    python bench/reference.py

Bounded runs of the command line, one process each; imports and the start of Java or of the server are part of them. Floats are compared to 9 digits, as no
engine fixes the order in which they are added.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
from deltalake import DeltaTable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
ENGINES = ("spark", "embedded")


def verb(root: Path, engine: str, *words: str) -> float:
    """A verb of the workspace in a process of its own; its seconds."""
    places = {"FLOODMARK_FOLDER": str(root), "FLOODMARK_LOGS": str(root / "logs"), "FLOODMARK_LAKE": str(root / engine)}
    if words[0] == "land":
        places |= {"FLOODMARK_LOGS": "", "FLOODMARK_LAKE": str(root / "logs")}
    environment = os.environ | {"FLOODMARK_ENGINE": engine} | places
    began = time.perf_counter()
    command = [sys.executable, "-m", "floodmark.cli.main", *words]
    given = {name: value for name, value in environment.items() if value}
    done = subprocess.run(command, check=False, cwd=HERE.parent, env=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} on {engine} failed:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began


def rows(path: Path) -> tuple[list[str], duckdb.DuckDBPyRelation]:
    """What a table holds for people, with its columns."""
    table = DeltaTable(str(path)).to_pyarrow_dataset()
    shown = [field for field in table.schema if field.name not in {"_sequence", "_ingest_time"}]
    told = [f'CAST("{f.name}" AS FLOAT)' if str(f.type) == "double" else f'"{f.name}"' for f in shown]
    return [field.name for field in shown], duckdb.from_arrow(table).project(", ".join(told))


def different(one: Path, other: Path) -> int:
    """Rows that one of two tables lacks."""
    (columns, left), (others, right) = rows(one), rows(other)
    assert columns == others, (columns, others)
    return sum(len(a.except_(b).fetchall()) for a, b in ((left, right), (right, left)))


def main() -> None:
    """Land the year, and run all of them."""
    from definitions import workspace
    from demo.inbox import write_inbox

    wrong = 0
    with TemporaryDirectory(prefix="floodmark-bench-") as folder:
        root = Path(folder)
        write_inbox(root / "inbox")
        landed = verb(root, "embedded", "land", "flights", "weather", "--end")
        print(f"landed in {landed:.1f} s\n{'operator':<24}{'Spark':>8}{'embedded':>10}  rows", flush=True)
        for operator in workspace().operators:
            seconds = [verb(root, engine, "run", operator.name) for engine in ENGINES]
            tables = [[root / engine / "outputs" / output.table for engine in ENGINES] for output in operator.outputs]
            unlike = sum(different(*pair) for pair in tables)
            number = sum(len(rows(pair[0])[1]) for pair in tables)
            wrong += unlike
            told = f"{number:,} equal" if not unlike else f"{number:,}, {unlike:,} NOT EQUAL"
            print(f"{operator.name:<24}{seconds[0]:>8.1f}{seconds[1]:>10.1f}  {told}", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
