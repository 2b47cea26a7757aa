"""The Yahoo benchmark's stream, in a process of its own that a test kills: python ysb_process.py LAKE LOGS ENGINE."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source, Stream, Tumbling, count, operator
from floodmark.control.processes.engine import computing
from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Engine, Settings

CAMPAIGNS, ADS, KINDS = 100, 10, ("view", "click", "purchase")
ROUND = CAMPAIGNS * ADS * len(KINDS)
"""So many consecutive events hold every ad once with every kind: one view per ad, ten per campaign."""

START = datetime(2020, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=10)


class AdEvent(Contract):
    """An ad was shown, clicked, or something was bought."""

    at: EventTime
    ad: int
    kind: str


@operator
def views(events: Stream[AdEvent]) -> Stream:
    """Views per campaign and ten seconds."""
    seen = events.filter("kind = 'view'").with_columns(campaign=f"CAST(floor(ad / {ADS}) AS BIGINT)")
    return seen.key_by("campaign").window(Tumbling("10 seconds")).aggregate(views=count())


def generate(folder: Path, rounds: int, files: int) -> None:
    """Write a round of events per window, out of order within it, in so many files. Source: Flink's generator for the benchmark."""
    rng, parts, event = np.random.default_rng(7), [], np.arange(ROUND)
    ads, kinds = event % (CAMPAIGNS * ADS), np.array(KINDS)[event % len(KINDS)]
    for number in range(rounds):
        start = int((START + number * WINDOW).timestamp() * 1_000_000)
        at, order = start + event * (WINDOW // timedelta(microseconds=1)) // ROUND, rng.permutation(ROUND)
        times = pa.array(at[order], pa.timestamp("us", "UTC"))
        parts.append(pa.table({"at": times, "ad": ads[order], "kind": kinds[order]}))
    table = pa.concat_tables(parts)
    folder.mkdir(parents=True)
    for file in range(files):
        first, after = file * table.num_rows // files, (file + 1) * table.num_rows // files
        pq.write_table(table.slice(first, after - first), folder / f"events_{file:04d}.parquet")


def source(folder: Path) -> Source:
    """Its events; a round is ten seconds, so nothing is later than that."""
    bound = BoundedOutOfOrderness("10 seconds")
    return Source(
        "events", contract=AdEvent, connector=Files(str(folder), min_age="0 s"), watermark=bound, files_per_commit=1
    )


if __name__ == "__main__":
    engine = computing(Settings(memory=300), engine=cast("Engine", sys.argv[3]), app="ysb")
    engine.run_unbounded(views, Lake(sys.argv[1], logs=sys.argv[2]), until_caught_up=True, files_per_batch=1)
