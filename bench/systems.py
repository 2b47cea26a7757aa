"""The systems: each function runs one on the same events, in a process of its own, and says what it took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from floodmark import Outputs, Stream, Tumbling, count, operator
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.landing.run import land
from floodmark.engines.spark.session.builder import spark_session
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake

MANY = 500
"""Micro-batches with fewer rows only close windows; they are not steady ones."""


class Triggers(StreamingQueryListener):
    """Seconds of every micro-batch with rows, as Spark measures them, and CPU seconds of Java, workers and this process until its end."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[dict[str, float]] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Note it."""
        if event.progress.numInputRows >= MANY:
            self.seconds.append(event.progress.durationMs["triggerExecution"] / 1000)
            self.cpu.append(cpu_seconds())

    def steady(self) -> dict[str, Any]:
        """The median of all but the first; and the mean of their CPU seconds, by ``java``, ``workers`` and ``driver``."""
        time.sleep(0.5)  # events come a moment after the query
        if len(self.seconds) < 2:
            return {"steady_batch_seconds": None}
        spent = {name: (last - self.cpu[0][name]) / (len(self.cpu) - 1) for name, last in self.cpu[-1].items()}
        return {
            "steady_batch_seconds": statistics.median(self.seconds[1:]),
            "steady_cpu_seconds": sum(spent.values()),
            **{f"steady_cpu_{name}": seconds for name, seconds in spent.items()},
        }


def cpu_seconds() -> dict[str, float]:
    """CPU seconds so far of this process, of its Java, and of Python workers."""
    spent = dict.fromkeys(("driver", "java", "workers"), 0.0)
    root = psutil.Process()
    for process in (root, *root.children(recursive=True)):
        try:
            times, name = process.cpu_times(), Path(process.exe()).name
        except psutil.NoSuchProcess:
            continue
        part = "driver" if process == root else "java" if name == "java" else "workers"
        spent[part] += times.user + times.system + (times.children_user + times.children_system) * (part == "workers")
    return spent


def session() -> SparkSession:
    """One session, tuned the same for all."""
    return spark_session(app="bench", memory="3g")


def views(rows: DataFrame) -> DataFrame:
    """The query in Spark's words."""
    campaign = F.expr(f"CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT)").alias("campaign")
    seen = rows.filter("kind = 'view'").select(campaign, "at")
    return seen.groupBy("campaign", F.window("at", "10 seconds")).agg(F.count("*").alias("views"))


def plain(rows: DataFrame) -> DataFrame:
    return rows.select("campaign", F.col("window.start").alias("window_start"), "views")


def duckdb_batch(folder: Path, **_: Any) -> dict[str, Any]:
    began = time.perf_counter()
    duckdb.sql(
        f"""SET TimeZone = 'UTC'; COPY (
        SELECT CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT) AS campaign, time_bucket(INTERVAL 10 SECONDS, "at") AS window_start,
        count(*) AS views FROM read_parquet('{folder}/inbox/*.parquet') WHERE kind = 'view' GROUP BY ALL)
        TO '{folder}/answer.parquet' (FORMAT parquet)"""
    )
    return {"seconds": time.perf_counter() - began}


