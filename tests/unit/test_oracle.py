"""The oracle against answers worked out by hand, and against counts of the real year."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from demo.inbox import FLIGHT_COLUMNS
from demo.oracle import Oracle

NEW_YORK = ZoneInfo("America/New_York")

# scheduled (New York), carrier, tailnum, dep_delay ("" = cancelled); the bound is 1 hour, so the stamp of a row is the
# largest schedule above it, minus 1 hour, minus 1 ms
MORNING = """
    2013-01-10 08:10 | AA | N1 | 5
    2013-01-10 08:50 | AA | N2 | 15
    2013-01-10 10:05 | AA | N3 | 0
    2013-01-10 08:20 | AA | N4 | 40
    2013-01-10 12:30 | AA |    |
    2013-01-10 08:30 | AA | N5 | 90
    2013-01-10 09:40 | AA | N6 | 60
    2013-01-10 12:00 | AA | N7 | 2
"""
MIDNIGHT = """
    2013-01-10 20:00 | AA | N1 | 10
    2013-01-10 21:00 | AA | N1 |
    2013-01-11 03:00 | AA | N1 | 1
    2013-01-10 23:00 | AA | N2 | 30
    2013-01-11 07:00 | AA |    | 3
    2013-01-10 22:00 | AA | N3 | 50
"""
CHAIN = """
    2013-01-10 23:10 | AA | N1 | 1
    2013-01-11 00:50 | AA | N1 | 1
    2013-01-10 20:00 | AA | N1 | 1
    2013-01-11 01:30 | AA | N1 | 1
    2013-01-10 20:05 | AA | N1 | 1
    2013-01-11 02:00 | AA | N1 | 1
    2013-01-10 20:10 | AA | N1 | 1
    2013-01-10 19:10 | AA | N1 | 1
