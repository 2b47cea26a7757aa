"""Nexmark: generated events, its queries as statements of SQL, on the embedded engine and Spark, bounded and unbounded, beside raw Spark SQL, PyFlink SQL and DuckDB.

    python bench/auctions.py [--events 1000000] [--queries q0 q5] [--systems duckdb embedded spark raw pyflink] [--modes bounded] [--folder F] [--table]

Of 50 events one is a person, three are auctions and 46 bids; half of the bids go to an auction that is hot, three of four to a bidder who is. Event
time advances 10,000 events a second. The log lies in eight commits of equal size, and a stream of Spark, raw or of floodmark, and of the embedded engine takes three of them in a micro-batch. All read the log and write a Delta table,
but for DuckDB, which writes Parquet, and PyFlink, which reads the same rows as CSV; in batch it writes CSV, as a stream into a sink that drops rows. Queries run one after the other in one process per system, each in each mode once before it
is measured, over 20,000 events, so that Java has loaded and compiled it. Seconds are those from the statement to the last commit, CPU seconds those of all processes of a system meanwhile. Every answer is compared with DuckDB's, retractions
subtracted. q12 goes by the clock, and q23 has no one definition: they are not there. PyFlink runs in the environment that ``contenders.py --install`` makes. ``--folder`` keeps the events for other runs; ``--table`` prints
what is kept in ``bench/results/auctions.json`` as the page has it, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "tests" / "support")]

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
import pyarrow as pa  # noqa: E402
from deltalake import DeltaTable  # noqa: E402
from measurements import keep, read  # noqa: E402
from nexmark import QUERIES, SIDE_INPUT, TABLES  # noqa: E402

from floodmark import Contract, LookupTable, Operator, sql_operator  # noqa: E402
from floodmark.core.time import END, Interval  # noqa: E402
from floodmark.lake.folder.paths import Lake  # noqa: E402
from floodmark.semantics.encoding.columns import arrow_schema  # noqa: E402
from floodmark.spec.rows.contract import schema  # noqa: E402
from floodmark.spec.values.schema import MARKER  # noqa: E402
from floodmark.testing.lakes import append  # noqa: E402

PER_SECOND, START, COMMITS = 10_000, 1_700_000_000_000, 8
FILES, WARM, SIDE_KEYS = 3, 20_000, 100
"""Commits of a log that a stream takes at once, events with which a system gets warm, rows of q13's second table."""
_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
_WINDOW = "floor(unix_millis(date_time) / 10000)"
_HOPS = "WITH c AS (SELECT auction, window, COUNT(*) AS num FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')), m AS (SELECT window, MAX(num) AS most FROM c GROUP BY window)"
_TENS = "window(date_time, '10 seconds')"
RAW = {
    "q5": f"{_HOPS} SELECT auction, num FROM c JOIN m ON c.window = m.window AND num = most",
    "q7": f"SELECT auction, price, bidder, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {_WINDOW} ORDER BY price DESC, number) AS rn FROM bid) WHERE rn = 1",
    "q8": f"""SELECT p.id, p.name, timestamp_millis(w * 10000) AS starttime FROM (SELECT *, {_WINDOW} AS w FROM person) AS p
              LEFT SEMI JOIN (SELECT *, {_WINDOW} AS w FROM auction) AS a ON p.id = a.seller AND p.w = a.w""",
    "q11": "SELECT bidder, COUNT(*) AS bids, session_window.start AS s, session_window.end AS e FROM bid GROUP BY bidder, session_window(date_time, '2 seconds')",
    "q13": "SELECT auction, bidder, price, value FROM bid JOIN side_input ON mod(auction, 100) = key",
    "q19": """SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
              FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank_number FROM bid) WHERE rank_number <= 10""",
}
"""Windows in Spark's words, and the columns of q19, as a log has more; of the other queries Spark SQL reads the statement without EMIT CHANGES."""
RAW_STREAMS = {
    "q5": f"{_HOPS} SELECT c.auction, c.num FROM c JOIN m ON c.window = m.window AND c.num = m.most",
    "q7": f"""SELECT best.auction, best.price, best.bidder, best.date_time FROM (
              SELECT max_by(struct(auction, price, bidder, date_time), struct(price, -number)) AS best FROM bid GROUP BY {_TENS})""",
    "q8": f"""SELECT p.id, p.name, p.w.start AS starttime FROM (SELECT *, {_TENS} AS w FROM person) AS p
              LEFT SEMI JOIN (SELECT *, {_TENS} AS w FROM auction) AS a ON p.id = a.seller AND p.w = a.w""",
}
"""Other words for streams of Spark, which have no ROW_NUMBER and no times that are computed."""
APPENDING = ("q0", "q1", "q2", "q3", "q5", "q7", "q8", "q10", "q11", "q13", "q14", "q20", "q21", "q22")
"""The queries that raw Spark runs as a stream that appends; of the others its streams have no form, or none that a table of Delta takes."""
NAMES = tuple(sorted((*QUERIES, "q13"), key=lambda query: int(query[1:])))
MODES = ("bounded", "unbounded")
MEASUREMENT = ("query", "system", "mode", "events")
"""What tells rows of ``bench/results/auctions.json`` apart."""


