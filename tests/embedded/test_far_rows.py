"""A row of year 1 or of 9999 among others: a landing and the status say so, what is late because of it, and what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from stored import rows as stored

from floodmark.engines.embedded.landing.run import land, replay
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.table.commits import decode, encode
from floodmark.observe.status import status
from floodmark.spec.rows.connector import Files
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Ascending, BoundedOutOfOrderness, FromColumn, Source
from floodmark.spec.workspace import Settings, Workspace


class Reading(Contract):
    at: EventTime
    sensor: str
    until: datetime | None = None


class Stated(Contract):
    at: EventTime
    sensor: str
    until: datetime


USUAL = [f"2013-03-01T{n // 6:02d}:{n % 6}0:00Z" for n in range(60)]
FAR = "9999-12-31T00:00:00Z"


def none() -> Sail:
    raise AssertionError("no server is needed")


class Inbox:
    """Files of a source, landed one after the other."""

    def __init__(self, lake: Lake, folder: Path, **how: Any) -> None:
        self.lake, self.folder = lake, folder
        folder.mkdir()
        self.source = Source(
            "readings",
            connector=Files(str(folder)),
            **{"contract": Reading, "watermark": Ascending(), "future_limit": None} | how,
        )

    def write(self, *instants: str, sensors: str = "a") -> None:
        lines = [f"{at},{sensors[n % len(sensors)]},{at}\n" for n, at in enumerate(instants)]
        number = len(list(self.folder.iterdir()))
        (self.folder / f"{number}.csv").write_text("at,sensor,until\n" + "".join(lines))

    def land(self, *instants: str, sensors: str = "a", **how: Any) -> LandingResult:
        if instants:
            self.write(*instants, sensors=sensors)
        return land(none, self.source, self.lake, **how)

    def late(self) -> int:
        """Rows that the log has stamped late."""
        path = self.lake.log(self.source.name)
        found = [row for row in stored(path, "_sequence") if row._kind == 0]
        return sum(row._event_time.timestamp() * 1000 <= row._watermark for row in found)

    def warnings(self) -> list[str]:
        (entry,) = status(Workspace(sources=[self.source], settings=Settings(lake=self.lake.root)), self.lake)
        return list(entry.get("warnings", ()))


def said(result: LandingResult) -> list[str]:
    return [some.describe() for some in result.far]


def test_rows_of_year_1_and_of_the_zero_epoch_are_told_once(lake: Lake, tmp_path) -> None:
    inbox = Inbox(lake, tmp_path / "in")
    assert said(inbox.land(*USUAL)) == []
    (text,) = said(inbox.land("2013-03-01T10:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z"))
    assert text == (
        "2 rows, 43 years before all others (the furthest at 0001-01-01T00:00:00Z, first to land: 1.csv row 3): if that is wrong, "
        "`at: EventTime = Field(ge=datetime(2013, 1, 1, tzinfo=UTC))` in Reading sets such rows aside from now on, and "
        "`.filter(\"at >= timestamp '2013-01-01'\")` keeps an operator from those in the log"
    )
    assert said(inbox.land("2013-03-01T11:00:00Z")) == []
    (text,) = said(inbox.land("1970-01-01T00:00:00Z"))
    assert text.startswith("3 rows, 43 years before all others")
    assert inbox.warnings() == []


def test_a_row_of_9999_is_told_with_the_rows_that_are_late_because_of_it_until_status_has_nothing_to_say(
    lake: Lake, tmp_path
) -> None:
    inbox = Inbox(lake, tmp_path / "in")
    (text,) = said(inbox.land(*USUAL, FAR))
    assert text.startswith(
        "1 row, 7,986 years ahead of all others (9999-12-31T00:00:00Z: 0.csv row 62), so that rows with the usual event times are late from now on: "
        'the watermark never goes back. If that is wrong, let Source(..., future_limit="1 day") set such rows aside, and give the source a new name'
    )
    assert inbox.late() == 0
    (text,) = said(inbox.land(*USUAL[:4], FAR, *USUAL[:2]))
    assert text.startswith("6 rows are late because of 2 rows, ")
    assert text.endswith("floodmark run OPERATOR --late-rows all")
    assert inbox.late() == 6
    assert inbox.warnings() == [text]
    assert said(inbox.land()) == []
    inbox.land(end=True)
    assert inbox.warnings() == [text]


@pytest.mark.parametrize("name", ["readings", "again"])
def test_the_remedies_it_names_set_such_rows_aside(lake: Lake, tmp_path, name: str) -> None:
    class Bounded(Contract):
        at: EventTime = Field(ge=datetime(2013, 1, 1, tzinfo=UTC), lt=datetime(2021, 5, 1, tzinfo=UTC))
        sensor: str
        until: datetime | None = None

    inbox = Inbox(lake, tmp_path / "in", watermark=BoundedOutOfOrderness("1 day"))
    (text,) = said(inbox.land(*USUAL, "2021-05-01T07:00:00Z"))
    assert "`at: EventTime = Field(lt=datetime(2021, 5, 1, tzinfo=UTC))` in Reading" in text
    inbox.source = with_(inbox.source, name=name, contract=Bounded)
    done = inbox.land(*USUAL, "0001-01-01T00:00:00Z", "2021-05-01T07:00:00Z")
    assert done.quarantined == (2 if name == "readings" else 3)
    assert (inbox.late() == 0) == (name == "again")


def with_(source: Source, **values: Any) -> Source:
    """A source with other settings."""
    kept = {"contract": source.contract, "connector": source.connector, "watermark": source.watermark}
    return Source(**{"name": source.name, "future_limit": None, **kept, **values})


def test_by_commit_the_rows_of_the_same_commit_are_not_late(lake: Lake, tmp_path) -> None:
    inbox = Inbox(lake, tmp_path / "in", granularity="commit")
    (text,) = said(inbox.land(*USUAL[:3], FAR, *USUAL))
    assert text.startswith("1 row, ")
    (text,) = said(inbox.land(*USUAL))
    assert text.startswith("60 rows are late because of 1 row, ")
    assert inbox.late() == 60


def test_where_partitions_hold_the_watermark_nothing_is_late_and_nothing_is_counted(lake: Lake, tmp_path) -> None:
    inbox = Inbox(lake, tmp_path / "in", partition_by="sensor")
    (text,) = said(inbox.land(*USUAL, FAR, sensors="ab"))
    assert "late" not in text
    assert inbox.warnings() == []
    inbox.land(FAR, FAR, sensors="ab")
    (text,) = inbox.warnings()
    assert "so that rows with the usual event times are late from now on" in text


def test_a_row_that_does_not_move_the_watermark_makes_no_other_late(lake: Lake, tmp_path) -> None:
    inbox = Inbox(lake, tmp_path / "in", watermark=FromColumn("until"), contract=Stated)
    inbox.folder.joinpath("0.csv").write_text(
        "at,sensor,until\n" + "".join(f"{at},a,2013-03-01T00:00:00Z\n" for at in (*USUAL, FAR))
    )
    (text,) = said(inbox.land())
    assert text.startswith("1 row, ") and "late" not in text
    assert inbox.warnings() == []


def test_of_a_log_from_before_the_watermark_stands_for_its_rows(lake: Lake, tmp_path, monkeypatch) -> None:
    inbox = Inbox(lake, tmp_path / "in", watermark=BoundedOutOfOrderness("1 hour"))
    inbox.land(*USUAL)
    written = json.loads(encode(log.newest(lake.log("readings"))))
    del written["landing"]["event_times"]
    before = decode(json.dumps(written), "commit 1")
    monkeypatch.setattr(log, "newest", lambda _: before)
    (text,) = said(inbox.land("1970-01-01T00:00:00Z"))
    assert text.startswith("1 row, 43 years before all others (1970-01-01T00:00:00Z: 1.csv row 2)")


def test_a_row_replayed_from_the_quarantine_is_named_by_its_file(lake: Lake, tmp_path) -> None:
    class Strict(Contract):
        at: EventTime = Field(ge=datetime(2000, 1, 1, tzinfo=UTC))
        sensor: str
        until: datetime | None = None

    inbox = Inbox(lake, tmp_path / "in", contract=Strict)
    assert inbox.land(*USUAL, "1970-01-01T00:00:00Z").quarantined == 1
    inbox.source = with_(inbox.source, contract=Reading)
    assert replay(none, inbox.source, lake).landed == 1
    early = log.newest(lake.log("readings")).event_times[0]
    assert (early.file, early.position, early.rows) == ("0.csv", 62, 1)
