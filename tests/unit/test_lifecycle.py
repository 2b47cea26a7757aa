"""Savepoints, cuts and switches as data: what is written reads back, what is damaged is said, and cuts agree with brute force."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from records import bounded_run, micro_batch, properties, restored

from floodmark.core.errors import LifecycleError, SetupError, StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import rollback
from floodmark.lake.restore.rollback import undone
from floodmark.lake.stream import batch_state
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import Record
from floodmark.lake.table.history import Commit
from floodmark.lifecycle.cutover import CutoverPlan
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.rollback import cut, moves
from floodmark.lifecycle.savepoint import File, Manifest, TableVersion, damage, differences
from floodmark.lifecycle.switch import Switchover, Target

MANIFEST = Manifest(
    id="totals-20261122T084512-9c1e",
    at=1_795_000_000_000,
    operator="totals",
    version="totals@3f9a2c1b",
    fingerprint="3f9a2c1b" * 8,
    graph={"inputs": [["events", "events", [], False]], "outputs": [["", {"step": "read", "input": "events"}]]},
    tables={"totals": (("key", "string"), ("total", "bigint"))},
    timeline=1,
    batch=17,
    watermark=1_600_000_000_000,
    inputs={"events": TableVersion(table="events", id="a", version=5, file=3)},
    outputs=(TableVersion(table="totals", id="b", version=9),),
    engine={"pyspark": "4.2.0"},
    code={"commit": "abc", "dirty": False},
    why="before the change",
    files={"checkpoint/metadata": File(sha256="00", size=4), "checkpoint/offsets/17": File(sha256="11", size=7)},
)


def test_a_manifest_reads_back_as_it_was_written():
    assert Manifest.parse(MANIFEST.as_json().encode(), "here") == MANIFEST
    assert MANIFEST.size == 11


@given(st.data())
def test_whatever_has_become_of_a_manifest_it_is_read_or_refused(data):
    found = json.loads(MANIFEST.as_json())
    name = data.draw(st.sampled_from(sorted(found)))
    if data.draw(st.booleans()):
        del found[name]
    else:
        found[name] = data.draw(st.sampled_from([None, 3, "x", [], {}, [1], {"a": 1}]))
    text = json.dumps(found)
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(0, len(text)))]
    with suppress(StateError):
        read = Manifest.parse(text.encode(), "here")
        assert Manifest.parse(read.as_json().encode(), "here") == read


def test_of_a_newer_format_it_says_so():
    newer = MANIFEST.as_json().replace('"format": 1', '"format": 3')
    with pytest.raises(StateError, match="STATE-020 here: expected format 2 or older, got format 3"):
        Manifest.parse(newer.encode(), "here")


def test_damage_is_told_file_by_file():
    files = dict(MANIFEST.files)
    assert not list(damage(MANIFEST, files))
    flipped = files | {"checkpoint/metadata": File(sha256="01", size=4)}
    assert list(damage(MANIFEST, flipped)) == ["checkpoint/metadata has other content than was written"]
    shorter = files | {"checkpoint/metadata": File(sha256="00", size=3)}
    assert list(damage(MANIFEST, shorter)) == ["checkpoint/metadata has 3 bytes instead of 4"]
    (missing,) = damage(MANIFEST, {"checkpoint/metadata": files["checkpoint/metadata"]})
    assert missing == "checkpoint/offsets/17 is missing"
    assert not list(damage(MANIFEST, files | {"Thumbs.db": File(sha256="00", size=1)})), "nothing reads it"


def test_two_savepoints_differ_in_what_they_hold():
    later = replace(
        MANIFEST, batch=18, watermark=1_600_000_100_000, outputs=(TableVersion(table="totals", id="b", version=10),)
    )
    assert not list(differences(MANIFEST, MANIFEST))
    assert [what for what, *_ in differences(MANIFEST, later)] == ["batch", "watermark", "output 'totals'"]


def test_a_switch_reads_back_as_it_was_written():
    target = Target(
        operator="totals",
        savepoint=MANIFEST.id,
        version=MANIFEST.version,
        timeline=2,
        ends=1,
        batch=17,
        watermark=5,
        tables=MANIFEST.outputs,
        source="/beside",
        moves={1: "others"},
    )
    switch = Switchover(again="floodmark rollback totals --to x", targets=(target,))
    assert Switchover.parse(switch.as_json().encode()) == switch
    assert switch.operators == ("totals",)


def test_a_journal_of_an_earlier_release_with_a_cut_is_read() -> None:
    plan = CutoverPlan(at=7, since=None, staying={"totals": 3})
    target = Target.onto(MANIFEST, timeline=2, ends=1, source="/beside", cutover=plan)
    switchover = Switchover(again="floodmark experiment promote x", targets=(target,))
    document = json.loads(switchover.as_json())
    document["steps"] = document.pop("targets")
    document["steps"][0]["cut"] = document["steps"][0].pop("cutover")
    assert Switchover.parse(json.dumps(document).encode()) == switchover


def test_what_a_table_loses_is_counted_and_what_others_wrote_is_named():
    found = undone(
        "totals",
        [
            Commit(10, 0, "WRITE", restored(mode="rebuild")),
            Commit(9, 0, "WRITE", micro_batch(rows=5)),
            Commit(8, 0, "WRITE", micro_batch(settled=True)),
            Commit(7, 0, "WRITE", bounded_run(rows=3)),
            Commit(6, 0, "MERGE", None),
        ],
    )
    assert (found.commits, found.rows, found.rebuilds) == (1, 5, 1)
    assert (found.backfills, found.foreign) == (("all of time",), ("MERGE at version 6",))


# ---- cuts


@dataclass(frozen=True)
class Seen:
    """A state of a stream of the tests."""

    inputs: dict[str, TableVersion]
    outputs: tuple[TableVersion, ...]

    @property
    def deployed(self) -> Deployed:
        """A definition that reads a column more where the version written is odd."""
        columns = [{"name": name} for name in (("n", "more") if self.outputs[0].version % 2 else ("n",))]
        graph = {"inputs": [[name, name, columns, False] for name in self.inputs]}
        return Deployed(version="", fingerprint="", graph=graph, tables={})


READS = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
"""A diamond: who reads whom, upstream first."""


def states_of(name: str, versions: list[tuple[int, ...]]) -> list[Seen]:
    """States with the version written, and one per table read; an odd last number is in the middle of a version."""
    return [
        Seen(
            {
                up: TableVersion(table=up, id=up, version=at // 2, file=at % 2 - 1)
                for up, at in zip(READS[name], read, strict=True)
            },
            (TableVersion(table=name, id=name, version=written),),
        )
        for written, *read in versions
    ]


def agree(read: TableVersion, back: TableVersion, needs: frozenset[str]) -> bool:
    """Versions of a pair hold the same rows: 0 and 1, 2 and 3. From 3 on there is a column more."""
    return read.version // 2 == back.version // 2 and (back.version >= 3 or needs == {"n"})


def fits(chosen: dict[str, Seen]) -> bool:
    return all(
        given.file < 0 and agree(given, chosen[up].outputs[0], state.deployed.needs[up])
        for state in chosen.values()
        for up, given in state.inputs.items()
    )


@given(
    st.fixed_dictionaries(
        {
            name: st.lists(st.tuples(st.integers(0, 5), *(st.integers(0, 11) for _ in reads)), min_size=1, max_size=4)
            for name, reads in READS.items()
        }
    )
)
def test_a_cut_is_found_exactly_where_there_is_one(drawn):
    states = {name: states_of(name, drawn[name]) for name in READS}
    every = [dict(zip(states, chosen, strict=True)) for chosen in itertools.product(*states.values())]
    right = [chosen for chosen in every if fits(chosen)]
    found = cut(list(states.items()), agree)
    assert (found is None) == (not right)
    if found is not None:
        assert found == right[0], "the best state of the first, then of the next"
        written = {name: name for name in "abc"}
        assert dict(moves(found["d"], written)) == {0: "b", 1: "c"}


def test_a_state_is_of_its_timeline_although_a_rollback_has_taken_the_table_back_already(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    path = lake.output("totals")

    def commit(timeline: int, batch: int) -> None:
        about = properties(micro_batch(timeline=timeline, batch=batch))
        write_deltalake(path, pa.table({"n": [batch]}), mode="append", commit_properties=about)

    for batch in range(4):
        commit(0, batch)
    write_deltalake(path, pa.table({"n": [-1]}), mode="append")  # somebody else's, behind micro-batch 3
    back = properties(restored(timeline=1, batch=1, restored=1))
    DeltaTable(path).restore(1, commit_properties=back)  # begun, and killed before the stream was told
    assert [batch_state._version_at(Timeline(lake, "totals", 0), "totals", batch) for batch in range(4)] == [0, 1, 2, 4]
    commit(1, 2)
    assert [batch_state._version_at(Timeline(lake, "totals", 1), "totals", batch) for batch in (1, 2)] == [5, 6]
    assert batch_state._version_at(Timeline(lake, "totals", 0), "totals", 3) == 4


@pytest.mark.feature("V1")
@pytest.mark.parametrize("folder", ["lake", "a lake", "möwe+1", "x=1,y"])
def test_files_of_an_older_version_are_found_whatever_the_lake_is_called(tmp_path: Path, folder: str) -> None:
    """They are no longer part of the table, as after ``maintain``, and are there until a VACUUM."""
    path = str(tmp_path / folder / "outputs" / "totals")
    rows = pa.table({"at": ["2026-01-01 00:00", "a b"], "n": [1, 2]})
    write_deltalake(path, rows, partition_by=["at"])
    write_deltalake(path, rows, partition_by=["at"], mode="overwrite")
    was = TableVersion(table="totals", id=str(DeltaTable(path).metadata().id), version=0)
    rollback._check_files(path, was, "here", "anew")
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-037 .*which a VACUUM has removed"):
        rollback._check_files(path, was, "here", "anew")


@pytest.mark.parametrize("root", ["/lakes/100%", "/lakes/a#b", "s3a://bucket/lake?x"])
def test_a_lake_whose_path_is_read_otherwise_by_each_is_refused(root: str) -> None:
    with pytest.raises(SetupError, match="SETUP-041"):
        Lake(root)


def test_progress_is_found_behind_any_number_of_bounded_runs(tmp_path: Path) -> None:
    """More than are looked at first."""
    path, rows = str(tmp_path / "totals"), pa.table({"n": [1]})

    def put(record: Record) -> int:
        write_deltalake(path, rows, mode="append", commit_properties=properties(record))
        return int(DeltaTable(path).version())

    assert history.progress(path) is None
    put(micro_batch(progress=5))
    last = put(micro_batch(progress=7))
    for _ in range(30):
        put(bounded_run())
    assert history.progress(path) == 7
    assert history.progress(path, last - 1) == 5
    assert history.progress(path, last + 25) == 7
