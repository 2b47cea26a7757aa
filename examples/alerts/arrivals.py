"""What cells of a network report, and what happens to two accounts, drawn anew in the same way each time.

python arrivals.py     # writes loads/day.json and entries/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
SILENT = range(100, 160)
"""When one of the cells reports nothing."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(44)
    loads, entries = list[Row](), list[Row]()
    for n in range(400):
        at = START + timedelta(seconds=20 * n, milliseconds=draw.randrange(9_000))
        cell = draw.choice("kmn")
        if cell != "m" or n not in SILENT:
            load = {"region": draw.choice("xy"), "cell": cell, "percent": draw.choice([20, 45, 70, 95])}
            loads.append({"at": at, **load})
    for n in range(900):
        at = START + timedelta(seconds=20 * n, milliseconds=n)
        what = draw.choice(["login", "payee", "payment", "payment"])
        cents = draw.choice([-60_000, -500, 50_000, 10_500]) if what == "payment" else 0
        entry = {"account": draw.choice("ab"), "what": what, "device": draw.choice(["phone", "desk"]), "cents": cents}
        entries.append({"at": at, **entry})
    return {"loads": late(loads, draw, 4), "entries": late(entries, draw, 4)}


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
