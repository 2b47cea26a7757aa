"""The orders of this example: three files, in the order in which they arrive. The last order of the third file is late."""

from __future__ import annotations

from pathlib import Path

ARRIVALS = (
    (("08:10", 300), ("08:50", 400)),
    (("09:10", 500), ("09:20", 300)),
    (("09:30", 200), ("08:40", 50)),
)
"""For each file the orders: (time on 1 March 2025, cents)."""


def arrive(inbox: Path, number: int) -> None:
    """Write the file of a number, 0 to 2, into a folder."""
    inbox.mkdir(parents=True, exist_ok=True)
    lines = [f"2025-03-01T{time}:00Z,{cents}\n" for time, cents in ARRIVALS[number]]
    (inbox / f"orders_{number}.csv").write_text("at,cents\n" + "".join(lines), "utf-8")


def forget(inbox: Path) -> None:
    """Remove the two oldest files, as a source does that keeps its rows for a while."""
    for number in (0, 1):
        (inbox / f"orders_{number}.csv").unlink()
