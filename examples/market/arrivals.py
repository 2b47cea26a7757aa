"""What six customers buy in a week, most of it in the evening, drawn anew in the same way each time.

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
    draw = random.Random(42)
    purchases, at = list[Row](), START
    for n in range(220):
        rush = EVENING <= at.hour < EVENING + 4
        at += timedelta(seconds=draw.uniform(10, 120) if rush else draw.uniform(300, 2_400), milliseconds=n)
        product = draw.choice(["nut", "fig", "oat", "tea", "pea"])
        purchases.append({"at": at, "customer": draw.choice("cdefgh"), "product": product})
    return {"inbox": late(purchases, draw)}


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
