"""The clicks of this example, drawn anew in the same way each time.

python arrivals.py     # writes inbox/clicks.csv
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAY = datetime(2025, 3, 1, tzinfo=UTC)
Click = tuple[datetime, str, str, int]
"""When, who, on what, for how many cents."""


def clicks(number: int = 400) -> list[Click]:
    """Clicks of twelve visitors on four advertisements, no two of one visitor at the same time; some come up to 50 s late."""
    chance, rows = random.Random(7), dict[tuple[datetime, str], Click]()
    while len(rows) < number:
        at, visitor = DAY + timedelta(seconds=chance.randrange(2_000)), f"v{chance.randrange(12)}"
        rows[at, visitor] = (at, visitor, f"ad{chance.randrange(4)}", chance.randrange(1, 90))
    return sorted(rows.values(), key=lambda row: row[0] + timedelta(seconds=chance.random() * 50))


def write(inbox: Path, rows: Sequence[Click], name: str) -> None:
    """A file of clicks."""
    inbox.mkdir(exist_ok=True)
    lines = [f"{at:%Y-%m-%dT%H:%M:%SZ},{visitor},{ad},{cents}\n" for at, visitor, ad, cents in rows]
    (inbox / name).write_text("at,visitor,ad,cents\n" + "".join(lines))


if __name__ == "__main__":
    write(Path("inbox"), clicks(), "clicks.csv")
