"""The year that arrives file by file: what there is afterwards is the inbox that is written at once."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from demo import feed
from demo.inbox import is_written, write_inbox
from floodmark.connectors.readers.files import FileReader
from floodmark.spec.rows.connector import Files
from operators.flights import Flight


def contents(inbox: Path) -> dict[str, tuple[bytes, int]]:
    paths = sorted(path for path in inbox.rglob("*") if path.is_file() and path.parent != inbox)
    return {str(path.relative_to(inbox)): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_files_arrive_in_order_whole_and_none_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    year, inbox = tmp_path / "year", tmp_path / "inbox"
    write_inbox(year, days=33)
    monkeypatch.setattr(feed, "write_inbox", lambda folder: write_inbox(folder, days=33))
    seen: list[list[str]] = []

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        seen.append(sorted(path.name for path in (inbox / "flights").iterdir()))
        held = [name for name in seen[-1] if name.endswith(".part")]
        assert held, "an end of input would wait for it"
        assert FileReader(Files(str(inbox / "flights")), Flight, "flights").is_unfinished(held[0])

    monkeypatch.setattr(feed.time, "sleep", sleep)
    done = CliRunner().invoke(feed.feed, [str(inbox), "2days/s"])
    assert done.exit_code == 0, done.output
    assert [len(names) for names in seen] == list(range(2, 35))
    assert contents(inbox) == contents(year)
    assert is_written(inbox, days=33)
    monkeypatch.setattr(feed, "is_written", lambda _: True)
    again = CliRunner().invoke(feed.feed, [str(inbox), "2days/s"])
    assert "make clean" in again.output


@pytest.mark.parametrize(("speed", "seconds"), [("1day/s", 1.0), ("6h/s", 4.0), ("2 days / s", 0.5)])
def test_a_speed_is_time_per_second(speed: str, seconds: float) -> None:
    assert feed.pause_seconds(speed) == seconds


@pytest.mark.parametrize("speed", ["1day", "1day/min", "0 s/s"])
def test_what_is_no_speed_is_refused(speed: str) -> None:
    with pytest.raises(click.BadParameter, match="SPEED=1day/s"):
        feed.pause_seconds(speed)
