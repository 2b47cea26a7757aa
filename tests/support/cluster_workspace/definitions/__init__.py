"""A workspace whose lake and inboxes lie in a folder that a cluster's workers see, and whose code they do not."""

from __future__ import annotations

import json
import os

from floodmark import BoundedOutOfOrderness, Env, Files, Settings, Source, Workspace
from operators import departures


def workspace(environment: str) -> Workspace:
    """Sources and operators, with settings from the environment."""
    shared = os.environ["SHARED"]
    rows = Source(
        "departures",
        contract=departures.Departure,
        connector=Files(f"{os.environ.get('INBOX', shared)}/departures", min_age="0 s"),
        watermark=BoundedOutOfOrderness("2 hours"),
        files_per_commit=2,
    )
    weather = Source(
        "weather",
        contract=departures.Weather,
        connector=Files(f"{shared}/weather", min_age="0 s"),
        watermark=BoundedOutOfOrderness("2 hours"),
    )
    settings = Settings(
        environment=environment,
        lake=os.environ.get("LAKE", f"{shared}/lake"),
        master=os.environ.get("MASTER", "local[2]"),
        spark=(
            *json.loads(os.environ.get("SPARK_SETTINGS", "{}")).items(),
            ("spark.authenticate.secret", Env("SPARK_SECRET")),
        ),
        memory=300,
    )
    return Workspace(sources=[rows, weather], operators=list(departures.OPERATORS), settings=settings)
