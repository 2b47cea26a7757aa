"""A new version counts once it gets on, or has read all there is; upkeep of what it reads adds nothing to read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from small_fleet import fleet_of
from small_lake import LOG, TOTALS, make

from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.verification import Verification, verify
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.results.verdicts import HELD

AT_ONCE = Verification(patience=0, soak=0)


@pytest.fixture
def restarted(tmp_path: Path) -> tuple[Fleet, Savepoint]:
    """A stream whose new version runs, and has committed nothing; the savepoint before it."""
    made = savepoints.create("totals", make(tmp_path / "lake"))
    fleet = fleet_of(tmp_path)
    fleet.deploy("totals", "p", TOTALS.version, "running")
    driver = fleet.store.begin(fleet.deployments(["totals"])["totals"], "logs")
    fleet.store.update(driver.id, state="running")
    return fleet, made


def verdict(fleet: Fleet, made: Savepoint) -> str | None:
    return verify(fleet, "totals", TOTALS.version, made, AT_ONCE, lambda: None)


def test_a_version_has_read_all_there_is_though_upkeep_has_merged_files_since(
    restarted: tuple[Fleet, Savepoint],
) -> None:
    fleet, made = restarted
    assert verdict(fleet, made) is None
    log = DeltaTable(fleet.lake.log(LOG))
    before = log.version()
    assert log.optimize.compact()["numFilesAdded"] == 1
    assert DeltaTable(fleet.lake.log(LOG)).version() > before
    assert verdict(fleet, made) is None


def test_a_version_that_leaves_rows_unread_does_not_count(restarted: tuple[Fleet, Savepoint]) -> None:
    fleet, made = restarted
    DeltaTable(fleet.lake.log(LOG)).optimize.compact()
    write_deltalake(fleet.lake.log(LOG), pa.table({"value": [2]}), mode="append")
    assert verdict(fleet, made) == "no micro-batch of it within 0 s"
    driver = fleet.driver("totals")
    assert driver is not None
    fleet.store.update(driver.id, reason=f"{HELD}partition 2020-01-01 of 'hourly', which is not complete yet")
    assert verdict(fleet, made) is None, "a strict gate holds it: there is nothing that it may read"


def test_what_an_earlier_driver_did_does_not_count(restarted: tuple[Fleet, Savepoint]) -> None:
    fleet, made = restarted
    driver = fleet.driver("totals")
    assert driver is not None
    fleet.store.update(driver.id, started_at=driver.started_at - 60)
    assert verdict(fleet, made) == "no micro-batch of it within 0 s"
    fleet.store.update(driver.id, started_at=driver.started_at)
    fleet.store.end(driver.id, "crashed", "no memory")
    assert verdict(fleet, made) == "it crashed: no memory"
