"""Statements with the same questions for DuckDB, and the check that both modes of an engine answer them alike."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from deltalake import DeltaTable
from sql_tables import TABLES, Flight, Weather, flights, log_of, oracle, plain, weather

from floodmark import sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

HOUR = "time_bucket(INTERVAL '1 hour', scheduled)"
QUERIES = {
    "columns": (
        "SELECT flight, upper(dest) AS dest, delay / 2 AS half FROM flights WHERE delay > 10 AND tail IS NOT NULL",
        "SELECT flight, upper(dest), delay / 2 FROM flights WHERE delay > 10 AND tail IS NOT NULL",
    ),
    "hours": (
        """SELECT origin, window_start, COUNT(*) AS n, AVG(delay) AS mean, COUNT(*) FILTER (WHERE delay > 30) AS late,
                  COUNT(DISTINCT tail) AS tails, SUM(delay) / COUNT(*) AS share
           FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))
           GROUP BY origin, window_start, window_end HAVING COUNT(*) > 1""",
        f"""SELECT origin, {HOUR}, COUNT(*), AVG(delay), COUNT(*) FILTER (WHERE delay > 30), COUNT(DISTINCT tail),
                  SUM(delay)::DOUBLE / COUNT(*) FROM flights GROUP BY ALL HAVING COUNT(*) > 1""",
    ),
    "cube": (
        """SELECT origin, dest AS goes_to, GROUPING(dest) AS whole, GROUPING_ID() AS number, window_start, COUNT(*) AS n, COUNT(origin) AS origins
           FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY window_start, CUBE (origin, dest) HAVING COUNT(*) > 1""",
        f"""SELECT origin, dest, GROUPING(dest), GROUPING(origin, dest), w, COUNT(*), COUNT(origin)
           FROM (SELECT *, {HOUR} AS w FROM flights) GROUP BY w, CUBE (origin, dest) HAVING COUNT(*) > 1""",
    ),
    "rollup": (
        """SELECT upper(origin) AS origin, tail, window_end, SUM(delay) AS total FROM flights
           GROUP BY TUMBLE(scheduled, INTERVAL '1' HOUR), ROLLUP (upper(origin), tail)""",
        f"""SELECT origin, tail, w, SUM(delay) FROM (SELECT *, {HOUR} + INTERVAL '1 hour' AS w FROM flights) GROUP BY w, ROLLUP (origin, tail)""",
    ),
    "grouping sets": (
        """SELECT origin, dest, window_start, MAX(delay) AS worst FROM TUMBLE(flights, scheduled, '1 hour')
           GROUP BY window_start, GROUPING SETS ((origin), (dest), ())""",
        f"""SELECT origin, dest, w, MAX(delay) FROM (SELECT *, {HOUR} AS w FROM flights) GROUP BY w, GROUPING SETS ((origin), (dest), ())""",
    ),
    "places by number": (
        "SELECT flight, place, number FROM flights LATERAL VIEW posexplode(array(origin, dest)) t AS number, place",
        "SELECT flight, origin, 0 FROM flights UNION ALL SELECT flight, dest, 1 FROM flights",
    ),
    "places by ordinal": (
        "SELECT flight, place, n FROM flights CROSS JOIN UNNEST(array(origin, dest)) WITH ORDINALITY AS t(place, n)",
        "SELECT flight, origin, 1 FROM flights UNION ALL SELECT flight, dest, 2 FROM flights",
    ),
    "any of an array": (
        "SELECT flight, n FROM (SELECT flight, size(filter(array(origin, dest), x -> x > 'F')) AS n FROM flights WHERE exists(array(tail, dest), x -> x = 'N1')) WHERE n > 1",
        "SELECT flight, n FROM (SELECT flight, len(list_filter([origin, dest], lambda x: x > 'F')) AS n FROM flights WHERE tail = 'N1') WHERE n > 1",
    ),
    "lists in an order": (
        """SELECT origin, LISTAGG(tail, '+') WITHIN GROUP (ORDER BY tail) AS tails, STRING_AGG(DISTINCT dest, ',' ORDER BY dest DESC) AS dests,
                  ARRAY_AGG(delay ORDER BY delay DESC)[0] AS worst FROM flights GROUP BY origin EMIT CHANGES""",
        """SELECT origin, STRING_AGG(tail, '+' ORDER BY tail), STRING_AGG(DISTINCT dest, ',' ORDER BY dest DESC), MAX(delay)
           FROM flights GROUP BY origin""",
    ),
    "all but the key of a join": (
        "SELECT f.flight, w.* EXCEPT (origin, observed) FROM flights AS f JOIN weather AS w ON f.origin = w.origin EMIT CHANGES",
        "SELECT f.flight, w.* EXCLUDE (origin, observed) FROM flights AS f JOIN weather AS w ON f.origin = w.origin",
    ),
    "weather in the hour before": (
        """SELECT f.flight, w.temp FROM flights AS f LEFT JOIN weather AS w
           ON f.origin = w.origin AND w.observed > f.scheduled - INTERVAL '1' HOUR AND w.observed <= f.scheduled""",
        """SELECT f.flight, w.temp FROM flights AS f LEFT JOIN weather AS w
           ON f.origin = w.origin AND w.observed > f.scheduled - INTERVAL '1' HOUR AND w.observed <= f.scheduled""",
    ),
    "weather as of the departure": (
        "SELECT f.flight, w.temp FROM flights AS f JOIN weather FOR SYSTEM_TIME AS OF f.scheduled AS w ON f.origin = w.origin",
        "SELECT f.flight, w.temp FROM flights AS f ASOF JOIN weather AS w ON f.origin = w.origin AND f.scheduled >= w.observed",
    ),
    "weather of the hour": (
        """SELECT origin, window_start, f.flight, w.temp FROM (SELECT * FROM TUMBLE(flights, scheduled, '1 hour')) AS f
           FULL JOIN (SELECT * FROM TUMBLE(weather, observed, '1 hour')) AS w USING (origin, window_start, window_end)""",
        f"""SELECT origin, window_start, f.flight, w.temp FROM (SELECT *, {HOUR} AS window_start FROM flights) AS f
           FULL JOIN (SELECT *, time_bucket(INTERVAL '1 hour', observed) AS window_start FROM weather) AS w USING (origin, window_start)""",
    ),
    "weather of the hour of a missing flight": (
        """SELECT f.window_start, w.window_start AS hour, window_start AS begin, f.flight, w.temp FROM (SELECT * FROM TUMBLE(flights, scheduled, '1 hour')) AS f
           FULL JOIN (SELECT * FROM TUMBLE(weather, observed, '1 hour')) AS w USING (origin, window_start, window_end)""",
        f"""SELECT f.window_start, w.window_start, COALESCE(f.window_start, w.window_start), f.flight, w.temp FROM (SELECT *, {HOUR} AS window_start FROM flights) AS f
           FULL JOIN (SELECT *, time_bucket(INTERVAL '1 hour', observed) AS window_start FROM weather) AS w USING (origin, window_start)""",
    ),
    "weather as of the departure if warm": (
        """SELECT f.flight, w.origin, w.temp FROM flights AS f LEFT JOIN weather FOR SYSTEM_TIME AS OF f.scheduled AS w
           ON f.origin = w.origin AND w.temp > 25 AND f.delay < w.temp""",
        """SELECT flight, CASE WHEN warm THEN place END, CASE WHEN warm THEN temp END FROM (
           SELECT f.flight, w.origin AS place, w.temp, w.temp > 25 AND f.delay < w.temp AS warm
           FROM flights AS f ASOF LEFT JOIN weather AS w ON f.origin = w.origin AND f.scheduled >= w.observed)""",
    ),
    "weather at once": (
        "SELECT origin, flight, temp FROM flights AS f LEFT JOIN weather FOR SYSTEM_TIME AS OF f.scheduled AS w USING (origin)",
        "SELECT f.origin, flight, temp FROM flights AS f ASOF LEFT JOIN weather AS w ON f.origin = w.origin AND f.scheduled >= w.observed",
    ),
    "over rows": (
        """SELECT flight, SUM(delay) OVER w AS total, AVG(delay) OVER (w RANGE INTERVAL '1' HOUR PRECEDING) AS mean, LAG(flight, 2, -1) OVER w AS before,
                  COUNT(DISTINCT tail) OVER (PARTITION BY origin ORDER BY scheduled ROWS 10 PRECEDING) AS tails
           FROM flights WINDOW w AS (PARTITION BY origin ORDER BY scheduled)""",
        """SELECT flight, SUM(delay) OVER w, AVG(delay) OVER (PARTITION BY origin ORDER BY scheduled RANGE INTERVAL '1' HOUR PRECEDING),
                  LAG(flight, 2, -1) OVER v, COUNT(DISTINCT tail) OVER (PARTITION BY origin ORDER BY scheduled, flight ROWS 10 PRECEDING)
           FROM flights WINDOW w AS (PARTITION BY origin ORDER BY scheduled), v AS (PARTITION BY origin ORDER BY scheduled, flight)""",
    ),
    "last of the hour if late": (
        """SELECT flight, origin, delay FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, origin ORDER BY flight DESC) AS rn
           FROM TUMBLE(flights, scheduled, '1 hour')) WHERE rn = 1 AND delay > 10""",
        f"""SELECT flight, origin, delay FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {HOUR}, origin ORDER BY flight DESC) AS rn
           FROM flights) WHERE rn = 1 AND delay > 10""",
    ),
    "last late one of the hour": (
        """SELECT flight, origin, delay FROM TUMBLE(flights, scheduled, '1 hour') WHERE delay > 10
           QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end, origin ORDER BY flight DESC) = 1""",
        f"""SELECT flight, origin, delay FROM flights WHERE delay > 10 QUALIFY ROW_NUMBER() OVER (PARTITION BY {HOUR}, origin ORDER BY flight DESC) = 1""",
    ),
    "rows with their hour": (
        """SELECT f.flight, window_start, f.window_end, window_time AS at, delay * 2 AS double
           FROM (SELECT * FROM TUMBLE(flights, scheduled, INTERVAL '1' HOUR, INTERVAL '10' MINUTES)) AS f WHERE delay > 10""",
        """SELECT flight, w, w + INTERVAL '1 hour', w + INTERVAL '1 hour' - INTERVAL '1 millisecond', delay * 2
           FROM (SELECT *, time_bucket(INTERVAL '1 hour', scheduled, TIMESTAMPTZ '2000-01-01 00:10:00+00') AS w FROM flights) WHERE delay > 10""",
    ),
    "flights and any weather": (
        """SELECT f.tail, w.origin, w.temp FROM flights AS f FULL JOIN weather AS w
           ON f.origin = w.origin AND f.delay < w.temp AND f.flight < w.temp EMIT CHANGES""",
        """SELECT f.tail, w.origin, w.temp FROM flights AS f FULL JOIN weather AS w
           ON f.origin = w.origin AND f.delay < w.temp AND f.flight < w.temp""",
    ),
    "growing windows": (
        """SELECT origin, window_start, window_end, COUNT(*) AS n, AVG(delay) AS mean
           FROM TABLE(CUMULATE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '30' MINUTES, INTERVAL '2' HOURS)) GROUP BY origin, window_start, window_end""",
        """SELECT origin, s, s + n * INTERVAL '30 minutes', COUNT(*), AVG(delay)
           FROM (SELECT *, time_bucket(INTERVAL '2 hours', scheduled, TIMESTAMPTZ '1970-01-01 00:00:00+00') AS s FROM flights), (SELECT unnest([1, 2, 3, 4]) AS n)
           WHERE scheduled < s + n * INTERVAL '30 minutes' GROUP BY ALL""",
    ),
    "rows of windows": (
        "SELECT flight, scheduled, window_end, place FROM HOP(flights, scheduled, '1 hour', '2 hours') CROSS JOIN UNNEST(array(origin, dest)) AS p(place)",
        f"""SELECT flight, scheduled, {HOUR} + n * INTERVAL '1 hour', unnest([origin, dest]) FROM flights, (SELECT unnest([1, 2]) AS n)""",
    ),
    "three of the hour": (
        """SELECT * FROM (SELECT window_end, flight, RANK() OVER (PARTITION BY window_start, window_end, origin ORDER BY delay DESC) AS r
           FROM TUMBLE(flights, scheduled, '1 hour')) WHERE r <= 2""",
        f"""SELECT * FROM (SELECT {HOUR} + INTERVAL '1 hour', flight, RANK() OVER (PARTITION BY {HOUR}, origin ORDER BY delay DESC NULLS LAST) AS r
           FROM flights) WHERE r <= 2""",
    ),
    "three so far": (
        """SELECT origin, flight, delay, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC, dest) AS rn FROM flights)
           WHERE rn <= 3 EMIT CHANGES""",
        "SELECT origin, flight, delay, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST, dest, flight) AS rn FROM flights QUALIFY rn <= 3",
    ),
    "each pair once": (
        "SELECT DISTINCT origin, dest FROM flights EMIT CHANGES",
        "SELECT DISTINCT origin, dest FROM flights",
    ),
    "both tables": (
        "SELECT origin AS place FROM flights WHERE delay > 30 UNION ALL SELECT origin FROM weather",
        "SELECT origin FROM flights WHERE delay > 30 UNION ALL SELECT origin FROM weather",
    ),
    "flights that it was warm for": (
        """SELECT f.flight, f.tail FROM flights AS f LEFT SEMI JOIN weather AS w
           ON f.origin = w.origin AND w.temp > f.delay AND f.flight < w.temp EMIT CHANGES""",
        """SELECT flight, tail FROM flights AS f
           WHERE EXISTS (SELECT 1 FROM weather AS w WHERE f.origin = w.origin AND w.temp > f.delay AND f.flight < w.temp)""",
    ),
    "flights that it was never warm for": (
        """SELECT f.flight, f.tail FROM flights AS f LEFT ANTI JOIN weather AS w
           ON f.origin = w.origin AND w.temp > f.delay AND f.flight < w.temp EMIT CHANGES""",
        """SELECT flight, tail FROM flights AS f
           WHERE NOT EXISTS (SELECT 1 FROM weather AS w WHERE f.origin = w.origin AND w.temp > f.delay AND f.flight < w.temp)""",
    ),
    "over rows in another order": (
        """SELECT flight, SUM(flight) OVER (PARTITION BY origin ORDER BY delay DESC, flight ROWS 2 PRECEDING) AS total
           FROM flights WHERE delay IS NOT NULL EMIT CHANGES""",
        """SELECT flight, SUM(flight) OVER (PARTITION BY origin ORDER BY delay DESC, flight ROWS 2 PRECEDING)
           FROM flights WHERE delay IS NOT NULL""",
    ),
    "later and later": (
        """SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY origin ORDER BY scheduled, flight
           MEASURES A.flight AS flight, B.flight AS next AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '1' HOUR DEFINE B AS B.delay > A.delay) AS m""",
        """SELECT origin, flight, next FROM (SELECT *, LEAD(flight) OVER w AS next, LEAD(delay) OVER w AS more, LEAD(scheduled) OVER w AS then_at
           FROM flights WINDOW w AS (PARTITION BY origin ORDER BY scheduled, flight))
           WHERE more > delay AND then_at < scheduled + INTERVAL '1 hour'""",
    ),
}


COUNTS = """SELECT origin, window_start AS begin, window_end AS ends, COUNT(*) AS n
            FROM HOP(flights, scheduled, '20 minutes', '1 hour') GROUP BY origin, window_start, window_end"""
COUNTED = """SELECT origin, w AS begin, w + INTERVAL '1 hour' AS ends, COUNT(*) AS n
             FROM (SELECT *, time_bucket(INTERVAL '20 minutes', scheduled) - i * INTERVAL '20 minutes' AS w FROM flights, range(3) AS r(i)) GROUP BY ALL"""
QUERIES |= {
    "different pairs so far": (
        "SELECT DISTINCT f.origin, w.temp FROM flights AS f LEFT JOIN weather AS w ON f.origin = w.origin AND f.delay < w.delay EMIT CHANGES",
        "SELECT DISTINCT f.origin, w.temp FROM flights AS f LEFT JOIN weather AS w ON f.origin = w.origin AND f.delay < w.delay",
    ),
    "most of each window": (
        f"""SELECT a.origin, a.begin, a.n FROM ({COUNTS}) AS a
            JOIN (SELECT begin, ends, MAX(n) AS most FROM ({COUNTS}) GROUP BY begin, ends) AS m
            ON a.begin = m.begin AND a.ends = m.ends AND a.n = m.most""",
        f"WITH c AS ({COUNTED}) SELECT origin, begin, n FROM c WHERE n = (SELECT MAX(d.n) FROM c AS d WHERE d.begin = c.begin)",
    ),
    "three tables": (
        """SELECT a.flight, b.flight AS next, w.temp FROM flights AS a
           JOIN flights AS b ON a.origin = b.origin AND b.scheduled > a.scheduled AND b.scheduled <= a.scheduled + INTERVAL '30' MINUTE
           JOIN weather AS w ON w.origin = a.origin AND w.observed BETWEEN a.scheduled - INTERVAL '40' MINUTE AND a.scheduled""",
        """SELECT a.flight, b.flight, w.temp FROM flights AS a
           JOIN flights AS b ON a.origin = b.origin AND b.scheduled > a.scheduled AND b.scheduled <= a.scheduled + INTERVAL '30' MINUTE
           JOIN weather AS w ON w.origin = a.origin AND w.observed BETWEEN a.scheduled - INTERVAL '40' MINUTE AND a.scheduled""",
    ),
    "weather of hours": (
        """SELECT f.origin, f.n, w.warmest, w.window_end FROM
           (SELECT origin, window_start, window_end, COUNT(*) AS n FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY origin, window_start, window_end) AS f
           LEFT JOIN (SELECT origin, window_start, window_end, MAX(temp) AS warmest FROM TUMBLE(weather, observed, '1 hour') GROUP BY origin, window_start, window_end) AS w
           ON f.origin = w.origin AND f.window_start = w.window_start AND f.window_end = w.window_end""",
        f"""SELECT f.origin, f.n, w.warmest, w.h FROM (SELECT origin, {HOUR} + INTERVAL '1 hour' AS h, COUNT(*) AS n FROM flights GROUP BY ALL) AS f
            LEFT JOIN (SELECT origin, time_bucket(INTERVAL '1 hour', observed) + INTERVAL '1 hour' AS h, MAX(temp) AS warmest FROM weather GROUP BY ALL) AS w
            ON f.origin = w.origin AND f.h = w.h""",
    ),
    "counts so far of hours": (
        """SELECT origin, window_end, SUM(n) OVER (PARTITION BY origin ORDER BY window_time ROWS UNBOUNDED PRECEDING) AS total FROM
           (SELECT origin, window_end, window_time, COUNT(*) AS n FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY origin, window_start, window_end)""",
        f"""SELECT origin, h, SUM(n) OVER (PARTITION BY origin ORDER BY h) FROM
            (SELECT origin, {HOUR} + INTERVAL '1 hour' AS h, COUNT(*) AS n FROM flights GROUP BY ALL)""",
    ),
    "tiles and shares": (
        """SELECT flight, NTILE(3) OVER (PARTITION BY origin ORDER BY flight DESC) AS tile, CUME_DIST() OVER (PARTITION BY dest ORDER BY tail) AS share, SUM(delay) OVER () AS total,
                  MAX(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS later FROM flights EMIT CHANGES""",
        """SELECT flight, NTILE(3) OVER (PARTITION BY origin ORDER BY flight DESC), CUME_DIST() OVER (PARTITION BY dest ORDER BY tail NULLS FIRST), SUM(delay) OVER (),
                  MAX(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) FROM flights""",
    ),
    "ranks of groups": (
        """SELECT origin, SUM(DISTINCT delay) AS different, AVG(DISTINCT delay) AS mean, COUNT(DISTINCT dest, delay) AS pairs, RANK() OVER (ORDER BY SUM(DISTINCT delay)) AS place
           FROM flights GROUP BY origin EMIT CHANGES""",
        """SELECT origin, SUM(DISTINCT delay), AVG(DISTINCT delay), COUNT(DISTINCT (dest, delay)) FILTER (WHERE delay IS NOT NULL), RANK() OVER (ORDER BY SUM(DISTINCT delay))
           FROM flights GROUP BY origin""",
    ),
    "last of all pairs": (
        """SELECT f.origin, flight FROM flights AS f NATURAL JOIN (SELECT origin, MAX(temp) AS most FROM weather GROUP BY origin) AS w
           ORDER BY w.most, f.delay DESC NULLS LAST, 2 LIMIT 5 EMIT CHANGES""",
        """SELECT f.origin, flight FROM flights AS f NATURAL JOIN (SELECT origin, MAX(temp) AS most FROM weather GROUP BY origin) AS w
           ORDER BY w.most NULLS FIRST, f.delay DESC NULLS LAST, 2 LIMIT 5""",
    ),
    "origins with as many": (
        "SELECT n, COUNT(*) AS pairs, MAX(dest) AS last FROM (SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY origin, dest) GROUP BY n EMIT CHANGES",
        "SELECT n, COUNT(*), MAX(dest) FROM (SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY ALL) GROUP BY n",
    ),
}

QUERIES |= {
    "first rows and tiles": (
        """SELECT origin AS k, 'growing' AS what, COUNT(*) AS n FROM flights GROUP BY origin
           UNION ALL SELECT origin, 'first', flight FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST, flight) AS rn FROM flights) WHERE rn <= 2
           UNION ALL SELECT origin, 'tile', NTILE(4) OVER (PARTITION BY origin ORDER BY flight) FROM flights
           EMIT CHANGES""",
        """SELECT origin, 'growing', COUNT(*) FROM flights GROUP BY origin
           UNION ALL SELECT origin, 'first', flight FROM flights QUALIFY ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST, flight) <= 2
           UNION ALL SELECT origin, 'tile', NTILE(4) OVER (PARTITION BY origin ORDER BY flight) FROM flights""",
    ),
    "around and crossed": (
        """SELECT origin AS k, 'around' AS what, SUM(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM flights
           UNION ALL SELECT v.code, 'crossed', COUNT(f.flight) FROM (VALUES ('EWR'), ('XXX')) AS v(code) CROSS JOIN (SELECT flight FROM flights WHERE flight < 3) AS f GROUP BY v.code
           EMIT CHANGES""",
        """SELECT origin, 'around', SUM(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM flights
           UNION ALL SELECT v.code, 'crossed', 3 FROM (VALUES ('EWR'), ('XXX')) AS v(code)""",
    ),
    "weather of each flight": (
        """SELECT f.flight, t.n, size(t.temps) AS temps, u.temp FROM flights AS f,
           LATERAL (SELECT COUNT(*) AS n, COLLECT_LIST(w.temp) AS temps FROM weather AS w WHERE w.origin = f.origin AND w.delay = f.delay) AS t
           LEFT JOIN LATERAL (SELECT w.temp FROM weather AS w WHERE w.origin = f.origin ORDER BY w.observed DESC LIMIT 1) AS u ON TRUE EMIT CHANGES""",
        """SELECT f.flight, t.n, t.temps, u.temp FROM flights AS f,
           LATERAL (SELECT COUNT(*) AS n, COUNT(w.temp) AS temps FROM weather AS w WHERE w.origin = f.origin AND w.delay = f.delay) AS t
           LEFT JOIN LATERAL (SELECT w.temp FROM weather AS w WHERE w.origin = f.origin ORDER BY w.observed DESC LIMIT 1) AS u ON TRUE""",
    ),
    "second page": (
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5 OFFSET 4 EMIT CHANGES",
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5 OFFSET 4",
    ),
    "lives": (
        "SELECT /*+ STATE_TTL('flights' = '20 min') */ origin, COUNT(*) AS n, SUM(delay) AS s FROM flights GROUP BY origin EMIT CHANGES",
        """SELECT origin, COUNT(*), SUM(delay) FROM (SELECT *, SUM(CASE WHEN gap THEN 1 ELSE 0 END) OVER (PARTITION BY origin ORDER BY scheduled, flight) AS life FROM (
           SELECT *, scheduled - LAG(scheduled) OVER (PARTITION BY origin ORDER BY scheduled, flight) > INTERVAL '20 minutes' AS gap FROM flights)) GROUP BY origin, life""",
    ),
    "sorted": (
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 7 EMIT FINAL",
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 7",
    ),
}


def check(engine: Computing, folder: Path, case: str) -> None:
    """A statement over landed rows, as a stream in commits and then bounded, has DuckDB's rows."""
    sql, question = QUERIES[case]
    operator = sql_operator(case.replace(" ", "_"), sql, inputs=TABLES)
    rows = {"flights": flights(1), "weather": weather(1)}
    contracts = {"flights": (Flight, "scheduled"), "weather": (Weather, "observed")}
    lake = Lake(str(folder))
    for read in operator.inputs:
        contract, time = contracts[read.table]
        log = log_of(contract, rows[read.table], time)
        log.end()
        for first, last in pairwise([0, len(log.entries) // 3, len(log.entries)]):
            land(lake, operator, log, first, last, name=read.name)
    names = operator.outputs[0].schema.names

    def results() -> list[tuple[object, ...]]:
        return plain([tuple(row[name] for name in names) for row in final([outputs(lake, operator)[""]])])

    def last_values() -> list[tuple[object, ...]]:
        current = operator.outputs[0].current
        if current is None:
            return results()
        table = DeltaTable(lake.output(current.table)).to_pyarrow_table()
        return plain([tuple(row[name] for name in names) for row in table.to_pylist()])

    expected = plain(oracle(question, rows))
    assert expected
    engine.run_unbounded(operator, lake, until_caught_up=True, files_per_batch=1)
    assert results() == last_values() == expected
    engine.run_bounded(operator, lake, Interval(), force=True)
    assert results() == last_values() == expected


SHAPES = {
    "crossed": (
        "SELECT f.flight, w.temp FROM flights AS f CROSS JOIN weather AS w WHERE f.flight < 5 EMIT CHANGES",
        "SELECT f.flight, w.temp FROM flights AS f CROSS JOIN weather AS w WHERE f.flight < 5",
    ),
    "first": (
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 3 EMIT CHANGES",
        "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 3",
    ),
    "in_order": (
        "SELECT delay, flight FROM flights ORDER BY delay DESC NULLS LAST, flight EMIT FINAL",
        "SELECT delay, flight FROM flights",
    ),
}


def check_shapes(engine: Computing, folder: Path) -> None:
    """A cross join, first rows and all rows in an order have DuckDB's rows in a bounded run, the last of them in this order by ``_sequence``."""
    rows, lake = {"flights": flights(1, 20), "weather": weather(1, 5)}, Lake(str(folder))
    for name, (contract, time) in {"flights": (Flight, "scheduled"), "weather": (Weather, "observed")}.items():
        log = log_of(contract, rows[name], time)
        log.end()
        land(lake, sql_operator("landed", f"SELECT * FROM {name}", inputs=TABLES), log, 0, len(log.entries), name=name)
    for name, (sql, question) in SHAPES.items():
        operator = sql_operator(name, sql, inputs=TABLES)
        engine.run_bounded(operator, lake, Interval())
        table = outputs(lake, operator)[""]
        names = operator.outputs[0].schema.names
        answer = [tuple(row[column] for column in names) for row in final([table])]
        assert plain(answer) == plain(oracle(question, rows))
    in_order = [(row["delay"], row["flight"]) for row in table.sort_by("_sequence").to_pylist() if row["_kind"] == 0]
    assert in_order == sorted(in_order, key=lambda row: (row[0] is None, -(row[0] or 0), row[1]))
    assert len(in_order) == len(rows["flights"])
