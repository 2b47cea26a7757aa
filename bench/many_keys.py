"""Very many keys on the embedded engine: seconds and peak memory of the run and all its processes, of a bounded run or a stream.

    python bench/many_keys.py (bounded | windows | sessions | state) [--keys 30000000] [--commit 500000] [--memory 300]

Each key has one row and one result. ``bounded`` and ``windows`` count them per hour, in one window: by SQL, and as a stream that holds all of them at
once. ``sessions`` holds one open session per key, in state that is kept row by row. Commits of a stream are its micro-batches; at its end the window closes.
``state`` is the store of a stream alone, with so many values of 1,700 bytes, a bucket of keys each: ``--keys 1764705 --commit 60000`` are 3 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from run import _watch

from floodmark import Contract, EventTime, Session, Stream, Tumbling, count, operator, sum
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state.batch import Batch
from floodmark.engines.embedded.state.checkpoint import Checkpoint
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import MARKER, ROW
from floodmark.testing.lakes import append

HOUR = 3_600_000
BEGIN = 1_700_000_000_000 // HOUR * HOUR
_STRIDE = 7_368_787
"""Prime: neighbours in the log are no neighbours among the keys."""


class Event(Contract):
    """A number of a key."""

    at: EventTime
    key: int
    value: int


@operator
def windows(events: Stream[Event]) -> Stream:
    """Sums per hour."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count(), total=sum("value"))


@operator
def sessions(events: Stream[Event]) -> Stream:
    """Sums of sessions, which stay open for an hour."""
    return events.key_by("key").window(Session("1 hour")).aggregate(n=count(), total=sum("value"))


OPERATORS = {"bounded": windows, "windows": windows, "sessions": sessions}
VALUE = 1_700
GROUPS = 64


def commits(keys: int, each: int) -> Iterator[pa.Table]:
    """The log, all of it in one hour, and a marker that closes that hour and all sessions."""
    schema = arrow_schema(windows.inputs[0].schema)
    for first in range(0, keys, each):
        places = np.arange(first, min(first + each, keys))
        yield _rows(schema, places, places * _STRIDE % keys, BEGIN + places * 60_000 // keys, ROW)
    yield _rows(schema, np.array([keys]), np.array([0]), np.array([BEGIN + 10 * HOUR]), MARKER)


def _rows(schema: pa.Schema, places: np.ndarray, keys: np.ndarray, at: np.ndarray, kind: int) -> pa.Table:
    columns = {
        "at": pa.array(at * 1000, pa.int64()).cast(schema.field("at").type),
        "key": pa.array(keys, pa.int64()),
        "value": pa.array(places, pa.int64()),
    }
    stamps = {"_event_time": at, "_watermark": at - 1, "_progress": at - 1, "_sequence": places}
    if kind == MARKER:
        stamps |= {"_watermark": at, "_progress": at}
    stamps["_kind"] = np.full(len(places), kind, dtype=np.int32)
    return pa.table({**columns, **{name: pa.array(values) for name, values in stamps.items()}})


def run(mode: str, folder: str, memory: int) -> None:
    """The run, in a process of its own."""
    lake, sail, what = Lake(folder), Sail(memory), OPERATORS[mode]
    began = time.monotonic()
    if mode == "bounded":
        run_bounded(sail, what, lake)
        print(json.dumps({"seconds": time.monotonic() - began}))
        return
    seconds: list[float] = []
    state = Path(lake.root)

    def told(info: object) -> None:
        nonlocal state
        seconds.append(info.seconds)  # type: ignore[attr-defined]
        state = Path(Timeline.current(lake, what.name).folder(CHECKPOINT))
        if len(seconds) % 5 == 0:
            size = _megabytes(state)
            print(
                f"micro-batch {len(seconds)}: {seconds[-1]:.1f} s, checkpoint {size:,.0f} MB",
                file=sys.stderr,
                flush=True,
            )

    run_unbounded(sail, what, lake, until_caught_up=True, files_per_batch=1, on_batch=told)
    told = {"seconds": time.monotonic() - began, "longest_batch": max(seconds), "last_batch": seconds[-1]}
    print(json.dumps(told))


def store(folder: str, values: int, each: int) -> None:
    """Fill the store of a stream, open it again, and read some of it."""
    checkpoint, began = Checkpoint(f"{folder}/{CHECKPOINT}"), time.process_time()
    checkpoint.begin()
    state, rest = State(checkpoint), np.random.default_rng(1).bytes(VALUE - 8)
    for number, first in enumerate(range(0, values, each)):
        for value in range(first, min(first + each, values)):
            state.put((value % GROUPS, value // GROUPS), value.to_bytes(8, "little") + rest)
        state.commit(Batch(number=number, progress=0, reached={}, clock=0, positions=(), owed=(), segments=()))
        state.mark(number)
    filled, state = time.process_time() - began, State(checkpoint)
    for value in range(0, values, 101):
        assert state.get((value % GROUPS, value // GROUPS)) == value.to_bytes(8, "little") + rest
    print(json.dumps({"cpu_seconds": filled, "megabytes_on_disk": _megabytes(Path(folder))}))


def _megabytes(folder: Path) -> float:
    return np.sum([path.stat().st_size for path in folder.rglob("*") if path.is_file()]) / 1e6


def check(lake: Lake, what: str, keys: int) -> None:
    """One row per key, with its value."""
    rows = DeltaTable(lake.output(what)).to_pyarrow_dataset()  # noqa: F841 - DuckDB reads it by name
    found = duckdb.sql(
        f"""SELECT count(*), count(DISTINCT key), sum(n), sum((total * {_STRIDE} % {keys} = key)::INT), sum(total) FROM rows WHERE _kind = {ROW}"""
    ).fetchall()[0]
    assert found == (keys, keys, keys, keys, keys * (keys - 1) // 2), found


def main() -> None:
    """Write the log, run, check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=[*OPERATORS, "state"])
    parser.add_argument("--keys", type=int, default=30_000_000)
    parser.add_argument("--commit", type=int, default=500_000)
    parser.add_argument("--memory", type=int, default=300)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        if options.mode == "state":
            store(options.folder, options.keys, options.commit)
        else:
            run(options.mode, options.folder, options.memory)
        return
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, what = Lake(folder), OPERATORS.get(options.mode)
        for table in commits(options.keys, options.commit) if what else ():
            append(lake.input(what.inputs[0]), table)
        process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--folder", folder], stdout=subprocess.PIPE, text=True
        )
        peak = [0]
        watcher = threading.Thread(target=_watch, args=(process.pid, peak), daemon=True)
        watcher.start()
        told, _ = process.communicate()
        assert process.returncode == 0, process.returncode
        watcher.join()
        if what:
            check(lake, what.name, options.keys)
    numbers = ", ".join(f"{name} {value:,.1f}" for name, value in json.loads(told.splitlines()[-1]).items())
    print(f"{options.mode}, {options.keys:,} keys: {numbers}, peak {peak[0] / 1e6:,.0f} MB, answer exact")


if __name__ == "__main__":
    main()
