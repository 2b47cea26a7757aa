"""What the three sites of this example spend, drawn anew in the same way each time.

python arrivals.py     # writes inbox/SITE/day.csv
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAY = datetime(2025, 3, 1, tzinfo=UTC)
SITES = ("berlin", "lima", "osaka")
Spend = tuple[datetime, str, int]
"""When, on which campaign, how many cents."""


def spends(seed: int = 5) -> dict[str, list[Spend]]:
    """Site -> sixty spends in order of arrival, none later than four minutes; no two at the same time anywhere."""
    chance, seconds = random.Random(seed), random.Random(seed).sample(range(6 * 3600), 180)
    rows: dict[str, list[Spend]] = {site: [] for site in SITES}
    for number, second in enumerate(seconds):
        spend = (DAY + timedelta(seconds=second), "abc"[chance.randrange(3)], chance.randrange(10, 90))
        rows[SITES[number % 3]].append(spend)
    return {
        site: sorted(some, key=lambda row: row[0] + timedelta(seconds=chance.random() * 240))
        for site, some in rows.items()
    }


def write(inbox: Path, rows: Sequence[Spend], name: str) -> None:
    """A file of a site."""
    inbox.mkdir(parents=True, exist_ok=True)
    lines = [f"{at:%Y-%m-%dT%H:%M:%SZ},{campaign},{cents}\n" for at, campaign, cents in rows]
    (inbox / name).write_text("at,campaign,cents\n" + "".join(lines))


if __name__ == "__main__":
    for site, rows in spends().items():
        write(Path("inbox", site), rows, "day.csv")
