"""Messages of four systems about sixty bookings, some told twice, some never, drawn anew in the same way each time.

python arrivals.py     # writes SYSTEM/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
LACKING, TWICE = 0.2, 0.4
"""Shares of the messages."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(47)
    told: dict[str, list[Row]] = {system: [] for system in ("reservation", "payment", "ticket", "travel")}
    for number in range(60):
        begun = START + timedelta(minutes=37 * number, milliseconds=number)
        for system, some in told.items():
            for part in range(draw.choice([1, 1, 2])):
                if system == "travel" and draw.random() < LACKING:
                    continue
                at = begun + timedelta(minutes=draw.uniform(0, 900))
                row = {"at": at, "booking": str(number), "message": str(part), "cents": draw.choice([100, 250])}
                some.append(row)
                if draw.random() < TWICE:
                    some.append(row | {"at": at + timedelta(minutes=draw.uniform(1, 300))})
    return {system: late(some, draw) for system, some in told.items()}


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
