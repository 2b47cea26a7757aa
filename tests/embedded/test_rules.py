"""Rules that change while a stream runs: each row is judged by the rules of its event time, as streams that are stopped and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_workspaces import START, chained, example, shown
from machine_rules import ALERT, HOUR, machines

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.testing import Case


@pytest.mark.feature("C4", "X5", "Y12")
def test_a_rule_counts_from_its_event_time_on_and_until_it_is_ended(tmp_path: Path) -> None:
    rows, due = machines(500, 48)
    assert len(due) > 20
    assert len({alert[-1] for alert in due}) == 2
    for tables in chained([example("rules").faults], rows, tmp_path):
        assert shown(tables["faults"], *ALERT) == due


def test_rows_without_a_rule_are_dropped_and_those_of_several_rules_come_once_for_each() -> None:
    module = example("rules")

    @fm.operator
    def judged(readings: fm.Stream[module.Reading], rules: fm.Stream[module.Rule]) -> fm.Stream:  # type: ignore[name-defined]
        """All of them."""
        return readings.key_by("machine").connect(rules.broadcast()).with_rules("rule", deleted="NOT active")

    about = {"kind": "heat", "threshold": 1.0, "times": 2}
    rules = [
        {"at": START, "rule": "b", "active": True, **about},
        {"at": START, "rule": "a", "active": True, **about},
        {"at": START + HOUR, "rule": "b", "active": False, **about},
    ]
    rows = [{"at": START + n * HOUR, "machine": "p", "kind": "heat", "value": float(n)} for n in (-1, 0, 1)]
    case = Case(judged).feed("rules", rules, event_time="at").feed("readings", rows).end()
    assert [(row["value"], row["rule"]) for row in case.results()] == [(0.0, "a"), (0.0, "b"), (1.0, "a")]


def test_rules_and_rows_of_one_input_are_in_order_of_event_time_and_not_of_arrival() -> None:
    module = example("rules")

    @fm.operator
    def judged(rules: fm.Stream[module.Rule]) -> fm.Stream:  # type: ignore[name-defined]
        """Rules as rows, under the rules."""
        renamed = rules.select("at", row="rule")
        return renamed.key_by("row").connect(rules.broadcast()).with_rules("rule")

    about = {"kind": "heat", "threshold": 1.0, "times": 2, "active": True}
    later, first = ({"at": START + n * HOUR, "rule": name, **about} for n, name in ((1, "b"), (0, "a")))
    case = Case(judged).feed("rules", [later, first]).end()
    assert sorted((row["row"], row["rule"]) for row in case.results()) == [("a", "a"), ("b", "a"), ("b", "b")]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"key": "name"}, "DEFINITION-022"),
        ({"key": "rule", "deleted": "active + 1"}, "DEFINITION-145"),
        ({"key": "rule", "prefix": ""}, "DEFINITION-050"),
    ],
)
def test_what_is_no_rule_is_refused(settings: dict[str, Any], code: str) -> None:
    module = example("rules")

    def body(readings: fm.Stream, rules: fm.Stream) -> fm.Stream:
        return readings.key_by("machine").connect(rules.broadcast()).with_rules(**settings)

    with pytest.raises(DefinitionError, match=code):
        fm.operator(body, name="refused", inputs={"readings": module.readings, "rules": module.rules})
