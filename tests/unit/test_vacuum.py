"""Files of a table go when nobody can need them: not the newest version, no savepoint, and no reader, however far behind. No JVM starts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from small_lake import CHANGELOG, CURRENT, LATE, batch, make, row, totals

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.expiry import expire
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.maintenance.vacuum import vacuum
from floodmark.lake.restore import readers, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.readers import needs, unchanged_until
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.versions import hold, put_back
from floodmark.lake.stream.timeline import Timeline, inputs_at
from floodmark.lake.table import entries, history
from floodmark.lake.writing.compaction import compact, of_output
from floodmark.lifecycle.savepoint import TableVersion


def entry_file(path: str, version: int) -> Path:
    return Path(path, entries.LOG, entries.entry_of(version))


@dataclass
class Reader:
    """Reads a table as a Delta stream does: each file that a commit behind its position has added, in order of commits."""

    path: str
    version: int = -1
    seen: list[int] = field(default_factory=list)

    def step(self, until: int) -> None:
        for version in range(self.version + 1, until + 1):
            lines = entry_file(self.path, version).read_text().splitlines()
            for add in [action["add"] for line in lines if "add" in (action := json.loads(line))]:
                if add["dataChange"]:
                    self.seen += pq.read_table(f"{self.path}/{unquote(add['path'])}")["n"].to_pylist()
            self.version = version

    @property
    def read(self) -> TableVersion:
        return TableVersion(table="t", id="", version=self.version)


class Table:
    """A table that is appended to, compacted and cleaned, with readers and savepoints."""

    def __init__(self, root: Path, seed: int, *, divided: bool) -> None:
        self.path, self.seen_at, self.random = str(root / "t"), str(root / "t.json"), random.Random(seed)
        self.divided = divided
        self.rows: list[int] = []
        self.readers: list[Reader] = []
        self.saved: dict[int, list[int]] = {}
        self.held: dict[int, str] = {}
        self.append()

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def append(self) -> None:
        new = list(range(len(self.rows), len(self.rows) + self.random.randint(1, 3)))
        rows = pa.table({"n": new, "part": [f"2020-01-01 0{n % 2}:00" for n in new]})
        write_deltalake(self.path, rows, mode="append", partition_by=["part"] if self.divided else None)
        self.rows += new

    def compact(self) -> None:
        compact(self.path, plan=of_output)

    def save(self) -> None:
        """A savepoint, as one of today that holds what it goes back to, or as those before."""
        version, folder = self.version, f"{self.path}.held/{self.version}"
        if version not in self.saved and self.random.random() < 0.7:
            assert hold(self.path, version, folder)
            self.held[version] = folder
        self.saved[version] = list(self.rows)

    def drop(self) -> None:
        if self.saved:
            version = self.random.choice(list(self.saved))
            del self.saved[version]
            shutil.rmtree(self.held.pop(version, "none"), ignore_errors=True)

    def go_back(self) -> None:
        """To a savepoint; readers behind it stay, those before it would be moved."""
        if self.saved:
            version = self.random.choice(list(self.saved))
            if version < self.version:
                put_back(self.path, version, self.held.get(version, "none"))
                DeltaTable(self.path).restore(version)
                self.rows = list(self.saved[version])
                self.readers = []

    def begin(self) -> None:
        """A reader that begins with the newest version, whose rows it takes as they are."""
        self.readers.append(Reader(self.path, self.version, list(self.rows)))

    def step(self) -> None:
        if self.readers:
            reader = self.random.choice(self.readers)
            reader.step(self.random.randint(reader.version, self.version))

    def leave(self) -> None:
        if self.readers:
            self.readers.remove(self.random.choice(self.readers))

    def vacuum(self) -> int:
        floors = [unchanged_until(self.path, reader.read) for reader in self.readers]
        gone = vacuum(
            self.path,
            self.seen_at,
            floor=min(floors, default=None),
            restorable={version: self.held.get(version, "") for version in self.saved},
            hours=0,
        )
        assert not gone.why
        return gone.files

    def expire(self) -> int:
        needed = [*(reader.version for reader in self.readers), *(self.saved.keys() - self.held.keys()), self.version]
        return expire(self.path, floor=min(needed), hours=0).files

    def check(self) -> None:
        """Everything somebody needs is there."""
        assert sorted(DeltaTable(self.path).to_pyarrow_table()["n"].to_pylist()) == self.rows
        for version, rows in self.saved.items():
            put_back(self.path, version, self.held.get(version, "none"))
            assert sorted(DeltaTable(self.path, version=version).to_pyarrow_table()["n"].to_pylist()) == rows
        for reader in self.readers:
            copy = Reader(reader.path, reader.version, list(reader.seen))
            copy.step(self.version)
            assert sorted(copy.seen) == self.rows


def run(root: Path, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A random schedule; files that were removed."""
    table = Table(root, seed, divided=bool(seed % 2))
    ways = {
        table.append: 6,
        table.compact: 3,
        table.save: 1,
        table.drop: 1,
        table.go_back: 0.5,
        table.begin: 2,
        table.step: 5,
        table.leave: 1.5,
    }
    removed = entries_gone = 0

    class Killed(BaseException):
        pass

    def die(_: str) -> None:
        if table.random.random() < 0.2:
            raise Killed

    for _ in range(steps):
        table.random.choices(list(ways), list(ways.values()))[0]()
        if table.random.random() < 0.4:
            with monkeypatch.context() as patched:
                if table.random.random() < 0.5:
                    patched.setattr(crash, "point", die)
                with contextlib.suppress(Killed):
                    removed += table.vacuum()
                    entries_gone += table.expire()
            if table.random.random() < 0.1:
                Path(table.seen_at).write_text("{")  # a disk that was full, or somebody's hand
            table.check()
    table.readers, table.saved = [], {}
    time.sleep(0.002)  # the last commit is a millisecond old
    removed += table.vacuum()
    entries_gone += table.expire()
    table.check()
    there = {path.as_posix() for path in Path(table.path).rglob("*.parquet") if "_delta_log" not in path.as_posix()}
    assert len(there) == len(DeltaTable(table.path).file_uris()), "nobody needs any other"
    assert entries_gone > 0
    assert min(one.version for one in entries.log_files(table.path).values()) > table.version - 20
    return removed


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2, 3))])
def test_no_file_is_missing_to_readers_at_every_distance_and_in_the_end_nothing_is_left_over(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, seed, 40, monkeypatch) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_no_file_is_missing_in_a_hundred_schedules(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, seed, 80, monkeypatch) > 5


