"""Very many keys on the embedded engine: seconds and peak memory of the run and all its processes, of a bounded run or a stream.

    python bench/many_keys.py (bounded | windows | sessions | firsts | counted | state) [--keys 30000000] [--commit 500000] [--memory 300]

Each key has one row and one result. ``bounded`` and ``windows`` count them per hour, in one window: by SQL, and as a stream that holds all of them at
once. ``sessions`` holds one open session per key, in state that is kept row by row. Commits of a stream are its micro-batches; at its end the window closes.
``firsts`` and ``counted`` are keys that come twice within an hour and never again, an hour per commit: rows without their repetitions, and numbered by a
process function, each with a time to live of four hours. What their state holds after six commits and in the end is printed.
``state`` is the store of a stream alone, with so many values of 1,700 bytes, a bucket of keys each: ``--keys 1764705 --commit 60000`` are 3 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from watching import Watch

from floodmark import (
    Contract,
    EventTime,
    ProcessFunction,
    Session,
    Stream,
    Tumbling,
    ValueState,
    count,
    operator,
    sum,
)
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
LIVING = 4
"""Hours for which a key that passes is remembered."""
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


@operator
def firsts(events: Stream[Event]) -> Stream:
    """Rows whose key has not come within four hours."""
    return events.key_by("key").deduplicate(timedelta(hours=LIVING))


class Seen(Contract):
    """How often a key has come within four hours."""

    n: int
    value: int


class Counting(ProcessFunction):
    """Numbers the rows of a key."""

    seen = ValueState(int, ttl=timedelta(hours=LIVING))

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - as it is called
        """Number a row."""
        self.seen.update(self.seen.get(0) + 1)
        yield {"n": self.seen.get(), "value": row["value"]}


@operator
def counted(events: Stream[Event]) -> Stream:
    """Rows with how often their key has come."""
    return events.key_by("key").process(Counting(), schema=Seen)


OPERATORS = {"bounded": windows, "windows": windows, "sessions": sessions, "firsts": firsts, "counted": counted}
PASSING = ("firsts", "counted")
VALUE = 1_700
GROUPS = 64


def commits(keys: int, each: int) -> Iterator[pa.Table]:
    """The log, all of it in one hour, and a marker that closes that hour and all sessions."""
    schema = arrow_schema(windows.inputs[0].schema)
    for first in range(0, keys, each):
        places = np.arange(first, min(first + each, keys))
        yield _rows(schema, places, places * _STRIDE % keys, BEGIN + places * 60_000 // keys, ROW)
    yield _rows(schema, np.array([keys]), np.array([0]), np.array([BEGIN + 10 * HOUR]), MARKER)


def passing(keys: int, each: int) -> Iterator[pa.Table]:
    """The log of keys that come twice, so many of them in each hour, which is a commit; and a marker."""
    schema, hour = arrow_schema(firsts.inputs[0].schema), BEGIN
    for first in range(0, keys, each):
        places = np.arange(2 * first, 2 * min(first + each, keys))
        came = (places - 2 * first) % (len(places) // 2) + first
        yield _rows(schema, places, came, hour + (places - 2 * first) * HOUR // len(places), ROW)
        hour += HOUR
    yield _rows(schema, np.array([2 * keys]), np.array([0]), np.array([hour]), MARKER)


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
    seconds, held = list[float](), list[float]()
    state = Path(lake.root)

    def told(info: object) -> None:
        nonlocal state
        seconds.append(info.seconds)  # type: ignore[attr-defined]
        state = Path(Timeline.current(lake, what.name).folder(CHECKPOINT))
        if mode in PASSING:
            held.append(_held(str(state)))
        if len(seconds) % 5 == 0:
            size = _megabytes(state)
            print(
                f"micro-batch {len(seconds)}: {seconds[-1]:.1f} s, checkpoint {size:,.0f} MB",
                file=sys.stderr,
                flush=True,
            )

    run_unbounded(sail, what, lake, until_caught_up=True, files_per_batch=1, on_batch=told)
    numbers = {"seconds": time.monotonic() - began, "longest_batch": max(seconds), "last_batch": seconds[-1]}
    if mode in PASSING:
        numbers |= {"state_after_six_mb": held[: LIVING + 2][-1], "most_state_mb": max(held), "last_state_mb": held[-1]}
    print(json.dumps(numbers))


def _held(folder: str) -> float:
    """Megabytes of the values that a stream's state holds."""
    state = State(Checkpoint(folder))
    return np.sum([len(state.get(key) or b"") for key in state.keys()]) / 1e6  # noqa: SIM118 - it is no dictionary


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
    """One row per key, with its value; of keys that pass the first row, or both with their numbers."""
    rows = DeltaTable(lake.output(what)).to_pyarrow_dataset()  # noqa: F841 - DuckDB reads it by name
    if what in PASSING:
        n, most = ("n", 2) if what == "counted" else ("1", 1)
        found = duckdb.sql(
            f"SELECT count(*), count(DISTINCT key * 2 + {n}), min({n}), max({n}) FROM rows WHERE _kind = {ROW}"
        ).fetchall()[0]
        assert found == (most * keys, most * keys, 1, most), found
        return
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
        written = passing if options.mode in PASSING else commits
        for table in written(options.keys, options.commit) if what else ():
            append(lake.input(what.inputs[0]), table)
        process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--folder", folder], stdout=subprocess.PIPE, text=True
        )
        watch = Watch(process.pid)
        told, _ = process.communicate()
        assert process.returncode == 0, process.returncode
        watch.end()
        if what:
            check(lake, what.name, options.keys)
    numbers = ", ".join(f"{name} {value:,.1f}" for name, value in json.loads(told.splitlines()[-1]).items())
    print(f"{options.mode}, {options.keys:,} keys: {numbers}, peak {watch.peak_memory_mb:,.0f} MB, answer exact")


if __name__ == "__main__":
    main()
