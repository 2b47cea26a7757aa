"""Hints of a statement, and columns of one name from two tables."""

from __future__ import annotations

import pytest
from sql_tables import TABLES

from floodmark import sql_operator
from floodmark.core.errors import DefinitionError

JOINED = "SELECT {0} f.flight, w.temp FROM flights AS f JOIN weather AS w ON f.origin = w.origin EMIT CHANGES"


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("STATE_TTL('flights' = 'long')", "DEFINITION-001"),
        ("FASTER(flights)", "DEFINITION-382 .*a hint"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_refused(hint: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        sql_operator(
            "x", f"SELECT /*+ {hint} */ origin, COUNT(*) AS n FROM flights GROUP BY origin EMIT CHANGES", inputs=TABLES
        )


def test_a_hint_of_a_statement_without_state_is_refused() -> None:
    with pytest.raises(DefinitionError, match="STATE_TTL of a statement whose state has an end"):
        sql_operator("x", "SELECT /*+ STATE_TTL('flights' = '1 d') */ origin FROM flights", inputs=TABLES)


def test_a_hint_of_planning_changes_nothing_and_one_of_state_is_the_setting_within() -> None:
    plain = sql_operator("x", JOINED.format(""), inputs=TABLES)
    assert sql_operator("x", JOINED.format("/*+ BROADCAST(w), LOOKUP('table'='w') */"), inputs=TABLES) == plain
    hinted = sql_operator("x", JOINED.format("/*+ STATE_TTL('f' = '2 hours', 'w' = '30 minutes') */"), inputs=TABLES)
    assert hinted == sql_operator("x", JOINED.format(""), inputs=TABLES, within="2 hours") != plain


@pytest.mark.feature("J6")
def test_of_two_columns_of_one_name_the_second_has_its_table_before_it() -> None:
    sql = "SELECT f.origin, w.origin, w.temp FROM flights AS f JOIN weather AS w ON f.delay = w.delay EMIT CHANGES"
    assert sql_operator("x", sql, inputs=TABLES).outputs[0].schema.names == ("origin", "w_origin", "temp")
    with pytest.raises(DefinitionError, match="DEFINITION-393"):
        sql_operator("x", "SELECT origin, origin FROM flights", inputs=TABLES)
