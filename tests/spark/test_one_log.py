"""One log, several programs, on both engines: a spike waits in it, what is thought of later needs no source any more, each program's state is its own."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from engines import embedded

import floodmark as fm
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import outputs
from floodmark.testing.runs import final

START = datetime(2020, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CALM, SPIKE = 60, 600
"""Rows of an hour: the third one is that of the spike."""
VISITS = 3 * CALM + SPIKE
FILES = (0, CALM, 2 * CALM, 2 * CALM + 200, 2 * CALM + 400, 2 * CALM + SPIKE, VISITS)
"""Where they begin: one an hour, three in the hour of the spike."""

Rows = Counter[tuple[Any, ...]]


class Visit(fm.Contract):
    """Somebody came to a page."""

    at: fm.EventTime
    country: str
    pages: int


def counting(name: str, window: fm.Window) -> Operator:
    """The same program with another window."""

    @fm.operator(name=name)
    def counted(visits: fm.Stream[Visit]) -> fm.Stream:
        return visits.key_by("country").window(window).aggregate(n=fm.count(), pages=fm.sum("pages"))

    return counted


HOURLY = counting("hourly", fm.Tumbling("1 hour"))
HALVES = counting("halves", fm.Tumbling("30 minutes"))
SESSIONS = counting("sessions", fm.Session("3 minutes"))
EVER = counting("ever", fm.Global())
PROGRAMS = (HOURLY, HALVES, SESSIONS, EVER)


def visits() -> list[tuple[datetime, str, int]]:
    """Time, country and pages, as they arrive: up to nine minutes late. From one country nobody comes for minutes now and then."""
    moments = [START + n * MINUTE for n in range(2 * CALM)]
    moments += [START + 2 * HOUR + n * HOUR / SPIKE for n in range(SPIKE)]
    moments += [START + 3 * HOUR + n * MINUTE for n in range(CALM)]
    rows = [(at, "de" if n % 17 < 5 else ("fr", "it")[n % 2], n % 7) for n, at in enumerate(moments)]
    return [row for _, row in sorted((at + n % 10 * MINUTE, (at, *more)) for n, (at, *more) in enumerate(rows))]


def land(folder: Path, lake: Lake, *numbers: int) -> None:
    """So many files more of an older system, which puts there what it has seen by the hour: some rows belong to the one before."""
    for number in numbers:
        lines = [
            f"{at.isoformat()},{country},{pages}" for at, country, pages in visits()[FILES[number] : FILES[number + 1]]
        ]
        (folder / f"{number}.csv").write_text("\n".join(["at,country,pages", *lines]) + "\n")
    inbox = fm.Files(str(folder))
    bound = fm.BoundedOutOfOrderness("10 minutes")
    source = fm.Source("visits", contract=Visit, connector=inbox, watermark=bound, files_per_commit=1)
    embedded().land(source, lake, end=len(FILES) - 2 in numbers, workspace=folder.parent)


@dataclass(frozen=True, slots=True)
class OneLog:
    """What was computed from one log.

    Args:
        lake: of the streams.
        bounded: lake of the bounded runs, with the same log.
        sizes: rows that the first stream took at a time after the spike.
        untouched: whether log, tables and checkpoint of the first stream were the same files before and after the others ran.
    """

    lake: Lake
    bounded: Lake
    sizes: list[int]
    untouched: bool


@pytest.fixture(scope="module")
def one_log(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> OneLog:
    folder = tmp_path_factory.mktemp("one_log")
    inbox, lake, bounded = (
        folder / "inbox",
        Lake(str(folder / "lake")),
        Lake(str(folder / "bounded"), logs=str(folder / "lake")),
    )
    inbox.mkdir()
    land(inbox, lake, 0, 1)
    engine.run_unbounded(HOURLY, lake, until_caught_up=True)
    land(inbox, lake, 2, 3, 4, 5)  # nobody reads meanwhile
    sizes = list[int]()
    engine.run_unbounded(
        HOURLY, lake, until_caught_up=True, files_per_batch=2, on_batch=lambda batch: sizes.append(batch.rows_in)
    )
    shutil.rmtree(inbox)
    before = files(lake)
    for code in PROGRAMS[1:]:
        engine.run_unbounded(code, lake, until_caught_up=True)
    after = files(lake)
    for code in PROGRAMS:
        engine.run_bounded(code, bounded, Interval())
    return OneLog(lake, bounded, sizes, before == {path: after.get(path) for path in before})


def files(lake: Lake) -> dict[Path, int]:
    """Every file of a lake, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in Path(lake.root).rglob("*") if path.is_file()}


def results(lake: Lake, code: Operator) -> Rows:
    """The rows of a program that count: country, beginning and end of the window if it has any, visits, pages."""
    return Counter(tuple(row.values()) for row in final([outputs(lake, code)[""]]))


