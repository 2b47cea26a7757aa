"""Expressions are read once: their types are Spark's, and what Spark refuses is refused when it is defined."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from spark_answers import EXPRESSIONS, RECORD, SCHEMA

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import expression, itself, known_type
from floodmark.spec.expressions.expression import Expression

SPARK: dict[str, dict[str, Any]] = json.loads(RECORD.read_text())
NOT_INFERRED = {
    "try_to_number(s, '999')",
    "to_number('12', '99')",
    "make_timestamp(2020, 1, 2, 3, 4, 5.5)",
    "from_json(s, 'a int').a",
}


class Row(fm.Contract):
    """A row."""

    at: fm.EventTime
    i: int
    f: float
    s: str
    ai: list[int]


def read(text: str) -> Expression:
    return expression(text, SCHEMA, "test")


def refused(build: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:

        @fm.operator(name="o")
        def o(rows: fm.Stream[Row]) -> fm.Stream:
            return build(rows)

    return raised.value


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if "type" in SPARK[text] and text != "explode(ai)"])
def test_a_type_is_sparks_own_or_not_known(text: str) -> None:
    kind = read(text).tree.type
    assert kind == ("" if text in NOT_INFERRED else SPARK[text]["type"])


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if "refused" in SPARK[text]])
def test_what_sparks_analyser_refuses_is_refused_when_defined(text: str) -> None:
    with pytest.raises(DefinitionError):
        read(text)


def test_an_expression_knows_the_columns_it_reads_and_is_read_once() -> None:
    text = "coalesce(J, 0) + length(s) + aggregate(ai, 0L, (a, f) -> a + f)"
    assert read(text).columns == ("j", "s", "ai")
    assert read(text) is read(text)
    assert read("1 + 1").constant


@pytest.mark.parametrize(
    ("text", "code", "got"),
    [
        ("i + 1 -- one more", "DEFINITION-140", "a comment"),
        ("i /* + 1 */", "DEFINITION-140", "a comment"),
        ("i > 1; DROP TABLE x", "DEFINITION-141", "a semicolon"),
        ("i IN ()", "DEFINITION-021", "an empty list"),
        ("interval + 1", "DEFINITION-021", "an interval without a unit"),
        ("INTERVAL 1", "DEFINITION-021", "an interval without a unit"),
        ("i AS x", "DEFINITION-021", "'AS' at character 3"),
        ("*", "DEFINITION-021", "(*)"),
        (":x", "DEFINITION-021", "a parameter"),
        ("?", "DEFINITION-021", "a parameter"),
        ("i + ", "DEFINITION-021", "its end"),
        ("(i", "DEFINITION-021", "(')' expected, found its end)"),
        ("TIME '12:00:00'", "DEFINITION-021", "a TIME"),
        ("CAST(i AS bigit)", "DEFINITION-021", "the type 'bigit'"),
        ("(SELECT 1)", "DEFINITION-023", "a subquery"),
        ("i IN (SELECT 1)", "DEFINITION-023", "a subquery"),
        ("count(*)", "DEFINITION-023", "count(*)"),
        ("sum(i)", "DEFINITION-023", "sum(...)"),
        ("rank() OVER (ORDER BY i)", "DEFINITION-023", "rank(...) OVER"),
        ("explode(ai)", "DEFINITION-143", "explode(...)"),
        ("posexplode(ai)", "DEFINITION-143", "posexplode(...)"),
        ("stack(2, i, i)", "DEFINITION-143", "stack(...)"),
        ("lag(i)", "DEFINITION-143", "lag(...)"),
        ("reflect('java.util.UUID', 'randomUUID')", "DEFINITION-143", "reflect(...)"),
        ("array_contains(ai, NULL)", "DEFINITION-145", "array<bigint> and void"),
        ("x -> x + 1", "DEFINITION-145", "a lambda alone"),
        ("transform(ai, (a, c, e) -> a)", "DEFINITION-145", "one of 3"),
        ("a.i + 1", "DEFINITION-022", "'a'"),
        ("upper(s, s)", "DEFINITION-145", "2"),
        ("year()", "DEFINITION-145", "0"),
        ("array_append()", "DEFINITION-145", "0"),
    ],
)
def test_what_is_no_expression_over_one_row_is_refused_when_defined(text: str, code: str, got: str) -> None:
    error = refused(lambda rows: rows.select(x=text))
    assert error.code == code
    assert got in error.got
    assert error.where == "operator 'o', step 'select', column 'x'"


def test_a_function_spark_lacks_gets_the_nearest_names() -> None:
    assert str(refused(lambda rows: rows.filter("yaer(at) = 2024"))) == (
        "DEFINITION-142 operator 'o', step 'filter': expected a function of Spark SQL, got yaer(...) in 'yaer(at) = 2024'. "
        "Did you mean 'year'? What Spark SQL lacks is a function for flat_map(function, schema=...)."
    )


@pytest.mark.parametrize(
    "text", ["at - at", "INTERVAL 1 HOUR", "array(INTERVAL 1 DAY)", "to_timestamp_ntz('2020-01-01')"]
)
def test_what_no_column_can_hold_is_refused_when_defined(text: str) -> None:
    assert refused(lambda rows: rows.select(x=text)).code == "DEFINITION-146"


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: rows.select(n="i", N="f"),
        lambda rows: rows.with_columns(AT="at"),
        lambda rows: rows.window(fm.Tumbling("1 h")).aggregate(n=fm.count(), N=fm.sum("i")),
        lambda rows: rows.key_by("i").window(fm.Tumbling("1 h")).aggregate(I=fm.count()),
        lambda rows: (
            rows.key_by("i").join(rows.select("i", F="f").key_by("i"), within="1 h")
            if False
            else rows.select("i", I="f")
        ),
    ],
)
def test_columns_that_differ_in_case_alone_are_refused(build: Any) -> None:
    assert refused(build).code == "DEFINITION-144"


def test_fields_of_a_contract_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(
        DefinitionError,
        match="DEFINITION-144 contract 'Twice': expected names that differ in more than case, got at and AT",
    ):

        class Twice(fm.Contract):
            at: fm.EventTime
            AT: str


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda rows: rows.fliter("i > 1"),
            "Stream: expected one of its methods, got 'fliter'. Did you mean 'filter'?",
        ),
        (
            lambda rows: rows.key_by("s").windw(fm.Tumbling("1 h")),
            "KeyedStream: expected one of its methods, got 'windw'. Did you mean 'window'?",
        ),
        (
            lambda rows: rows.key_by("s").aggregate(n=fm.count()),
            'aggregate belongs behind .window(Tumbling("1 hour")). KeyedStream has co_group,',
        ),
        (
            lambda rows: rows.aggregate(n=fm.count()),
            'aggregate belongs behind .window(Tumbling("1 hour")). Stream has apply, broadcast,',
        ),
        (lambda rows: rows.window(fm.Tumbling("1 h")).agregate(n=fm.count()), "Did you mean 'aggregate'?"),
    ],
)
def test_a_method_a_builder_lacks_gets_the_nearest_name(build: Any, text: str) -> None:
    error = refused(build)
    assert error.code == "DEFINITION-147"
    assert text in str(error)


def test_builders_still_copy_pickle_and_answer_hasattr() -> None:
    streams = []

    @fm.operator(name="o")
    def o(rows: fm.Stream[Row]) -> fm.Stream:
        streams.append(rows)
        return rows

    assert not hasattr(streams[0], "fliter")
    assert getattr(streams[0], "aggregate", None) is None
    assert copy.deepcopy(streams[0]) == streams[0] == pickle.loads(pickle.dumps(streams[0]))


@pytest.mark.parametrize(
    "text",
    [
        "now()",
        "current_timestamp",
        "current_timestamp()",
        "current_date()",
        "curdate()",
        "localtimestamp()",
        "rand()",
        "randn()",
        "random()",
        "uuid()",
        "unix_timestamp()",
        "shuffle(ai)",
        "uniform(1,10)",
        "randstr(5)",
        "monotonically_increasing_id()",
        "spark_partition_id()",
        "input_file_name()",
        "current_timezone()",
        "current_user()",
        "user",
        "version()",
        "year(now())",
    ],
)
def test_what_is_no_function_of_the_row_is_flagged(text: str) -> None:
    assert not read(text).pure


@pytest.mark.parametrize("text", ["unix_timestamp(ts)", "xxhash64(s)", "to_date(s)", "date_format(ts, 'yyyy')"])
def test_what_is_a_function_of_the_row_is_not_flagged(text: str) -> None:
    assert read(text).pure


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n", "n"),
        ("desc", "desc"),
        ("end", "end"),
        ("true", "`true`"),
        ("null", "`null`"),
        ("interval", "`interval`"),
        ("a b", "`a b`"),
    ],
)
def test_a_column_is_quoted_where_sql_reads_its_name_otherwise(name: str, text: str) -> None:
    assert itself(name) == text


def test_a_type_that_is_not_inferred_asks_for_a_cast() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-043"):
        known_type("from_json(s, 'a int').a", SCHEMA, "test")
    assert known_type("CAST(from_json(s, 'a int').a AS int)", SCHEMA, "test") == "int"
