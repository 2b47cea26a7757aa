"""What is measured of a stream: one record for each commit, and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from floodmark.core.time import NEVER
from floodmark.lifecycle.usage import Usage
from floodmark.spec.keyed.metric import Part, merge
from floodmark.spec.values.run import BatchInfo, CheckpointInfo, ReadTo


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is measured of one commit: of a micro-batch, or of a landing.

    Args:
        history: id of the sequence of commits in which the commit's number is unique: of the table and the timeline.
        number: of the micro-batch or landing commit.
        at: its end, s since 1970.
        seconds: its duration; 0 if unknown, as the driver died before it reported.
        phases: phase -> its duration, s.
        rows_in: rows read, markers included; of a landing, rows landed and quarantined.
        rows: output table -> rows written, without retractions.
        late: late rows that were used.
        dropped: rows that came too late.
        quarantined: rows that were set aside.
        retractions: rows retracted.
        progress: progress of the outputs, or watermark of the log, ms.
        newest: greatest event time of the rows read, ms; NEVER if unknown.
        read: path of an input table -> how far the table is read.
        waiting: commits of inputs that were not read at the end; of a landing, files that were still to land.
        behind: of a landing, rows that were still to land by its last look; None if its connector does not tell it.
        checkpoint: the newest checkpoint that is known.
        unmet: output table -> expectation -> rows that do not meet it.
        metrics: metric of a process function -> what was observed of it.
    """

    history: str
    number: int
    at: float
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    rows_in: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    dropped: int = 0
    quarantined: int = 0
    retractions: int = 0
    progress: int = NEVER
    newest: int = NEVER
    read: Mapping[str, ReadTo] = field(default_factory=dict)
    waiting: int = 0
    behind: int | None = None
    checkpoint: CheckpointInfo | None = None
    unmet: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    metrics: Mapping[str, Part] = field(default_factory=dict)

    @staticmethod
    def of(batch: BatchInfo, *, history: str, at: float, quarantines: Iterable[str]) -> Measure:
        """The measure of a micro-batch, without what only its driver knows.

        Args:
            batch: the micro-batch.
            history: as ``Measure.history``.
            at: its end, s since 1970.
            quarantines: output tables with rows that were set aside.
        """
        return Measure(
            history=history,
            number=batch.batch_id,
            at=at,
            seconds=batch.seconds,
            phases=batch.phases,
            rows_in=batch.rows_in,
            rows=batch.rows,
            late=batch.late,
            dropped=batch.dropped,
            quarantined=sum(batch.rows.get(table, 0) for table in quarantines),
            retractions=batch.retractions,
            progress=batch.progress,
            newest=batch.newest,
            checkpoint=batch.checkpoint,
            unmet=batch.unmet,
            metrics=batch.metrics,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @staticmethod
    def parse(value: Mapping[str, Any]) -> Measure:
        """The inverse of ``as_json``; keys of later versions are ignored."""
        return _MEASURE.validate_python(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit of a job, or one delivery.

    Args:
        number: of the micro-batch or landing commit.
        progress: of the outputs, or watermark of the log, after the commit, ms UTC.
        usage: what the commit adds to the usage of the driver.
        text: the line of the driver's log.
        measure: what is measured of the commit.
    """

    number: int
    progress: int
    usage: Usage
    text: str
    measure: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all commits of a stream that were ever counted, and over its drivers. None ever falls.

    Args:
        commits: micro-batches or landing commits.
        rows_in: as in ``Measure``.
        rows: output table -> rows.
        late: as in ``Measure``.
        dropped: as in ``Measure``.
        quarantined: as in ``Measure``.
        retractions: as in ``Measure``.
        busy: time in commits, s.
        phases: phase -> s.
        checkpoints: checkpoints whose duration is known.
        checkpoint_seconds: time that checkpoints took.
        checkpoint_bytes: bytes that checkpoints have written.
        unmet: expectation -> rows that do not meet it.
        metrics: metric of a process function -> what was observed of it.
        starts: drivers that were started.
        crashes: drivers that crashed before the newest one was started.
    """

    commits: int = 0
    rows_in: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    dropped: int = 0
    quarantined: int = 0
    retractions: int = 0
    busy: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Part] = field(default_factory=dict)
    starts: int = 0
    crashes: int = 0

    def plus(self, measure: Measure) -> Totals:
        """The sums with one more commit."""
        made = measure.checkpoint
        unmet = Counter(self.unmet)
        for names in measure.unmet.values():
            unmet.update(names)
        return replace(
            self,
            commits=self.commits + 1,
            rows_in=self.rows_in + measure.rows_in,
            rows=_summed(self.rows, measure.rows),
            late=self.late + measure.late,
            dropped=self.dropped + measure.dropped,
            quarantined=self.quarantined + measure.quarantined,
            retractions=self.retractions + measure.retractions,
            busy=self.busy + measure.seconds,
            phases=_summed(self.phases, measure.phases),
            checkpoints=self.checkpoints + (made is not None),
            checkpoint_seconds=self.checkpoint_seconds + (made.seconds if made else 0.0),
            checkpoint_bytes=self.checkpoint_bytes + (made.written if made else 0),
            unmet=dict(unmet),
            metrics=merge((self.metrics, measure.metrics)),
        )

    def started(self, crashes: int) -> Totals:
        """The sums with one more driver, before which ``crashes`` further drivers have crashed."""
        return replace(self, starts=self.starts + 1, crashes=self.crashes + crashes)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @staticmethod
    def parse(value: Mapping[str, Any] | None) -> Totals:
        """The inverse of ``as_json``; all zero without a value; keys of later versions are ignored."""
        return _TOTALS.validate_python(value or {})


def _summed(sums: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sums.get(name, 0) + values.get(name, 0) for name in {**sums, **values}}


_MEASURE, _TOTALS = TypeAdapter(Measure), TypeAdapter(Totals)
