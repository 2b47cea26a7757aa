"""The comparison finds every kind of difference; a comparison that cannot fail proves nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from demo.comparison import Comparison, compare

NINE = datetime(2013, 1, 1, 9, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ROWS = [
    {"origin": "JFK", "start": NINE, "count": 3, "mean": 1.0 / 3, "tail": "N1"},
    {"origin": "LGA", "start": NINE, "count": 5, "mean": None, "tail": None},
]
SCHEMA = pa.schema(
    [
        ("origin", pa.string()),
        ("start", pa.timestamp("us", "UTC")),
        ("count", pa.int64()),
        ("mean", pa.float64()),
        ("tail", pa.string()),
    ]
)


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def by_key(left: pa.Table, right: pa.Table) -> Comparison:
    return compare(left, right, keys=("origin", "start"))


@pytest.mark.parametrize("keys", [("origin", "start"), ()])
def test_the_same_rows_in_any_order_are_equal(keys: tuple[str, ...]) -> None:
    found = compare(table(*ROWS), table(*reversed(ROWS)), keys=keys)
    assert (found.rows, found.differences, found.examples) == (2, 0, ())


@pytest.mark.parametrize("keys", [("origin", "start"), ()])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("count", 4),
        ("count", None),
        ("tail", "N2"),
        ("tail", None),
        ("mean", 1.0 / 3 * (1 + 3e-9)),
        ("mean", None),
        ("mean", float("nan")),
        ("origin", "EWR"),
        ("start", NINE + MICROSECOND),
    ],
)
def test_any_other_value_is_a_difference(column: str, value: object, keys: tuple[str, ...]) -> None:
    assert compare(table(*ROWS), table(ROWS[0] | {column: value}, ROWS[1]), keys=keys).differences > 0


@pytest.mark.parametrize("column", ["count", "tail", "start"])
def test_tables_without_floats_are_compared_as_strictly(column: str) -> None:
    one, two = (table(*ROWS).drop_columns(["mean"]), table(*reversed(ROWS)).drop_columns(["mean"]))
    assert compare(one, two).differences == 0
    other = table(ROWS[0] | {column: None}, ROWS[1]).drop_columns(["mean"])
    assert compare(one, other).differences == 2


def test_floats_are_equal_within_a_billionth() -> None:
    assert by_key(table(*ROWS), table(ROWS[0] | {"mean": 1.0 / 3 * (1 + 1e-10)}, ROWS[1])).differences == 0


@pytest.mark.parametrize(
    ("value", "same"),
    [(float("inf"), True), (float("-inf"), False), (1e308, False), (float("nan"), False), (None, False)],
)
def test_infinity_is_equal_to_itself_alone(value: float | None, *, same: bool) -> None:
    left, right = (table(ROWS[0] | {"mean": mean}, ROWS[1]) for mean in (float("inf"), value))
    assert (by_key(left, right).differences == 0) is same
    assert (by_key(right, left).differences == 0) is same


def test_a_float_that_identifies_rows_has_no_tolerance() -> None:
    left, right = (table(ROWS[0] | {"mean": mean}) for mean in (1.0, 1.0 + 1e-12))
    assert compare(left, right, keys=("mean",)).differences > 0


def test_zero_has_no_tolerance() -> None:
    zero, tiny = ROWS[0] | {"mean": 0.0}, ROWS[0] | {"mean": 1e-300}
    assert by_key(table(zero), table(tiny)).differences == 1


@pytest.mark.parametrize("keys", [("origin", "start"), ()])
def test_missing_and_extra_rows_are_differences(keys: tuple[str, ...]) -> None:
    one, two = table(ROWS[0]), table(*ROWS)
    assert compare(two, one, keys=keys, names=("bounded", "duckdb")).examples[0].endswith("only in bounded")
    assert compare(one, two, keys=keys, names=("bounded", "duckdb")).examples[0].endswith("only in duckdb")
    assert compare(one, table(), keys=keys).differences == 1


def test_a_row_twice_is_a_difference_without_keys() -> None:
    assert compare(table(ROWS[0], ROWS[0], ROWS[1]), table(ROWS[0], ROWS[1], ROWS[1])).differences == 2


def test_a_key_twice_is_a_difference_even_on_both_sides() -> None:
    twice = table(ROWS[0], ROWS[0])
    assert by_key(twice, twice).differences == 2


def test_other_columns_and_types_are_differences() -> None:
    without = table(*ROWS).drop_columns(["tail"])
    assert compare(table(*ROWS), without).examples == ("column tail: left string, right has none",)
    narrow = table(*ROWS).set_column(2, "count", pa.array([3, 5], pa.int32()))
    assert compare(table(*ROWS), narrow).differences == 2
    assert compare(table(), narrow.slice(0, 0)).differences == 1


def test_an_example_says_column_and_both_values() -> None:
    other = table(ROWS[0] | {"count": 4}, ROWS[1])
    found = compare(table(*ROWS), other, keys=("origin", "start"), names=("unbounded", "duckdb"))
    assert found.examples[0].endswith("count is 3 in unbounded, 4 in duckdb")


@pytest.mark.parametrize("keys", [("k",), ()])
def test_lists_structs_and_maps_are_compared_too(keys: tuple[str, ...]) -> None:
    kinds = pa.map_(pa.string(), pa.float64())
    schema = pa.schema({"k": pa.int64(), "l": pa.list_(pa.string()), "s": pa.struct({"a": pa.int64()}), "m": kinds})

    def nested(**other: object) -> pa.Table:
        row = {"k": 1, "l": ["a", "b"], "s": {"a": 1}, "m": [("x", 1 / 3), ("y", 2.0)]}
        return pa.Table.from_pylist([row | other, row | {"k": 2, "l": None}], schema)

    assert compare(nested(), nested(m=[("x", 1 / 3 * (1 + 1e-10)), ("y", 2.0)]), keys=keys).differences == 0
    for other in (
        {"l": ["b", "a"]},
        {"s": {"a": 2}},
        {"s": None},
        {"m": [("x", 1 / 3)]},
        {"m": [("x", 0.5), ("y", 2.0)]},
    ):
        assert compare(nested(), nested(**other), keys=keys).differences, other
