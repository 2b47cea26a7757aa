"""Upgrades of streams whose results late rows revise: who reads them row by row finds what the new steps give, of all that may still be revised."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from processes import paths
from restated import (
    Story,
    daily,
    days,
    halves,
    never_less_than_nothing,
    of_halves,
    reached,
    standing,
    told,
    totals,
    values_of,
)

from floodmark import Hourly
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import cuts, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.spec.values.schema import PARTITION, RETRACTION

KEYS = ("key", "window_start", "window_end")


@pytest.fixture(scope="module")
def sail() -> Iterator[Sail]:
    """One server for all tests."""
    found = Sail(memory=300)
    yield found
    found.close()


def restatements(lake: Lake) -> list[MicroBatch]:
    """The commits by which results were restated, newest first."""
    return [one for _, one in history.standing_of(lake.output("totals"), MicroBatch) if one.restated]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("odd", "odder"), marks=pytest.mark.feature("V4")),
        pytest.param(("plain", "python"), marks=pytest.mark.feature("V4")),
        pytest.param(("plain", "filter", "wider"), marks=pytest.mark.feature("V4")),
        *(
            pytest.param(steps, marks=pytest.mark.soak)
            for steps in (
                ("plain", "filter"),
                ("filter", "wider"),
                ("wider", "filter"),
                ("double", "half"),
                ("double", "more"),
                ("double", "half", "double"),
            )
        ),
    ],
    ids="-".join,
)
@pytest.mark.few(1)
def test_each_result_is_that_of_the_last_version_under_which_it_could_be_revised(
    sail: Sail, lake: Lake, steps: tuple[str, ...]
) -> None:
    story, ends = Story(lake), [90, 140, 201][-len(steps) :]
    code = story.begin(steps[0])
    for behind, until in zip((*steps[1:], ""), ends, strict=True):
        story.land(until)
        run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1)
        if behind:
            assert any(
                one["_kind"] == RETRACTION for one in DeltaTable(lake.output("totals")).to_pyarrow_table().to_pylist()
            ), "nothing was revised before the change"
            code = story.upgrade(behind)
            assert story.kept() >= 2
            run_unbounded(sail, code, lake, until_caught_up=True)
            assert standing(lake.output("totals")) == story.expected(story.read), "with no row more"
    assert standing(lake.output("totals")) == story.expected()
    assert len(restatements(lake)) == len(steps) - 1
    never_less_than_nothing(lake.output("totals"))
    if set(steps) <= {"plain", "filter", "wider", "double", "half", "more", "odd", "odder"}:
        current, changelog = values_of(lake, KEYS)
        assert current == changelog


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("filter", "wider"), marks=pytest.mark.feature("V4")),
        pytest.param(("plain", "filter"), marks=pytest.mark.soak),
    ],
    ids="-".join,
)
def test_a_stream_that_reads_it_is_right_at_every_version(sail: Sail, lake: Lake, steps: tuple[str, ...]) -> None:
    story, reader = Story(lake), days()
    code = story.begin(steps[0])
    for until, behind in ((90, steps[1]), (140, ""), (201, "")):
        story.land(until)
        run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1)
        if behind:
            run_unbounded(sail, reader, lake, until_caught_up=True)
            code = story.upgrade(behind)
        run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1)
        run_unbounded(sail, reader, lake, until_caught_up=True)
    sums = standing(lake.output("days"))
    assert told(sums) == daily(story.expected())
    assert sums
    never_less_than_nothing(lake.output("days"))


def test_results_of_rows_that_were_taken_back_are_restated_as_they_are_now(sail: Sail, lake: Lake) -> None:
    """Some windows have lost all their rows, and have no result any more."""
    story = Story(lake)
    story.land(110)
    code, reader = story.begin("plain"), halves("double")
    for one in (code, reader):
        run_unbounded(sail, one, lake, until_caught_up=True)
    full = len(standing(lake.output("halves")))
    code = story.upgrade("few")
    for one in (code, reader):
        run_unbounded(sail, one, lake, until_caught_up=True)
    assert 0 < len(standing(lake.output("halves"))) < full
    said = [(-(1 << 62), "double"), (reached(lake, "halves") - 60 * 60_000 + 1, "half")]
    reader = halves("half")
    upgrade(reader, lake)
    run_unbounded(sail, reader, lake, until_caught_up=True)
    assert standing(lake.output("halves")) == of_halves(lake, said)
    story.land(201)
    for one in (code, reader):
        run_unbounded(sail, one, lake, until_caught_up=True)
    assert standing(lake.output("halves")) == of_halves(lake, said)
    never_less_than_nothing(lake.output("halves"))


def test_a_table_with_asset_partitions(sail: Sail, lake: Lake) -> None:
    story, path = Story(lake), lake.output("totals")
    hours = Hourly("2020-01-01")
    story.land(120)
    run_unbounded(sail, replace(story.begin("plain"), partitions=hours), lake, until_caught_up=True)
    code = replace(story.upgrade("filter"), partitions=hours)
    run_unbounded(sail, code, lake, until_caught_up=True)
    story.land(201)
    run_unbounded(sail, code, lake, until_caught_up=True)
    assert standing(path) == story.expected()
    for row in DeltaTable(path).to_pyarrow_table().to_pylist():
        moment = row["_event_time"]
        assert row[PARTITION] == (None if moment is None else hours.key(to_ms(moment)))


def test_upgrades_without_a_start_between_them_are_one(sail: Sail, lake: Lake) -> None:
    story = Story(lake)
    story.land(120)
    run_unbounded(sail, story.begin("plain"), lake, until_caught_up=True)
    upgrade(totals("filter"), lake)
    code = story.upgrade("wider")
    run_unbounded(sail, code, lake, until_caught_up=True)
    story.land(201)
    run_unbounded(sail, code, lake, until_caught_up=True)
    assert standing(lake.output("totals")) == story.expected()
    assert len(restatements(lake)) == 1


def test_there_and_back_changes_nothing(sail: Sail, lake: Lake) -> None:
    story = Story(lake)
    story.land(120)
    code = story.begin("plain")
    run_unbounded(sail, code, lake, until_caught_up=True)
    before = DeltaTable(lake.output("totals")).version()
    upgrade(totals("filter"), lake)
    upgrade(code, lake)
    run_unbounded(sail, code, lake, until_caught_up=True)
    assert DeltaTable(lake.output("totals")).version() == before
    assert not Timeline.current(lake, "totals").identity.restates()


def test_a_rollback_takes_it_back(sail: Sail, lake: Lake) -> None:
    story, path = Story(lake), lake.output("totals")
    story.land(120)
    code = story.begin("plain")
    run_unbounded(sail, code, lake, until_caught_up=True)
    before, made = standing(path), upgrade(totals("filter"), lake).savepoint
    run_unbounded(sail, totals("filter"), lake, until_caught_up=True)
    assert standing(path) != before
    roll_back(lake, savepoints.find(lake, str(made)))
    assert standing(path) == before
    story.land(201)
    run_unbounded(sail, code, lake, until_caught_up=True)
    assert standing(path) == story.expected()
    current, changelog = values_of(lake, KEYS)
    assert current == changelog


def test_what_is_left_to_do_is_in_a_savepoint_and_in_a_fork(sail: Sail, lake: Lake, tmp_path: Path) -> None:
    story = Story(lake)
    story.land(120)
    run_unbounded(sail, story.begin("plain"), lake, until_caught_up=True)
    code = story.upgrade("filter")
    made = savepoints.create("totals", lake)
    run_unbounded(sail, code, lake, until_caught_up=True)
    expected = standing(lake.output("totals"))
    other = fork(lake, made, str(tmp_path / "other"))
    assert standing(other.output("totals")) != expected
    run_unbounded(sail, code, other, until_caught_up=True)
    assert standing(other.output("totals")) == expected
    roll_back(lake, made)
    run_unbounded(sail, code, lake, until_caught_up=True)
    assert standing(lake.output("totals")) == expected == story.expected(120)


def test_no_savepoint_goes_back_under_the_new_definition_to_results_of_the_old_one(sail: Sail, lake: Lake) -> None:
    """Where a reader is further behind than an upgrade: the micro-batch that is its cut was never restated."""
    story, reader = Story(lake), days()
    story.land(110, pieces=1)
    code = story.begin("double")
    for one in (code, reader):
        run_unbounded(sail, one, lake, until_caught_up=True)
    story.land(150, pieces=1)
    run_unbounded(sail, code, lake, until_caught_up=True)
    code = story.upgrade("half")
    run_unbounded(sail, code, lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match="LIFECYCLE-040"):
        cuts.create_coordinated_savepoints("totals", lake)
    run_unbounded(sail, reader, lake, until_caught_up=True)
    made = cuts.create_coordinated_savepoints("totals", lake)
    for _ in range(2):
        story.land(201)
        for one in (code, reader):
            run_unbounded(sail, one, lake, until_caught_up=True)
        assert standing(lake.output("totals")) == story.expected()
        assert told(standing(lake.output("days"))) == daily(story.expected())
        roll_back(lake, made[0])


def test_files_of_final_results_are_not_read(sail: Sail, lake: Lake) -> None:
    story, path = Story(lake), lake.output("totals")
    story.land(180, pieces=30)
    run_unbounded(sail, story.begin("plain"), lake, until_caught_up=True, files_per_batch=1)
    code, before = story.upgrade("filter"), standing(path)
    files = DeltaTable(path).get_add_actions(flatten=True)
    final = [
        one["path"]
        for one in pa.table(files).to_pylist()
        if one["max._event_time"] is not None and to_ms(one["max._event_time"]) < story.said[-1][0]
    ]
    assert len(final) > 5
    for name in final:
        Path(path, name).unlink()
    run_unbounded(sail, code, lake, until_caught_up=True)
    newest = {one["path"] for one in pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()}
    (written,) = newest - {one["path"] for one in pa.table(files).to_pylist()}
    rows = pq.read_table(Path(path, written)).to_pylist()
    changed = Counter({row: n for row, n in before.items() if row[0] >= story.said[-1][0]})
    assert sum(row["_kind"] == RETRACTION for row in rows) == sum((changed - story.expected(180)).values()) > 0


def _process(lake: Lake, behind: str, at: str = "") -> int:
    command = [sys.executable, str(Path(__file__).with_name("restating_process.py")), lake.root, behind]
    environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}
    return forked.run(command, env=environment).returncode


def test_killed_at_each_of_its_writes_it_is_done_once(sail: Sail, lake: Lake) -> None:
    story = Story(lake)
    story.land(120)
    run_unbounded(sail, story.begin("wider"), lake, until_caught_up=True)
    story.upgrade("filter")
    points = (*crash.POINTS["restate"][:2], "micro_batch.before_current", "micro_batch.after_current")
    for point in (*points, *crash.POINTS["restate"][2:]):
        assert _process(lake, "filter", point) == -signal.SIGKILL, point
        assert Timeline.current(lake, "totals").identity.restates() == (
            () if point == "restate.after_mark" else ("totals",)
        )
    assert _process(lake, "filter") == 0
    assert standing(lake.output("totals")) == story.expected(120)
    assert len(restatements(lake)) == 1
    current, changelog = values_of(lake, KEYS)
    assert current == changelog
    story.land(201)
    assert _process(lake, "filter") == 0
    assert standing(lake.output("totals")) == story.expected()
    never_less_than_nothing(lake.output("totals"))
