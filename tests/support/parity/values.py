"""Odd values of every type, and the tables both engines read them from."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.engines.embedded.parity.implicit import explicit
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.values.schema import Column, Schema

NAN, INF = float("nan"), float("inf")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _integers(bits: int, *more: int) -> list[int | None]:
    most = (1 << bits - 1) - 1
    return [3, 0, None, -1, 1, 2, most, -most - 1, -7, 10, 100, 7, -3, 5, most - 1, 31, -2, 12, *more]


def _decimals(*texts: str) -> list[Decimal | None]:
    return [None if text == "null" else Decimal(text) for text in texts]


# fmt: off
VALUES: dict[str, list[Any]] = {
    "tinyint": _integers(8),
    "smallint": _integers(16, 1000, -1000),
    "int": _integers(32, 46341, 65536, 18262, -46341),
    "bigint": _integers(64, 3037000500, 1234567890123, (1 << 53) + 1, -3037000500, 1 << 31, 86400, 253402300799),
    "float": [2.5, 0.0, None, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.1, -1.5, 1e30, 1e-7, 16777216.0, 3.0, 100.0, 0.5, -2.5, 1e10, 1e-45],
    "double": [2.5, 0.0, None, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.1, -2.5, 1e300, 1e-5, 0.5, -0.5, 3.0, 12345678.9, 1e7, 5e-324,
               9.3e18, 123456.789, 1.5, -1e300, 0.005],
    "decimal(12,3)": _decimals("1.500", "0.000", "null", "-1.500", "999999999.999", "-999999999.999", "2.345", "-0.005", "0.005",
                               "25.000", "3.000", "1.000", "-1.000", "0.500", "-2.500", "123456.789", "2.500", "0.001"),
    "decimal(38,6)": _decimals("1.500000", "0.000000", "null", "-1.500000", "9" * 32 + ".999999", "-" + "9" * 32 + ".999999",
                               "0.000001", "12345678901234567890.123456", "3.000000", "-7.000000", "2.500000", "1.000000",
                               "-0.500000", "18446744073709551616.000000", "0.333333", "9223372036854775807.000000"),
    "decimal(38,0)": _decimals("1", "0", "null", "-1", "9" * 38, "-" + "9" * 38, "7", "10", "9223372036854775808", "-9223372036854775808",
                               "12345678901234567890123456789", "3", "-3", "2", "5" + "0" * 37, "100"),
    "boolean": [True, False, None],
    "string": ["abc", "", None, "a", "ABC", "é", "e\u0301", "😀", "a😀b", "straße", " a b ", "12", "-3", "1.5", "true", "2020-01-31",
               "2020-01-31 10:11:12", "a,b,c", "a%b_c", "a\\b", "it's", "x\ny", "NaN", "ΑΣ", "İ", "b", "YWJj", "FF", "Hello World",
               "1e3", "ﬁ", "\u00a0x\u2028", "9223372036854775808", "a\n", "\U0001F1E9\U0001F1EA", "abcabc", "aXbXc", "\t1 ",
               '{"a": 1, "b": [1, 2]}', "http://u:p@h.org:80/p/q?k=v&l=w#f", "Mon", "0x1F", "a\0b", "2020-02-30", "Infinity",
               "9999-12-31", "0001-01-01", "fALSE", "y", "a.b", "a b\tc", "ZZ", "ὈΔ", "ǆ"],
    "binary": [b"abc", b"", None, b"\xff", b"\x00\x01", "é😀".encode(), b"12", b"a", b"\x80\x81", b"abcabc"],
    "date": [date(2020, 1, 31), date(1970, 1, 1), None, date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(2020, 2, 29),
             date(1582, 10, 15), date(1500, 3, 1), date(2021, 1, 3), date(2019, 12, 29), date(2024, 12, 30), date(1677, 9, 21),
             date(2262, 4, 12), date(1900, 2, 28), date(2000, 1, 1), date(2026, 12, 31), date(1582, 10, 4)],
    "timestamp": [_at("2020-01-31 10:11:12.123456"), _at("1970-01-01 00:00:00"), None, _at("1969-12-31 23:59:59.999999"),
                  _at("0001-01-01 00:00:00"), _at("9999-12-31 23:59:59.999999"), _at("2020-03-29 01:30:00"),
                  _at("2020-11-01 06:30:00"), _at("1500-03-01 05:06:07"), _at("2019-12-29 23:59:59.500000"),
                  _at("1582-10-15 00:00:00"), _at("1677-09-20 00:00:00"), _at("2262-04-12 00:00:00"), _at("2024-02-29 12:30:45"),
                  _at("1969-12-31 23:00:00.000001"), _at("2026-12-31 23:00:00"), _at("1883-11-18 17:00:00"),
                  _at("2020-03-08 07:00:00"), _at("2021-01-03 00:00:00")],
    "array<bigint>": [[3, 1, 2], [], None, [1, 1, -2], [None, 1], [5], [(1 << 63) - 1, -(1 << 63)], [1, None, 2, None, 1], [0], [7, 10, 3]],
    "array<int>": [[3, 1, 2], [], None, [1, 1, -2], [None, 1], [5], [(1 << 31) - 1, -(1 << 31)], [0]],
    "array<double>": [[2.5, 1.0], [], None, [NAN, 1.0, NAN], [0.0, -0.0], [None, INF, -INF], [-0.0, 0.0, 0.0], [1e300, 5e-324]],
    "array<string>": [["a", "b"], [], None, ["b", "a", "b"], ["x", None], ["", "é", "e\u0301"], ["😀", "ABC", "abc"], [None]],
    "array<boolean>": [[True, False], [], None, [None, True]],
    "array<date>": [[date(2020, 1, 31), date(1, 1, 1)], [], None, [None, date(9999, 12, 31)]],
    "array<timestamp>": [[_at("2020-01-31 10:11:12.123456"), _at("0001-01-01 00:00:00")], [], None, [None, _at("9999-12-31 23:59:59.999999")]],
    "array<array<bigint>>": [[[1, 2], [3]], [], None, [None, [1]], [[], [None]]],
    "array<array<string>>": [[["a"], ["b", None]], [], None, [None, ["é"]]],
}
# fmt: on
KINDS = {
    "tinyint": "y",
    "smallint": "h",
    "int": "n",
    "bigint": "i",
    "float": "g",
    "double": "f",
    "decimal(12,3)": "d",
    "decimal(38,6)": "w",
    "decimal(38,0)": "z",
    "boolean": "b",
    "string": "s",
    "binary": "x",
    "date": "t",
    "timestamp": "p",
    "array<bigint>": "ai",
    "array<int>": "an",
    "array<double>": "af",
    "array<string>": "st",
    "array<boolean>": "ab",
    "array<date>": "at",
    "array<timestamp>": "ap",
    "array<array<bigint>>": "aai",
    "array<array<string>>": "ast",
}  # fmt: skip
"""Type -> the name of its columns, which end in 1, 2 and 3."""
SIDE = 24
"""Values of a type that meet those of each other type."""
SCHEMA = Schema(tuple(Column(name=f"{name}{n}", type=kind) for kind, name in KINDS.items() for n in (1, 2, 3)))


def _rows(places: list[tuple[int, int, int]]) -> pa.Table:
    columns: dict[str, list[Any]] = {"r": list(range(len(places)))}
    for kind, name in KINDS.items():
        values = VALUES[kind]
        for n in range(3):
            columns[f"{name}{n + 1}"] = [values[place[n] % len(values)] for place in places]
    return pa.table(columns, pa.schema([pa.field("r", pa.int32()), *arrow_schema(SCHEMA)]))


def tables() -> dict[str, pa.Table]:
    """``one``: every value of each type once. ``two``: the first values of each type beside those of each other type."""
    most = max(map(len, VALUES.values()))
    one = [(i, i + 1, i + 2) for i in range(most)]
    two = [(i, j, i + 2 * j) for i in range(SIDE) for j in range(SIDE)]
    return {"one": _rows(one), "two": _rows(two)}


def table_of(text: str) -> str:
    """The table an expression is asked of: ``two`` where it reads a second column of a type."""
    return "two" if re.search(r"\b[a-z]{1,3}[23]\b", text) else "one"


def tree_of(text: str) -> Typed:
    """An expression over the tables' columns as Sail is asked it, with the casts that Spark makes by itself."""
    return explicit(expression(text, SCHEMA, "parity").tree)


def write(folder: Path) -> None:
    """The tables as Parquet files."""
    for name, table in tables().items():
        pq.write_table(table, folder / f"{name}.parquet")
