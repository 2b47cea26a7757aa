"""Page rank of the links of a lake, in a process of its own that a test may kill: graphs_process.py LAKE [TOLERANCE]."""

from __future__ import annotations

import sys
from typing import Any

from floodmark.engines.embedded.sail.session import Sail, on_sail
from floodmark.graphs.algorithms import page_rank
from floodmark.graphs.graph import Graph
from floodmark.graphs.iterations import Iterated
from floodmark.lake.folder.paths import Lake

LINKS = "links"


def linked(lake: Lake, **settings: Any) -> Graph:
    """The graph of the links."""
    return Graph(lake=lake, edges=LINKS, source="a", target="b", weight="w", **settings)


def ranked(session: Any, lake: Lake, tolerance: float = 1e-6) -> Iterated:
    """Page ranks of the links."""
    return page_rank(session, linked(lake), "ranks", tolerance=tolerance)


def main(folder: str, tolerance: str = "1e-6") -> None:
    """Compute page ranks."""
    sail, lake = Sail(memory=300), Lake(folder)
    on_sail(sail, lambda connection: ranked(connection.spark, lake, float(tolerance)))
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
