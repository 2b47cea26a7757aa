"""The delay of a flight, expected by a model of its airport that learns from each flight as it becomes known."""

from __future__ import annotations

from river import linear_model, optim, preprocessing

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    ModelState,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    mean,
    operator,
)


class Flight(Contract):
    """A flight that has departed."""

    at: EventTime
    origin: str
    carrier: str
    wind: float
    delay: float | None


flights = Source(
    "flights",
    contract=Flight,
    connector=Files("inbox", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("10 minutes"),
)
MODEL = preprocessing.StandardScaler() | linear_model.LinearRegression(optimizer=optim.SGD(0.02))


@operator
def expected_delays(flights: Stream[Flight]) -> Stream:
    """Each flight with the delay that was expected of it before it was known."""
    hours = flights.with_columns(evening="CAST(hour(at) >= 17 AS int)", late_carrier="CAST(carrier = 'OO' AS int)")
    learned = hours.key_by("origin").learn(
        ModelState(MODEL, most_bytes=100_000),
        features=("wind", "evening", "late_carrier"),
        target="delay",
        prediction="expected",
        on_error="quarantine",
    )
    return learned.with_columns(error="abs(delay - expected)")


@operator(inputs={"scored": expected_delays})
def error_per_day(scored: Stream) -> Stream:
    """How wrong a day's expectations were: whether the models learn."""
    known = scored.filter("error IS NOT NULL")
    return known.key_by("origin").window(Tumbling("1 day")).aggregate(flights=count(), error=mean("error"))


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[flights], operators=[expected_delays, error_per_day], settings=Settings(engine=engine))
