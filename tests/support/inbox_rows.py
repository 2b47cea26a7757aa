"""Rows of the demo's inbox as operators get them, with the stamps of a landing."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from floodmark.core.time import NEVER, to_ms
from floodmark.testing.proof import Entry

NEW_YORK = "America/New_York"
CUTS = pytest.mark.parametrize("cuts", [6, pytest.param(50, marks=pytest.mark.soak)])
"""Unbounded runs beside the bounded one; those of the fewer are the first of the more."""
Timed = list[tuple[int, dict[str, object]]]
"""(event time, columns) in order of arrival."""


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob("*.csv*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as stream:
            yield from csv.DictReader(stream)


def stamped(name: str, rows: Timed, bound: int | None) -> list[Entry]:
    """Rows with the stamps of a landing of that bound; None: no row is late."""
    newest, found = NEVER, []
    for number, (time, values) in enumerate(rows):
        stamps = {"_event_time": time, "_watermark": newest, "_sequence": number, "_kind": 0}
        found.append((name, values | stamps))
        newest = max(newest, time - bound - 1) if bound is not None else NEVER
    return found


def flights_of(inbox: Path) -> Timed:
    """Departures."""
    found: Timed = []
    for row in _rows(inbox / "flights"):
        moment = datetime.fromisoformat(row["scheduled"]).replace(tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC)
        number = {
            k: int(row[k]) if row[k] else None for k in ("flight", "dep_delay", "arr_delay", "air_time", "distance")
        }
        texts = {k: row[k] or None for k in ("origin", "dest", "carrier", "tailnum")}
        found.append((to_ms(moment), {"scheduled": moment, **texts, **number}))
    return found


def weather_of(inbox: Path) -> Timed:
    """Observations."""
    found: Timed = []
    for row in _rows(inbox / "weather"):
        moment = datetime.fromisoformat(row["observed"]).astimezone(UTC)
        names = ("temp", "wind_speed", "precip", "visib", "pressure")
        numbers = {k: float(row[k]) if row[k] not in {"", "NA"} else None for k in names}
        found.append((to_ms(moment), {"observed": moment, "origin": row["origin"], **numbers}))
    return found
