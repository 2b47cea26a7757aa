"""Corners of Spark's grammar: intervals in sums, half characters, numbers and nestings no type and no reader holds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from spark_answers import SCHEMA

from floodmark.core.errors import DefinitionError
from floodmark.engines.local.expressions import Queries
from floodmark.engines.local.translation.expression import duckdb_sql
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Literal
from floodmark.spec.schema import Column, Schema


def read(text):
    return expression(text, SCHEMA, "test")


def refused(text):
    with pytest.raises(DefinitionError) as raised:
        read(text)
    return raised.value


@pytest.mark.parametrize(
    "text",
    [
        "ts + INTERVAL 1 DAY + INTERVAL 2 HOURS",
        "ts - INTERVAL 1 DAY - INTERVAL '1' MONTH",
        "INTERVAL 1 DAY + ts",
        "INTERVAL '1 day' + ts",
        "CASE WHEN i > 0 THEN INTERVAL 1 DAY + at ELSE ts END",
    ],
)
def test_what_is_added_to_an_interval_is_no_part_of_it(text):
    assert read(text).type == "timestamp"


def test_a_column_named_as_a_unit_may_stand_behind_an_interval():
    schema = Schema((*SCHEMA.columns, Column(name="day", type="int")))
    assert expression("ts < at + INTERVAL 1 DAY AND day = 3", schema, "test").columns == ("ts", "at", "day")


def test_an_interval_of_several_units_is_one():
    assert read("INTERVAL 1 DAY 2 HOURS").tree.type == "interval day to hour"
    assert read("INTERVAL 1 DAY - 2 HOURS").tree.type == "interval day to hour"
    assert read("INTERVAL '3 hours 2 days'").tree.type == "interval day to hour"
    assert read("dt + INTERVAL '3 hours 2 days'").type == "timestamp"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("ts + INTERVAL ''", "an interval without a unit"),
        ("ts + INTERVAL '1 month 2 days'", "an interval of months and of days"),
        (r"s = '\U0011FFFF'", "0011FFFF"),
        ("i > " + "9" * 5000, "a number of 5000 characters"),
        ("f > 1e400D", "1e400D"),
        ("ts > TIMESTAMP 'now'", "'now'"),
        ("dt = DATE 'Today '", "'Today '"),
        ("(" * 300 + "i" + ")" * 300, "((("),
        ("i + " * 2000 + "i", "i + i"),
        (" OR ".join(f"i = {n}" for n in range(2000)), "i = 0 OR i = 1"),
        ("NOT " * 1000 + "b", "NOT NOT"),
    ],
)
def test_what_no_reader_holds_is_refused_with_a_code(text, got):
    error = refused(text)
    assert error.code == "DEFINITION-021"
    assert got in error.got


def test_halves_of_a_character_are_one_character():
    assert read(r"'\ud83d\ude00'").tree.node == Literal("😀", "string")
    assert read(r"'\ud83d'").tree.node == Literal("?", "string")
    assert read("'😀'").tree.node == Literal("😀", "string")


def answers(text, values):
    """What the local engine says for each value of a column ``s``."""
    value = duckdb_sql(expression(text, SCHEMA, "test"), "test")
    connection = Queries().connection
    connection.register("corner_rows", pa.table({"s": values}))
    return [row[0] for row in connection.sql(f"SELECT {value} FROM corner_rows").fetchall()]


def test_not_like_any_holds_where_one_pattern_does_not_fit():
    assert answers("s NOT LIKE ANY ('a%', '%c')", ["abc", "ab", "bc", "b"]) == [False, True, True, True]
    assert answers("s NOT LIKE ALL ('a%', '%c')", ["abc", "ab", "bc", "b"]) == [False, False, False, True]
    assert answers("s NOT LIKE 'a!%' ESCAPE '!'", ["a%", "ab"]) == [False, True]


def test_the_first_argument_of_trim_is_what_is_taken_away():
    assert answers("trim('a', s)", ["aba"]) == ["b"]
    assert answers("ltrim('a', s)", ["aba"]) == ["ba"]
    assert answers("rtrim('a', s)", ["aba"]) == ["ab"]
    assert answers("trim('a' FROM s)", ["aba"]) == ["b"]
    assert answers("btrim(s, 'a')", ["aba"]) == ["b"]
    assert answers("trim(s)", [" b "]) == ["b"]


@pytest.mark.parametrize(
    ("text", "type_", "columns"),
    [
        ("datediff(day, DATE '2024-01-01')", "int", ("day",)),
        ("date_diff(dt, day)", "int", ("dt", "day")),
        ("date_diff(day, dt)", "int", ("dt", "day")),
        ("date_add(day, 3)", "date", ("day",)),
        ("datediff(day, dt, day)", "bigint", ("dt", "day")),
    ],
)
def test_the_first_of_two_arguments_named_as_a_unit_is_a_column(text, type_, columns):
    schema = Schema((*SCHEMA.columns, Column(name="day", type="date")))
    made = expression(text, schema, "test")
    assert (made.type, made.columns) == (type_, columns)
