"""Lines of three machines: one gets a burst, one a new normal, one comes and goes, drawn anew in the same way each time.

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
BURST, NEW_NORMAL, THERE = 70, 60, {*range(30, 50), *range(91, 120)}
"""Minutes."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(46)
    lines = list[Row]()
    for minute in range(120):
        rates = {
            "v": 68 if minute == BURST else 8,
            "w": 8 if minute < NEW_NORMAL else 40,
            "x": 6 if minute in THERE else 0,
        }
        for machine, rate in rates.items():
            for _ in range(max(0, round(draw.gauss(rate, 1))) if rate else 0):
                at = START + timedelta(minutes=minute, milliseconds=draw.randrange(60_000))
                line = {"level": draw.choice(["INFO", "ERROR"]), "milliseconds": draw.uniform(1, 9)}
                lines.append({"at": at, "machine": machine, **line})
    return {"inbox": late(lines, draw)}


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
