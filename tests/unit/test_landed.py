"""The list of landed units: what a dictionary of them would say, whatever is written, rewritten, killed or opened again."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from events import Event
from hypothesis import example, given, settings
from hypothesis import strategies as st

from floodmark.connectors.readers import files
from floodmark.connectors.readers.delta import DeltaReader
from floodmark.connectors.readers.files import FileReader
from floodmark.connectors.readers.memory import MemoryReader
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError
from floodmark.core.fingerprint import digest
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import landed as module
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landed, Landing, encode
from floodmark.spec.rows.connector import DeltaTable as OtherTable
from floodmark.spec.rows.connector import Files, Rows

NAMES = [f"{letter}.csv" for letter in "abcdef"]
POINTS = ["landing.before_files", "landing.after_files", *crash.POINTS["landed"]]

units_of = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 99), st.sampled_from(["landed", "unreadable", "replaced"])),
    max_size=3,
    unique_by=lambda unit: unit[0],
)
steps_of = st.lists(
    st.one_of(
        st.tuples(st.just("land"), units_of),
        st.tuples(st.sampled_from(["touch", "flush", "open"]), st.just([])),
        st.tuples(st.sampled_from(POINTS), st.just([])),
    ),
    max_size=14,
)


class Killed(Exception):  # noqa: N818 - not an error: the test kills the landing here
    """At a crash point."""


class World:
    """A log with its landing commits, the list of landed units beside the log, and the dictionary that says what is true."""

    def __init__(self, folder: str) -> None:
        self.lake = Lake(folder)
        self.last, self.true = Landing(source="s"), dict[str, Landed]()
        Path(self.lake.log("s")).parent.mkdir(parents=True, exist_ok=True)
        self.units = LandedUnits.load(self.lake, self.last)

    def land(self, units: list[tuple[str, int, str]], *, add: bool = True) -> None:
        ordinal = self.last.ordinal + 1
        done = tuple(
            Landed(name=name, size=size, modified=size, digest=f"d{size}", status=status, ordinal=ordinal)
            for name, size, status in units
        )
        self.last = replace(self.last, ordinal=ordinal, units=done)
        record = CommitProperties(custom_metadata={"userMetadata": encode(self.last)})
        write_deltalake(self.lake.log("s"), module._table([]), mode="append", commit_properties=record)
        self.true |= {unit.name: unit for unit in done}
        if add:
            self.units.add(done)

    def touch(self) -> None:
        """Every file has another date, as a copy of the folder would give it."""
        touched = [replace(unit, modified=unit.modified + 1, ordinal=self.last.ordinal) for unit in self.units.values()]
        self.units.add(touched)
        self.true |= {unit.name: unit for unit in touched}

    def open(self) -> None:
        self.units = LandedUnits.load(self.lake, self.last)

    def files(self) -> int:
        return len(DeltaTable(self.lake.internal("sources", "s", "files")).file_uris())


def kill_at(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    def point(reached: str) -> None:
        if reached == name:
            raise Killed

    monkeypatch.setattr(crash, "point", point)


@settings(max_examples=25, deadline=None)
@given(steps_of, st.integers(1, 4), st.integers(1, 4))
@example([("land", [("a.csv", 1, "landed")])] * 6 + [("touch", []), ("flush", []), ("touch", []), ("open", [])], 2, 1)
def test_look_ups_equal_those_in_a_dictionary_of_all_that_landed(steps, flush_after, most_files) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "_FLUSH_AFTER", flush_after)
        patch.setattr(module, "_MOST_BEHIND", flush_after)
        patch.setattr(module, "_MOST_FILES", most_files)
        world = World(folder)
        for step, units in steps:
            if step == "land":
                world.land(units)
            elif step == "touch":
                world.touch()
            elif step == "flush":
                world.units.flush()
            elif step != "open":
                kill_at(patch, step)
                try:
                    world.land([("k.csv", 1, "landed")], add=False)
                    world.units.add(world.last.units)
                    world.units.flush()
                except Killed:
                    world.open()
                kill_at(patch, None)
            if step == "open":
                world.units.flush()
                world.open()
            check(world)


def check(world: World) -> None:
    """Touched dates alone may be lost by a kill: the next look at the folder sees them again."""
    said = dict(world.units)
    assert {name: replace(unit, modified=0, ordinal=0) for name, unit in said.items()} == {
        name: replace(unit, modified=0, ordinal=0) for name, unit in world.true.items()
    }
    assert len(world.units) == len(said)
    assert "nothing" not in world.units
    assert world.units.get("nothing") is None
    world.true = said if said != world.true else world.true


def test_what_was_flushed_is_the_same_when_it_is_opened_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    world = World(str(tmp_path))
    for number in range(10):
        world.land([(f"{number}.csv", number, "landed"), ("a.csv", number, "replaced")])
        world.touch()
        world.units.flush()
        assert dict(world.units) == world.true
        world.open()
        assert dict(world.units) == world.true


def test_many_files_become_one_with_a_row_for_each_unit(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    world = World(str(tmp_path))
    for number in range(4):
        world.land([("a.csv", number, "unreadable"), (f"{number}.csv", 1, "landed")])
        world.units.flush()
    table = DeltaTable(world.lake.internal("sources", "s", "files"))
    assert world.files() == 1
    assert len(module._read(table, table.table_uri)) == 5
    for number in range(4, 20):
        world.land([(f"{number}.csv", 1, "landed")])
        world.units.flush()
        assert world.files() <= 4
    world.open()
    assert dict(world.units) == world.true


@pytest.mark.parametrize("point", POINTS)
def test_a_landing_killed_while_it_writes_the_list_loses_nothing(point, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 2)
    world = World(str(tmp_path))
    for number in range(3):
        world.land([(f"{number}.csv", 1, "landed"), ("a.csv", number, "unreadable")])
        if number == 2:
            kill_at(monkeypatch, point)
            with pytest.raises(Killed):
                world.units.flush()
            kill_at(monkeypatch, None)
        else:
            world.units.flush()
    world.open()
    assert dict(world.units) == world.true
    world.land([("z.csv", 1, "landed")])
    world.units.flush()
    world.open()
    assert dict(world.units) == world.true


def test_rows_another_landing_appends_during_a_rewrite_stay_and_a_second_rewrite_is_refused(
    tmp_path, monkeypatch
) -> None:
    world = World(str(tmp_path))
    world.land([("a.csv", 1, "landed")])
    world.units.flush()
    theirs = LandedUnits.load(world.lake, world.last)
    world.land([("b.csv", 1, "landed")], add=False)
    monkeypatch.setattr(module, "_MOST_FILES", 1)
    others = 100

    def point(reached: str) -> None:
        if reached == "landed.before_commit":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(crash, "point", lambda _: None)
                patch.setattr(module, "_MOST_FILES", others)
                theirs.add([replace(world.last.units[0], name=f"c{others}.csv")])
                theirs.flush()

    monkeypatch.setattr(crash, "point", point)
    world.units.add(world.last.units)
    world.units.flush()
    world.open()
    assert sorted(world.units) == ["a.csv", "b.csv", "c100.csv"]

    others = 1
    world.land([("d.csv", 1, "landed")])
    with pytest.raises(LifecycleError, match="LIFECYCLE-004"):
        world.units.flush()
    world.open()
    assert sorted(world.units) == ["a.csv", "b.csv", "c1.csv", "c100.csv", "d.csv"]


def test_markers_without_units_are_read_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FLUSH_AFTER", 5)
    world = World(str(tmp_path))
    world.land([("a.csv", 1, "landed")])
    world.units.flush()
    for _ in range(6):
        world.land([], add=False)
    read = []
    real = module.log.landings
    monkeypatch.setattr(module.log, "landings", lambda *a, **k: (read.append(one) or one for one in real(*a, **k)))
    world.open()
    assert len(read) == 6
    world.units.flush()
    read.clear()
    world.open()
    assert read == []
    assert dict(world.units) == world.true


def test_a_table_that_older_versions_wrote_is_read(tmp_path) -> None:
    world = World(str(tmp_path))
    world.land([("a.csv", 1, "landed"), ("b.csv", 2, "unreadable")], add=False)
    rows = [*world.last.units, replace(world.last.units[0], name="c.csv", status="changing")]
    write_deltalake(world.lake.internal("sources", "s", "files"), module._table(rows))
    world.open()
    assert dict(world.units) == world.true
    world.land([("b.csv", 3, "landed")])
    world.units.flush()
    world.open()
    assert dict(world.units) == world.true


def test_a_look_up_reads_the_rows_around_a_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_GROUP", 4)
    monkeypatch.setattr(module, "_MOST_FILES", 1)
    world = World(str(tmp_path))
    world.land([(f"{number:02}.csv", number, "landed") for number in reversed(range(0, 40, 2))])
    world.units.flush()
    world.land([("02.csv", 7, "replaced"), ("99.csv", 1, "landed")])
    world.units.flush()
    groups = []
    real = module._rows
    monkeypatch.setattr(module, "_rows", lambda path, group: groups.append(group) or real(path, group))
    world.open()
    assert not groups
    assert world.units.same("10.csv", 10, 10)
    assert not world.units.same("10.csv", 10, 11)
    assert "50.csv" not in world.units
    assert [(group.low, group.high) for group in groups] == [("08.csv", "14.csv")]
    assert world.units["02.csv"] == world.true["02.csv"]
    assert len(groups) == 2
    assert dict(world.units) == world.true


def test_a_look_at_a_folder_makes_up_what_became_of_changed_files_alone(tmp_path, monkeypatch) -> None:
    inbox, world = tmp_path / "inbox", World(str(tmp_path / "lake"))
    inbox.mkdir()
    for number in range(30):
        (inbox / f"{number}.csv").write_text("n\n1\n")
    reader = FileReader(Files(str(inbox)), Event, "s")
    pending = reader.pending(world.units).units
    landed = [
        Landed(name=u.name, size=u.size, modified=u.modified, digest="d", status="landed", ordinal=0) for u in pending
    ]
    world.units.add(landed[:20])
    world.units.flush()
    world.open()
    world.units.add(landed[20:])
    (inbox / "7.csv").write_text("n\n1\n2\n")
    (inbox / "27.csv").write_text("n\n1\n2\n")
    (inbox / "new.csv").write_text("n\n")
    made = []
    look_up = LandedUnits.__getitem__
    monkeypatch.setattr(LandedUnits, "__getitem__", lambda units, name: made.append(name) or look_up(units, name))
    look = reader.pending(world.units)
    assert [(unit.name, unit.replaces) for unit in look.units] == [
        ("27.csv", True),
        ("7.csv", True),
        ("new.csv", False),
    ]
    assert not look.touched
    assert sorted(made) == ["27.csv", "7.csv", "new.csv"]
    made.clear()
    assert reader.pending(dict(world.units)) == look


def test_a_glance_at_a_folder_finds_new_files_at_once_and_changes_of_others_in_the_next_whole_look(
    tmp_path, monkeypatch
) -> None:
    inbox, world, looked = tmp_path / "inbox", World(str(tmp_path / "lake")), list[str]()
    inbox.mkdir()
    for number in range(30):
        (inbox / f"{number}.csv").write_text("n\n1\n")
    monkeypatch.setattr(files, "_WHOLE_SECONDS", 1e9)
    reader = FileReader(Files(str(inbox)), Event, "s").glancing()
    first = reader.pending(world.units).units
    assert len(first) == 30
    look = FileReader.look
    monkeypatch.setattr(FileReader, "look", lambda own, name: looked.append(name) or look(own, name))
    world.units.add(
        Landed(name=u.name, size=u.size, modified=u.modified, digest="d", status="landed", ordinal=0) for u in first
    )
    for _ in range(2):
        assert reader.pending(world.units).units == []
    assert sorted(looked) == sorted(unit.name for unit in first), "each once behind its landing"
    (inbox / "7.csv").write_text("n\n1\n2\n")
    (inbox / "new.csv").write_text("n\n")
    (inbox / "8.csv").unlink()
    (inbox / "folder.csv").mkdir()
    (inbox / "8.csv.done").touch()
    looked.clear()
    assert [unit.name for unit in reader.pending(world.units).units] == ["new.csv"]
    assert sorted(looked) == ["folder.csv", "new.csv"]
    assert [unit.name for unit in pickle.loads(pickle.dumps(reader)).pending(world.units).units] == ["7.csv", "new.csv"]
    monkeypatch.setattr(files, "_WHOLE_SECONDS", 0.0)
    assert [unit.name for unit in reader.pending(world.units).units] == ["7.csv", "new.csv"]


def test_whoever_looks_below_a_folder_or_into_a_bucket_looks_at_all_of_it(tmp_path) -> None:
    for path in (f"{tmp_path}/*.csv", "s3://bucket/folder"):
        reader = FileReader(Files(path), Event, "s")
        assert reader.glancing() is reader


@pytest.mark.parametrize("flushed", [False, True])
def test_a_source_whose_units_come_in_order_reads_those_of_the_last_commit_alone(
    tmp_path, monkeypatch, flushed
) -> None:
    monkeypatch.setattr(module, "_GROUP", 4)
    world = World(str(tmp_path / "lake"))
    for first in range(0, 30, 3):
        world.land([(f"version {number}", number, "landed") for number in range(first, first + 3)])
        world.land([])
    if flushed:
        world.units.flush()
    world.open()
    read = []
    real = module._rows
    monkeypatch.setattr(module, "_rows", lambda path, group: read.append(group) or real(path, group))
    monkeypatch.setattr(LandedUnits, "__iter__", lambda _: pytest.fail("walks all units"))
    assert set(world.units.newest()) == {f"version {number}" for number in (27, 28, 29)}
    assert len(read) < 10
    settings = OtherTable(str(tmp_path / "table"))
    for number in range(32):
        write_deltalake(settings.path, pa.table({"n": [number]}), mode="append")
    look = DeltaReader(settings, "s").pending(world.units)
    assert [unit.name for unit in look.units] == ["version 30", "version 31"]


def test_rows_that_grow_go_on_behind_the_last_ones(tmp_path) -> None:
    rows = [{"n": n} for n in range(9)]
    world = World(str(tmp_path / "lake"))
    for until in (3, 7):
        (unit,) = MemoryReader(Rows(rows[:until]), "s").pending(world.units).units
        done = Landed(
            name=unit.name, size=0, modified=0, digest=digest(Rows(rows[:until]).rows), status="landed", ordinal=until
        )
        world.units.add([done])
        world.units.flush()
    assert [unit.name for unit in MemoryReader(Rows(rows), "s").pending(world.units).units] == ["rows 8-9"]
    other = [{"n": -1}, *rows[1:]]
    with pytest.raises(ConnectorError, match="CONNECTOR-001"):
        MemoryReader(Rows(other), "s").pending(world.units)
