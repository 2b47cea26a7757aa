"""Values of keys in a URL: each value of a type has its text, and finds its row and no other, whatever is odd about it."""

from __future__ import annotations

import math
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.types import parse
from floodmark.deliveries.documents import plain
from floodmark.deliveries.results import HAS
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.encoding.order import order_key
from floodmark.serve.refusals import Malformed
from floodmark.serve.runs import Run, write
from floodmark.serve.snapshot import AsOf, Snapshot
from floodmark.serve.values import HIGHEST, NULL, key_columns, plain_key
from floodmark.spec.values.schema import Column

FIRST = datetime(1, 1, 1, tzinfo=UTC)
ODD: dict[str, list[Any]] = {
    "bigint": [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53],
    "tinyint": [127, -128, 0],
    "double": [0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1],
    "float": [0.0, struct.unpack("f", struct.pack("f", 0.1))[0], math.nan, math.inf, 3.4028234663852886e38],
    "decimal(38,10)": [Decimal("0E-10"), Decimal("1.5000000000"), Decimal("-9" + "9" * 27 + "." + "9" * 10)],
    "string": [
        "",
        "null",
        "NaN",
        "a",
        "b&c=d",
        "é",
        "e\u0301",
        "😀",
        "\x00",
        "%41",
        "A",
        " ",
        "+",
        "\uffff",
        "x" * 5_000,
    ],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    "timestamp": [FIRST, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    "binary": [b"", b"\x00", b"\xff\x00", b"abc"],
}
"""Type -> values of it."""


def column(kind: str) -> Any:
    """A key column of a type."""
    made = key_columns([Column(name="k", type=kind)])
    assert made is not None
    return made[0]


def same(one: Any, other: Any) -> bool:
    """Whether two values are one key."""
    return one == other or str(one) == str(other) == "nan"


@pytest.mark.feature("Z24")
@pytest.mark.parametrize("kind", ODD)
def test_each_value_is_found_by_the_text_that_answers_write_and_only_its_row(kind: str, tmp_path: Path) -> None:
    values = [None, *ODD[kind]]
    in_order = sorted(values, key=order_key)
    schema = pa.schema([("k", arrow_type(kind)), ("n", pa.int64()), (HAS, pa.bool_())])
    rows = pa.table(
        [pa.array(in_order, schema.field("k").type), range(len(values)), [True] * len(values)], schema=schema
    )
    write(tmp_path / "run", schema, rows.to_batches())
    as_of = AsOf(output="t", table="", commit=0, committed_at=0, watermark=0)
    snapshot = Snapshot(as_of, (Run(tmp_path / "run", ["k"]),), ("k", "n"))
    key = column(kind)
    for number, value in enumerate(in_order):
        text = plain(value)
        asked = (
            NULL if value is None else key.parsed("true" if text is True else "false" if text is False else f"{text}")
        )
        row = snapshot.get((asked,))
        assert row is not None, value
        assert row["n"] == number
        assert same(row["k"], value) or isinstance(value, float)
        assert asked == plain_key([value])[0]
    page, following = snapshot.page((), (HIGHEST,), 1_000)
    assert ([row["n"] for row in page], following) == (list(range(len(values))), None)


def test_negative_zero_is_zero() -> None:
    assert column("double").parsed("-0.0") == column("double").parsed("0") == (0, 0.0)
    assert column("decimal(4,2)").parsed("-0") == (0, Decimal("0.00"))


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("bigint", ["", "1.0", "9223372036854775808", "1e3", "0x1", "\u0661", " 1", "nan", "9" * 5_000]),
        ("tinyint", ["128", "-129"]),
        ("double", ["", "1e999", "one", "0x1p3", "1_0", "\u0661.\u0665"]),
        ("float", ["3.5e38"]),
        ("decimal(4,2)", ["1.234", "100", "1e1", "nan", "", "."]),
        ("boolean", ["1", "True", ""]),
        ("date", ["2025-13-01", "yesterday", ""]),
        ("timestamp", ["2025-01-01", "2025-01-01T00:00:00", "now", "", "2025-01-01T00:00:00+25:00"]),
        ("binary", ["xyz", "f"]),
        ("string", ["\ud800"]),
    ],
)
def test_a_text_that_is_no_value_of_the_type_is_refused_with_what_is_expected(kind: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(Malformed, match=r"SERVE-002 key column k .*: expected .* null=k"):
            column(kind).parsed(text)


@pytest.mark.parametrize("kind", ["array<bigint>", "struct<a:bigint>"])
def test_keys_that_no_text_names_are_not_asked(kind: str) -> None:
    assert parse(kind)
    assert key_columns([Column(name="k", type=kind)]) is None


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_numbers_and_instants_come_back(number: int, microseconds: int) -> None:
    assert column("bigint").parsed(f"{number}") == (0, number)
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    assert column("timestamp").parsed(plain(instant)) == (0, microseconds)


@given(st.floats())
def test_floating_numbers_come_back(number: float) -> None:
    assert column("double").parsed(f"{plain(number)}") == plain_key([number])[0]


def test_a_run_of_many_rows_answers_as_a_dictionary_does(tmp_path: Path) -> None:
    drawn = random.Random(1)
    keys = sorted(
        {(drawn.choice([None, "a", "b", "ü"]), drawn.randrange(40_000)) for _ in range(20_000)}, key=order_key
    )
    schema = pa.schema([("s", pa.string()), ("i", pa.int64()), (HAS, pa.bool_())])
    columns = [[s for s, _ in keys], [i for _, i in keys], [True] * len(keys)]
    write(tmp_path / "run", schema, iter(pa.table(columns, schema=schema).to_batches()))
    run, there = Run(tmp_path / "run", ["s", "i"]), set(keys)
    for key in [*drawn.sample(keys, 500), *((drawn.choice("abc"), drawn.randrange(40_000)) for _ in range(500))]:
        assert (run.find(plain_key(key)) is not None) == (key in there)
    plain_keys = [plain_key(key) for key in keys]
    for _ in range(10):
        low, high = sorted(drawn.randrange(len(keys)) for _ in range(2))
        between = [key for key, *_ in run.between(plain_keys[low], plain_keys[high])]
        assert between == plain_keys[low:high]
