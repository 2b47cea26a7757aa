"""The textbook's programs as workspaces of ``examples/``: as streams that are stopped, killed and bounded, against loops and DuckDB."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import example_process
import forked
import pyarrow as pa
import pytest
from book_accounts import check_accounts
from engines import embedded
from example_workspaces import START, Row, by_key, chained, disordered, example, logs_of, shown, written

from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def asked(query: str, **tables: list[Row]) -> list[tuple[Any, ...]]:
    """What DuckDB says of some rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, pa.Table.from_pylist(rows))
        return sorted(connection.execute(query).fetchall(), key=str)


@pytest.mark.feature("Y4")
def test_searches_have_the_device_that_most_votes_name_and_are_divided_by_pauses(
    engine: Computing, tmp_path: Path
) -> None:
    draw = random.Random(41)
    searches, votes, at = list[Row](), list[Row](), START
    agents = {"Mozil/1": "phone", "Operetta/2": "desk", "Bot/3": "robot"}
    for n in range(240):
        at += timedelta(minutes=draw.choice([1, 4, 11]), milliseconds=n)
        agent = draw.choice([*agents])
        if draw.random() < 0.3:
            device = agents[agent] if draw.random() < 0.7 else draw.choice(["phone", "desk"])
            votes.append({"at": at, "agent": agent, "device": device})
        else:
            user, query = draw.choice("uvwxyz"), draw.choice(["boat", "coat", "goat"])
            searches.append({"at": at, "user": user, "agent": agent, "query": query})
    counts, known = defaultdict[str, Counter[str]](Counter), list[Row]()
    for row in sorted(searches + votes, key=lambda row: row["at"]):
        if "device" in row:
            counts[row["agent"]][row["device"]] += 1
            continue
        most = max(counts[row["agent"]].values(), default=0)
        device = next(
            (
                d
                for d, n in counts[row["agent"]].items()
                if n == most and n >= 3 and 2 * n > counts[row["agent"]].total()
            ),
            "unknown",
        )
        known.append({**row, "device": device})
    sessions = asked(
        """SELECT user, device, count(*), count(DISTINCT query), arg_min(query, "at"), arg_max(query, "at"), min("at") FROM (
            SELECT *, sum(starts) OVER (PARTITION BY user, device ORDER BY "at") AS session FROM (
                SELECT *, CAST(coalesce("at" - lag("at") OVER (PARTITION BY user, device ORDER BY "at") >= INTERVAL 30 MINUTES, true) AS int) AS starts
                FROM known)) GROUP BY user, device, session""",
        known=known,
    )
    assert len({row["device"] for row in known}) == 4
    module = example("search")
    rows = {"searches": disordered(searches, 9, draw), "votes": disordered(votes, 9, draw)}
    columns = ("user", "device", "searches", "queries", "began_with", "ended_with", "window_start")
    for tables in chained([module.identified, module.sessions], rows, tmp_path, engine):
        assert shown(tables["identified"], "user", "query", "device") == shown(known, "user", "query", "device")
        assert shown(tables["sessions"], *columns) == sessions


@pytest.mark.feature("Y6", "M3", "Y12")
def test_recommendations_are_of_the_purchases_of_today_up_to_this_moment(engine: Computing, tmp_path: Path) -> None:
    draw, purchases, at = random.Random(42), list[Row](), START
    for n in range(220):
        rush = 17 <= at.hour < 21
        at += timedelta(seconds=draw.uniform(10, 120) if rush else draw.uniform(300, 2400), milliseconds=n)
        purchases.append(
            {"at": at, "customer": draw.choice("cdefgh"), "product": draw.choice(["nut", "fig", "oat", "tea", "pea"])}
        )
    baskets, counts, expected = defaultdict[Any, list[str]](list), defaultdict[Any, Counter[str]](Counter), list[Row]()
    for row in purchases:
        today, product, customer = row["at"].date(), row["product"], row["customer"]
        basket = baskets[today, customer]
        if product in basket:
            continue
        for one, another in [pair for other in sorted(basket) for pair in ((product, other), (other, product))]:
            counts[today, one][another] += 1
            ranked = sorted(counts[today, one].items(), key=lambda item: (-item[1], item[0]))
            expected.append({"product": one, "customer": customer, "others": [other for other, _ in ranked[:3]]})
        basket.append(product)
    assert len(expected) > 100
    module = example("market")
    for tables in chained(
        [module.together, module.recommended], {"purchases": disordered(purchases, 9, draw)}, tmp_path, engine
    ):
        assert shown(tables["recommended"], "product", "customer", "others") == shown(
            expected, "product", "customer", "others"
        )


