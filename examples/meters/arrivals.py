"""What eight meters count in a day, and what their feeders deliver: one is cheated, one is stuck, one is silent at times, drawn anew in the same way each time.

python arrivals.py     # writes readings/day.json and supplies/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
CHEATED, STUCK, SILENT = range(40, 80), range(20, 29), range(41, 48)
"""Quarters of an hour."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(43)
    readings, supplies = list[Row](), list[Row]()
    for quarter in range(96):
        at = START + timedelta(minutes=15 * quarter, seconds=draw.uniform(0, 60))
        for feeder in "ef":
            used = 0
            for number in range(4):
                meter, watt_hours = f"{feeder}{number}", draw.randrange(50, 400)
                used += watt_hours
                if meter == "e1" and quarter in CHEATED:
                    watt_hours //= 3
                if meter == "f2" and quarter in STUCK:
                    watt_hours = 77
                if meter != "f3" or quarter not in SILENT:
                    reading = {"meter": meter, "feeder": feeder, "watt_hours": watt_hours}
                    readings.append({"at": at + timedelta(seconds=number), **reading})
            supplies.append({"at": at, "feeder": feeder, "watt_hours": round(used * 1.03)})
    return {"readings": late(readings, draw), "supplies": late(supplies, draw)}


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
