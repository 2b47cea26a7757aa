"""A stream that asks a service about each row, in a process of its own, which a test may kill: calls_process.py LAKE PORT."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from answering import fetched
from events import Event

import floodmark as fm
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake


class Doubled(fm.Contract):
    """What the service says."""

    value: int
    doubled: int


def doubles(port: int) -> fm.Operator:
    """Every row's answer, and nothing for one row in ten."""

    async def double(row, request):
        answer = await fetched(port, row["value"], request.key)
        return None if row["value"] % 10 == 3 else {"value": row["value"], **answer}

    @fm.operator(name="doubles")
    def asking(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(double, Doubled, concurrency=40, timeout="5 seconds")

    return asking


def main(folder: str, port: str) -> None:
    """Run until caught up."""
    sail = Sail(memory=300)
    run_unbounded(sail, doubles(int(port)), Lake(folder), until_caught_up=True, files_per_batch=1)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
