"""Upkeep of a whole lake is killed with SIGKILL between any two of its writes; the next one ends it, and nobody misses a file. No JVM starts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import forked
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from small_lake import CHANGELOG, CURRENT, batch, make, row, totals

from floodmark.control.processes.upkeep import keep_up
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import quarantines
from floodmark.lake.maintenance.removal import GOING
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.results import tables
from floodmark.lake.table.files import Written
from floodmark.lake.writing import writer
from floodmark.spec.values.schema import MARKER

POINTS = [
    pytest.param(point, marks=() if point == crash.POINTS[kind][-1] else pytest.mark.soak)
    for kind in ("compaction", "markers", "vacuum", "expiry", "removal")
    for point in crash.POINTS[kind]
]
"""The last one of each kind of upkeep, behind most of its writes; ``make soak`` tries the others."""
PROGRAM = (
    "import sys; from floodmark.control.processes.upkeep import keep_up; from floodmark.lake.folder.paths import Lake; "
    "keep_up([Lake(sys.argv[1])], hours=0, days=0)"
)

REFUSED = """
import resource, sys
from floodmark.control.processes.upkeep import keep_up
from floodmark.core import machine
from floodmark.lake.folder.paths import Lake
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    keep_up([Lake(sys.argv[1])], hours=0, days=0)
except Exception as error:
    refusal = machine.refused(error, "upkeep")
    sys.exit(52 if refusal is not None and refusal.code == "SETUP-052" else repr(error))
"""
"""A disk that takes no file larger than so many bytes."""


def aged(root: Path) -> tuple[Lake, savepoints.Savepoint]:
    """A lake with an ended timeline, a savepoint, a log in order that nobody reads, and what was replaced."""
    lake = make(root)
    roll_back(lake, savepoints.create("totals", lake))
    made = savepoints.savepoints(lake)[0]
    for number in range(2, 5):
        batch(lake, number, [row("a", number, 10 + number)])
    for number in range(5):
        write_deltalake(lake.log("more"), pa.table({"_sequence": [number]}), mode="append")
        time.sleep(0.002)
    path = lake.quarantine("more")
    tables.create(path, quarantines.table_schema(), (), {})
    for number in range(5):
        quarantines.append(writer.Writer(path), partial(_broken, path, number), "more", number)
    return lake, made


def _broken(path: str, number: int) -> Written:
    folder = Path(path, str(number))
    folder.mkdir()
    row = dict.fromkeys(quarantines.COLUMNS.names) | {"file": "a.csv", "position": number, "_landing": number}
    pq.write_table(pa.Table.from_pylist([row], schema=quarantines.COLUMNS), folder / "part.parquet")
    return Written(folder=folder)


def rows(lake: Lake) -> list[tuple[list[str], int | None]]:
    """Of every table, and how far time has come in it by rows and markers."""
    paths = [
        lake.log("events"),
        lake.log("more"),
        lake.quarantine("more"),
        lake.output(CHANGELOG),
        lake.output(CURRENT),
    ]
    found = []
    for path in paths:
        table = DeltaTable(path).to_pyarrow_table()
        stamped = "_kind" in table.column_names
        own = table.filter(pc.field("_kind") != MARKER) if stamped else table
        progress = pc.max(table["_progress"]).as_py() if stamped else None
        found.append((sorted(map(str, own.to_pylist())), progress))
    return found


@pytest.mark.parametrize("time_of", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("point", POINTS)
def test_upkeep_is_killed_and_the_next_one_ends_it(tmp_path: Path, point: str, time_of: int) -> None:
    lake, made = aged(tmp_path)
    before, then = rows(lake), made.manifest
    status = killed(lake, f"{point}:{time_of}")
    assert status == -signal.SIGKILL or (time_of == 2 and not status), f"{point} was never reached"
    assert rows(lake) == before
    check(lake, made, before)
    roll_back(lake, savepoints.find(lake, then.id))
    assert totals(lake) == {"a": 10, "b": 2}


@pytest.mark.parametrize(
    "point",
    [
        "vacuum.after_file",
        *(pytest.param(point, marks=pytest.mark.soak) for point in ("compaction.before_commit", "expiry.after_file")),
    ],
)
def test_of_two_upkeeps_at_once_one_waits_though_the_other_is_killed(tmp_path: Path, point: str) -> None:
    lake, made = aged(tmp_path)
    before, ends = rows(lake), list[int]()
    first = threading.Thread(target=lambda: ends.append(killed(lake, point)))
    first.start()
    holder = Path(lake.internal("actions", "files", "lock.holder"))
    while first.is_alive() and not holder.exists():
        first.join(0.001)
    keep_up([lake], hours=0, days=0)
    first.join()
    assert ends == [-signal.SIGKILL], f"{point} was never reached"
    assert rows(lake) == before
    check(lake, made, before)


@pytest.mark.parametrize(
    "most", [0, 1_000, *(pytest.param(most, marks=pytest.mark.soak) for most in (500, 2_000, 3_000))]
)
def test_upkeep_that_the_disk_refuses_in_the_middle_leaves_all_as_it_was(tmp_path: Path, most: int) -> None:
    lake, made = aged(tmp_path)
    before = rows(lake)
    assert forked.run([sys.executable, "-c", REFUSED, lake.root, str(most)]).returncode == 52
    assert rows(lake) == before
    check(lake, made, before)


def killed(lake: Lake, at: str) -> int:
    """Upkeep in a process of its own, killed at a point: its exit status."""
    environment = {**os.environ, crash.VARIABLE: at}
    return forked.run([sys.executable, "-c", PROGRAM, lake.root], env=environment).returncode


def check(lake: Lake, made: savepoints.Savepoint, before: list[tuple[list[str], int | None]]) -> None:
    """Upkeep ends what a killed one began: the rows are what they were before, and no file is left over or missing."""
    for _ in range(2):
        time.sleep(0.002)
        keep_up([lake], hours=0, days=0)
    assert rows(lake) == before
    for path in (lake.log("more"), lake.quarantine("more")):
        there = [file for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts]
        assert len(there) == len(DeltaTable(path).file_uris()) == 1
    assert not list(Path(lake.root).rglob(f"*{GOING}"))
    assert not savepoints.verify(made)
