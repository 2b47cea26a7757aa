"""The same query in other systems: views per campaign and ten seconds, of the same files, each in an environment of its own with the versions named here.

    python bench/contenders.py [--rows 1000000] [--campaigns 100,100000] [--only polars,bytewax] [--repeats 1] [--install]

The query is that of the Yahoo streaming benchmark: filter the views, map ad to campaign, count per campaign and ten seconds. Batch systems read the
files at once; streams read them in order with a watermark five seconds behind. Whole processes are measured, imports and the start of Java with them: seconds,
processor seconds and peak memory of the process tree. Every answer is compared with DuckDB's. DuckDB, polars and Bytewax read Parquet, PyFlink and
Pathway the same rows as CSV, as neither reads Parquet without more; Quix Streams reads topics of Kafka alone, and is not there. ``--install`` makes the
environments under ``~/.cache/floodmark/contenders``, by pip, and measures nothing. A system that is not installed, or that fails, is named with the reason, and the others are measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = Path.home() / ".cache" / "floodmark" / "contenders"
ADS, WINDOW_MS = 10, 10_000
NEEDS = {
    "polars": ("polars==2.1.0",),
    "bytewax": ("bytewax==0.21.1", "pyarrow==26.0.1"),
    "pathway": ("pathway==0.33.0",),
    "flink": ("apache-flink==2.3.0", "setuptools<81"),
}
"""Environment -> what is installed there."""


# ---- the query, in each system: (folder with the files, file of the answer)


def duckdb_batch(folder: Path, answer: Path) -> str:
    import duckdb

    duckdb.sql(
        f"""SET TimeZone = 'UTC'; COPY (SELECT CAST(floor(ad / {ADS}) AS BIGINT) AS campaign,
        epoch_ms(time_bucket(INTERVAL 10 SECONDS, "at")) AS window_start, count(*) AS views
        FROM read_parquet('{folder}/inbox/*.parquet') WHERE kind = 'view' GROUP BY ALL) TO '{answer}' (FORMAT parquet)"""
    )
    return duckdb.__version__


def polars_batch(folder: Path, answer: Path) -> str:
    import polars as pl

    rows = pl.scan_parquet(f"{folder}/inbox/*.parquet").filter(pl.col("kind") == "view")
    rows = rows.group_by((pl.col("ad") // ADS).alias("campaign"), pl.col("at").dt.truncate("10s").alias("window_start"))
    counted = rows.agg(pl.len().cast(pl.Int64).alias("views"))
    counted.with_columns(pl.col("window_start").dt.epoch("ms")).collect(engine="streaming").write_parquet(answer)
    return pl.__version__


def _rows(folder: Path) -> Iterator[tuple[int, str, int]]:
    """(event time, ms, kind, ad) of the files, in order."""
    import pyarrow.parquet as pq

    for file in sorted((folder / "inbox").iterdir()):
        table = pq.read_table(file, columns=["at", "kind", "ad"])
        columns = (table[name].to_pylist() for name in ("kind", "ad"))
        yield from zip((us // 1000 for us in table["at"].cast("int64").to_pylist()), *columns, strict=True)


def bytewax_stream(folder: Path, answer: Path) -> str:
    from datetime import UTC, datetime, timedelta
    from importlib.metadata import version

    import bytewax.operators as op
    import bytewax.operators.windowing as win
    import pyarrow as pa
    import pyarrow.parquet as pq
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.testing import TestingSink, run_main

    class Partition(StatefulSourcePartition):
        def __init__(self) -> None:
            self.rows = _rows(folder)

        def next_batch(self) -> list[tuple[int, str, int]]:
            from itertools import islice

            batch = list(islice(self.rows, 10_000))
            if not batch:
                raise StopIteration
            return batch

        def snapshot(self) -> None:
            return None

    class Files(FixedPartitionedSource):
        def list_parts(self) -> list[str]:
            return ["files"]

        def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Partition:  # noqa: ARG002
            return Partition()

    flow, out = Dataflow("views"), list[Any]()
    views = op.filter("views", op.input("files", flow, Files()), lambda row: row[1] == "view")
    keyed = op.map("campaign", views, lambda row: (str(row[2] // ADS), row[0]))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    clock = win.EventClock(lambda ms: epoch + timedelta(milliseconds=ms), wait_for_system_duration=timedelta(seconds=5))
    windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=epoch)
    counted = win.fold_window("count", keyed, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b)
    op.output("out", counted.down, TestingSink(out))
    run_main(flow)
    columns = {
        "campaign": pa.array([int(key) for key, _ in out], pa.int64()),
        "window_start": pa.array([number * WINDOW_MS for _, (number, _) in out], pa.int64()),
        "views": pa.array([n for _, (_, n) in out], pa.int64()),
    }
    pq.write_table(pa.table(columns), answer)
    return version("bytewax")


def pathway_batch(folder: Path, answer: Path) -> str:
    import pathway as pw

    class Event(pw.Schema):
        at: int
        ad: int
        kind: str

    rows = pw.io.csv.read(str(folder / "csv"), schema=Event, mode="static")
    views = rows.filter(pw.this.kind == "view").select(
        campaign=pw.this.ad // ADS, window_start=pw.this.at // WINDOW_MS * WINDOW_MS
    )
    counted = views.groupby(pw.this.campaign, pw.this.window_start).reduce(
        pw.this.campaign, pw.this.window_start, views=pw.reducers.count()
    )
    text = answer.with_suffix(".csv")
    pw.io.csv.write(counted, str(text))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return pw.__version__


def flink(mode: str) -> Callable[[Path, Path], str]:
    def run(folder: Path, answer: Path) -> str:
        from importlib.metadata import version

        from pyflink.table import EnvironmentSettings, TableEnvironment

        settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
        tables = TableEnvironment.create(settings)
        tables.get_config().set("parallelism.default", "2")
        tables.get_config().set("table.local-time-zone", "UTC")
        text = answer.with_suffix(".parts")
        tables.execute_sql(
            f"CREATE TABLE events (at_ms BIGINT, ad BIGINT, kind STRING, ts AS TO_TIMESTAMP_LTZ(at_ms, 3), "
            f"WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}/plain', 'format' = 'csv')"
        )
        tables.execute_sql(
            f"CREATE TABLE answer (campaign BIGINT, window_start BIGINT, n BIGINT) WITH ('connector' = 'filesystem', "
            f"'path' = 'file://{text}', 'format' = 'csv')"
        )
        tables.execute_sql(
            "INSERT INTO answer SELECT campaign, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, n FROM ("
            f"SELECT ad / {ADS} AS campaign, window_start, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT * FROM events WHERE kind = 'view'), "
            f"DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY ad / {ADS}, window_start, window_end)"
        ).wait()
        return version("apache-flink")

    return run


PROGRAMS: dict[str, tuple[str, Callable[[Path, Path], str]]] = {
    "duckdb batch": ("", duckdb_batch),
    "polars batch": ("polars", polars_batch),
    "bytewax stream": ("bytewax", bytewax_stream),
    "pathway batch": ("pathway", pathway_batch),
    "pyflink sql batch": ("flink", flink("batch")),
    "pyflink sql stream": ("flink", flink("streaming")),
}
"""System -> its environment, empty for that of this program, and the query."""
OWN = (
    "spark batch",
    "spark streaming",
    "embedded, bounded",
    "embedded, unbounded",
    "spark, bounded",
    "spark, unbounded",
)
"""Systems of ``run.py``, which run in the environment of this program."""


# ---- the measurement


def folder_of(name: str) -> Path:
    """Where an environment lies."""
    return ENVIRONMENTS / f"{name}-{abs(hash_of(NEEDS[name])):x}"


def environment(name: str) -> Path | str:
    """The Python of an environment, empty for that of this program; or why there is none."""
    if not name:
        return Path(sys.executable)
    folder = folder_of(name)
    if (folder / ".installed").exists():
        return folder / "bin" / "python"
    return f"{name} is not installed: python bench/contenders.py --install says why, or installs it"


def install(name: str) -> Path | str:
    """Make an environment that is not there: its Python, or why it could not be made."""
    folder, python = folder_of(name), environment(name)
    if isinstance(python, Path):
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no environment could be made in {folder}: {error}"
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *NEEDS[name]]
    made = subprocess.run(pip, capture_output=True, text=True, check=False)
    if made.returncode:
        return (made.stderr.strip().splitlines() or ["pip failed"])[-1]
    (folder / ".installed").touch()
    return environment(name)


def hash_of(words: tuple[str, ...]) -> int:
    """The same in every process."""
    import zlib

    return zlib.crc32(" ".join(words).encode())


def texts(folder: Path) -> None:
    """The rows as CSV: a file each with a line of names (``csv``), and one without (``plain``), as PyFlink reads several in no order, which makes rows late."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    for name in ("csv", "plain"):
        (folder / name).mkdir()
    for file in sorted((folder / "inbox").iterdir()):
        rows = pq.read_table(file)
        at = pa.compute.divide(rows["at"].cast("int64"), 1000)
        table = pa.table({"at": at, "ad": rows["ad"], "kind": rows["kind"]})
        options = pa.csv.WriteOptions(include_header=True, quoting_style="none")
        pa.csv.write_csv(table, folder / "csv" / file.name.replace(".parquet", ".csv"), options)
        with (folder / "plain" / "all.csv").open("ab") as plain:
            pa.csv.write_csv(table, plain, pa.csv.WriteOptions(include_header=False, quoting_style="none"))


