"""What the embedded engine computes is what the kernels in one process compute; what it cannot compute is refused or raised."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hourly_sums import Reading, sums

import floodmark as fm
from floodmark.control.processes.engine import OnEmbedded
from floodmark.core.errors import CapabilityError, ExecutionError, UserCodeError
from floodmark.core.time import Interval, parse_instant
from floodmark.engines.embedded.bounded import pool, query
from floodmark.engines.embedded.bounded import run as embedded
from floodmark.engines.embedded.sail import stored
from floodmark.engines.embedded.sail.session import Sail, ServerLost, shared
from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Settings
from floodmark.testing import lakes
from floodmark.testing.log import Log
from floodmark.testing.runs import Run, final

MEMORY, EMBEDDED = Run("memory", "bounded"), Run("embedded", "bounded")
NINE = datetime(2013, 1, 1, 9)
ELEVEN = parse_instant("2013-01-01 11:00", "a test", "UTC")


class Numbered(fm.Contract):
    """A row's place among those of its sensor."""

    sensor: str
    n: int


class Counting(fm.ProcessFunction):
    """Numbers the rows of a sensor; those of the value 13 go to a side output."""

    seen = fm.ValueState("bigint")

    def on_element(self, row, ctx):
        n = (self.seen.get() or 0) + 1
        self.seen.update(n)
        if row["value"] == 13:
            ctx.output("unlucky", {"sensor": row["sensor"], "n": n})
        yield {"sensor": row["sensor"], "n": n}


class Failing(fm.ProcessFunction):
    """Fails for the value 13."""

    def on_element(self, row, ctx):
        yield {"sensor": row["sensor"], "n": 1 // (row["value"] - 13)}


class Dying(fm.ProcessFunction):
    """Its process is killed when it first meets the value 13."""

    def __init__(self, mark):
        self.mark = mark

    def on_element(self, row, ctx):
        if row["value"] == 13 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"sensor": row["sensor"], "n": row["value"]}


class Waiting(fm.ProcessFunction):
    """Goes on when a file is gone."""

    def __init__(self, file):
        self.file = file

    def on_element(self, row, ctx):
        Path(f"{self.file}.begun").touch()
        while Path(self.file).exists():
            time.sleep(0.02)
        yield {"sensor": row["sensor"], "n": row["value"]}


@fm.operator
def sessions(readings: fm.Stream[Reading]) -> fm.Stream:
    """Sessions of what is computed behind a filter, where it fails for rows the filter takes out."""
    there = readings.filter("value <> 0").with_columns(part="100 DIV value")
    return there.key_by("sensor").window(fm.Session("10 minutes")).aggregate(n=fm.count(), parts=fm.sum("part"))


@fm.operator
def shares(readings: fm.Stream[Reading]) -> fm.Stream:
    """The same in hours without lateness."""
    there = readings.filter("value <> 0").with_columns(part="100 DIV value")
    return there.key_by("sensor").window(fm.Tumbling("1 hour")).aggregate(n=fm.count(), parts=fm.sum("part"))


@fm.operator
def flags(readings: fm.Stream[Reading]) -> fm.Stream:
    """Conditions that fail for rows the filter before them takes out: as a column, and as a filter."""
    there = readings.filter("value <> 0").with_columns(large="100 DIV value > 3")
    return there.filter("100 DIV value > 1").select("sensor", "value", "large")


@fm.operator
def doubled(readings: fm.Stream[Reading]) -> fm.Stream:
    """No state."""
    return readings.filter("value IS NOT NULL").select("sensor", twice="value * 2")


@fm.operator
def numbered(readings: fm.Stream[Reading]) -> fm.Stream:
    """A process function with a side output."""
    return readings.key_by("sensor").process(Counting(), schema=Numbered, sides={"unlucky": Numbered})


@fm.operator
def pairs(readings: fm.Stream[Reading]) -> fm.Stream:
    """An interval join of a stream with itself."""
    again = readings.select("sensor", other="value * 2")
    return readings.key_by("sensor").interval_join(again.key_by("sensor"), "-1 minute", "1 minute")


