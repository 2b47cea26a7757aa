"""The rounds of this example, drawn anew in the same way each time.

python arrivals.py     # writes inbox/rounds.csv
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROBOTS, WON = 0.1, 0.4
"""Shares of the rounds."""


def write(inbox: Path) -> None:
    """A file of 600 rounds, in order of time; one of ten is a robot's."""
    chance, at, lines = random.Random(3), datetime(2025, 3, 1, 9, tzinfo=UTC), list[str]()
    for _ in range(600):
        at += timedelta(seconds=chance.randrange(1, 40))
        player = f"{'robot' if chance.random() < ROBOTS else 'p'}-{chance.randrange(9)}"
        won, cents = str(chance.random() < WON).lower(), chance.choice((0, 0, 0, 99, 499))
        round_ = f"g{chance.randrange(2)},{chance.randrange(1, 4)}"
        lines.append(f"{at:%Y-%m-%dT%H:%M:%SZ},{player},{round_},{won},{cents}\n")
    inbox.mkdir(exist_ok=True)
    (inbox / "rounds.csv").write_text("at,player,game,level,won,cents\n" + "".join(lines))


if __name__ == "__main__":
    write(Path("inbox"))
