"""Windows whose rows have an order: sessions and whole contents against the nearest raw PySpark programs, and what held keys cost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import data
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import systems
import two_engines
from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from floodmark import Contract, Pane, Session, Stream, Tumbling, count, operator, sum
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back

GAP_SECONDS = 5
HELD_BATCHES, HELD_ROWS = 8, 1000


@operator
def sessions(events: Stream[data.AdEvent]) -> Stream:
    """Visits of a user: views no more than five seconds apart."""
    seen = events.filter("kind = 'view'").key_by("user").window(Session(f"{GAP_SECONDS} seconds"))
    return seen.aggregate(views=count(), ads=sum("ad"))


class Middle(Contract):
    """The median of a window."""

    middle: int
    views: int


def middle(pane: Pane, rows: list[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """The median of the users, from all rows of a window."""
    users = sorted(row["user"] for row in rows)
    yield {"middle": users[len(users) // 2], "views": len(users)}


@operator
def contents(events: Stream[data.AdEvent]) -> Stream:
    """The median user per campaign and ten seconds."""
    campaign = f"CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT)"
    seen = events.filter("kind = 'view'").select(campaign=campaign, user="user").key_by("campaign")
    return seen.window(Tumbling("10 seconds")).process(middle, Middle)


@operator
def held(events: Stream[data.AdEvent]) -> Stream:
    """Sessions that stay open, one per user."""
    return events.key_by("user").window(Session("10 hours")).aggregate(views=count(), ads=sum("ad"))


class RawMiddle(StatefulProcessor):
    """``contents`` as a raw program: a list per campaign and window, a timer at its end."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Its state."""
        self.handle = handle
        self.users = handle.getListState("users", "user bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """Keep the rows."""
        if not self.users.exists():
            self.handle.registerTimer(int(key[1].timestamp() * 1000) + 10_000)
        self.users.appendList([(user,) for frame in rows for user in frame["user"].tolist()])
        yield pd.DataFrame()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        """The window is over."""
        users = sorted(user for (user,) in self.users.get())
        self.users.clear()
        row = {
            "campaign": [key[0]],
            "window_start": [key[1]],
            "middle": [users[len(users) // 2]],
            "views": [len(users)],
        }
        yield pd.DataFrame(row)

    def close(self) -> None:
        """Nothing."""


def floodmark_windows(what: Any) -> Callable[..., dict[str, Any]]:
    """One of the operators above, unbounded."""

    def run(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
        return systems.unbounded(what, folder, out, files // micro_batches)

    return run


def embedded_windows(what: Any) -> Callable[..., dict[str, Any]]:
    """One of the operators above, unbounded, on the embedded engine."""

    def run(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
        return two_engines.caught_up(what, folder, out, files // micro_batches)

    return run


def raw(query: Callable[[Any], Any]) -> Callable[..., dict[str, Any]]:
    """A raw stream from Delta to Delta."""

    def run(folder: Path, out: Path, micro_batches: int, files: int, **_: Any) -> dict[str, Any]:
        spark, triggers = systems.session(), systems.Triggers()
        spark.streams.addListener(triggers)
        began = time.perf_counter()
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", files // micro_batches)
        rows = reader.load(f"{folder}/raw").withWatermark("at", "5 seconds")
        writer = query(rows.filter("kind = 'view'")).writeStream.format("delta").outputMode("append")
        writer = writer.option("checkpointLocation", f"{out}-checkpoint")
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        return {"seconds": time.perf_counter() - began, **triggers.steady()}

    return run


def raw_sessions(rows: Any) -> Any:
    """Spark's session_window."""
    grouped = rows.groupBy("user", F.session_window("at", f"{GAP_SECONDS} seconds").alias("w"))
    counted = grouped.agg(F.count("*").alias("views"), F.sum("ad").alias("ads"))
    return counted.select("user", F.col("w.start").alias("window_start"), "views", "ads")


def raw_contents(rows: Any) -> Any:
    """transformWithState with a list."""
    campaign = F.expr(f"CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT)").alias("campaign")
    start = F.window("at", "10 seconds")["start"].alias("window_start")
    grouped = rows.select(campaign, start, "user", "at").groupBy("campaign", "window_start")
    ddl = "campaign bigint, window_start timestamp, middle bigint, views bigint"
    return grouped.transformWithStateInPandas(RawMiddle(), ddl, "Append", "EventTime")


def generate_held(folder: Path, held_keys: int, **_: Any) -> dict[str, Any]:
    """A file that opens a session for each of so many users, then files that touch a thousand of them."""
    rng, inbox = np.random.default_rng(1), folder / "inbox"
    inbox.mkdir(parents=True)
    for number in range(HELD_BATCHES + 1):
        users = np.arange(held_keys) if number == 0 else rng.integers(0, held_keys, HELD_ROWS)
        at = pa.array(np.full(len(users), (data.START_MS + number * 1000) * 1000), pa.timestamp("us", "UTC"))
        table = pa.table({"at": at, "ad": users, "kind": ["view"] * len(users), "user": users})
        pq.write_table(table, inbox / f"events_{number:04d}.parquet")
    return systems.floodmark_landing(folder)


def equal(system: str, folder: Path, out: Path) -> bool | None:
    """Whether an answer is DuckDB's; None where nothing is answered, as held sessions stay open."""
    if "held" in system:
        return None
    spark = system.startswith("spark")
    table = str(out) if spark else f"{out}/outputs/{'sessions' if 'session' in system else 'contents'}"
    found = DeltaTable(table).to_pyarrow_table()
    if not spark:
        found = found.filter(pa.compute.equal(found["_kind"], 0))
    events = f"(SELECT * FROM read_parquet('{folder}/inbox/*.parquet') WHERE kind = 'view')"
    if "session" in system:
        columns = "user, epoch_us(window_start) AS start, views, ads"
        theirs = f"""SELECT user, min(us), count(*), sum(ad)::BIGINT FROM (
            SELECT *, sum(fresh) OVER (PARTITION BY user ORDER BY us) AS visit FROM (
            SELECT *, epoch_us("at") AS us, coalesce(epoch_us("at") - lag(epoch_us("at")) OVER (PARTITION BY user ORDER BY "at")
                > {GAP_SECONDS} * 1000000, true)::INT AS fresh FROM {events})) GROUP BY user, visit"""
    else:
        columns = "campaign, epoch_us(window_start) AS start, middle, views"
        theirs = f"""SELECT CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT), epoch_us(time_bucket(INTERVAL 10 SECONDS, "at")),
            list_sort(list(user))[count(*) // 2 + 1], count(*) FROM {events} GROUP BY ALL"""
    real = "user > 0 OR ads > 0" if "session" in system else "campaign >= 0"
    mine = f"SELECT {columns} FROM found WHERE {real}"
    duckdb.sql("SET TimeZone = 'UTC'")
    query = f"SELECT count(*) FROM (({mine} EXCEPT ALL {theirs}) UNION ALL ({theirs} EXCEPT ALL {mine}))"
    return bool(duckdb.sql(query).fetchall()[0][0] == 0)


SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    "spark session_window": raw(raw_sessions),
    "floodmark sessions": floodmark_windows(sessions),
    "spark transformWithState": raw(raw_contents),
    "floodmark whole contents": floodmark_windows(contents),
    "generate held": generate_held,
    "floodmark held keys": floodmark_windows(held),
    "embedded sessions": embedded_windows(sessions),
    "embedded whole contents": embedded_windows(contents),
    "embedded held keys": embedded_windows(held),
}


