"""Every statement and program of docs/sql.md is an operator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console_pages import ran

from floodmark import sql_operator, sql_operators
from operators.flights import Flight, hourly_departures
from operators.weather import Weather

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def test_the_programs_of_the_page_are_the_shipped_operator_and_a_table_that_a_statement_looks_in() -> None:
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(first, names)  # noqa: S102 - the program of the page
    assert names["hourly_departures"] == hourly_departures
    exec(second, names)  # noqa: S102 - the program of the page
    ran(first, second)
    statement = next(text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "PROCTIME()" in text)
    named = sql_operator("named", statement, inputs={"flights": Flight, "airports": names["airports"]})  # type: ignore[dict-item]
    assert named.outputs[0].schema.names == ("flight", "name", "lookup_version")


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_each_statement_of_the_page_is_an_operator(tmp_path: Path, number: int) -> None:
    (tmp_path / "stated.sql").write_text(STATEMENTS[number], "utf-8")
    models = sql_operators(tmp_path, flights=Flight, weather=Weather, hourly_departures=hourly_departures)
    assert models.stated.outputs[0].schema.names
    ran(STATEMENTS[number])
