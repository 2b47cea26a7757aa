"""What the commits of a table say was done: the metadata every write of floodmark's leaves. No JVM, no scan of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.time import Interval, describe
from floodmark.lifecycle.coverage import Entry

LIMIT = 1000
"""Commits looked at. What was computed before them counts as not covered, which costs time but is never wrong."""
_NEWEST = 20
"""Commits that are looked at first."""


def commits(path: str, limit: int | None = LIMIT) -> Iterator[dict[str, Any]]:
    """Metadata of the newest commits of landings and runs, newest first, with ``at`` and ``table_version``; nothing without a table.

    What was taken back is not among them: a commit with ``restored`` has put that version in place of all behind it, -1 of everything.
    """
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return
    undone = None
    for commit in table.history(limit):
        if undone is not None and commit["version"] > undone:
            continue
        found = said(commit)
        if found is not None:
            undone = found.get("restored", undone)
            yield found | {"at": describe(int(commit["timestamp"])), "table_version": commit.get("version")}


def said(commit: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a commit of a landing or a run says of itself; None for those of others."""
    text = commit.get("userMetadata") or ""
    found = json.loads(text) if text.startswith("{") else {}
    mine: dict[str, Any] | None = found.get("landing") or found.get("floodmark")
    return mine


def rewritten(path: str) -> bool:
    """Whether the rows of a table cannot be read commit by commit: it was taken back or replaced, or files of old versions were removed."""
    for commit in DeltaTable(path).history():
        found = said(commit)
        if (found is not None and "restored" in found) or str(commit.get("operation")).startswith("VACUUM"):
            return True
    return False


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


def progress(path: str, version: int | None = None) -> int | None:
    """How far a landing or an unbounded run has got with a table; None when none has written it.

    Args:
        path: of the table.
        version: as of which; by default the newest.
    """
    for limit in (_NEWEST, LIMIT, None):  # it is among the newest, unless there were many bounded runs since
        for found in commits(path, limit):
            known = version is None or int(found["table_version"]) <= version
            if known and found.get("mode") != "bounded" and found.get("progress") is not None:
                return int(found["progress"])
    return None


def holds_files(path: str) -> bool:
    """Whether a table has a file of rows."""
    return bool(DeltaTable(path).file_uris())
