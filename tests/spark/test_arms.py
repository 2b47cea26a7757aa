"""An A/B run on real Spark: two versions from one savepoint, over some of the keys, compared and judged; the stream itself notices nothing."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from events import Event, disorder
from pyspark.sql import SparkSession
from streams import check

from floodmark import Operator, PromoteWhen, Stream, Tumbling, count, operator, sum
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream import sample
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment, Sample
from floodmark.lifecycle.guardrails import Evidence, judge
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

ROWS, SHARED, GROUPS = 120, 60, tuple(range(0, 128, 2))


def summed(events: Stream[Event]) -> Stream:
    """What runs."""
    window = events.key_by("key").window(Tumbling("10 minutes"), late="side_output")
    return window.aggregate(n=count(), total=sum("value"))


def one_more(events: Stream[Event]) -> Stream:
    """What may run."""
    return summed(events).with_columns(total="if(key = 'a', total + 1, total)")


OLD: Operator = operator(summed, name="summed")
NEW: Operator = operator(one_more, name="summed")


def by_key(lake: Lake, code: Operator) -> dict[str, list[dict[str, Any]]]:
    """Its rows, without those that were taken back."""
    found = defaultdict(list)
    for one in final([outputs(lake, code)[""]]):
        found[one["key"]].append(one)
    return found


@pytest.mark.feature("V8", "R7", "Z6")
@pytest.mark.timeout(900)
def test_two_versions_run_over_some_keys_are_compared_and_judged_and_reach_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, log = Lake(str(tmp_path / "lake")), disorder(OLD, 5, ROWS)
    land(lake, OLD, log, 0, SHARED)
    run_unbounded(spark, OLD, lake, until_caught_up=True)
    began, before = savepoints.create("summed", lake), by_key(lake, OLD)
    versions = {"a": OLD, "b": NEW}
    arms = [
        Arm(name=name, code="", package="", version=code.version, root=experiments.root_of(lake, "ab", name))
        for name, code in versions.items()
    ]
    made = Experiment(
        name="ab", operator="summed", savepoint=began.manifest.id, arms=tuple(arms), state="running", who="", why="", began_at=0,
        since=began.manifest.watermark, sample=Sample(groups=GROUPS, among=128),
    )  # fmt: skip
    experiments.keep(lake, made)
    land(lake, OLD, log, SHARED)
    written = DeltaTable(lake.output("summed")).version()
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    lakes = {arm.name: fork(lake, began, arm.root) for arm in arms}
    for name, there in lakes.items():
        sample.keep(there, "summed", GROUPS)
        upgrade(versions[name], there)
    taken: list[str] = []
    met = threading.Barrier(len(arms), action=lambda: taken.append("both"))

    def run(name: str) -> None:
        """The stream of an arm; its first micro-batch waits for that of the other, so that both are running."""
        first = iter([met])
        session = spark.newSession()  # names of streams are of a session
        run_unbounded(
            session, versions[name], lakes[name], until_caught_up=True, on_batch=lambda _: [m.wait(600) for m in first]
        )

    with ThreadPoolExecutor(len(arms)) as pool:
        list(pool.map(run, versions))
    assert taken == ["both"], "they ran side by side"
    rows |= {name: by_key(there, versions[name]) for name, there in lakes.items()}
    assert DeltaTable(lake.output("summed")).version() == written, "nothing the arms do reaches the stream"
    run_unbounded(spark, OLD, lake, until_caught_up=True)
    check(lake, OLD, log)

    whole = by_key(lake, OLD)
    mine = {key for key in whole if rows["a"][key] == whole[key]}
    assert {"a"} <= mine < set(whole), mine
    assert all(rows["a"][key] == before[key] for key in set(whole) - mine), "of other keys nothing is computed"
    compared = compare_arms(lake, made, NEW, How())["b"]
    found = compared["summed"]
    assert isinstance(found, Comparison)
    news = [one for one in whole["a"] if one not in before["a"]]
    assert found.counts.different == len(news) > 0
    assert found.counts.equal == len([one for key in mine - {"a"} for one in whole[key] if one not in before[key]])
    seen = Evidence(comparisons=compared, state="running", runs=True, given_up=False, behind=0, now=0)
    judgement = judge(PromoteWhen(match=0.999), seen)
    assert [guardrail.name for guardrail in judgement.failing] == ["match of summed"]
    assert judge(PromoteWhen(match=found.counts.match), replace(seen, now=1)).holds
