"""What Spark says of a micro-batch after it has ended: the duration and the size of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from floodmark.spec.values.run import CheckpointInfo


def checkpointed(spark: SparkSession, query: str, batch: int) -> CheckpointInfo | None:
    """The checkpoint of the last micro-batch of a query; None if Spark has not told of this micro-batch.

    Args:
        spark: session of the query.
        query: name of the query.
        batch: number of the micro-batch.
    """
    running = next((one for one in spark.streams.active if one.name == query), None)
    last = None if running is None else running.lastProgress
    if last is None or last.batchId != batch or "commitOffsets" not in last.durationMs:
        return None
    return checkpoint_info(
        batch, last.durationMs, [dict(one.customMetrics) | _sizes(one) for one in last.stateOperators]
    )


def checkpoint_info(batch: int, durations: Mapping[str, int], states: list[dict[str, Any]]) -> CheckpointInfo:
    """A checkpoint from Spark's numbers.

    Args:
        batch: number of the micro-batch.
        durations: phase -> ms, of the micro-batch.
        states: numbers of each stateful operator.
    """
    milliseconds = sum(durations.get(phase, 0) for phase in ("walCommit", "commitOffsets"))
    milliseconds += max((one["commit_ms"] for one in states), default=0)
    written = sum(int(one.get("rocksdbBytesCopied", 0)) for one in states)
    held = sum(int(one.get("rocksdbSstFileSize", one["memory"])) for one in states)
    return CheckpointInfo(batch=batch, seconds=milliseconds / 1000, written=written, held=held)


def _sizes(state: Any) -> dict[str, int]:
    return {"commit_ms": int(state.commitTimeMs), "memory": int(state.memoryUsedBytes)}
