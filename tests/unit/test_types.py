"""The table of types: every type comes back from each of its forms."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext

import duckdb
import pyarrow as pa
import pytest
from pydantic import Field
from pyspark.sql.pandas.types import from_arrow_type

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.core.types import SCALARS, Type, array, decimal, known, of_python, parse

VALUES = {
    int: 7,
    float: 1.5,
    bool: True,
    str: "é",
    bytes: b"\0\xff",
    date: date(1, 1, 1),
    datetime: datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    timedelta: timedelta(days=-1, microseconds=1),
    Decimal: Decimal("-1.50"),
}
SIMPLE = [Type(form.name) for form in SCALARS] + [decimal(38, 0), decimal(10, 2), decimal(38, 38)]
COLUMNS = [kind for kind in SIMPLE if kind.is_column]
MADE = [array(kind) for kind in COLUMNS] + [
    parse("map<string, array<decimal(10, 2)>>"),
    parse("struct<a: int, `B c`: map<string, double> not null, é: array<struct<x:date>>>"),
]


@pytest.mark.parametrize("kind", [*SIMPLE, *MADE], ids=str)
def test_a_type_is_what_its_spark_text_says(kind):
    assert parse(str(kind)) == kind
    assert parse(str(kind).upper() if not kind.names else str(kind)) == kind


@pytest.mark.parametrize("kind", [*COLUMNS, *MADE], ids=str)
def test_spark_reads_the_arrow_form_as_the_type(kind):
    assert from_arrow_type(kind.arrow).simpleString() == str(kind).replace("`", "")


@pytest.mark.parametrize("kind", [*COLUMNS, *MADE], ids=str)
def test_duckdb_answers_in_the_arrow_form(kind):
    table = duckdb.sql(f"SELECT CAST(NULL AS {kind.duckdb}) AS x").to_arrow_table()
    assert table.cast(pa.schema([("x", kind.arrow)])).schema.field("x").type == kind.arrow
    if not kind.inner and kind.name != "timestamp":  # DuckDB names the zone of its session there
        assert table.schema.field("x").type in kind.readable


@pytest.mark.parametrize("kind", [k for k in SIMPLE if k.python in VALUES], ids=str)
def test_a_value_keeps_its_python_type_through_arrow(kind):
    value = Decimal(5).scaleb(-kind.scale) if kind.is_decimal else VALUES[kind.python]
    back = pa.array([value, None], kind.arrow).to_pylist()
    assert back[1] is None
    assert type(back[0]) is type(value) is kind.python
    assert back[0] == (value.replace(tzinfo=None) if kind.name == "timestamp_ntz" else value)


@pytest.mark.parametrize("kind", [*COLUMNS], ids=str)
def test_arrow_types_a_column_may_be_read_from_lose_nothing(kind):
    for narrower in kind.readable - {kind.arrow}:
        some = pa.array([None, VALUES[kind.python]], kind.arrow).cast(narrower, safe=False)
        assert some.cast(kind.arrow).cast(narrower) == some


@pytest.mark.parametrize("kind", [k for k in SIMPLE if k.is_exact], ids=str)
def test_bounds_are_those_of_arrow(kind):
    low, high = kind.bounds
    with localcontext(prec=60):
        of = (lambda digits: Decimal(digits).scaleb(-kind.scale)) if kind.is_decimal else int
        assert pa.array([of(low), of(high)], kind.arrow).to_pylist() == [of(low), of(high)]
        for wrong in (low - 1, high + 1):
            with pytest.raises((pa.ArrowInvalid, OverflowError)):
                pa.array([of(wrong)], kind.arrow)


def test_only_integers_and_decimals_have_bounds():
    assert all((kind.bounds is not None) == kind.is_exact for kind in [*SIMPLE, *MADE])


def test_a_contract_s_fields_have_the_widest_type_of_their_python_type():
    assert {k: str(of_python(k)) for k in (int, float, bool, str, bytes, date, datetime)} == {
        int: "bigint",
        float: "double",
        bool: "boolean",
        str: "string",
        bytes: "binary",
        date: "date",
        datetime: "timestamp",
    }
    assert of_python(Decimal) is None
    assert of_python(timedelta) is None


def test_what_may_be_a_key_and_what_has_an_order():
    assert {str(k) for k in [*SIMPLE, *MADE] if k.is_column and not k.is_groupable} == {str(k) for k in MADE}
    unordered = {str(k) for k in [*SIMPLE, *MADE] if not k.is_orderable}
    assert unordered == {"binary", "void", "interval year to month", *map(str, MADE)}


def test_a_type_widens_to_what_holds_all_its_values():
    wider = {(str(a), str(b)) for a in SIMPLE for b in SIMPLE if a != b and a.widens_to(b)}
    whole = ["tinyint", "smallint", "int", "bigint"]
    assert wider == {(a, b) for i, a in enumerate(whole) for b in whole[i + 1 :]} | {
        (a, "double") for a in ("tinyint", "smallint", "int", "float")
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("LONG", "bigint"),
        ("Decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("varchar(10)", "string"),
        ("interval hour to second", "interval day to second"),
        ("INTERVAL month", "interval year to month"),
        ("timestamp_ltz", "timestamp"),
    ],
)
def test_other_names_of_a_type_mean_the_same(text, kind):
    assert str(parse(text)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "array",
        "array<int",
        "array<int>>",
        "map<int>",
        "struct<>",
        "struct<a>",
        "decimal(39,2)",
        "decimal(2,3)",
        "decimal(1,2,3)",
        "decimal(-1,0)",
        "int int",
        "interval year to day",
        "int; drop",
        "array<foo>",
    ],
)
def test_what_names_no_type_is_no_type(text):
    assert known(text) is None


def test_a_misspelt_type_is_refused_with_the_nearest_one():
    with pytest.raises(DefinitionError, match="'bigent'.* Did you mean 'bigint'") as refused:
        parse("bigent", "Range.type")
    assert refused.value.code == "DEFINITION-136"


class R(fm.Contract):
    at: fm.EventTime
    n: int


def test_an_aggregate_of_a_type_that_does_not_exist_is_refused_when_defined():
    class Range(fm.Aggregate):
        type = "bigent"
        create = add = merge = result = lambda *_: None

    with pytest.raises(DefinitionError, match=r"Range\.type") as refused:

        @fm.operator(name="o")
        def o(r: fm.Stream[R]) -> fm.Stream:
            return r.window(fm.Tumbling("1 hour")).aggregate(x=Range("n"))

    assert refused.value.code == "DEFINITION-136"


def test_a_decimal_of_more_digits_than_there_are_is_refused_when_defined():
    with pytest.raises(DefinitionError) as refused:

        class Wide(fm.Contract):
            at: fm.EventTime
            x: Decimal = Field(max_digits=60, decimal_places=2)

    assert refused.value.code == "DEFINITION-011"


@pytest.mark.parametrize("expression", ["array(n)", "map('a', n)", "struct(n, at)", "named_struct('a', n)"])
def test_only_values_that_can_be_compared_are_keys(expression):
    with pytest.raises(DefinitionError) as refused:

        @fm.operator(name="o")
        def o(r: fm.Stream[R]) -> fm.Stream:
            return r.with_columns(x=expression).key_by("x").window(fm.Tumbling("1 hour")).aggregate(c=fm.count())

    assert refused.value.code == "DEFINITION-053"
