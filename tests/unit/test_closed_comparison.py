"""Comparisons of growing outputs by steps: the sum of the steps is what one comparison at the end, and brute force, say."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import forked
import pytest
from deltalake import DeltaTable
from events import Event
from growing import GRAIN, SCHEMA, Output, brute, counted, ms, pair, result
from processes import paths

from floodmark import Stream, Tumbling, count, operator
from floodmark.core import crash
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.time import END
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import Deployed
from floodmark.observe.comparison import merging
from floodmark.observe.comparison.arms import final
from floodmark.observe.comparison.closed import advance, read_comparison
from floodmark.observe.comparison.compare import How, compare
from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.tolerance import Within

HOW = How(tolerances={"mean": Within(0.01)})


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 60))])
def test_the_sum_of_all_steps_is_what_brute_force_says(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    left, right = pair(tmp_path)
    left.keyed = right.keyed = seed % 2 == 0  # else rows are paired by key and event time, and taken back as a whole
    how = How(tolerances={"mean": Within(0.01)}, grain=() if left.keyed else ("key", "_event_time"))
    folder, now = str(tmp_path / "comparison"), 0
    for _ in range(8):
        now += random.randrange(3)
        for one in (left, right):
            rows = [
                result(
                    f"k{random.randrange(6)}",
                    max(0, now - random.choice([0, 0, 1, 5])),
                    random.randrange(2),
                    random.choice([0.5, 0.505, 0.7, None, float("inf")]),
                    random.choice(["AA", "UA"]),
                )
                for _ in range(random.randrange(1, 8))
            ]
            random.shuffle(rows)
            one.write(*rows)
            if one.rows and random.random() < 0.2:
                one.take_back(random.choice(list(one.rows.values())))
            if random.random() < 0.2:
                one.compact()
        if random.random() < 0.8:
            advance(folder, left.side(), right.side(), how, until=ms(now))
            known = read_comparison(folder)
            assert known is None or counted(known.counts) == brute(left, right, now, 0.01)
    advance(folder, left.side(), right.side(), how, until=ms(now))
    steps = read_comparison(folder)
    once = compare(left.side(), right.side(), replace(how, upto=ms(now), windows=1000))
    assert steps is not None
    assert (counted(steps.counts), steps.upto, steps.grain) == (brute(left, right, now, 0.01), ms(now), once.grain)
    assert steps.counts == once.counts
    if left.keyed:  # else those of diff are days
        assert len(steps.windows) + steps.more_windows == len(once.windows)
        assert set(steps.windows) <= set(once.windows)
    for one, other in zip(steps.columns, once.columns, strict=True):
        assert (one.name, one.exact, one.within, one.different) == (
            other.name,
            other.exact,
            other.within,
            other.different,
        )
        assert one.shift == pytest.approx(other.shift)
        for mine, others in ((one.left, other.left), (one.right, other.right)):
            assert mine.nulls == others.nulls
            assert mine.mean == pytest.approx(others.mean)
            assert mine.deviation == pytest.approx(others.deviation, abs=1e-6)
        assert (one.distance is None) == (other.distance is None)
        assert (
            one.distance is None or other.distance is None or one.distance <= other.distance + 1e-9
        )  # of bins that the first rows laid out
    for sample in steps.samples:
        assert sample.left != sample.right
        for given, output in ((sample.left, left), (sample.right, right)):
            if given is not None:
                assert output.rows[tuple(given[name] for name in GRAIN)].items() <= given.items()


def test_nothing_new_is_no_step_and_an_open_window_is_not_compared(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    left.write(result("a", 0), result("a", 1))
    right.write(result("a", 0))
    assert read_comparison(folder) is None
    step = advance(folder, left.side(), right.side(), HOW, until=ms(1.5))
    assert step is not None
    assert (step.number, step.cells, counted(step.counts)) == (1, 1, {"equal": 1})
    assert advance(folder, left.side(), right.side(), HOW, until=ms(1.5)) is None
    right.write(result("a", 1))
    step = advance(folder, left.side(), right.side(), HOW, until=ms(2))
    assert step is not None
    assert (step.number, step.cells, step.revised, counted(step.counts)) == (2, 1, 0, {"equal": 2})


def test_a_window_that_one_side_revises_later_is_compared_again(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    for one in (left, right):
        one.write(result("a", 0), result("b", 0), result("a", 1))
    advance(folder, left.side(), right.side(), HOW, until=ms(2))
    left.write(result("a", 0, n=7))
    step = advance(folder, left.side(), right.side(), HOW, until=ms(2))
    assert step is not None
    assert (step.cells, step.revised, counted(step.counts)) == (0, 1, {"equal": 2, "different": 1})
    assert len(read_comparison(folder).windows) == 1  # type: ignore[union-attr] # there is one
    right.write(result("a", 0, n=7))
    advance(folder, left.side(), right.side(), HOW, until=ms(2))
    last = read_comparison(folder)
    assert last is not None
    assert (counted(last.counts), last.windows, last.more_windows, last.samples) == ({"equal": 3}, (), 0, ())
    assert [one.shift for one in last.columns[:2]] == [0, 0]


def test_one_wrong_key_and_a_small_shift_are_found_and_rounding_is_not(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    rows = [result(f"k{n}", hour, n=n, mean=n / 7) for hour in range(10) for n in range(1, 1001)]
    other = [row | {"mean": row["mean"] * (1 + 1e-9)} for row in rows]
    other[5555] |= {"key": "nobody"}
    for at in range(0, 10_000, 2500):
        left.write(*rows[at : at + 2500])
        right.write(*reversed(other[at : at + 2500]))
    shifted = [row | {"mean": row["mean"] * 1.001} for row in rows]
    third = pair(tmp_path / "third")[1]
    third.write(*shifted)
    for hour in (5, 10):
        advance(folder, left.side(), right.side(), HOW, until=ms(hour))
        advance(f"{folder}2", left.side(), third.side(), How(), until=ms(hour))
    steps, shift = read_comparison(folder), read_comparison(f"{folder}2")
    assert steps is not None and shift is not None
    assert counted(steps.counts) == {"within": 9999, "only_left": 1, "only_right": 1}
    assert {sample.right["key"] for sample in steps.samples if sample.right and not sample.left} == {"nobody"}
    assert counted(shift.counts) == {"different": 10_000}
    mean = {column.name: column for column in shift.columns}["mean"]
    assert mean.shift == pytest.approx(sum(row["mean"] for row in rows) / 10_000 * 0.001)


def test_files_and_sums_do_not_grow_with_the_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.observe.comparison.closed._LISTED", 5)
    left, right = pair(tmp_path)
    folder = tmp_path / "comparison"
    read = []
    for hour in range(9):
        left.write(*(result(f"k{n}", hour, n=n) for n in range(20)))
        right.write(*(result(f"k{n}", hour, n=n + (hour > 0)) for n in range(20)))
        step = advance(str(folder), left.side(), right.side(), HOW, until=ms(hour + 1))
        assert step is not None
        read.append((step.read, step.cells, step.revised))
    assert set(read) == {(2, 1, 0)}
    kept = sorted(file.name for file in folder.glob("*-*"))
    assert kept == ["samples-8.parquet", "samples-9.parquet", "totals-8.json", "totals-9.json"]
    last = read_comparison(str(folder))
    assert last is not None
    assert (counted(last.counts), len(last.windows), last.more_windows) == ({"equal": 20, "different": 160}, 5, 3)
    assert len(last.samples) == 10  # five oldest, five newest
    assert DeltaTable(str(folder / "windows")).to_pyarrow_table().num_rows == 9


@pytest.mark.parametrize(
    "point",
    [
        "comparison.after_merge",
        *(pytest.param(point, marks=pytest.mark.soak) for point in (None, "comparison.before_merge")),
    ],
)
def test_files_of_the_windows_are_merged_and_superseded_rows_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str | None
) -> None:
    monkeypatch.setattr(merging, "FANOUT", 2 if point is None else 4)
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    steps = merging.FANOUT**3 if point is None else merging.FANOUT
    for hour in range(steps):
        left.write(result("a", hour), *([result("a", hour - 3, n=hour)] if hour % 4 == 3 else []))
        right.write(result("a", hour))
        if hour < steps - 1 or point is None:
            advance(folder, left.side(), right.side(), HOW, until=ms(hour + 1))
    if point is not None:
        killed = forked.run(
            [sys.executable, "-c", PROGRAM, folder, left.path, right.path, str(steps), str(merging.FANOUT)],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([paths(), str(Path(__file__).parent)]), crash.VARIABLE: point},
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        for hour in range(steps, 2 * steps):
            left.write(result("a", hour), result("a", hour - 3, n=hour))
            right.write(result("a", hour))
            advance(folder, left.side(), right.side(), HOW, until=ms(hour + 1))
        steps *= 2
    last, table = read_comparison(folder), DeltaTable(f"{folder}/windows")
    assert last is not None
    assert counted(last.counts) == brute(left, right, steps)
    assert len(table.file_uris()) < 2 * merging.FANOUT
    assert sum(file.is_dir() for file in Path(folder, "windows").iterdir()) < 4 * merging.FANOUT
    rows = table.to_pyarrow_table().sort_by("step").to_pylist()
    newest = {one["cell"]: (one["equal"], one["different"]) for one in rows}
    assert (sum(one[0] for one in newest.values()), sum(one[1] for one in newest.values())) == (
        last.counts.equal,
        last.counts.different,
    )
    assert len(newest) == steps
    assert len(rows) < steps + 2 * merging.FANOUT, "most of what was said before is gone"


def test_many_cells_take_several_steps_of_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.observe.comparison.closed._CELLS", 3)
    left, right = pair(tmp_path)
    left.write(*(result("a", hour) for hour in range(10)))
    right.write(*(result("a", hour) for hour in range(11)))
    step = advance(str(tmp_path / "comparison"), left.side(), right.side(), HOW, until=ms(10))
    assert step is not None
    assert (step.number, step.cells, counted(step.counts)) == (4, 10, {"equal": 10})


def test_only_what_is_not_before_the_beginning_is_compared(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    left.write(*(result("a", hour) for hour in range(6)))
    right.write(*(result("a", hour) for hour in range(3, 6)))
    advance(folder, left.side(), right.side(), HOW, until=ms(5), since=ms(3))
    right.write(result("a", 0), result("b", 4))
    step = advance(folder, left.side(), right.side(), HOW, until=ms(6))
    assert step is not None
    assert (step.revised, counted(step.counts)) == (1, {"equal": 3, "only_right": 1})


PROGRAM = (
    "import sys; from growing import Output, ms; from test_closed_comparison import HOW; "
    "from floodmark.observe.comparison.closed import advance; from floodmark.observe.comparison import merging; "
    "merging.FANOUT = int((sys.argv[5:] or [merging.FANOUT])[0]); "
    "advance(sys.argv[1], Output(sys.argv[2]).side(), Output(sys.argv[3]).side(), HOW, until=ms(int(sys.argv[4])))"
)


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("comparison.after_commit", 2),
        *(
            pytest.param(point, number, marks=pytest.mark.soak)
            for point in crash.POINTS["comparison"]
            for number in (1, 2)
            if (point, number) != ("comparison.after_commit", 2)
        ),
    ],
)
def test_a_step_that_is_killed_anywhere_counts_once(tmp_path: Path, point: str, number: int) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    left.write(result("a", 0), result("b", 0, n=3))
    right.write(result("a", 0), result("b", 0))
    if number == 2:
        advance(folder, left.side(), right.side(), HOW, until=ms(1))
        left.write(result("b", 0), result("c", 2))
        right.write(result("b", 1))
    environment = {"PYTHONPATH": os.pathsep.join([paths(), str(Path(__file__).parent)]), crash.VARIABLE: point}
    command = [sys.executable, "-c", PROGRAM, folder, left.path, right.path, "3"]
    killed = forked.run(command, env=os.environ | environment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left.write(result("d", 2))
    advance(folder, left.side(), right.side(), HOW, until=ms(3))
    last = read_comparison(folder)
    assert last is not None
    assert counted(last.counts) == brute(left, right, 3)
    files = {Path(name).parent.name for name in DeltaTable(f"{folder}/windows").file_uris()}
    assert files == {file.name for file in Path(folder, "windows").iterdir()} - {"_delta_log"}


def test_what_cannot_be_compared_by_steps_is_refused_with_the_reason(tmp_path: Path) -> None:
    left, right = pair(tmp_path)
    folder = str(tmp_path / "comparison")
    for one in (left, right):
        one.write(result("a", 0))
        one.write(result("b", 0))
    latest = Side.of(left.path, None, None)
    totals = type(latest)(**{name: getattr(latest, name) for name in latest.__slots__} | {"keys": ("key",)})
    with pytest.raises(CapabilityError, match="CAPABILITY-041.*replace earlier ones of the same key"):
        advance(folder, totals, totals, HOW, until=ms(1))
    advance(folder, left.side(), right.side(), HOW, until=ms(1))
    with pytest.raises(LifecycleError, match="LIFECYCLE-087.*tolerances"):
        advance(folder, left.side(), right.side(), How(), until=ms(2))
    DeltaTable(left.path).restore(0)
    with pytest.raises(LifecycleError, match="LIFECYCLE-086.*taken out"):
        advance(folder, left.side(), right.side(), HOW, until=ms(2))


def test_rows_without_stamps_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "plain")
    DeltaTable.create(path, SCHEMA.remove(SCHEMA.get_field_index("_kind")))
    plain = Side.of(path, None, None)
    with pytest.raises(CapabilityError, match="CAPABILITY-041.*none"):
        advance(str(tmp_path / "comparison"), plain, plain, HOW, until=ms(1))


def test_what_late_rows_may_still_revise_is_not_closed(tmp_path: Path) -> None:
    """The longest wait of the definitions counts; without a side that says how far it is, all is closed."""
    output = Output(str(tmp_path / "a"))
    output.write(result("x", 1))
    side = output.side()
    ahead, behind, ended = (replace(side, reached=reached) for reached in (ms(9), ms(5), None))

    def deployed(lateness: str) -> Deployed:
        timeline = Timeline.current(Lake(str(tmp_path / lateness[0])), "totals")

        @operator(name="totals")
        def code(events: Stream[Event]) -> Stream:
            return events.key_by("key").window(Tumbling("1 hour"), allowed_lateness=lateness).aggregate(n=count())

        timeline.identity.deploy(code)
        found = timeline.identity.deployed()
        assert found is not None
        return found

    short, long = deployed("0 s"), deployed("2 hours")
    assert final(ahead, behind, [short, short]) == ms(5)
    assert final(behind, ahead, [short, long]) == final(ended, behind, [long, None]) == ms(3)
    assert final(ended, ended, [long]) == END
