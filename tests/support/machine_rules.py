"""Readings of machines and rules that change, and the alerts that come of them by a loop in Python: the oracle of ``examples/rules``."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from example_workspaces import START, Row, disordered

HOUR = timedelta(hours=1)
ALERT = ("machine", "rule", "since", "until", "value", "threshold")


def machines(count: int, seed: int) -> tuple[dict[str, list[Row]], list[tuple[Any, ...]]]:
    """Rows of each source in order of arrival, at most nine minutes late, and the alerts that are due, as ``ALERT``."""
    draw, readings, rules = random.Random(seed), list[Row](), list[Row]()
    for n in range(count):
        at = START + n * timedelta(minutes=2) + timedelta(milliseconds=n)
        kind, value = draw.choice(["heat", "noise"]), draw.uniform(0, 100)
        readings.append({"at": at, "machine": draw.choice("pq"), "kind": kind, "value": value})
        if n % 40 == 0:
            rule, threshold, times = draw.choice(["hot", "loud"]), draw.choice([20.0, 50.0]), draw.choice([2, 3, 4])
            about = {"kind": "heat" if rule == "hot" else "noise", "active": draw.random() < 0.8}
            rules.append({"at": at, "rule": rule, "threshold": threshold, "times": times, **about})
    judged = ruled(readings, rules)
    due = [(machine, rule, *alert) for (machine, rule), own in judged.items() for alert in alerts(own)]
    return {"readings": disordered(readings, 9, draw), "rules": rules}, sorted(due, key=str)


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