def appended(path: Path, times: int) -> str:
    for n in range(times):
        write_deltalake(str(path), pa.table({"n": [n]}), mode="append")
    return str(path)


def names(path: str) -> int:
    return len(list(Path(path).glob("*.parquet")))


def test_what_was_replaced_or_written_a_short_time_ago_stays_and_each_commit_is_read_once(tmp_path: Path) -> None:
    path, seen = appended(tmp_path / "t", 4), str(tmp_path / "t.json")
    Path(path, "left.parquet").write_bytes(b"12345")
    DeltaTable(path).optimize.compact()
    assert vacuum(path, seen, floor=None, restorable={}, hours=1).files == 0
    old = time.time() - 7200
    for file in Path(path).rglob("*"):
        os.utime(file, (old, old))
    assert vacuum(path, seen, floor=None, restorable={}, hours=1).files == 1, (
        "the time of a commit is what it was when it was read"
    )
    Path(seen).unlink()
    would = vacuum(path, seen, floor=None, restorable={}, hours=1, dry_run=True)
    assert names(path) == 5
    assert vacuum(path, seen, floor=None, restorable={}, hours=1) == would
    assert (would.files, names(path)) == (4, 1)
    assert history.rewritten(path)
    before = DeltaTable(path).version()
    write_deltalake(path, pa.table({"n": [9]}), mode="append")
    DeltaTable(path).optimize.compact()
    time.sleep(0.002)
    assert vacuum(path, seen, floor=None, restorable={}, hours=0).files == 2
    assert DeltaTable(path).version() == before + 2, "the history says it once"


