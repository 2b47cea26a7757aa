"""Replicas in other lakes: the same commits and files, whatever is killed, merged or removed; streams resume there with equal rows."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import pytest
from deltalake import DeltaTable
from events import disorder
from processes import paths
from replica_process import EVENTS, carried, ship
from streams import PLAIN, WINDOWED, check

from floodmark import Ascending, Contract, EventTime, Files, Operator, Source
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.engines.embedded.landing import run as embedded_landing
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.replicas.adoption import adopt_source, adopt_stream
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.table import entries, origin
from floodmark.spec.values.schema import MARKER, ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

if TYPE_CHECKING:
    from s3_server import Proxy, Server

POINTS = [
    point
    for point in crash.POINTS["replica"]
    if point.split("_")[-1] not in {"checkpoint", "savepoint", "clear", "log"}
]
_ALWAYS = ("replica.after_file:3", "replica.after_entry:4")
"""Files without an entry, and an entry that the run has not told of."""
_ALWAYS_ADOPTING = ("replica.before_savepoint", "adoption.after_table", "step.restore_table")
_ADOPTING = ["", "savepoint.taking_in:2", *crash.POINTS["adoption"], *crash.POINTS["switch"]]


def landed(lake: Lake, code: Operator, log: Log, commits: int, first: int = 0, last: int | None = None) -> None:
    """Land a part of a log in several commits."""
    last = len(log.entries) if last is None else last
    for start, stop in pairwise(first + (last - first) * n // commits for n in range(commits + 1)):
        land(lake, code, log, start, stop)


def check_same(path: str, other: str) -> None:
    """The other table has the entries and the files of the first, byte by byte, and no others, and its rows."""
    newest = entries.version_of(path)
    assert entries.version_of(other) == newest
    for version in range(newest + 1):
        pair = [entries.entry(folder, version) for folder in (path, other)]
        assert None in pair or pair[0] == pair[1], version
    files = [sorted(entries.live_files(folder) or ()) for folder in (path, other)]
    assert files[0] == files[1]
    for name in files[0]:
        assert Path(path, name).read_bytes() == Path(other, name).read_bytes()
    order = [("_sequence", "ascending"), ("_kind", "ascending")]
    one, two = (DeltaTable(folder).to_pyarrow_table().sort_by(order) for folder in (path, other))
    assert one.equals(two)


def killed(lake: Lake, target: str, name: str, point: str, *more: str) -> None:
    """A process that is killed at a point, and the same one again, which is not."""
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "replica_process.py"),
        lake.root,
        target,
        name,
        *more,
    ]
    environment = {**os.environ, "PYTHONPATH": paths()}
    first = forked.run(command, env=environment | {crash.VARIABLE: point})
    assert first.returncode == -signal.SIGKILL, (point, first.stderr)
    again = forked.run(command, env=environment)
    is_done = point == "switch.after_journal"
    assert again.returncode == is_done, (point, again.stderr)
    assert ("LIFECYCLE-276" in again.stderr) == is_done


@pytest.mark.feature("D7")
def test_a_replica_has_the_rows_stamps_and_commits_of_its_home_and_an_operator_computes_the_same_there(
    sail: Sail, tmp_path: Path
) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 3, 240)
    for first, last in pairwise(len(log.entries) * n // 4 for n in range(5)):
        landed(home, WINDOWED, log, 3, first, last)
        run_unbounded(sail, WINDOWED, home, until_caught_up=True)
        assert ship(EVENTS, home, there) == 3
        assert ship(EVENTS, home, there) == 0
        check_same(home.log("events"), there.log("events"))
        run_unbounded(sail, WINDOWED, there, until_caught_up=True)
    at_home, got = outputs(home, WINDOWED), outputs(there, WINDOWED)
    for name, rows in at_home.items():
        assert got[name].drop(["_ingest_time"]).equals(rows.drop(["_ingest_time"])), name
    check(there, WINDOWED, log)


@pytest.mark.feature("D7")
@pytest.mark.parametrize("point", [*_ALWAYS, *(pytest.param(point, marks=pytest.mark.soak) for point in POINTS)])
def test_killed_at_any_write_a_replication_resumes_with_each_commit_once(
    sail: Sail, tmp_path: Path, point: str
) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 4, 120)
    landed(home, WINDOWED, log, 5)
    killed(home, there.root, "events", point)
    check_same(home.log("events"), there.log("events"))
    run_unbounded(sail, WINDOWED, home, until_caught_up=True)
    killed(home, there.root, "windowed", point)
    for output in WINDOWED.outputs:
        check_same(home.output(output.table), there.output(output.table))
    assert ship(WINDOWED, home, there) == 0


@pytest.mark.feature("D7")
def test_a_loop_of_three_lakes_converges_and_brings_no_row_back(tmp_path: Path) -> None:
    """Each lake has a log of its own, and passes all logs that it has on to the next lake, A to B to C to A."""
    lakes = {name: Lake(str(tmp_path / name)) for name in "abc"}
    sources = {
        name: Source(f"events_{name}", contract=EVENTS.contract, connector=EVENTS.connector, watermark=EVENTS.watermark)
        for name in "abc"
    }
    logs = {name: disorder(WINDOWED, number, 60) for number, name in enumerate("abc")}
    done = dict.fromkeys("abc", 0)
    for turn in range(6):
        for name, after in ("ab", "bc", "ca"):
            if turn < 3:
                table = logs[name].table(done[name], done[name] + 20)
                from floodmark.testing.lakes import append

                append(lakes[name].log(f"events_{name}"), table)
                done[name] += 20
            for source in sources.values():
                if entries.is_table(lakes[name].log(source.name)):
                    ship(source, lakes[name], lakes[after])
    for name in "abc":
        home = lakes[name].log(f"events_{name}")
        assert entries.version_of(home) == 2
        for other in lakes.values():
            check_same(home, other.log(f"events_{name}")) if other is not lakes[name] else None
    assert ship(sources["a"], lakes["c"], lakes["a"]) == 0  # A is its home
    assert origin.read(lakes["c"].log("events_a")) == origin.Origin(
        table=entries.id_of(lakes["a"].log("events_a")), home=lakes["a"].root
    )


class Reading(Contract):
    at: EventTime
    value: int


def readings(tmp_path: Path) -> Source:
    """Files of an inbox, of which every tenth row breaks the contract."""
    files = Files(str(tmp_path / "inbox"), format="csv", min_age="0 s")
    return Source("readings", contract=Reading, connector=files, watermark=Ascending(), max_quarantine_share=1)


def put(tmp_path: Path, lake: Lake, number: int) -> None:
    """Land one more file."""
    (tmp_path / "inbox").mkdir(exist_ok=True)
    lines = [f"2001-01-01T00:{number:02}:{n:02d},{n if n % 10 else 'none'}" for n in range(20)]
    (tmp_path / "inbox" / f"{number:03}.csv").write_text("\n".join(["at,value", *lines]))
    embedded_landing.land(_no_server, readings(tmp_path), lake)


def _no_server() -> Sail:
    raise AssertionError


@pytest.mark.feature("D7")
def test_what_the_home_has_merged_and_removed_before_it_was_shipped_arrives_with_the_files_that_replaced_it(
    tmp_path: Path,
) -> None:
    home, there, late = (Lake(str(tmp_path / name)) for name in ("home", "there", "late"))
    for number in range(8):
        put(tmp_path, home, number)
        if number == 2:
            ship(readings(tmp_path), home, there)
    maintain(home, hours=0)
    for number in range(8, 20):
        put(tmp_path, home, number)
        if number in {10, 15}:
            maintain(home, hours=0)
    for lake in (there, late):
        ship(readings(tmp_path), home, lake)
        for path, other in ((home.log, lake.log), (home.quarantine, lake.quarantine)):
            one, two = (DeltaTable(table("readings")) for table in (path, other))
            assert one.version() == two.version()
            assert sorted(one.to_pyarrow_table().to_pylist(), key=str) == sorted(
                two.to_pyarrow_table().to_pylist(), key=str
            )
    maintain(there, hours=0)
    put(tmp_path, home, 20)
    assert ship(readings(tmp_path), home, there) == 1
    rows = [row for row in DeltaTable(there.log("readings")).to_pyarrow_table().to_pylist() if row["_kind"] == ROW]
    assert len(rows) == 21 * 18
    with pytest.raises(LifecycleError, match="LIFECYCLE-270"):
        put(tmp_path, there, 21)
    assert adopt_source(there, "readings") == entries.version_of(home.log("readings"))
    put(tmp_path, there, 22)  # the files that had landed are known: two are new
    rows = [row for row in DeltaTable(there.log("readings")).to_pyarrow_table().to_pylist() if row["_kind"] == ROW]
    assert sorted(row["_sequence"] for row in rows) == [
        row["_sequence"] for row in sorted(rows, key=lambda row: row["at"])
    ]
    assert len(rows) == 23 * 18
    with pytest.raises(LifecycleError, match="LIFECYCLE-273"):
        ship(readings(tmp_path), home, there)
    assert ship(readings(tmp_path), there, home) == 1  # the old home follows
    check_same(home.log("readings"), there.log("readings"))
    with pytest.raises(LifecycleError, match="LIFECYCLE-270"):
        put(tmp_path, home, 23)


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=pytest.mark.feature("D7", "Z31")) for point in _ALWAYS_ADOPTING),
        *(pytest.param(point, marks=pytest.mark.soak) for point in _ADOPTING),
    ],
)
@pytest.mark.few(1)
def test_a_stream_resumes_elsewhere_from_a_carried_savepoint_with_equal_rows(
    sail: Sail, tmp_path: Path, point: str
) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 5, 240)
    landed(home, WINDOWED, log, 4, 0, 100)
    run_unbounded(sail, WINDOWED, home, until_caught_up=True, files_per_batch=1)
    made = savepoints.create("windowed", home)
    landed(home, WINDOWED, log, 2, 100, 150)
    run_unbounded(
        sail, WINDOWED, home, until_caught_up=True, files_per_batch=1
    )  # rows behind the savepoint are replicated, too
    if point.startswith(("replica", "savepoint")):
        killed(home, there.root, "windowed", point, made.id)
    else:
        carried(home, there, made.id)
    with pytest.raises(LifecycleError, match="LIFECYCLE-270"):
        run_unbounded(sail, WINDOWED, there, until_caught_up=True, files_per_batch=1)
    if point and not point.startswith(("replica", "savepoint")):
        killed(there, "", "windowed", point, made.id)
    else:
        adopt_stream(there, savepoints.find(there, made.id))
    landed(home, WINDOWED, log, 3, 150)
    ship(EVENTS, home, there)
    run_unbounded(sail, WINDOWED, there, until_caught_up=True, files_per_batch=1)
    run_unbounded(sail, WINDOWED, home, until_caught_up=True, files_per_batch=1)
    check(there, WINDOWED, log)
    at_home, got = outputs(home, WINDOWED), outputs(there, WINDOWED)
    for name in at_home:  # markers go by the clock
        one, two = (
            sorted(str(row | {"_ingest_time": None}) for row in rows[name].to_pylist() if row["_kind"] != MARKER)
            for rows in (at_home, got)
        )
        assert one == two, name
    with pytest.raises(LifecycleError, match="LIFECYCLE-273"):
        ship(WINDOWED, home, there)


@pytest.mark.feature("D7")
def test_a_rollback_at_home_is_replicated_as_the_commit_that_it_is(sail: Sail, tmp_path: Path) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(PLAIN, 6, 90)
    landed(home, PLAIN, log, 2, 0, 40)
    run_unbounded(sail, PLAIN, home, until_caught_up=True)
    made = savepoints.create("plain", home)
    landed(home, PLAIN, log, 2, 40)
    run_unbounded(sail, PLAIN, home, until_caught_up=True)
    ship(PLAIN, home, there)
    roll_back(home, made)
    assert ship(PLAIN, home, there) == 1
    check_same(home.output("plain"), there.output("plain"))
    run_unbounded(sail, PLAIN, home, until_caught_up=True, from_scratch=True)
    for point in ("replica.before_clear", "replica.after_log", "replica.after_files"):
        run_unbounded(sail, PLAIN, home, until_caught_up=True, from_scratch=True)
        killed(home, there.root, "plain", point)
        check_same(home.output("plain"), there.output("plain"))


@pytest.mark.feature("D7")
def test_a_lake_in_a_bucket_has_replicas_and_is_replicated(
    sail: Sail, s3: Server, s3_proxy: Proxy, tmp_path: Path
) -> None:
    home, bucket, back = Lake(str(tmp_path / "home")), Lake(f"{s3.bucket()}/lake"), Lake(str(tmp_path / "back"))
    log = disorder(WINDOWED, 7, 120)
    landed(home, WINDOWED, log, 4)
    run_unbounded(sail, WINDOWED, home, until_caught_up=True)
    made = savepoints.create("windowed", home)
    carried(home, bucket, made.id)
    assert ship(EVENTS, bucket, back) == 4
    check_same(home.log("events"), back.log("events"))
    adopt_stream(bucket, savepoints.find(bucket, made.id))
    run_unbounded(sail, WINDOWED, bucket, until_caught_up=True)
    check(bucket, WINDOWED, log)


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 8, 40)
    with pytest.raises(ConnectorError, match="DELIVERY-020"):
        ship(EVENTS, home, there)
    landed(home, WINDOWED, log, 2, 0, 20)
    for same in (home, Lake(f"{home.root}/within"), Lake(str(tmp_path / "home" / ".." / "home"))):
        with pytest.raises(LifecycleError, match="LIFECYCLE-274"):
            ship(EVENTS, home, same)
    with pytest.raises(LifecycleError, match="LIFECYCLE-275"):
        ship(WINDOWED, home, there, "other")
    with pytest.raises(LifecycleError, match="LIFECYCLE-276"):
        adopt_source(home, "events")
    landed(there, WINDOWED, log, 1, 0, 20)
    with pytest.raises(LifecycleError, match="LIFECYCLE-271"):
        ship(EVENTS, home, there)
    assert ship(EVENTS, home, there, "events_of_home") == 2
    check_same(home.log("events"), there.log("events_of_home"))
    land(Lake(there.root), WINDOWED, log, 20, 30)
    from floodmark.testing.lakes import append

    append(there.log("events_of_home"), log.table(20, 30))  # another program
    landed(home, WINDOWED, log, 1, 20, 40)
    with pytest.raises(LifecycleError, match="LIFECYCLE-272"):
        ship(EVENTS, home, there, "events_of_home")


def test_a_lake_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    home, log = Lake(str(tmp_path / "home")), disorder(WINDOWED, 8, 40)
    landed(home, WINDOWED, log, 1)
    (tmp_path / "file").touch()
    closed = [tmp_path / "file" / "lake"]
    if os.getuid():  # root may write anywhere
        (tmp_path / "closed").mkdir(mode=0o500)
        closed.append(tmp_path / "closed" / "lake")
    for root in closed:
        with pytest.raises(ConnectorError, match="DELIVERY-021"):
            ship(EVENTS, home, Lake(str(root)))


@pytest.mark.feature("D7")
@pytest.mark.parametrize(
    "point", ["replica.after_checkpoint", pytest.param("replica.before_checkpoint", marks=pytest.mark.soak)]
)
def test_a_stream_over_a_replica_goes_on_where_entries_were_gone_before_they_were_shipped(
    sail: Sail, tmp_path: Path, point: str
) -> None:
    home, there, log = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there")), disorder(WINDOWED, 9, 240)
    landed(home, WINDOWED, log, 6, 0, 80)
    ship(EVENTS, home, there)
    run_unbounded(sail, WINDOWED, there, until_caught_up=True)
    for first, last in ((80, 130), (130, 180)):
        landed(home, WINDOWED, log, 8, first, last)
        maintain(home, hours=0)
    assert entries.entry(home.log("events"), entries.version_of(there.log("events")) + 1) is None
    killed(home, there.root, "events", point)
    run_unbounded(sail, WINDOWED, there, until_caught_up=True)
    landed(home, WINDOWED, log, 2, 180)
    assert ship(EVENTS, home, there) == 2
    run_unbounded(sail, WINDOWED, there, until_caught_up=True)
    check(there, WINDOWED, log)


class ReadingWithNote(Reading):
    note: str | None = None


@pytest.mark.feature("D7")
def test_a_column_that_a_contract_gains_follows(tmp_path: Path) -> None:
    home, there = Lake(str(tmp_path / "home")), Lake(str(tmp_path / "there"))
    put(tmp_path, home, 0)
    ship(readings(tmp_path), home, there)
    (tmp_path / "inbox" / "001.csv").write_text("at,value,note\n2001-01-01T00:01:00,1,seen\n")
    old = readings(tmp_path)
    wider = Source(
        old.name, contract=ReadingWithNote, connector=old.connector, watermark=old.watermark, max_quarantine_share=1
    )
    embedded_landing.land(_no_server, wider, home)
    ship(wider, home, there)
    check_same(home.log("readings"), there.log("readings"))
    rows = DeltaTable(there.log("readings")).to_pyarrow_table().to_pylist()
    assert {row["note"] for row in rows if row["_kind"] == ROW} == {None, "seen"}
