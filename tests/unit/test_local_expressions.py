"""The local engine answers an expression as Spark does, or refuses it; Spark's answers are on record."""

from __future__ import annotations

import json
import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from spark_answers import EXPRESSIONS, RECORD, ROWS, SCHEMA, table, written

import floodmark as fm
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.time import from_ms
from floodmark.engines.local.casts import sql_type
from floodmark.engines.local.engine import LocalRun
from floodmark.engines.local.expressions import Queries
from floodmark.engines.local.translation import duckdb_sql
from floodmark.spec.expressions import expression
from floodmark.testing.log import Log

SPARK: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
TABLE = table()
ANSWERED = [text for text in EXPRESSIONS if "values" in SPARK[text] and text not in {"explode(ai)", "shuffle(ai)"}]
ERROR = "error"


def answers(text: str) -> list[Any] | None:
    """Row by row a value or ``ERROR``; None if the local engine refuses the expression."""
    try:
        value = duckdb_sql(expression(text, SCHEMA, "test"), "test")
    except CapabilityError:
        return None
    query = f"SELECT CAST(({value}) AS {sql_type(SPARK[text]['type'])}) AS x FROM rows"
    queries = Queries()
    try:
        return [written(v) for v in run(queries, query, TABLE)]
    except (duckdb.Error, OverflowError, ValueError):  # Python holds no time outside the years 1 to 9999
        return [one(queries, query, number) for number in range(len(ROWS))]


def one(queries: Queries, query: str, number: int) -> Any:
    try:
        return written(run(queries, query, TABLE.slice(number, 1))[0])
    except (duckdb.Error, OverflowError, ValueError) as error:
        return "refused" if "CAPABILITY-030" in str(error) else ERROR


def run(queries: Queries, query: str, rows: pa.Table) -> list[Any]:
    queries.connection.register("rows", rows)
    return queries.connection.sql(query).to_arrow_table()["x"].to_pylist()


def equal(local: Any, spark: Any, kind: str) -> bool:
    if local == spark:
        return True
    if local == "refused":
        return True
    if isinstance(spark, dict):
        return local == ERROR
    floating = kind in {"double", "float"} and isinstance(local, str) and isinstance(spark, str) and local != ERROR
    return floating and float(spark) != 0 and math.isclose(float(local), float(spark), rel_tol=1e-12)


@pytest.mark.parametrize("text", ANSWERED)
def test_an_expression_is_answered_as_on_spark_or_refused(text: str) -> None:
    local = answers(text)
    if local is None:
        return
    pairs = zip(local, SPARK[text]["values"], strict=True)
    assert [pair for pair in pairs if not equal(*pair, SPARK[text]["type"])] == []


def test_most_expressions_are_answered() -> None:
    refused = [text for text in ANSWERED if answers(text) is None]
    assert len(refused) < len(ANSWERED) / 4


class Row(fm.Contract):
    """A row."""

    at: fm.EventTime
    s: str


@pytest.mark.parametrize("text", ["soundex(s)", "upper(s)"])
def test_what_is_refused_names_the_function_and_how_to_test_it_on_spark(text: str) -> None:
    @fm.operator(name="o")
    def o(rows: fm.Stream[Row]) -> fm.Stream:
        return rows.select(x=text)

    log = Log(o.inputs[0].schema)
    log.row({"at": from_ms(1), "s": "straße"}, 1)
    with pytest.raises(CapabilityError, match=rf"CAPABILITY-030 .*{text[:5]}.*floodmark prove NAME --spark") as raised:
        LocalRun(o).batch({"rows": log.table()})
    assert raised.value.expected == "an expression the local engine computes as Spark does"


@pytest.mark.parametrize("text", ["9223372036854775807 + length(s)", "1 / (length(s) - 6)", "CAST(s AS int)"])
def test_what_is_an_error_on_spark_is_an_error_here(text: str) -> None:
    @fm.operator(name="o")
    def o(rows: fm.Stream[Row]) -> fm.Stream:
        return rows.select(x=text)

    log = Log(o.inputs[0].schema)
    log.row({"at": from_ms(1), "s": "straße"}, 1)
    with pytest.raises(ExecutionError):
        LocalRun(o).batch({"rows": log.table()})
