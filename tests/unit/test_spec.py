"""What authors write wrongly, and what they are told: exact texts, nothing started."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import Field

import floodmark as fm
from floodmark import (
    Contract,
    EventTime,
    LocalTime,
    Outputs,
    Rows,
    Sliding,
    Source,
    Stream,
    Tumbling,
    Workspace,
    operator,
)
from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.spec.expressions import quoted
from floodmark.spec.rows.contract import schema
from floodmark.testing import Case


class Flight(Contract):
    """A flight."""

    scheduled: EventTime
    origin: str
    dep_delay: int | None = None


COLUMNS = "Columns: scheduled timestamp, origin string, dep_delay bigint."


def told(define: Any) -> str:
    with pytest.raises((DefinitionError, CapabilityError)) as caught:
        define()
    return str(caught.value)


def body(build: Any) -> Any:
    def define() -> None:
        @operator(name="departures")
        def departures(flights: Stream[Flight]) -> Stream:
            return build(flights)

    return define


class Column:
    """Looks like pyspark's, without starting it."""

    def __str__(self) -> str:
        return "Column<'(dep_delay > 60)'>"


Column.__module__ = "pyspark.sql.classic.column"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda f: f.filter("dep_dealy > 60"),
            (
                "DEFINITION-022 operator 'departures', step 'filter': expected columns of the stream, got 'dep_dealy'. "
                f"Did you mean 'dep_delay'? {COLUMNS}"
            ),
        ),
        (
            lambda f: f.filter(Column()),
            (
                "DEFINITION-020 operator 'departures', step 'filter': expected Spark SQL text, got a pyspark Column. "
                'Write it as text: "(dep_delay > 60)".'
            ),
        ),
        (
            lambda f: f.key_by("origin").window(Tumbling("1 hour")).aggregate(delay=fm.mean("origin")),
            (
                "DEFINITION-041 operator 'departures', step 'aggregate', column 'delay': expected a number to take the mean of, "
                "got 'origin' of type string. Use count() or count_distinct(), or cast it: mean(\"CAST(origin AS double)\")."
            ),
        ),
        (
            lambda f: f.key_by("origin").window(Tumbling("0 s")),
            (
                "DEFINITION-030 Tumbling window: expected a positive size, got 0 s. Set size to at least 1 millisecond, for example "
                'Tumbling("1 hour"), or use Global().'
            ),
        ),
        (
            lambda f: f.key_by("origni"),
            f"DEFINITION-022 operator 'departures', step 'key_by': expected columns of the stream, got 'origni'. Did you mean 'origin'? {COLUMNS}",
        ),
        (
            lambda f: f.window(Sliding("1 hour", "a while")),
            (
                'DEFINITION-001 Sliding, slide: expected a duration such as "1 hour", "90 seconds" or "500ms", got \'a while\'. '
                "Units are ms, seconds, minutes, hours, days and weeks; months and years are Calendar windows."
            ),
        ),
        (
            lambda f: f.with_columns(long="make_timestamp(dep_delay)"),
            (
                "DEFINITION-043 operator 'departures', step 'with_columns', column 'long': expected an expression of known type, got "
                "'make_timestamp(dep_delay)'. Say the type: long=\"CAST(make_timestamp(dep_delay) AS double)\"."
            ),
        ),
        (
            lambda f: f.key_by("origin"),
            (
                "DEFINITION-061 operator 'departures': expected a Stream or Outputs, got KeyedStream. Return a stream, or "
                "Outputs(severe=..., normal=...); a window needs .aggregate(...) to become one."
            ),
        ),
        (
            lambda f: Outputs(plain=f, counted=f.window(Tumbling("1 hour")).aggregate(n=fm.count())),
            (
                "CAPABILITY-001 operator 'departures': expected stateful steps that all outputs go through, got a stateful step beside the "
                "plain output 'plain'. Split it into two operators and bind one to the other: @operator(inputs={...: first_operator})."
            ),
        ),
    ],
)
def test_a_wrong_operator_is_told_where_what_and_what_to_do(build: Any, text: str) -> None:
    assert told(body(build)) == text


def counting(name: str, **inputs: Any) -> Any:
    @operator(name=name, inputs=inputs)
    def count_them(flights: Stream[Flight]) -> Stream:
        return flights.key_by("origin").window(Tumbling("1 hour")).aggregate(n=fm.count())

    return count_them


