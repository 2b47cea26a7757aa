"""Fixtures of runs of Dagster's on four days of flights."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from browser import chromium
from dagster_runs import Dagster, flights_workspace

from definitions import workspace
from floodmark import Workspace
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import build_definitions

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a real Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture
def dagster_of() -> Iterator[Callable[[Workspace, Path], Dagster]]:
    """Dagster for a workspace whose relative paths start at a folder."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield lambda one, root: Dagster(build_definitions(one, root=root), instance)


@pytest.fixture(scope="session")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of flights, and their weather, where the workspace looks for them: ``inbox/flights``.

    The fourth is a bad day: 70 departures too many in one hour.
    """
    from demo.inbox import write_inbox

    folder = tmp_path_factory.mktemp("place") / "inbox"
    write_inbox(folder, days=4)
    planted = [f"2013-01-04T16:30:00Z,2013-01-04 10:0{n % 6},EWR,BOS,ZZ,{n},N1ZZ,5,5,40,200" for n in range(70)]
    with gzip.open(sorted((folder / "flights").iterdir())[-1], "at") as file:
        file.write("\n".join(planted) + "\n")
    return folder


@pytest.fixture(scope="session")
def landed_log(embedded: Computing, inbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with the four days and their end, and nothing else; read as ``logs``, never written."""
    lake = Lake(str(tmp_path_factory.mktemp("landed")))
    for source in workspace().sources:
        embedded.land(source, lake, end=True, workspace=inbox.parent)
    return lake


@pytest.fixture
def flights_lake(landed_log: Lake, tmp_path: Path) -> Lake:
    """A lake of the test's own with the landed logs in it."""
    shutil.copytree(Path(landed_log.root), tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def flights(
    engine: Computing, flights_lake: Lake, inbox: Path, dagster_of: Callable[[Workspace, Path], Dagster]
) -> Dagster:
    """Dagster on the test's own lake."""
    return dagster_of(flights_workspace(engine, inbox, flights_lake), inbox.parent)
