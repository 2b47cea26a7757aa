"""The orders and customers of this example, drawn anew in the same way each time.

python arrivals.py     # writes inbox/orders/0.csv and inbox/customers/0.csv
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAY = datetime(2025, 3, 1, tzinfo=UTC)


def write(inbox: Path, part: int = 0, parts: int = 1) -> None:
    """A part of three days of orders, and of what is known of customers; orders come up to eight minutes late, and some are of no value."""
    chance = random.Random(3)
    seconds = sorted(chance.sample(range(3_600, 3 * 86_400), 240))
    rows = [
        (DAY + timedelta(seconds=at), n, chance.choice(["Ann ", "bob", " CLEO"]), chance.choice([0, 5, 700, 2**40]))
        for n, at in enumerate(seconds)
    ]
    rows.sort(key=lambda row: row[0] + timedelta(minutes=8 * chance.random()))
    known = [(DAY, name, "new") for name in ("ann", "Bob", "cleo")]
    known += [
        (DAY + timedelta(seconds=at), chance.choice(["ann", "BOB ", "cleo"]), chance.choice(["good", "late", "new"]))
        for at in sorted(chance.sample(range(3 * 86_400), 30))
    ]
    for name, head, lines in (
        ("orders", "at,number,customer,cents", rows),
        ("customers", "since,customer,segment", known),
    ):
        folder = inbox / name
        folder.mkdir(parents=True, exist_ok=True)
        some = lines[len(lines) * part // parts : len(lines) * (part + 1) // parts]
        texts = [",".join([f"{at:%Y-%m-%dT%H:%M:%SZ}", *map(str, values)]) for at, *values in some]
        (folder / f"{part}.csv").write_text("\n".join([head, *texts]) + "\n")


if __name__ == "__main__":
    write(Path("inbox"))
