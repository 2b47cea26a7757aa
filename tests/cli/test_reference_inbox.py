"""The workspace of a clone reads what `floodmark up` and `floodmark demo` have written; other workspaces are left alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from floodmark import Settings, Workspace
from floodmark.cli import demo
from floodmark.cli.console import Console
from floodmark.cli.loading import Opened
from floodmark.demo import inbox


def opened(root: Path, folder: Path) -> Opened:
    workspace = Workspace(settings=Settings(lake=str(root / "lake"), folder=str(folder)))
    return Opened(root=root, workspace=workspace, lake=str(root / "lake"), logs=None)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that floodmark takes for its clone."""
    (tmp_path / "clone" / "operators").mkdir(parents=True)
    (tmp_path / "clone" / "operators" / "flights.py").touch()
    monkeypatch.setattr(demo, "_CLONE", tmp_path / "clone")
    return tmp_path / "clone"


def test_the_inbox_is_written_once_where_the_workspace_reads(clone: Path, monkeypatch: pytest.MonkeyPatch):
    calls, year = list[Path](), inbox._read_flights

    def two_days(data: Path) -> pd.DataFrame:
        calls.append(data)
        flights = year(data)
        return flights[flights.known_day < "2013-01-03"]

    monkeypatch.setattr(inbox, "_read_flights", two_days)
    for _ in range(2):
        demo.prepare_inbox(opened(clone, clone), Console(as_json=True))
    assert len(calls) == 1
    assert [file.name for file in sorted((clone / "inbox" / "flights").iterdir())] == [
        "known_2013-01-01.csv.gz",
        "known_2013-01-02.csv.gz",
    ]
    assert [file.name for file in (clone / "inbox" / "weather").iterdir()] == ["weather_2013-01.csv"]


def test_a_workspace_of_a_users_own_and_another_input_folder_are_left_alone(clone: Path, tmp_path: Path):
    (tmp_path / "shop").mkdir()
    demo.prepare_inbox(opened(tmp_path / "shop", tmp_path / "shop"), Console(as_json=True))
    demo.prepare_inbox(opened(clone, tmp_path / "shop"), Console(as_json=True))
    assert list((tmp_path / "shop").iterdir()) == []
    assert not (clone / "inbox").exists()
