"""A quarantine that was set aside in many commits: upkeep merges its files, and neither landing, looking nor replaying depends on how many there were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from engines import embedded
from stored import rows

from floodmark.core import crash
from floodmark.core.time import describe
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log, quarantines
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.table import entries
from floodmark.lake.writing import compaction, confirmed
from floodmark.spec.rows.connector import Files
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Ascending, Source

FIRST = 1_000_000_000_000
READ = Path("/proc/self/io")


class Reading(Contract):
    """As it was first written."""

    at: EventTime
    value: int


class Mended(Contract):
    """As it is after somebody saw the quarantine."""

    at: EventTime
    value: int | None


def readings(inbox: Path, contract: type[Contract] = Reading) -> Source:
    null = ("x",) if contract is Mended else ("",)
    files = Files(str(inbox), null_values=null)
    return Source("readings", contract=contract, connector=files, watermark=Ascending(), files_per_commit=1)


def put(inbox: Path, numbers: range) -> None:
    """Files with a row that keeps the contract, between two that have no value."""
    inbox.mkdir(exist_ok=True)
    for number in numbers:
        lines = [f"{describe(FIRST + 1000 * number + row)},{value}" for row, value in enumerate(("", number, ""))]
        (inbox / f"{number:04}.csv").write_text("\n".join(["at,value", *lines]) + "\n")


def land(lake: Lake, inbox: Path, numbers: range) -> None:
    put(inbox, numbers)
    embedded().land(readings(inbox), lake, clock=lambda: FIRST)


def aside(lake: Lake) -> list[Any]:
    return rows(lake.quarantine("readings"), *quarantine.ORDER)


def landed(lake: Lake) -> list[tuple[int, Any]]:
    """Instant and value of each row of the log, in order."""
    found = rows(lake.log("readings"), "_sequence")
    return [(round(one.at.timestamp() * 1000) - FIRST, one.value) for one in found if one._kind == 0]


def files(lake: Lake) -> int:
    return len(DeltaTable(lake.quarantine("readings")).file_uris())


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "inbox"


def test_upkeep_merges_a_quarantine_and_nothing_in_it_changes(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(12))
    before, shown = aside(lake), quarantine.show("readings", lake, limit=100)
    assert (len(before), files(lake)) == (24, 12)
    (planned,) = (one for one in maintain(lake, hours=0, dry_run=True) if one.table == "logs/readings__quarantine")
    assert (planned.before, planned.after, files(lake)) == (12, 1, 12)
    maintain(lake, hours=0)
    maintain(lake, hours=0)
    assert (aside(lake), quarantine.show("readings", lake, limit=100)) == (before, shown)
    assert files(lake) == len(list(Path(lake.quarantine("readings")).rglob("[!0]*.parquet"))) == 1
    for action in map(entries.actions, entries.backwards(lake.quarantine("readings"), 12)):
        assert all(one["remove"]["dataChange"] is False for one in action if "remove" in one)
    land(lake, inbox, range(12, 14))
    assert len(aside(lake)) == 28


def test_a_replay_behind_upkeep_lands_every_row_once(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(6))
    maintain(lake, hours=0)
    land(lake, inbox, range(6, 8))
    done = embedded().replay(readings(inbox, Mended), lake, clock=lambda: FIRST)
    assert (done.landed, done.still_broken) == (16, 0)
    replayed = [1000 * number + row for number in range(8) for row in (0, 2)]
    assert landed(lake) == [(1000 * n + 1, n) for n in range(8)] + [(at, None) for at in replayed]
    maintain(lake, hours=0)
    assert {one._replayed for one in aside(lake)} == {done.ordinal}
    shown = quarantine.show("readings", lake)
    assert (shown.rows, shown.by_reason, shown.newest) == (0, (), ())
    assert embedded().replay(readings(inbox, Mended), lake, clock=lambda: FIRST).landed == 0


def test_files_that_are_merged_while_a_replay_marks_them_are_marked(
    lake: Lake, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake, inbox, range(6))
    merged = list[int]()

    class Beside(DeltaTable):
        def merge(self, *arguments: Any, **named: Any) -> Any:
            found = super().merge(*arguments, **named)
            if not merged:  # behind the version that this one has opened
                merged.append(compaction.compact(lake.quarantine("readings"), plan=compaction.of_quarantine))
            return found

    monkeypatch.setattr(confirmed, "DeltaTable", Beside)
    done = embedded().replay(readings(inbox, Mended), lake, clock=lambda: FIRST)
    assert merged == [5]
    assert done.landed == 12
    assert {one._replayed for one in aside(lake)} == {done.ordinal}
    assert len(landed(lake)) == 18


@pytest.mark.parametrize("action", ["land", "replay"])
def test_what_a_dead_landing_has_left_is_taken_back_although_it_was_merged(
    lake: Lake, inbox: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    land(lake, inbox, range(5))
    ways = {
        "land": lambda: land(lake, inbox, range(5, 6)),
        "replay": lambda: embedded().replay(readings(inbox, Mended), lake, clock=lambda: FIRST),
    }
    before, there = aside(lake), landed(lake)

    def die(name: str) -> None:
        if name.endswith("before_log"):
            raise RuntimeError(name)

    with monkeypatch.context() as patch:
        patch.setattr(crash, "point", die)
        with pytest.raises(RuntimeError, match="before_log"):
            ways[action]()
    assert aside(lake) != before
    maintain(lake, hours=0)
    (inbox / "0005.csv").unlink(missing_ok=True)
    end = embedded().land(readings(inbox), lake, end=True, clock=lambda: FIRST)
    assert end.commits == 1, "a commit without rows takes the ordinal"
    assert (aside(lake), landed(lake)) == (before, there)


def test_what_a_version_before_has_left_is_taken_back(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(1))
    path = lake.quarantine("readings")
    told = entries.transaction_of(path, quarantines.application("readings"))
    assert told == 0
    older = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, older, mode="overwrite")  # no transaction tells of it
    for name in Path(path, "_delta_log").iterdir():
        name.unlink()
    number = older.schema.get_field_index("_landing")
    stray = older.set_column(number, "_landing", older["_landing"].cast("int64").combine_chunks().fill_null(0))
    stray = stray.set_column(number, "_landing", [[1] * len(stray)])
    for part in (older, stray):
        write_deltalake(path, part, mode="append")
    land(lake, inbox, range(1, 2))
    assert [(one._landing, one.file) for one in aside(lake)] == [(0, "0000.csv")] * 2 + [(1, "0001.csv")] * 2
    assert entries.transaction_of(path, quarantines.application("readings")) == 1


def test_a_second_landing_of_the_same_commit_sets_nothing_aside(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(2))
    path = lake.quarantine("readings")
    writer = quarantines.Writer(path)
    with pytest.raises(Exception, match=r"LIFECYCLE-004 .*landing commit 1"):
        quarantines.append(writer, lambda: pytest.fail("writes files"), "readings", 1)
    assert len(aside(lake)) == 4


@pytest.mark.parametrize("commits", [3, 12, 25])
def test_the_head_of_a_log_is_that_of_the_opened_table(tmp_path: Path, commits: int) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, quarantines.table_schema(), configuration={"delta.checkpointInterval": "10"})
    for number in range(commits):
        quarantines.Writer(path).note(
            quarantines.SetAside(source="s", ordinal=number), (quarantines.application("s"), commits - number)
        )
        if number == commits // 2:
            DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        table, head = DeltaTable(path), entries.head_of(path)
        assert head is not None
        assert head.version == table.version()
        assert head.protocol == (table.protocol().min_reader_version, table.protocol().min_writer_version)
        assert head.properties == table.metadata().configuration
        assert entries.transaction_of(path, "quarantine/s") == table.transaction_version("quarantine/s")
    assert table.transaction_version("quarantine/s") == 1, "the last one counts, also where it is lower"


def test_the_head_is_not_told_where_an_entry_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, quarantines.table_schema())
    for number in range(3):
        quarantines.announce(path, "s", number)
    assert entries.head_of(path) is not None
    Path(path, "_delta_log", entries.entry_of(0)).unlink()
    assert entries.head_of(path) is None


def read() -> int:
    """Bytes that this process has read, whether in Python, Arrow or delta-rs."""
    return int(dict(line.split(": ") for line in READ.read_text().splitlines())["rchar"])


@pytest.mark.skipif(not READ.exists(), reason="this system does not say what a process reads")
def test_a_landing_does_not_read_the_quarantine_it_adds_to(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(2))
    path, source = lake.quarantine("readings"), "readings"

    def grown(files: int) -> int:
        """Bytes that a landing of one commit reads where so many files were set aside before."""
        table = DeltaTable(path)
        added = [AddAction(f"{n}.parquet", 1, {}, n, True, '{"numRecords": 1}') for n in range(files)]
        table.create_write_transaction(added, "append", table.schema(), [])
        newest = log.newest(lake.log(source))
        assert newest is not None
        quarantines.announce(path, source, newest.ordinal)
        DeltaTable(path).create_checkpoint()
        number = len(list(inbox.iterdir()))
        before = read()
        land(lake, inbox, range(number, number + 1))
        return read() - before

    assert grown(10)  # what is read once in a process
    few, many = grown(5_000), grown(50_000)  # of a Parquet file at least 64 kB are read
    assert many <= few + 20_000


@pytest.mark.parametrize("limit", [1, 3, 5, 100])
def test_the_newest_rows_are_shown_whichever_file_holds_them(lake: Lake, inbox: Path, limit: int) -> None:
    assert quarantine.show("readings", lake).newest == ()
    land(lake, inbox, range(4))
    path = lake.quarantine("readings")
    DeltaTable(path).update(
        predicate="_landing = 1", updates={"reason": "'mended, got 1; worse, got 2'"}
    )  # a newer file
    compaction.compact(path, plan=compaction.of_quarantine)
    land(lake, inbox, range(4, 7))
    waiting = sorted(aside(lake), key=lambda one: (-one._landing, one.file, one.position))
    shown = quarantine.show("readings", lake, limit=limit)
    assert [(one.landing, one.file, one.position, one.reason, one.raw) for one in shown.newest] == [
        (one._landing, one.file, one.position, one.reason, one.raw) for one in waiting[:limit]
    ]
    assert shown.rows == len(waiting) == 14
    assert [count for _, count in shown.by_reason] == [12, 2]
    assert shown.by_reason[1] == ("mended; worse", 2)


@pytest.mark.skipif(not READ.exists(), reason="this system does not say what a process reads")
def test_what_is_set_aside_is_read_twice_at_most_however_many_files_hold_it(lake: Lake, inbox: Path) -> None:
    land(lake, inbox, range(1))
    path = Path(lake.quarantine("readings"))
    rows = DeltaTable(path).to_pyarrow_table()
    landing = rows.column_names.index("_landing")
    added = []
    for number in range(300):
        file = path / f"{number}.parquet"
        pq.write_table(rows.set_column(landing, "_landing", [[number] * len(rows)]), file)
        added.append(AddAction(file.name, file.stat().st_size, {}, number, True, '{"numRecords": 2}'))
    DeltaTable(path).create_write_transaction(added, "append", DeltaTable(path).schema(), [])
    DeltaTable(path).create_checkpoint()
    quarantine.show("readings", lake, limit=1)
    before = read()
    shown = quarantine.show("readings", lake, limit=1)
    size = sum(file.stat().st_size for file in path.rglob("*.parquet"))
    assert read() - before <= 3 * size
    assert shown.rows == 602
