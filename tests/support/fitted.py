"""Flights whose delay depends on the wind, another way from the second month on, and a model that is fitted to a month of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import floodmark as fm
from floodmark import models
from floodmark.lake.folder.paths import Lake
from floodmark.spec.keyed.fitted import ModelVersion

START = datetime(2026, 1, 1, tzinfo=UTC)
MONTH = timedelta(days=30)
FEATURES = ("wind", "evening")


class Flight(fm.Contract):
    """A flight that has departed."""

    at: fm.EventTime
    origin: str
    wind: float | None
    evening: int
    delay: float | None


@fm.operator
def expected_delays(flights: fm.Stream[Flight], models: fm.Stream[ModelVersion]) -> fm.Stream:
    """Each flight with the delay that the newest model of its time expects."""
    scored = flights.key_by("origin").connect(models.broadcast())
    return scored.score("delay", features=FEATURES, prediction="expected", on_error="quarantine")


def flights(count: int, seed: int = 3) -> list[dict[str, Any]]:
    """Rows of three months in order of time."""
    draw, rows = random.Random(seed), []
    for n in range(count):
        at = START + 3 * MONTH * n / count
        wind, evening = draw.uniform(0, 30), int(at.hour >= 17)
        delay = (wind if at < START + MONTH else 2 * wind) + 20 * evening
        rows.append({"at": at, "origin": draw.choice("ab"), "wind": wind, "evening": evening, "delay": delay})
    return rows


def fitted(root: str, month: int = 0, **settings: Any) -> models.Version:
    """The model of a month; it predicts the months after it."""
    estimator = settings.pop("estimator", None) or make_pipeline(StandardScaler(), LinearRegression())
    interval = (START + month * MONTH, START + (month + 1) * MONTH)
    about = {"table": "logs/flights", "features": FEATURES, "target": "delay", "interval": interval}
    return models.fit(Lake(root), "delay", estimator, **(about | settings))


def of_spark(*read: str) -> Any:
    """A pipeline of Spark ML that learns delays from some columns. Needs a session."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import StandardScaler, VectorAssembler
    from pyspark.ml.regression import LinearRegression

    joined = VectorAssembler(inputCols=list(read), outputCol="joined")
    scaled = StandardScaler(inputCol="joined", outputCol="scaled", withMean=True)
    return Pipeline(stages=[joined, scaled, LinearRegression(featuresCol="scaled", labelCol="delay")])
