"""What the embedded engine refuses, and what Sail is asked instead of the user's own text."""

from __future__ import annotations

import re
from decimal import Decimal
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.engines.embedded.memory.values import values
from floodmark.engines.embedded.parity.check import check_operator, location_of, sail_sql
from floodmark.engines.embedded.parity.implicit import explicit
from floodmark.engines.embedded.parity.patterns import OtherPattern, pattern
from floodmark.engines.embedded.parity.signatures import signatures, tokens
from floodmark.engines.embedded.parity.table import Function, Table, parted, table
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.values.schema import Column, Schema

TYPES = {"i": "bigint", "n": "int", "s": "string", "f": "double", "p": "timestamp", "d": "decimal(12,3)"}
SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))


def of(text: str) -> list[str]:
    """The signatures of the outermost node, with what is written out."""
    return [exact for exact, _ in signatures(explicit(expression(text, SCHEMA, "test").tree))]


def test_the_comparison_was_made_with_the_versions_that_are_installed() -> None:
    found = table()
    assert (found.spark, found.sail) == (version("pyspark"), version("pysail")), "run: make parity"


@pytest.mark.parametrize(
    ("text", "cast"),
    [
        ("contains(f, lower(d))", "cast(double as string)"),
        ("floor(CASE WHEN i > 0 THEN f END, -1)", "cast(double as decimal(38))"),
        ("to_timestamp_ntz(f * 2)", "cast(double as string)"),
        ("concat_ws('-', s, f)", "cast(double as string)"),
    ],
)
def test_a_cast_that_spark_makes_by_itself_is_refused_as_if_it_was_written(text: str, cast: str) -> None:
    with pytest.raises(CapabilityError, match=re.escape(cast)):
        sail_sql(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("year(s)", "year(CAST(s AS date))"),
        ("length(d * d)", "length(CAST(d * d AS string))"),
        ("concat_ws('-', s, i)", "concat_ws('-', s, CAST(i AS string))"),
        ("sqrt(s)", "sqrt(CAST(s AS double))"),
    ],
)
def test_a_cast_that_spark_makes_by_itself_is_asked_of_sail_as_if_it_was_written(text: str, written: str) -> None:
    assert sail_sql(text, SCHEMA) == sail_sql(written, SCHEMA)


class Row(fm.Contract):
    """A row."""

    at: fm.EventTime
    s: str
    i: int
    f: float


def test_an_operator_is_refused_with_function_types_and_line() -> None:
    @fm.operator
    def words(rows: fm.Stream[Row]) -> fm.Stream:
        kept = rows.filter("i > 0")
        return kept.select(x="initcap(reverse(s))", y="i + 1", z="s RLIKE '(?i)a'")

    with pytest.raises(CapabilityError) as raised:
        check_operator(words)
    line = words.location.rpartition(":")
    assert raised.value.code == "CAPABILITY-031"
    assert f"{__file__}:{int(line[2]) + 3}: initcap(string) in" in raised.value.got
    assert f"{__file__}:{int(line[2]) + 3}: the pattern '(?i)a' in" in raised.value.got
    assert "i + 1" not in raised.value.got
    assert "floodmark run words --engine spark" in raised.value.fix


def test_the_line_of_a_text_that_is_put_together_is_the_operators() -> None:
    location = f"{__file__}:1"
    assert location_of(location, "no such text " + "anywhere") == location
    assert location_of("<stdin>:3", "i > 0") == "<stdin>:3"


