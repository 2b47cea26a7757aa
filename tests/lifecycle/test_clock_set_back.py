"""The clock of the machine is set back by a year: what was written before is from the future, and nothing is lost, doubled or removed for that."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.engines import upgrading
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.rollback import roll_back

from .test_savepoints import differences, largest, put, totals, values
from .test_strangers import REPLACED, SUMMED, TABLES, added_later

YEAR_NS = 365 * 86_400 * 10**9


class Machine:
    """A machine whose clock goes wrong."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead, self._now, self._patch = 0, time.time_ns, patch

    def set(self, ahead: int) -> None:
        """Let the clock be so many ns ahead of the true time."""
        self._ahead = ahead
        self._patch.setattr(time, "time_ns", lambda: self._now() + self._ahead)
        self._patch.setattr(time, "time", lambda: (self._now() + self._ahead) / 1e9)

    def stamp(self, root: str) -> None:
        """Give all that is new below a folder the times which it has on this machine."""
        for place in (Path(root), *Path(root).rglob("*")):
            with suppress(FileNotFoundError):  # Spark removes old state while nothing runs
                at = place.stat().st_mtime_ns
                if at <= self._now():
                    os.utime(place, ns=(at + self._ahead, at + self._ahead))


@pytest.fixture(scope="module")
def truth(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """What comes of it where the clock is right."""
    lake = Lake(str(tmp_path_factory.mktemp("truth")))
    for until in (60, 90, 120, 150, 180):
        put(lake, until, end=until == 180)
    for one in (totals, largest, added_later, SUMMED):
        embedded.run_unbounded(one, lake, until_caught_up=True)
    return lake


def files(path: str) -> tuple[int, int]:
    """Data files on disk, and those that the newest version has."""
    there = [file for file in Path(path).rglob("*.parquet") if not {"_delta_log", "_floodmark"} & set(file.parts)]
    return len(there), len(DeltaTable(path).file_uris())


@pytest.mark.engines("embedded", soak=("spark",))
@pytest.mark.feature("V1", "V2")
@pytest.mark.timeout(900)
def test_a_clock_that_is_set_back_a_year_changes_no_row(
    engine: Computing, tmp_path: Path, truth: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, machine = Lake(str(tmp_path / "lake")), Machine(monkeypatch)

    def go_on(until: int, *codes: Operator, **options: Any) -> None:
        put(lake, until, end=until == 180)
        for code in codes:
            engine.run_unbounded(code, lake, until_caught_up=True, **options)
        machine.stamp(lake.root)

    def kept_up(hours: int) -> None:
        before = {table: values(lake, table) for table in TABLES}
        maintain(lake, hours=hours)
        assert {table: values(lake, table) for table in TABLES} == before

    machine.set(YEAR_NS)
    go_on(60, totals, largest, files_per_batch=1)
    old, then = (
        create_coordinated_savepoints("totals", lake)[0].manifest.id,
        {table: values(lake, table) for table in TABLES},
    )
    go_on(90, totals, files_per_batch=1)
    kept_up(1)
    machine.stamp(lake.root)

    machine.set(0)
    go_on(120, totals, files_per_batch=1)
    kept_up(0)
    go_on(150, totals, largest, files_per_batch=1)
    young, lately = (
        create_coordinated_savepoints("totals", lake)[0].manifest.id,
        {table: values(lake, table) for table in TABLES},
    )
    kept_up(0)
    go_on(180, totals, largest)
    kept_up(0)
    assert not differences(lake, truth, *TABLES)
    for name, was in ((young, lately), (old, then)):
        roll_back(lake, savepoints.find(lake, name))
        assert {table: values(lake, table) for table in TABLES} == was
        kept_up(0)
        for code in (totals, largest):
            engine.run_unbounded(code, lake, until_caught_up=True)
        assert not differences(lake, truth, *TABLES)
    engine.run_unbounded(added_later, lake, until_caught_up=True)
    assert not differences(lake, truth, "added_later")
    upgrading.rebuild(engine.run_unbounded, REPLACED, lake)
    assert values(lake, "largest") == values(truth, "summed")

    for one in savepoints.savepoints(lake):
        savepoints.delete(one)
    machine.set(2 * YEAR_NS)
    for _ in range(2):
        kept_up(0)
    for table in TABLES:
        there, named = files(lake.output(table))
        assert there == named, "nobody needs any other, now that these are old"