def spark_batch(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    spark = session()
    spark.range(10).write.format("noop").mode("overwrite").save()
    began = time.perf_counter()
    plain(views(spark.read.format("delta").load(f"{folder}/raw"))).write.format("delta").save(str(out))
    return {"seconds": time.perf_counter() - began}


def spark_streaming(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
    spark, triggers = session(), Triggers()
    spark.streams.addListener(triggers)
    began = time.perf_counter()
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", files // micro_batches).load(f"{folder}/raw")
    counted = plain(views(rows.withWatermark("at", "5 seconds")))
    writer = counted.writeStream.format("delta").outputMode("append").option("checkpointLocation", f"{out}-checkpoint")
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()
    return {"seconds": time.perf_counter() - began, **triggers.steady()}


def spark_outputs(number: int) -> Callable[..., dict[str, Any]]:
    """The same answer in several tables, as Delta's documentation writes them: kept, then appended with a transaction id each."""

    def run(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
        spark, triggers = session(), Triggers()
        spark.streams.addListener(triggers)

        def write(batch: DataFrame, batch_id: int) -> None:
            batch.persist()
            parts = {"all": batch}
            parts |= {f"part_{n}": batch.filter(f"campaign % {number} = {n}") for n in range(1, number)}
            for name, rows in parts.items():
                writer = rows.write.format("delta").mode("append").option("txnAppId", f"bench-{name}")
                writer.option("txnVersion", batch_id).save(f"{out}/{name}")
            batch.unpersist()

        began = time.perf_counter()
        rows = spark.readStream.format("delta").option("maxFilesPerTrigger", files // micro_batches)
        counted = plain(views(rows.load(f"{folder}/raw").withWatermark("at", "5 seconds")))
        writer = counted.writeStream.foreachBatch(write).option("checkpointLocation", f"{out}-checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        return {"seconds": time.perf_counter() - began, **triggers.steady()}

    return run


def floodmark_landing(folder: Path, **_: Any) -> dict[str, Any]:
    spark = session()
    spark.range(10).write.format("noop").mode("overwrite").save()
    began = time.perf_counter()
    land(spark, data.source(folder / "inbox"), Lake(str(folder / "lake")), end=True)
    return {"seconds": time.perf_counter() - began}


def spark_append(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    """The same files, each appended by a raw Delta write."""
    spark = session()
    spark.range(10).write.format("noop").mode("overwrite").save()
    began = time.perf_counter()
    for file in sorted((folder / "inbox").iterdir()):
        spark.read.parquet(str(file)).coalesce(1).write.format("delta").mode("append").save(str(out))
    return {"seconds": time.perf_counter() - began}


def floodmark_bounded(folder: Path, out: Path, **_: Any) -> dict[str, Any]:
    spark = session()
    spark.range(10).write.format("noop").mode("overwrite").save()
    began = time.perf_counter()
    run_bounded(spark, data.views_per_campaign, Lake(str(out), logs=str(folder / "lake")))
    return {"seconds": time.perf_counter() - began}


def floodmark_unbounded(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
    return unbounded(data.views_per_campaign, folder, out, files // micro_batches)


def floodmark_two_outputs(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
    return unbounded(several(2), folder, out, files // micro_batches)


def floodmark_three_outputs(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
    return unbounded(several(3), folder, out, files // micro_batches)


def unbounded(what: Any, folder: Path, out: Path, files: int) -> dict[str, Any]:
    spark, triggers = session(), Triggers()
    spark.streams.addListener(triggers)
    lake = Lake(str(out), logs=str(folder / "lake"))
    began = time.perf_counter()
    run_unbounded(spark, what, lake, until_caught_up=True, files_per_batch=files)
    return {"seconds": time.perf_counter() - began, **triggers.steady()}


def several(outputs: int) -> Any:
    """The same with its result in several tables."""

    def body(events: Stream[data.AdEvent]) -> Outputs:
        counted = (
            events.filter("kind = 'view'")
            .with_columns(campaign=f"CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT)")
            .key_by("campaign")
            .window(Tumbling("10 seconds"))
            .aggregate(views=count())
        )
        parts = {f"part_{n}": counted.filter(f"campaign % {outputs} = {n}") for n in range(1, outputs)}
        return Outputs(all=counted, **parts)

    return operator(name=f"views_in_{outputs}")(body)


SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    "duckdb": duckdb_batch,
    "spark batch": spark_batch,
    "spark streaming": spark_streaming,
    "spark streaming, 2 outputs": spark_outputs(2),
    "spark streaming, 3 outputs": spark_outputs(3),
    "spark append": spark_append,
    "floodmark landing": floodmark_landing,
    "floodmark bounded": floodmark_bounded,
    "floodmark unbounded": floodmark_unbounded,
    "floodmark unbounded, 2 outputs": floodmark_two_outputs,
    "floodmark unbounded, 3 outputs": floodmark_three_outputs,
}


def equal(system: str, folder: Path, out: Path) -> bool | None:
    """Whether a system's answer is DuckDB's; None where it has none."""
    tables = {
        "floodmark bounded": "outputs/views_per_campaign",
        "floodmark unbounded": "outputs/views_per_campaign",
        "floodmark unbounded, 2 outputs": "outputs/views_in_2__all",
        "floodmark unbounded, 3 outputs": "outputs/views_in_3__all",
        "spark batch": "",
        "spark streaming": "",
        "spark streaming, 2 outputs": "all",
        "spark streaming, 3 outputs": "all",
    }
    if system not in tables:
        return None
    found = DeltaTable(str(out / tables[system])).to_pyarrow_table()
    if "_kind" in found.column_names:
        found = found.filter(pa.compute.equal(found["_kind"], 0))
    mine = found.select(["campaign", "window_start", "views"])  # noqa: F841 - DuckDB reads it by name
    theirs = pq.read_table(folder / "answer.parquet")  # noqa: F841 - the same
    query = """SELECT count(*) FROM (
        (SELECT campaign, epoch_us(window_start), views FROM mine WHERE campaign >= 0
            EXCEPT ALL SELECT campaign, epoch_us(window_start), views FROM theirs)
        UNION ALL
        (SELECT campaign, epoch_us(window_start), views FROM theirs
            EXCEPT ALL SELECT campaign, epoch_us(window_start), views FROM mine WHERE campaign >= 0))"""
    return duckdb.sql(query).fetchall()[0][0] == 0
