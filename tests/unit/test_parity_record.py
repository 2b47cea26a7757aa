"""What is let through on the embedded engine, asked of Sail: the answers are those Spark gave for the same rows, which are on record.

These expressions have no part in the comparison that decides what is let through (``make parity``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from parity.outcome import alike
from parity.sail_side import Sail, kind_of
from spark_answers import EXPRESSIONS, RECORD, ROWS, SCHEMA, table, written

from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.engines.embedded.parity.check import sail_sql

SPARK = json.loads(RECORD.read_text())
TOGETHER = 40


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    """A server whose table ``one`` is the rows of the record, each with its number."""
    folder: Path = tmp_path_factory.mktemp("record")
    rows = table()
    pq.write_table(rows.append_column("r", [list(range(rows.num_rows))]), folder / "one.parquet")
    made = Sail(folder, tables=("one",))
    yield made
    made.close()


def let_through() -> dict[str, str]:
    """Expression -> its SQL for Sail, of those on record that Spark computes."""
    found = {}
    for text in EXPRESSIONS:
        if "values" in SPARK[text]:
            try:
                found[text] = sail_sql(text, SCHEMA, "test")
            except (CapabilityError, DefinitionError):
                continue
    return found


def test_most_expressions_on_record_are_let_through() -> None:
    answered = [text for text in EXPRESSIONS if "values" in SPARK[text]]
    assert len(let_through()) > len(answered) / 2


def test_what_is_let_through_is_answered_as_spark_does(sail: Sail) -> None:
    asked = list(let_through().items())
    wrong: dict[str, Any] = {}
    for start in range(0, len(asked), TOGETHER):
        wrong |= compared(sail, asked[start : start + TOGETHER])
    assert wrong == {}


def compared(sail: Sail, asked: list[tuple[str, str]]) -> dict[str, Any]:
    """Expression -> (row, Spark's value, Sail's value) where they differ."""
    columns = ", ".join(f"{sql} AS x{i}" for i, (_, sql) in enumerate(asked))
    failing = [text for text, _ in asked if any(isinstance(value, dict) for value in SPARK[text]["values"])]
    if failing and len(asked) > 1:
        good = [pair for pair in asked if pair[0] not in failing]
        found = compared(sail, good) if good else {}
        for pair in asked:
            found |= compared(sail, [pair]) if pair[0] in failing else {}
        return found
    try:
        rows = sail.query(f"SELECT r, {columns} FROM one").sort_by("r")
    except Exception:  # noqa: BLE001 - whatever Sail raises is its answer
        if len(asked) == 1:
            return one_by_one(sail, *asked[0])
        half = len(asked) // 2
        return compared(sail, asked[:half]) | compared(sail, asked[half:])
    if failing:
        return one_by_one(sail, *asked[0])
    wrong = {}
    for place, (text, _) in enumerate(asked):
        if kind_of(rows.column(place + 1).type) != SPARK[text]["type"]:
            wrong[text] = (SPARK[text]["type"], str(rows.column(place + 1).type))
        try:
            values = rows.column(place + 1).to_pylist()
        except (OverflowError, ValueError):  # no time of Python's
            wrong |= one_by_one(sail, *asked[place])
            continue
        for number, value in enumerate(values):
            if not same(SPARK[text]["values"][number], written(value)):
                wrong[text] = (number, SPARK[text]["values"][number], written(value))
    return wrong


def one_by_one(sail: Sail, text: str, sql: str) -> dict[str, Any]:
    """The rows that fail on Spark have to fail on Sail, and no others but those that are refused when they come."""
    for number in range(len(ROWS)):
        expected = SPARK[text]["values"][number]
        try:
            rows = sail.query(f"SELECT r, CASE WHEN r = {number} THEN {sql} END AS x FROM one").sort_by("r")
            value = written(rows["x"][number].as_py())
        except Exception as error:  # noqa: BLE001 - as above
            if not isinstance(expected, dict) and "CAPABILITY-031" not in str(error):
                return {text: (number, expected, str(error)[:200])}
            continue
        if isinstance(expected, dict) or not same(expected, value):
            return {text: (number, expected, value)}
    return {}


def same(expected: Any, value: Any) -> bool:
    """Whether two values are one; floats to twelve digits."""
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(same, expected, value))
    return expected == value or (
        isinstance(expected, str) and isinstance(value, str) and alike(f"f{expected}", f"f{value}") != "differs"
    )