def test_an_operator_of_plain_expressions_is_let_through() -> None:
    @fm.operator
    def plain(rows: fm.Stream[Row]) -> fm.Stream:
        made = rows.filter("i > 0 AND s IS NOT NULL").with_columns(n="i * 2 + 1", u="upper(s) = 'A'")
        return made.key_by("s").window(fm.Tumbling("1 s")).aggregate(total=fm.sum("n"), most=fm.max("i % 7"))

    check_operator(plain)


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (lambda rows: rows.filter("e % 2D > 1D"), "% of what column e gives"),
        (lambda rows: rows.select(x="e * 2D", at="at").filter("x > 1D"), "> of what column x gives"),
        (lambda rows: rows.key_by("e").window(fm.Tumbling("1 s")).aggregate(n=fm.count()), "a key by the column e"),
        (
            lambda rows: rows.key_by("s").window(fm.Tumbling("1 s")).aggregate(n=fm.count_distinct("e")),
            "count_distinct of 'e'",
        ),
        (
            lambda rows: rows.key_by("s").window(fm.Tumbling("1 s")).aggregate(n=fm.max_by("i", by="-e")),
            "max_by of '-e'",
        ),
        (
            lambda rows: (
                rows.key_by("s").window(fm.Tumbling("1 s")).aggregate(total=fm.sum("ln(e)")).filter("floor(total) > 1")
            ),
            "floor of what column total gives",
        ),
    ],
)
def test_a_column_that_is_sparks_to_12_digits_does_not_reach_what_shows_the_others(chain: Any, reason: str) -> None:
    @fm.operator
    def shown(rows: fm.Stream[Row]) -> fm.Stream:
        return chain(rows.with_columns(e="exp(f)"))

    with pytest.raises(CapabilityError, match=f"{re.escape(reason)}.*, which is Spark's to 12 digits only"):
        check_operator(shown)


def test_a_column_that_is_sparks_to_12_digits_may_be_computed_with_and_written() -> None:
    @fm.operator
    def kept(rows: fm.Stream[Row]) -> fm.Stream:
        made = rows.with_columns(e="exp(f)").filter("e IS NOT NULL").with_columns(e2="e / 2D", d="f % 2D")
        return (
            made.key_by("s")
            .window(fm.Tumbling("1 s"))
            .aggregate(n=fm.count("e"), x=fm.max("e2"), m=fm.max_by("e", by="d"))
        )

    check_operator(kept)


def test_whole_numbers_are_added_where_they_cannot_wrap_around() -> None:
    assert "coalesce(try_add(CAST(`i` AS bigint), CAST(`n` AS bigint)), CASE WHEN" in sail_sql("i + n", SCHEMA, "x")
    assert sail_sql("-i", SCHEMA, "x") == "CAST((- CAST(`i` AS decimal(19,0))) AS bigint)"
    assert sail_sql("i * i * 2", SCHEMA, "x").endswith(" AS decimal(19,0)) * CAST(2 AS decimal(19,0))) AS bigint)")
    assert sail_sql("n * 2", SCHEMA, "x") == "CAST((CAST(`n` AS bigint) * CAST(2 AS bigint)) AS int)"


def test_nan_has_no_sign() -> None:
    read = "nanvl(`f`, CAST('NaN' AS double))"
    assert sail_sql("f - f", SCHEMA, "x") == f"CAST(nanvl(({read} - {read}), CAST('NaN' AS double)) AS double)"


def test_texts_are_written_anew() -> None:
    assert sail_sql("'it''s' || s", SCHEMA, "x") == r"CAST(('it\'s' || `s`) AS string)"


def test_a_comparison_of_lengths_of_time_is_refused_with_that_of_the_times() -> None:
    schema = Schema((Column(name="a", type="timestamp"), Column(name="b", type="timestamp")))
    with pytest.raises(CapabilityError, match=r"CAPABILITY-031 .*interval.*a > b \+ INTERVAL '2' HOUR in place of"):
        sail_sql("a - b > INTERVAL '2' HOUR", schema, "column 'x'")
    assert sail_sql("a > b + INTERVAL '2' HOUR", schema, "column 'x'")


@pytest.mark.parametrize(
    "text",
    [
        "monotonically_increasing_id()",
        "spark_partition_id()",
        "input_file_name()",
        "map('a', NULL, 'b', 1)",
        "named_struct('a', NULL, 'b', 1)",
    ],
)
def test_what_was_not_compared_is_refused(text: str) -> None:
    with pytest.raises(CapabilityError, match=r"CAPABILITY-031 .*not compared with Spark.*--engine spark"):
        sail_sql(text, SCHEMA, "column 'x'")


