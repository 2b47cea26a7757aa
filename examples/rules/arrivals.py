"""What machines measure, and two rules, one of which is made stricter, drawn anew in the same way each time.

python arrivals.py     # writes readings/day.json and rules/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(13)
    readings = [
        {
            "at": START + timedelta(minutes=n),
            "machine": draw.choice("ab"),
            "kind": "heat",
            "value": draw.uniform(40, 100),
        }
        for n in range(400)
    ]
    strict = {"rule": "hot", "kind": "heat", "times": 2, "active": True}
    rules = [
        {"at": START - timedelta(hours=1), **strict, "threshold": 60.0},
        {"at": START + timedelta(hours=3), **strict, "threshold": 85.0},
    ]
    return {"readings": late(readings, draw), "rules": rules}


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
