"""The metrics of all streams for Prometheus, from the control store and the logs of inputs: those of a dead driver are there, too.

Source: OpenMetrics 1.0, names and units.
"""

# ruff: noqa: PLC0415 - imported by the first scrape

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from floodmark.control.health.judgement import CONDITIONS
from floodmark.control.streams.vitals import Vitals
from floodmark.core.time import END, NEVER
from floodmark.lifecycle.usage import Usage
from floodmark.observe.measure import Totals
from floodmark.observe.pressure import PRESSURES, WINDOW_SECONDS
from floodmark.spec.assets.alert import LEVELS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABELS = ("environment", "operator", "version", "lake")
"""Labels of every sample. The lake tells the streams of one operator apart, as of forks and of an experiment's arms."""

Labels = tuple[str, ...]
Samples = Callable[[Vitals], Iterable[tuple[Labels, Any]]]
"""(stream) -> values of further labels, value; one for each sample."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of metrics.

    Args:
        kind: ``counter``, ``gauge``, ``summary``, ``histogram`` or ``stateset``.
        name: without the suffix of its kind.
        about: one sentence.
        samples: of a stream.
        labels: further labels.
        unit: base unit, with which the name ends; empty for a count.
    """

    kind: str
    name: str
    about: str
    samples: Samples = field(repr=False)
    labels: tuple[str, ...] = ()
    unit: str = ""

    def metric(self, streams: Iterable[Vitals]) -> Metric:
        """The family with the samples of some streams."""
        from prometheus_client import core

        kinds: dict[str, Any] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "summary": core.SummaryMetricFamily,
            "stateset": core.StateSetMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        unit = {"unit": self.unit} if self.unit else {}
        metric = kinds[self.kind](self.name, self.about, labels=[*LABELS, *self.labels], **unit)
        for stream in streams:
            for further, value in self.samples(stream):
                labels = [*labels_of(stream), *further]
                if self.kind in {"summary", "histogram"}:
                    metric.add_metric(labels, *value)
                else:
                    metric.add_metric(labels, value)
        return metric  # type: ignore[no-any-return]


def labels_of(stream: Vitals) -> Labels:
    """The values of ``LABELS``."""
    deployment = stream.deployment
    return deployment.environment, deployment.operator, deployment.version, deployment.lake


def _single(value: Callable[[Vitals], float | None]) -> Samples:
    """One sample of a stream; none if the value is None."""

    def samples(stream: Vitals) -> Iterator[tuple[Labels, float]]:
        if (single := value(stream)) is not None:
            yield (), single

    return samples


def _total(value: Callable[[Totals], float]) -> Samples:
    return _single(lambda stream: value(stream.measured.totals))


def _each(values: Callable[[Totals], Any]) -> Samples:
    """A sample per name of a mapping among the sums."""
    return lambda stream: [((name,), value) for name, value in values(stream.measured.totals).items()]


def _watermark(stream: Vitals) -> float | None:
    return None if stream.progress in {NEVER, END} else stream.progress / 1000


def _held(stream: Vitals) -> float | None:
    made = (one.checkpoint for one in reversed(stream.measured.recent) if one.checkpoint is not None)
    return next((one.held for one in made), None)


def _usage(stream: Vitals) -> Usage:
    return Usage.parse(None if stream.driver is None else stream.driver.usage)


def _user(*kinds: str) -> Samples:
    """A sample per metric, of some kinds, of a process function."""

    def samples(stream: Vitals) -> Iterator[tuple[Labels, Any]]:
        for name, part in stream.measured.totals.metrics.items():
            for kind, value in part.items():
                if kind in kinds:
                    yield (name,), _sample(kind, value)

    return samples


def _sample(kind: str, value: Any) -> Any:
    """What is observed of a metric -> the value of its sample."""
    if kind == "gauge":
        return value[1]
    if kind != "histogram":
        return value
    bounds, counts, total = value
    cumulative = accumulate(counts)
    buckets = zip((*(str(float(bound)) for bound in bounds), "+Inf"), cumulative, strict=True)
    return list(buckets), total


def _rates(stream: Vitals) -> Iterator[tuple[Labels, float]]:
    """Meters per second, over the last minute."""
    for name, part in stream.measured.totals.metrics.items():
        if "meter" in part:
            marks = (one.metrics.get(name, {}).get("meter", 0) for one in stream.minute)
            yield (name,), sum(marks) / WINDOW_SECONDS


def _checkpoints(stream: Vitals) -> Iterator[tuple[Labels, tuple[int, float]]]:
    """Number and duration; sources have none."""
    if stream.deployment.kind == "operator":
        yield (), (stream.measured.totals.checkpoints, stream.measured.totals.checkpoint_seconds)


def _levels(stream: Vitals) -> Iterator[tuple[Labels, dict[str, bool]]]:
    if stream.pressure is not None:
        yield (), {one: one == stream.pressure for one in PRESSURES}


