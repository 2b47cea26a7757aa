"""Expressions of which Sail has another value than Spark, found among random ones: refused, or computed in words that give Spark's."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.engines.embedded.memory.values import values
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.values.schema import Column, Schema

TYPES = {
    "n": "int",
    "h": "smallint",
    "i": "bigint",
    "f": "double",
    "w": "decimal(38,6)",
    "b": "boolean",
    "s": "string",
    "t": "date",
    "a": "array<bigint>",
    "p": "array<string>",
}
SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))


def computed(text: str, **row: object) -> object:
    kind = expression(text, SCHEMA, "one").type
    rows = pa.Table.from_pylist([dict.fromkeys(TYPES) | row], schema=arrow_schema(SCHEMA))
    (column,) = values(rows, [Attempt(step="one", text=text, type=kind, schema=SCHEMA)])
    return column[0].as_py()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("array_intersect(array(f, f), a)", "0.0 and -0.0"),
        ("array_except(array(f, f), a)", "0.0 and -0.0"),
        ("elt(s, s)", "elt with an index"),
        ("coalesce(CAST(n AS float), f)", "write double"),
        ("float(n) * 2D", "write double"),
        ("p[2] || NULL", "beside what may fail"),
        ("concat(p[2], last_day(NULL))", "beside what may fail"),
        ("hash(exp(f))", "12 digits only"),
        ("exp(f) = 1D", "= of what exp gives, which is Spark's to 12 digits only"),
        ("exp(f) > 1D", "12 digits only"),
        ("exp(f) BETWEEN 1D AND 2D", "12 digits only"),
        ("floor(log10(f))", "floor of what log10 gives"),
        ("round(tan(f))", "round of what tan gives"),
        ("(1D + abs(cos(f))) % 2D", "% of what cos gives"),
        ("CAST(exp(f) AS int)", "CAST AS int of what exp gives"),
        ("CAST(exp(f) AS float)", "CAST AS float of what exp gives"),
        ("xxhash64(s, CASE WHEN b THEN exp(f) END)", "xxhash64 of what exp gives"),
        ("sin(exp(f))", "sin of what exp gives"),
        ("exists(array(exp(f)), x -> x > 1D)", "> of what exp gives"),
        ("concat_ws(NULL, CAST(10 % n AS string))", "concat_ws of NULL beside what may fail"),
        ("map_from_arrays(array(f, f), p)", "0.0 and -0.0 are one or two"),
        ("n ^ n", "of one value twice"),
        ("i ^ (n ^ i)", "of one value twice"),
        ("length(acosh(f))", r"cast\(double as string\)"),
    ],
)
def test_what_sail_would_answer_otherwise_is_refused(text: str, reason: str) -> None:
    with pytest.raises(CapabilityError, match=reason):
        sail_sql(text, SCHEMA, "one")


@pytest.mark.parametrize(
    "text",
    [
        "2D * exp(f) + if(b, cos(f), 1D)",
        "exp(f) IS NULL OR isnan(ln(f))",
        "array(exp(f), f)[0]",
        "n ^ i ^ 1 ^ 1",
        "sqrt(f) > 1D",
        "concat_ws('-', NULL, CAST(10 % n AS string))",
        "CAST(h AS float)",
        "if(b, NULL, n + 1)",
    ],
)
def test_what_is_like_it_is_let_through(text: str) -> None:
    assert sail_sql(text, SCHEMA, "one")


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("f IN (2.345, CASE WHEN b THEN 0.5D ELSE h END)", {"f": 1.0}, None),
        ("w IN (n, CASE WHEN b THEN 10 ELSE w END)", {"w": Decimal("1.5"), "n": 3}, True),
        ("right(s, TRY_CAST(h AS tinyint))", {"s": "abc", "h": -1000}, None),
        ("CAST(w AS double)", {"w": Decimal("18446744073709551616.333333")}, 18446744073709551616.333333),
        ("w + f", {"w": Decimal("12345678901234567890.123456"), "f": 0.0}, 12345678901234567890.123456),
        ("CAST(CAST(w AS string) AS double) - w", {"w": Decimal("12345678901234567890.123456")}, 0.0),
        ("h / s", {"h": 3, "s": "2"}, 1.5),
        ("t + n", {"t": date(2020, 1, 31), "n": 1}, date(2020, 2, 1)),
        ("t + n", {"n": 2147483647}, None),
        ("instr(t, CAST(s AS tinyint))", {"s": "abc"}, None),
        ("left(s, CAST(w AS int))", {"w": Decimal("99999999999.000000")}, None),
        ("split_part(s, p[9], 1)", {"p": ["a"]}, None),
        ("startswith(t, CAST(n % h AS string)) OR b", {"n": 1, "h": 0, "b": False}, None),
        ("CAST(timestamp_micros(i) AS string)", {"i": 86400000000}, "1970-01-02 00:00:00"),
    ],
)
def test_other_words_give_the_values_of_spark(text: str, row: dict[str, object], expected: object) -> None:
    assert computed(text, **row) == expected


@pytest.mark.parametrize(
    ("text", "row", "error"),
    [
        ("h / s", {"h": 3, "s": "1.5"}, ExecutionError),
        ("w * n", {"w": Decimal("9" * 32), "n": 10}, ExecutionError),
        ("left(CAST(n % h AS string), 2)", {"n": 1, "h": 0}, ExecutionError),
        ("f > nullif(n % h, 1)", {"n": 1, "h": 0}, ExecutionError),
        ("w * n", {"w": Decimal("1" + "0" * 31 + ".000000"), "n": 12}, ExecutionError),
        ("t + n", {"t": date(2020, 1, 31), "n": 2147483647}, CapabilityError),
        ("CAST(timestamp_micros(i) AS string)", {"i": 9223372036854775807}, CapabilityError),
    ],
)
def test_a_row_for_which_spark_fails_fails(text: str, row: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        computed(text, **row)