def truth(code: Operator) -> Rows:
    """By DuckDB."""
    at, country, pages = zip(*visits(), strict=True)
    table = pa.table({"visited": pa.array(at, pa.timestamp("us", "UTC")), "country": country, "pages": pages})
    fixed = "SELECT country, {0} AS since, {0} + {1} AS until, count(*), sum(pages)::BIGINT FROM visits GROUP BY ALL"
    half = "time_bucket(INTERVAL 30 MINUTE, visited)"
    queries = {
        "hourly": fixed.format("date_trunc('hour', visited)", "INTERVAL 1 HOUR"),
        "halves": fixed.format(half, "INTERVAL 30 MINUTE"),
        "ever": "SELECT country, count(*), sum(pages)::BIGINT FROM visits GROUP BY ALL",
        "sessions": """
            SELECT country, min(visited), max(visited) + INTERVAL 3 MINUTE, count(*), sum(pages)::BIGINT FROM (
                SELECT *, sum(begins::INT) OVER (PARTITION BY country ORDER BY visited) AS session FROM (
                    SELECT *, coalesce(visited > lag(visited) OVER (PARTITION BY country ORDER BY visited) + INTERVAL 3 MINUTE, true) AS begins FROM visits))
            GROUP BY country, session""",
    }
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("visits", table)
    return Counter(database.sql(queries[code.name]).fetchall())


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(HOURLY, marks=pytest.mark.feature("W12", "W13", "B2", "X1", "Q7")),
        pytest.param(HALVES, marks=pytest.mark.feature("W13")),
        pytest.param(SESSIONS, marks=pytest.mark.feature("W13")),
        pytest.param(EVER, marks=pytest.mark.feature("W9", "B1")),
    ],
    ids=lambda code: code.name,
)
def test_a_stream_and_a_batch_say_what_a_database_says(engine: Computing, one_log: OneLog, code: Operator) -> None:
    wanted = truth(code)
    assert len(wanted) == {"hourly": 12, "halves": 24, "sessions": len(wanted), "ever": 3}[code.name]
    assert code is not SESSIONS or 5 < len(wanted) < 60
    assert results(one_log.lake, code) == results(one_log.bounded, code) == wanted


@pytest.mark.feature("L10")
def test_rows_count_for_their_hour_whatever_file_they_came_in(engine: Computing, one_log: OneLog) -> None:
    elsewhere = [
        at
        for number, first in enumerate(FILES[:-1])
        for at, *_ in visits()[first : FILES[number + 1]]
        if (at - START) // HOUR != (0, 1, 2, 2, 2, 3)[number]
    ]
    assert len(elsewhere) > 10
    by_hour = Counter[int]()
    for (_, since, _, n, _), times in results(one_log.lake, HOURLY).items():
        by_hour[(since - START) // HOUR] += n * times
    assert by_hour == {0: CALM, 1: CALM, 2: SPIKE, 3: CALM}


@pytest.mark.feature("D1", "D4")
def test_a_spike_waits_in_the_log_and_its_results_are_right_later(engine: Computing, one_log: OneLog) -> None:
    """It is taken in pieces, not at once: Spark does not count what a micro-batch of a program with state has read."""
    assert len(one_log.sizes) >= 3
    if engine.name == "embedded":
        assert sum(one_log.sizes) >= VISITS - 2 * CALM, "and markers"
        assert max(one_log.sizes) < SPIKE
    assert results(one_log.lake, HOURLY) == truth(HOURLY)


@pytest.mark.feature("D2", "R10")
def test_what_is_thought_of_later_reads_from_the_first_row_on_and_disturbs_nobody(
    engine: Computing, one_log: OneLog
) -> None:
    """Its rows were landed once, the source is gone, and no file of the log or of the other stream has changed."""
    assert one_log.untouched
    assert results(one_log.lake, HALVES) == truth(HALVES)


@pytest.mark.feature("R5")
def test_state_belongs_to_one_program_and_comes_back_from_the_log(engine: Computing, one_log: OneLog) -> None:
    lake = one_log.lake
    mine, other = (Timeline.current(lake, code.name).checkpoint.path for code in (HALVES, HOURLY))
    assert mine != other
    kept = {path: path.read_bytes() for path in Path(other).rglob("*") if path.is_file()}
    shutil.rmtree(mine)
    engine.run_unbounded(HALVES, lake, until_caught_up=True, from_scratch=True)
    assert results(lake, HALVES) == truth(HALVES)
    assert kept == {path: path.read_bytes() for path in Path(other).rglob("*") if path.is_file()}
    assert results(lake, HOURLY) == truth(HOURLY)