def answer_of(answer: Path) -> Any:
    """The rows of an answer, as DuckDB reads them."""
    import duckdb

    text, parts = answer.with_suffix(".csv"), answer.with_suffix(".parts")
    if text.exists():
        changes = f"SELECT campaign, window_start, sum(views * diff)::BIGINT AS views FROM read_csv('{text}')"
        return duckdb.sql(f"{changes} GROUP BY ALL HAVING sum(diff) > 0")
    if parts.exists():
        names = "{'campaign': 'BIGINT', 'window_start': 'BIGINT', 'views': 'BIGINT'}"
        return duckdb.sql(f"SELECT * FROM read_csv('{parts}/**', columns = {names}, header = false)")
    return duckdb.sql(f"SELECT campaign, window_start, views FROM '{answer}'")


def is_equal(folder: Path, answer: Path) -> bool:
    """Whether an answer is DuckDB's."""
    import duckdb

    mine = answer_of(answer)
    theirs = duckdb.sql(
        f"SELECT campaign, epoch_ms(window_start) AS window_start, views FROM '{folder}/answer.parquet'"
    )
    return not mine.except_(theirs).fetchall() and not theirs.except_(mine).fetchall() and len(mine) == len(theirs)


def run_contender(system: str, folder: Path, answer: Path) -> dict[str, Any]:
    """One run in the environment of a system."""
    from measurements import process

    name, _ = PROGRAMS[system]
    python = environment(name)
    if isinstance(python, str):
        return {"left out": python}
    told = process([str(python), __file__, "--child", system, str(folder), str(answer)])
    return told if "left out" in told else {**told, "answer_equal": is_equal(folder, answer)}


