"""Bounded runs by kernels over more rows than a worker's memory: half of them of one key. Seconds, peak memory of a worker, a digest of the rows.

    python bench/large_groups.py --engine embedded --gigabytes 4 --memory 1024
    python bench/large_groups.py --engine spark --gigabytes 4 --memory 1024
    python bench/large_groups.py --engine duckdb --gigabytes 4

``--memory`` is what each worker may use, MB. Equal digests are equal rows; those of DuckDB are computed by SQL from the log, without payloads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark import Contract, ListState, Operator, ProcessFunction, Stream, Tumbling, operator
from floodmark.core import cores
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.outputs import table_schema
from floodmark.spec.values.schema import Schema

WIDTH, KEYS, STEP, WINDOW = 4_000, 1_000, 10, 60_000
"""Bytes of a payload, keys beside the hot one, ms between two rows, ms of a window: 6,000 rows of 24 MB, half of them of the hot key."""
_BATCH = 20_000


class Reading(Contract):
    """A reading with a large payload."""

    key: str
    value: int
    payload: str


class Seen(Contract):
    """What a key has seen."""

    rows: int
    last: list[int]
    width: int


class Whole(Contract):
    """What a window has."""

    rows: int
    total: int
    width: int


class Running(ProcessFunction):
    """Every hundredth row of a key says how many there were, and the last five values."""

    last = ListState(int)
    count = ListState(int)

    def on_element(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - as it is called
        """Count a row."""
        rows = (list(self.count.get()) or [0])[0] + 1
        self.count.update([rows])
        self.last.update([*list(self.last.get())[-4:], row["value"]])
        if rows % 100 == 0:
            yield {"rows": rows, "last": list(self.last.get()), "width": len(row["payload"])}


def listed(pane: Any, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """A window from all of its rows."""
    whole = list(rows)
    yield {
        "rows": len(whole),
        "total": sum(row["value"] for row in whole),
        "width": sum(len(row["payload"]) for row in whole),
    }


@operator
def running(readings: Stream[Reading]) -> Stream:
    """A process function."""
    return readings.key_by("key").process(Running(), schema=Seen)


@operator
def whole(readings: Stream[Reading]) -> Stream:
    """Whole windows."""
    return readings.key_by("key").window(Tumbling("1 minute")).process(listed, schema=Whole)


OPERATORS: dict[str, Operator] = {"running": running, "whole": whole}
WINDOW = ("window_start", "window_end")
SQL = {
    "running": """
        SELECT key, n AS rows, last, width FROM (
            SELECT key, length(payload) AS width, row_number() OVER w AS n,
                list(value) OVER (PARTITION BY key ORDER BY _sequence ROWS 4 PRECEDING) AS last
            FROM log WINDOW w AS (PARTITION BY key ORDER BY _sequence)
        ) WHERE n % 100 = 0""",
    "whole": """
        SELECT key, count(*) AS rows, sum(value)::BIGINT AS total, sum(length(payload))::BIGINT AS width
        FROM log GROUP BY key, epoch_us(_event_time) // 60000000""",
}
"""The same results in SQL."""


