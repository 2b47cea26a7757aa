"""Records of commits: what is written reads back, what another version has written is refused or read, never misread."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from records import bounded_run, micro_batch, properties, restored

from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.time import Interval
from floodmark.lake.table import history
from floodmark.lake.table.commits import Fenced, Landed, Landing, Record, SetAside, Ticked, decode, encode, progress_of
from floodmark.lake.writing.writer import FENCE, Writer
from floodmark.semantics.time.watermarks import WatermarkState

UNIT = Landed(name="é \n.csv", size=2**53 + 1, modified=2**62, digest="d", status="landed", ordinal=3)
RECORDS: tuple[Record, ...] = (
    Landing(source="s", ordinal=3, state=WatermarkState(watermark=5), units=(UNIT,), definition={"read": []}),
    micro_batch(settled=True, late=1, dropped=2),
    bounded_run(interval=Interval(start=-1, end=2**60), inputs={"log": {"version": 3}}, retractions=4),
    restored(mode="fork", restored=-1),
    Fenced(operator="o", timeline=2),
    Ticked(operator="o", batch=7),
    SetAside(source="s", ordinal=3),
)
numbers = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_reads_back(record: Record) -> None:
    assert decode(encode(record), "here") == record


@given(numbers, numbers, st.text(), st.booleans())
def test_a_record_of_any_values_reads_back(progress: int, rows: int, name: str, settled: bool) -> None:
    record = micro_batch(operator=name, version=name, progress=progress, rows=rows, settled=settled)
    assert decode(encode(record), "here") == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_a_later_version_adds_to_a_record_is_left_out(record: Record) -> None:
    ((key, value),) = json.loads(encode(record)).items()
    assert decode(json.dumps({key: value | {"added": 1}}), "here") == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_that_lacks_something_is_refused(record: Record) -> None:
    ((key, value),) = json.loads(encode(record)).items()
    needed = {"landing": "source", "fence": "timeline", "set_aside": "source"}.get(key, "operator")
    del value[needed]
    with pytest.raises(StateError, match=rf"STATE-040 commit 3: .*got one that lacks '{needed}'"):
        decode(json.dumps({key: value}), "commit 3")


def test_a_mode_of_a_later_version_is_refused() -> None:
    text = json.dumps({"floodmark": {"mode": "experiment", "operator": "o"}})
    with pytest.raises(StateError, match="STATE-040 .*mode 'experiment'"):
        decode(text, "here")


@pytest.mark.parametrize("text", [None, "", "nightly load", "{", '{"other": {}}', "[1]", '{"landing": 3}'])
def test_what_others_write_is_no_record(text: str | None) -> None:
    assert decode(text, "here") is None


def test_only_some_records_say_how_far_a_table_has_got() -> None:
    assert [progress_of(record) for record in RECORDS] == [5, 0, None, 0, None, None, None]


# ---- what stands


def _table(path: Path, *records: Record | None) -> str:
    for number, record in enumerate(records):
        about = None if record is None else properties(record)
        write_deltalake(str(path), pa.table({"n": [number]}), mode="append", commit_properties=about)
    return str(path)


def test_a_commit_that_was_taken_back_does_not_stand(tmp_path: Path) -> None:
    path = _table(tmp_path / "t", micro_batch(batch=0), micro_batch(batch=1), micro_batch(batch=2))
    Writer(path).restore(0, restored(restored=0), ("app", 1))
    _table(tmp_path / "t", micro_batch(batch=1, timeline=1), None)
    assert [(c.version, type(c.record).__name__) for c in history.standing(path)] == [
        (4, "MicroBatch"),
        (3, "Restored"),
        (0, "MicroBatch"),
    ]
    assert [record.batch for _, record in history.standing_of(path, type(micro_batch()))] == [1, 0]
    assert len(list(history.every(path))) == 6


class Many:
    """A table of a thousand commits, which says how many were read of it."""

    def __init__(self) -> None:
        self.read = list[int]()

    def history(self, limit: int | None) -> list[dict[str, object]]:
        asked = 1000 if limit is None else min(limit, 1000)
        self.read.append(asked)
        return [{"version": 999 - n, "timestamp": n, "operation": "WRITE"} for n in range(asked)]


@pytest.mark.parametrize(("wanted", "read"), [(1, [20]), (20, [20]), (21, [20, 200]), (None, [20, 200, 1000]), (0, [])])
def test_commits_are_read_as_they_are_asked_for(wanted: int | None, read: list[int]) -> None:
    table = Many()
    commits = list(islice(history._opened(table, "t"), wanted))
    assert table.read == read
    assert [commit.version for commit in commits] == [999 - n for n in range(1000)][:wanted]


def test_a_table_that_is_not_there_has_no_commit(tmp_path: Path) -> None:
    assert not list(history.standing(str(tmp_path / "none")))


# ---- the writer


def test_a_fence_ends_an_application_and_no_other(tmp_path: Path) -> None:
    path = _table(tmp_path / "t", None)
    Writer(path).note(Fenced(operator="o", timeline=0), ("app", FENCE))
    with pytest.raises(LifecycleError, match="LIFECYCLE-057"):
        Writer(path).append(_nothing, micro_batch(), ("app", 3))
    assert Writer(path).committed("app") == FENCE
    assert Writer(path).committed("other") is None


def _nothing() -> object:
    pytest.fail("no file is written for a commit that is refused")


def test_a_number_that_was_committed_writes_no_file(tmp_path: Path) -> None:
    path = _table(tmp_path / "t", None)
    writer = Writer(path)
    writer.note(micro_batch(), ("app", 3))
    assert not writer.append(_nothing, micro_batch(), ("app", 3))  # type: ignore[arg-type]
    assert not Writer(path).append(_nothing, micro_batch(), ("app", 2))  # type: ignore[arg-type]


def test_a_table_is_emptied_in_one_commit(tmp_path: Path) -> None:
    path = _table(tmp_path / "t", None, None)
    Writer(path).become((), restored(restored=-1), ("app", 1))
    table = DeltaTable(path)
    assert table.to_pyarrow_table().num_rows == 0
    assert table.version() == 2
    assert replace(restored(restored=-1)) == next(history.every(path)).record
