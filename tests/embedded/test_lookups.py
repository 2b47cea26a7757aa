"""Lookup tables: a row finds what the table has when the row is processed, and the same in every replay."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path

import forked
import pytest
from looked_up import SQL, Airport, answers, check, expected, looking, write
from processes import paths
from sql_tables import Flight, flights, log_of

from floodmark import BoundedOutOfOrderness, DeltaTable, LookupTable, Source, sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import RETRACTION
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final


@pytest.mark.feature("I4", "J4")
def test_rows_find_the_version_of_their_time_and_a_replay_finds_the_same_without_the_table(
    embedded: Computing, tmp_path: Path
) -> None:
    check(Lake(str(tmp_path / "lake")), tmp_path / "airports", embedded, embedded)


@pytest.mark.feature("J4")
@pytest.mark.parametrize(
    "point",
    [
        "embedded.after_state",
        *(pytest.param(p, marks=pytest.mark.soak) for p in ("embedded.before_files", "embedded.after_commit")),
    ],
)
def test_a_killed_stream_finds_again_what_it_had_recorded_though_the_table_has_changed(
    embedded: Computing, tmp_path: Path, point: str
) -> None:
    lake, folder = Lake(str(tmp_path / "lake")), tmp_path / "airports"
    operator, rows = looking(folder), flights(1, 30)
    log = log_of(Flight, rows, "scheduled")
    log.end()
    for first, last in pairwise([0, 10, 20, len(log.entries)]):
        land(lake, operator, log, first, last)
    command = [sys.executable, str(Path(__file__).with_name("stream_process.py")), lake.root, operator.name]
    write(folder, "0")
    killed = forked.run(command, env={**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: f"{point}:2"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    write(folder, "1")
    resumed = forked.run(command, env={**os.environ, "PYTHONPATH": paths()})
    assert resumed.returncode == 0, resumed.stderr
    assert answers(lake) == expected(rows, 20)
    shutil.rmtree(folder)
    embedded.run_bounded(operator, lake, Interval(), force=True)
    assert answers(lake) == expected(rows, 20)


@pytest.mark.feature("J4", "Q4")
def test_a_row_that_is_taken_back_finds_what_was_recorded_for_it_though_the_table_has_changed(
    embedded: Computing, tmp_path: Path
) -> None:
    lake, folder, rows = Lake(str(tmp_path / "lake")), tmp_path / "airports", flights(3, 12)
    changing = Source(
        "flights",
        contract=Flight,
        connector=DeltaTable("tables/flights", read="changes"),
        watermark=BoundedOutOfOrderness("0 s"),
    )
    table = LookupTable("airports", contract=Airport, path=folder)
    operator = sql_operator("named", SQL, inputs={"flights": changing, "airports": table})
    log = log_of(Flight, rows, "scheduled")
    landed = len(log.entries)
    log.rows(rows[:7], "scheduled", kind=RETRACTION)
    log.end()
    for version, (first, last) in zip(("0", "1"), pairwise([0, landed, len(log.entries)]), strict=True):
        write(folder, version)
        land(lake, operator, log, first, last)
        embedded.run_unbounded(operator, lake, until_caught_up=True)
    left = final([outputs(lake, operator)[""]])
    found = sorted((row["flight"], row["origin"], row["name"], row["lookup_version"]) for row in left)
    assert found == expected(rows, len(rows))[7:]


def test_a_table_that_is_not_there_or_not_as_its_contract_stops_the_stream_until_it_is(
    embedded: Computing, tmp_path: Path
) -> None:
    lake, folder = Lake(str(tmp_path / "lake")), tmp_path / "airports"
    operator, log = looking(folder), log_of(Flight, flights(1, 5), "scheduled")
    land(lake, operator, log)
    with pytest.raises(FloodmarkError, match=r"CONNECTOR-290 .*lookup table 'airports'.*a Delta table at"):
        embedded.run_unbounded(operator, lake, until_caught_up=True)
    wrong = tmp_path / "airports.csv"
    wrong.write_text("town,name\nEWR,Newark\n", "utf-8")
    filed = sql_operator(
        "named", SQL, inputs={"flights": Flight, "airports": LookupTable("airports", contract=Airport, path=wrong)}
    )
    with pytest.raises(FloodmarkError, match=r"CONNECTOR-291 .*code"):
        embedded.run_unbounded(filed, lake, until_caught_up=True)
    wrong.write_text("code,name\nEWR,Newark\n,Nowhere\n", "utf-8")
    with pytest.raises(FloodmarkError, match=r"CONNECTOR-292 .*a value of 'code'"):
        embedded.run_unbounded(filed, lake, until_caught_up=True)
    write(folder, "0")
    embedded.run_unbounded(operator, lake, until_caught_up=True)