FAMILIES: Sequence[Family] = (
    Family("stateset", "floodmark_stream_health", "State of a stream.", lambda s: [((), {one: one == s.health.condition for one in CONDITIONS})]),
    Family("stateset", "floodmark_stream_level", "How bad that is.", lambda s: [((), {one: one == s.health.level for one in LEVELS})]),
    Family("gauge", "floodmark_stream_up", "1 if a stream has a driver that lives.", _single(lambda s: s.alive)),
    Family("gauge", "floodmark_stream_wanted", "1 if a stream should run.", _single(lambda s: s.deployment.desired == "running")),
    Family("counter", "floodmark_driver_starts", "Drivers of a stream that were started.", _total(lambda t: t.starts)),
    Family("counter", "floodmark_driver_crashes", "Drivers of a stream that crashed.", _total(lambda t: t.crashes)),
    Family("counter", "floodmark_commits", "Micro-batches, or landing commits of a source.", _total(lambda t: t.commits)),
    Family("counter", "floodmark_rows_in", "Rows read, markers included; of a source, rows that arrived.", _total(lambda t: t.rows_in)),
    Family("counter", "floodmark_rows_out", "Rows written, without retractions.", _each(lambda t: t.rows), ("table",)),
    Family("counter", "floodmark_rows_late", "Late rows that were used.", _total(lambda t: t.late)),
    Family("counter", "floodmark_rows_dropped", "Rows that came too late.", _total(lambda t: t.dropped)),
    Family("counter", "floodmark_rows_quarantined", "Rows that were set aside.", _total(lambda t: t.quarantined)),
    Family("counter", "floodmark_rows_retracted", "Rows that were retracted.", _total(lambda t: t.retractions)),
    Family("counter", "floodmark_rows_unmet", "Rows that do not meet an expectation.", _each(lambda t: t.unmet), ("expectation",)),
    Family("summary", "floodmark_commit_duration_seconds", "Durations of commits.", lambda s: [((), (s.measured.totals.commits, s.measured.totals.busy))], unit="seconds"),
    Family("counter", "floodmark_commit_phase_seconds", "Time in phases of commits.", _each(lambda t: t.phases), ("phase",), unit="seconds"),
    Family("gauge", "floodmark_last_commit_timestamp_seconds", "Time of the last commit.", _single(lambda s: None if s.measured.last is None else s.measured.last.at), unit="seconds"),
    Family("gauge", "floodmark_watermark_timestamp_seconds", "Watermark of a source, progress of a stream.", _single(_watermark), unit="seconds"),
    Family("gauge", "floodmark_watermark_lag_seconds", "Time now minus the watermark.", _single(lambda s: s.behind_now), unit="seconds"),
    Family("gauge", "floodmark_input_lag_seconds", "Watermark of the slowest input minus that of the stream.", _single(lambda s: s.behind_input), unit="seconds"),
    Family("gauge", "floodmark_backlog_commits", "Commits of inputs that are not read; of a source, files to land after its last commit.", _single(lambda s: None if s.backlog is None else s.backlog.commits)),
    Family("gauge", "floodmark_backlog_rows", "Rows in them, as far as counted; of a source, rows still to land by its last look, where its connector tells it.", _single(lambda s: s.waiting_rows)),
    Family("gauge", "floodmark_backlog_bytes", "Bytes of them, as far as counted.", _single(lambda s: None if s.backlog is None or s.deployment.kind == "source" else s.backlog.bytes), unit="bytes"),
    Family("gauge", "floodmark_busy_ratio", "Share of the last minute in commits.", _single(lambda s: s.busy), unit="ratio"),
    Family("gauge", "floodmark_backpressure_ratio", "Share of the last minute in which rows waited.", _single(lambda s: s.waited), unit="ratio"),
    Family("stateset", "floodmark_backpressure", "Level of backpressure: ok up to 10 %, low up to 50 %, else high.", _levels),
    Family("summary", "floodmark_checkpoint_duration_seconds", "Durations of checkpoints.", _checkpoints, unit="seconds"),
    Family("counter", "floodmark_checkpoint_written_bytes", "Bytes that checkpoints have written.", _single(lambda s: None if s.deployment.kind == "source" else s.measured.totals.checkpoint_bytes), unit="bytes"),
    Family("gauge", "floodmark_state_bytes", "Bytes of a stream's state.", _single(_held), unit="bytes"),
    Family("gauge", "floodmark_driver_memory_bytes", "Peak resident memory of a stream's newest driver.", _single(lambda s: _usage(s).memory), unit="bytes"),
    Family("counter", "floodmark_user_counter", "Counters and meters of process functions.", _user("counter", "meter"), ("metric",)),
    Family("gauge", "floodmark_user_gauge", "Gauges of process functions.", _user("gauge"), ("metric",)),
    Family("gauge", "floodmark_user_meter_rate", "Meters of process functions per second, over the last minute.", _rates, ("metric",)),
    Family("histogram", "floodmark_user_histogram", "Histograms of process functions.", _user("histogram"), ("metric",)),
    Family("gauge", "floodmark_driver_cpu_seconds", "Processor time of a stream's newest driver.", _single(lambda s: _usage(s).processor), unit="seconds"),
)  # fmt: skip
"""All families."""


@dataclass(frozen=True, slots=True)
class Collector:
    """What Prometheus's library asks for all metrics.

    Args:
        streams: () -> vitals of all streams.
    """

    streams: Callable[[], Sequence[Vitals]]

    def collect(self) -> Iterator[Metric]:
        """All families, each with the samples of all streams."""
        streams = self.streams()
        for family in FAMILIES:
            yield family.metric(streams)


def exposition(streams: Callable[[], Sequence[Vitals]], accept: str = "") -> tuple[bytes, str]:
    """(text of all metrics, its content type), in the form that a scraper accepts.

    Args:
        streams: () -> vitals of all streams.
        accept: the scraper's header ``Accept``.
    """
    from prometheus_client.exposition import choose_encoder

    encoder, content_type = choose_encoder(accept)
    return encoder(Collector(streams)), content_type