def ordered(
    results: Any, place: Path, measured: Callable[..., Any], in_turn: Callable[..., Any], rows: int, repeats: int
) -> None:
    """Sessions and whole contents, in eight micro-batches."""
    folder, files = place / "windows", 8
    measured("generate", folder, place / "none", rows=rows, campaigns=100, files=files)
    measured("floodmark landing", folder, place / "out")
    for benchmark, several in (
        ("sessions", ("spark session_window", "floodmark sessions", "embedded sessions")),
        ("contents", ("spark transformWithState", "floodmark whole contents", "embedded whole contents")),
    ):
        runs = in_turn(several, repeats, folder, place / "out", micro_batches=files, files=files)
        for system, told in zip(several, runs, strict=True):
            results.add(benchmark, system, "unbounded", told, keys=100, micro_batches=files, rows=rows, raw=several[0])
    shutil.rmtree(folder)


def held_keys(results: Any, place: Path, measured: Callable[..., dict[str, Any]], keys: list[int]) -> None:
    """A micro-batch of a thousand rows while so many keys are held."""
    steady = []
    for number in keys:
        folder, batches = place / f"held-{number}", HELD_BATCHES + 1
        measured("generate held", folder, place / "none", held_keys=number)
        told = measured("floodmark held keys", folder, place / "out", micro_batches=batches, files=batches)
        rows = number + HELD_BATCHES * HELD_ROWS
        results.add("held", "floodmark held keys", "unbounded", told, keys=number, micro_batches=batches, rows=rows)
        steady.append(told["steady_batch_seconds"])
        savepoint_cost(Lake(str(place / "out"), logs=str(folder / "lake")), number)
        shutil.rmtree(folder)
    growth = (steady[-1] - steady[0]) / (keys[-1] - keys[0]) * 1_000_000
    print(
        f"a million held keys more: {growth:+.3f} s per micro-batch of {HELD_ROWS:,} rows ({steady[0]:.3f} s with {keys[0]:,})"
    )


def savepoint_cost(lake: Lake, keys: int) -> None:
    """What a savepoint of a stream costs, how much of it is its own, and how long it takes to go back to it."""
    took, made = [], []
    for _ in range(2):
        began = time.perf_counter()
        made.append(savepoints.create(held.name, lake))
        took.append(time.perf_counter() - began)
    files = [Path(made[-1].path, name).stat() for name in made[-1].manifest.files]
    own = sum(file.st_size for file in files if file.st_nlink == 1)
    began = time.perf_counter()
    roll_back(lake, made[0])
    back = time.perf_counter() - began
    print(
        f"savepoint of {keys:,} held keys: {took[0]:.2f} s, and {took[1]:.2f} s for another of the same state; {made[-1].manifest.size / 1e6:,.1f} MB, of "
        f"which {own / 1e6:,.2f} MB are copies and the rest links; back to it in {back:.2f} s; the stream takes no notice"
    )
