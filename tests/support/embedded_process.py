"""A bounded run on the embedded engine in a process of its own, which a test may kill: python bounded_process.py LAKE."""

from __future__ import annotations

import sys

import floodmark as fm
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    value: int


@fm.operator
def revised(events: fm.Stream[Event]) -> fm.Stream:
    """Refires, drops and has a late output: every kind of write there is."""
    windowed = events.key_by("key").window(fm.Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=fm.count(), total=fm.sum("value"))


if __name__ == "__main__":
    run_bounded(Sail(400), revised, Lake(sys.argv[1]), force=True)
