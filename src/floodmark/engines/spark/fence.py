"""Fences: what ends a timeline in its tables, so that a driver nobody knows of any more can do no harm: on another machine, or stopped for hours.

Delta lets a transaction pass only with a higher version than the last of its application id, and fails one that is on its way when another of that id
commits first. A fence is the highest version there is.
"""

from __future__ import annotations

import json
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction

from floodmark.engines.spark.timeline import Timeline

FENCE = 1 << 62
"""Version of the transactions that end a timeline."""
_KEY = "fence"


def transactions(timeline: Timeline, table: str) -> list[Transaction]:
    """What ends the commits of a timeline to an output, for the commit that begins the next one."""
    return [Transaction(app, FENCE) for app in (timeline.app(table), f"{timeline.app(table)}/settle")]


def end(timeline: Timeline, table: str) -> None:
    """End the commits of a timeline to an output in a commit of its own, once."""
    _commit(timeline.lake.output(table), timeline, transactions(timeline, table))


def follower(timeline: Timeline, table: str) -> Transaction:
    """What ends the commits of a timeline's follower to ``<table>__current``, for the commit that replaces that table."""
    return Transaction(timeline.app(f"current/{table}"), FENCE)


def end_follower(timeline: Timeline, table: str) -> None:
    """Let nothing that followed a timeline change ``<table>__current`` any more, once."""
    path = timeline.lake.output(f"{table}__current")
    _commit(path, timeline, [follower(timeline, table)])


def is_fence(commit: dict[str, Any]) -> bool:
    """Whether a commit of a table's history does nothing else."""
    text = commit.get("userMetadata") or ""
    return text.startswith("{") and _KEY in json.loads(text)


def _commit(path: str, timeline: Timeline, fences: list[Transaction]) -> None:
    if not DeltaTable.is_deltatable(path):
        return
    table = DeltaTable(path)
    if all(table.transaction_version(fence.app_id) == FENCE for fence in fences):
        return
    said = json.dumps({_KEY: {"operator": timeline.operator, "timeline": timeline.number}})
    properties = CommitProperties(custom_metadata={"userMetadata": said}, app_transactions=fences)
    table.create_write_transaction(
        [], "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
    )
