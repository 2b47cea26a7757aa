"""The process the crash tests kill: lands an inbox to its end, takes the end back, or replays its quarantine, one file per commit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from floodmark.control.processes.engine import Computing, computing
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.connector import Files
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Learned, Source
from floodmark.spec.workspace import Engine, Settings


class Reading(Contract):
    """As it was first written."""

    at: EventTime
    value: int


class Mended(Contract):
    """As it is after somebody saw the quarantine."""

    at: EventTime
    value: int | None


FILES = {
    "f1.csv": "2001-01-01T00:00:01,1\n2001-01-01T00:00:02,2\n",
    "f2.csv": "2001-01-01T00:01:00,3\n2001-01-01T00:02:00,NA\nnever,4\n",
    "f3.csv": "2001-01-01T00:00:30,5\n",
    "f4.csv": "2001-01-01T00:03:00,6\n2001-01-01T00:04:00,NA\n",
    **{f"f{n}.csv": f"2001-01-01T00:0{n}:00,{n}\n" for n in range(5, 8)},
}


def write_inbox(folder: Path) -> None:
    """Tiny files, two of them with broken rows."""
    folder.mkdir()
    for name, lines in FILES.items():
        (folder / name).write_text("at,value\n" + lines)


def act(engine: Computing, action: str, lake: str, inbox: str) -> None:
    """Do what a person would have asked for; the clock stands still, so that lakes can be compared."""
    contract = Mended if action == "replay" else Reading
    watermark = Learned(bound="10 s")  # what it has learned is part of what has to come through
    source = Source(
        "readings", contract=contract, connector=Files(inbox, min_age="0 s"), watermark=watermark, files_per_commit=1
    )
    if action == "replay":
        engine.replay(source, Lake(lake), clock=lambda: 1_000_000_000_000)
    else:
        end, reopen = action == "land to the end", action == "reopen"
        engine.land(source, Lake(lake), end=end, reopen=reopen, clock=lambda: 1_000_000_000_000)


if __name__ == "__main__":
    if sys.argv[4] == "spark":
        from borrowed import borrow

        borrow()
    act(computing(Settings(), engine=cast("Engine", sys.argv[4])), *sys.argv[1:4])
