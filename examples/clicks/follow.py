"""``python -m follow FOLDER HOURS TICK``: the stream, from a tick of the day on. Per tick the clicks that have arrived land, and the stream reads them.

Prints a line per tick: the moment, and the answers that the table has then. It may be killed at any moment, and goes on from the next tick.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

from arrivals import DAY, clicks, write
from deltalake import DeltaTable
from workspace import clicks_per_hour, workspace

from floodmark.control.processes.engine import computing
from floodmark.lake.folder.paths import Lake

TICK = timedelta(minutes=10)


def ticks(hours: int) -> list[datetime]:
    """The ends of all ticks: the hours, and one more for what arrives after them."""
    return [DAY + TICK * number for number in range(1, (hours + 1) * 6 + 1)]


def main(folder: Path, hours: int, first: int) -> None:
    """From the tick numbered ``first`` on."""
    made, lake = clicks(hours), Lake(str(folder / "lake"))
    space = workspace()
    engine, source = computing(space.settings), space.sources[0]
    moments = ticks(hours)
    for number in range(first, len(moments)):
        write(made, folder / "inbox", moments[number], moments[number] - TICK)
        last = number + 1 == len(moments)
        engine.land(source, lake, workspace=folder, end=last)
        engine.run_unbounded(clicks_per_hour, lake, until_caught_up=True)
        rows = DeltaTable(lake.output("clicks_per_hour__current")).to_pyarrow_table().to_pylist()
        answers = [[row["window_start"].isoformat(), row["campaign"], row["clicks"]] for row in rows if row["campaign"]]
        print(json.dumps({"tick": number, "answers": answers}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
