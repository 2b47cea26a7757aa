"""Searches of six users by three programs, and what users say that these are, drawn anew in the same way each time.

python arrivals.py     # writes searches/day.json and votes/day.json
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
Row = dict[str, Any]
AGENTS = {"Mozil/1": "phone", "Operetta/2": "desk", "Bot/3": "robot"}
VOTES, RIGHT = 0.3, 0.7
"""Shares of what users do, and of the votes."""


def rows() -> dict[str, list[Row]]:
    """Folder of a source -> its rows in order of arrival."""
    draw = random.Random(41)
    searches, votes, at = list[Row](), list[Row](), START
    for n in range(240):
        at += timedelta(minutes=draw.choice([1, 4, 11]), milliseconds=n)
        agent = draw.choice([*AGENTS])
        if draw.random() < VOTES:
            device = AGENTS[agent] if draw.random() < RIGHT else draw.choice(["phone", "desk"])
            votes.append({"at": at, "agent": agent, "device": device})
        else:
            query = draw.choice(["boat", "coat", "goat"])
            searches.append({"at": at, "user": draw.choice("uvwxyz"), "agent": agent, "query": query})
    return {"searches": late(searches, draw), "votes": late(votes, draw)}


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
