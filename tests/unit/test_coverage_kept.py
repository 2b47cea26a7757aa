"""Coverage is kept for ever: whatever comes behind a bounded run, and whoever removes the commit that says of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from records import bounded_run, micro_batch, properties, restored

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import coverage
from floodmark.lake.table import history
from floodmark.lake.table.commits import BoundedRun, Record
from floodmark.lake.writing.writer import Writer

HOUR = 3_600_000


def note(lake: Lake, record: Record | None) -> None:
    """A commit of an output, with that record."""
    about = None if record is None else properties(record)
    write_deltalake(lake.output("totals"), pa.table({"n": [1]}), mode="append", commit_properties=about)


def run(start: int, hours: int = 1) -> BoundedRun:
    """A bounded run of some hours."""
    return bounded_run(interval=Interval(start=start * HOUR, end=(start + hours) * HOUR))


def standing(lake: Lake) -> list[Interval]:
    """By all of the log."""
    return [run.interval for _, run in history.standing_of(lake.output("totals"), BoundedRun, None)]


def kept(lake: Lake) -> list[Interval]:
    """By the file and what is behind it."""
    return [entry.interval for entry in coverage.bounded_runs(lake, "totals")]


STEPS = st.lists(
    st.one_of(
        st.integers(0, 5).map(lambda hour: ("run", hour)),
        st.just(("batch", 0)),
        st.just(("other", 0)),
        st.integers(0, 8).map(lambda back: ("restore", back)),
        st.just(("keep", 0)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_what_is_kept_is_what_the_whole_log_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    note(lake, None)
    for step, value in steps:
        match step:
            case "run":
                note(lake, run(value, 2))
            case "batch":
                note(lake, micro_batch())
            case "other":
                note(lake, None)
            case "restore":
                version = min(value, DeltaTable(lake.output("totals")).version())
                Writer(lake.output("totals")).restore(version, restored(restored=version), ("app", 1))
            case _:
                coverage.keep(lake, "totals")
        assert kept(lake) == standing(lake), steps


def test_a_run_counts_when_its_commit_was_cleaned_up(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    note(lake, run(0))
    coverage.keep(lake, "totals")
    for _ in range(3):
        note(lake, micro_batch())
    table = DeltaTable(lake.output("totals"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table = DeltaTable(lake.output("totals"))
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not standing(lake), "the commit is there no more"
    assert kept(lake) == [run(0).interval]


def test_commits_far_behind_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_FAR", 5)
    lake, read = Lake(str(tmp_path)), list[int | None]()
    note(lake, run(0))
    for _ in range(6):
        note(lake, micro_batch())
    every = history.every

    def counted(path: str, limit: int | None, *, upto: int) -> object:
        read.append(limit)
        return every(path, limit, upto=upto)

    monkeypatch.setattr(history, "every", counted)
    assert [kept(lake) for _ in range(2)] == [[run(0).interval]] * 2
    assert read == [7, 0]


def test_a_table_that_was_made_anew_has_no_runs_of_the_one_before(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    note(lake, run(0))
    coverage.keep(lake, "totals")
    Path(lake.output("totals")).rename(tmp_path / "elsewhere")
    assert not kept(lake)
    note(lake, run(3))
    assert kept(lake) == [run(3).interval]


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"table": "x"}\n[1]', b"\xff"])
def test_a_file_that_is_no_such_file_is_made_again_from_the_log(tmp_path: Path, content: bytes) -> None:
    lake = Lake(str(tmp_path))
    note(lake, run(0))
    file = Path(lake.internal("coverage", "totals.json"))
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert kept(lake) == [run(0).interval]
    coverage.keep(lake, "totals")
    assert file.read_bytes() != content


def test_who_cannot_write_reads_and_a_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_FAR", 0)
    lake = Lake(str(tmp_path))
    note(lake, run(0))

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(coverage, "write", refuse)
    assert kept(lake) == [run(0).interval]
    with pytest.raises(OSError, match="Read-only"):
        coverage.keep(lake, "totals")


def test_of_many_runs_those_that_newer_ones_have_computed_again_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "_MANY", 4)
    lake = Lake(str(tmp_path))
    for hour in (0, 1, 0, 1, 2, 0):
        note(lake, run(hour))
    coverage.keep(lake, "totals")
    assert kept(lake) == [run(hour).interval for hour in (0, 2, 1)]
