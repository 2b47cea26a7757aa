"""The examples of patterns, as streams that are stopped and as bounded runs, against loops in Python over all rows."""

from __future__ import annotations

import itertools
import math
import random
from datetime import timedelta
from pathlib import Path

import pytest
from example_workspaces import START, Row, both, by_key, disordered, example, shown


@pytest.mark.feature("C5", "X5", "Y12")
def test_two_distant_swipes_are_refused(tmp_path: Path) -> None:
    cities = [(52.52, 13.40), (52.39, 13.06), (40.71, -74.01), (-33.87, 151.21)]
    draw = random.Random(5)
    rows = []
    for number in range(150):
        latitude, longitude = draw.choice(cities)
        at = START + timedelta(minutes=11 * number, milliseconds=number)
        rows.append({"at": at, "card": draw.choice("abc"), "latitude": latitude, "longitude": longitude})

    def arc(a: Row, b: Row) -> float:
        points = []
        for row in (a, b):
            north, east = math.radians(row["latitude"]), math.radians(row["longitude"])
            points.append((math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)))
        return math.acos(min(1.0, sum(x * y for x, y in zip(*points, strict=True)))) * 6_371

    expected = [
        {"card": card, "before": a["at"], "at": b["at"]}
        for card, own in by_key(rows, "card")
        for a, b in itertools.pairwise(own)
        if arc(a, b) > max(900 * (b["at"] - a["at"]).total_seconds() / 3600, 1)
    ]
    assert len(expected) > 20
    for results in both(example("fraud").refused, disordered(rows, 9, draw), tmp_path):
        assert shown(results, "card", "before", "at") == shown(expected, "card", "before", "at")


@pytest.mark.feature("Y3", "X5")
def test_orders_without_a_payment_are_told_when_their_hour_is_over(tmp_path: Path) -> None:
    draw, rows = random.Random(6), list[Row]()
    for number in range(60):
        at = START + timedelta(minutes=7 * number, milliseconds=number)
        rows.append({"at": at, "order_id": str(number), "step": "ordered"})
        if draw.random() < 0.8:
            paid = at + timedelta(minutes=draw.choice([5, 59, 60, 61, 300]))
            rows.append({"at": paid, "order_id": str(number), "step": "paid"})
    expected = [
        {"order_id": order, "ordered_at": own[0]["at"]}
        for order, own in by_key(rows, "order_id")
        if not any(row["at"] - own[0]["at"] < timedelta(hours=1) for row in own[1:])
    ]
    assert 10 < len(expected) < 50
    for results in both(example("missing_step").unpaid, disordered(rows, 9, draw), tmp_path):
        assert shown(results, "order_id", "ordered_at") == shown(expected, "order_id", "ordered_at")
        assert all(
            row["_event_time"] == row["ordered_at"] + timedelta(hours=1) for row in results if "_event_time" in row
        )


@pytest.mark.feature("Z13", "X5")
def test_a_log_in_opens_a_window_that_a_log_out_or_a_time_out_ends(tmp_path: Path) -> None:
    draw, rows = random.Random(7), list[Row]()
    for number in range(300):
        at = START + timedelta(minutes=2 * number, milliseconds=number)
        what = draw.choice(["login", "logout", "read", "read", "write"])
        rows.append({"at": at, "user": draw.choice("ab"), "what": what})
    expected = []
    for user, own in by_key(rows, "user"):
        window: list[Row] = []
        for row in [*own, {"what": "end", "at": START + timedelta(days=9)}]:
            over = bool(window) and (
                row["what"] in {"login", "end"} or row["at"] - window[0]["at"] >= timedelta(minutes=30)
            )
            window += [row] if window and not over else []
            if over or (window and row["what"] == "logout"):
                closed = window[-1]["what"] == "logout"
                expected.append((user, window[0]["at"], window[-1]["at"], len(window), closed))
                window = []
            if row["what"] == "login":
                window = [row]
    assert len({closed for *_, closed in expected}) == 2
    for results in both(example("missing_step").visits, disordered(rows, 9, draw), tmp_path):
        assert shown(results, "user", "since", "until", "actions", "logged_out") == sorted(expected, key=str)
