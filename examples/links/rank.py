"""``python rank.py [FOLDER]``: land some links, ask a service about each, rank the pages. A second time nobody is asked."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from deltalake import DeltaTable
from workspace import checked, workspace

from floodmark.control.processes.engine import computing
from floodmark.graphs.algorithms import connected_components, page_rank
from floodmark.graphs.graph import Graph
from floodmark.lake.folder.paths import Lake

PAGES = 200


def write(folder: Path) -> int:
    """A file of links: each page leads to the one before it, to the shop, and each tenth to a page that is gone. Returns their number."""
    lines = [f"/{n},/{n - 1}" if n else "/0,/shop" for n in range(PAGES)]
    lines += [f"/{n},/old-shop" for n in range(0, PAGES, 3)] + [f"/{n},/gone/{n}" for n in range(0, PAGES, 10)]
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"2025-01-01T00:{n % 60:02}:00Z,{line}\n" for n, line in enumerate(lines))
    (folder / "links.csv").write_text(f"at,page,leads_to\n{text}")
    return len(lines)


def main(folder: Path) -> dict[str, float]:
    """Page -> rank; prints what was done."""
    space, lake = workspace(), Lake(str(folder / "lake"))
    engine = computing(space.settings)
    number = write(folder / "inbox")
    engine.land(space.sources[0], lake, workspace=folder, end=True)
    for what in ("asked", "asked again"):
        began = time.monotonic()
        result = engine.run_unbounded(checked, lake, until_caught_up=True, from_scratch=what == "asked again")
        print(f"{what} about {number} links: {result.rows['checked']} lead somewhere, {time.monotonic() - began:.1f} s")
    graph = Graph(lake=lake, edges="checked", source="page", target="target")
    ranks = engine.with_session(lambda session: page_rank(session, graph, "ranks"))
    parts = engine.with_session(lambda session: connected_components(session, graph, "sites"))
    rows = DeltaTable(ranks.result).to_pyarrow_table().sort_by([("rank", "descending")]).to_pylist()
    best = ", ".join(f"{row['id']} {row['rank']:.3f}" for row in rows[:3])
    print(f"{ranks.rows} pages ranked in {ranks.supersteps} supersteps, joined in {parts.supersteps}: {best}")
    return {row["id"]: row["rank"] for row in rows}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
