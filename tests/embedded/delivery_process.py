"""A delivery in a process of its own, which a test may kill: delivery_process.py LAKE OPERATOR URL."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from streams import STREAMS

from floodmark import Operator, ToSql
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes


def route(code: Operator, url: str) -> Route:
    """The delivery of an operator's first output into a table of its name."""
    (one,) = routes(code, [ToSql(url)], "test")
    return replace(one)


def main(folder: str, name: str, url: str) -> None:
    """Deliver until caught up."""
    deliver(route(STREAMS[name], url), Lake(folder), until_caught_up=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
