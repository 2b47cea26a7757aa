"""What the commits of an output say was done: the metadata every write of floodmark's leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from floodmark.core.time import Interval
from floodmark.lifecycle.coverage import Entry

LIMIT = 1000
"""Commits looked at. What was computed before them counts as not covered, which costs time but is never wrong."""


def commits(spark: SparkSession, path: str, limit: int = LIMIT) -> Iterator[dict[str, Any]]:
    """The metadata of floodmark's commits, newest first, with ``at`` and ``table_version``; nothing for a missing table."""
    if not DeltaTable.isDeltaTable(spark, path):
        return
    rows = DeltaTable.forPath(spark, path).history(limit).select("version", "timestamp", "userMetadata").collect()
    for row in sorted(rows, key=lambda r: r["version"], reverse=True):
        text = row["userMetadata"]
        found = json.loads(text).get("floodmark") if text and text.startswith("{") else None
        if found is not None:
            yield found | {"at": row["timestamp"].strftime("%Y-%m-%d %H:%M:%SZ"), "table_version": row["version"]}


def bounded_runs(spark: SparkSession, path: str) -> Iterator[Entry]:
    """Bounded runs that wrote the table, newest first."""
    for found in commits(spark, path):
        if found["mode"] == "bounded":
            yield Entry(
                interval=Interval(start=found["from"], end=found["to"]),
                version=found["version"],
                fingerprint=found["fingerprint"],
                late_rows=found["late_rows"],
                inputs=found["inputs"],
                at=found["at"],
            )


def stream_progress(spark: SparkSession, path: str) -> int | None:
    """How far an unbounded run has got with a table; None when none has written it."""
    return next((int(found["progress"]) for found in commits(spark, path) if found["mode"] == "unbounded"), None)
