"""An end of input lands only if nothing is left to land."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source
from floodmark.connectors.files import FileReader
from floodmark.core.errors import LifecycleError
from floodmark.engines.embedded.landing.run import land
from floodmark.lake.folder.paths import Lake

ROW = "2020-01-01T00:00:00Z,a\n"


class Event(Contract):
    """Something that happened."""

    at: EventTime
    key: str


def no_sail() -> None:
    """Landing needs no server."""
    raise AssertionError


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """A folder with two files."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    for name in ("a.csv", "z.csv"):
        (folder / name).write_text(f"at,key\n{ROW}")
    return folder


@pytest.fixture
def events(inbox: Path) -> Source:
    """The source of the folder, one file per commit."""
    return Source(
        "events",
        contract=Event,
        connector=Files(str(inbox)),
        watermark=BoundedOutOfOrderness("1 minute"),
        files_per_commit=1,
    )


def growing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends a row to the file between each look at the folder and the reading of the file."""
    opened = FileReader.open

    def appended(self, unit):
        if unit.name == path.name:
            with path.open("a") as file:
                file.write(ROW)
        return opened(self, unit)

    monkeypatch.setattr(FileReader, "open", appended)


def test_a_source_does_not_end_while_a_file_is_being_written(lake: Lake, inbox, events, monkeypatch) -> None:
    with monkeypatch.context() as writer:
        growing(inbox / "z.csv", writer)
        with pytest.raises(LifecycleError) as refused:
            land(no_sail, events, lake, end=True)
    error = refused.value
    assert (error.code, error.where, error.got) == ("LIFECYCLE-185", "source 'events'", "1 still being written: z.csv")
    assert error.fix.endswith("Once the source is complete: floodmark land events --end")
    result = land(no_sail, events, lake, end=True)
    assert result.ended
    assert (result.units, result.rows) == (1, 2)


def test_a_source_does_not_end_where_the_limit_of_commits_leaves_files(lake: Lake, events) -> None:
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-185 .*1 left by the limit of commits: z\.csv"):
        land(no_sail, events, lake, end=True, max_commits=1)
    result = land(no_sail, events, lake, end=True, max_commits=1)
    assert result.ended
    assert result.rows == 1


def test_a_file_that_appears_after_the_last_look_lands_before_the_end(lake: Lake, inbox, events, monkeypatch) -> None:
    pending, looks = FileReader.pending, []

    def looked(self, landed):
        units = pending(self, landed)
        looks.append(len(units[0]))
        if looks == [2, 0]:
            (inbox / "b.csv").write_text(f"at,key\n{ROW}")
        return units

    monkeypatch.setattr(FileReader, "pending", looked)
    result = land(no_sail, events, lake, end=True)
    assert looks == [2, 0, 1, 1, 0, 0]
    assert result.ended
    assert result.rows == 3