"""


def written(folder: Path, table: str) -> Path:
    """An inbox of one file per three rows: arrival order crosses files."""
    (folder / "flights").mkdir(parents=True)
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    for first in range(0, len(rows), 3):
        lines = [",".join(FLIGHT_COLUMNS)]
        for scheduled, carrier, tailnum, delay in rows[first : first + 3]:
            lines.append(f"2013-01-12T00:00:00Z,{scheduled},JFK,BOS,{carrier},1,{tailnum},{delay},,,187")
        text = "\n".join(lines) + "\n"
        (folder / "flights" / f"known_2013-01-{12 + first:02}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def local(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=NEW_YORK).astimezone(UTC)


def rows(oracle: Oracle, output: str, *columns: str) -> list[tuple[Any, ...]]:
    table = oracle.answer(output)
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


@pytest.fixture
def morning(tmp_path: Path) -> Oracle:
    return Oracle(written(tmp_path, MORNING), bound_minutes=60)


def test_late_rows_within_lateness_are_part_of_the_hour(morning: Oracle) -> None:
    answer = rows(morning, "hourly_departures", "origin", "window_start", "departures", "mean_delay")
    assert answer == [
        ("JFK", local("2013-01-10 08:00"), 3, 20.0),  # 5, 15 and 40, which refired; 90 was dropped
        ("JFK", local("2013-01-10 09:00"), 1, 60.0),  # the only row was late: the first pane is a late one
        ("JFK", local("2013-01-10 10:00"), 1, 0.0),
        ("JFK", local("2013-01-10 12:00"), 1, 2.0),
    ]
    assert morning.lateness("hourly_departures") == {"late": 3, "refired": 2, "dropped": 1}


def test_dropped_rows_are_in_the_late_output_as_they_came(morning: Oracle) -> None:
    late = morning.answer("hourly_departures__late")
    assert tuple(late.column_names) == FLIGHT_COLUMNS
    assert late.select(["scheduled", "tailnum", "dep_delay", "arr_delay", "distance"]).to_pylist() == [
        {
            "scheduled": local("2013-01-10 08:30"),
            "tailnum": "N5",
            "dep_delay": 90,
            "arr_delay": None,
            "distance": 187,
        }
    ]


def test_a_row_is_judged_for_each_sliding_window_on_its_own(morning: Oracle) -> None:
    panes = rows(morning, "rolling_departures", "window_start", "departures", "max_delay")
    answer = {start: pane for start, *pane in panes}
    assert answer[local("2013-01-10 08:00")] == [2, 15]  # 08:20 came after 09:00 had closed ...
    assert answer[local("2013-01-10 08:15")] == [2, 40]  # ... but not 09:15
    assert local("2013-01-10 09:00") not in answer  # 09:40 alone, too late for all four of its windows
    assert answer[local("2013-01-10 09:15")] == [1, 0]
    assert morning.lateness("rolling_departures") == {"late": 3 + 4 + 4, "refired": 0, "dropped": 3 + 4 + 4}


def test_split_takes_every_row_that_left_late_or_not(morning: Oracle) -> None:
    assert rows(morning, "split_delays__severe", "tailnum", "dep_delay") == [("N5", 90), ("N6", 60)]
    normal = rows(morning, "split_delays__normal", "tailnum")
    assert normal == [("N1",), ("N2",), ("N3",), ("N4",), ("N7",)]


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ("09:59", {"late": 0, "refired": 0, "dropped": 0}),
        ("10:00", {"late": 1, "refired": 1, "dropped": 0}),
        ("11:59", {"late": 1, "refired": 1, "dropped": 0}),
        ("12:00", {"late": 1, "refired": 0, "dropped": 1}),
    ],
)
def test_a_row_is_late_from_the_last_millisecond_on(tmp_path: Path, newest: str, expected: dict[str, int]) -> None:
    table = f"2013-01-10 {newest} | AA | N1 | 1\n2013-01-10 08:00 | AA | N1 | 1"
    assert Oracle(written(tmp_path, table), bound_minutes=60).lateness("hourly_departures") == expected


def test_a_day_ends_at_midnight_in_new_york(tmp_path: Path) -> None:
    oracle = Oracle(written(tmp_path, MIDNIGHT), bound_minutes=60)
    columns = ("carrier", "window_start", "flights", "mean_delay", "share_cancelled", "tails")
    (tenth, eleventh) = rows(oracle, "daily_carriers", *columns)
    assert tenth == ("AA", local("2013-01-10 00:00"), 3, 20.0, pytest.approx(1 / 3), 2)
    assert eleventh == ("AA", local("2013-01-11 00:00"), 2, 2.0, 0.0, 1)
    assert oracle.lateness("daily_carriers") == {"late": 2, "refired": 1, "dropped": 1}


def test_a_pane_that_comes_too_late_for_the_day_leaves_the_older_hour(tmp_path: Path) -> None:
    inbox = written(tmp_path, CHAIN)
    oracle = Oracle(inbox, bound_minutes=60, hourly_lateness_minutes=26 * 60, busiest_lateness_minutes=60)
    hours = rows(oracle, "hourly_departures", "window_start", "departures")[:3]
    assert hours == [(local(f"2013-01-10 {hour}:00"), count) for hour, count in ((19, 1), (20, 3), (23, 1))]
    assert rows(oracle, "busiest_hour", "window_start", "busiest", "hours") == [
        (local("2013-01-10 00:00"), 2, 2),  # 20 o'clock stays at 2 of 3; 19 o'clock never came in
        (local("2013-01-11 00:00"), 1, 3),
    ]
    assert oracle.lateness("busiest_hour") == {"late": 3, "refired": 1, "dropped": 2}


def test_a_late_first_pane_is_on_time_for_the_day_by_its_stamp(tmp_path: Path) -> None:
    inbox = written(tmp_path, "\n".join(CHAIN.strip().splitlines()[:3]))
    oracle = Oracle(inbox, bound_minutes=60, hourly_lateness_minutes=26 * 60, busiest_lateness_minutes=0)
    assert oracle.lateness("hourly_departures") == {"late": 1, "refired": 1, "dropped": 0}
    assert rows(oracle, "busiest_hour", "busiest", "hours")[0] == (1, 2)
    assert oracle.lateness("busiest_hour") == {"late": 0, "refired": 0, "dropped": 0}


@pytest.fixture(scope="module")
def oracle(year: Path) -> Oracle:
    return Oracle(year, bound_minutes=6 * 60)


@pytest.fixture(scope="module")
def flights(year: Path) -> list[dict[str, str]]:
    """The lines of its files, in order."""
    files = sorted((year / "flights").iterdir())
    return [row for file in files for row in csv.DictReader(gzip.decompress(file.read_bytes()).decode().splitlines())]


def test_rows_are_read_in_the_order_of_files_and_lines(flights: list[dict[str, str]], oracle: Oracle) -> None:
    flown = [(int(row["flight"]), int(row["dep_delay"])) for row in flights if row["dep_delay"]]
    assert rows(oracle, "split_delays__severe", "flight", "dep_delay") == [row for row in flown if row[1] >= 60]
    assert rows(oracle, "split_delays__normal", "flight", "dep_delay") == [row for row in flown if row[1] < 60]


def test_every_departure_of_the_year_is_counted_or_late(oracle: Oracle) -> None:
    counted = sum(count for (count,) in rows(oracle, "hourly_departures", "departures"))
    late = oracle.answer("hourly_departures__late").num_rows
    assert counted + late == 336_776 - 8_255
    flights = sum(count for (count,) in rows(oracle, "daily_carriers", "flights"))
    assert flights + oracle.lateness("daily_carriers")["dropped"] == 336_776


def test_the_year_has_late_rows_of_every_kind(oracle: Oracle) -> None:
    assert oracle.lateness("hourly_departures") == {"late": 1_979, "refired": 1_160, "dropped": 819}
    assert oracle.lateness("rolling_departures") == {"late": 7_802, "refired": 0, "dropped": 7_802}
    assert oracle.lateness("daily_carriers") == {"late": 53, "refired": 43, "dropped": 10}
    assert oracle.lateness("busiest_hour") == {"late": 6, "refired": 6, "dropped": 0}


def test_lateness_agrees_with_a_plain_loop_over_the_files(flights: list[dict[str, str]], oracle: Oracle) -> None:
    hour, newest, dropped = timedelta(hours=1), datetime.min.replace(tzinfo=UTC), []
    for row in flights:
        scheduled = datetime.fromisoformat(row["scheduled"]).replace(tzinfo=NEW_YORK).astimezone(UTC)
        closes = scheduled.replace(minute=0) + hour
        # on both sides: minus the watermark's millisecond, plus the bound of 6 hours, plus the lateness of 2
        if row["dep_delay"] and closes + 8 * hour <= newest:
            dropped.append((row["tailnum"], scheduled))
        newest = max(newest, scheduled)
    assert rows(oracle, "hourly_departures__late", "tailnum", "scheduled") == dropped


def test_a_day_is_as_busy_as_its_busiest_hour(oracle: Oracle) -> None:
    hours: dict[tuple[str, date], list[int]] = {}
    for origin, end, departures in rows(oracle, "hourly_departures", "origin", "window_end", "departures"):
        last = (end - timedelta(milliseconds=1)).astimezone(NEW_YORK).date()
        hours.setdefault((origin, last), []).append(departures)
    answer = rows(oracle, "busiest_hour", "origin", "window_start", "busiest", "hours")
    assert {
        (origin, start.astimezone(NEW_YORK).date()): (busiest, count) for origin, start, busiest, count in answer
    } == {key: (max(counts), len(counts)) for key, counts in hours.items()}


def test_days_have_23_hours_in_march_and_25_in_november(oracle: Oracle) -> None:
    for output in ("daily_carriers", "busiest_hour"):
        hours = {
            start.astimezone(NEW_YORK).date().isoformat(): (end - start) / timedelta(hours=1)
            for start, end in rows(oracle, output, "window_start", "window_end")
        }
        assert (hours["2013-03-10"], hours["2013-11-03"]) == (23, 25)
        assert {length for day, length in hours.items() if day not in {"2013-03-10", "2013-11-03"}} == {24}


def test_instants_are_utc_microseconds(oracle: Oracle) -> None:
    schema = oracle.answer("busiest_hour").schema
    assert str(schema.field("window_start").type) == "timestamp[us, tz=UTC]"
    assert str(oracle.answer("hourly_departures__late").schema.field("scheduled").type) == "timestamp[us, tz=UTC]"
