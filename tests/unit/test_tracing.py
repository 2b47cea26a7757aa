"""Spans of commits, as a collector receives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from otlp_collector import collecting

from floodmark.observe import tracing
from floodmark.observe.measure import Measure

TOTALS = "micro-batch totals", {"operator": "totals", "version": "totals@1", "environment": "dev", "lake": "/lake"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The spans that a collector has received."""
    with collecting() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        tracing._tracer.cache_clear()
        yield received
        tracing._tracer.cache_clear()


def test_a_commit_and_its_phases_are_spans_that_lie_inside_each_other(collector: list[Any]) -> None:
    send = tracing.spans(*TOTALS, pytest.fail)
    phases = {"read": 0.1, "compute": 0.3, "write": 0.1}
    send(Measure(history="t", number=7, at=1_700_000_000.0, seconds=0.5, phases=phases, rows_in=3, rows={"totals": 2}))
    provider = tracing._tracer().span_processor
    assert provider.force_flush()
    by_name = {span.name: span for span in collector}
    whole = by_name.pop(TOTALS[0])
    assert list(by_name) == list(phases)
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (
        1_699_999_999_500_000_000,
        1_700_000_000_000_000_000,
    )
    assert {span.parent_span_id for span in by_name.values()} == {whole.span_id}
    ends = [whole.start_time_unix_nano, *(span.end_time_unix_nano for span in by_name.values())]
    starts = [*(span.start_time_unix_nano for span in by_name.values()), whole.end_time_unix_nano]
    assert starts == pytest.approx(ends, abs=1000)
    told = {one.key: one.value.int_value or one.value.string_value for one in whole.attributes}
    assert (told["floodmark.operator"], told["floodmark.number"], told["floodmark.rows_out"]) == ("totals", 7, 2)


def test_without_an_endpoint_nothing_is_imported_and_nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", pytest.fail)
    measure = Measure(history="t", number=0, at=0.0)
    tracing.spans(*TOTALS, pytest.fail, {})(measure)
    disabled = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}
    tracing.spans(*TOTALS, pytest.fail, disabled)(measure)


def test_an_endpoint_without_the_package_is_said_once_and_the_stream_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def missing() -> None:
        raise ImportError(name="opentelemetry")

    monkeypatch.setattr(tracing, "_tracer", missing)
    send = tracing.spans(*TOTALS, said.append, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    send(Measure(history="t", number=0, at=0.0))
    assert said == ["no spans are sent, as opentelemetry is missing: pip install 'floodmark[otel]'"]
