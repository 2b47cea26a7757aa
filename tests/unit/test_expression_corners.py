"""Corners of Spark's grammar: intervals in sums, half characters, numbers and nestings no type and no reader holds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from spark_answers import SCHEMA

from floodmark.core.errors import DefinitionError
from floodmark.engines.embedded.memory.values import values
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.functions import classified
from floodmark.spec.expressions.tree import Literal
from floodmark.spec.values.schema import Column, Schema


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


def answers(text, given):
    """What the embedded engine says for each value of a column ``s``."""
    attempt = Attempt(step="test", text=text, type=read(text).type, schema=SCHEMA)
    return values(pa.table({"s": pa.array(given, pa.string())}), [attempt])[0].to_pylist()


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


@pytest.mark.parametrize(
    ("text", "code", "expected", "got", "fix"),
    [
        ("dt + INTERVAL n DAY", "021", "Spark SQL", "a number expected behind INTERVAL", "n * INTERVAL 1 DAY"),
        ("INTERVAL '1.5' DAY", "021", "Spark SQL", "an interval of 1.5 DAY", "seconds alone"),
        ("extract('year' FROM dt)", "021", "Spark SQL", "'year' before FROM", "extract(YEAR FROM at)"),
        ("localtimestamp", "022", "columns", "'localtimestamp'", "Write localtimestamp() for the function."),
        ("s * '2'", "145", "a number on one side of *", "string and string", "Cast"),
        ("array_contains(ai, '1')", "145", "a value of type bigint", "string", "Cast"),
        ("greatest(s, i)", "145", "values of one type in greatest", "string and bigint", "Cast"),
        ("ai['a']", "145", "an index of type tinyint or smallint or int or bigint in []", "string", "Cast"),
        ("ai[1.0]", "145", "in []", "decimal(2,1)", "Cast"),
        ("element_at(ai, i)", "145", "an index of type tinyint or smallint or int in element_at", "bigint", "Cast"),
        ("coalesce()", "145", "coalesce of 1 or more arguments", "0 in", "Write "),
        ("substring(s)", "145", "substring of 2 or 3 arguments", "1 in", "Write "),
        ("map('a')", "145", "map of an even number of arguments", "1 in", "Write "),
        ("make_timestamp_ntz(1)", "145", "make_timestamp_ntz of 2 or 6 arguments", "1 in", "Write "),
        ("DATE 'foo'", "021", "Spark SQL", "DATE 'foo'", "YYYY-MM-DD"),
        ("TIMESTAMP '2020-01-01 25:00:00'", "021", "Spark SQL", "25:00:00", "hh:mm:ss"),
        ("TIMESTAMP '12:30'", "021", "Spark SQL", "'12:30'", "the same every day"),
        ("DATE '2021-02-29'", "021", "Spark SQL", "'2021-02-29': day", "a day that exists"),
        ("case + 1", "021", "Spark SQL", "WHEN expected", "`case` in backticks"),
        ("s:a", "145", "a variant before the colon", "string", "Cast"),
        ("builtin.sum(i)", "023", "over one row", "sum(...)", "aggregate"),
        ("builtin.nope(i)", "142", "a function", "nope(...)", "flat_map"),
        ("getdate()", "142", "a function", "getdate(...)", "flat_map"),
    ],
)
def test_what_spark_refuses_is_refused_when_defined(text, code, expected, got, fix):
    error = refused(text)
    assert error.code == f"DEFINITION-{code}"
    assert expected in error.expected
    assert got in error.got
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i !> j", "boolean"),
        ("array(named_struct('f', i)).f", "array<bigint>"),
        ("builtin.abs(n) + system.builtin.abs(n)", "int"),
        ("parse_json(s):a.b[0]['c']::int", "int"),
        ("dt + n * INTERVAL 1 DAY", "timestamp"),
        ("`builtin`.length(s)", "int"),
    ],
)
def test_what_spark_takes_is_taken(text, kind):
    assert read(text).type == kind


@pytest.mark.parametrize(
    "text", ["case", "not", "case > 1", "not > 1", "n = case", "n * not", "CASE WHEN not THEN case END"]
)
def test_case_and_not_may_name_columns(text):
    schema = Schema((*SCHEMA.columns, Column(name="case", type="int"), Column(name="not", type="boolean")))
    if text in {"not > 1", "n * not"}:
        schema = Schema((*SCHEMA.columns, Column(name="not", type="int")))
    assert {"case", "not"} & set(expression(text, schema, "test").columns)


def test_what_follows_a_deciding_condition_is_not_computed():
    """As on Spark; Sail computes both sides of AND and of OR."""
    given = ["abc", "12", None]
    assert answers("s RLIKE '^[0-9]' AND CAST(s AS int) > 5", given) == [False, True, None]
    assert answers("NOT (s RLIKE '^[0-9]') OR CAST(s AS int) > 5", given) == [True, True, None]
    assert answers("s IN ('abc', CAST(CAST(s AS int) AS string))", given) == [True, True, None]
    assert answers("'b' BETWEEN s AND CAST(CAST(s AS int) AS string)", ["c"]) == [False]


def test_numbers_at_the_edge_and_nothing_to_join_are_answered():
    assert answers("CAST(9.223372036854775807E18D AS bigint)", ["x"]) == [(1 << 63) - 1]
    assert answers("CAST(0.12345678901234567890123456789012345678 AS string)", ["x"]) == [
        "0.12345678901234567890123456789012345678"
    ]
    assert answers("concat_ws(',')", ["x"]) == [""]


def test_what_spark_lists_beside_its_functions_is_classified():
    assert {classified(name) for name in ("case", "cast", "!=", "==")} == {"pure"}
    assert {classified(name) for name in ("getdate", "localtimestamp_ltz", "try_to_timestamp_ntz")} == {None}


def test_not_like_any_holds_where_one_pattern_does_not_fit():
    assert answers("s NOT LIKE ANY ('a%', '%c')", ["abc", "ab", "bc", "b"]) == [False, True, True, True]
    assert answers("s NOT LIKE ALL ('a%', '%c')", ["abc", "ab", "bc", "b"]) == [False, False, False, True]
    assert answers("s NOT LIKE 'a!%' ESCAPE '!'", ["a%", "ab"]) == [False, True]
