"""Ad events as in the Yahoo streaming benchmark: users see, click and buy; a campaign has ten ads.

Event time advances 10,000 events a second with up to four seconds of disorder, so a watermark five seconds behind loses nothing. The
same rows lie as a raw Delta table, one file per commit, and as a floodmark log.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source, Stream, Tumbling, count, operator

ADS_PER_CAMPAIGN = 10
PER_SECOND = 10_000
START_MS = 1_700_000_000_000
SENTINEL = -1
"""The campaign of the one event that raw streams need to close their last windows; no answer holds it."""


class AdEvent(Contract):
    """An ad was shown, clicked, or something was bought."""

    at: EventTime
    ad: int
    kind: str
    user: int


@operator
def views_per_campaign(events: Stream[AdEvent]) -> Stream:
    """Views per campaign and ten seconds."""
    return (
        events.filter("kind = 'view'")
        .with_columns(campaign=f"CAST(floor(ad / {ADS_PER_CAMPAIGN}) AS BIGINT)")
        .key_by("campaign")
        .window(Tumbling("10 seconds"))
        .aggregate(views=count())
    )


def source(folder: Path, files_per_commit: int = 1) -> Source:
    """The events in a folder of Parquet files."""
    return Source(
        "events",
        contract=AdEvent,
        connector=Files(str(folder), min_age="0 s"),
        watermark=BoundedOutOfOrderness("5 seconds"),
        granularity="commit",
        files_per_commit=files_per_commit,
        future_limit=None,
    )


def batch(rng: np.random.Generator, first: int, rows: int, campaigns: int, users: int = 100_000) -> pa.Table:
    """Some consecutive events."""
    order = np.arange(first, first + rows, dtype=np.int64)
    at = START_MS + order * 1000 // PER_SECOND - rng.integers(0, 4000, rows)
    return pa.table(
        {
            "at": pa.array(at * 1000, pa.timestamp("us", tz="UTC")),
            "ad": rng.integers(0, campaigns * ADS_PER_CAMPAIGN, rows),
            "kind": np.array(["view", "click", "purchase"])[rng.integers(0, 3, rows)],
            "user": rng.integers(0, users, rows),
        }
    )


def generate(folder: Path, rows: int, campaigns: int, files: int, users: int = 100_000) -> float:
    """Write ``inbox`` (Parquet files) and ``raw`` (a Delta table, a commit per file, and the sentinel); seconds for the table."""
    rng = np.random.default_rng(campaigns)
    inbox, raw = folder / "inbox", str(folder / "raw")
    inbox.mkdir(parents=True)
    each, spent = rows // files, 0.0
    for number in range(files):
        table = batch(rng, number * each, each, campaigns, users)
        pq.write_table(table, inbox / f"events_{number:04d}.parquet")
        began = time.perf_counter()
        write_deltalake(raw, table, mode="append")
        spent += time.perf_counter() - began
    last = {"at": [(START_MS + rows * 1000 // PER_SECOND + 3_600_000) * 1000], "ad": [SENTINEL * ADS_PER_CAMPAIGN]}
    end = pa.table({**last, "kind": ["view"], "user": [0]}).cast(table.schema)
    write_deltalake(raw, end, mode="append")
    return spent
