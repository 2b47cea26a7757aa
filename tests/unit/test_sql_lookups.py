"""Joins with lookup tables in a statement: what they find, and what is refused."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from sql_tables import TABLES, Flight, entries_of, flights, oracle, plain

import floodmark as fm
from floodmark.compiler.explain import explain
from floodmark.core.errors import FloodmarkError
from floodmark.testing.proof import bounded, prove


class Place(fm.Contract, key=("code",)):
    """A place."""

    code: str
    name: str | None = None
    number: int | None = None


class Visit(fm.Contract):
    """Several rows of a code."""

    code: str
    number: int


ROWS = {"code": ["EWR", "JFK", "XXX"], "name": ["Newark", None, "Nowhere"], "number": [1, 2, 3]}
NOW = "FOR SYSTEM_TIME AS OF PROCTIME()"
SAME = {
    f"SELECT f.flight, p.code, p.name FROM flights AS f JOIN places {NOW} AS p ON f.origin = p.code": "",
    f"SELECT f.flight, p.code, p.name FROM flights AS f LEFT JOIN places {NOW} AS p ON f.origin = p.code AND p.number > 1 AND f.delay > p.number": "",
    f"SELECT f.flight, p.name FROM flights AS f JOIN places {NOW} AS p ON p.number = f.flight % 4 WHERE p.code <> 'XXX' AND f.delay > 3": "",
    f"SELECT p.name, COUNT(*) AS n FROM flights AS f JOIN places {NOW} AS p ON f.origin = p.code GROUP BY p.name EMIT CHANGES": "",
    f"SELECT f.flight, p.name FROM flights AS f LEFT JOIN places {NOW} AS p ON p.code = 'EWR' AND f.delay IS NULL": "",
    f"SELECT code, flight, p.name FROM (SELECT origin AS code, flight FROM flights) AS f JOIN places {NOW} AS p USING (code)": "",
    f"SELECT f.flight, v.number FROM flights AS f JOIN visits {NOW} AS v ON f.origin = v.code": "",
    f"SELECT f.flight, v.number, p.name FROM flights AS f JOIN visits {NOW} AS v ON f.origin = v.code LEFT JOIN places {NOW} AS p ON p.number = v.number": "",
    "SELECT f.flight, p.name FROM (SELECT *, PROCTIME() AS now FROM flights) AS f JOIN places FOR SYSTEM_TIME AS OF f.now AS p ON f.origin = p.code": "SELECT f.flight, p.name FROM flights AS f JOIN places AS p ON f.origin = p.code",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fm.LookupTable]:
    folder = tmp_path_factory.mktemp("lookups")
    deltalake.write_deltalake(str(folder / "places"), pa.table(ROWS))
    (folder / "visits.jsonl").write_text(
        '{"code": "EWR", "number": 1}\n{"code": "EWR", "number": 2, "more": []}\n', "utf-8"
    )
    return {
        "places": fm.LookupTable("places", contract=Place, path=folder / "places"),
        "visits": fm.LookupTable("visits", contract=Visit, path=folder / "visits.jsonl"),
    }


@pytest.mark.feature("J4")
@pytest.mark.parametrize("sql", SAME)
def test_a_lookup_finds_what_a_join_of_duckdb_does_in_both_modes(tables: dict[str, fm.LookupTable], sql: str) -> None:
    written = fm.sql_operator("x", sql, inputs={"flights": Flight, **tables})
    rows = {"flights": flights(2, 30)}
    entries = entries_of(written, rows)
    found = plain([values for (_, values), times in bounded(written, entries).items() for _ in range(times)])
    sides = {
        "places": [dict(zip(ROWS, values, strict=True)) for values in zip(*ROWS.values(), strict=True)],
        "visits": [{"code": "EWR", "number": 1}, {"code": "EWR", "number": 2}],
    }
    question = (SAME[sql] or sql).replace(NOW, "").replace("EMIT CHANGES", "")
    assert found == plain(oracle(question, rows | sides))
    proof = prove(written, entries, cuts=1)
    assert proof.seed is None, proof.differences


REFUSED = {
    f"SELECT c.origin, c.n, p.name FROM (SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin) AS c LEFT JOIN places {NOW} AS p ON c.origin = p.code EMIT CHANGES": "CAPABILITY-098 .*line 1, column .*whose retractions have their event time.*Look up before the step",
    "SELECT * FROM places": "a lookup table without rows that look in it",
    "SELECT f.flight FROM flights AS f JOIN places AS p ON f.origin = p.code": "the clock, of a lookup table, got none. Write JOIN places FOR SYSTEM_TIME AS OF PROCTIME",
    "SELECT f.flight FROM flights AS f JOIN places FOR SYSTEM_TIME AS OF f.scheduled AS p ON f.origin = p.code": "line 1, column 69.*got f.scheduled",
    f"SELECT f.flight FROM flights AS f RIGHT JOIN places {NOW} AS p ON f.origin = p.code": "a right join with a lookup table",
    f"SELECT f.flight FROM flights AS f JOIN places {NOW} AS p ON f.origin > p.code": "a lookup by a key.*ON p.code = ...",
    f"SELECT f.flight FROM flights AS f LEFT JOIN visits {NOW} AS v ON f.origin = v.code AND v.number > 1": "several rows of a key.*class Rate",
    f"SELECT f.flight FROM flights AS f JOIN places {NOW} AS p ON f.flight = p.code": "DEFINITION-471 .*code string of places, got 'flight' of type bigint",
    f"SELECT f.flight, p.nam FROM flights AS f JOIN places {NOW} AS p ON f.origin = p.code": "Did you mean 'name'",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_a_lookup_cannot_say_is_refused_at_its_place(tables: dict[str, fm.LookupTable], sql: str) -> None:
    with pytest.raises(FloodmarkError, match=REFUSED[sql]) as raised:
        fm.sql_operator("x", sql, inputs={**TABLES, **tables})
    assert "line 1, column " in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contract": str, "path": "/x"}, "contract=<class 'str'>"),
        ({"contract": Place, "path": "rates.csv"}, "path='rates.csv'"),
        ({"contract": Place, "path": "/x", "holds": "0 s"}, "holds='0 s'"),
    ],
)
def test_a_lookup_table_without_contract_place_or_time_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(FloodmarkError, match="DEFINITION-470") as raised:
        fm.LookupTable("rates", **settings)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_the_fluent_form_is_that_version_and_neither_path_nor_engine_is_part_of_it(
    tables: dict[str, fm.LookupTable], tmp_path: Path
) -> None:
    elsewhere = fm.LookupTable("places", contract=Place, path=tmp_path)

    @fm.operator(name="x")
    def fluent(flights: fm.Stream[Flight]) -> fm.Stream:
        return flights.lookup(elsewhere, on={"code": "origin"}).select("flight", "name")

    sql = f"SELECT f.flight, p.name FROM flights AS f JOIN places {NOW} AS p ON f.origin = p.code"
    assert fm.sql_operator("x", sql, inputs={"flights": Flight, **tables}) == fluent
    assert "inner lookup of the current rows of places by code" in explain(fluent)[0]

    def wrong(flights: fm.Stream[Flight]) -> fm.Stream:
        return flights.lookup("places", on="origin")  # type: ignore[arg-type]

    with pytest.raises(FloodmarkError, match="DEFINITION-055"):
        fm.operator(wrong)