def generated(lake: Lake, gigabytes: float) -> int:
    """Write a log of readings; returns the number of rows."""
    input_ = running.inputs[0]
    schema: Schema = input_.schema
    rows, rng, path = int(gigabytes * 1e9 / WIDTH), np.random.default_rng(7), lake.input(input_)
    now = pa.scalar(0, pa.timestamp("us", "UTC"))
    for first in range(0, rows, _BATCH):
        count = min(_BATCH, rows - first)
        places = np.arange(first, first + count)
        hot = rng.random(count) < 0.5
        keys = np.where(hot, "hot", np.char.add("k", rng.integers(0, KEYS, count).astype(str)))
        payloads = rng.bytes(count * WIDTH // 2).hex()
        times = pa.array(places * STEP * 1000, pa.timestamp("us", "UTC"))
        columns: dict[str, Any] = {
            "key": pa.array(keys.tolist()),
            "value": pa.array(rng.integers(0, 1000, count)),
            "payload": pa.array([payloads[i * WIDTH : (i + 1) * WIDTH] for i in range(count)]),
            "_event_time": times,
            "_ingest_time": pa.repeat(now, count),
            "_watermark": pa.array(places * STEP - 5_000),
            "_progress": pa.array(np.full(count, (first - 1) * STEP - 5_000)),
            "_kind": pa.array(np.zeros(count, "int32")),
            "_sequence": pa.array(places),
        }
        wanted = table_schema(schema, None)
        names = [field.name for field in wanted.fields]
        write_deltalake(path, pa.table([columns[name] for name in names], names), mode="append")
    return rows


def digest(table: pa.Table) -> tuple[int, str]:
    """Number of rows, and a digest of the columns that are not floodmark's own."""
    names = sorted(name for name in table.column_names if not name.startswith("_") and name not in WINDOW)
    rows = sorted(map(repr, table.select(names).to_pylist()))
    return len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


class Watch:
    """Peak memory of this process and those below it."""

    def __init__(self, word: str) -> None:
        self.word, self.peak, self.together, self.done = word, 0, 0, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.done.wait(0.2):
            together = 0
            for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    size = process.memory_info().rss
                    together += size
                    if self.word in " ".join(process.cmdline()):
                        self.peak = max(self.peak, size)
            self.together = max(self.together, together)

    def end(self) -> tuple[int, int]:
        """Stop; the peak of a worker and of all processes together, bytes of resident memory."""
        self.done.set()
        self.thread.join()
        return self.peak, self.together


def measured(engine: str, name: str, lake: Lake, memory: int) -> dict[str, Any]:
    """One run of one operator."""
    code = OPERATORS[name]
    watch, began, cpu = Watch(WORKERS[engine]), time.monotonic(), _cpu()
    if engine == "duckdb":
        log = DeltaTable(lake.input(code.inputs[0])).to_pyarrow_dataset()
        with duckdb.connect(config={"memory_limit": "3GB"}) as connection:
            connection.register("log", log)
            table = connection.sql(SQL[name]).to_arrow_table()
    else:
        ENGINES[engine](code, lake, memory)
        path = lake.output(code.outputs[0].table)
        table = DeltaTable(path).to_pyarrow_table()
        shutil.rmtree(path)
    worker, everything = watch.end()
    rows, text = digest(table)
    return {
        "engine": engine, "operator": name, "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(_cpu() - cpu, 1), "peak_worker_mb": worker // 1_000_000,
        "peak_all_mb": everything // 1_000_000, "rows": rows, "digest": text,
    }  # fmt: skip


def _embedded(code: Operator, lake: Lake, memory: int) -> None:
    sail = Sail(memory * cores.available())
    run_bounded(sail, code, lake)
    sail.close()


def _spark(code: Operator, lake: Lake, memory: int) -> None:
    from floodmark.engines.spark.bounded.run import run_bounded as run_on_spark
    from floodmark.engines.spark.session.builder import spark_session

    spark = spark_session(extra={"spark.executor.pyspark.memory": f"{memory}m"})
    run_on_spark(spark, code, lake)
    spark.stop()


ENGINES = {"embedded": _embedded, "spark": _spark}
WORKERS = {"embedded": "bounded.worker", "spark": "-m floodmark.engines.spark.session.daemon", "duckdb": "duckdb"}
"""Engine -> word in the command lines of its workers."""


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["embedded", "spark", "duckdb"], default="embedded")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--memory", type=int, default=1024)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "floodmark-large-groups"))
    parser.add_argument("names", nargs="*", default=list(OPERATORS))
    options = parser.parse_args()
    lake = Lake(str(options.folder))
    if not options.folder.exists():
        print(f"{generated(lake, options.gigabytes):,} rows")
    for name in options.names:
        print(json.dumps(measured(options.engine, name, lake, options.memory)), flush=True)


if __name__ == "__main__":
    main()
