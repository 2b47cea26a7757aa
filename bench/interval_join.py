"""An interval join of two large tables on the embedded engine, by the fluent API and by SQL, bounded, as a stream, and as a stream that is killed; DuckDB judges.

    python bench/interval_join.py [--rows 1000000] [--keys 1000] [--commits 20] [--only bounded,stream,killed]

Both logs have so many rows, a row each ten milliseconds, of so many keys; a click is joined with the views of its key in the ten seconds before it. Each run is
a process of its own: seconds, processor seconds and peak memory of its process tree. ``equal`` says that the pairs are DuckDB's, by their number and the sum of
their hashes. ``killed`` is ended by SIGKILL once a third of its micro-batches are committed, and started again.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from floodmark import Contract, EventTime, Stream, operator, sql_operator

HERE = Path(__file__).resolve().parent
STEP = 10
"""Milliseconds between two rows."""
SQL = """
    SELECT c.number, c.key, v.number AS view
    FROM clicks AS c JOIN views AS v ON c.key = v.key AND v.at BETWEEN c.at - INTERVAL '10' SECOND AND c.at
"""


class Click(Contract):
    """A click."""

    at: EventTime
    key: int
    number: int


class View(Contract):
    """A view."""

    at: EventTime
    key: int
    number: int


@operator
def fluent(clicks: Stream[Click], views: Stream[View]) -> Stream:
    """The join by the fluent API."""
    pairs = clicks.key_by("key").interval_join(views.key_by("key"), "-10 seconds", "0 seconds", prefix="view_")
    return pairs.select("number", "key", view="view_number")


OPERATORS = {"fluent": fluent, "sql": sql_operator("sql", SQL, inputs={"clicks": Click, "views": View})}


def make(folder: str, asked: argparse.Namespace) -> None:
    """Both logs, in commits."""
    import numpy as np
    import pyarrow as pa
    from deltalake import write_deltalake

    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.table.outputs import table_schema

    rng, lake = np.random.default_rng(1), Lake(folder)
    for input_ in fluent.inputs:
        names = [field.name for field in table_schema(input_.schema, None).fields]
        size = asked.rows // asked.commits
        for part in range(asked.commits):
            places = np.arange(part * size, (part + 1) * size)
            times = pa.array(places * STEP * 1000, pa.timestamp("us", "UTC"))
            columns = {
                "at": times,
                "key": rng.integers(0, asked.keys, size),
                "number": places,
                "_event_time": times,
                "_ingest_time": times,
                "_watermark": places * STEP - 1_000,
                "_progress": np.full(size, (part * size - 1) * STEP - 1_000),
                "_kind": np.zeros(size, "int32"),
                "_sequence": places,
            }
            write_deltalake(lake.input(input_), pa.table([columns[name] for name in names], names), mode="append")


def counted(folder: str, table: str, sql: str) -> tuple[int, int]:
    """(folder of the lake, an output, or empty for the logs, SQL over them) -> number of pairs, and the sum of their hashes, by DuckDB."""
    import duckdb
    from deltalake import DeltaTable

    from floodmark.lake.folder.paths import Lake

    lake = Lake(folder)
    paths = {read.table: lake.input(read) for read in fluent.inputs} if not table else {"pairs": lake.output(table)}
    with duckdb.connect(config={"memory_limit": "2GB", "threads": 2}) as connection:
        for name, path in paths.items():
            files = [f"{path}/{file}" for file in DeltaTable(path).to_pyarrow_dataset().files]
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files}) WHERE _kind = 0")
        answer = connection.execute(f"SELECT count(*), sum(hash(number, key, view)::HUGEINT) FROM ({sql})").fetchone()
    assert answer is not None
    return int(answer[0]), int(answer[1] or 0)


def child(folder: str, form: str, mode: str) -> None:
    """One run."""
    from floodmark.engines.embedded.bounded.run import run_bounded
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.engines.embedded.unbounded.run import run_unbounded
    from floodmark.lake.folder.paths import Lake

    sail, lake = Sail(), Lake(folder)
    if mode == "bounded":
        run_bounded(sail, OPERATORS[form], lake)
    else:
        run_unbounded(
            sail,
            OPERATORS[form],
            lake,
            until_caught_up=True,
            files_per_batch=1,
            on_batch=lambda _: print("{}", flush=True),
        )
    sail.close()
    print("{}")


def killed(command: list[str], commits: int) -> None:
    """Kill a run at a third of its micro-batches."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    for _ in range(max(1, commits // 3)):
        running.stdout.readline()
    running.send_signal(signal.SIGKILL)
    running.wait()


def main() -> None:
    """Make the logs, and run all."""
    from measurements import keep, process

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["bounded", "stream", "killed"])
    asked, wrong = parser.parse_args(), False
    with TemporaryDirectory(prefix="floodmark-bench-") as folder:
        make(folder, asked)
        began = time.process_time()
        expected = counted(folder, "", SQL)
        print(f"duckdb: {expected[0]:,} pairs, {time.process_time() - began:.1f} s of CPU", flush=True)
        for mode in asked.only:
            for form in OPERATORS if mode == "bounded" else ["fluent" if mode == "stream" else "sql"]:
                command = [sys.executable, __file__, "--child", folder, form, mode]
                if mode == "killed":
                    killed(command, asked.commits)
                told = process(command)
                if "left out" not in told:
                    told |= {"pairs": expected[0], "equal": counted(folder, form, "SELECT * FROM pairs") == expected}
                row = {"mode": mode, "form": form, "rows of each": asked.rows, **told}
                wrong |= not row.get("equal", False)
                keep("interval_join", [row], by=("mode", "form"))
                print(json.dumps(row), flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
