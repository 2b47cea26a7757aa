"""Spans of commits and their phases for OpenTelemetry, if an endpoint is set as its standard says. Needs ``floodmark[otel]``.

A span is made from what was measured of a commit after the commit, so nothing of a stream waits for it.
"""

# ruff: noqa: PLC0415 - imported only where an endpoint is set

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from floodmark.observe.measure import Measure

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables, one of which says where spans go. Source: OpenTelemetry, OTLP Exporter Configuration."""

_TIMEOUT_SECONDS = 2
"""Time for a try to send spans: a stream that stops waits for no collector that is gone."""


def spans(
    name: str, about: Mapping[str, str], say: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> Callable[[Measure], None]:
    """A function that sends the spans of a commit in the background; it does nothing if no endpoint is set.

    Args:
        name: of the span of a commit.
        about: attribute of the stream -> value.
        say: called if an endpoint is set and OpenTelemetry is not installed.
        environment: environment variables.
    """
    if not any(environment.get(name) for name in ENDPOINTS) or environment.get("OTEL_SDK_DISABLED") == "true":
        return lambda _: None
    try:
        tracer = _tracer()
    except ImportError as error:
        say(f"no spans are sent, as {error.name} is missing: pip install 'floodmark[otel]'")
        return lambda _: None
    return lambda measure: send(tracer, name, about, measure)


def send(tracer: Tracer, name: str, about: Mapping[str, str], measure: Measure) -> None:
    """End a span of a commit, and one for each of its phases, in their order."""
    from opentelemetry import trace

    attributes: dict[str, Any] = {
        **{f"floodmark.{attribute}": value for attribute, value in about.items()},
        "floodmark.number": measure.number,
        "floodmark.rows_in": measure.rows_in,
        "floodmark.rows_out": sum(measure.rows.values()),
        "floodmark.late": measure.late,
        "floodmark.dropped": measure.dropped,
        "floodmark.quarantined": measure.quarantined,
    }
    began = measure.at - measure.seconds
    whole = tracer.start_span(name, start_time=_nanoseconds(began), attributes=attributes)
    inside = trace.set_span_in_context(whole)
    for phase, seconds in measure.phases.items():
        span = tracer.start_span(phase, inside, start_time=_nanoseconds(began))
        began += seconds
        span.end(_nanoseconds(min(began, measure.at)))
    whole.end(_nanoseconds(measure.at))


@cache
def _tracer() -> Tracer:
    """The tracer of this process, which its streams share. The service is called ``floodmark`` unless ``OTEL_SERVICE_NAME`` says otherwise."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    service = os.environ.get("OTEL_SERVICE_NAME", "floodmark")
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    timeout = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else _TIMEOUT_SECONDS
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
    return provider.get_tracer("floodmark")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
