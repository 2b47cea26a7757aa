"""Rules that change while a stream runs: each row is judged by the rules of its event time, as streams that are stopped and bounded."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from example_workspaces import START, Row, chained, disordered, example, shown

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.testing import Case

HOUR = timedelta(hours=1)


def ruled(readings: list[Row], rules: list[Row]) -> dict[tuple[str, str], list[tuple[Row, Row]]]:
    """(machine, rule) -> its readings, each with the rule as it was then."""
    judged: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for row in sorted(readings, key=lambda row: row["at"]):
        valid: dict[str, Row] = {}
        for rule in sorted(rules, key=lambda rule: rule["at"]):
            if rule["at"] <= row["at"]:
                valid[rule["rule"]] = rule
        for name, rule in valid.items():
            if rule["active"] and rule["kind"] == row["kind"]:
                judged.setdefault((row["machine"], name), []).append((row, rule))
    return judged


def alerts(own: list[tuple[Row, Row]]) -> list[tuple[Any, ...]]:
    """The first rows in a row that are enough, from each row on that is in no alert."""
    found, start = [], 0
    while start < len(own):
        for end in range(start, len(own)):
            row, rule = own[end]
            if row["value"] <= rule["threshold"] or row["at"] - own[start][0]["at"] >= HOUR:
                break
            if end > start and end - start >= rule["times"] - 1:
                found.append((own[start][0]["at"], row["at"], row["value"], rule["threshold"]))
                start = end
                break
        start += 1
    return found


@pytest.mark.feature("C4", "X5", "Y12")
def test_a_rule_counts_from_its_event_time_on_and_until_it_is_ended(tmp_path: Path) -> None:
    draw, readings, rules = random.Random(48), list[Row](), list[Row]()
    for n in range(500):
        at = START + n * timedelta(minutes=2) + timedelta(milliseconds=n)
        row = {
            "at": at,
            "machine": draw.choice("pq"),
            "kind": draw.choice(["heat", "noise"]),
            "value": draw.uniform(0, 100),
        }
        readings.append(row)
        if n % 40 == 0:
            rule = {
                "rule": draw.choice(["hot", "loud"]),
                "threshold": draw.choice([20.0, 50.0]),
                "times": draw.choice([2, 3, 4]),
            }
            kind = "heat" if rule["rule"] == "hot" else "noise"
            rules.append({"at": at, "kind": kind, "active": draw.random() < 0.8, **rule})
    judged = ruled(readings, rules)
    expected = [(machine, rule, *alert) for (machine, rule), own in judged.items() for alert in alerts(own)]
    assert len(expected) > 20
    assert len({alert[-1] for alert in expected}) == 2
    module = example("rules")
    rows = {"readings": disordered(readings, 9, draw), "rules": rules}
    for tables in chained([module.faults], rows, tmp_path):
        assert shown(tables["faults"], "machine", "rule", "since", "until", "value", "threshold") == sorted(
            expected, key=str
        )


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
