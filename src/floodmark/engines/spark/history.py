"""What the commits of a table say was done: the metadata every write of floodmark's leaves. No JVM, no scan of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.time import Interval, describe
from floodmark.lifecycle.coverage import Entry

LIMIT = 1000
"""Commits looked at. What was computed before them counts as not covered, which costs time but is never wrong."""


def commits(path: str, limit: int = LIMIT) -> Iterator[dict[str, Any]]:
    """Metadata of the newest commits of landings and runs, newest first, with ``at`` and ``table_version``; nothing without a table."""
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return
    for commit in table.history(limit):
        text = commit.get("userMetadata") or ""
        found = json.loads(text) if text.startswith("{") else {}
        said = found.get("landing") or found.get("floodmark")
        if said is not None:
            yield said | {"at": describe(int(commit["timestamp"])), "table_version": commit.get("version")}


def bounded_runs(path: str) -> Iterator[Entry]:
    """Bounded runs that wrote the table, newest first."""
    for found in commits(path):
        if found.get("mode") == "bounded":
            yield Entry(
                interval=Interval(start=found["from"], end=found["to"]),
                version=found["version"],
                fingerprint=found["fingerprint"],
                late_rows=found["late_rows"],
                inputs=found["inputs"],
                at=found["at"],
            )


def progress(path: str) -> int | None:
    """How far a landing or an unbounded run has got with a table; None when none has written it."""
    return next((int(found["progress"]) for found in commits(path) if found.get("mode") != "bounded"), None)