def flights() -> Source:
    return Source("flights", contract=Flight, connector=Rows([]), watermark=fm.Ascending())


def test_two_operators_of_one_name_and_an_unknown_input() -> None:
    text = told(lambda: Workspace(sources=[flights()], operators=[counting("a"), counting("a")]))
    assert text.startswith(
        "DEFINITION-070 workspace: expected one definition per name, got 2 named 'a'. Keep one of them, or rename one"
    )
    text = told(lambda: Workspace(sources=[flights()], operators=[counting("a", flights="flihgts")]))
    assert text == (
        "DEFINITION-071 operator 'a', input 'flights': expected a source or an output, got 'flihgts'. Did you mean 'flights'? "
        "Tables: a, flights."
    )
    with pytest.raises(DefinitionError, match="DEFINITION-060 operator 'a'"):
        counting("a", flight="flights")


def test_equal_code_has_one_fingerprint_and_a_change_another() -> None:
    def define(text: str, function: Any) -> Any:
        @operator(name="x")
        def x(flights: Stream[Flight]) -> Stream:
            return flights.flat_map(function, schema=Flight).filter(text)

        return x

    def same(row: Any) -> Any:
        """A docstring and comments do not count."""
        yield row  # nothing

    def changed(row: Any) -> Any:
        yield dict(row)

    one, two = define("dep_delay > 1", same), define("dep_delay > 1", same)
    assert one == two
    assert hash(one) == hash(two)
    assert (
        len({one.fingerprint, define("dep_delay > 2", same).fingerprint, define("dep_delay > 1", changed).fingerprint})
        == 3
    )


@pytest.mark.feature("T20")
def test_an_expression_that_reads_the_clock_is_flagged() -> None:
    @operator
    def now(flights: Stream[Flight]) -> Stream:
        return flights.filter("scheduled < current_timestamp()")

    assert now.warnings == (
        "operator 'now': 'scheduled < current_timestamp()' reads a clock or a random number; a replay will differ",
    )


@pytest.mark.parametrize(
    ("text", "read", "kind"),
    [
        ("origin > 5", "origin", "bigint"),
        ("dep_delay > 1.5 AND origin BETWEEN 1 AND 2", "origin", "bigint"),
        ("origin IN (1, 2)", "origin", "bigint"),
        ("upper(origin) = dep_delay", "upper(...)", "bigint"),
        ("scheduled < origin", "origin", "timestamp"),
        ("origin + 1 > 2", "origin", "bigint"),
        ("NOT origin", "origin", "boolean"),
        ("dep_delay = 'late'", "'late'", "bigint"),
        ("CASE WHEN dep_delay > 1 THEN 1 ELSE origin END = 1", "origin", "bigint"),
        ("coalesce(dep_delay, origin) = 1", "origin", "bigint"),
        ("abs(origin) > 1.5", "origin", "double"),
        ("-origin > 1.5", "origin", "double"),
    ],
)
def test_text_that_an_expression_takes_for_something_else_is_flagged(text: str, read: str, kind: str) -> None:
    @operator
    def typed(flights: Stream[Flight]) -> Stream:
        return flights.filter(text)

    (warning,) = typed.warnings
    assert warning.startswith(
        f"operator 'typed': '{text}' reads the text {read} as {kind}; a row whose text is no {kind} stops the run."
    )
    assert f"write try_cast({read} AS {kind})" in warning


@pytest.mark.parametrize(
    "text",
    [
        "origin > 'AA'",
        "scheduled > '2013-01-01'",
        "dep_delay = '15'",
        "try_cast(origin AS bigint) > 5",
        "origin IS NULL OR origin IN ('AA', 'UA')",
        "concat(origin, 1) = 'AA1'",
        "CASE WHEN dep_delay > 1 THEN 'late' ELSE origin END = 'late'",
    ],
)
def test_text_that_is_compared_as_text_is_not_flagged(text: str) -> None:
    @operator
    def typed(flights: Stream[Flight]) -> Stream:
        return flights.filter(text)

    assert typed.warnings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("größe", "`größe`"),
        ("upper(größe) = 'größe' AND `größe` > λ*2", "upper(`größe`) = 'größe' AND `größe` > `λ`*2"),
        ("coalesce(end, 'größe')", "coalesce(end, 'größe')"),
    ],
)
def test_names_that_are_not_of_ascii_are_quoted_for_spark(text: str, expected: str) -> None:
    assert quoted(text) == expected


