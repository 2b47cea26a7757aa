"""A page with what the operators have computed: python picture.py [LAKE]. It reads the output tables, as any program may."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from floodmark.observe.charts import bars, lines


def page(lake: str) -> str:
    """The page."""
    windows = DeltaTable(f"{lake}/outputs/edits_per_wiki__current").to_pyarrow_dataset()
    stretches = DeltaTable(f"{lake}/outputs/stretches").to_pyarrow_dataset()
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("windows", windows).register("stretches", stretches)
        rows = engine.sql(
            "SELECT wiki, window_start, edits, by_bots FROM windows WHERE _kind = 0 ORDER BY window_start"
        ).fetchall()
        longest = engine.sql(
            "SELECT \"user\" || ' in ' || wiki, date_diff('minute', window_start, window_end) FROM stretches "
            "WHERE _kind = 0 ORDER BY 2 DESC, 1 LIMIT 8"
        ).fetchall()
    starts = sorted({start for _, start, _, _ in rows})
    edits = {(wiki, start): count for wiki, start, count, _ in rows}
    series = {wiki: [edits.get((wiki, start)) for start in starts] for wiki in sorted({wiki for wiki, *_ in rows})}
    bots = {
        wiki: 100 * sum(b for w, _, _, b in rows if w == wiki) / sum(n for w, _, n, _ in rows if w == wiki)
        for wiki in series
    }
    parts = [
        "<h1>Edits of an encyclopaedia</h1>",
        "<h2>Edits in ten minutes</h2>",
        lines(series, [f"{start:%H:%M}" for start in starts], "edits"),
        "<h2>By programs</h2>",
        bars(bots, "%"),
        "<h2>Longest stretches</h2>",
        bars(dict(longest), "minutes"),
    ]
    return f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Edits</title>\n{"".join(parts)}\n</html>\n'


if __name__ == "__main__":
    Path("edits.html").write_text(page(sys.argv[1] if len(sys.argv) > 1 else "lake"), "utf-8")
    print("edits.html")