def own_version(system: str) -> str:
    """Of a system that runs here."""
    from importlib.metadata import version

    if system == "duckdb":
        return version("duckdb")
    if system == "polars":
        return NEEDS["polars"][0].partition("==")[2]
    spark = f"Spark {version('pyspark')}"
    if system.startswith("embedded"):
        return f"floodmark {version('floodmark')}, Sail {version('pysail')}"
    return spark if "," not in system else f"floodmark {version('floodmark')}, {spark}"


def main() -> None:
    sys.path.insert(0, str(HERE))
    from tempfile import TemporaryDirectory

    from measurements import keep
    from run import SystemFailedError, measured

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--campaigns", type=lambda text: [int(word) for word in text.split(",")], default=[100, 100_000]
    )
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*OWN, *PROGRAMS])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--install", action="store_true", help="make the environments, and measure nothing")
    if parser.parse_args().install:
        for name in NEEDS:
            print(f"{name}: {install(name)}", flush=True)
        return
    asked, files, failed = parser.parse_args(), 8, False
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        for keys in asked.campaigns:
            folder = Path(place, f"events-{keys}")
            measured("generate", folder, Path(place, "none"), rows=asked.rows, campaigns=keys, files=files)
            texts(folder)
            measured("duckdb", folder, Path(place, "out"))
            chosen = [system for system in (*OWN, *PROGRAMS) if any(word in system for word in asked.only)]
            no_log = not_landed(folder, Path(place, "out")) if set(chosen) & set(OWN) else ""
            for system in chosen:
                row: dict[str, Any] = {"system": system, "keys": keys, "rows": asked.rows}
                try:
                    runs = [
                        run_once(system, folder, Path(place), keys, number, files, no_log)
                        for number in range(asked.repeats)
                    ]
                except SystemFailedError as error:
                    runs, failed = [{"left out": f"{error}".strip().splitlines()[-1][:300]}], True
                if left_out := next((run["left out"] for run in runs if "left out" in run), None):
                    row["left out"] = left_out
                else:
                    row |= {"version": runs[0]["version"], "equal": all(run["answer_equal"] for run in runs)}
                    for name in ("seconds", "cpu_seconds", "peak_memory_mb"):
                        row[name] = round(statistics.median(run[name] for run in runs), 2)
                    failed = failed or not row["equal"]
                keep("contenders", [row], by=("system", "keys"))
                print(json.dumps(row), flush=True)
    sys.exit(failed)


def not_landed(folder: Path, out: Path) -> str:
    """Land the events for the systems that read a log: why that failed, or nothing."""
    from run import SystemFailedError, measured

    try:
        measured("floodmark landing", folder, out)
    except SystemFailedError as error:
        return f"{error}"
    return ""


def run_once(system: str, folder: Path, place: Path, keys: int, number: int, files: int, no_log: str) -> dict[str, Any]:
    """One run of a system, in the environment that it has; ``no_log`` says why there is no log for those that read one."""
    from run import SystemFailedError, measured

    if system in PROGRAMS:
        return run_contender(system, folder, place / f"{system.replace(' ', '-')}-{keys}-{number}.parquet")
    if no_log:
        raise SystemFailedError(no_log)
    began = time.perf_counter()
    own = measured(system, folder, place / "out", micro_batches=files, files=files)
    return own | {"seconds": time.perf_counter() - began, "version": own_version(system)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _, _, system, folder, answer = sys.argv
        print(json.dumps({"version": PROGRAMS[system][1](Path(folder), Path(answer))}))
    else:
        main()
