"""The alerts of ``operators/sensors.py`` on Spark: readings that jump, cards that travel too fast, steps that are missing; against plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from floodmark.core.time import from_ms
from floodmark.spec.graph.operator import Operator
from floodmark.testing.log import Log
from floodmark.testing.runs import final
from floodmark.testing.spark import SparkCase
from operators.sensors import card_fraud, missing_steps, temperature_jumps

Row = dict[str, Any]
Example = tuple[Operator, list[Row], Counter[tuple[Any, ...]]]
MINUTE = 60_000
CITIES = {"Berlin": (52.52, 13.40), "Potsdam": (52.39, 13.06), "New York": (40.71, -74.01), "Sydney": (-33.87, 151.21)}


def jumps() -> Example:
    """Twenty degrees within a minute."""
    rng = random.Random(1)
    rows = [
        {"at": from_ms(7_000 * n), "sensor": rng.choice("ab"), "celsius": rng.choice([10.0, 20.0, 30.0, 30.5, 45.0])}
        for n in range(80)
    ]
    wanted = Counter[tuple[Any, ...]]()
    for place, row in enumerate(rows):
        near = [
            one["celsius"]
            for one in rows[:place]
            if one["sensor"] == row["sensor"] and (row["at"] - one["at"]).total_seconds() <= 60
        ]
        if any(abs(row["celsius"] - one) > 20 for one in near):
            wanted[row["sensor"], f"to {row['celsius']:.1f} degrees"] += 1
    return temperature_jumps, rows, wanted


def frauds() -> Example:
    """Faster than anybody flies: along the arc between two points of a sphere, by the angle between them."""

    def place(row: Row) -> tuple[float, float, float]:
        latitude, longitude = math.radians(row["latitude"]), math.radians(row["longitude"])
        return (
            math.cos(latitude) * math.cos(longitude),
            math.cos(latitude) * math.sin(longitude),
            math.sin(latitude),
        )

    rng, rows, mine = random.Random(2), list[Row](), defaultdict[str, list[Row]](list)
    for n in range(60):
        latitude, longitude = CITIES[rng.choice(list(CITIES))]
        row = {"latitude": latitude, "longitude": longitude, "cents": n, "card": rng.choice("123")}
        rows.append({"at": from_ms(45 * MINUTE * n), **row})
        mine[row["card"]].append(rows[-1])
    wanted = Counter[tuple[Any, ...]]()
    for card, some in mine.items():
        for before, after in pairwise(some):
            hours = (after["at"] - before["at"]).total_seconds() / 3600
            cosine = sum(a * b for a, b in zip(place(before), place(after), strict=True))
            angle = math.acos(min(1.0, cosine))
            if angle * 6_371 > max(900 * hours, 1):
                wanted[card, f"{round(angle * 6_371)} km in {round(hours * 60)} minutes"] += 1
    return card_fraud, rows, wanted


def missing() -> Example:
    """A day after the step before it, once a row of any order tells that the day is over."""
    rng, rows = random.Random(3), list[Row]()
    for order in range(30):
        at = rng.randrange(72 * 60)
        for step in ("ordered", "paid", "shipped")[: rng.choice([1, 2, 3, 3])]:
            rows.append({"at": from_ms(MINUTE * at), "order_id": str(order), "step": step})
            at += rng.randrange(30 * 60)
    rows.sort(key=lambda row: row["at"])
    wanted = Counter[tuple[Any, ...]]()
    for order in {row["order_id"] for row in rows}:
        mine = {row["step"]: place for place, row in enumerate(rows) if row["order_id"] == order}
        for before, after in pairwise(("ordered", "paid", "shipped")):
            if before in mine:
                due = rows[mine[before]]["at"] + timedelta(days=1)
                wanted[order, after] += after not in mine or rows[mine[after] - 1]["at"] > due
    wanted = +wanted
    return missing_steps, rows, wanted


def told(row: Row) -> tuple[Any, ...]:
    """What is compared of an alert."""
    match row:
        case {"sensor": sensor, "text": str(text)}:
            return sensor, f"to {text.split(' to ')[1]}"
        case {"card": card, "km": float(km), "minutes": float(minutes)}:
            return card, f"{round(km)} km in {round(minutes)} minutes"
        case _:
            return row["order_id"], row["missing"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(jumps, marks=[pytest.mark.soak, pytest.mark.feature("K2")]),
        pytest.param(frauds, marks=pytest.mark.feature("C5")),
        pytest.param(missing, marks=[pytest.mark.soak, pytest.mark.feature("Y3")]),
    ],
    ids=lambda make: make.__name__,
)
def test_alerts_are_those_of_their_definition(spark: SparkSession, make: Callable[[], Example], tmp_path: Path) -> None:
    code, rows, wanted = make()
    assert len(wanted) > 5
    log = Log(code.inputs[0].schema)
    log.rows(rows, "at", 0)
    log.end()
    stream, batch = (SparkCase(spark, code, str(tmp_path / mode)) for mode in ("stream", "batch"))
    stream.land(log, 0, len(rows) // 2)
    stream.land(log, len(rows) // 2)
    stream.run_unbounded(files_per_batch=1)
    batch.land(log)
    batch.run_bounded()
    for case in (stream, batch):
        assert Counter(map(told, final([case.outputs()[""]]))) == wanted
