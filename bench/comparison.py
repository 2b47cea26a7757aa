"""Two tables of rows compared, beside one full join in DuckDB: equal but for a few rows, and different in every row.

    python bench/comparison.py [--rows 10000000] [--memory 2GB] [--folder FOLDER]

Prints seconds and peak memory of each; every measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from deltalake import DeltaTable, convert_to_deltalake

from floodmark.observe.comparison.compare import How, compare
from floodmark.observe.comparison.sides import Side

KEYS = 100_000
EVERY = 100_000
"""One row in so many is another one in the table ``few``."""
ROWS = (
    "SELECT 'key' || (i % {keys}) AS key, to_timestamp(1700000000 + (i // {keys}) * 3600) AS at, (i * 7919) % 1000 AS number, "
    "hash(i) / 1e19 AS score, 'carrier' || (i % 17) AS carrier FROM range({first}, {behind}) AS t(i)"
)


def make(folder: Path, rows: int) -> None:
    """The tables ``base``, ``few`` and ``every``."""
    changes = {
        "base": "*",
        "few": "* REPLACE (CASE WHEN key = 'key7' THEN number + 1 ELSE number END AS number)",
        "every": "* REPLACE (score * 1.001 AS score)",
    }
    for name, columns in changes.items():
        path = folder / name
        path.mkdir(parents=True)
        for part in range(10):
            text = ROWS.format(keys=KEYS, first=part * rows // 10, behind=(part + 1) * rows // 10)
            duckdb.execute(f"COPY (SELECT {columns} FROM ({text})) TO '{path}/{part}.parquet'")
        convert_to_deltalake(str(path))


def floodmark(folder: Path, name: str, memory: str) -> dict[str, object]:
    """The comparison."""
    sides = [Side.of(str(folder / one), None, None) for one in ("base", name)]
    found = compare(*sides, How(grain=("key", "at"), memory=memory))
    counts = found.counts
    return {"equal": counts.equal, "different": counts.different, "alone": counts.only_left + counts.only_right}


def joined(folder: Path, name: str, memory: str) -> dict[str, object]:
    """One full join that counts what is equal and what is not."""
    with tempfile.TemporaryDirectory() as spill, duckdb.connect() as connection:
        connection.execute(
            f"SET memory_limit = '{memory}'; SET temp_directory = '{spill}'; SET preserve_insertion_order = false"
        )
        files = {
            one: [uri.removeprefix("file://") for uri in DeltaTable(str(folder / one)).file_uris()]
            for one in ("base", name)
        }
        columns = ("number", "score", "carrier")
        same = " AND ".join(f"a.{c} IS NOT DISTINCT FROM b.{c}" for c in columns)
        equal, different, alone = connection.execute(
            f"SELECT count(*) FILTER ({same}), count(*) FILTER (a.key IS NOT NULL AND b.key IS NOT NULL AND NOT ({same})), "
            f"count(*) FILTER (a.key IS NULL OR b.key IS NULL) FROM read_parquet({files['base']}) a "
            f"FULL JOIN read_parquet({files[name]}) b ON a.key = b.key AND a.at = b.at"
        ).fetchall()[0]
    return {"equal": equal, "different": different, "alone": alone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--memory", default="1500MB")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        how, name = options.one
        begun = time.monotonic()
        found = (floodmark if how == "floodmark" else joined)(options.folder, name, options.memory)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found | {"seconds": round(time.monotonic() - begun, 1), "MiB": round(peak)}))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        if not (folder / "base").exists():
            make(folder, options.rows)
        for name in ("base", "few", "every"):
            answers = {}
            for how in ("floodmark", "join"):
                command = [
                    sys.executable,
                    __file__,
                    "--folder",
                    str(folder),
                    "--memory",
                    options.memory,
                    "--one",
                    how,
                    name,
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                answers[how] = json.loads(done.stdout)
                print(f"{name:6} {how:10} {answers[how]}", flush=True)
            rows = [{key: one[key] for key in ("equal", "different", "alone")} for one in answers.values()]
            assert rows[0] == rows[1], f"the two differ: {rows}"


if __name__ == "__main__":
    main()