@pytest.mark.parametrize(
    "other",
    ["3", "coalesce(3, i)", "ifnull(3, i)", "if(true, 3, i)", "CASE WHEN true THEN 3 ELSE i END"],
)
def test_a_cast_is_hidden_beside_what_sail_may_know(other: str) -> None:
    assert "nullif(CAST(`i` AS int), NULL)" in sail_sql(f"CAST(i AS int) > {other}", SCHEMA)
    assert "nullif" not in sail_sql("CAST(i AS int) > n", SCHEMA)


def test_a_decimal_that_becomes_a_boolean_is_rounded_before() -> None:
    text = "CAST(CAST(d AS decimal(9,0)) AS boolean)"
    assert sail_sql(text, SCHEMA) == "(nullif(CAST(`d` AS decimal(9,0)), NULL) <> 0)"


def test_a_constant_that_fails_below_a_condition_is_refused() -> None:
    with pytest.raises(CapabilityError, match="below a condition"):
        sail_sql("CASE WHEN i > 3 THEN CAST('x' AS int) END", SCHEMA, "x")


def test_signatures_hold_what_decides_the_answer() -> None:
    assert of("left(s, 2)") == ["left(string, int +)"]
    assert of("left(s, n)") == ["left(string, int)"]
    assert of("date_trunc('HOUR', p)") == ["date_trunc('hour', timestamp)"]
    assert of("date_format(p, 'yyyy-MM')") == [
        f"date_format(timestamp, format {part})" for part in ("yyyy", "text", "MM")
    ]
    assert of("s RLIKE 'a'") == ["rlike(string, pattern)"]
    assert of("coalesce(d, i, d)") == ["coalesce(bigint, decimal, ...)"]
    assert of("CAST(d AS decimal(20,3))") == ["cast(decimal as decimal(38))"]
    assert tokens("yyyy-MM-dd'T'HH") == ["yyyy", "text", "MM", "dd", "HH"]


def test_a_written_argument_counts_before_its_type() -> None:
    differing = {"string, int -": ("left('ab', -1)", "''", "'a'")}
    left = Function({"agrees": ["string, int"], "refused": ["string, int -"]}, {}, differing)
    found = Table("4", "0", {"left": left})
    assert found.verdict("left(string, int -)", "left(string, int)") == "refused"
    assert found.verdict("left(string, int +)", "left(string, int)") == "agrees"
    assert found.verdict("right(string, int +)", "right(string, int)") is None
    assert found.example("left(string, int -)") == ("left('ab', -1)", "''", "'a'")


def test_names_and_forms_are_parted() -> None:
    assert parted("<=>(bigint, decimal(38))") == ("<=>", "bigint, decimal(38)")
    assert parted("literal decimal(38)") == ("literal", "decimal(38)")


@pytest.mark.parametrize(
    ("java", "sail"),
    [(r"\d+", "[0-9]+"), ("a.c", r"a[^\n\r\x{85}\x{2028}\x{2029}]c"), ("[a-c]x?", "[a-c]x?"), ("(a|b){2}", "(a|b){2}")],
)
def test_patterns_mean_the_same(java: str, sail: str) -> None:
    assert pattern(java) == sail


@pytest.mark.parametrize("java", [r"\bx", "(?i)a", r"\p{L}", "a++", "[a&&b]", "(?=a)", r"(a)\1", "[[:alpha:]]"])
def test_other_patterns_are_refused(java: str) -> None:
    with pytest.raises(OtherPattern):
        pattern(java)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("transform(a, x -> x + n)", [13, 11, None]),
        ("filter(a, (x, i) -> x > i)", [3]),
        ("exists(a, x -> x > 2)", True),
        ("forall(a, x -> x IS NULL OR x > 0)", True),
        ("aggregate(a, 0L, (acc, x) -> acc + coalesce(x, 0L), acc -> acc * 2)", 8),
        (
            "array_sort(a, (x, y) -> CASE WHEN x IS NULL THEN 1 WHEN y IS NULL THEN -1 WHEN x < y THEN -1 ELSE 1 END)",
            [1, 3, None],
        ),
    ],
)
def test_functions_with_lambdas_are_computed(text, value):
    columns = (Column(name="a", type="array<bigint>"), Column(name="n", type="bigint"))
    schema = Schema(columns)
    attempt = Attempt(step="test", text=text, type=expression(text, schema, "test").type, schema=schema)
    rows = pa.table({"a": pa.array([[3, 1, None]], pa.list_(pa.int64())), "n": [10]})
    assert values(rows, [attempt])[0].to_pylist() == [value]


