"""A page with what the operators have computed: python picture.py [LAKE]. It reads the output tables, as any program may."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from trips import ZONES

from floodmark.observe.charts import bars, lines


def page(lake: str) -> str:
    """The page."""
    hours, days = (DeltaTable(f"{lake}/outputs/{table}").to_pyarrow_dataset() for table in ("hourly_zones", "daily"))
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'America/New_York'")
        engine.register("hours", hours).register("days", days)
        rows = engine.sql(
            "SELECT zone, hour(window_start), sum(trips)::DOUBLE FROM hours WHERE _kind = 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        tips = engine.sql(
            "SELECT zone, sum(tip * trips) / sum(trips) FROM hours WHERE _kind = 0 AND tip IS NOT NULL GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        money = engine.sql(
            "SELECT strftime(window_start, '%a %d'), cents / 100 FROM days WHERE _kind = 0 ORDER BY window_start"
        ).fetchall()
    trips = {(zone, hour): count for zone, hour, count in rows}
    series = {
        ZONES[zone]: [trips.get((zone, hour), 0.0) for hour in range(24)]
        for zone in sorted({zone for zone, *_ in rows})
    }
    parts = [
        "<h1>Yellow cabs</h1>",
        "<h2>Trips that end in an hour of the day</h2>",
        lines(series, [f"{hour:02}" for hour in range(24)], "trips"),
        "<h2>Tips by card</h2>",
        bars({ZONES[zone]: tip for zone, tip in tips}, "% of the fare"),
        "<h2>Fares of a day</h2>",
        bars(dict(money), "dollars"),
    ]
    return f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Cabs</title>\n{"".join(parts)}\n</html>\n'


if __name__ == "__main__":
    Path("cabs.html").write_text(page(sys.argv[1] if len(sys.argv) > 1 else "lake"), "utf-8")
    print("cabs.html")
