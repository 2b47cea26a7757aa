"""Orders of which some are not paid, and what users do from log-in to log-out, drawn anew in the same way each time.

python arrivals.py     # writes inbox/day.json and actions/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
PAID = 0.8
"""Share of the orders."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(11)
    steps, actions = list[Row](), list[Row]()
    for n in range(120):
        at = START + timedelta(minutes=5 * n)
        steps.append({"at": at, "order_id": f"o{n}", "step": "ordered"})
        if draw.random() < PAID:
            paid = at + timedelta(minutes=draw.uniform(1, 90))
            steps.append({"at": paid, "order_id": f"o{n}", "step": "paid"})
    for n in range(300):
        what = draw.choice(["login", "look", "look", "buy", "logout"])
        actions.append({"at": START + timedelta(minutes=3 * n), "user": draw.choice("uvw"), "what": what})
    return {"inbox": late(sorted(steps, key=lambda row: row["at"]), draw), "actions": late(actions, draw)}


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