class SideInput(Contract, key=("key",)):
    """The table beside the bids."""

    key: int
    value: str


def question(query: str) -> str:
    """DuckDB's question; of equal prices the bid that landed first."""
    if query == "q13":
        return "SELECT auction, bidder, price, value FROM bid JOIN side_input ON auction % 100 = key"
    return QUERIES[query][1].replace("ORDER BY price DESC) = 1", "ORDER BY price DESC, number) = 1")


def operator(query: str, folder: Path) -> Operator:
    """The statement as an operator over the events in a folder."""
    if query != "q13":
        return sql_operator(query, QUERIES[query][0][0], inputs=TABLES)
    side = LookupTable("side_input", contract=SideInput, path=_side(folder))
    return sql_operator(query, SIDE_INPUT, inputs={"bid": TABLES["bid"], "side_input": side})


def _logs(folder: Path) -> dict[str, str]:
    """Table -> its log."""
    lake = Lake(str(folder / "lake"))
    return {given.table: lake.input(given) for query in ("q0", "q8") for given in operator(query, folder).inputs}


def _side(folder: Path) -> Path:
    return folder.absolute() / "side_input.csv"


def generate(folder: Path, events: int) -> None:
    """Write the logs."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, logs = np.random.default_rng(7), _logs(folder)
    sides = (f"{key},value {key}\n" for key in range(SIDE_KEYS))
    _side(folder).write_text(f"key,value\n{''.join(sides)}", "utf-8")
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
    """Columns as rows of a log, with a marker of their progress, or of the end of input. The watermark is two milliseconds behind each row: it does not close a session to which a row exactly a gap later belongs."""
    times, target = rows["date_time"], arrow_schema(schema(TABLES[name]))
    stamps = {
        "_event_time": times,
        "_watermark": times - 2,
        "_progress": np.full(len(times), times[0] - 2),
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
    reached = END if last else int(times[-1] - 2)
    marker = {"_watermark": reached, "_progress": reached, "_kind": MARKER}
    nullable = pa.schema([pa.field(field.name, field.type) for field in table.schema])
    return pa.concat_tables([table.cast(nullable), pa.Table.from_pylist([marker], schema=nullable)])


# ---- systems: (queries, modes, folder of the work) -> (mode, query, seconds, CPU seconds of the process tree), or the reason why there are none

Taken = tuple[str, str, float, float] | tuple[str, str, str]
Times = Iterator[Taken]


class Watch:
    """Seconds and CPU seconds of this process and all below it since it was made."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), processors()

    def taken(self) -> tuple[float, float]:
        """(seconds, CPU seconds)."""
        return time.perf_counter() - self.began, processors() - self.cpu


