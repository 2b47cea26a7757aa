"""Reports of experiments whose arms run on an engine: what differs and why, what is noise, what the arms share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deltalake import DeltaTable
from events import Event, row, source

from floodmark import Stream, Tumbling, count, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import LifecycleError
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.experiment import Arm, Experiment, Operations
from floodmark.lifecycle.report import Report
from floodmark.lifecycle.usage import Usage
from floodmark.observe.comparison.arms import carry_on, compare_arms
from floodmark.observe.comparison.closed import read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.report import markdown, page
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.tolerance import Within

Key = tuple[object, object]


def version(lateness: str, share: str) -> Operator:
    """An operator whose windows wait for late rows, and whose results have a share."""

    @operator
    def totals(left: Stream[Event]) -> Stream:
        windowed = left.key_by("key").window(Tumbling("10 minutes"), allowed_lateness=lateness, late="side_output")
        return windowed.aggregate(n=count(), total=sum("value")).with_columns(share=share)

    return totals


RUNS, OTHER = version("40 minutes", "total / n"), version("0 seconds", "total / (n + 1)")


def land(engine: Computing, lake: Lake, until: int) -> None:
    """All events up to a minute; every seventh is half an hour late after the first hour."""
    engine.land(
        source([row(minute - 30 if minute % 7 == 5 and minute > 60 else minute) for minute in range(until)], "left"),
        lake,
    )


def held(root: str) -> dict[Key, tuple[int, float]]:
    """The rows that hold in an arm's table, by key and window."""
    found: dict[Key, tuple[int, float]] = {}
    table = DeltaTable(Lake(root).output("totals")).to_pyarrow_table().sort_by("_sequence").to_pylist()
    for one in table:
        if one["_kind"] == 0:
            found[one["key"], one["window_end"]] = (one["n"], one["share"])
    return found


@pytest.fixture(scope="module")
def report(engine: Computing, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Arms: what runs, the same again, and another rule for late rows with another sum."""
    lake = Lake(str(tmp_path_factory.mktemp("experiment") / "lake"))
    land(engine, lake, 60)
    engine.run_unbounded(RUNS, lake, until_caught_up=True)
    began, arms = savepoints.create("totals", lake), []
    for name, code, differs in (
        ("a", RUNS, ()),
        ("twin", RUNS, ()),
        ("b", OTHER, ("result: share=total / n -> share=total / (n + 1)",)),
    ):
        there = fork(lake, began, experiments.root_of(lake, "late", name))
        if code is OTHER:
            upgrade(code, there, forward_only=True)
        arms.append(Arm(name=name, code=".", package="", version=code.version, root=there.root, differs=differs))
    for until in (120, 180):
        land(engine, lake, until)
        for arm in arms:
            code, there = OTHER if arm.name == "b" else RUNS, Lake.forked(arm.root)
            assert there is not None
            engine.run_unbounded(code, there, until_caught_up=True)
    made = Experiment(
        name="late", operator="totals", savepoint=began.manifest.id, arms=tuple(arms), state="running", who="", why="",
        began_at=0, since=began.manifest.watermark,
    )  # fmt: skip
    compared = compare_arms(lake, made, RUNS, How())
    operations = tuple(
        Operations(
            arm=arm, driver="running", progress=0, lag=n * 60.0, usage=Usage(rows=2_000_000, processor=n, busy=10)
        )
        for n, arm in enumerate(arms, 1)
    )
    return Report(experiment=made, match=1.0, comparisons=compared, operations=operations)


def test_rows_of_the_arms_are_counted_as_brute_force_counts_them(report: Report) -> None:
    compared = report.comparisons["b"]["totals"]
    assert not isinstance(compared, str)
    first, other = (held(arm.root) for arm in (report.experiment.arms[0], report.experiment.arms[2]))
    keys = {
        key for key in first.keys() | other.keys()
        if report.experiment.since < key[1].timestamp() * 1000 <= (compared.upto or 0)  # type: ignore[attr-defined]
    }  # fmt: skip
    assert min(key[1] for key in first) < min(key[1] for key in keys), "what the arms share is not compared"  # type: ignore[type-var]
    pairs = [(first.get(key), other.get(key)) for key in keys]
    assert compared.counts.equal == len([1 for a, b in pairs if a == b])
    assert compared.counts.different == len([1 for a, b in pairs if a and b and a != b]) > 0
    assert compared.counts.only_left == len([1 for a, b in pairs if b is None])


@pytest.mark.feature("R7")
def test_two_arms_of_one_code_find_the_same_and_are_the_floor_of_the_other(report: Report) -> None:
    twin, other = report.others
    noise = report.noise("totals")
    assert noise is not None
    assert noise.counts.same
    assert (report.experiment.twin(twin), report.experiment.twin(other)) == (True, False)
    assert report.verdict(twin).endswith("the code is the same, so this is noise")
    assert (report.passes(twin), report.passes(other), report.same) == (True, False, False)
    assert list(report.next_steps()) == ["floodmark experiment stop late"]


@pytest.mark.feature("R7")
def test_rows_to_look_at_say_why_they_differ(report: Report) -> None:
    compared = report.comparisons["b"]["totals"]
    assert not isinstance(compared, str)
    late = DeltaTable(Lake(report.experiment.arms[2].root).output("totals__late")).to_pyarrow_table().to_pylist()
    for sample in compared.samples:
        some = sample.left or sample.right or {}
        lost = [
            one for one in late
            if one["_kind"] == 0 and one["key"] == some["key"] and some["window_start"] <= one["_event_time"] < some["window_end"]
        ]  # fmt: skip
        told = f"{len(lost)} rows came too late in b, and are in totals__late"
        assert (told in sample.why) == bool(lost)
        if sample.left and sample.right:
            assert "b defines it otherwise: result: share=total / n -> share=total / (n + 1)" in sample.why
    assert any("came too late in b" in one.why for one in compared.samples)


def test_the_page_says_the_verdict_first_and_the_arms_beside_each_other(report: Report) -> None:
    text, short = page(report), markdown(report)
    assert text.index(report.verdict(report.others[1])) < text.index("To go on") < text.index("How the arms run")
    assert text.index("How the arms run") < text.index("Rows to look at")
    assert "<td>processor time per million rows</td><td>0.5 s</td><td>1.0 s</td><td>1.5 s</td>" in text
    assert "share, noise" in text, "beneath the picture"
    assert "<td>rows per second of micro-batches</td><td>200,000</td>" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "the page needs nothing else"
    assert "| behind its input | 60 s | 120 s | 180 s |" in short
    assert report.verdict(report.others[1]) in short


def test_a_comparison_goes_on_as_it_was_begun_and_upkeep_begins_none(report: Report) -> None:
    made = replace(report.experiment, name="tolerant")
    lake = Lake(made.arms[0].root.partition("/_floodmark/")[0])
    folder = experiments.comparison_of(lake, "tolerant", "b", "totals")
    carry_on(lake, made, RUNS)
    assert read_comparison(folder) is None, "nobody has said how"
    first = compare_arms(lake, made, RUNS, How(tolerances={"share": Within(1e9)}))["b"]["totals"]
    assert not isinstance(first, str)
    assert first.counts.within > 0
    carry_on(lake, made, RUNS)
    again = compare_arms(lake, made, RUNS, How())["b"]["totals"]
    assert not isinstance(again, str)
    assert again.counts == first.counts
    with pytest.raises(LifecycleError, match="LIFECYCLE-087"):
        compare_arms(lake, made, RUNS, How(tolerances={"share": Within(1)}))
