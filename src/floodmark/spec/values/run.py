"""Runs: their mode, bounded or unbounded, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.core.time import NEVER, Interval, describe

Mode = Literal["bounded", "unbounded"]
LateRows = Literal["as_landed", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Args:
        operator: its name.
        version: ``name@3f9a2c1b``.
        mode: how it ran.
        interval: of event time, as requested.
        rows: output table -> rows written, without retractions.
        retractions: rows retracted.
        late: (row, window) pairs late but within the allowed lateness, which refire their window; late rows of a process function or a join.
        dropped: (row, window) pairs later than the allowed lateness.
        seconds: wall clock.
        micro_batches: of an unbounded run.
        watermark: progress the outputs reached, ms.
        skipped: intervals that were covered already, for which nothing was committed.
        reasons: why intervals were skipped or computed again, for people.
        warnings: problems that need a person, each with the remedy.
        waits_for: the verdict for which an unbounded run has left rows unread, in words; empty if it has left none.
    """

    operator: str
    version: str
    mode: Mode
    interval: Interval = field(default_factory=Interval)
    rows: Mapping[str, int] = field(default_factory=dict)
    retractions: int = 0
    late: int = 0
    dropped: int = 0
    seconds: float = 0.0
    micro_batches: int = 0
    watermark: int = NEVER
    skipped: tuple[Interval, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    waits_for: str = ""

    def as_json(self) -> dict[str, object]:
        """Plain values, for ``--json``."""
        return {
            "operator": self.operator,
            "version": self.version,
            "mode": self.mode,
            "interval": str(self.interval),
            "rows": dict(self.rows),
            "retractions": self.retractions,
            "late": self.late,
            "dropped": self.dropped,
            "seconds": round(self.seconds, 3),
            "micro_batches": self.micro_batches,
            "watermark": describe(self.watermark),
            "skipped": [str(interval) for interval in self.skipped],
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "waits_for": self.waits_for,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """What a micro-batch has made durable of a stream's state.

    Args:
        batch: number of the micro-batch.
        seconds: time it took.
        written: bytes that were written.
        held: bytes of all state after it.
    """

    batch: int
    seconds: float
    written: int
    held: int


ReadTo = tuple[int, int, str, int | None]
"""How far an input is read: version of its table, last file of the next version, id of the table, version whose files are read in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """One committed micro-batch of an unbounded run.

    Args:
        batch_id: Spark's number of the micro-batch.
        rows_in: rows read, markers included.
        rows: output table -> rows written.
        late: as in ``RunResult``.
        dropped: as in ``RunResult``.
        retractions: rows retracted.
        progress: of the outputs, ms.
        seconds: time it took to write the micro-batch.
        unmet: output table -> expectation -> rows that do not meet it, of the expectations that a run judges before it commits.
        warnings: failures beside the micro-batches, since the last one, that did not stop the stream.
        timeline: number of the stream's timeline.
        newest: greatest event time of the rows read, ms; NEVER if unknown.
        read: input name -> how far the input is read after the micro-batch.
        phases: phase of the micro-batch -> its duration, s.
        metrics: metric of a process function -> what the micro-batch has observed of it (``spec.keyed.metric.Part``).
        checkpoint: the newest checkpoint that is known: of this micro-batch or, on Spark, of the one before.
    """

    batch_id: int
    rows_in: int
    rows: Mapping[str, int]
    late: int
    dropped: int
    retractions: int
    progress: int
    seconds: float
    unmet: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    timeline: int = field(default=0, repr=False)
    newest: int = field(default=NEVER, repr=False)
    read: Mapping[str, ReadTo] = field(default_factory=dict, repr=False)
    phases: Mapping[str, float] = field(default_factory=dict, repr=False)
    metrics: Mapping[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    checkpoint: CheckpointInfo | None = field(default=None, repr=False)