def processors(of: int | None = None) -> float:
    """CPU seconds so far of a process, this one by default, and of all below it."""
    total, root = 0.0, psutil.Process(of)
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _connected(folder: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, log in _logs(folder).items():
        rows = f"SELECT *, _sequence AS number FROM read_parquet({DeltaTable(log).file_uris()}) WHERE _kind = 0"
        connection.execute(f"CREATE VIEW {name} AS {rows}")
    connection.execute(f"CREATE VIEW side_input AS SELECT * FROM read_csv('{_side(folder)}')")
    return connection


def duck(queries: Sequence[str], modes: Sequence[str], place: Path) -> Times:
    """DuckDB, which writes Parquet."""
    connection = _connected(place / "data")
    for query in queries if "bounded" in modes else ():
        watch = Watch()
        connection.execute(f"COPY ({question(query)}) TO '{place}/duckdb/{query}.parquet' (FORMAT parquet)")
        yield "bounded", query, *watch.taken()


def floodmark(engine: str, queries: Sequence[str], modes: Sequence[str], place: Path) -> Times:
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
    runs: dict[str, Callable[..., Any]] = {
        "bounded": partial(run_bounded, interval=Interval()),
        "unbounded": partial(run_unbounded, until_caught_up=True, files_per_batch=FILES),
    }
    for query, mode, events, answer in _each(queries, modes, place, engine):
        code = operator(query, events)
        lake = Lake(f"{answer}-lake", logs=str(events / "lake"))
        watch = Watch()
        try:
            runs[mode](session, code, lake)
        except Exception as error:  # noqa: BLE001 - the table says it
            yield mode, query, str(error)
            continue
        taken = watch.taken()
        answer.symlink_to(lake.output(query))
        if events.name == "data":
            yield mode, query, *taken


def _each(
    queries: Sequence[str], modes: Sequence[str], place: Path, system: str
) -> Iterator[tuple[str, str, Path, Path]]:
    """(query, mode, folder of the events, path of the answer): of each the few events first, which start an engine and let Java compile what it runs."""
    for query in queries:
        for mode in modes:
            for events in ("warm", "data"):
                (answers := place / system / mode).mkdir(exist_ok=True)
                yield query, mode, place / events, answers / (query if events == "data" else f"{query}-warm")


def raw(queries: Sequence[str], modes: Sequence[str], place: Path) -> Times:
    """Spark SQL in batch, and as a stream where it appends."""
    import systems

    spark = systems.session()
    for query, mode, events, answer in _each(queries, modes, place, "raw"):
        if mode == "unbounded" and query not in APPENDING:
            continue
        spark.read.csv(str(_side(events)), header=True, schema="key bigint, value string").createOrReplaceTempView(
            "side_input"
        )
        for name, log in _logs(events).items():
            _viewed(spark, name, log, mode)
        text = QUERIES[query][0][0].replace("EMIT CHANGES", "") if query in QUERIES else ""
        text = RAW.get(query, text) if mode == "bounded" else RAW_STREAMS.get(query, RAW.get(query, text))
        watch = Watch()
        try:
            if mode == "bounded":
                spark.sql(text).write.format("delta").save(str(answer))
            else:
                stream = spark.sql(text).writeStream.format("delta")
                stream = stream.option("checkpointLocation", f"{answer}-checkpoint").trigger(availableNow=True)
                stream.start(str(answer)).awaitTermination()
        except Exception as error:  # noqa: BLE001 - the table says it
            yield mode, query, str(error)
            continue
        if events.name == "data":
            yield mode, query, *watch.taken()


def _viewed(spark: Any, name: str, log: str, mode: str) -> None:
    """A table as a view. The marker at the end of a log closes the windows of a stream: its time is long after all others, and a filter by time drops it behind the watermark."""
    if mode == "bounded":
        rows = spark.read.format("delta").load(log).where("_kind = 0")
    else:
        rows = spark.readStream.format("delta").option("maxFilesPerTrigger", FILES).load(log)
        rows = rows.where(f"_kind = 0 OR _progress = {END}")
        late = "timestamp'2100-01-01'"
        rows = rows.withColumn("date_time", _expr(f"CASE WHEN _kind = 0 THEN date_time ELSE {late} END"))
        rows = rows.withWatermark("date_time", "0 seconds").where(f"date_time < {late}")
    rows.withColumnRenamed("_sequence", "number").createOrReplaceTempView(name)


def _expr(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


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
    connection.execute(f"COPY side_input TO '{folder}/side_input.csv' (FORMAT csv, HEADER false)")
    for name, contract in TABLES.items():
        columns = [
            f"strftime({column}, '%Y-%m-%d %H:%M:%S.%g') AS {column}" if column in {"date_time", "expires"} else column
            for column in contract.model_fields
        ]
        rows = f"SELECT {', '.join(columns)}, number FROM {name} ORDER BY number"
        connection.execute(f"COPY ({rows}) TO '{folder}/{name}.csv' (FORMAT csv, HEADER false)")


SYSTEMS: dict[str, Callable[[Sequence[str], Sequence[str], Path], Times]] = {
    "duckdb": duck,
    "embedded": partial(floodmark, "embedded"),
    "spark": partial(floodmark, "spark"),
    "raw": raw,
}
FLINK = "pyflink"


def child(system: str, queries: Sequence[str], modes: Sequence[str], place: Path) -> list[str]:
    """The command of a system, which says ``began MODE QUERY`` and ``measured [...]``.

    Raises:
        ExecutionError: PyFlink is not installed.
    """
    if system != FLINK:
        return [
            sys.executable, __file__, "--system", system, "--folder", str(place), "--queries", *queries, "--modes", *modes
        ]  # fmt: skip
    from contenders import environment

    python = environment("flink")
    if not isinstance(python, Path):
        raise SystemExit(python)
    for events in ("data", "warm"):
        if not (place / f"{events}-csv").exists():
            as_csv(_connected(place / events), place / f"{events}-csv")
    return [str(python), str(HERE / "auctions_flink.py"), str(place), ",".join(modes), *queries]


def measured(system: str, queries: Sequence[str], modes: Sequence[str], place: Path) -> Iterator[dict[str, Any]]:
    """Run a system in a process of its own: of each query and mode a row of results."""
    connection = _connected(place / "data")
    sizes = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in TABLES}
    shutil.rmtree(place / system, ignore_errors=True)
    (place / system).mkdir(parents=True)
    with subprocess.Popen(child(system, queries, modes, place), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        before = 0.0
        for line in running.stdout:
            if line.startswith("began"):
                before = processors(running.pid)
            if not line.startswith("measured "):
                continue
            mode, query, *taken = json.loads(line.removeprefix("measured "))
            row = {"query": query, "system": system, "mode": mode, "events": sum(sizes.values())}
            if isinstance(taken[0], str):
                yield row | {"left out": " ".join(taken[0].split())[:200]}
                continue
            seconds, cpu = taken[0], processors(running.pid) - before if taken[1] is None else taken[1]
            events = sum(sizes[given.table] for given in operator(query, place / "data").inputs)
            path = place / system / (f"{query}.parquet" if system == "duckdb" else f"{mode}/{query}")
            differences = differing(connection, query, path)
            yield row | {
                "seconds": round(seconds, 2),
                "cpu_seconds": round(cpu, 2),
                "events/s": round(events / seconds),
                "events per CPU s": round(events / max(cpu, 0.01)),
                "equal": None if differences is None else not differences,
                **({"rows that differ": differences} if differences else {}),
            }


COLUMNS = (
    ("DuckDB", "duckdb", "bounded"),
    ("embedded", "embedded", "bounded"),
    ("on Spark", "spark", "bounded"),
    ("raw Spark", "raw", "bounded"),
    ("PyFlink", FLINK, "bounded"),
    ("embedded, stream", "embedded", "unbounded"),
    ("on Spark, stream", "spark", "unbounded"),
    ("raw Spark, stream", "raw", "unbounded"),
    ("PyFlink, stream", FLINK, "unbounded"),
)
"""Columns of the page's table: title, system, mode."""


def table(rows: Sequence[dict[str, Any]], events: int) -> str:
    """CPU seconds of all systems, a query a line, in Markdown; a star stands at an answer that is not DuckDB's."""
    found = {(row["query"], row["system"], row["mode"]): row for row in rows if row["events"] == events}
    columns = [column for column in COLUMNS if any((query, *column[1:]) in found for query in NAMES)]
    lines = [["query", *(title for title, *_ in columns)], ["---"] * (len(columns) + 1)]
    for query in NAMES:
        cells = [_cell(found.get((query, system, mode), {})) for _, system, mode in columns]
        if any(cells):
            lines.append([query, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: dict[str, Any]) -> str:
    if "seconds" not in row:
        return ""
    return f"{row['cpu_seconds']:.2f}{'*' if row['equal'] is False else ''}"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", nargs="*", default=list(NAMES))
    parser.add_argument("--systems", nargs="*", default=[*SYSTEMS, FLINK])
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(read("auctions"), options.events))
        return
    if options.system:
        for line in SYSTEMS[options.system](options.queries, options.modes, options.folder):
            print("measured " + json.dumps(line), flush=True)
        return
    place = (options.folder or Path(tempfile.mkdtemp(prefix="floodmark-nexmark-"))).absolute()
    for name, events in (("data", options.events), ("warm", WARM)):
        if not (place / name).exists():
            generate(place / name, events)
    wrong = False
    for system in options.systems:
        for row in measured(system, options.queries, options.modes, place):
            keep("auctions", [row], by=MEASUREMENT)
            print(json.dumps(row), flush=True)
            wrong = wrong or row.get("equal") is False
    if options.folder is None:
        shutil.rmtree(place)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