def rows(count: int, sensors: int = 7, value: int = 0) -> list[dict[str, object]]:
    return [
        {"at": NINE + timedelta(seconds=n * 37 % 10_000), "sensor": f"s{n % sensors}", "value": n + value}
        for n in range(count)
    ]


def landed(lake: Lake, operator: fm.Operator, content: list[dict[str, object]]) -> None:
    log = Log(operator.inputs[0].schema)
    log.rows(content, "at", 3_600_000)
    log.end()
    lakes.land(lake, operator, log)


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IN_DRIVER", 0)
    monkeypatch.setattr(pool.os, "cpu_count", lambda: 2)


@pytest.mark.parametrize("operator", [sums, sessions, shares, flags, doubled, numbered, pairs], ids=lambda o: o.name)
def test_the_rows_are_those_of_the_kernels(operator):
    content = rows(200)
    found = EMBEDDED(operator, {"readings": content}, delay="5 minutes")
    assert found == MEMORY(operator, {"readings": content}, delay="5 minutes")
    assert all(found.values())


@pytest.mark.parametrize("operator", [sums, shares, doubled, numbered], ids=lambda o: o.name)
def test_of_nothing_comes_nothing(operator):
    found = EMBEDDED(operator, {"readings": []}, event_time="at")
    assert found
    assert not any(found.values())


@pytest.mark.usefixtures("in_workers")
@pytest.mark.parametrize(
    "operator",
    [sessions, *(pytest.param(one, marks=pytest.mark.soak) for one in (numbered, pairs))],
    ids=lambda o: o.name,
)
def test_workers_compute_the_same(operator):
    content = rows(200)
    assert EMBEDDED(operator, {"readings": content}) == MEMORY(operator, {"readings": content})