def test_local_times_that_do_not_exist_or_exist_twice() -> None:
    class Local(Contract):
        """Local times."""

        at: Annotated[EventTime, LocalTime("America/New_York")]

    assert Local(at="2013-03-10 01:30").at.isoformat() == "2013-03-10T06:30:00+00:00"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2013-03-10 02:30 does not exist in America/New_York"):
        Local(at="2013-03-10 02:30")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"2013-11-03 01:30 exists twice .* \(05:30Z and 06:30Z\)"):
        Local(at="2013-11-03 01:30")  # type: ignore[arg-type]
    assert Local(at="2013-11-03 01:30-05:00").at.hour == 6  # type: ignore[arg-type]


@pytest.mark.feature("X11")
def test_a_contract_becomes_a_schema() -> None:
    assert schema(Flight).describe() == "scheduled timestamp, origin string, dep_delay bigint"
    assert [c.nullable for c in schema(Flight).columns] == [False, False, True]
    with pytest.raises(DefinitionError, match="DEFINITION-012"):

        class Two(Contract):
            """Two event times."""

            a: EventTime
            b: EventTime

    with pytest.raises(DefinitionError, match=r"DEFINITION-013 .*_watermark"):

        class Hidden(Contract):
            """A name pydantic makes no field of."""

            a: EventTime
            _watermark: int | None = None


def test_an_input_by_name_that_has_to_be_bound_is_told_so() -> None:
    class Row(fm.Contract):
        at: fm.EventTime
        key: str

    class Counted(fm.Contract):
        key: str
        n: int

    customers = Source(
        "customers", contract=Row, connector=fm.DeltaTable("/t", read="changes"), watermark=fm.Ascending()
    )

    @fm.operator
    def per_hour(customers: fm.Stream[Row]) -> fm.Stream:
        return customers.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count())

    text = told(lambda: Workspace(sources=[customers], operators=[per_hour]))
    assert text.startswith(
        "DEFINITION-075 operator 'per_hour', input 'customers': expected a bound input, got a source whose"
    )
    assert text.endswith('@operator(inputs={"customers": customers}).')
    bound = fm.operator(inputs={"customers": customers}, name="per_hour")(
        lambda customers: customers.key_by("key").window(fm.Tumbling("1 hour")).aggregate(n=fm.count())
    )

    @fm.operator
    def more(per_hour: fm.Stream[Counted]) -> fm.Stream:
        return per_hour.filter("n > 1")

    text = told(lambda: Workspace(sources=[customers], operators=[bound, more]))
    assert "DEFINITION-075 operator 'more', input 'per_hour'" in text
    assert text.endswith('@operator(inputs={"per_hour": per_hour}).')


def test_a_column_is_itself_whatever_sql_calls_so() -> None:
    class Odd(fm.Contract):
        at: fm.EventTime
        desc: int
        on: int
        current_date: int
        true: int

    @fm.operator
    def picked(odd: fm.Stream[Odd]) -> fm.Stream:
        return odd.with_columns(more="`desc` + 1").select("desc", "on", "current_date", "true", "more")

    case = Case(picked)
    case.feed("odd", [{"at": 0, "desc": 1, "on": 2, "current_date": 3, "true": 4}])
    case.expect([{"desc": 1, "on": 2, "current_date": 3, "true": 4, "more": 2}])


def test_digits_of_a_decimal_count_wherever_they_are_written() -> None:
    money = Annotated[Decimal, Field(max_digits=20, decimal_places=4)]

    class Priced(fm.Contract):
        at: fm.EventTime
        plain: money  # type: ignore[valid-type]
        maybe: money | None = None
        several: list[money]
        field: Decimal | None = Field(default=None, max_digits=10, decimal_places=2)

    assert schema(Priced).describe() == (
        "at timestamp, plain decimal(20,4), maybe decimal(20,4), several array<decimal(20,4)>, field decimal(10,2)"
    )


@pytest.mark.parametrize(("name", "here"), [("where", "filter"), ("withColumn", "with_columns"), ("groupBy", "key_by")])
def test_a_method_by_its_name_in_spark_is_told_its_name_here(name: str, here: str) -> None:
    text = told(body(lambda f: getattr(f, name)("true")))
    assert text.startswith(
        f"DEFINITION-147 Stream: expected one of its methods, got '{name}'. It is called {here} here."
    )
