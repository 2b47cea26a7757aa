"""Records of commits with every field set, for tests that look at one or two of them."""

from __future__ import annotations

from typing import Any

from deltalake import CommitProperties

from floodmark.core.time import Interval
from floodmark.lake.table.commits import BoundedRun, MicroBatch, Record, Restored, encode

_OPERATOR: dict[str, Any] = {"operator": "totals", "version": "totals@1", "table": "totals"}


def micro_batch(**fields: Any) -> MicroBatch:
    """A micro-batch of the first timeline."""
    return MicroBatch(**_OPERATOR | {"timeline": 0, "batch": 0, "progress": 0} | fields)


def bounded_run(**fields: Any) -> BoundedRun:
    """A bounded run over all of time."""
    run: dict[str, Any] = {"fingerprint": "1", "interval": Interval(), "late_rows": "as_landed", "inputs": {}}
    return BoundedRun(**_OPERATOR | run | fields)


def restored(**fields: Any) -> Restored:
    """A rollback that begins the second timeline."""
    back: dict[str, Any] = {
        "mode": "rollback",
        "timeline": 1,
        "restored": 0,
        "savepoint": "s",
        "batch": 0,
        "progress": 0,
    }
    return Restored(**_OPERATOR | back | fields)


def properties(record: Record) -> CommitProperties:
    """Of a commit with that record, for a writer of delta-rs."""
    return CommitProperties(custom_metadata={"userMetadata": encode(record)})
