"""Values that runs in memory remember: asked for once per row, and told apart where Python's equality would not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from floodmark.engines.embedded.memory import remembered
from floodmark.engines.embedded.memory.remembered import Remembered


class Asked:
    """Computes the text of a column's values, and counts the rows it is asked for."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, rows):
        self.rows += rows.num_rows
        return pa.table({"v": pa.array([str(value) for value in rows["x"].to_pylist()], pa.string())})


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_of_either_sign_are_two_values_and_nan_is_one(kind):
    asked = Asked()
    values = Remembered(asked)
    rows = pa.table({"x": pa.array([0.0, -0.0, float("nan"), None, 0.0, float("nan")], kind)})
    for _ in range(2):
        assert values.of(rows)["v"].to_pylist() == ["0.0", "-0.0", "nan", "None", "0.0", "nan"]
    assert asked.rows == 4


def test_values_of_rows_in_another_order_are_remembered():
    asked = Asked()
    values = Remembered(asked)
    for numbers in ([3, 1, 2], [2, 3], [1, 9]):
        assert values.of(pa.table({"x": numbers}))["v"].to_pylist() == [str(number) for number in numbers]
    assert asked.rows == 4


def test_nested_values_and_many_rows_are_asked_for_each_time(monkeypatch):
    monkeypatch.setattr(remembered, "MOST_AT_ONCE", 2)
    asked = Asked()
    values = Remembered(asked)
    for rows in ([[1.0]], [[1.0]], [1, 2, 3], [1, 2, 3]):
        values.of(pa.table({"x": rows}))
    assert asked.rows == 8


def test_what_is_remembered_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(remembered, "_MOST", 10)
    values = Remembered(Asked())
    for number in range(200):
        assert values.of(pa.table({"x": [number]}))["v"].to_pylist() == [str(number)]
    assert values._values is not None
    assert values._values.num_rows <= 11
