"""A pattern of three steps on the embedded engine, beside DuckDB's nearest form and Flink CEP: rows per second and peak memory, answers compared.

    python bench/patterns.py [--rows 1000000] [--keys 100000] [--mode bounded | stream | flink batch | flink streaming]

A small amount, the next large one after it, the next return after that, within an hour. DuckDB, which has no such clause in this release, finds
each next row by an ASOF join. Flink runs ``flink_patterns.py`` over the same rows as CSV, in an environment that is made by pip.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from contenders import environment
from deltalake import DeltaTable
from measurements import process

from floodmark import Contract, EventTime, Stream, begin, operator
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import MARKER, ROW
from floodmark.testing.lakes import append

DAY = 86_400_000
BEGIN = 1_767_225_600_000
COMMITS = 8

ASOF = """
WITH small AS (SELECT * FROM swipes WHERE amount < 1),
     large AS (SELECT * FROM swipes WHERE amount > 500),
     back AS (SELECT * FROM swipes WHERE amount < 0 AND amount > -10),
     pairs AS (SELECT s.card, s.at AS first_at, l.at AS second_at FROM small s ASOF JOIN large l ON s.card = l.card AND s.at < l.at)
SELECT count(*), sum(epoch_ms(b.at) % 1000003) FROM pairs p ASOF JOIN back b ON p.card = b.card AND p.second_at < b.at
WHERE epoch_ms(b.at) - epoch_ms(p.first_at) < 3600000
"""


class Swipe(Contract):
    """A swipe of a card."""

    at: EventTime
    card: int
    amount: float


@operator
def frauds(swipes: Stream[Swipe]) -> Stream:
    """A small amount, a large one, a return."""
    pattern = begin("small").where("amount < 1").followed_by("large").where("amount > 500")
    whole = pattern.followed_by("back").where("amount < 0 AND amount > -10").within("1 hour")
    return swipes.key_by("card").pattern(whole).select(tested_at="small.at", back_at="back.at")


def write(lake: Lake, rows: int, keys: int) -> None:
    """The log: a day of swipes, no two of them at one instant, and its end."""
    draw, schema = np.random.default_rng(1), arrow_schema(frauds.inputs[0].schema)
    at = BEGIN + np.arange(rows) * DAY // rows
    cards = draw.integers(0, keys, rows)
    amounts = draw.choice([0.5, 20.0, 30.0, 600.0, -5.0], rows)
    bounds = np.linspace(0, rows, COMMITS + 1).astype(int)
    for start, stop in itertools.pairwise(bounds):
        part = slice(start, stop)
        append(
            lake.input(frauds.inputs[0]),
            _table(schema, at[part], cards[part], amounts[part], np.arange(start, stop), ROW),
        )
    last = np.array([BEGIN + 2 * DAY])
    append(lake.input(frauds.inputs[0]), _table(schema, last, np.array([0]), np.array([0.0]), np.array([rows]), MARKER))


def _table(
    schema: pa.Schema, at: np.ndarray, cards: np.ndarray, amounts: np.ndarray, places: np.ndarray, kind: int
) -> pa.Table:
    columns = {
        "at": pa.array(at * 1000, pa.int64()).cast(schema.field("at").type),
        "card": pa.array(cards, pa.int64()),
        "amount": pa.array(amounts, pa.float64()),
    }
    stamps = {"_event_time": at, "_watermark": at - (kind == ROW), "_progress": at - (kind == ROW), "_sequence": places}
    numbers = {name: pa.array(values, pa.int64()) for name, values in stamps.items()}
    return pa.table({**columns, **numbers, "_kind": pa.array(np.full(len(at), kind), pa.int32())})


def run(mode: str, folder: str) -> None:
    """The run, in a process of its own."""
    lake, sail = Lake(folder), Sail(600)
    if mode == "bounded":
        run_bounded(sail, frauds, lake)
    else:
        run_unbounded(sail, frauds, lake, until_caught_up=True, files_per_batch=1)
    print(json.dumps({"mode": mode}))


def main() -> None:
    """Write the log, run, compare with DuckDB, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    modes = ["bounded", "stream", "flink batch", "flink streaming"]
    parser.add_argument("--mode", choices=modes, default="bounded")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        run(options.mode, options.folder)
        return
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake = Lake(folder)
        write(lake, options.rows, options.keys)
        swipes = DeltaTable(lake.input(frauds.inputs[0])).to_pyarrow_table().filter(pa.compute.field("_kind") == ROW)
        assert swipes.num_rows == options.rows
        engine, _, how = options.mode.rpartition(" ")
        command, answer = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--folder", folder], f"{folder}/answer"
        if engine:
            python, file = environment("flink"), f"{folder}/swipes.csv"
            assert isinstance(python, Path), python
            duckdb.sql(
                f"COPY (SELECT epoch_ms(s.at), card, amount FROM swipes s ORDER BY s.at) TO '{file}' (FORMAT csv, HEADER false)"
            )
            command = [str(python), str(Path(__file__).with_name("flink_patterns.py")), file, answer, how]
        told = process(command)
        assert "left out" not in told, told
        began = time.monotonic()
        wanted = duckdb.sql(ASOF).fetchall()[0]
        joined = time.monotonic() - began
        matches = f"SELECT column0 AS time FROM read_csv('{answer}/**', header = false)"
        if not engine:
            results = DeltaTable(lake.output(frauds.name)).to_pyarrow_table()  # noqa: F841 - DuckDB reads it by name
            matches = f"SELECT epoch_ms(back_at) AS time FROM results WHERE _kind = {ROW}"
        got = duckdb.sql(f"SELECT count(*), sum(time % 1000003) FROM ({matches})").fetchall()[0]
        assert got == wanted, (got, wanted)
    seconds = told["seconds"]
    print(
        f"{options.mode}: {options.rows:,} rows of {options.keys:,} keys, {got[0]:,} matches: {seconds:,.1f} s, {options.rows / seconds:,.0f} rows/s, "
        f"{told['cpu_seconds']:,.1f} s of CPU, peak {told['peak_memory_mb']:,} MB; DuckDB's joins {joined:,.2f} s, answers equal"
    )


if __name__ == "__main__":
    main()
