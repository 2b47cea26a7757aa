"""Flights whose delay follows the wind and the hour, drawn anew in the same way each time.

python arrivals.py     # writes inbox/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
EVENING = 17


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(5)
    flights = list[Row]()
    for n in range(600):
        at = START + timedelta(minutes=7 * n)
        wind, carrier = draw.uniform(0, 20), draw.choice(["AA", "OO"])
        delay = 1.5 * wind + (15 if at.hour >= EVENING else 0) + (10 if carrier == "OO" else 0) + draw.gauss(0, 2)
        flights.append(
            {"at": at, "origin": draw.choice(["JFK", "EWR"]), "carrier": carrier, "wind": wind, "delay": delay}
        )
    return {"inbox": late(flights, draw)}


def late(some: list[Row], draw: random.Random, seconds: float = 500) -> list[Row]:
    """Rows in an order in which none is later than so many seconds."""
    return sorted(some, key=lambda row: row["at"] + timedelta(seconds=draw.uniform(0, seconds)))


def write(root: Path) -> None:
    """A file for each source."""
    for folder, some in rows().items():
        (root / folder).mkdir(exist_ok=True)
        lines = [json.dumps(row, default=datetime.isoformat) for row in some]
        (root / folder / "day.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(Path())
