"""Swipes of thirty cards, each at home, and now and then at the other side of the world, drawn anew in the same way each time.

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
TOWNS = [(52.5, 13.4), (40.7, -74.0), (-12.0, -77.0), (34.7, 135.5)]
"""Latitude and longitude."""
ELSEWHERE = 0.05
"""Share of the swipes."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(9)
    swipes = list[Row]()
    for n in range(400):
        card, at = draw.randrange(30), START + timedelta(minutes=4 * n)
        latitude, longitude = TOWNS[card % len(TOWNS)]
        if draw.random() < ELSEWHERE:
            latitude, longitude = TOWNS[(card + 1) % len(TOWNS)]
        swipes.append({"at": at, "card": f"c{card}", "latitude": latitude, "longitude": longitude})
    return {"inbox": late(swipes, draw)}


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