def test_this_process_computes_while_the_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as it would alone."""
    here, every, content = list[Any](), list[Any](), rows(200)
    fill, computed = pool.fill, pool.computed
    monkeypatch.setattr(pool, "IN_DRIVER", 100)
    monkeypatch.setattr(pool.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(pool, "fill", lambda work, bucket: here.append(bucket) or fill(work, bucket))
    monkeypatch.setattr(pool, "computed", lambda work, *of: every.extend(of[0]) or computed(work, *of))
    assert EMBEDDED(numbered, {"readings": content}) == MEMORY(numbered, {"readings": content})
    assert len(here) == len(every) // 2 > 0


@pytest.mark.usefixtures("in_workers")
def test_a_worker_that_dies_costs_its_groups_a_retry(tmp_path):
    mark = tmp_path / "died"

    @fm.operator
    def dying(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").process(Dying(str(mark)), schema=Numbered)

    found = EMBEDDED(dying, {"readings": rows(100)})
    assert mark.exists()
    assert sorted(row["n"] for row in found[""]) == list(range(100))


@pytest.mark.usefixtures("in_workers")
def test_what_is_cancelled_ends_without_a_row_and_can_be_begun_again(tmp_path):
    """As Dagster cancels what a terminated run computes: again and again until it has ended."""
    hold, lake, failed = tmp_path / "hold", Lake(str(tmp_path / "lake")), []
    hold.touch()

    @fm.operator
    def waiting(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").process(Waiting(str(hold)), schema=Numbered)

    def run():
        try:
            engine.run_bounded(waiting, lake, Interval())
        except ExecutionError as error:
            failed.append(error.code)

    landed(lake, waiting, rows(50))
    engine = OnEmbedded(Settings(), lambda _: nullcontext())
    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive() and not Path(f"{hold}.begun").exists():
        thread.join(0.02)
    while thread.is_alive():
        engine.cancel()
        thread.join(0.2)
    assert failed and failed[0] in {"EXECUTION-070", "EXECUTION-071", "EXECUTION-072"}
    assert not pool._RUNNING
    assert not DeltaTable.is_deltatable(lake.output("waiting")) or not lakes.outputs(lake, waiting)[""]
    hold.unlink()
    again = OnEmbedded(Settings(), lambda _: nullcontext())
    assert again.run_bounded(waiting, lake, Interval()).rows["waiting"] == 50


@pytest.mark.parametrize("where", ["driver", "worker"])
def test_an_error_of_the_user_s_names_the_function(where, request):
    if where == "worker":
        request.getfixturevalue("in_workers")

    @fm.operator
    def failing(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").process(Failing(), schema=Numbered)

    with pytest.raises(UserCodeError, match="USER-001.*ZeroDivisionError"):
        EMBEDDED(failing, {"readings": rows(20)})


def test_arithmetic_that_leaves_its_range_is_an_error():
    @fm.operator
    def overflowing(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.select("sensor", big="value * 9223372036854775807")

    with pytest.raises(ExecutionError, match=r"EXECUTION-003.*(?i:overflow|range)"):
        EMBEDDED(overflowing, {"readings": rows(5)})


def test_a_lake_that_is_neither_on_a_disk_nor_in_a_bucket_is_refused():
    with pytest.raises(CapabilityError, match="CAPABILITY-033.*--engine spark"):
        embedded.check(doubled, Lake("hdfs://host/lake"))


@pytest.mark.parametrize("operator", [sums, shares], ids=lambda o: o.name)
def test_an_interval_is_replaced_and_the_rest_stays(tmp_path, operator):
    lake = Lake(str(tmp_path))
    landed(lake, operator, rows(200))
    whole = embedded.run_bounded(shared(), operator, lake)
    before = lakes.outputs(lake, operator)[""]
    again = embedded.run_bounded(shared(), operator, lake, Interval(end=ELEVEN), force=True)
    after = lakes.outputs(lake, operator)[""]
    assert final([after]) == final([before])
    assert 0 < sum(again.rows.values()) < sum(whole.rows.values())
    assert again.reasons == (f"{again.interval}: asked for again (force)",)
    covered = embedded.run_bounded(shared(), operator, lake)
    assert covered.skipped
    assert not covered.rows


def test_a_server_that_dies_in_the_middle_costs_the_stretch_a_retry(tmp_path, monkeypatch):
    lake, said, real = Lake(str(tmp_path)), [], stored.table
    landed(lake, sums, rows(200))
    sail = Sail(400)

    def killed(*arguments):
        if not said:
            with sail.lent() as connection:
                os.kill(connection.server.pid, signal.SIGKILL)
        return real(*arguments)

    monkeypatch.setattr(stored, "table", killed)
    try:
        embedded.run_bounded(sail, sums, lake, on_step=lambda text: said.append(text) if "once more" in text else None)
        assert len(said) == 1
        assert sail.started == 2
        assert final([lakes.outputs(lake, sums)[""]]) == MEMORY(sums, {"readings": rows(200)}, delay="1 hour")[""]
    finally:
        sail.close()


@pytest.mark.parametrize("name", ["sp ace", "läke", "t~", "a+b, c=d"])
def test_a_lake_lies_in_a_folder_of_any_name(tmp_path, name):
    lake = Lake(str(tmp_path / name / "lake"))
    landed(lake, sums, rows(20))
    wanted = MEMORY(sums, {"readings": rows(20)}, delay="1 hour")[""]
    embedded.run_bounded(shared(), sums, lake)
    assert final([lakes.outputs(lake, sums)[""]]) == wanted
    output = sums.outputs[0]
    named = {"sums": query.Table(lake.output(output.table), output.schema, stamped=True)}
    assert query.query(shared(), "SELECT * FROM sums", named).num_rows == len(wanted)


def test_a_server_that_dies_every_time_is_an_error(tmp_path, monkeypatch):
    lake, sail = Lake(str(tmp_path)), Sail(400)
    landed(lake, sums, rows(20))
    real = stored.table

    def killed(*arguments):
        with sail.lent() as connection:
            os.kill(connection.server.pid, signal.SIGKILL)
        return real(*arguments)

    monkeypatch.setattr(stored, "table", killed)
    try:
        with pytest.raises(ServerLost, match="EXECUTION-070"):
            embedded.run_bounded(sail, sums, lake)
        assert sail.started == 3
    finally:
        sail.close()
