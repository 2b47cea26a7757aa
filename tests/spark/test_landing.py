"""Landing: files, rows and tables into logs, stamped, once."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
import threading
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from stored import rows as stored

from floodmark import Stream, TimeFormat, operator
from floodmark.core.errors import ConnectorError, LifecycleError, PlanError
from floodmark.core.time import END, NEVER, to_ms
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing
from floodmark.observe.bounds import report
from floodmark.semantics.time.delays import Delays
from floodmark.semantics.time.learning import BoundEstimate, Decision
from floodmark.spec.rows.connector import DeltaTable, Files, Rows
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import (
    Ascending,
    BoundedOutOfOrderness,
    FromColumn,
    Learned,
    Punctuated,
    Source,
)

pytestmark = pytest.mark.usefixtures("read_by_workers")


class Reading(Contract):
    at: EventTime
    sensor: str
    value: int | None = None
    unit: Literal[1, 2] = 1


def clock() -> int:
    return 1_000_000_000_000


def second(n: int) -> str:
    return f"2001-01-01T00:{n // 60:02d}:{n % 60:02d}"


def ms(n: int) -> int:
    return 978_307_200_000 + n * 1000


def row(n: int, sensor: str = "a", value: int | None = None) -> dict[str, object]:
    return {"at": second(n), "sensor": sensor, "value": value}


def source(connector: object, **settings: object) -> Source:
    settings = {"contract": Reading, "watermark": BoundedOutOfOrderness("10 s"), **settings}
    return Source("readings", connector=connector, **settings)  # type: ignore[arg-type]  # tests pass whatever fits


def log(lake: Lake, name: str = "readings") -> list[tuple[object, ...]]:
    """(event ms or None, watermark, progress, sequence, kind) in order of arrival."""
    return [
        (None if r._event_time is None else to_ms(r._event_time), r._watermark, r._progress, r._sequence, r._kind)
        for r in stored(lake.log(name), "_sequence")
    ]


def payload(lake: Lake, column: str) -> list[object]:
    return [getattr(r, column) for r in stored(lake.log("readings"), "_sequence") if r._kind == 0]


def csv(folder: Path, name: str, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join(("at,sensor,value,unit", *lines)) + "\n")
    return path


@pytest.mark.engines("embedded", "spark")
@pytest.mark.feature("T6", "T7")
def test_every_row_is_stamped_with_the_watermark_before_it(engine, lake) -> None:
    rows = [row(100), row(80), row(130), row(100)]
    engine.land(source(Rows(rows)), lake, clock=clock)
    first = ms(100) - 10_001
    assert log(lake) == [
        (ms(100), NEVER, NEVER, 0, 0),
        (ms(80), first, first, 1, 0),
        (ms(130), first, first, 2, 0),
        (ms(100), ms(130) - 10_001, ms(130) - 10_001, 3, 0),
        (None, ms(130) - 10_001, ms(130) - 10_001, 4, 1),
    ]


def test_more_rows_go_on_where_the_last_landing_stopped(engine, lake) -> None:
    rows = [row(100), row(80), row(130), row(100)]
    for size in (1, 1, 3, 4):
        result = engine.land(source(Rows(rows[:size])), lake, clock=clock)
    assert (result.commits, result.rows, result.watermark) == (1, 1, ms(130) - 10_001)
    stamps = [(event, stamp) for event, stamp, _, _, kind in log(lake) if kind == 0]
    first = ms(100) - 10_001
    assert stamps == [(ms(100), NEVER), (ms(80), first), (ms(130), first), (ms(100), ms(130) - 10_001)]
    assert [sequence for *_, sequence, _ in log(lake)] == list(range(7))


def test_files_land_in_the_order_of_their_names_each_once(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    for n in (3, 1, 2, 5, 4):
        csv(folder, f"f{n}.csv", f"{second(n)},s{n},{n},1", f"{second(n)},s{n},NA,2")
    inbox = source(Files(str(folder)), files_per_commit=2)
    told = []
    result = engine.land(inbox, lake, clock=clock, on_commit=told.append)
    assert [(c.units, c.rows, c.pending) for c in told] == [(2, 4, 3), (2, 4, 1), (1, 2, 0)]
    assert (result.commits, result.rows, result.quarantined) == (3, 10, 0)
    assert payload(lake, "value") == [1, None, 2, None, 3, None, 4, None, 5, None]
    assert payload(lake, "unit") == [1, 2] * 5
    csv(folder, "f0.csv", f"{second(9)},late,9,1")
    assert engine.land(inbox, lake, clock=clock).rows == 1
    assert engine.land(inbox, lake, clock=clock).commits == 0
    assert payload(lake, "sensor")[-1] == "late"


def test_files_may_land_by_date_of_change(engine, lake, tmp_path) -> None:
    for age, name in enumerate(("b", "c", "a")):
        os.utime(csv(tmp_path / "in", f"{name}.csv", f"{second(1)},{name},1,1"), (1000 + age, 1000 + age))
    engine.land(source(Files(str(tmp_path / "in" / "*.csv"), order_by="modified")), lake, clock=clock)
    assert payload(lake, "sensor") == ["b", "c", "a"]


@pytest.mark.engines("embedded", "spark")
def test_broken_rows_are_set_aside_with_line_reason_and_text(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    csv(
        folder,
        "a.csv",
        f'{second(1)},"two\nlines",1,1',
        f"{second(2)},s,abc,1",
        f"{second(3)},,1,7",
        f"{second(4)},s",
        f'{second(5)},"never closed,1,1',
        f"{second(6)},s,99999999999999999999,1",
        f"{second(7)},last,1,1",
    )
    with (folder / "a.csv").open("ab") as file:
        file.write(f"{second(8)},caf\xe9,1,1\n2099-01-01T00:00:00,s,1,1\n".encode("latin-1"))
    result = engine.land(source(Files(str(folder))), lake, clock=clock)
    assert (result.rows, result.quarantined) == (2, 7)
    assert payload(lake, "sensor") == ["two\nlines", "last"]
    found = {entry.position: (entry.reason, entry.raw) for entry in quarantine.show("readings", lake).newest}
    assert found[4] == ("value: expected a valid integer, got 'abc'", f"{second(2)},s,abc,1")
    assert found[5][0] == "sensor: expected a valid string, got null; unit: expected 1 or 2, got '7'"
    assert found[6][0] == "expected 4 fields as in the header, got 2"
    assert found[7][0].startswith("expected a CSV record, got a broken one")
    assert found[8][0] == "value: expected a bigint, got 99999999999999999999, which does not fit into one"
    assert found[10] == ("expected UTF-8 text, got other bytes (shown as \\xNN)", f"{second(8)},caf\\xe9,1,1")
    assert "at most 1 day after the moment of landing" in found[11][0]
    assert sorted(found) == [4, 5, 6, 7, 8, 10, 11]


def test_a_damaged_file_lands_nothing_until_it_is_whole(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    csv(folder, "a.csv", f"{second(1)},a,1,1")
    csv(folder, "c.csv", f"{second(3)},c,1,1")
    whole = gzip.compress(
        (
            "at,sensor,value,unit\n" + "".join(f"{second(2)},b{zlib.crc32(bytes([n]))},{n},1\n" for n in range(200))
        ).encode()
    )
    (folder / "b.csv.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "d.csv").write_bytes(b"")
    inbox = source(Files(str(folder)))
    result = engine.land(inbox, lake, clock=clock)
    assert (result.rows, result.quarantined) == (2, 2)
    assert payload(lake, "sensor") == ["a", "c"]
    reasons = {entry.file: entry.reason for entry in quarantine.show("readings", lake).newest}
    assert reasons["b.csv.gz"].startswith("the file cannot be read to its end: Compressed file ended")
    assert "it is empty" in reasons["d.csv"]
    assert engine.land(inbox, lake, clock=clock).commits == 0
    (folder / "b.csv.gz").write_bytes(whole)
    result = engine.land(inbox, lake, clock=clock)
    assert (result.rows, result.quarantined) == (200, 0)


def test_a_file_that_changes_after_landing_is_reported_once_and_never_lands_twice(engine, lake, tmp_path) -> None:
    path = csv(tmp_path / "in", "a.csv", f"{second(1)},a,1,1")
    inbox = source(Files(str(tmp_path / "in")))
    engine.land(inbox, lake, clock=clock)
    os.utime(path, (5, 5))
    assert engine.land(inbox, lake, clock=clock).commits == 0
    csv(tmp_path / "in", "a.csv", f"{second(1)},a,1,1", f"{second(2)},a,1,1")
    result = engine.land(inbox, lake, clock=clock)
    assert (result.rows, result.quarantined) == (0, 1)
    assert "give it a new name" in quarantine.show("readings", lake).newest[0].reason
    assert engine.land(inbox, lake, clock=clock).commits == 0
    assert len(payload(lake, "at")) == 1


def test_a_missing_column_stops_behind_the_files_before_it(engine, lake, tmp_path) -> None:
    csv(tmp_path / "in", "a.csv", f"{second(1)},a,1,1")
    (tmp_path / "in" / "b.csv").write_text(f"at,senser\n{second(1)},b\n")
    csv(tmp_path / "in", "c.csv", f"{second(1)},c,1,1")
    with pytest.raises(
        ConnectorError, match=r"b\.csv: expected a column 'sensor', got columns at, senser. Did you mean 'senser'"
    ):
        engine.land(source(Files(str(tmp_path / "in"))), lake, clock=clock)
    assert payload(lake, "sensor") == ["a"]


def test_a_missing_folder_is_named_and_an_empty_one_is_not_an_error(engine, lake, tmp_path) -> None:
    (tmp_path / "inbox").mkdir()
    with pytest.raises(ConnectorError, match=r"CONNECTOR-002 .*Did you mean 'inbox'"):
        engine.land(source(Files(str(tmp_path / "imbox"))), lake, clock=clock)
    assert engine.land(source(Files(str(tmp_path / "inbox"))), lake, clock=clock).commits == 0


def test_lines_of_ten_megabytes_land(engine, lake, tmp_path) -> None:
    csv(tmp_path / "in", "a.csv", f"{second(1)},{'x' * 10_000_000},1,1", f"{second(2)},s,{'9' * 10_000_000},1")
    result = engine.land(source(Files(str(tmp_path / "in"))), lake, clock=clock)
    assert (result.rows, result.quarantined) == (1, 1)


def test_json_lines_and_parquet_land_alike(engine, lake, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(f'{{"at": "{second(1)}", "sensor": "j", "value": 5}}\n\n{{"at": 1\n')
    pq.write_table(pa.Table.from_pylist([row(2, "p", 6), row(3, "p"), {"sensor": None}]), tmp_path / "in" / "b.parquet")
    (tmp_path / "in" / "c.parquet").write_bytes(b"PAR1 cut")
    result = engine.land(source(Files(str(tmp_path / "in"))), lake, clock=clock)
    assert (result.rows, result.quarantined) == (3, 3)
    assert payload(lake, "value") == [5, 6, None]


def test_a_value_that_only_a_conversion_makes_fit_is_set_aside(engine, lake, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    values = ('"value": "007"', '"value": true', '"unit": true', '"value": 7')
    lines = [f'{{"at": "{second(n)}", "sensor": "a", {value}}}' for n, value in enumerate(values)]
    (tmp_path / "in" / "1.jsonl").write_text("\n".join(lines))
    (tmp_path / "in" / "2.csv").write_text(f"at,sensor,value\n{second(9)},NA,NA\n")
    result = engine.land(source(Files(str(tmp_path / "in"))), lake)
    assert (result.rows, result.quarantined) == (2, 3)
    assert [(r.sensor, r.value) for r in stored(lake.log("readings"), "_sequence") if r._kind == 0] == [
        ("a", 7),
        ("NA", None),
    ]
    assert result.default_nulls.rows == {"value 'NA'": 1}


class Payment(Contract):
    at: Annotated[EventTime, TimeFormat("%d.%m.%Y %H:%M")]
    shop: str
    amount: float


def test_spreadsheets_and_json_arrays_land_and_the_wrong_contract_stops(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text = "sep=;\nat;shop;amount\n03.02.2024 10:00;Café;1.234,5\n3.2.;x;1\n"
    (folder / "a.csv").write_bytes(text.encode("cp1252"))
    connector = Files(str(folder / "*.csv"), delimiter=";", decimal=",", encoding="cp1252")
    landed = engine.land(Source("payments", contract=Payment, connector=connector, watermark=Ascending()), lake)
    assert (landed.rows, landed.quarantined) == (1, 1)
    (stored_row, _) = stored(lake.log("payments"), "_sequence")
    assert (stored_row.shop, stored_row.amount) == ("Café", 1234.5)
    (folder / "a.json").write_text(json.dumps([row(n) for n in range(3)], indent=1))
    assert engine.land(source(Files(str(folder / "*.json"))), lake, clock=clock).rows == 3
    (folder / "b.json").write_text(json.dumps([{"at": "soon"}] * 100))
    with pytest.raises(ConnectorError, match=r"CONNECTOR-012 .*got 100 of 100, in b.json: row 1: at: .*; row 3: "):
        engine.land(source(Files(str(folder / "*.json"))), lake, clock=clock)
    assert len(log(lake)) == 4


def test_moments_before_1970_are_floored_to_milliseconds(engine, lake) -> None:
    engine.land(source(Rows([{"at": "1969-12-31T23:59:59.999900", "sensor": "a"}])), lake, clock=clock)
    assert log(lake)[0][0] == -1
    assert payload(lake, "at")[0].microsecond == 999_900


@pytest.mark.feature("T8")
def test_with_commit_granularity_each_commit_sets_the_watermark_a_minute_behind_the_largest_time(engine, lake) -> None:
    rows = [row(n) for n in (100, 400, 80, 130, 350, 500, 470)]
    for size in (3, 5, 7):  # each commit is a tick: within one the watermark stands
        watermark = BoundedOutOfOrderness("60 s")
        engine.land(source(Rows(rows[:size]), watermark=watermark, granularity="commit"), lake, clock=clock)
    tick = ms(400) - 60_000 - 1
    assert [stamp for _, stamp, *_, kind in log(lake) if kind == 0] == [*[NEVER] * 3, *[tick] * 4]
    engine.land(source(Rows([*rows, row(600)]), watermark=watermark, granularity="commit"), lake, clock=clock)
    assert [stamp for _, stamp, *_, kind in log(lake) if kind == 0][-1] == ms(500) - 60_000 - 1


def test_commit_granularity_judges_by_the_commits_before(engine, lake) -> None:
    rows = [row(100), row(80), row(130)]
    for size in (2, 3):
        engine.land(source(Rows(rows[:size]), granularity="commit"), lake, clock=clock)
    after = ms(100) - 10_001
    assert [stamp for _, stamp, *_ in log(lake)] == [NEVER, NEVER, after, after, ms(130) - 10_001]


@pytest.mark.feature("T9")
def test_only_punctuation_moves_the_watermark(engine, lake) -> None:
    rows = [row(10, value=2), row(20, value=1), row(30, value=2), row(25, value=2)]
    inbox = source(Rows(rows), watermark=Punctuated("4 / coalesce(value, 0) = 4"))  # fails for what is no row
    engine.land(inbox, lake, clock=clock)
    assert [stamp for _, stamp, *_ in log(lake)] == [NEVER, NEVER, ms(20) - 1, ms(20) - 1, ms(20) - 1]


def test_a_row_for_which_punctuation_fails_is_set_aside_and_the_others_land(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    values = (1, 0, 4, "none", 0, 1)
    csv(folder, "a.csv", *(f"{second(10 * n)},a,{value},1" for n, value in enumerate(values, 1)))
    inbox = source(Files(str(folder)), watermark=Punctuated("4 / value = 4"))
    done = engine.land(inbox, lake, clock=clock)
    assert (done.rows, done.quarantined) == (3, 3)
    aside = stored(lake.quarantine(inbox.name), "position")
    assert [row.position for row in aside] == [3, 5, 6]
    assert ["DIVIDE_BY_ZERO" in row.reason for row in aside] == [True, False, True]
    assert aside[0].reason.startswith("Punctuated, 4 / value = 4: ")
    assert aside[0].raw == f"{second(20)},a,0,1"
    still = engine.replay(inbox, lake, clock=clock)
    assert (still.landed, still.still_broken) == (0, 3)


@pytest.mark.feature("T11")
def test_a_source_may_state_its_own_watermark(engine, lake) -> None:
    rows = [row(10, value=5000), row(20), row(30, value=4000)]
    engine.land(source(Rows(rows), watermark=FromColumn("value")), lake, clock=clock)
    assert [stamp for _, stamp, *_ in log(lake)] == [NEVER, 5000, 5000, 5000]


@pytest.mark.feature("T15")
def test_the_slowest_source_partition_holds_the_watermark_until_it_is_idle(engine, lake, tmp_path) -> None:
    folder = tmp_path / "in"
    inbox = source(
        Files(str(folder)), watermark=Ascending(), partition_by="sensor", idle_timeout="1 minute", files_per_commit=1
    )
    csv(folder, "a.csv", f"{second(10)},a,1,1", f"{second(5)},b,1,1")
    csv(folder, "b.csv", f"{second(20)},a,1,1")
    assert engine.land(inbox, lake, clock=lambda: 0 + clock()).watermark == ms(10) - 1
    csv(folder, "c.csv", f"{second(30)},a,1,1")
    assert engine.land(inbox, lake, clock=lambda: 60_000 + clock()).watermark == ms(30) - 1
    stamps = [stamp for _, stamp, _, _, kind in log(lake) if kind == 0]
    assert stamps == [NEVER, ms(10) - 1, ms(10) - 1, ms(20) - 1]


@pytest.mark.feature("T15")
def test_a_continuous_landing_lands_an_idle_marker(engine, lake) -> None:
    rows = Rows([row(10, "a"), row(5, "b"), row(20, "a")])
    inbox = source(rows, watermark=Ascending(), partition_by="sensor", idle_timeout="1 minute")
    moments, stop = iter([clock(), clock(), *[clock() + 60_000] * 1000]), threading.Event()
    told = []

    def note(committed: object) -> None:
        told.append(committed)
        if len(told) == 2:  # the rows, then the marker
            stop.set()

    engine.land(
        inbox,
        lake,
        until_caught_up=False,
        stop=stop,
        on_commit=note,
        clock=lambda: next(moments),
        poll_seconds=0.01,
    )
    assert [(c.rows, c.watermark) for c in told] == [(3, ms(10) - 1), (0, ms(20) - 1)]
    assert [kind for *_, kind in log(lake)] == [0, 0, 0, 1, 1]


@pytest.mark.feature("T15")
def test_a_source_that_seldom_has_rows_follows_the_clock_and_what_comes_then_is_on_time(engine, lake) -> None:
    rows, now = [row(10, "a")], [ms(60)]

    def look(seconds: int) -> list[tuple[int, int]]:
        now[0] = ms(seconds)
        inbox = source(Rows(rows), watermark=Ascending(), idle_timeout="10 seconds", when_idle="clock")
        done = engine.land(inbox, lake, clock=lambda: now[0])
        return [(done.commits, done.rows)]

    assert look(60) == [(1, 1)]
    assert look(65) == [(0, 0)], "not idle yet"
    assert look(90) == [(1, 0)]
    assert look(95) == [(0, 0)], "a marker in ten seconds is enough"
    rows.append(row(85, "b"))  # it came between two looks
    assert look(200) == [(1, 1)]
    assert [(stamp, kind) for _, stamp, _, _, kind in log(lake)] == [
        (NEVER, 0),
        (ms(10) - 1, 1),
        (ms(80), 1),
        (ms(80), 0),
        (ms(85) - 1, 1),
    ]


def test_a_delta_table_lands_commit_by_commit_and_refuses_updates(engine, lake, tmp_path) -> None:
    path = str(tmp_path / "table")

    def write(n: int) -> None:
        rows = [{"at": datetime.fromisoformat(second(n)).replace(tzinfo=UTC), "sensor": f"s{n}", "value": n}]
        write_deltalake(path, pa.Table.from_pylist(rows), mode="append")

    for n in (1, 2, 3):
        write(n)
    inbox = source(DeltaTable(path, starting_version=1), files_per_commit=1)
    assert engine.land(inbox, lake, clock=clock).commits == 2
    assert payload(lake, "sensor") == ["s2", "s3"]
    write(4)
    DeltaRs(path).delete("sensor = 's1'")
    with pytest.raises(ConnectorError, match=r"CONNECTOR-006 .*version 4, which deletes or updates rows \(DELETE\)"):
        engine.land(inbox, lake, clock=clock)
    assert payload(lake, "sensor") == ["s2", "s3", "s4"]


def test_the_end_of_input_lands_once_and_nothing_after_it(engine, lake) -> None:
    engine.land(source(Rows([row(1)])), lake, clock=clock, end=True)
    assert engine.land(source(Rows([row(1)])), lake, clock=clock, end=True).commits == 0
    assert log(lake)[-1] == (None, END, END, 2, 1)
    with pytest.raises(LifecycleError, match="LIFECYCLE-011"):
        engine.land(source(Rows([row(1), row(2)])), lake, clock=clock)


def test_a_second_landing_is_refused_at_once(engine, lake) -> None:
    told = []

    def again(_: object) -> None:
        with pytest.raises(LifecycleError, match=f"LIFECYCLE-003 .*one by process {os.getpid()}") as error:
            engine.land(source(Rows([row(1)])), lake, clock=clock)
        told.append(error)

    engine.land(source(Rows([row(1)])), lake, clock=clock, on_commit=again)
    assert len(told) == 1


def test_a_source_that_no_longer_fits_its_log_is_refused_with_every_difference(engine, lake) -> None:
    engine.land(source(Rows([row(1)])), lake, clock=clock)

    class Changed(Contract):
        at: EventTime
        value: str | None = None
        unit: Literal[1, 2] = 1
        more: int

    with pytest.raises(PlanError) as error:
        engine.land(
            source(Rows([row(1)]), contract=Changed, watermark=BoundedOutOfOrderness("20 s")), lake, clock=clock
        )
    for difference in ("'sensor' was removed", "'value' was bigint and is string", "'more' was added", "bound 10000"):
        assert difference in str(error.value)


@pytest.mark.feature("D9")
def test_a_nullable_column_may_be_added_and_readers_of_the_others_go_on(engine, lake) -> None:
    def seen(readings: Stream[Reading]) -> Stream:
        return readings.filter("value IS NULL")

    before = operator(seen, inputs={"readings": source(Rows([]))})
    engine.land(source(Rows([row(1)])), lake, clock=clock)
    engine.run_unbounded(before, lake, until_caught_up=True)

    class Wider(Reading):
        note: str | None = None

    engine.land(source(Rows([row(1), {**row(2), "note": "x"}]), contract=Wider), lake, clock=clock)
    assert payload(lake, "note") == [None, "x"]
    engine.run_unbounded(before, lake, until_caught_up=True)
    found = DeltaRs(lake.output("seen")).to_pyarrow_table()
    assert (found["_kind"].to_pylist().count(0), "note" in found.column_names) == (2, False)


def test_workers_need_not_import_the_workspace(engine, lake, tmp_path, monkeypatch) -> None:
    package = tmp_path / "workspace" / "contracts_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("def shout(text):\n    return text.upper()\n")
    (package / "readings.py").write_text(
        "from pydantic import field_validator\n"
        "from floodmark.spec.rows.contract import Contract, EventTime\n"
        "from contracts_of_mine.words import shout\n"
        "class Loud(Contract):\n"
        "    at: EventTime\n"
        "    sensor: str\n"
        "    @field_validator('sensor')\n"
        "    @classmethod\n"
        "    def loud(cls, value):\n"
        "        return shout(value)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "workspace"))
    Loud = importlib.import_module("contracts_of_mine.readings").Loud  # noqa: N806 - a class

    try:
        engine.land(source(Rows([row(1, "hi")]), contract=Loud), lake, clock=clock)
    finally:
        for name in [name for name in sys.modules if name.startswith("contracts_of_mine")]:
            del sys.modules[name]
    assert payload(lake, "sensor") == ["HI"]


class Arrival(Contract, event_time="ingestion"):
    sensor: str


@pytest.mark.feature("T3")
def test_ingestion_time_is_fixed_by_the_first_landing(engine, lake) -> None:
    def arrivals(*sensors: str) -> Source:
        return source(Rows([{"sensor": sensor} for sensor in sensors]), contract=Arrival)

    engine.land(arrivals("a", "b"), lake, clock=clock)
    first = log(lake)
    engine.land(arrivals("a", "b", "c"), lake, clock=lambda: clock() + 5000)
    engine.land(arrivals("a", "b", "c"), lake, clock=lambda: clock() + 9000)
    assert log(lake)[: len(first)] == first
    assert [event for event, *_, kind in log(lake) if kind == 0] == [clock(), clock(), clock() + 5000]


def learned_of(lake: Lake) -> BoundEstimate:
    """What the newest commit says was learned."""
    _, newest = next(history.standing_of(lake.log("readings"), Landing))
    assert newest.state.learned is not None
    return newest.state.learned


@pytest.mark.feature("T13")
@pytest.mark.parametrize("settings", [{}, {"partition_by": "sensor"}, {"granularity": "commit"}], ids=str)
def test_a_landing_measures_the_delays_that_the_stamps_tell(engine, lake, tmp_path, settings) -> None:
    moments = [(17 * n) % 50 + n for n in range(60)]
    for n in range(6):
        lines = (f"{second(m)},{'ab'[m % 2]},{m},1" for m in moments[10 * n : 10 * n + 10])
        csv(tmp_path / "in", f"f{n}.csv", *lines)
    inbox = source(Files(str(tmp_path / "in")), watermark=Learned(0.9, bound="7 s"), files_per_commit=4, **settings)
    assert engine.land(inbox, lake, clock=clock).commits == 2
    stamps = [(event, stamp) for event, stamp, *_, kind in log(lake) if kind == 0]
    delays = [0 if stamp == NEVER else max(stamp + 7001 - event, 0) for event, stamp in stamps]
    assert any(delays)
    found = report(inbox, lake)
    assert found.learned == learned_of(lake)
    assert learned_of(lake).delays == found.delays == Delays.of(np.array(delays))
    assert found.rows == 60


@pytest.mark.feature("T13")
def test_an_accepted_bound_is_recorded_and_the_record_replays_the_log(engine, lake, tmp_path) -> None:
    rows, again = [row(100), row(80), row(130), row(125), row(170), row(200)], Lake(str(tmp_path / "again"))

    def learning(size: int, bound: str) -> Source:
        return source(Rows(rows[:size]), watermark=Learned(0.9, bound=bound))

    for to in (lake, again):
        for size, bound in ((3, "10 s"), (6, "60 s"), (6, "1 s")):
            engine.land(learning(size, bound), to, clock=clock)
    held = ms(130) - 10_001
    first = ms(100) - 10_001
    stamps = [stamp for _, stamp, *_, kind in log(lake) if kind == 0]
    assert stamps == [NEVER, first, first, held, held, held]
    assert learned_of(lake).decisions == (Decision(0, 10_000), Decision(4, 60_000, held))
    rows.append(row(201))
    assert engine.land(learning(7, "1 s"), lake, clock=clock).watermark == ms(201) - 1001
    assert log(lake)[-2][1] == ms(200) - 1001, "a smaller bound moves the watermark before the next row"
    assert log(again) == log(lake)[:-2]
    with pytest.raises(PlanError, match=r"PLAN-010 .*watermark was Learned.* and is BoundedOutOfOrderness"):
        engine.land(source(Rows(rows)), lake, clock=clock)


@pytest.mark.feature("T13")
def test_a_source_with_a_fixed_bound_may_begin_to_learn(engine, lake) -> None:
    rows = [row(100), row(80)]
    engine.land(source(Rows(rows[:1])), lake, clock=clock)
    engine.land(source(Rows(rows), watermark=Learned(bound="10 s")), lake, clock=clock)
    assert log(lake)[2][1] == ms(100) - 10_001
    assert learned_of(lake).delays == Delays.of(np.array([20_000]))
    assert learned_of(lake).decisions == (Decision(0, 10_000),)


@pytest.mark.feature("T13")
def test_rows_that_waited_in_the_quarantine_teach_nothing(engine, lake, tmp_path) -> None:
    class Strict(Reading):
        value: Literal[1]  # type: ignore[assignment]  # narrower on purpose

    folder = tmp_path / "in"
    csv(folder, "a.csv", f"{second(1)},s,2,1", f"{second(100)},s,1,1")
    inbox = source(Files(str(folder)), watermark=Learned(bound="10 s"), contract=Strict)
    engine.land(inbox, lake, clock=clock)
    inbox = source(Files(str(folder)), watermark=Learned(bound="10 s"))
    assert engine.replay(inbox, lake, clock=clock).late == 1
    assert (learned_of(lake).delays.rows, learned_of(lake).delays.largest) == (1, 0)
    assert report(inbox, lake).rows == 2


def test_the_moment_of_landing_is_the_clock_of_the_commit(engine, lake) -> None:
    engine.land(source(Rows([row(1)])), lake, clock=clock)
    assert {to_ms(r._ingest_time) for r in stored(lake.log("readings"))} == {clock()}


def test_a_retry_that_takes_other_files_replaces_what_the_first_try_quarantined(
    engine, lake, tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "in"
    csv(folder, "b.csv", f"{second(1)},b,broken,1", f"{second(2)},b,1,1")
    inbox = source(Files(str(folder)), files_per_commit=1)

    def die(name: str) -> None:
        if name == "landing.before_log":
            raise RuntimeError(name)

    monkeypatch.setattr("floodmark.core.crash.point", die)
    with pytest.raises(RuntimeError, match=r"landing\.before_log"):
        engine.land(inbox, lake, clock=clock)
    monkeypatch.undo()
    csv(folder, "a.csv", f"{second(1)},a,broken too,1")
    assert engine.land(inbox, lake, clock=clock).quarantined == 2
    assert [(r.file, r._landing) for r in stored(lake.quarantine("readings"), "_landing")] == [
        ("a.csv", 0),
        ("b.csv", 1),
    ]


def test_a_large_commit_is_several_files_in_order_with_the_marker_in_the_last(
    engine, lake, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("floodmark.engines.landing.port.ONE_FILE_ROWS", 5)
    for n in range(4):
        csv(tmp_path / "in", f"f{n}.csv", *(f"{second(10 * n + i)},s,{i},1" for i in range(3)))
    engine.land(source(Files(str(tmp_path / "in"))), lake, clock=clock)
    table = DeltaRs(lake.log("readings"))
    files = [pq.read_table(path)["_sequence"].to_pylist() for path in sorted(table.file_uris(), key=os.path.basename)]
    expected = [3, 3, 3, 4] if engine.name == "spark" else [6, 6, 1]
    assert sorted((part[0], len(part)) for part in files) == list(
        zip(np.cumsum([0, *expected[:-1]]).tolist(), expected, strict=True)
    )
    assert all(part == sorted(part) for part in files)
    rows = log(lake)
    assert [(s, k) for *_, s, k in rows] == [*((n, 0) for n in range(12)), (12, 1)]
    moments = [e for e, *_, k in rows if k == 0]
    assert [w for _, w, *_ in rows] == [NEVER, *(m - 10_001 for m in moments)]