def computed(text: str, **row: object) -> object:
    """What Sail answers for one row."""
    kinds = {
        "i": "bigint",
        "n": "int",
        "s": "string",
        "f": "double",
        "g": "double",
        "d": "decimal(12,3)",
        "e": "decimal(22,3)",
    }
    schema = Schema(tuple(Column(name=name, type=kinds[name]) for name in row))
    attempt = Attempt(step="test", text=text, type=expression(text, schema, "test").type, schema=schema)
    return values(
        pa.table({name: pa.array([value], arrow_type(kinds[name])) for name, value in row.items()}), [attempt]
    )[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "row", "value"),
    [
        ("i / 100.0", {"i": 1999}, Decimal("19.990000")),
        ("i / 3.0", {"i": -2}, Decimal("-0.666667")),
        ("i / n", {"i": None, "n": 0}, None),
        ("f / n", {"f": 1.0, "n": 4}, 0.25),
        ("e / i", {"e": Decimal("10.000"), "i": 3}, Decimal("3.3333333333333333333")),
        ("d DIV n", {"d": Decimal("-7.900"), "n": 2}, -3),
        ("greatest(f, n)", {"f": 0.5, "n": 1}, 1.0),
        ("greatest(f, g, f, g)", {"f": -0.0, "g": 0.0}, -0.0),
        ("try_add(i, n)", {"i": (1 << 63) - 1, "n": 1}, None),
        ("coalesce(f, n)", {"f": None, "n": 2}, 2.0),
        ("i + CAST(s AS int)", {"i": None, "s": "x"}, None),
        ("i = CAST(s AS bigint)", {"i": None, "s": "x"}, None),
        ("CAST(s AS double) / f", {"s": "x", "f": None}, None),
        ("CAST(d AS decimal(11,2)) = 0", {"d": Decimal("0.001")}, True),
        ("n IN (1, 2)", {"n": 2}, True),
        ("f / g > 1.0D", {"f": float("inf"), "g": float("inf")}, True),
        ("if(i > 3, 1 % 0, i)", {"i": 2}, 2),
    ],
)
def test_arithmetic_is_that_of_spark(text: str, row: dict[str, object], value: object) -> None:
    found = computed(text, **row)
    assert (type(found), str(found)) == (type(value), str(value))


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("i / 0.0", {"i": 1}),
        ("f / g", {"f": 1.0, "g": -0.0}),
        ("i % n", {"i": 1, "n": 0}),
        ("CAST(i AS int) = 3", {"i": 1 << 40}),
        ("n * 2 = 6", {"n": (1 << 31) - 1}),
        ("CAST(i AS int) IN (3, 4)", {"i": 1 << 40}),
    ],
)
def test_what_fails_on_spark_fails(text: str, row: dict[str, object]) -> None:
    with pytest.raises(ExecutionError, match="EXECUTION-006"):
        computed(text, **row)


@pytest.mark.parametrize(
    "text",
    ["exists(a, x -> 10 DIV x > 2)", "exists(a, true)", "exists(a, NULL)", "forall(a, x -> CAST(x AS tinyint) > 1)"],
)
def test_a_condition_that_may_fail_behind_the_element_that_decides_is_refused(text):
    with pytest.raises(CapabilityError, match="CAPABILITY-031"):
        sail_sql(text, Schema((Column(name="a", type="array<bigint>"),)))
