"""What the reference operators must answer, computed by DuckDB from the inbox files alone.

Nothing here is shared with floodmark: its own reading, its own time zones, watermark, windows and lateness. Slow to
extend and obvious to read, on purpose; when the two disagree, one of them is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_HOUR = 60 * 60_000
_QUARTER = 15 * 60_000

_COLUMNS = {
    "known": "TIMESTAMPTZ",
    "scheduled": "TIMESTAMP",
    "origin": "VARCHAR",
    "dest": "VARCHAR",
    "carrier": "VARCHAR",
    "flight": "BIGINT",
    "tailnum": "VARCHAR",
    "dep_delay": "BIGINT",
    "arr_delay": "BIGINT",
    "air_time": "BIGINT",
    "distance": "BIGINT",
}

# The stamp of a row: the largest event time of all rows before it, minus the bound, minus 1 ms; before any row, never.
_FLIGHTS = """
    CREATE TABLE flights AS
    SELECT
        * REPLACE (timezone('America/New_York', scheduled) AS scheduled),
        epoch_ms(timezone('America/New_York', scheduled)) AS event,
        coalesce(
            max(event) OVER (ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - {bound} - 1,
            epoch_ms(TIMESTAMPTZ '0001-01-01 00:00:00Z')
        ) AS stamp
    FROM arrived
"""

# One row per flight and window it falls in: [opens, closes) in ms.
_HOURLY = f"""
    CREATE VIEW hourly AS
    SELECT *, event - event % {_HOUR} AS opens, opens + {_HOUR} AS closes
    FROM flights WHERE dep_delay IS NOT NULL
"""
_ROLLING = f"""
    CREATE VIEW rolling AS
    SELECT *, event - event % {_QUARTER} - step * {_QUARTER} AS opens, opens + {_HOUR} AS closes
    FROM flights, range({_HOUR // _QUARTER}) AS steps(step) WHERE dep_delay IS NOT NULL
"""
_DAILY = """
    CREATE VIEW daily AS
    SELECT *, day_opens(event) AS opens, day_closes(event) AS closes FROM flights
"""

# A calendar day begins and ends at midnight on the clocks of New York, whatever lies between.
_DAY_OPENS = """
    CREATE MACRO day_opens(event) AS epoch_ms(timezone('America/New_York',
        date_trunc('day', timezone('America/New_York', make_timestamptz(event * 1000)))))
"""
_DAY_CLOSES = """
    CREATE MACRO day_closes(event) AS epoch_ms(timezone('America/New_York',
        date_trunc('day', timezone('America/New_York', make_timestamptz(event * 1000))) + INTERVAL 1 DAY))
"""
_INSTANT = "CREATE MACRO instant(ms) AS make_timestamptz(ms * 1000)"

_JUDGED = """
    CREATE TABLE {name}_judged AS
    SELECT *, closes - 1 <= stamp AS late, closes - 1 + {lateness} <= stamp AS dropped FROM {name}
"""

# The changelog of hourly_departures that busiest_hour reads: per origin and hour the on-time pane, if any, then one
# pane for every late row in order of arrival. A late pane carries the stamp of its row, the on-time pane closes - 2.
_PANES = """
    CREATE VIEW busiest AS
    WITH
        on_time AS (
            SELECT origin, closes, count(*) AS departures FROM hourly_judged WHERE NOT late GROUP BY origin, closes
        ),
        refired AS (
            SELECT origin, closes, stamp, row_number() OVER (PARTITION BY origin, closes ORDER BY arrival) AS pane
            FROM hourly_judged WHERE late AND NOT dropped
        ),
        panes AS (
            SELECT origin, closes AS hour, 0 AS pane, departures, closes - 2 AS stamp FROM on_time
            UNION ALL
            SELECT origin, closes, pane, coalesce(departures, 0) + pane, stamp
            FROM refired LEFT JOIN on_time USING (origin, closes)
        )
    SELECT *, day_opens(hour - 1) AS opens, day_closes(hour - 1) AS closes FROM panes
"""

_ROW = ", ".join(_COLUMNS)

_ANSWERS = {
    "hourly_departures": """
        SELECT origin, instant(opens) AS window_start, instant(closes) AS window_end,
            count(*) AS departures, avg(dep_delay) AS mean_delay
        FROM hourly_judged WHERE NOT dropped GROUP BY origin, opens, closes ORDER BY opens, origin
    """,
    "hourly_departures__late": f"SELECT {_ROW} FROM hourly_judged WHERE dropped ORDER BY arrival",
    "rolling_departures": """
        SELECT origin, instant(opens) AS window_start, instant(closes) AS window_end,
            count(*) AS departures, max(dep_delay) AS max_delay
        FROM rolling_judged WHERE NOT dropped GROUP BY origin, opens, closes ORDER BY opens, origin
    """,
    "daily_carriers": """
        SELECT carrier, instant(opens) AS window_start, instant(closes) AS window_end,
            count(*) AS flights, avg(dep_delay) AS mean_delay,
            avg(CASE WHEN dep_delay IS NULL THEN 1.0 ELSE 0.0 END) AS share_cancelled,
            count(DISTINCT tailnum) AS tails
        FROM daily_judged WHERE NOT dropped GROUP BY carrier, opens, closes ORDER BY opens, carrier
    """,
    "busiest_hour": """
        WITH hours AS (
            SELECT origin, opens, closes, hour, arg_max(departures, pane) AS departures
            FROM busiest_judged WHERE NOT dropped GROUP BY ALL
        )
        SELECT origin, instant(opens) AS window_start, instant(closes) AS window_end,
            max(departures) AS busiest, count(*) AS hours
        FROM hours GROUP BY origin, opens, closes ORDER BY opens, origin
    """,
    "split_delays__severe": f"SELECT {_ROW} FROM flights WHERE dep_delay >= 60 ORDER BY arrival",
    "split_delays__normal": f"SELECT {_ROW} FROM flights WHERE dep_delay < 60 ORDER BY arrival",
}

_WINDOWED = {
    "hourly_departures": "hourly_judged",
    "rolling_departures": "rolling_judged",
    "daily_carriers": "daily_judged",
    "busiest_hour": "busiest_judged",
}


class Oracle:
    """The final answers of the reference operators over an inbox: on-time rows plus late rows that were not dropped.

    Args:
        inbox: a folder that `write_inbox` has written. Rows arrive in order of file name, then of line.
        bound_minutes: of the watermark strategy `BoundedOutOfOrderness`.
        hourly_lateness_minutes: allowed lateness of `hourly_departures`; dropped rows go to its late output.
        daily_lateness_minutes: allowed lateness of `daily_carriers`.
        busiest_lateness_minutes: allowed lateness of `busiest_hour`.

    `rolling_departures` allows none.
    """

    OPERATORS = frozenset(output.partition("__")[0] for output in _ANSWERS)
    """Those it has answers for."""

    def __init__(
        self,
        inbox: Path,
        *,
        bound_minutes: int,
        hourly_lateness_minutes: int = 2 * 60,
        daily_lateness_minutes: int = 6 * 60,
        busiest_lateness_minutes: int = 24 * 60,
    ) -> None:
        lateness_minutes = {
            "hourly": hourly_lateness_minutes,
            "rolling": 0,
            "daily": daily_lateness_minutes,
            "busiest": busiest_lateness_minutes,
        }
        self._database = _read(sorted((inbox / "flights").glob("*.csv.gz")))
        for macro in (_INSTANT, _DAY_OPENS, _DAY_CLOSES):
            self._database.execute(macro)
        self._database.execute(_FLIGHTS.format(bound=bound_minutes * 60_000))
        views = {"hourly": _HOURLY, "rolling": _ROLLING, "daily": _DAILY, "busiest": _PANES}
        for name, view in views.items():
            self._database.execute(view)
            self._database.execute(_JUDGED.format(name=name, lateness=lateness_minutes[name] * 60_000))

    def answer(self, output: str) -> pa.Table:
        """The rows of one output; instants are `timestamp[us, tz=UTC]`.

        Args:
            output: `hourly_departures`, `hourly_departures__late`, `rolling_departures`, `daily_carriers`,
                `busiest_hour`, `split_delays__severe` or `split_delays__normal`.
        """
        return self._database.sql(_ANSWERS[output]).to_arrow_table()

    def lateness(self, operator: str) -> dict[str, int]:
        """How many rows were `late`, and of them `refired` and `dropped`.

        Counted per window: in `rolling_departures` a row is late once for every window it missed. What comes in to
        `busiest_hour` is panes; a retraction and its successor count as one.
        """
        [counts] = self._database.sql(f"""
            SELECT count(*) FILTER (late), count(*) FILTER (late AND NOT dropped), count(*) FILTER (dropped)
            FROM {_WINDOWED[operator]}
        """).fetchall()
        return dict(zip(("late", "refired", "dropped"), counts, strict=True))


def _read(files: list[Path]) -> duckdb.DuckDBPyConnection:
    """A database in memory with one table, `arrived`: the rows of all files, numbered by arrival."""
    import duckdb

    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET threads = 1")  # several would read files side by side; the number of a row is its place
    database.execute(
        "CREATE TABLE arrived AS SELECT row_number() OVER () AS arrival, * "
        "FROM read_csv($files, columns = $columns, header = true, auto_detect = false, delim = ',', quote = '\"')",
        {"files": [str(file) for file in files], "columns": _COLUMNS},
    )
    database.execute("RESET threads")
    return database
