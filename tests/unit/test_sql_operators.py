"""Statements and the fluent form of the same steps are one version; what cannot be said is refused at its place, with what can."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from sql_tables import TABLES, Flight, Weather

import operators.aircraft
import operators.flights
import operators.weather
from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    DeltaTable,
    Files,
    Session,
    Sliding,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    count_distinct,
    function,
    max_by,
    mean,
    min_by,
    operator,
    sql_operator,
    sql_operators,
)
from floodmark import max as max_of
from floodmark import sum as total
from floodmark.compiler.explain import explain
from floodmark.core.errors import DefinitionError, FloodmarkError
from floodmark.spec.graph.operator import Operator
from floodmark.testing import Case

HOURS = "TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))"
SHIPPED = {"flights": operators.flights.Flight, "weather": operators.weather.Weather}


def stated(sql: str, name: str = "x", **settings: object) -> Operator:
    return sql_operator(name, sql, inputs=TABLES, **settings)  # type: ignore[arg-type]


def refusal(sql: str, **settings: object) -> str:
    with pytest.raises(FloodmarkError) as raised:
        stated(sql, **settings)
    return str(raised.value)


@pytest.mark.feature("Q4", "Q7")
def test_the_shipped_operators_as_statements_have_the_versions_of_their_fluent_forms() -> None:
    hourly = sql_operator(
        "hourly_departures",
        f"""
        SELECT origin, window_start, window_end,
               COUNT(*) AS departures, -- those that left
               AVG(dep_delay) AS mean_delay
        FROM {HOURS}
        WHERE dep_delay IS NOT NULL
        GROUP BY origin, window_start, window_end
        """,
        inputs=SHIPPED,
        lateness="2 hours",
        late="side_output",
    )
    busiest = sql_operator(
        "busiest_hour",
        """
        SELECT origin, window_start, window_end, MAX(departures) AS busiest, COUNT(*) AS hours
        FROM TABLE(CALENDAR(TABLE departures, DESCRIPTOR(window_time), 'day', 'America/New_York'))
        GROUP BY origin, window_start, window_end
        """,
        inputs={"departures": hourly},
        lateness="1 day",
    )
    weather = sql_operator(
        "weather_at_departure",
        """
        WITH departing AS (SELECT scheduled, origin, dest, carrier, flight, dep_delay FROM flights),
             seen AS (SELECT origin, observed, temp, wind_speed, visib FROM weather)
        SELECT f.origin, f.scheduled, f.dest, f.carrier, f.flight, f.dep_delay, w.observed, w.temp, w.wind_speed, w.visib
        FROM departing AS f
        LEFT JOIN seen FOR SYSTEM_TIME AS OF f.scheduled AS w ON f.origin = w.origin
        """,
        inputs=SHIPPED,
        lateness="1 day",
    )
    rolling = sql_operator(
        "rolling_departures",
        """
        SELECT origin, window_start, window_end, COUNT(*) AS departures, MAX(dep_delay) AS max_delay
        FROM HOP(flights, scheduled, INTERVAL '15 minutes', INTERVAL '1 hour') WHERE dep_delay IS NOT NULL
        GROUP BY origin, window_start, window_end
        """,
        inputs=SHIPPED,
    )
    pairs = sql_operator(
        "connection_pairs",
        """
        WITH cancelled AS (SELECT scheduled, origin, dest, carrier, flight FROM flights WHERE dep_delay IS NULL),
             flown AS (SELECT scheduled, origin, dest, carrier, flight, dep_delay FROM flights WHERE dep_delay IS NOT NULL)
        SELECT c.origin, c.dest, c.scheduled, c.carrier, c.flight, next.scheduled AS next_scheduled, next.carrier AS next_carrier,
               next.flight AS next_flight, next.dep_delay AS next_dep_delay
        FROM cancelled AS c LEFT JOIN flown AS next ON c.origin = next.origin AND c.dest = next.dest
             AND next.scheduled BETWEEN c.scheduled + INTERVAL '1 ms' AND c.scheduled + INTERVAL '4' HOUR
        """,
        inputs=SHIPPED,
    )
    assert hourly.fingerprint == operators.flights.hourly_departures.fingerprint
    assert busiest.fingerprint == operators.flights.busiest_hour.fingerprint
    assert weather.fingerprint == operators.aircraft.weather_at_departure.fingerprint
    assert rolling.fingerprint == operators.flights.rolling_departures.fingerprint
    assert pairs.fingerprint == operators.aircraft.connection_pairs.fingerprint


@operator
def every_window(flights: Stream[Flight]) -> Stream:
    keyed = flights.filter("delay > 3").key_by("origin")
    return keyed.window(Tumbling("1 hour")).aggregate(n=count(), delays=total("delay"))


@operator
def slides(flights: Stream[Flight]) -> Stream:
    return flights.key_by("origin").window(Sliding("1 hour", "15 minutes")).aggregate(tails=count_distinct("tail"))


@operator
def sessions(flights: Stream[Flight]) -> Stream:
    return flights.key_by("origin").window(Session("5 minutes")).aggregate(n=count())


@operator
def changing(flights: Stream[Flight]) -> Stream:
    return flights.key_by("origin").rolling(n=count())


@operator
def first_of_hour(flights: Stream[Flight]) -> Stream:
    keyed = flights.select("origin", "flight").key_by("origin")
    return keyed.window(Tumbling("1 hour")).aggregate(flight=min_by("flight", "flight"))


@operator
def renamed(flights: Stream[Flight]) -> Stream:
    counted = flights.window(Tumbling("1 hour")).aggregate(n=count(), best=max_by("dest", "delay"))
    return counted.filter("n > 5").select(begin="window_start", n="n", best="upper(best)")


@operator
def nearest(flights: Stream[Flight], weather: Stream[Weather]) -> Stream:
    left = flights.select("origin", "flight").key_by("origin")
    right = weather.select("origin", "temp").key_by("origin")
    return left.interval_join(right, "-59 minutes", "0 s", kind="left", include="upper")


@operator
def busiest_day(flights: Stream[Flight]) -> Stream:
    hours = flights.key_by("origin").window(Tumbling("1 hour")).aggregate(n=count())
    return hours.key_by("origin").window(Tumbling("1 day")).aggregate(most=max_of("n"))


@operator
def busiest_origin(flights: Stream[Flight]) -> Stream:
    hours = flights.key_by("origin").window(Tumbling("1 hour")).aggregate(n=count())
    return hours.filter("n > 1").window(Tumbling("1 hour")).aggregate(most=max_of("n"))


@operator
def most_so_far(flights: Stream[Flight]) -> Stream:
    hours = flights.key_by("origin").window(Tumbling("1 hour")).aggregate(n=count())
    return hours.key_by("origin").rolling(most=max_of("n"))


@operator
def means(flights: Stream[Flight]) -> Stream:
    hours = flights.key_by("origin").window(Tumbling("1 hour")).aggregate(n=count())
    return hours.key_by("origin").over(rows=3, mean_n=mean("n"))


@operator
def once(flights: Stream[Flight]) -> Stream:
    return flights.key_by("flight").deduplicate("1 day", order="event_time").select(*Flight.model_fields)


COUNTED = (
    f"SELECT origin, window_start, window_end, COUNT(*) AS n FROM {HOURS} GROUP BY origin, window_start, window_end"
)
TWINS = {
    "tumbling": (every_window, f"SELECT origin, window_start, window_end, COUNT(*) AS n, SUM(delay) AS delays FROM {HOURS} WHERE delay > 3 GROUP BY origin, window_start, window_end", {}),
    "tumbling in GROUP BY": (every_window, "SELECT origin, window_start, window_end, COUNT(1) AS n, SUM(delay) AS delays FROM flights WHERE delay > 3 GROUP BY TUMBLE(scheduled, INTERVAL '1' HOUR), origin", {}),
    "tumbling of Spark": (every_window, "SELECT f.origin, window.start AS window_start, window.end AS window_end, COUNT(*) AS n, SUM(delay) AS delays FROM flights AS f WHERE f.delay > 3 GROUP BY window(f.scheduled, '1 hour'), f.origin", {}),
    "tumbling of a subquery": (every_window, "SELECT origin, window_start, window_end, COUNT(*) AS n, SUM(delay) AS delays FROM TUMBLE((SELECT * FROM flights WHERE delay > 3), scheduled, INTERVAL '60' MINUTE) GROUP BY 1, window_start, window_end EMIT ON WINDOW CLOSE", {}),
    "sliding": (slides, "SELECT origin, window_start, window_end, COUNT(DISTINCT tail) AS tails FROM TABLE(HOP(DATA => TABLE flights, TIMECOL => DESCRIPTOR(scheduled), SLIDE => INTERVAL '15' MINUTE, SIZE => INTERVAL '1' HOUR)) GROUP BY origin, window_start, window_end", {}),
    "sliding of Spark": (slides, "SELECT origin, window_start, window_end, COUNT(DISTINCT tail) AS tails FROM flights GROUP BY origin, window(scheduled, '1 hour', '15 minutes')", {}),
    "session": (sessions, "SELECT origin, window_start, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE flights PARTITION BY origin, DESCRIPTOR(scheduled), INTERVAL '5' MINUTE)) GROUP BY origin, window_start, window_end", {}),
    "session of Spark": (sessions, "SELECT origin, session_window.start AS window_start, session_window.end AS window_end, COUNT(*) AS n FROM flights GROUP BY session_window(scheduled, '5 minutes'), origin", {}),
    "changing results": (changing, "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin EMIT CHANGES", {}),
    "HAVING and expressions": (renamed, f"SELECT window_start AS begin, COUNT(*) AS n, UPPER(MAX_BY(dest, delay)) AS best FROM {HOURS} GROUP BY window_start, window_end HAVING COUNT(*) > 5", None),
    "first of a window": (first_of_hour, "SELECT origin, window_start, window_end, flight FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, origin ORDER BY flight) AS rn FROM TUMBLE((SELECT origin, flight FROM flights), _event_time, '1 hour')) WHERE rn = 1", {}),
    "interval join": (nearest, "SELECT f.origin, flight, temp FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.observed > f.scheduled - INTERVAL '59' MINUTE AND f.scheduled >= w.observed", {}),
    "a window of a window": (busiest_day, f"SELECT origin, window_start, window_end, MAX(n) AS most FROM TUMBLE(({COUNTED}), _event_time, '1 day') GROUP BY origin, window_start, window_end", {}),
    "over the results of a window": (busiest_origin, f"WITH h AS ({COUNTED}) SELECT window_start, window_end, MAX(n) AS most FROM h WHERE n > 1 GROUP BY window_start, window_end", {}),
    "changing results behind a window": (most_so_far, f"SELECT origin, MAX(n) AS most FROM ({COUNTED}) GROUP BY origin EMIT CHANGES", {}),
    "over results": (means, f"SELECT origin, window_start, window_end, n, AVG(n) OVER (PARTITION BY origin ORDER BY _event_time ROWS 3 PRECEDING) AS mean_n FROM ({COUNTED})", {}),
    "first within a day": (once, "SELECT scheduled, origin, dest, flight, tail, delay FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY scheduled) AS rn FROM flights) WHERE rn = 1", {"within": "1 day"}),
}  # fmt: skip


@pytest.mark.feature("Q3", "Q4")
@pytest.mark.parametrize("case", TWINS)
def test_a_statement_is_the_version_of_its_fluent_form(case: str) -> None:
    fluent, sql, settings = TWINS[case]
    written = stated(sql, fluent.name, **(settings or {}))
    if settings is None:  # names of columns that no column has stand in the steps between
        assert written.outputs[0].schema == fluent.outputs[0].schema
        return
    assert written.canonical() == fluent.canonical()
    assert written == fluent
    assert explain(written)[0] == explain(fluent)[0]


def test_a_comment_and_another_layout_are_no_other_version() -> None:
    one = stated("SELECT origin, delay + 1 AS d FROM flights WHERE delay > 3 AND tail IS NULL")
    other = stated(
        "SELECT /* first */ origin,\n   delay + 1 AS d\nFROM flights -- all\nWHERE delay > 3\n  AND tail IS NULL;"
    )
    assert one.fingerprint == other.fingerprint


REFUSED = {
    "SELECT orgin FROM flights": r"line 1, column 8: .*'orgin'\. Did you mean 'origin'",
    "SELECT origin,\n  f.dst FROM flights f": r"line 2, column 3: .*a column of f, got 'f.dst'. Did you mean 'dest'",
    "SELECT g.origin FROM flights f": r"got 'g.origin'. Tables here: f",
    "SELECT delay FROM flights f JOIN weather w ON f.origin = w.origin AND w.observed BETWEEN f.scheduled - INTERVAL '1' HOUR AND f.scheduled": r"column 8: .*'delay', which several tables have. Write f.delay or w.delay",
    "SELECT origin, COUNT(*) FROM flights GROUP BY origin": r"DEFINITION-390 .*GROUP BY window\(ts, '1 hour'\).*EMIT CHANGES.*floodmark sql",
    "SELECT COUNT(*) FROM flights": "DEFINITION-390",
    "SELECT flight, v.* FROM flights LATERAL VIEW inline_outer() v AS a": "DEFINITION-382 .*several rows of one.*LATERAL VIEW",
    "SELECT flight, (SELECT explode(array(1, 2))) AS n FROM flights EMIT CHANGES": r"DEFINITION-382 .*column 24.*EXPLODE in a subquery that is one value.*CROSS JOIN UNNEST",
    "SELECT flight, (SELECT explode_outer(array(1, 2))) AS n FROM flights EMIT CHANGES": r"DEFINITION-382 .*column 24.*got EXPLODE_OUTER in a subquery that is one value",
    "SELECT flight, (SELECT inline_outer(array(struct(1, 2)))) AS n FROM flights EMIT CHANGES": "DEFINITION-382 .*got INLINE_OUTER in a subquery that is one value",
    "SELECT flight, (SELECT explode(array(1, 2))) AS n FROM flights": "DEFINITION-382 .*column 24.*EXPLODE, which makes several rows of one. Write it in FROM",
    "SELECT flight FROM flights WHERE flight IN (SELECT explode(array(1, 2)))": "EXPLODE, which makes several rows of one. Write it in FROM",
    "SELECT origin, FIRST(delay ORDER BY delay) AS t FROM flights AS f GROUP BY origin EMIT CHANGES": "DEFINITION-389 .*the order of other columns",
    "SELECT origin, LAST(f.delay ORDER BY delay) AS t FROM flights AS f GROUP BY origin EMIT CHANGES": "DEFINITION-389 .*the order of other columns",
    "SELECT origin, FIRST_VALUE(f.delay ORDER BY delay) AS t FROM flights AS f GROUP BY origin EMIT CHANGES": "DEFINITION-389 .*the order of other columns",
    "SELECT delay, origin, RANK() OVER (PARTITION BY origin ORDER BY delay) AS delay FROM flights EMIT CHANGES": "DEFINITION-393 .*'delay' twice",
    "SELECT origin, STRING_AGG(f.tail, ',' ORDER BY delay) AS t FROM flights AS f GROUP BY origin EMIT CHANGES": "DEFINITION-389 .*the order of other columns",
    f"SELECT origin, COUNT(*) AS n FROM {HOURS} GROUP BY origin": "DEFINITION-390 .*Add window_start, window_end to GROUP BY",
    f"SELECT COUNT(*) AS n FROM {HOURS}": "DEFINITION-390 .*Add window_start",
    "SELECT origin FROM flights; SELECT dest FROM flights": "DEFINITION-380 .*2 statements",
    f"SELECT dest, COUNT(*) AS n FROM {HOURS} GROUP BY origin, window_start": r"'dest', which is neither in GROUP BY",
    "SELECT window_start, COUNT(*) AS n FROM TUMBLE(flights, delay, '1 hour') GROUP BY window_start": r"DEFINITION-387 .*column 57.*'delay'.*Write DESCRIPTOR\(scheduled\)",
    "SELECT COUNT(*) AS n FROM TUMBLE(flights, scheduled, '1 month') GROUP BY window_start": "DEFINITION-001 .*a duration",
    "SELECT COUNT(*) AS n FROM TUMBLE(flights, scheduled) GROUP BY window_start": "DEFINITION-385",
    "WITH RECURSIVE r AS (SELECT origin FROM flights UNION ALL SELECT origin FROM r) SELECT * FROM r": "WITH RECURSIVE",
    "SELECT origin FROM flights ORDER BY origin": "ORDER BY. A stream has no last row",
    "SELECT origin FROM flights OFFSET 5": "OFFSET.*floodmark sql",
    "SELECT origin FROM flights ORDER BY origin LIMIT 5 OFFSET -1 EMIT CHANGES": "column 59: .*OFFSET by another number than a whole one from 0",
    "SELECT origin FROM flights LIMIT 5": "LIMIT.*floodmark sql",
    "SELECT origin FROM": "DEFINITION-381 .*the end of the statement",
    "SELEC origin FROM flights": "DEFINITION-381 .*column 14.*'FROM'",
    "SELECT origin + FROM flights": "an operand is missing",
    "DROP TABLE flights": "DROP. Tables are written by operators alone",
    "INSERT INTO y SELECT * FROM flights": "INSERT into 'y'. The result of this operator is the table x",
    "SELECT origin FROM fligths": "DEFINITION-394 .*'fligths'. Did you mean 'flights'",
    "SELECT origin FROM main.flights": "'main.flights'",
    "SELECT origin FROM `flights; DROP TABLE x`": "DEFINITION-394",
    "SELECT origin FROM flights WHERE origin IN (SELECT origin FROM weather)": "LEFT SEMI JOIN",
    "SELECT f.origin FROM flights f JOIN weather w ON f.origin = w.origin": "DEFINITION-392 .*Say how far apart",
    "SELECT o.größe FROM flights f JOIN weather w ON f.origin = w.origin AND w.observed = f.scheduled JOIN odd o ON o.at = f.scheduled": "DEFINITION-392 .*column 36.*a join with a bound on its state",
    "SELECT a.flight FROM flights a LEFT JOIN weather w ON a.origin = w.origin AND w.observed BETWEEN a.scheduled AND a.scheduled + INTERVAL '1' HOUR LEFT JOIN flights b ON a.dest = b.dest AND b.scheduled BETWEEN a.scheduled AND a.scheduled + INTERVAL '1' HOUR": "a time of a table joined before in a left join",
    "SELECT s, COUNT(*) AS n FROM (SELECT origin, window_start AS s, COUNT(*) AS n FROM SESSION(flights, scheduled, '1 hour') GROUP BY origin, window_start, window_end) AS q GROUP BY s": "DEFINITION-390",
    "SELECT f.origin FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.dest = w.origin AND w.observed BETWEEN f.scheduled AND f.scheduled + INTERVAL '1' HOUR": "another condition than keys and times",
    "SELECT f.origin FROM flights f CROSS JOIN weather w": r"a join with a key.*f.scheduled = w.observed",
    "SELECT f.origin FROM flights f JOIN weather w ON f.origin = w.origin AND w.observed > f.scheduled": "one bound of the time",
    "SELECT f.origin FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.delay > 3 AND w.observed = f.scheduled": "another condition than keys and times in a left join",
    "SELECT origin FROM flights UNION SELECT origin FROM weather": "Write UNION ALL",
    "SELECT origin FROM flights EXCEPT SELECT origin FROM weather": "LEFT ANTI JOIN",
    "SELECT origin, flight FROM flights UNION ALL SELECT origin, tail FROM flights": "DEFINITION-052",
    "SELECT fooo(origin) AS x FROM flights": "DEFINITION-142",
    "SELECT explode(array(1, 2)) AS x FROM flights": "flat_map",
    "SELECT COUNT(*) AS n FROM TABLE(CUMULATE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '7' HOUR, INTERVAL '1' DAY)) GROUP BY window_start": "a size that is a multiple of the step",
    "SELECT origin, origin FROM flights": "'origin' twice",
    f"SELECT STDDEV(DISTINCT delay) AS n FROM {HOURS} GROUP BY window_start": "DEFINITION-389 .*DISTINCT",
    f"SELECT SUM(MAX(delay)) AS n FROM {HOURS} GROUP BY window_start": "an aggregate in an aggregate",
    f"SELECT ARRAY_AGG(delay ORDER BY delay LIMIT 2) AS n FROM {HOURS} GROUP BY window_start": "LIMIT in an aggregate.*SLICE",
    f"SELECT ARRAY_AGG(DISTINCT delay LIMIT 2) AS n FROM {HOURS} GROUP BY window_start": "LIMIT in an aggregate",
    f"SELECT FIRST(delay) IGNORE NULLS AS n FROM {HOURS} GROUP BY window_start": "FIRST with IGNORE NULLS.*MIN_BY",
    f"SELECT FIRST(delay, true) AS n FROM {HOURS} GROUP BY window_start": "FIRST with IGNORE NULLS",
    f"SELECT MAX_BY(delay, dest) IGNORE NULLS AS n FROM {HOURS} GROUP BY window_start": "MAX_BY with IGNORE NULLS",
    "SELECT LAG(delay) RESPECT NULLS OVER (PARTITION BY origin ORDER BY scheduled) AS n FROM flights": "DEFINITION-382",
    f"SELECT ARRAY_AGG(delay) RESPECT NULLS AS n FROM {HOURS} GROUP BY window_start": "ARRAY_AGG with RESPECT NULLS",
    f"SELECT ARRAY_AGG(delay HAVING MAX dest) AS n FROM {HOURS} GROUP BY window_start": "DEFINITION-382 .*column .*HAVING MAX",
    f"SELECT BIT_XOR(delay) AS n FROM {HOURS} GROUP BY window_start": "DEFINITION-389",
    "SELECT origin, CORR(delay, flight) AS c FROM flights GROUP BY origin EMIT CHANGES": r"column 16: .*CORR\(delay, flight\)\. It is said by others",
    "SELECT flight,\n CURRENT_WATERMARK(scheduled) AS w FROM flights": "line 2, column 2: .*CURRENT_WATERMARK, which is no column.*side_output",
    "SELECT * FROM flights TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT 1 AS one": "a SELECT without FROM",
    "SELECT * FROM VALUES (1)": "VALUES without a table",
    "SELECT ? AS x FROM flights": "a parameter",
    "SELECT origin FROM flights WHERE COUNT(*) > 1": "an aggregate in WHERE",
    "SELECT origin AS _x FROM flights": "DEFINITION-050",
    "": "DEFINITION-380",
    "FROM flights |> WHERE delay > 3": r"got \|>",
    "SELECT f.origin FROM flights f NATURAL JOIN odd o EMIT CHANGES": "columns of one name in a NATURAL JOIN",
    "SELECT f.origin FROM flights f ASOF JOIN weather w ON f.origin = w.origin": "ASOF JOIN. Write the version that was valid",
    "SELECT f.origin FROM flights f WHERE f.delay > ALL (SELECT delay FROM weather) EMIT CHANGES": r"column 48: .*ALL rows of a subquery.*\(SELECT MAX\(y\) ...\)",
    "SELECT * EXCEPT (dst) FROM flights": "columns of \\* to leave out, got 'dst'. Did you mean 'dest'",
    "SELECT x.a FROM flights AS x(a, b, c, d, e, f, g) EMIT CHANGES": "names for the columns of the table.*7 names",
    "SELECT origin, flight FROM flights ORDER BY 9 LIMIT 5 EMIT CHANGES": "ORDER BY 9, which is no column of SELECT",
    "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin ORDER BY MAX(flight) LIMIT 2 EMIT CHANGES": "an aggregate in ORDER BY. Select it",
    "SELECT NTILE(4) OVER (PARTITION BY origin ORDER BY scheduled) AS q FROM flights": r"NTILE\(n\) of results that do not change.*EMIT CHANGES",
    "SELECT NTILE(x) OVER (PARTITION BY origin ORDER BY scheduled) AS q FROM flights EMIT CHANGES": "NTILE of another number",
    "SELECT CUME_DIST() OVER (PARTITION BY origin) AS q FROM flights EMIT CHANGES": "without ORDER BY",
    "SELECT SUM(delay) OVER (ORDER BY scheduled ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS q FROM flights": "a frame that does not end with the row, of results that do not change",
    "SELECT SUM(delay) OVER (ORDER BY flight GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS q FROM flights EMIT CHANGES": "GROUPS as a frame",
    "SELECT f.flight, t.n FROM flights AS f,\n LATERAL (SELECT COUNT(*) AS n FROM weather AS w WHERE w.origin = f.origin) AS t": "line 2, column .*LATERAL, a SELECT for each row, of results that do not change. Write a join",
    "SELECT f.flight FROM flights AS f, LATERAL (SELECT COUNT(*) AS n FROM weather AS w WHERE w.temp > f.delay) AS t EMIT CHANGES": "column 90: .*another condition with the rows before in LATERAL",
    "SELECT f.flight FROM flights AS f, LATERAL (SELECT COUNT(*) AS n FROM weather AS w WHERE f.delay + w.temp = 45) AS t EMIT CHANGES": "another condition with the rows before in LATERAL",
    "SELECT f.flight FROM flights AS f, LATERAL (SELECT DISTINCT w.temp FROM weather AS w WHERE w.origin = f.origin) AS t EMIT CHANGES": "LATERAL of another SELECT",
    "SELECT f.flight FROM flights AS f, LATERAL (SELECT w.temp FROM weather AS w WHERE w.origin = f.origin LIMIT 3) AS t EMIT CHANGES": "ORDER BY or LIMIT in another LATERAL",
    "SELECT * FROM flights AS f, LATERAL (SELECT MAX(w.temp) AS m FROM weather AS w WHERE w.origin = f.origin) AS t EMIT CHANGES": "beside LATERAL .*Name the columns",
    "SELECT f.flight, (SELECT COALESCE(MAX(w.temp), 0) FROM weather AS w WHERE w.origin = f.origin) AS m FROM flights AS f EMIT CHANGES": r"may have a value over no rows.*Compute with it outside.*COALESCE\(\(SELECT",
    "SELECT SUM(delay) OVER (ORDER BY flight) AS s FROM flights QUALIFY s > 100 EMIT CHANGES": "QUALIFY of more than the first rows.*WHERE total > 100",
    f"SELECT origin, COUNT(*) AS n FROM {HOURS} GROUP BY GROUPING SETS ((origin), (origin)), window_start": "one set of keys twice",
    f"SELECT origin, COUNT(*) AS n FROM {HOURS} GROUP BY CUBE (origin, dest, tail, delay, flight, scheduled, delay + 1), window_start": "more than 64 sets",
    "SELECT * FROM flights f NATURAL JOIN weather w": "DEFINITION-392 .*Say how far apart",
    f"SELECT DISTINCT * FROM {HOURS}": r"\* beside GROUP BY or DISTINCT",
    f"SELECT *, COUNT(*) AS n FROM {HOURS} GROUP BY origin, window_start": r"\* beside GROUP BY",
    "SELECT COUNT(*) AS n FROM flights f JOIN weather w ON f.origin = w.origin AND w.observed = f.scheduled": "DEFINITION-392",
    "SELECT * FROM flights ORDER BY 1 LIMIT 3": "LIMIT",
    "SELECT STREAM origin FROM flights": "DEFINITION-",
    "SELECT origin FROM flights FOR SYSTEM_TIME AS OF TIMESTAMP '2013-01-01'": "FOR SYSTEM_TIME AS OF without a join",
    "SELECT DISTINCT origin FROM flights": "SELECT DISTINCT over all of time",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY scheduled) AS rn FROM flights) WHERE rn = 1": r"DEFINITION-395 .*-- within: 1 day",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY scheduled) AS rn FROM flights) WHERE rn <= 3": r"DEFINITION-395 .*the first 3 over all of time.*EMIT CHANGES",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY delay) AS rn FROM flights) WHERE rn > 1": "rows by their number without a greatest one",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY delay) AS rn FROM flights)": "DEFINITION-384 .*rn <= 3",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight) AS rn FROM flights) WHERE rn = 1 EMIT CHANGES": "without ORDER BY",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY delay) AS rn FROM flights) WHERE rn <= 0 EMIT CHANGES": "none of them",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_no_operator_can_say_is_refused_with_its_place_and_what_can_be_written(sql: str) -> None:
    message = refusal(sql)
    assert re.search(REFUSED[sql], message), message


def test_a_text_of_a_megabyte_or_without_end_is_refused_at_once() -> None:
    assert "got 1,000,020 characters" in refusal("SELECT " + "a" * 1_000_000 + " FROM flights")
    assert "nested too deeply" in refusal("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " AS x FROM flights")


def test_a_window_that_says_it_is_final_takes_no_lateness_and_a_revised_one_holds_its_key() -> None:
    sql = f"SELECT origin, window_start, COUNT(*) AS n FROM {HOURS} GROUP BY origin, window_start"
    assert "EMIT ON WINDOW CLOSE with lateness" in refusal(f"{sql} EMIT ON WINDOW CLOSE", lateness="1 hour")
    assert stated(f"{sql} EMIT ON WINDOW CLOSE").outputs[0].revisable is False
    assert stated(sql, lateness="1 hour").outputs[0].keys == ("origin", "window_start")
    wrong = refusal(sql.replace("origin, window_start, COUNT", "origin, COUNT"), lateness="1 hour")
    assert "DEFINITION-399" in wrong
    assert "Select window_start too" in wrong


@pytest.mark.feature("Q2")
def test_event_time_and_the_clock_are_columns_of_every_table() -> None:
    sql = "SELECT window_start, COUNT(*) AS n FROM TUMBLE(flights, {}, '1 hour') GROUP BY window_start, window_end"
    assert stated(sql.format("_event_time")) == stated(sql.format("scheduled"))
    clocked = [
        stated(sql.format(clock)) for clock in ("_processing_time", "DESCRIPTOR(_processing_time)", "PROCTIME()")
    ]
    assert {one.stateful.time for one in clocked if one.stateful} == {"processing"}


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "origin" FROM flights',
        "SELECT flight FROM flights WHERE \"Origin\" > 'E'",
        "SELECT origin, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(\"scheduled\"), INTERVAL '1' HOUR)) GROUP BY origin, window_start",
        'SELECT origin, SUM(delay) AS s FROM flights GROUP BY "origin" EMIT CHANGES',
    ],
)
def test_a_name_of_a_column_in_double_quotes_is_neither_taken_for_the_column_nor_for_a_string(sql: str) -> None:
    """Elsewhere it is the one or the other, and no error would show it."""
    said = refusal(sql)
    assert re.match(r"DEFINITION-400 .*line 1, column \d+: .*Write `\w+` for the column, '\w+' for the string", said), (
        said
    )
    assert stated('SELECT flight FROM flights WHERE origin = "EWR"').outputs[0].schema.names == ("flight",)


def test_names_that_are_words_and_names_of_other_alphabets_are_columns() -> None:
    chosen = stated("SELECT `order`, größe AS `Größe` FROM odd WHERE größe > 1")
    assert chosen.outputs[0].schema.names == ("order", "Größe")


FOLDER = {
    "hourly.sql": f"-- Departures per airport and hour.\n-- lateness: 2 hours\n-- late: side_output\n-- key_groups: 16\n\nSELECT origin, window_start, window_end, COUNT(*) AS n\nFROM {HOURS}\nGROUP BY origin, window_start, window_end\n",
    "busy.sql": "SELECT * FROM hourly WHERE n > 3",
    "unheard.sql": "-- name: late_ones\nSELECT origin, flight FROM hourly__late",
    "days.sql": "-- input hours: busy\nSELECT origin, window_start, COUNT(*) AS hours FROM TUMBLE(hours, window_time, '1 day') GROUP BY origin, window_start",
}  # fmt: skip


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.mark.feature("Q1")
def test_files_of_a_folder_read_each_other_and_the_sources_by_name(tmp_path: Path) -> None:
    assets = ModuleType("assets")
    assets.flights = Source(  # type: ignore[attr-defined]
        "flights", contract=Flight, connector=Files("inbox"), watermark=BoundedOutOfOrderness("1 hour")
    )
    models = sql_operators(written(tmp_path, FOLDER), assets)
    workspace = Workspace.of(assets, models)
    assert [one.name for one in workspace.operators] == ["hourly", "busy", "days", "late_ones"]
    hourly = workspace.operator("hourly")
    assert (hourly.description, hourly.key_groups) == ("Departures per airport and hour.", 16)
    assert hourly.location == str(tmp_path / "hourly.sql")
    assert [one.table for one in workspace.operator("late_ones").inputs] == ["hourly__late"]
    assert workspace.operator("days").inputs[0].name == "hours"


@function
def shout(word: str) -> str:
    """A word in capitals."""
    return word.upper()


@pytest.mark.feature("Q1", "Q5")
def test_files_of_a_folder_call_the_functions_of_the_modules(tmp_path: Path) -> None:
    assets = ModuleType("assets")
    assets.shout = shout  # type: ignore[attr-defined]
    files = {"loud.sql": "SELECT flight, shout(origin) AS loud FROM flights", "plain.sql": "SELECT flight FROM flights"}
    models = sql_operators(written(tmp_path, files), assets, **TABLES)  # type: ignore[arg-type]
    assert models.loud == sql_operator("loud", files["loud.sql"], inputs=TABLES, functions=[shout])
    assert models.plain == sql_operator("plain", files["plain.sql"], inputs=TABLES)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "DEFINITION-397 .*a folder with files of SQL"),
        ({"a.sql": "SELECT * FROM b", "b.sql": "SELECT * FROM a"}, "DEFINITION-398 .*a -> b -> a"),
        ({"a.sql": "-- latness: 2 hours\nSELECT * FROM flights"}, "DEFINITION-396 .*a.sql, line 1: .*Did you mean 'lateness'"),
        ({"a.sql": "-- key_groups: many\nSELECT * FROM flights"}, "DEFINITION-396 .*a whole number"),
        ({"a.sql": "-- name: b\nSELECT * FROM flights", "b.sql": "SELECT * FROM flights"}, "DEFINITION-397 .*'b' in a.sql too"),
        ({"a.sql": "-- first\n\nSELECT origin,\n  dst FROM flights"}, "DEFINITION-022 .*a.sql, line 4, column 3"),
        ({"a.sql": "SELECT * FROM nothing"}, "DEFINITION-394 .*a.sql, line 1, column 15: .*'nothing'"),
    ],
)  # fmt: skip
def test_a_folder_that_is_wrong_says_which_file_and_line(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(FloodmarkError, match=said):
        sql_operators(written(tmp_path, files), **TABLES)  # type: ignore[arg-type]


class Arrival(Contract, event_time="ingestion"):
    """A row without a time of its own."""

    k: int
    v: int


@pytest.mark.feature("Q2")
def test_another_name_of_the_clock_is_the_clock_where_a_time_is_asked_for() -> None:
    clocked = "(SELECT *, PROCTIME() AS now FROM flights)"
    by_name = f"SELECT origin, window_start, COUNT(*) AS n FROM TUMBLE({clocked}, now, '1 hour') GROUP BY origin, window_start"
    assert stated(by_name) == stated(by_name.replace(clocked, "flights").replace("now", "_processing_time"))
    latest = "SELECT flight, tail FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY flight ORDER BY now {0}) AS rn FROM {1} AS f) WHERE rn = 1 EMIT CHANGES"
    assert stated(latest.format("DESC", clocked)) == stated(
        latest.format("DESC", "flights").replace("now", "_processing_time")
    )
    assert stated(latest.format("", clocked)) != stated(latest.format("DESC", clocked))
    assert stated(f"SELECT * FROM {clocked} AS f") == stated("SELECT * FROM flights AS f")
    assert "which a replay cannot read again" in refusal(f"SELECT now FROM {clocked} AS f WHERE now IS NOT NULL")


@pytest.mark.feature("Q2", "J4")
def test_the_clock_of_rows_that_have_the_time_of_their_landing_is_that_time() -> None:
    clocked = "(SELECT *, PROCTIME() AS now FROM {0})"
    sql = f"SELECT a.k, a.v, b.v AS w FROM {clocked.format('a')} AS a JOIN b FOR SYSTEM_TIME AS OF a.now AS b ON a.k = b.k"
    joined = sql_operator("x", sql, inputs={"a": Arrival, "b": Arrival})

    @operator(name="x")
    def fluent(a: Stream[Arrival], b: Stream[Arrival]) -> Stream:
        return a.key_by("k").temporal_join(b.key_by("k"), prefix="b_").select(k="k", v="v", w="b_v")

    assert joined == fluent
    with pytest.raises(FloodmarkError, match="DEFINITION-392"):
        sql_operator(
            "x", sql.replace("a.k", "a.`order`").replace("a.v", "a.at"), inputs={"a": TABLES["odd"], "b": Arrival}
        )


def test_insert_into_is_the_select_of_the_operator_of_that_name() -> None:
    assert stated("INSERT INTO x SELECT origin, dest FROM flights") == stated("SELECT origin, dest FROM flights")
    renamed = stated("INSERT INTO x (here, there) SELECT origin, dest FROM flights WHERE delay > 1")
    assert renamed.outputs[0].schema.names == ("here", "there")
    assert "write INSERT INTO x SELECT" in refusal("INSERT INTO y SELECT origin FROM flights")
    assert "2 different names of columns" in refusal("INSERT INTO x (here) SELECT origin, dest FROM flights")
    assert "INSERT" in refusal("INSERT OVERWRITE x SELECT origin FROM flights")


FALLS = """SELECT m.origin, low, m.falls FROM flights AS f MATCH_RECOGNIZE (
    PARTITION BY origin ORDER BY scheduled, flight DESC
    MEASURES A.delay AS first, LAST(B.delay) AS low, COUNT(B) AS falls
    ONE ROW PER MATCH AFTER MATCH SKIP TO LAST C
    PATTERN (A B+ C+ D{2,}? $) WITHIN INTERVAL '1' HOUR
    SUBSET U = (A, B)
    DEFINE B AS delay < PREV(delay), C AS B.delay IN (1, 2) OR delay > PREV(U.delay, 2)
) AS m WHERE falls > 1"""


@pytest.mark.feature("C1", "Q3")
def test_match_recognize_has_the_version_of_its_fluent_form() -> None:
    @operator(name="x")
    def fluent(flights: Stream[Flight]) -> Stream:
        found = flights.match_recognize(
            partition_by="origin",
            order_by=("flight DESC",),
            measures={"first": "A.delay", "low": "LAST(B.delay)", "falls": "COUNT(B)"},
            after_match_skip="TO LAST C",
            pattern="A B+ C+ D{2,}? $",
            within="1 hour",
            subset={"U": ["A", "B"]},
            define={"B": "delay < PREV(delay)", "C": "B.delay IN (1, 2) OR delay > PREV(U.delay, 2)"},
        )
        return found.filter("falls > 1").select(origin="origin", low="low", falls="falls")

    assert stated(FALLS) == fluent
    rows = "SELECT * FROM (SELECT * FROM flights WHERE delay > 0) MATCH_RECOGNIZE (ORDER BY scheduled ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS delay < 9)"
    assert stated(f"{rows} AS m").outputs[0].schema.names == stated("SELECT * FROM flights").outputs[0].schema.names
    counted = stated(f"SELECT COUNT(*) AS n FROM {rows[14:]} AS m EMIT CHANGES")
    assert [type(stage).__name__ for stage in counted.stages] == ["KeyedProcess", "WindowAggregate"]


def test_the_time_of_a_match_is_an_event_time_where_its_last_row_decides_it() -> None:
    sql = """SELECT window_start, COUNT(*) AS n FROM TUMBLE((SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY origin ORDER BY scheduled
             MEASURES MATCH_ROWTIME() AS at, B.delay AS delay PATTERN (A (B)) DEFINE B AS delay > PREV(delay))), at, '1 hour') GROUP BY window_start"""
    assert [type(stage).__name__ for stage in stated(sql).stages] == ["KeyedProcess", "WindowAggregate"]
    unmatched = "AS more ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN"  # rows without a match have null for it
    refused = (("(A (B))", "(A+ B)"), ("(A (B))", "(A B$)"), ("PREV(", "NEXT("), ("AS delay PATTERN", unmatched))
    for old, new in refused:
        assert "DEFINITION-387" in refusal(sql.replace(old, new)), (old, new)


PAIR = """SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY origin ORDER BY scheduled
          MEASURES {} AS f, B.delay AS delay PATTERN (A B) DEFINE B AS {})"""
VERSIONS = {
    ("A.delay", "delay  >  PREV( delay )\n  AND  true"): "o@52040260",
    ("A.delay  +   1L", "delay > 5 AND dest = 'a  b'"): "o@49a5bb77",
    ("A.delay", "TRUE AND (  B.delay\t> 3 )"): "o@9187eb4b",
}
"""(measure, condition) -> the version that operators have which run."""


@pytest.mark.parametrize(("measure", "condition"), VERSIONS)
def test_the_version_of_a_pattern_is_of_its_texts_as_they_are_written(measure: str, condition: str) -> None:
    assert stated(PAIR.format(measure, condition), "o").version == VERSIONS[measure, condition]


def test_comments_in_a_pattern_are_read_over() -> None:
    plain = stated(PAIR.format("A.delay + 1", "delay > PREV(delay)"))
    assert stated(PAIR.format("A.delay /* minutes */ + 1", "delay > -- more\n PREV(delay)")) == plain


@pytest.mark.parametrize("constant", ["'MATCH_ROWTIME()'", "'it\\'s MATCH_ROWTIME()'", '"MATCH_ROWTIME()"'])
def test_a_text_that_names_the_time_of_a_match_stays_as_it_is(constant: str) -> None:
    found = stated(PAIR.format(f"CASE WHEN A.scheduled < MATCH_ROWTIME() THEN {constant} END", "delay > 5")).stages[0]
    ((name, term),) = found.function.function.measures[:1]
    assert (name, term.text) == ("f", f"CASE WHEN A.scheduled < FINAL LAST(scheduled) THEN {constant} END")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scheduled, flight", "flight", "DEFINITION-387 .*line 2, column 34.*'flight' DESC.*Write ORDER BY scheduled"),
        ("PARTITION BY origin", "PARTITION BY orign", "DEFINITION-388 .*Did you mean 'origin'"),
        ("PATTERN (A B+ C+ D{2,}? $)", "", "Expecting PATTERN"),
        ("PATTERN (A", "PATTERN (A (", "DEFINITION-381"),
        ("$)", "%)", "DEFINITION-430"),
        ("SUBSET", "SUPERSET", "DEFINITION-381 .*SUPERSET"),
        ("ONE ROW", "ONE LINE", "Expecting an expression AS a name"),
        ("TO LAST C", "TO C, D", "DEFINITION-43"),
        ("COUNT(B) AS falls", "COUNT(B)", "Expecting an expression AS a name"),
        ("DEFINE B AS", "DEFINE B", "Expecting a name AS a condition"),
        ("MEASURES A.delay", "MEASURES Z.delay", "DEFINITION-"),
        ("PREV(delay)", "delay OVER", "DEFINITION-"),
        ("A.delay", "MATCH_ROWTIME(flight)", r"DEFINITION-387 .*Write MATCH_ROWTIME\(\), which is of scheduled"),
    ],
)
def test_a_clause_of_match_recognize_that_cannot_be_read_is_refused(old: str, new: str, message: str) -> None:
    assert old in FALLS
    assert re.search(message, refusal(FALLS.replace(old, new))), refusal(FALLS.replace(old, new))
    assert "with lateness" in refusal(FALLS, lateness="1 hour")


SPELLINGS = {
    "FLOOR(scheduled TO HOUR)": "date_trunc('HOUR', scheduled)",
    "CAST(origin AS TIMESTAMP(3))": "date_trunc('MILLISECOND', CAST(origin AS timestamp))",
    "CAST(upper(origin) AS TIMESTAMP_LTZ(6))": "CAST(upper(origin) AS timestamp)",
    "origin SIMILAR TO 'E.*|J'": "origin RLIKE concat('^(?:', 'E.*|J', ')$')",
    "ARRAY[delay, 1 + FLOOR(delay)]": "array(delay, 1 + FLOOR(delay))",
    "MAP['a', delay]": "map('a', delay)",
    "(MAP['a', delay])['a']": "(map('a', delay))['a']",
    "SHA256(origin)": "sha2(origin, 256)",
    "SPLIT_INDEX(origin, '.^', 1)": "get(split(origin, '[.]^'), 1)",
    "JSON_VALUE(origin, '$.a')": "get_json_object(origin, '$.a')",
    "(SELECT delay * 2)": "( delay * 2)",
    "delay + ((SELECT 5))": "delay + (( 5))",
    "delay IN (SELECT 5)": "delay IN ( 5)",
    "delay IN (1, (SELECT 5))": "delay IN (1, ( 5))",
    "coalesce((SELECT delay), (SELECT 5))": "coalesce(( delay), ( 5))",
    "EXISTS (SELECT COUNT(1)) AND delay > 3": "true AND delay > 3",
}


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_another_spelling_is_the_version_of_spark_s(spelled: str) -> None:
    sql = "SELECT CASE WHEN delay > 1 THEN {0} END AS v FROM flights WHERE ({0}) IS NOT NULL"
    assert stated(sql.format(spelled)) == stated(sql.format(SPELLINGS[spelled]))


def test_a_subquery_without_from_that_may_be_no_value_stays_one() -> None:
    for query in (
        "SELECT 5 UNION SELECT 6",
        "(SELECT 5) UNION (SELECT 6)",
        "SELECT 5, 6",
        "SELECT 5 WHERE 1 = 2",
        "SELECT 5 AS x",
    ):
        assert "subquery" in refusal(f"SELECT origin FROM flights WHERE delay IN ({query})"), query
    assert stated("SELECT origin, (SELECT 5) AS five, flight FROM flights") == stated(
        "SELECT origin, ( 5) AS five, flight FROM flights"
    )
    unions = "SELECT flight FROM flights WHERE flight = {} UNION ALL SELECT flight FROM flights"
    assert stated(unions.format("(SELECT 5)")) == stated(unions.format("( 5)"))
    joined = "SELECT origin, one FROM flights CROSS JOIN (SELECT 1 AS one) AS s EMIT CHANGES"
    assert stated(joined).outputs[0].schema.names == ("origin", "one")
    twice = "WITH s AS (SELECT 1) SELECT origin FROM flights, (SELECT 1) AS s"
    assert "DEFINITION" in refusal(twice)


@pytest.mark.feature("Q3")
def test_percentiles_have_the_spellings_of_spark_and_of_the_standard() -> None:
    sql = """SELECT origin, PERCENTILE(delay, 0.75) AS a, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY delay) AS b,
             APPROX_PERCENTILE(delay, 0.5) AS c, PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY delay) FILTER (WHERE delay > 4) AS d,
             MODE(tail) AS e, MODE() WITHIN GROUP (ORDER BY tail) AS f, ANY_VALUE(dest) AS g FROM flights GROUP BY origin EMIT CHANGES"""
    row = {"scheduled": datetime(2026, 1, 1, tzinfo=UTC), "origin": "EWR", "dest": "SFO"}
    pairs = [("b", 4), ("a", 8), (None, None), ("b", 7), ("a", 5)]
    rows = [row | {"flight": n, "tail": tail, "delay": delay} for n, (tail, delay) in enumerate(pairs)]
    (newark,) = Case(stated(sql)).feed("flights", rows).end().results()
    assert [newark[name] for name in "abcdefg"] == [7.25, 7.25, 5, 7, "a", "a", "SFO"]


@pytest.mark.parametrize(
    ("aggregate", "got"),
    [
        ("PERCENTILE(delay, array(0.5, 0.9))", "a share that is no number: write one aggregate for each"),
        (
            "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY delay DESC)",
            "WITHIN GROUP without ORDER BY one column, ascending",
        ),
        ("PERCENTILE(delay, 1.5)", "1.5"),
        ("PERCENTILE(dest, 0.5)", "'dest' of type string"),
    ],
)
def test_a_percentile_that_cannot_be_told_is_refused(aggregate: str, got: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        stated(f"SELECT origin, {aggregate} AS p FROM flights GROUP BY origin EMIT CHANGES")
    assert got in str(refused.value)


def test_aggregates_that_are_made_of_others() -> None:
    sql = """SELECT origin, LISTAGG(tail) AS tails, LISTAGG(DISTINCT tail, '|') AS kinds, VAR_POP(delay) AS v, 2 * STDDEV_POP(delay) AS s, VAR_SAMP(delay) AS w,
             BOOL_AND(delay > 5) AS everyone, BOOL_OR(delay > 5) AS anyone FROM flights GROUP BY origin HAVING VAR_POP(delay) >= 0 EMIT CHANGES"""
    row = {"scheduled": datetime(2026, 1, 1, tzinfo=UTC), "origin": "EWR", "dest": "SFO"}
    rows = [
        row | {"flight": n, "tail": tail, "delay": delay}
        for n, (tail, delay) in enumerate([("b", 4), ("a", 8), (None, None), ("b", 6)])
    ]
    rows.append(row | {"origin": "JFK", "flight": 9, "tail": None, "delay": 3})
    case = Case(stated(sql)).feed("flights", rows).end()
    newark, kennedy = sorted(case.results(), key=lambda one: one["origin"])
    assert [newark[name] for name in ("tails", "kinds", "everyone", "anyone")] == ["b,a,b", "a|b", False, True]
    assert [newark["v"], newark["s"], newark["w"]] == pytest.approx([8 / 3, 2 * (8 / 3) ** 0.5, 4])
    assert [kennedy[name] for name in ("tails", "kinds", "v", "s", "w")] == [None, None, 0, 0, None]


CHANGES = {
    "flights": Source(
        "flights",
        contract=Flight,
        connector=DeltaTable("tables/flights", read="changes"),
        watermark=BoundedOutOfOrderness("0 s"),
    )
}


def test_emit_changes_at_the_end_is_of_every_subquery_and_of_both_sides_of_a_union() -> None:
    first = "SELECT origin FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC) AS rn FROM flights) WHERE rn = 1"
    for sql in (
        "SELECT origin, COUNT(*) AS n FROM (SELECT DISTINCT origin, dest FROM flights) AS q GROUP BY origin EMIT CHANGES",
        "SELECT origin FROM (SELECT DISTINCT origin, dest FROM flights) AS q WHERE dest > 'B' EMIT CHANGES",
        f"{first} UNION SELECT dest FROM flights EMIT CHANGES",
        f"{first} UNION ALL SELECT dest FROM flights EMIT CHANGES",
    ):
        assert stated(sql).stages
    assert "EMIT CHANGES of rows that do not change" in refusal(
        "SELECT origin FROM flights UNION ALL SELECT dest FROM flights EMIT CHANGES"
    )


def test_different_rows_of_rows_that_are_taken_back_are_taken_back_too() -> None:
    sql = "SELECT DISTINCT origin, dest FROM flights EMIT CHANGES"
    final, changing = stated(sql), sql_operator("stated", sql, inputs=CHANGES)
    assert (final.outputs[0].revisable, final.outputs[0].current) == (False, None)
    assert changing.outputs[0].revisable
    assert changing.outputs[0].keys == ("origin", "dest")
    counted = sql_operator(
        "counted",
        "SELECT origin, COUNT(*) AS n FROM (SELECT DISTINCT origin, dest FROM flights) AS q GROUP BY origin EMIT CHANGES",
        inputs=CHANGES,
    )
    assert [read.revisable for read in counted.links[-1].inputs] == [True]


def test_growing_windows_of_one_end_are_aggregated_again() -> None:
    inner = "SELECT origin, window_start, window_end, COUNT(*) AS n FROM CUMULATE(flights, scheduled, '1 hour', '1 day') GROUP BY origin, window_start, window_end"
    row = {"dest": "SFO", "tail": None, "delay": 1}
    rows = [
        row | {"scheduled": datetime(2026, 1, day, hour, 30, tzinfo=UTC), "origin": origin, "flight": n}
        for n, (day, hour, origin) in enumerate([(1, 22, "EWR"), (1, 22, "JFK"), (1, 23, "JFK"), (2, 0, "EWR")])
    ]
    sql = f"SELECT window_start, window_end, MAX(n) AS most FROM ({inner}) AS q GROUP BY window_start, window_end"
    results = Case(stated(sql)).feed("flights", rows).end().results()
    tops = {(one["window_start"].day, one["window_end"].day, one["window_end"].hour): one["most"] for one in results}
    assert {end: most for end, most in tops.items() if end in {(1, 1, 22), (1, 1, 23), (1, 2, 0), (2, 2, 1)}} == {
        (1, 1, 23): 1,
        (1, 2, 0): 2,
        (2, 2, 1): 1,
    }


PLACES = {
    "SELECT flight\nFROM flights WHERE delay": "DEFINITION-024 operator 'x', line 2, column 20, step 'filter': expected a condition",
    "SELECT window_end,\n  SUM(origin) AS s FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY window_start, window_end": "DEFINITION-041 operator 'x', line 2, column 3, step 'aggregate', column 's': expected a number",
    "SELECT window_end, COUNT(*) AS n\nFROM TUMBLE(flights, scheduled, '-1 hour') GROUP BY window_start, window_end": "DEFINITION-030 operator 'x', line 2, column 34, Tumbling window: expected a positive size",
    "SELECT flight,\n  delay AS _kind FROM flights": "DEFINITION-050 operator 'x', line 2, column 12, step 'select': expected different names",
    "SELECT flight FROM flights WHERE origin = 'EWR": "DEFINITION-381 operator 'x': expected a statement of SQL, got a string, a name or a comment without its end",
    "SELECT TOP 3 flight FROM flights": "DEFINITION-381 operator 'x', line 1, column 12: expected a statement of SQL, got a word or a sign that nothing reads at '3'",
    "SELECT (flight FROM flights": "DEFINITION-381 operator 'x', line 1, column 16: expected a statement of SQL, got no ) where it is due at 'FROM'",
    "SELECT * REPLACE (1 AS flight) FROM flights": "got REPLACE of columns",
    "SELECT flight AS `a; DROP TABLE flights` FROM flights": "DEFINITION-393 operator 'x', line 1, column 8: expected a name that a column of a Delta table has",
}


@pytest.mark.parametrize("sql", PLACES)
def test_errors_of_steps_have_a_place_in_the_statement(sql: str) -> None:
    assert PLACES[sql] in refusal(sql)


@pytest.mark.feature("Q3", "Z26")
def test_different_rows_within_a_time_are_rows_without_duplicates() -> None:
    @operator(name="x")
    def fluent(flights: Stream[Flight]) -> Stream:
        ways = flights.select(origin="origin", way="dest")
        return ways.key_by("origin", "way").deduplicate("1 day")

    sql = "SELECT {} DISTINCT origin, dest AS way FROM flights"
    assert stated(sql.format(""), within="1 day") == fluent
    assert stated(sql.format("/*+ STATE_TTL('flights' = '1 d') */")) == fluent
    assert "-- within: 1 day" in refusal(sql.format(""))


@pytest.mark.parametrize(
    ("told", "itself"),
    [
        ("ARRAY_AGG(delay) IGNORE NULLS", "ARRAY_AGG(delay)"),
        ("ARRAY_AGG(delay IGNORE NULLS)", "ARRAY_AGG(delay)"),
        ("FIRST(delay) RESPECT NULLS", "FIRST(delay)"),
    ],
)
def test_what_an_aggregate_does_with_nulls_anyway_may_be_told(told: str, itself: str) -> None:
    one, other = (
        sql_operator("told", f"SELECT origin, {text} AS n FROM flights GROUP BY origin EMIT CHANGES", inputs=TABLES)
        for text in (told, itself)
    )
    assert one.version == other.version


def test_a_long_chain_of_union_all_is_one_step_and_a_chain_of_unions_is_refused() -> None:
    def chain(kind: str, number: int) -> str:
        return f" {kind} ".join(f"SELECT origin FROM flights WHERE delay = {n}" for n in range(number))

    assert stated(chain("UNION ALL", 500)).version.startswith("x@")
    assert "DEFINITION-475" in refusal(f"{chain('UNION', 120)} EMIT CHANGES")
