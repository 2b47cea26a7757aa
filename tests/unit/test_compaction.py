"""Compaction of logs: the same rows in the same order in fewer files, beside landings, killed anywhere."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from events import Event
from numbered_logs import SCHEMA, land, log, rows

from floodmark import Stream, Tumbling, count, operator
from floodmark.core import crash
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.changes import between
from floodmark.lake.table.files import changed_files
from floodmark.lake.table.sequences import in_order
from floodmark.lake.writing.compaction import File, compact, runs_of

SMALL = 12_000
"""Bytes that a file has here once it is compacted."""


def as_read(path: Path) -> Iterator[dict[str, Any]]:
    """The rows in the order in which a stream that begins with the newest version reads its files."""
    files = in_order(DeltaTable(str(path)))
    assert files is not None
    for file in files:
        yield from pq.read_table(path / file.path, partitioning=None).to_pylist()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 6))])
def test_compacting_again_and_again_keeps_rows_and_order(tmp_path: Path, seed: int) -> None:
    draw, path = random.Random(seed), tmp_path / "log"
    last = log(path, draw, 20)
    for more in range(4):
        before, fewer = len(DeltaTable(str(path)).file_uris()), compact(str(path), SMALL * draw.choice([1, 3]))
        assert len(DeltaTable(str(path)).file_uris()) == before - fewer
        land(path, 20 + more, [[last + 1]], modified=10_000 + more)
        last += 1
    assert list(as_read(path)) == rows(range(last + 1)).to_pylist()
    changes = [action for action in commits(path) if not action["dataChange"]]
    assert changes, "something was compacted"


def commits(path: Path) -> Iterator[dict[str, Any]]:
    """What they add and remove."""
    for entry in sorted((path / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            yield from (value for name, value in json.loads(line).items() if name in {"add", "remove"})


def test_each_byte_is_written_a_logarithm_of_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    DeltaTable.create(str(path), SCHEMA)
    for ordinal in range(64):
        land(path, ordinal, [range(30 * ordinal, 30 * ordinal + 30)], modified=1_000 + ordinal)
        compact(str(path))
    sizes = [(action["path"], action["size"]) for action in commits(path) if "stats" in action]
    landed = sum(size for name, size in sizes if not name.startswith("compacted"))
    written = sum(size for name, size in sizes if name.startswith("compacted"))
    assert written < 6 * landed
    assert len(DeltaTable(str(path)).file_uris()) <= 7


class Size(int):
    """Of a file; counts how often one is looked at."""

    looks = 0

    def __radd__(self, other: int) -> int:
        Size.looks += 1
        return other + int(self)

    def __rsub__(self, other: int) -> int:
        Size.looks += 1
        return other - int(self)


def test_planning_looks_at_each_file_a_few_times_however_many_there_are() -> None:
    for sizes in ([1] * 3_000, range(3_000, 0, -1), [2 ** (n % 20) for n in range(3_000)]):
        files = [File(path=str(n), size=Size(size), modified=n) for n, size in enumerate(sizes)]
        Size.looks = 0
        runs = list(runs_of(files, 10_000))
        assert Size.looks <= 3 * len(files)
        assert all(len(run) > 1 and sum(int(one.size) for one in run) <= 10_000 for run in runs)
        assert runs


def test_a_column_that_was_added_is_null_in_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log(path, random.Random(1), 3)
    table = DeltaTable(str(path))
    table.alter.add_columns(Field("more", "string"))
    count = len(list(as_read(path)))
    assert compact(str(path)) > 0
    found = list(as_read(path))
    assert len(found) == count
    assert all(row["more"] is None for row in found)


def test_files_out_of_order_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    DeltaTable.create(str(path), SCHEMA)
    land(path, 0, [[0, 1]], modified=2_000)
    land(path, 1, [[2, 3]], modified=1_000)  # a clock that was set back
    assert in_order(DeltaTable(str(path))) is None
    assert compact(str(path)) == 0


def test_an_empty_log_is_in_order(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "log"), SCHEMA)
    assert in_order(DeltaTable(str(tmp_path / "log"))) == []
    assert compact(str(tmp_path / "log")) == 0


@pytest.mark.parametrize("point", crash.POINTS["compaction"])
def test_killed_anywhere_it_ends_the_same(tmp_path: Path, point: str) -> None:
    path = tmp_path / "log"
    last = log(path, random.Random(2), 12)
    command = f"from floodmark.lake.writing.compaction import compact; compact({str(path)!r}, {SMALL})"
    died = forked.run([sys.executable, "-c", command], env=os.environ | {crash.VARIABLE: f"{point}:2"})
    assert died.returncode == -signal.SIGKILL
    assert list(as_read(path)) == rows(range(last + 1)).to_pylist()
    land(path, 12, [[last + 1]], modified=9_000)
    assert compact(str(path)) > 0
    assert list(as_read(path)) == rows(range(last + 2)).to_pylist()


@operator
def counted(s: Stream[Event]) -> Stream:
    """Reads the log."""
    return s.key_by("key").window(Tumbling("1 minute")).aggregate(n=count())


def test_merged_files_are_no_change_of_an_input(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    path = Path(lake.log("s"))
    last = log(path, random.Random(3), 8)
    before = DeltaTable(str(path)).version()
    assert compact(str(path)) > 0

    def touched(first: int, behind: int) -> bool:
        changes = between(str(path), before, DeltaTable(str(path)).version(), log=True)
        return changes.touch(Interval(start=first * 1_000, end=behind * 1_000))

    assert not touched(0, last + 1)
    for more in range(12):
        first = last + 1 + 30 * more
        land(path, 8 + more, [range(first, first + 30)], modified=9_000 + more)
    assert compact(str(path)) > 0
    assert len(DeltaTable(str(path)).file_uris()) == 1, "a file holds what was there and what came"
    assert not touched(0, last + 1)
    assert touched(last + 1, last + 2)


def test_merged_files_are_no_change_of_an_output_either(tmp_path: Path) -> None:
    path = tmp_path / "log"
    last = log(path, random.Random(4), 4)
    version = DeltaTable(str(path)).version()
    DeltaTable(str(path)).optimize.compact()
    land(path, 4, [[last + 1]], modified=9_000)
    newest = DeltaTable(str(path))
    assert changed_files(str(path), version, version + 1) == {}
    (added,) = changed_files(str(path), version, newest.version()) or ()
    assert added in pa.table(newest.get_add_actions())["path"].to_pylist()
