"""Every statement and program of docs/sql.md is an operator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from floodmark import sql_operators
from operators.flights import Flight, hourly_departures
from operators.weather import Weather

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_of_the_page_is_the_shipped_operator() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 1
    names: dict[str, object] = {}
    exec(programs[0], names)  # noqa: S102 - the program of the page
    assert names["hourly_departures"] == hourly_departures


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_each_statement_of_the_page_is_an_operator(tmp_path: Path, number: int) -> None:
    (tmp_path / "stated.sql").write_text(STATEMENTS[number], "utf-8")
    models = sql_operators(tmp_path, flights=Flight, weather=Weather, hourly_departures=hourly_departures)
    assert models.stated.outputs[0].schema.names
