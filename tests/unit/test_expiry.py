"""Entries of a table's log go, and everything that was true of the table can still be told: what has changed, who wrote, where savepoints go back to."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from numbered_logs import SCHEMA, land, log
from small_lake import CHANGELOG, batch, make, row, totals

from floodmark.core.errors import StateError
from floodmark.core.time import END, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.log import newest, remember
from floodmark.lake.maintenance.expiry import expire
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.results import horizon
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import changes, entries, history
from floodmark.lake.table.commits import BoundedRun, Cleaned, Landing, MicroBatch, Record, Restored, encode
from floodmark.lake.writing.compaction import compact

pytestmark = pytest.mark.clock
MINUTE = 60_000


def oldest(path: str) -> int:
    return min(one.version for name, one in entries.log_files(path).items() if name.endswith(".json"))


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in (0, 2))])
def test_what_has_changed_since_a_version_is_known_when_its_entry_is_gone(tmp_path: Path, seed: int) -> None:
    """Against the rows themselves, minute by minute; a sequence is the second of its event time."""
    draw, path = random.Random(seed), tmp_path / "log"
    numbers = itertools.count(log(path, draw, 3) + 1)
    landed: list[tuple[int, set[int]]] = []  # version, minutes of its rows
    read: list[int] = []
    for ordinal in range(3, 30):
        for _ in range(draw.choice([1, 200, 4_000])):  # rows of other minutes, which do not come
            next(numbers)
        files = [[next(numbers) for _ in range(draw.choice([1, 90]))] for _ in range(draw.choice([1, 2]))]
        land(path, ordinal, files, modified=10_000 + 10 * ordinal)
        version = DeltaTable(str(path)).version()
        landed.append((version, {n // 60 for one in files for n in one}))
        if draw.random() < 0.4:
            read.append(version)
        if draw.random() < 0.3:
            compact(str(path))
        if draw.random() < 0.4:
            upto = changes.keep(str(path), read, log=True)
            expire(str(path), floor=DeltaTable(str(path)).version() if upto is None else upto, hours=0)
        now = DeltaTable(str(path)).version()
        for before in read:
            since = changes.since(str(path), before, now, log=True)
            came = set().union(*(minutes for at, minutes in landed if at > before))
            for minute in draw.sample(range(max(came, default=0) + 3), 3) + list(came)[:3]:
                touched = since.touch(Interval(start=minute * MINUTE, end=(minute + 1) * MINUTE))
                assert touched == (minute in came), (before, now, minute)
    assert oldest(str(path)) > min(read)


def test_many_stretches_become_fewer_over_the_smallest_gaps() -> None:
    far = [(n * 1_000, n * 1_000 + 10) for n in range(300)]
    near = [(n * 1_000 + 20, n * 1_000 + 30) for n in range(0, 300, 3)]
    found = changes.joined([*near, *far])
    assert len(found) <= 200
    assert all(any(start <= one and other <= end for start, end in found) for one, other in [*near, *far])
    assert changes.joined([(5, 9), (0, 5), (20, 30)]) == [(0, 9), (20, 30)]


def test_a_version_nobody_kept_counts_as_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log(Path(path), random.Random(1), 9)
    expire(path, floor=DeltaTable(path).version(), hours=0)
    assert oldest(path) > 2
    assert changes.since(path, 2, DeltaTable(path).version(), log=True).touch(Interval(start=10**15, end=10**15 + 1))
    Path(path, "_floodmark").mkdir(exist_ok=True)
    Path(path, "_floodmark", "changes.json").write_text('{"upto": 3, "since": {"2": [[0, 6')
    assert changes.since(path, 2, DeltaTable(path).version(), log=True).touch(Interval(start=10**15, end=10**15 + 1))


RUN = BoundedRun(
    operator="o",
    version="o@1",
    fingerprint="f",
    table="t",
    interval=Interval(start=0, end=MINUTE),
    late_rows="as_landed",
    inputs={"s": {"version": 4}},
)
BACK = Restored(
    mode="rollback", operator="o", version="o@1", timeline=1, table="t", restored=0, savepoint="s", batch=0, progress=0
)


def commit(path: str, record: Record | None, schema: pa.Schema = SCHEMA) -> int:
    said = {"userMetadata": encode(record)} if record is not None else None
    write_deltalake(path, schema.empty_table(), mode="append", commit_properties=CommitProperties(custom_metadata=said))
    return DeltaTable(path).version()


def test_bounded_runs_replacements_and_writes_of_others_are_told_for_ever(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, SCHEMA)
    at = [commit(path, record) for record in (RUN, Cleaned(before=0), None, BACK, Landing(source="s", ordinal=0))]
    for _ in range(12):
        commit(path, Cleaned(before=0))
    before = [
        one for one in history.every(path) if isinstance(one.record, BoundedRun | Restored) or one.version == at[2]
    ]
    for _ in range(2):
        for _ in range(11):
            commit(path, Cleaned(before=0))
        assert expire(path, floor=DeltaTable(path).version(), hours=0).files > 10
        assert oldest(path) > at[-1]
        old = [one for one in history.every(path) if one.version < oldest(path) and one.version > 0]
        assert old == before
        assert [one.record for one in history.every(path, upto=at[2]) if one.version > 0] == [None, RUN]
        assert history.rewritten(path)
        assert not history.complete(path)


def test_entries_stay_as_long_as_they_are_young_or_needed_and_a_look_removes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    log(Path(path), random.Random(2), 30)
    there = entries.log_files(path)
    newest_version = DeltaTable(path).version()
    assert expire(path, floor=newest_version, hours=1).files == 0
    assert expire(path, floor=-1, hours=0).files == 0
    would = expire(path, floor=newest_version, hours=0, dry_run=True)
    assert entries.log_files(path) == there
    assert expire(path, floor=15, hours=0).files < would.files
    assert oldest(path) <= 15
    for version in range(15, newest_version + 1):
        DeltaTable(path, version=version)
    assert DeltaTable(path).to_pyarrow_table().num_rows


def test_a_rollback_and_a_fork_find_a_savepoint_whose_versions_the_log_has_lost(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    made = savepoints.create("totals", lake)
    then, before, gone = totals(lake), changelog(lake), 0
    timeline, path = Timeline.current(lake, "totals"), lake.output(CHANGELOG)
    for number in range(2, 25):
        batch(lake, number, [row("a", number, 10 + number)])
        if number % 8 == 0:
            DeltaTable(path).optimize.compact()
            for place in ("offsets", "commits"):  # the stream cannot be taken back so far
                for old in range(number - 3):
                    Path(timeline.checkpoint.path, place, str(old)).unlink(missing_ok=True)
            for output in ("", "__late"):
                follow(lake, f"{CHANGELOG}{output}", number)
            gone += sum(one.entries for one in maintain(lake, hours=0) if one.table == CHANGELOG)
    assert gone > 10
    with pytest.raises(DeltaError):
        DeltaTable(path, version=made.manifest.outputs[0].version)
    forked = fork(lake, made, str(tmp_path / "forked"))
    assert changelog(forked) == before
    roll_back(lake, savepoints.find(lake, made.id))
    assert totals(lake) == then
    assert changelog(lake) == before
    maintain(lake, hours=0)
    assert totals(lake) == then


def changelog(lake: Lake) -> list[str]:
    return sorted(map(str, DeltaTable(lake.output(CHANGELOG)).to_pyarrow_table().to_pylist()))


def follow(lake: Lake, table: str, number: int) -> None:
    """Let what keeps the last values of a changelog have read all of it."""
    timeline, version = Timeline.current(lake, "totals"), DeltaTable(lake.output(table)).version()
    place = Path(timeline.folder("current", table))
    offset = {
        "sourceVersion": 1,
        "reservoirId": "",
        "reservoirVersion": version + 1,
        "index": -1,
        "isStartingVersion": False,
    }
    marks = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
    for name, text in (("offsets", f"v1\n{json.dumps(marks)}\n{json.dumps(offset)}"), ("commits", "v1\n{}")):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir(parents=True)
        for one in (number - 1, number):
            (place / name / str(one)).write_text(text)


def test_a_landing_goes_on_when_the_entry_of_its_last_commit_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log(Path(path), random.Random(5), 4)
    last = newest(path)
    assert last is not None
    assert last.ordinal == 3
    remember(path, last)
    for _ in range(12):
        commit(path, Cleaned(before=0))
    expire(path, floor=DeltaTable(path).version(), hours=0)  # as somebody's own clean-up does
    assert oldest(path) > 4
    assert newest(path) == last
    land(Path(path), 4, [[10**6]], modified=10**6)
    for _ in range(12):
        commit(path, Cleaned(before=0))
    expire(path, floor=DeltaTable(path).version(), hours=0)
    with pytest.raises(StateError, match="STATE-010"):  # what was kept is not of its last commit
        newest(path)


@pytest.mark.parametrize("ended", [False, True])
def test_how_far_a_stream_has_got_is_told_long_after_it_stopped(tmp_path: Path, ended: bool) -> None:
    lake = make(tmp_path)
    path = lake.output(CHANGELOG)
    if ended:
        end = MicroBatch(operator="totals", version="v", timeline=0, table=CHANGELOG, batch=2, progress=END)
        commit(path, end, pa.schema(DeltaTable(path).schema()))
    before = history.progress(path), horizon.progress_before_end(path, 10**6)
    assert before == ((END if ended else MINUTE), MINUTE)
    for _ in range(2):
        for _ in range(12):
            commit(path, Cleaned(before=0), pa.schema(DeltaTable(path).schema()))
        follow(lake, CHANGELOG, 2)
        maintain(lake, hours=0)
        assert (history.progress(path), horizon.progress_before_end(path, 10**6)) == before


def test_the_id_of_a_table_is_told_without_its_first_entry_and_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "log")
    for number in range(2):  # a table in place of one that is gone is not taken for it
        shutil.rmtree(f"{path}/{entries.LOG}", ignore_errors=True)
        log(tmp_path / "log", random.Random(number), 8)
        told = str(DeltaTable(path).metadata().id)
        assert entries.id_of(path) == told
        expire(path, floor=DeltaTable(path).version(), hours=0)
        assert entries.entry(path, 0) is None
        with monkeypatch.context() as patch:
            patch.setattr(entries, "_of_checkpoint", lambda *_: pytest.fail("reads the checkpoint"))
            assert entries.id_of(path) == told
