"""Quarantine: what broke its contract, and landing it once the contract takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stored import rows as stored

from floodmark.core.errors import LifecycleError
from floodmark.engines.landing import quarantine
from floodmark.spec.rows.connector import Files, Rows
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import BoundedOutOfOrderness, Source

if TYPE_CHECKING:
    from pathlib import Path


class Strict(Contract):
    at: EventTime
    value: int
    note: str | None


class Lenient(Contract):
    at: EventTime
    value: float  # type: ignore[assignment]  # not a subclass


class Mended(Contract):
    at: EventTime
    value: int | None
    note: str | None


def clock() -> int:
    return 1_000_000_000_000


def source(connector: object, contract: type[Contract] = Strict) -> Source:
    return Source("readings", contract=contract, connector=connector, watermark=BoundedOutOfOrderness("10 s"))  # type: ignore[arg-type]


def inbox(tmp_path: Path) -> Files:
    (tmp_path / "in").mkdir()
    lines = [
        "at,value,note",
        '2001-01-01T00:00:01,NA,"a, b"',
        "2001-01-01T00:01:00,5,x",
        "2001-01-01T00:02:00,,y",
        "never,6,z",
    ]
    (tmp_path / "in" / "a.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "in" / "b.csv.gz").write_bytes(b"\x1f\x8b\x08\x00cut")
    return Files(str(tmp_path / "in"))


def table(lake):
    return stored(lake.quarantine("readings"), "file", "position")


def test_an_empty_quarantine_is_empty(lake) -> None:
    assert quarantine.show("readings", lake).rows == 0


def test_show_counts_by_reason_without_the_values_found(engine, lake, tmp_path) -> None:
    engine.land(source(inbox(tmp_path)), lake, clock=clock)
    found = quarantine.show("readings", lake, limit=2)
    assert found.rows == 4
    assert found.by_reason[0] == ("value: expected a valid integer", 2)
    assert [(entry.file, entry.position) for entry in found.newest] == [("a.csv", 2), ("a.csv", 4)]


def test_replay_lands_what_the_contract_takes_now_once(engine, lake, tmp_path) -> None:
    files = inbox(tmp_path)
    engine.land(source(files), lake, clock=clock)
    # the log's columns are what they were: only the code's idea of a broken row has changed
    done = engine.replay(source(files, Mended), lake, clock=clock)
    assert (done.landed, done.still_broken, done.not_replayable, done.late, done.ordinal) == (2, 1, 1, 1, 1)
    rows = stored(lake.log("readings"), "_sequence")
    assert [(r.note, r._kind) for r in rows] == [("x", 0), (None, 1), ("a, b", 0), ("y", 0), (None, 1)]
    assert [r._sequence for r in rows] == list(range(5))
    assert rows[2]._watermark == rows[1]._progress
    assert rows[4]._progress > rows[3]._progress
    assert [r._replayed for r in table(lake)] == [1, 1, None, None]
    again = engine.replay(source(files, Mended), lake, clock=clock)
    assert (again.landed, again.still_broken, again.ordinal) == (0, 1, None)
    assert quarantine.show("readings", lake).rows == 2


def test_what_stays_broken_gets_the_reason_of_today(engine, lake) -> None:
    class Words(Contract):
        at: EventTime
        value: int
        note: str

    rows = [{"at": "2001-01-01T00:00:01", "value": "x", "note": "n"}, {"at": "2001-01-01T00:00:02", "value": 1}]
    engine.land(source(Rows(rows), Words), lake, clock=clock)
    assert [r.reason for r in table(lake)] == [
        "value: expected a valid integer, got 'x'",
        "note: expected a value, got nothing",
    ]

    class Fewer(Words):
        note: str | None = None  # type: ignore[assignment]  # wider on purpose
        value: int

    done = engine.replay(source(Rows(rows), Fewer), lake, clock=clock)
    assert (done.landed, done.still_broken) == (1, 1)
    assert engine.land(source(Rows(rows), Fewer), lake, clock=clock).commits == 0


def test_marks_of_a_replay_that_never_landed_are_taken_back(engine, lake, tmp_path, monkeypatch) -> None:
    files = inbox(tmp_path)
    engine.land(source(files), lake, clock=clock)

    def die(name: str) -> None:
        if name == "replay.before_log":
            raise RuntimeError(name)

    monkeypatch.setattr("floodmark.core.crash.point", die)
    with pytest.raises(RuntimeError, match=r"replay\.before_log"):
        engine.replay(source(files, Mended), lake, clock=clock)
    monkeypatch.undo()
    assert quarantine.show("readings", lake).rows == 2
    assert engine.replay(source(files, Mended), lake, clock=clock).landed == 2
    assert [r._replayed for r in table(lake)] == [1, 1, None, None]
    assert [r.at.minute for r in stored(lake.log("readings"), "_sequence") if r._kind == 0] == [1, 0, 2]


def test_replay_into_an_ended_source_is_refused(engine, lake, tmp_path) -> None:
    files = inbox(tmp_path)
    engine.land(source(files), lake, clock=clock)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-185 .*1 not readable to its end: b\.csv\.gz"):
        engine.land(source(files), lake, clock=clock, end=True)
    (tmp_path / "in" / "b.csv.gz").unlink()
    engine.land(source(files), lake, clock=clock, end=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-011"):
        engine.replay(source(files, Mended), lake, clock=clock)
