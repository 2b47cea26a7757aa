"""Windows at both ends of time, and rows of no window, on Spark: a stream, a bounded run and one in memory say the same."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END, NEVER, from_ms, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.frames import zones
from floodmark.spec.values.schema import MARKER
from floodmark.spec.windowing.partitions import Daily
from floodmark.testing.log import Log
from floodmark.testing.spark import SparkCase

DAY = 86_400_000
MONROVIA = to_ms(from_ms(0).replace(year=1971, month=6, hour=0, minute=44, second=45))


class Row(fm.Contract):
    """A row whose session ends when it says."""

    at: fm.EventTime
    i: int
    größe: float | None = None  # noqa: PLC2401 - a name Spark reads in backticks alone


@fm.operator
def gaps(rows: fm.Stream[Row]) -> fm.Stream:
    """The first window reaches before the year 1, the last behind the year 9999; some rows are in none."""
    return rows.window(fm.Sliding("2 days", "3 days"), late="side_output").aggregate(n=fm.count(), last=fm.max("i"))


@fm.operator
def days(rows: fm.Stream[Row]) -> fm.Stream:
    """Of a zone that had seconds in its distance from UTC."""
    return rows.window(fm.Calendar("day", "Africa/Monrovia"), late="side_output").aggregate(n=fm.count())


@fm.operator
def sessions(rows: fm.Stream[Row]) -> fm.Stream:
    """Each row has a gap of its own, and some have none."""
    own = fm.Session("größe", per_row=True)
    windows = rows.window(own, late="side_output", on_error="quarantine")
    return windows.aggregate(n=fm.count(), last=fm.max("i"))


NAN, INFINITE = float("nan"), float("inf")
ROWS = [
    (NEVER, 5.0),
    (NEVER + DAY, NAN),
    (NEVER + 9 * DAY, 86_400_000.0),
    (-1, None),
    (MONROVIA, 1500.5),
    (MONROVIA + DAY, 0.0),
]
ROWS += [(END - 40 * DAY, -1.0), (NEVER + 1, 3.6e6), (NEVER + DAY + 1, 7.0), (END - DAY, 1e300), (END, INFINITE)]
"""Event time, gap. The two before the last two come late; one of them is in no window of ``gaps``."""


def log() -> Log:
    """The rows as they come."""
    written = Log(gaps.inputs[0].schema)
    for i, (time, gap) in enumerate(ROWS):
        written.row({"at": from_ms(time), "i": i, "größe": gap}, time)
        if time == END - 40 * DAY:
            written.move(time)
    written.end()
    return written


def said(tables: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """Output name -> its rows as text, in any order, without what differs from run to run."""
    left_out = {"_ingest_time", "_sequence", "_progress", "_watermark", "_event_time", "_asset_partition"}
    return {
        name: sorted(
            repr([row[n] for n in sorted({*row} - left_out)]) for row in table.to_pylist() if row["_kind"] < MARKER
        )
        for name, table in tables.items()
    }


@pytest.mark.parametrize(
    "operator",
    [pytest.param(gaps, marks=pytest.mark.soak), pytest.param(days, marks=pytest.mark.soak), sessions],
    ids=lambda o: getattr(o, "name", None),
)
def test_rows_at_both_ends_of_time_are_in_the_same_windows_everywhere(spark, tmp_path, operator):
    written = log()
    expected = said(MemoryRun(operator).batch({"rows": written.table()}))
    assert expected[""] and expected["late"]
    for mode in ("run_bounded", "run_unbounded"):
        case = SparkCase(spark, operator, str(tmp_path / mode))
        case.land(written)
        getattr(case, mode)()
        assert said(case.outputs()) == expected, mode


def test_days_of_a_zone_begin_where_java_says_too_or_the_zone_is_refused(spark, monkeypatch):
    zones.check(spark, Daily("2013-01-01", "America/New_York"))
    zones.check(spark, Daily("2011-12-01", "Pacific/Apia", end="2012-02-01"))  # 2011-12-30 was left out there
    zones.check(spark, Daily("2018-10-01", "America/Sao_Paulo", end="2019-03-01"))  # days that began at 1 o'clock
    with pytest.raises(ExecutionError, match="got a zone that Java does not know") as unknown:
        zones.check(spark, Daily("2013-01-01", "Factory"))
    monkeypatch.setattr(Daily, "midnight", lambda self, day: 0)
    with pytest.raises(ExecutionError, match=r"got 2020-01-01 from 1970-01-01T00:00:00Z in Python, from 2019") as other:
        zones.check(spark, Daily("2020-01-01", "Asia/Tokyo"))
    assert unknown.value.code == other.value.code == "EXECUTION-047"
