"""Upkeep: tables get small and clean, and whatever a savepoint or a stream needs is still there."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from floodmark import Stream, Tumbling, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import MaintenanceResult, maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints
from floodmark.lake.restore.rollback import roll_back

from .test_savepoints import differences, largest, put, totals, values


@operator(inputs={"totals": totals})
def added_later(totals: Stream) -> Stream:
    """A reader that begins when the table was cleaned."""
    return totals.window(Tumbling("1 hour")).aggregate(all=sum("total"))


def files(lake: Lake, table: str) -> int:
    """On disk."""
    return len([path for path in Path(lake.output(table)).rglob("*.parquet") if "_delta_log" not in path.parts])


def needed(lake: Lake, table: str, since: int) -> set[str]:
    """Files of every version from one on."""
    path = lake.output(table)
    return {f for v in range(since, DeltaTable(path).version() + 1) for f in DeltaTable(path, version=v).file_uris()}


def named(found: list[MaintenanceResult], table: str) -> MaintenanceResult:
    return next(one for one in found if one.table == table)


@pytest.mark.feature("V1", "V2")
def test_tables_are_compacted_and_what_savepoints_and_streams_need_stays(engine: Computing, tmp_path: Path) -> None:
    lake, truth = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "truth"))
    for until in (60, 90, 120, 180):
        put(truth, until, end=until == 180)
    for one in (totals, largest, added_later):
        engine.run_unbounded(one, truth, until_caught_up=True)

    for until in (60, 90):
        put(lake, until)
        for one in (totals, largest):
            engine.run_unbounded(one, lake, until_caught_up=True)
    name = create_coordinated_savepoints("totals", lake)[0].manifest.id
    then = values(lake, "totals")
    put(lake, 120)
    engine.run_unbounded(totals, lake, until_caught_up=True)  # 'largest' has yet to read that

    would = named(maintain(lake, hours=0, dry_run=True), "totals")
    assert would.before > 2
    found = maintain(lake, hours=0)
    assert {one.table for one in found} == {
        "logs/left",
        "logs/right",
        "totals",
        "totals__late",
        "totals__current",
        "largest",
    }
    log = named(found, "logs/left")
    assert (log.before, log.after) == (3, 1)
    kept = named(found, "totals")
    assert kept.after < kept.before
    version = savepoints.find(lake, name).manifest.outputs[0].version
    assert version in kept.versions
    small = needed(lake, "totals", version)
    assert len(small) > kept.after
    assert all(Path(file).is_file() for file in small), "a savepoint and a stream that is behind need the small ones"
    engine.run_unbounded(largest, lake, until_caught_up=True)
    assert roll_back(lake, savepoints.find(lake, name)).undone
    assert values(lake, "totals") == then

    for one in savepoints.savepoints(lake):
        savepoints.delete(one)
    put(lake, 180, end=True)
    for one in (totals, largest):
        engine.run_unbounded(one, lake, until_caught_up=True)
    for _ in range(2):  # what was replaced a moment ago is left for the next one
        maintain(lake, hours=0)
    for table in ("totals", "totals__current"):
        assert files(lake, table) == len(DeltaTable(lake.output(table)).file_uris()), "nobody needs any other"
    assert engine.run_unbounded(totals, lake, until_caught_up=True).rows["totals"] == 0
    engine.run_unbounded(added_later, lake, until_caught_up=True)
    assert not differences(lake, truth, "totals", "totals__late", "largest", "added_later")
    again = Lake(str(tmp_path / "again"), logs=lake.root)  # from the first commit of a log whose files were replaced
    engine.run_unbounded(totals, again, until_caught_up=True)
    assert not differences(again, truth, "totals", "totals__late")