@pytest.mark.feature("Y10")
def test_meters_show_what_is_stolen_and_what_is_defect(engine: Computing, tmp_path: Path) -> None:
    draw, readings, supplies = random.Random(43), list[Row](), list[Row]()
    for quarter in range(96):
        at = START + quarter * timedelta(minutes=15) + timedelta(seconds=draw.uniform(0, 60))
        for feeder in "ef":
            used = 0
            for meter in range(4):
                watt_hours = draw.randrange(50, 400)
                name, used = f"{feeder}{meter}", used + watt_hours
                counted = (
                    watt_hours // 3
                    if (name, quarter // 40) == ("e1", 1)
                    else 77
                    if name == "f2" and 20 <= quarter < 29
                    else watt_hours
                )
                if not (name == "f3" and quarter % 48 > 40):
                    readings.append(
                        {
                            "at": at + meter * timedelta(seconds=1),
                            "meter": name,
                            "feeder": feeder,
                            "watt_hours": counted,
                        }
                    )
            supplies.append({"at": at, "feeder": feeder, "watt_hours": round(used * 1.03)})
    losses = asked(
        """SELECT feeder, hour, delivered, coalesce(counted, 0) FROM (SELECT feeder, date_trunc('hour', "at") AS hour, sum(watt_hours) AS delivered FROM supplies GROUP BY ALL)
        LEFT JOIN (SELECT feeder, date_trunc('hour', "at") AS hour, sum(watt_hours) AS counted FROM readings GROUP BY ALL) USING (feeder, hour)
        WHERE coalesce(counted, 0) < 0.9 * delivered""",
        supplies=supplies,
        readings=readings,
    )
    stuck, silent = list[Row](), list[Row]()
    for meter, own in by_key(readings, "meter"):
        for watt_hours, run in groupby(own, key=lambda row: row["watt_hours"]):
            same = list(run)
            if len(same) >= 4:
                stuck.append(
                    {
                        "meter": meter,
                        "since": same[0]["at"],
                        "until": same[-1]["at"],
                        "readings": len(same),
                        "watt_hours": watt_hours,
                    }
                )
        for row, later in zip(own, [*own[1:], {"at": START + 9 * DAY}], strict=True):
            if later["at"] - row["at"] >= HOUR:
                silent.append({"meter": meter, "feeder": row["feeder"], "heard_at": row["at"]})
    assert len(losses) > 5
    assert [row["meter"] for row in stuck] == ["f2"]
    assert Counter(row["meter"] for row in silent)["f3"] == 2
    module = example("meters")
    rows = {"readings": disordered(readings, 9, draw), "supplies": disordered(supplies, 9, draw)}
    for tables in chained([module.losses, module.stuck, module.silent], rows, tmp_path, engine):
        assert shown(tables["losses"], "feeder", "window_start", "delivered", "counted") == losses
        assert shown(tables["stuck"], *stuck[0]) == shown(stuck, *stuck[0])
        assert shown(tables["silent"], *silent[0]) == shown(silent, *silent[0])


def drawn_loads(draw: random.Random) -> list[Row]:
    """Reports of cells, about one a minute; some cells are silent for a while."""
    loads = []
    for n in range(400):
        at = START + n * timedelta(seconds=20) + timedelta(milliseconds=draw.randrange(9000))
        cell = draw.choice("kmn")
        if not (cell == "m" and 100 <= n < 160):
            percent = draw.choice([20, 45, 70, 95])
            loads.append({"at": at, "region": draw.choice("xy"), "cell": cell, "percent": percent})
    return loads


@pytest.mark.feature("Y11")
def test_cells_that_are_full_or_gone_are_told(engine: Computing, tmp_path: Path) -> None:
    draw = random.Random(44)
    loads, shifts, outages = drawn_loads(draw), list[Row](), list[Row]()
    for region, own in by_key(loads, "region"):
        newest: dict[str, Row] = {}
        for row in own:
            newest[row["cell"]] = row
            free = [
                (r["percent"], c) for c, r in newest.items() if r["percent"] < 50 and row["at"] - r["at"] <= 3 * MINUTE
            ]
            if row["percent"] > 90 and free:
                shifts.append({"region": region, "cell": row["cell"], "shift_to": min(free)[1]})
        for cell, reports in by_key(own, "cell"):
            for row, later in zip(reports, [*reports[1:], None], strict=True):
                if later is None or later["at"] - row["at"] > 3 * MINUTE:
                    outages.append({"region": region, "cell": cell, "state": "out", "percent": row["percent"]})
                    if later is not None:
                        outages.append({"region": region, "cell": cell, "state": "back", "percent": later["percent"]})
    assert len(shifts) > 20
    assert len(outages) > 10
    module = example("alerts")
    for tables in chained([module.shifts, module.outages], {"loads": disordered(loads, 1, draw)}, tmp_path, engine):
        assert shown(tables["shifts"], *shifts[0]) == shown(shifts, *shifts[0])
        assert shown(tables["outages"], *outages[0]) == shown(outages, *outages[0])


@pytest.mark.feature("Y11")
def test_accounts_that_are_being_emptied_are_told(tmp_path: Path) -> None:
    check_accounts(embedded(), tmp_path)


@pytest.mark.feature("Y8", "Z19")
def test_minutes_unlike_those_before_and_machines_that_come_and_go_are_novelties_again_on_a_rerun(
    engine: Computing, tmp_path: Path
) -> None:
    draw, lines = random.Random(46), list[Row]()
    for minute in range(120):
        rates = {"v": 8, "w": 8 if minute < 60 else 40, "x": 6 if 30 <= minute < 50 or minute > 90 else 0}
        rates["v"] += 60 if minute == 70 else 0
        for machine, rate in rates.items():
            for _ in range(max(0, round(draw.gauss(rate, 1))) if rate else 0):
                at = START + minute * MINUTE + timedelta(milliseconds=draw.randrange(60_000))
                lines.append(
                    {
                        "at": at,
                        "machine": machine,
                        "level": draw.choice(["INFO", "ERROR"]),
                        "milliseconds": draw.uniform(1, 9),
                    }
                )
    minutes = asked(
        """SELECT machine, date_trunc('minute', "at"), count(*), count(*) FILTER (level = 'ERROR'), round(avg(milliseconds), 9) FROM lines GROUP BY ALL""",
        lines=lines,
    )
    expected = list[tuple[Any, ...]]()
    for machine, own in groupby(sorted(minutes), key=lambda row: row[0]):
        past = list[int]()
        before = START - DAY
        for _, minute, count, *_ in own:
            if past and minute - before > 10 * MINUTE:
                expected.append((machine, "machine gone", 0))
                past = []
            if past:
                weights = [0.98 ** (len(past) - 1 - n) for n in range(len(past))]
                believed = sum(w * n for w, n in zip(weights, past, strict=True)) / sum(weights)
                if abs(count - believed) > 6 * max(1.0, (believed * (1 + 1 / sum(weights))) ** 0.5):
                    expected.append((machine, "outlier", count))
            else:
                expected.append((machine, "new machine", count))
            past, before = [*past, count], minute
        expected.append((machine, "machine gone", 0))
    assert {kind for _, kind, _ in expected} == {"machine gone", "new machine", "outlier"}
    module = example("operations")
    operators = [module.statistics, module.novelties]
    runs = []
    for run in ("first", "again"):
        for tables in chained(operators, {"lines": disordered(lines, 9, draw)}, tmp_path / run, engine):
            rounded = [{**row, "milliseconds": round(row["milliseconds"], 9)} for row in tables["statistics"]]
            assert shown(rounded, "machine", "window_start", "lines", "errors", "milliseconds") == minutes
            assert shown(tables["novelties"], "machine", "kind", "lines") == sorted(expected, key=str)
            runs.append(shown(tables["novelties"], "machine", "kind", "lines", "surprise"))
    assert all(run == runs[0] for run in runs)


def messages(draw: random.Random) -> dict[str, list[Row]]:
    """System -> its messages about sixty bookings, some told twice, some never."""
    systems = ("reservation", "payment", "ticket", "travel")
    told: dict[str, list[Row]] = {system: [] for system in systems}
    for number in range(60):
        at = START + number * timedelta(minutes=37, milliseconds=number)
        for system in systems:
            for part in range(draw.choice([1, 1, 2])):
                if system == "travel" and draw.random() < 0.2:
                    continue
                moment = at + timedelta(minutes=draw.uniform(0, 900))
                row = {"at": moment, "booking": str(number), "message": str(part), "cents": draw.choice([100, 250])}
                told[system].append(row)
                if draw.random() < 0.4:
                    told[system].append(row | {"at": moment + timedelta(minutes=draw.uniform(1, 300))})
    return {system: disordered(rows, 9, draw) for system, rows in told.items()}


def reconciled(told: dict[str, list[Row]]) -> list[Row]:
    """Bookings as a loop reconciles them."""
    every = [row | {"system": system} for system, rows in told.items() for row in rows]
    result = []
    for booking, own in by_key(every, "booking"):
        over, seen, done = own[0]["at"] + DAY, dict[Any, int](), own[0]["at"] + DAY
        for row in own:
            if row["at"] >= over:
                break
            seen[row["system"], row["message"]] = row["cents"]
            if len({system for system, _ in seen}) == 4:
                done = row["at"]
                break
        sums = Counter[str]()
        for (system, _), cents in seen.items():
            sums[system] += cents
        lacking = ",".join(system for system in told if system not in sums)
        result.append(
            {
                "booking": booking,
                "systems": len(sums),
                "missing": lacking,
                "cents": sums["reservation"],
                "difference": sums["reservation"] - sums["payment"],
                "day": done,
            }
        )
    return result


@pytest.mark.feature("Z36")
def test_four_streams_about_a_booking_count_each_message_once_under_kills(tmp_path: Path) -> None:
    told = messages(random.Random(47))
    expected = reconciled(told)
    days = asked(
        "SELECT date_trunc('day', day), count(*), sum(cents)::BIGINT, sum(difference)::BIGINT FROM bookings GROUP BY ALL",
        bookings=expected,
    )
    assert {row["systems"] for row in expected} >= {3, 4}
    module = example("booking")
    operators, columns = [module.reconciled, module.per_day], ("booking", "systems", "missing", "cents", "difference")
    for tables in chained(operators, told, tmp_path):
        assert shown(tables["reconciled"], *columns) == shown(expected, *columns)
    lake, (logs, readers) = Lake(str(tmp_path / "killed")), logs_of(operators, told)
    command = [sys.executable, example_process.__file__, lake.root, "booking"]
    points = ["embedded.before_state", "embedded.before_commit", "embedded.after_commit", ""]
    for part, point in enumerate(points):
        for name, log in logs.items():
            quarter = len(log.entries) // 4
            land(lake, readers[name], log, part * quarter, (part + 1) * quarter if point else None, name=name)
        ended = forked.run(command, env={**os.environ, crash.VARIABLE: point})
        assert ended.returncode == (-signal.SIGKILL if point else 0), (point, ended.stderr)
    tables = written(operators, lake)
    assert shown(tables["reconciled"], *columns) == shown(expected, *columns)
    assert shown(tables["per_day"], "window_start", "bookings", "cents", "difference") == days
