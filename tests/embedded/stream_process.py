"""A stream on the embedded engine in a process of its own, which a test may kill: stream_process.py LAKE OPERATOR [CLOCK]."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from staged import STAGED
from streams import STREAMS, WINDOWED

from floodmark import Daily, Operator
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake

DIVIDED: Operator = replace(WINDOWED, name="divided", partitions=Daily("2020-01-01", timezone="Asia/Kolkata"))
UNCOMMITTED: Operator = replace(WINDOWED, name="uncommitted", isolation="read_uncommitted")
LOOKING = "named"
"""Name of the operator that looks in the table beside the lake."""


def _looking(folder: str) -> Operator:
    from looked_up import looking  # its statement is read in the processes that need it

    return looking(Path(folder).parent / "airports")


def main(folder: str, name: str, clock: str = "") -> None:
    """Run until caught up."""
    code = (
        _looking(folder)
        if name == LOOKING
        else (STREAMS | STAGED | {one.name: one for one in (DIVIDED, UNCOMMITTED)})[name]
    )
    sail, at = Sail(memory=300), int(clock) if clock else None
    lake = Lake.forked(folder) or Lake(folder)
    run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1, clock=at)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