def test_where_commits_are_gone_and_somebody_stands_before_them_nothing_goes(tmp_path: Path) -> None:
    path, seen = appended(tmp_path / "t", 4), str(tmp_path / "t.json")
    DeltaTable(path).optimize.compact()
    write_deltalake(path, pa.table({"n": [9]}), mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(4):
        entry_file(path, version).unlink()
    time.sleep(0.002)
    assert "commits before version 4 are gone" in vacuum(path, seen, floor=1, restorable={}, hours=0).why
    assert "commits before version 4 are gone" in vacuum(path, seen, floor=5, restorable={2: ""}, hours=0).why
    assert names(path) == 6
    assert vacuum(path, seen, floor=5, restorable={}, hours=0).files == 4
    assert DeltaTable(path).to_pyarrow_table().num_rows == 5


def test_a_clock_that_is_set_back_makes_nothing_older(tmp_path: Path) -> None:
    path, seen = appended(tmp_path / "t", 3), str(tmp_path / "t.json")
    DeltaTable(path).optimize.compact()
    year = time.time() - 365 * 86_400
    os.utime(entry_file(path, 3), (year, year))
    assert vacuum(path, seen, floor=None, restorable={}, hours=1).files == 0


@pytest.mark.parametrize("point", crash.POINTS["vacuum"])
def test_vacuum_is_killed_and_done_again(tmp_path: Path, point: str) -> None:
    path, seen = appended(tmp_path / "t", 6), str(tmp_path / "t.json")
    DeltaTable(path).optimize.compact()
    program = "import sys; from floodmark.lake.maintenance.vacuum import vacuum; vacuum(*sys.argv[1:], floor=None, restorable={}, hours=0)"
    environment = {**os.environ, crash.VARIABLE: f"{point}:{2 if point == 'vacuum.after_file' else 1}"}
    done = forked.run([sys.executable, "-c", program, path, seen], env=environment)
    assert done.returncode == -signal.SIGKILL
    assert names(path) == 7 or history.rewritten(path), "the history says it before it is so"
    assert DeltaTable(path).to_pyarrow_table().num_rows == 6
    vacuum(path, seen, floor=None, restorable={}, hours=0)
    assert names(path) == 1
    assert sum(commit.record is not None for commit in history.every(path)) == 1
    assert DeltaTable(path).to_pyarrow_table().num_rows == 6


# ---- who needs what in a lake


def test_what_keeps_last_values_a_savepoint_and_a_fork_need_stays(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    path = lake.output(CHANGELOG)
    assert needs(lake).floors[path] == -1, "nothing says how far the last values are"
    made = savepoints.create("totals", lake)
    batch(lake, 2, [row("a", 11, 7)])
    found = needs(lake)
    assert set(found.restorable[path]) == {made.manifest.outputs[0].version}
    assert found.floors[lake.log("events")] == made.manifest.inputs["events"].version
    forked = fork(lake, made, str(tmp_path / "fork"))
    savepoints.delete(made)
    assert needs(lake).floors[lake.log("events")] == made.manifest.inputs["events"].version, "where the fork stands"
    (tmp_path / "fork").rename(tmp_path / "away")
    (one,) = {kept.why for kept in maintain(lake, hours=0)}
    assert "LIFECYCLE-063" in one
    assert f"floodmark maintain --forget {forked.root}" in one
    assert readers.forget(lake, forked.root)
    assert not readers.forget(lake, forked.root)
    assert not {kept.why for kept in maintain(lake, hours=0)} - {""}


def test_a_lake_that_reads_the_logs_of_another_one_is_known_there(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    read = inputs_at(Timeline.current(lake, "totals"), 1)["events"].version
    batch(lake, 2, [row("a", 11, 7)])
    own = needs(lake).floors[lake.log("events")]
    reader = Lake(str(tmp_path / "reader"), logs=lake.root)
    for _ in range(2):
        readers.begins(reader)
    with pytest.raises(LifecycleError, match="LIFECYCLE-063"):
        needs(lake)
    shutil.copytree(lake.internal("operators"), reader.internal("operators"))
    offsets = Path(Timeline.current(reader, "totals").checkpoint.path)
    for name in ("offsets", "commits"):
        (offsets / name / "2").unlink()
    assert needs(lake).floors[lake.log("events")] == read <= own
    assert readers.forget(lake, reader.root)
    readers.begins(Lake(lake.internal("operators", "totals", "rebuild", "x"), logs=lake.root))
    assert needs(lake).floors[lake.log("events")] == own, "a rebuild is known without it"


def test_upkeep_removes_what_was_replaced_and_a_rollback_finds_its_files(tmp_path: Path) -> None:
    lake = make(tmp_path)
    made = savepoints.create("totals", lake)
    then = totals(lake, CURRENT)
    for number in range(2, 6):
        batch(lake, number, [row("a", number, 10 + number)])
    found = maintain(lake, hours=0)
    time.sleep(0.002)
    found += maintain(lake, hours=0)
    assert sum(one.removed for one in found if one.table == CURRENT) == 5
    assert not sum(one.removed for one in found if one.table.startswith("logs/"))
    roll_back(lake, made)
    assert totals(lake, CURRENT) == then


def test_nothing_goes_while_a_checkpoint_cannot_be_read_and_tables_are_compacted_all_the_same(tmp_path: Path) -> None:
    lake = make(tmp_path)
    for number in range(2, 6):
        batch(lake, number, [row("a", number, 6 + number)])
    checkpoint = Path(lake.internal("operators", "totals", "timelines", "0", "checkpoint"))
    (checkpoint / "offsets" / "5").write_text("garbage")
    found = maintain(lake, hours=0)
    assert all("STATE-036" in one.why and not one.removed for one in found)
    after = {one.table: (one.before, one.after) for one in found if not one.table.startswith("logs/")}
    assert after == {CHANGELOG: (6, 1), LATE: (6, 1), CURRENT: (1, 1)}


def test_a_savepoint_far_behind_needs_no_commits_of_a_log_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make(tmp_path)
    log = lake.log("events")
    made = savepoints.create("totals", lake)
    for number in range(2, 6):
        batch(lake, number, [row("a", number, 10 + number)])
    for number in range(5):  # the stream cannot be taken back so far
        for place in ("offsets", "commits"):
            Path(Timeline.current(lake, "totals").checkpoint.path, place, str(number)).unlink()
    then = made.manifest.inputs["events"].version
    assert needs(lake).floors[log] == then, "its files have no order"
    monkeypatch.setattr(readers, "in_order", lambda _: [])
    monkeypatch.setattr(readers, "noted", lambda *_: 7)
    assert needs(lake).floors[log] == then, "it is near"
    monkeypatch.setattr(readers, "FAR_BEHIND", 3)
    assert needs(lake).floors[log] == DeltaTable(log).version()
    monkeypatch.setattr(readers, "noted", lambda *_: None)
    assert needs(lake).floors[log] == then, "nobody knows what it has read"


def test_of_a_log_in_order_the_files_go_that_every_stream_is_past(tmp_path: Path) -> None:
    log = Lake(str(tmp_path)).log("events")
    for number in range(4):
        stats = pa.table({"n": [number], "_sequence": [number]})
        write_deltalake(log, stats, mode="append")
        time.sleep(0.002)
    lake = Lake(str(tmp_path))
    found = maintain(lake, hours=0)
    time.sleep(0.002)
    found += maintain(lake, hours=0)
    assert sum(one.removed for one in found) == 4
    assert DeltaTable(log).to_pyarrow_table().num_rows == 4


def test_a_row_of_an_output_is_not_written_again_at_each_upkeep(tmp_path: Path) -> None:
    lake, first = Lake(str(tmp_path)), 0
    path = lake.output("t")
    for number in range(30):
        values = [random.Random(50 * number + n).randbytes(16) for n in range(50)]
        write_deltalake(path, pa.table({"n": values}), mode="append")
        first += max(Path(path).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).stat().st_size
        maintain(lake, hours=100)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 30 * 50
    assert len(DeltaTable(path).file_uris()) < 8
    written = sum(file.stat().st_size for file in Path(path).glob("*.parquet"))  # all of it is there
    assert written < 5 * first, "it was 10 times as much"
