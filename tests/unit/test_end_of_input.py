"""An end of input lands only if nothing is left to land, is being written or has been refused."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from inbox_clock import AGE, HEAD, Clock, no_sail, row, source

from floodmark import Source
from floodmark.connectors.readers.files import FileReader
from floodmark.core.errors import LifecycleError
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.landing.lander import Lander
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the inbox and of the landing."""
    return Clock().put_in(monkeypatch)


@pytest.fixture
def inbox(tmp_path: Path, clock: Clock) -> Path:
    """A folder with two files, an hour old."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number, name in enumerate(("a.csv", "z.csv")):
        clock.append(folder / name, HEAD + row(number))
    clock.advance(3600)
    return folder


@pytest.fixture
def events(inbox: Path) -> Source:
    """The source of the folder."""
    return source(inbox)


def ended(clock: Clock, events: Source, lake: Lake, **how: object) -> LandingResult:
    """Land with the end."""
    return land(no_sail, events, lake, end=True, stop=clock, **how)  # type: ignore[arg-type]


def refused(clock: Clock, events: Source, lake: Lake, **how: object) -> LifecycleError:
    """The error of a landing with the end; the end has not landed."""
    with pytest.raises(LifecycleError) as error:
        ended(clock, events, lake, **how)
    assert error.value.code == "LIFECYCLE-185"
    assert error.value.fix.startswith("The end of input has not landed, all units that are complete have. ")
    assert error.value.fix.endswith("Once the source is complete: floodmark land events --end")
    return error.value


def keys(lake: Lake) -> list[int]:
    """The numbers of the rows in the log, in order."""
    rows = DeltaTable(lake.log("events")).to_pyarrow_dataset().to_table(filter=ds.field("_kind") == 0)
    return sorted(int(key) for key in rows["key"].to_pylist())


def while_opened(monkeypatch: pytest.MonkeyPatch, name: str, happening: object) -> None:
    """Something happens between each look at the folder and the reading of a file."""
    opened = FileReader.open

    def later(self, unit):
        if unit.name == name:
            happening()
        return opened(self, unit)

    monkeypatch.setattr(FileReader, "open", later)


def test_a_source_does_not_end_while_a_file_is_being_written(lake, inbox, events, clock, monkeypatch) -> None:
    with monkeypatch.context() as writer:
        while_opened(writer, "z.csv", lambda: clock.append(inbox / "z.csv", row(2)))
        error = refused(clock, events, lake)
    assert error.got == "1 still being written: z.csv (35 bytes, then 63)"
    clock.advance(AGE)
    result = ended(clock, events, lake)
    assert result.ended
    assert keys(lake) == [0, 1, 2]


def test_a_writer_that_pauses_in_the_middle_of_a_file_holds_the_end(lake, inbox, events, clock) -> None:
    clock.append(inbox / "z.csv", row(2))
    clock.at(3, lambda: clock.append(inbox / "z.csv", row(3)))
    assert refused(clock, events, lake).got == "1 still being written: z.csv (63 bytes, then 91)"
    assert keys(lake) == [0]
    assert ended(clock, events, lake).ended
    assert keys(lake) == [0, 1, 2, 3]


def test_an_end_waits_for_a_file_that_is_being_written_as_long_as_it_should(lake, inbox, events, clock) -> None:
    for second in range(0, 30, 4):
        clock.at(second, lambda second=second: clock.append(inbox / "z.csv", row(second)))
    clock.advance(0)
    began = clock.now
    assert ended(clock, events, lake, wait_seconds=60).ended
    assert keys(lake) == sorted([0, 1, *range(0, 30, 4)])
    assert 28 + AGE <= (clock.now - began) / 1e9 <= 29 + AGE


def test_an_end_waits_for_files_that_have_just_landed_to_stay_as_they_are(lake, inbox, events, clock) -> None:
    clock.append(inbox / "z.csv", row(2))
    assert land(no_sail, events, lake).rows == 3
    clock.at(3, lambda: clock.append(inbox / "z.csv", row(3)))
    assert refused(clock, events, lake).got == "1 changed after landing: z.csv"


def test_a_changed_file_that_had_landed_holds_the_end_until_its_rows_have_another_file(
    lake, inbox, events, clock
) -> None:
    assert land(no_sail, events, lake).rows == 2
    clock.append(inbox / "z.csv", row(2))
    clock.advance(AGE)
    for _ in range(2):
        error = refused(clock, events, lake)
        assert error.got == "1 changed after landing: z.csv"
        assert "Land what is new of a changed file under a new name" in error.fix
    clock.append(inbox / "z2.csv", HEAD + row(2))
    (inbox / "z.csv").unlink()
    assert ended(clock, events, lake).ended
    assert keys(lake) == [0, 1, 2]


def test_an_unreadable_file_holds_the_end_until_it_is_replaced_or_gone(lake, inbox, events, clock) -> None:
    whole = gzip.compress((HEAD + "".join(map(row, range(1000, 2000)))).encode())
    for name in ("b.csv.gz", "c.csv.gz"):
        (inbox / name).write_bytes(whole[: len(whole) // 2])
        os.utime(inbox / name, ns=(clock.now, clock.now))
    for _ in range(2):
        error = refused(clock, events, lake)
        assert error.got == "2 not readable to its end: b.csv.gz, c.csv.gz"
        assert "floodmark quarantine show events" in error.fix
    (inbox / "b.csv.gz").write_bytes(whole)
    os.utime(inbox / "b.csv.gz", ns=(clock.now, clock.now))
    (inbox / "c.csv.gz").unlink()
    assert ended(clock, events, lake).ended
    assert len(keys(lake)) == 1002


@pytest.mark.parametrize("name", ["b.csv.part", "b.csv.tmp", "b.csv.inprogress"])
def test_a_file_that_is_unfinished_by_its_name_holds_the_end(lake, inbox, events, clock, name) -> None:
    clock.append(inbox / name, HEAD + row(2))
    clock.advance(3600)
    assert refused(clock, events, lake).got == f"1 unfinished by its name: {name}"
    (inbox / name).rename(inbox / "b.csv")
    assert ended(clock, events, lake).ended
    assert keys(lake) == [0, 1, 2]


def test_a_hidden_copy_in_progress_holds_the_end(lake, inbox, events, clock) -> None:
    draft = inbox / ".b.csv.Xy12ab"
    clock.append(draft, HEAD + row(2))
    clock.at(2, lambda: draft.rename(inbox / "b.csv"))
    assert ended(clock, events, lake).ended
    assert keys(lake) == [0, 1, 2]


def test_other_files_of_the_folder_do_not_hold_the_end(lake, inbox, events, clock) -> None:
    for name in ("notes.txt", "a.csv.crc", ".gitkeep", "x.parquet.d.part"):
        clock.append(inbox / name, "x")
    began = clock.now
    assert ended(clock, events, lake).ended
    assert clock.now - began < 1e9


def test_a_source_does_not_end_where_the_limit_of_commits_leaves_files(lake, events, clock) -> None:
    assert refused(clock, events, lake, max_commits=1).got == "1 left by the limit of commits: z.csv"
    result = ended(clock, events, lake, max_commits=1)
    assert result.ended
    assert result.rows == 1


def test_a_file_that_appears_after_the_last_look_lands_before_the_end(lake, inbox, events, clock, monkeypatch) -> None:
    pending, units_seen = FileReader.pending, []

    def looked(self, landed, positions):
        units = pending(self, landed, positions)
        units_seen.append(len(units[0]))
        if units_seen == [2, 0]:
            clock.append(inbox / "b.csv", HEAD + row(2))
        return units

    monkeypatch.setattr(FileReader, "pending", looked)
    result = ended(clock, events, lake)
    assert result.ended
    assert keys(lake) == [0, 1, 2]


def test_an_end_behind_which_a_file_came_in_is_taken_back(lake, inbox, events, clock, monkeypatch) -> None:
    end, ends = Lander.end, []

    def late(self):
        if not ends:
            clock.append(inbox / "b.csv", HEAD + row(2))
        ends.append(end(self))
        return ends[-1]

    monkeypatch.setattr(Lander, "end", late)
    result = ended(clock, events, lake)
    assert result.ended
    assert len(ends) == 2
    assert keys(lake) == [0, 1, 2]


def test_an_end_that_cannot_be_taken_back_says_so(lake, inbox, events, clock, monkeypatch) -> None:
    end = Lander.end

    def late(self):
        clock.append(inbox / "b.csv", HEAD + row(2))
        return end(self)

    def read(_):
        raise LifecycleError(
            "source 'events'", "an end that no stream has read", "stream 'x'", "Roll back.", code="LIFECYCLE-013"
        )

    monkeypatch.setattr(Lander, "end", late)
    monkeypatch.setattr(Lander, "reopen", read)
    with pytest.raises(LifecycleError) as error:
        ended(clock, events, lake)
    assert error.value.code == "LIFECYCLE-186"
    assert "b.csv" in error.value.got
    assert "stream 'x'" in error.value.got
    assert error.value.fix.endswith("Roll back. Then: floodmark land events --reopen --end")
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-011 .*1 more to land: b\.csv"):
        land(no_sail, events, lake)


def test_a_file_lands_once_it_is_as_old_as_declared(lake, inbox, clock) -> None:
    events = source(inbox, min_age="1 minute")
    clock.append(inbox / "z.csv", row(2))
    result = land(no_sail, events, lake)
    assert result.rows == 1
    assert result.waiting == {"z.csv": "younger than its min_age (unchanged for 0.0 s, lands after 1 minute)"}
    clock.advance(60)
    assert land(no_sail, events, lake).rows == 2


def test_a_file_of_the_future_lands_once_two_looks_find_it_unchanged(lake, inbox, events, clock) -> None:
    future = clock.now + 10**15
    os.utime(inbox / "z.csv", ns=(future, future))
    began = clock.now
    assert ended(clock, events, lake).ended
    assert AGE <= (clock.now - began) / 1e9 <= AGE + 1
    assert keys(lake) == [0, 1]


def test_files_that_appear_whole_need_no_wait(lake, inbox, clock) -> None:
    clock.append(inbox / "z.csv", row(2))
    began = clock.now
    assert ended(clock, source(inbox, min_age="0 s"), lake).ended
    assert clock.now == began


def test_a_file_that_its_reader_does_not_see_is_not_said_to_be_written(lake, inbox, events, clock, monkeypatch) -> None:
    def elsewhere(self, unit):
        raise FileNotFoundError(2, "No such file", f"/elsewhere/{unit.name}")

    monkeypatch.setattr(FileReader, "open", elsewhere)
    got = refused(clock, events, lake).got
    assert got.startswith("2 listed, but not there for the process that reads it: a.csv (")
    assert "/elsewhere/z.csv" in got


def test_a_file_of_which_other_bytes_are_read_than_listed_is_not_said_to_be_written(
    lake, inbox, events, clock, monkeypatch
) -> None:
    listed = FileReader.listed
    monkeypatch.setattr(FileReader, "listed", lambda self: ((n, s - 1, m) for n, s, m in listed(self)))
    look = FileReader.look

    def cached(self, name):
        unit = look(self, name)
        return type(unit)(name=unit.name, size=unit.size - 1, modified=unit.modified)

    monkeypatch.setattr(FileReader, "look", cached)
    got = refused(clock, events, lake).got
    assert got.startswith("2 of another size when it is read: a.csv (34 bytes in two listings, 35 read: ")


def test_a_file_that_is_gone_when_it_is_read_does_not_hold_the_end(lake, inbox, events, clock, monkeypatch) -> None:
    while_opened(monkeypatch, "z.csv", lambda: (inbox / "z.csv").unlink(missing_ok=True))
    result = ended(clock, events, lake)
    assert result.ended
    assert keys(lake) == [0]
