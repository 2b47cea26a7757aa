"""Asset partitions: one name for a row in Python, in SQL and on disk; divided tables hold what undivided ones do, in both modes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import shutil

import pytest
from deltalake import DeltaTable
from flights import answer, changelog

from floodmark import Daily, Hourly
from floodmark.core.errors import ExecutionError, PlanError
from floodmark.core.time import END, NEVER, Interval, describe, to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.spec.windowing.partitions import predicate, split
from operators.flights import hourly_departures, split_delays

ZONE = "America/New_York"

KINDS = [
    Daily("2013-01-01"),
    Daily("2013-01-01", timezone="America/New_York"),
    Daily("2013-01-01", timezone="Pacific/Apia"),  # it skipped 30 December 2011
    Daily("2013-01-01", timezone="America/Havana"),  # its clocks change at midnight
    Hourly("2013-01-01"),
    Hourly("2013-01-01", timezone="America/New_York"),
    Hourly("2013-01-01", timezone="Asia/Kolkata"),
]


def moments() -> list[int]:
    rng = random.Random(3)
    changes = [
        dt.datetime(2013, 3, 10, 7),
        dt.datetime(2013, 11, 3, 6),
        dt.datetime(2013, 3, 10, 5),
        dt.datetime(2011, 12, 30, 10),
    ]
    near = [to_ms(change) + rng.randint(-7_200_000, 7_200_000) for change in changes for _ in range(40)]
    far = [rng.randint(to_ms(dt.datetime(1965, 1, 1)), to_ms(dt.datetime(2040, 1, 1))) for _ in range(100)]
    return [*near, *far, *(to_ms(change) for change in changes), *(to_ms(change) - 1 for change in changes)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{type(k).__name__} {k.timezone}")
def test_sql_and_python_name_the_same_partition(spark, kind):
    rows = spark.createDataFrame([(m,) for m in moments()], "m bigint").selectExpr(
        "m", "timestamp_millis(m) AS _event_time"
    )
    for row in rows.selectExpr("m", f"{kind.sql()} AS key").collect():
        assert row.key == kind.key(row.m), describe(row.m)
        assert kind.around(row.m).start <= row.m < kind.around(row.m).end
        assert kind.key(kind.around(row.m).start) == row.key == kind.key(kind.around(row.m).end - 1)


@pytest.mark.parametrize("kind", KINDS[1:6:2], ids=lambda k: f"{type(k).__name__} {k.timezone}")
def test_a_predicate_selects_the_rows_of_its_interval(spark, kind):
    rows = spark.createDataFrame([(m,) for m in moments()], "m bigint").selectExpr(
        "m", "timestamp_millis(m) AS _event_time"
    )
    rows = rows.selectExpr("*", f"{kind.sql()} AS _asset_partition").cache()
    a, b = to_ms(dt.datetime(2013, 3, 10, 4, 30)), to_ms(dt.datetime(2013, 3, 10, 8, 15))
    whole = Interval(start=kind.around(a).start, end=kind.around(b).end)
    for interval in (
        whole,
        Interval(start=a, end=b),
        Interval(start=a),
        Interval(end=b),
        Interval(),
        Interval(start=NEVER, end=END),
    ):
        found = {row.m for row in rows.filter(predicate(kind, interval)).collect()}
        assert found == {m for m in moments() if interval.start <= m < interval.end}, str(interval)
    assert "_event_time" not in predicate(kind, whole)


def test_days_of_a_year_are_as_long_as_the_clocks_say():
    year = Interval(start=to_ms(dt.datetime(2013, 1, 1, 5)), end=to_ms(dt.datetime(2014, 1, 1, 5)))
    hours = {key: (day.end - day.start) // 3_600_000 for key, day in split(KINDS[1], year)}
    assert len(hours) == 365
    assert {key: n for key, n in hours.items() if n != 24} == {"2013-03-10": 23, "2013-11-03": 25}


@pytest.mark.engines("embedded", "spark")
@pytest.mark.parametrize(
    "plain", [pytest.param(hourly_departures, marks=pytest.mark.soak), split_delays], ids=lambda o: o.name
)
def test_divided_tables_hold_what_undivided_ones_do_in_both_modes(engine, landed, tmp_path, plain):
    cut = dataclasses.replace(plain, partitions=Daily("2013-01-01", timezone="America/New_York"))
    assert cut.version == plain.version
    lakes = {name: Lake(str(tmp_path / name), logs=landed.root) for name in ("plain", "bounded", "unbounded")}
    engine.run_bounded(plain, lakes["plain"], Interval())
    engine.run_bounded(cut, lakes["bounded"], Interval())
    engine.run_unbounded(cut, lakes["unbounded"], until_caught_up=True, files_per_batch=7)
    for output in plain.outputs:
        order = [(name, "ascending") for name in output.schema.names]
        wanted = answer(lakes["plain"], plain, output.name).sort_by(order)
        assert wanted.num_rows > 0
        for name in ("bounded", "unbounded"):
            path = lakes[name].output(output.table)
            assert DeltaTable(path).metadata().partition_columns == ["_asset_partition"]
            assert answer(lakes[name], cut, output.name).sort_by(order).equals(wanted), (name, output.table)
            assert changelog(lakes[name], output.table).num_rows == changelog(lakes["plain"], output.table).num_rows
        if output.current:
            tables = [DeltaTable(lakes[n].output(output.current.table)).to_pyarrow_table() for n in lakes]
            assert len({t.select(output.schema.names).sort_by(order).num_rows for t in tables}) == 1


@pytest.mark.parametrize("ends", [("--to", None, "2013-01-03"), ("--from", "2013-01-03", None)], ids=lambda e: e[0])
def test_an_interval_with_an_open_end_is_covered_by_its_first_run(engine, landed, tmp_path, ends):
    _, start, end = ends
    interval = Interval(
        start=NEVER if start is None else to_ms(dt.datetime.fromisoformat(start)),
        end=END + 1 if end is None else to_ms(dt.datetime.fromisoformat(end)),
    )
    cut = dataclasses.replace(hourly_departures, partitions=Daily("2013-01-01", timezone="America/New_York"))
    lake = Lake(str(tmp_path), logs=landed.root)
    assert engine.run_bounded(cut, lake, interval).skipped == ()
    assert engine.run_bounded(cut, lake, interval).skipped == (interval,)


def test_tables_divided_otherwise_are_refused_until_all_is_computed_anew(engine, landed, tmp_path):
    here, there = (
        dataclasses.replace(hourly_departures, partitions=Daily("2013-01-01", timezone=z)) for z in ("UTC", ZONE)
    )
    day = Interval(start=to_ms(dt.datetime(2013, 1, 2)), end=to_ms(dt.datetime(2013, 1, 3)))
    lake, plain = Lake(str(tmp_path / "lake"), logs=landed.root), Lake(str(tmp_path / "plain"), logs=landed.root)
    engine.run_bounded(there, lake, day)
    version = DeltaTable(lake.output("hourly_departures")).version()
    for again in (
        lambda: engine.run_bounded(here, lake, day),
        lambda: engine.run_bounded(here, lake, day, force=True),
        lambda: engine.run_unbounded(here, lake, until_caught_up=True),
    ):
        with pytest.raises(
            PlanError,
            match="PLAN-003 .*expected asset partitions by day UTC, got asset partitions by day America/New_York",
        ):
            again()
    assert DeltaTable(lake.output("hourly_departures")).version() == version
    assert engine.run_bounded(here, lake, Interval()).reasons[0].endswith("its asset partitions have changed")
    engine.run_bounded(hourly_departures, plain, Interval())
    for output in here.outputs:
        mine, theirs = (answer(x, here, output.name) for x in (lake, plain))
        order = [(name, "ascending") for name in output.schema.names]
        assert mine.sort_by(order).equals(theirs.sort_by(order))
    assert engine.run_bounded(here, lake, day).skipped == (day,)


def test_undivided_tables_become_divided_and_back_only_as_a_whole(engine, landed, tmp_path):
    cut = dataclasses.replace(hourly_departures, partitions=Daily("2013-01-01"))
    day = Interval(start=to_ms(dt.datetime(2013, 1, 2)), end=to_ms(dt.datetime(2013, 1, 3)))
    lake = Lake(str(tmp_path), logs=landed.root)
    whole, by_day = "no asset partitions", "asset partitions by day UTC"
    for before, after, told in ((hourly_departures, cut, (by_day, whole)), (cut, hourly_departures, (whole, by_day))):
        engine.run_bounded(before, lake, Interval())
        for force in (False, True):
            with pytest.raises(PlanError, match=f"PLAN-003 .*expected {told[0]}, got {told[1]}"):
                engine.run_bounded(after, lake, day, force=force)
    engine.run_bounded(hourly_departures, lake, Interval())
    assert DeltaTable(lake.output("hourly_departures")).metadata().partition_columns == []


def test_a_lost_table_beside_the_main_one_is_not_covered(engine, landed, tmp_path):
    lake = Lake(str(tmp_path), logs=landed.root)
    engine.run_bounded(hourly_departures, lake, Interval())
    shutil.rmtree(lake.output("hourly_departures__current"))
    with pytest.raises(ExecutionError, match="EXECUTION-002 .*got none of hourly_departures__current"):
        engine.run_bounded(hourly_departures, lake, Interval())
    engine.run_bounded(hourly_departures, lake, Interval(), force=True)
    assert DeltaTable(lake.output("hourly_departures__current")).to_pyarrow_table().num_rows > 10
