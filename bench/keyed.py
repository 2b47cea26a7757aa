"""State, timers and joins: a process function with two states and a timer, an interval join and deduplication, against raw PySpark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import data
import duckdb
import pandas as pd
import systems
import windows
from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from floodmark import Context, Contract, ProcessFunction, Stream, Timer, ValueState, operator

QUIET_MS = 600_000
"""After so long without an event a user's totals come out: at the end of the data, for all."""


class Totals(Contract):
    """What a user did."""

    events: int
    newest: int


class Quiet(ProcessFunction):
    """Counts a user's events, and says how many there were when they have been quiet for a while."""

    events = ValueState(int)
    newest = ValueState(int)
    quiet = Timer()

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """An event."""
        self.events.update(self.events.get(0) + 1)
        before = self.newest.get(-1)
        if ctx.timestamp > before:
            self.newest.update(ctx.timestamp)
            self.quiet.delete()
            self.quiet.set(ctx.timestamp + QUIET_MS)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Quiet for a while."""
        yield {"events": self.events.get(), "newest": self.newest.get()}
        self.events.clear()
        self.newest.clear()


@operator
def quiet(events: Stream[data.AdEvent]) -> Stream:
    """Users who have been quiet for a while."""
    return events.key_by("user").process(Quiet(), schema=Totals)


@operator
def clicked(events: Stream[data.AdEvent]) -> Stream:
    """Views of a user with the clicks within the next ten seconds."""
    views = events.filter("kind = 'view'").select("user", "at", "ad").key_by("user")
    clicks = events.filter("kind = 'click'").select("user", "at", "ad").key_by("user")
    return views.interval_join(clicks, "0 s", "10 seconds", prefix="click_")


@operator
def once(events: Stream[data.AdEvent]) -> Stream:
    """The first event of a user within a minute and more."""
    return events.select("user", "at", "ad").key_by("user").deduplicate("1 hour")


class RawQuiet(StatefulProcessor):
    """``Quiet`` as a raw program."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Its state."""
        self.handle = handle
        self.events = handle.getValueState("events", "events bigint")
        self.newest = handle.getValueState("newest", "newest bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Events of a user."""
        found = pd.concat(list(rows))
        known, before = self.events.get(), self.newest.get()
        self.events.update(((known[0] if known else 0) + len(found),))
        latest = int(found["at"].max().timestamp() * 1000)
        if before is None or latest > before[0]:
            if before is not None:
                self.handle.deleteTimer(before[0] + QUIET_MS)
            self.newest.update((latest,))
            self.handle.registerTimer(latest + QUIET_MS)
        yield pd.DataFrame()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Quiet for a while."""
        row = {"user": [key[0]], "events": [self.events.get()[0]], "newest": [self.newest.get()[0]]}
        self.events.clear()
        self.newest.clear()
        yield pd.DataFrame(row)

    def close(self) -> None:
        """Nothing."""


def raw(query: Callable[[Any], Any], behind: str = "5 seconds") -> Callable[..., dict[str, Any]]:
    """A raw stream over all events, from Delta to Delta."""

    def run(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
        spark, triggers = systems.session(), systems.Triggers()
        spark.streams.addListener(triggers)
        began = windows.time.perf_counter()
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files // micro_batches)
        writer = query(reader.load(f"{folder}/raw").withWatermark("at", behind)).writeStream.format("delta")
        writer = writer.outputMode("append").option("checkpointLocation", f"{out}-checkpoint")
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        return {"seconds": windows.time.perf_counter() - began, **triggers.steady()}

    return run


def raw_quiet(rows: Any) -> Any:
    """transformWithState with two values and a timer."""
    grouped = rows.select("user", "at").groupBy("user")
    return grouped.transformWithStateInPandas(
        RawQuiet(), "user bigint, events bigint, newest bigint", "Append", "EventTime"
    )


def raw_clicked(rows: Any) -> Any:
    """A stream-stream join."""
    views = rows.filter("kind = 'view'").select("user", "at", "ad").alias("v")
    clicks = rows.filter("kind = 'click'").select("user", F.col("at").alias("click_at"), F.col("ad").alias("click_ad"))
    near = F.expr("v.user = c.user AND click_at >= at AND click_at <= at + INTERVAL 10 SECONDS")
    return views.join(clicks.alias("c"), near).select("v.user", "at", "ad", "click_at", "click_ad")


def raw_once(rows: Any) -> Any:
    """Spark's own deduplication; it remembers a key as long as its watermark lags behind, so here that is an hour too."""
    return rows.select("user", "at", "ad").dropDuplicatesWithinWatermark(["user"])


_ANSWERS = {
    "quiet": ("user, events, newest", 'user, count(*), epoch_ms(max("at"))', "GROUP BY user", "newest < 4000000000000"),
    "clicked": ('user, epoch_ms("at"), ad, epoch_ms(click_at), click_ad', "", "", "ad >= 0"),
    "once": ("user", "DISTINCT user", "", "ad >= 0"),
}


def equal(system: str, folder: Path, out: Path) -> bool:
    """Whether an answer is DuckDB's."""
    what, spark = system.split()[1], system.startswith("spark")
    found = DeltaTable(str(out) if spark else f"{out}/outputs/{what}").to_pyarrow_table()
    if not spark:
        found = found.filter(windows.pa.compute.equal(found["_kind"], 0))
    columns, theirs, group, real = _ANSWERS[what]
    events = f"(SELECT * FROM read_parquet('{folder}/inbox/*.parquet'))"
    query = f"SELECT {theirs} FROM {events} {group}"
    if what == "clicked":
        query = f"""SELECT v.user, epoch_ms(v."at"), v.ad, epoch_ms(c."at"), c.ad FROM {events} v JOIN {events} c ON v.user = c.user
            AND v.kind = 'view' AND c.kind = 'click' AND c."at" BETWEEN v."at" AND v."at" + INTERVAL 10 SECONDS"""
    if spark and what == "quiet":
        real = f"newest < {data.START_MS + 3_000_000}"  # the sentinel's user comes out with it, and is looked at apart
        query = f"SELECT * FROM ({query}) WHERE user > 0"
        found = found.filter(windows.pa.compute.greater(found["user"], 0))
    mine = f"SELECT {columns} FROM found WHERE {real}"
    duckdb.sql("SET TimeZone = 'UTC'")
    both = f"SELECT count(*) FROM (({mine} EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL {mine}))"
    return bool(duckdb.sql(both).fetchall()[0][0] == 0)


SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    "spark quiet (transformWithState)": raw(raw_quiet),
    "floodmark quiet": windows.floodmark_windows(quiet),
    "embedded quiet": windows.embedded_windows(quiet),
    "spark clicked (stream-stream join)": raw(raw_clicked),
    "floodmark clicked": windows.floodmark_windows(clicked),
    "embedded clicked": windows.embedded_windows(clicked),
    "spark once (dropDuplicates)": raw(raw_once, behind="1 hour"),
    "floodmark once": windows.floodmark_windows(once),
    "embedded once": windows.embedded_windows(once),
}
COMPARED = (
    ("process", "spark quiet (transformWithState)", "floodmark quiet", "embedded quiet"),
    ("join", "spark clicked (stream-stream join)", "floodmark clicked", "embedded clicked"),
    ("dedup", "spark once (dropDuplicates)", "floodmark once", "embedded once"),
)


def keyed(
    results: Any,
    place: Path,
    measured: Callable[..., Any],
    in_turn: Callable[..., Any],
    rows: int,
    users: list[int],
    only: list[str],
    repeats: int,
) -> None:
    """Each of them in eight micro-batches, with so many keys; all, or those that are chosen."""
    files = 8
    for number in users:
        folder = place / f"keyed-{number}"
        measured("generate", folder, place / "none", rows=rows, campaigns=100, files=files, users=number)
        measured("floodmark landing", folder, place / "out")
        for benchmark, *several in [one for one in COMPARED if one[0] in only] or COMPARED:
            runs = in_turn(several, repeats, folder, place / "out", micro_batches=files, files=files)
            for system, told in zip(several, runs, strict=True):
                results.add(
                    benchmark, system, "unbounded", told, keys=number, micro_batches=files, rows=rows, raw=several[0]
                )
        shutil.rmtree(folder)
