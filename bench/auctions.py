"""Nexmark: generated events, its queries as statements of SQL, on the embedded engine and Spark, bounded and unbounded, beside raw Spark SQL and DuckDB.

    PYTHONPATH=.:tests/support python bench/auctions.py [--events 1000000] [--queries q0 q5] [--systems duckdb embedded spark raw]
    FLINK_PYTHON=flink/bin/python PYTHONPATH=.:tests/support python bench/auctions.py --systems pyflink

Of 50 events one is a person, three are auctions and 46 bids; half of the bids go to an auction that is hot, three of four to a bidder who is. Event
time advances 10,000 events a second. The log lies in commits of equal size, each a micro-batch; all systems read it and write a Delta table (DuckDB:
Parquet). Queries run one after the other in one process per system, each in a batch once before it is measured, so that Java has compiled it. Columns: query, system, mode, seconds, CPU seconds of all processes, events per second and
per CPU second (of all tables that the query reads), and whether the answer is DuckDB's, retractions subtracted. q12 goes by the clock, q13 is refused.
``pyflink`` runs in the Python of an environment with ``apache-flink`` and ``psutil`` (``FLINK_PYTHON``), over CSV; as a stream into a sink that drops rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable
from nexmark import QUERIES, TABLES

from floodmark import Operator, sql_operator
from floodmark.core.time import END, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.rows.contract import schema
from floodmark.spec.values.schema import MARKER
from floodmark.testing.lakes import append

PER_SECOND, START, COMMITS = 10_000, 1_700_000_000_000, 8
_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
_WINDOW = "floor(unix_millis(date_time) / 10000)"
RAW = {
    "q5": """WITH c AS (SELECT auction, window, COUNT(*) AS num FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')),
             m AS (SELECT window, MAX(num) AS most FROM c GROUP BY window) SELECT auction, num FROM c JOIN m ON c.window = m.window AND num = most""",
    "q7": f"SELECT auction, price, bidder, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {_WINDOW} ORDER BY price DESC, number) AS rn FROM bid) WHERE rn = 1",
    "q8": f"""SELECT p.id, p.name, timestamp_millis(w * 10000) AS starttime FROM (SELECT *, {_WINDOW} AS w FROM person) AS p
              LEFT SEMI JOIN (SELECT *, {_WINDOW} AS w FROM auction) AS a ON p.id = a.seller AND p.w = a.w""",
    "q11": "SELECT bidder, COUNT(*) AS bids, session_window.start AS s, session_window.end AS e FROM bid GROUP BY bidder, session_window(date_time, '2 seconds')",
}
"""Windows in Spark's words; of the other queries Spark SQL reads the statement without EMIT CHANGES."""
STATELESS = ("q0", "q1", "q2", "q10", "q14", "q21", "q22")
"""The queries that raw Spark runs as a stream that appends, beside q11."""


def question(query: str) -> str:
    """DuckDB's question; of equal prices the bid that landed first."""
    return QUERIES[query][1].replace("ORDER BY price DESC) = 1", "ORDER BY price DESC, number) = 1")


def operator(query: str) -> Operator:
    """The statement as an operator."""
    return sql_operator(query, QUERIES[query][0][0], inputs=TABLES)


def generate(folder: Path, events: int) -> None:
    """Write the logs."""
    rng, lake = np.random.default_rng(7), Lake(str(folder / "lake"))
    logs = {read.table: lake.input(read) for query in ("q0", "q8") for read in operator(query).inputs}
    texts = np.array(["".join(rng.choice(list("abcdefghij"), 40)) for _ in range(1000)])
    for commit in range(COMMITS):
        for name, rows in _tables(rng, events * commit // COMMITS, events * (commit + 1) // COMMITS, texts).items():
            append(logs[name], _stamped(name, rows, commit == COMMITS - 1))


def _tables(rng: np.random.Generator, first: int, last: int, texts: Any) -> dict[str, dict[str, Any]]:
    """Some consecutive events: table -> its columns, event time in ms, and their numbers."""
    order = np.arange(first, last)
    time_ms, epoch, place = START + order * 1000 // PER_SECOND, order // 50, order % 50
    newest_auction, newest_person = 1000 + epoch * 3 + np.clip(place - 1, 0, 2), 1000 + epoch
    count = len(order)

    def hot(newest: Any, share: float, among: int) -> Any:
        cold = np.maximum(newest - rng.integers(0, among, count), 1000)
        return np.where(rng.random(count) < share, np.maximum(newest // 100 * 100, 1000), cold)

    auctions, persons = hot(newest_auction, 0.5, 100), hot(newest_person, 0.75, 1000)
    prices = np.round(10 ** (rng.random(count) * 6) * 100).astype(np.int64)
    channel = rng.integers(0, 10_000, count)
    known = rng.random(count) < 0.5
    names = np.where(known, _CHANNELS[channel % 4], np.char.add("channel-", channel.astype(str)))
    urls = np.char.add(
        "https://www.nexmark.com/a/b/item.htm?query=1",
        np.where(known, "", np.char.add("&channel_id=", channel.astype(str))),
    )
    extra, letters = texts[rng.integers(0, len(texts), count)], rng.integers(0, 6, count)
    lasts = (rng.random(count) * 2 * 100 * 50 / 3 * 1000 / PER_SECOND).astype(np.int64) + 1
    made = {
        "bid": (place > 3, {"auction": auctions, "bidder": persons, "price": prices, "channel": names, "url": urls, "extra": extra}),
        "auction": (
            (place > 0) & (place < 4),
            {"id": newest_auction, "seller": persons, "category": 10 + channel % 5, "initial_bid": prices, "reserve": prices * 2, "expires": time_ms + lasts},
        ),
        "person": (
            place == 0,
            {"id": newest_person, "name": extra, "city": np.array(["phoenix", "boise", "portland", "bend", "redmond", "kent"])[letters], "state": np.array(["az", "id", "or", "ca", "wa", "wy"])[letters]},
        ),
    }  # fmt: skip
    return {
        name: {
            column: values[chosen] for column, values in {**columns, "date_time": time_ms, "_sequence": order}.items()
        }
        for name, (chosen, columns) in made.items()
    }


def _stamped(name: str, rows: dict[str, Any], last: bool) -> pa.Table:  # noqa: FBT001 - of this file alone
    """Columns as rows of a log, with a marker of their progress, or of the end of input."""
    times, target = rows["date_time"], arrow_schema(schema(TABLES[name]))
    stamps = {
        "_event_time": times,
        "_watermark": times - 1,
        "_progress": np.full(len(times), times[0] - 1),
        "_sequence": rows["_sequence"],
    }
    stamps["_kind"] = np.zeros(len(times), np.int32)
    columns = {
        column.name: pa.array(rows[column.name] * 1000).cast(column.type)
        if pa.types.is_timestamp(column.type)
        else pa.array(rows[column.name], column.type)
        for column in target
    }
    table = pa.table({**columns, **{stamp: pa.array(values) for stamp, values in stamps.items()}})
    reached = END if last else int(times[-1] - 1)
    marker = {"_watermark": reached, "_progress": reached, "_kind": MARKER}
    nullable = pa.schema([pa.field(field.name, field.type) for field in table.schema])
    return pa.concat_tables([table.cast(nullable), pa.Table.from_pylist([marker], schema=nullable)])


# ---- systems: (queries, folder, folder of outputs) -> (mode, query, seconds, CPU seconds of the process tree)

Times = Iterator[tuple[str, str, float, float]]


class Watch:
    """Seconds and CPU seconds of this process and all below it since it was made."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), self._cpu()

    def taken(self) -> tuple[float, float]:
        """(seconds, CPU seconds)."""
        return time.perf_counter() - self.began, self._cpu() - self.cpu

    @staticmethod
    def _cpu() -> float:
        total = 0.0
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


def _connected(folder: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    lake = Lake(str(folder / "lake"))
    for query in ("q0", "q8"):
        for read in operator(query).inputs:
            files = DeltaTable(lake.input(read)).file_uris()
            connection.execute(
                f"CREATE VIEW {read.table} AS SELECT *, _sequence AS number FROM read_parquet({files}) WHERE _kind = 0"
            )
    return connection


def duck(queries: list[str], folder: Path, out: Path) -> Times:
    """DuckDB, which writes Parquet."""
    connection = _connected(folder)
    for query in queries:
        watch = Watch()
        connection.execute(f"COPY ({question(query)}) TO '{out}/{query}.parquet' (FORMAT parquet)")
        yield "bounded", query, *watch.taken()


def floodmark(engine: str, queries: list[str], folder: Path, out: Path) -> Times:
    """An engine of floodmark, both modes."""
    if engine == "embedded":
        from floodmark.engines.embedded.bounded.run import run_bounded
        from floodmark.engines.embedded.sail.session import Sail
        from floodmark.engines.embedded.unbounded.run import run_unbounded

        session: Any = Sail()
    else:
        import systems

        from floodmark.engines.spark.bounded.run import run_bounded
        from floodmark.engines.spark.unbounded.run import run_unbounded

        session = systems.session()
    (out / "bounded").mkdir()
    (out / "unbounded").mkdir()
    modes: dict[str, Callable[..., Any]] = {
        "bounded": partial(run_bounded, interval=Interval()),
        "unbounded": partial(run_unbounded, until_caught_up=True, files_per_batch=3),
    }
    for query, measured in _twice(queries):
        code = operator(query)
        for mode, run in modes.items():
            if mode == "unbounded" and not measured:
                continue
            lake = Lake(str(out / mode / f"{query}-lake{'' if measured else '-before'}"), logs=str(folder / "lake"))
            watch = Watch()
            try:
                run(session, code, lake)
            except Exception as error:  # noqa: BLE001 - a line of the table says it
                print(f"{engine}, {mode}, {query}: {str(error)[:200]}", file=sys.stderr)
                continue
            taken = watch.taken()
            if measured:
                yield mode, query, *taken
                (out / mode / query).symlink_to(lake.output(query))


def _twice(queries: list[str]) -> Iterator[tuple[str, bool]]:
    """(query, whether it is measured): its first run in a batch starts the engine and lets Java compile what it runs."""
    for query in queries:
        yield query, False
        yield query, True


def raw(queries: list[str], folder: Path, out: Path) -> Times:
    """Spark SQL in batch, and as a stream where it appends."""
    import systems

    spark, lake = systems.session(), Lake(str(folder / "lake"))
    paths = {read.table: lake.input(read) for query in ("q0", "q8") for read in operator(query).inputs}
    for name, path in paths.items():
        spark.read.format("delta").load(path).where("_kind = 0").withColumnRenamed(
            "_sequence", "number"
        ).createOrReplaceTempView(name)
    for query, measured in _twice(queries):
        text = RAW.get(query, QUERIES[query][0][0].replace("EMIT CHANGES", ""))
        watch = Watch()
        spark.sql(text).write.format("delta").save(str(out / "bounded" / f"{query}{'' if measured else '-before'}"))
        if measured:
            yield "bounded", query, *watch.taken()
    for name, path in paths.items():
        read = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(path).where("_kind = 0")
        read.withWatermark("date_time", "0 seconds").createOrReplaceTempView(name)
    for query in [query for query in queries if query in {*STATELESS, "q11"}]:
        text = RAW.get(query, QUERIES[query][0][0])
        watch = Watch()
        stream = (
            spark.sql(text).writeStream.format("delta").option("checkpointLocation", str(out / "checkpoints" / query))
        )
        stream.trigger(availableNow=True).start(str(out / "unbounded" / query)).awaitTermination()
        yield "unbounded", query, *watch.taken()


def differing(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> int | None:
    """Rows in which an answer differs from DuckDB's; None without one."""
    if path.suffix == ".parquet" or not path.exists():
        return 0 if path.exists() else None
    if (path / "_delta_log").exists():
        source = f"read_parquet({DeltaTable(str(path.resolve())).file_uris()}, union_by_name = true)"
    else:
        source = f"read_csv('{path}/**', header = false, all_varchar = true)"
    connection.execute(f"CREATE OR REPLACE VIEW answer AS SELECT * FROM {source}")
    own, sign = [row[0] for row in connection.execute("DESCRIBE answer").fetchall()], "1"
    if "_kind" in own:
        sign = "CASE _kind WHEN 0 THEN 1 WHEN -1 THEN -1 ELSE 0 END"
        own = [name for name in own if not name.startswith("_")]
    asked = connection.execute(f"DESCRIBE {question(query)}").fetchall()

    def form(name: str, kind: str) -> str:
        numeric = kind.startswith(("DOUBLE", "DECIMAL", "HUGEINT", "BIGINT", "INTEGER"))
        return f'round("{name}"::DOUBLE, 3)' if numeric else f'"{name}"::{kind}'

    columns = ", ".join(f"{form(name, kind[1])} AS c{n}" for n, (name, kind) in enumerate(zip(own, asked, strict=True)))
    theirs = ", ".join(f"{form(f'c{n}', kind[1])} AS c{n}" for n, kind in enumerate(asked))
    named = ", ".join(f"c{n}" for n in range(len(asked)))
    counted = f"SELECT {columns}, sum({sign}) AS n FROM answer GROUP BY ALL HAVING n <> 0"
    expected = f"SELECT {theirs}, count(*) AS n FROM ({question(query)}) AS q({named}) GROUP BY ALL"
    both = f"WITH a AS ({counted}), b AS ({expected}) SELECT (SELECT count(*) FROM (FROM a EXCEPT FROM b)) + (SELECT count(*) FROM (FROM b EXCEPT FROM a))"
    row = connection.execute(both).fetchone()
    return int(row[0]) if row else None


def as_csv(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write the tables for Flink."""
    folder.mkdir(exist_ok=True)
    for name, contract in TABLES.items():
        columns = [
            f"strftime({column}, '%Y-%m-%d %H:%M:%S.%g') AS {column}" if column in {"date_time", "expires"} else column
            for column in contract.model_fields
        ]
        rows = f"SELECT {', '.join(columns)}, number FROM {name} ORDER BY number"
        connection.execute(f"COPY ({rows}) TO '{folder}/{name}.csv' (FORMAT csv, HEADER false)")


SYSTEMS: dict[str, Callable[[list[str], Path, Path], Times]] = {
    "duckdb": duck,
    "embedded": partial(floodmark, "embedded"),
    "spark": partial(floodmark, "spark"),
    "raw": raw,
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", nargs="*", default=list(QUERIES))
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.system:
        for line in SYSTEMS[options.system](options.queries, options.folder / "data", options.folder / options.system):
            print("measured " + json.dumps(line), flush=True)
        return
    place = options.folder or Path(tempfile.mkdtemp(prefix="floodmark-nexmark-"))
    if not (place / "data").exists():
        generate(place / "data", options.events)
    connection = _connected(place / "data")
    sizes = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in TABLES}
    for system in options.systems:
        shutil.rmtree(place / system, ignore_errors=True)
        (place / system).mkdir(parents=True)
        child = [sys.executable, __file__, "--system", system, "--folder", str(place), "--queries", *options.queries]
        if system == "pyflink":
            as_csv(connection, place / "csv")
            script = str(Path(__file__).with_name("auctions_flink.py"))
            child = [os.environ["FLINK_PYTHON"], script, str(place / "csv"), str(place / system), *options.queries]
        with subprocess.Popen(child, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if not line.startswith("measured "):
                    continue
                mode, query, seconds, cpu = json.loads(line.removeprefix("measured "))
                events = sum(sizes[read.table] for read in operator(query).inputs)
                path = place / system / (f"{query}.parquet" if system == "duckdb" else f"{mode}/{query}")
                print(
                    f"| {query} | {system} | {mode} | {seconds:.2f} s | {cpu:.2f} s | {events / seconds:,.0f} | {events / max(cpu, 0.01):,.0f} | {_verdict(connection, query, path)} |",
                    flush=True,
                )


def _verdict(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> str:
    time.sleep(0.05)  # the link to the answer follows the line
    differences = differing(connection, query, path)
    return {None: "no answer", 0: "equal"}.get(differences, f"{differences} rows differ")


if __name__ == "__main__":
    main()
