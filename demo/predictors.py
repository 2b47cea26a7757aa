"""Two predictors of the delay of a flight, learned as flights become known, as the arms of an experiment: each prediction is scored with what came.

The second one becomes the stream when a rule holds. One expects of a route the mean of all its delays so far, the other a mean in which the newest delay counts a twentieth. Both keep the same state,
so that the second goes on from a savepoint of the first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from demo.places import Places, Progress
from demo.tables import read
from floodmark import Context, Contract, ProcessFunction, PromoteWhen, Stream, ValueState, Within, operator
from floodmark.control.processes.engine import Computing
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints, switch
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.comparison import ColumnDifference, Comparison
from floodmark.lifecycle.experiment import Arm, Experiment, Operations
from floodmark.lifecycle.guardrails import Evidence, describe_unmet, judge
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.report import Report
from floodmark.lifecycle.usage import Usage
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.report import page
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import ROW
from operators.flights import Flight

WEIGHT = 0.05
"""Of the newest delay of a route, in the second predictor."""
NAME = "expected_delays"
RULE = PromoteWhen(match=0.9, columns={"expected": Within(20), "error": Within(20)}, rows=1000)
"""Nine predictions of ten, and their errors, within twenty minutes of those of the mean: nobody is surprised."""
_EXPERIMENT = "predictors"
_BEFORE = 1
"""Files of the log after which the arms part."""
_GRAIN = ("origin", "dest", "carrier", "flight", "_event_time")


class Scored(Contract):
    """A prediction and what came."""

    carrier: str
    flight: int
    expected: float = Field(description="delay of departure, minutes, before it was known")
    error: float = Field(description="minutes between that and what came")


class Expected(ProcessFunction):
    """The delay that is expected of the next flight of a route.

    Args:
        weight: of the newest delay; 0 for the mean of all.
    """

    seen = ValueState(int)
    mean = ValueState(float)

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A flight that has become known."""
        seen, mean, delay = self.seen.get(), self.mean.get(), float(row["dep_delay"])
        if seen is None or mean is None:
            self.seen.update(1)
            self.mean.update(delay)
            return
        yield {"carrier": row["carrier"], "flight": row["flight"], "expected": mean, "error": abs(delay - mean)}
        self.seen.update(seen + 1)
        self.mean.update(mean + (delay - mean) * (self.weight or 1 / (seen + 1)))


def _predictor(weight: float) -> Operator:
    @operator(name=NAME)
    def expected_delays(flights: Stream[Flight]) -> Stream:
        """What is expected of each flight, and by how much that was wrong."""
        flown = flights.filter("dep_delay IS NOT NULL")
        return flown.key_by("origin", "dest").process(Expected(weight), schema=Scored)

    return expected_delays


MEAN, WEIGHTED = _predictor(0.0), _predictor(WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What came of it.

    Args:
        report: of the experiment.
        compared: the weighted predictor beside the mean.
        differences: rows of the two arms, and of the stream afterwards, that pandas computes otherwise.
        rows: of them.
    """

    report: Report
    compared: Comparison
    differences: int
    rows: int

    @property
    def promoted(self) -> bool:
        """Whether the weighted predictor has become the stream."""
        return bool(self.report.experiment.promoted)

    @property
    def error(self) -> ColumnDifference:
        """The error of the two."""
        return next(one for one in self.compared.columns if one.name == "error")

    def as_json(self) -> dict[str, Any]:
        """For a document."""
        about = {"rows": self.rows, "differences": self.differences, "promoted": self.report.experiment.promoted}
        return self.report.as_json() | about

    def lines(self) -> Iterator[str]:
        """In words."""
        means = [one.mean or 0.0 for one in (self.error.left, self.error.right)]
        yield f"{NAME}: two predictors as arms of an experiment, scored as flights become known; {self.rows:,} rows, {self.differences:,} differences to pandas"
        yield f"  mean error: {means[0]:.3f} minutes with the mean of a route, {means[1]:.3f} with the newest delay counting {WEIGHT:.0%}"
        yield f"  error, weighted minus mean, hour by hour: {self.error.drift}"
        if self.promoted:
            yield f"  all {len(self.report.guardrails)} guardrails hold: the weighted predictor has become the stream"
        else:
            yield f"  the stream stays as it is: {describe_unmet(self.report.guardrails)}"


def contest(computing: Computing, places: Places, progress: Progress) -> Contest | None:
    """Run the experiment over what has landed, let the second arm become the stream if the rule holds, and write the report.

    Args:
        computing: the embedded engine.
        places: of the demo; its logs are read.
        progress: told about every step.

    Returns:
        None where the log is one file: the arms have nothing to read behind it.
    """
    lake = places.experiment
    with progress.step(f"{MEAN.version}: the beginning"):
        _begin(computing, lake)
    known = _seen(lake)
    origin = savepoints.create(NAME, lake, why="experiment")
    arms = [_arm(lake, name, code, origin) for name, code in (("mean", MEAN), ("weighted", WEIGHTED))]
    operations = []
    for arm, code in zip(arms, (MEAN, WEIGHTED), strict=True):
        with progress.step(f"arm {arm.name}, {code.version}"):
            operations.append(_run(computing, arm, code))
    made = Experiment(
        name=_EXPERIMENT,
        operator=NAME,
        savepoint=origin.manifest.id,
        arms=tuple(arms),
        state="running",
        who="demo",
        why="",
        began_at=origin.manifest.at,
        since=origin.manifest.watermark,
        promote=RULE,
        candidate="weighted",
    )
    experiments.keep(lake, made)
    with progress.step("comparing the arms"):
        found = compare_arms(lake, made, WEIGHTED, How(grain=_GRAIN))
    compared = found["weighted"].get(NAME)
    if compared is None:
        progress.say("the log is one file, too little for an experiment")
        return None
    assert not isinstance(compared, str), compared
    seen = Evidence(
        comparisons=found["weighted"], state="has read everything", runs=True, given_up=False, behind=0, now=_now()
    )
    judgement, results = judge(RULE, seen), {arm.root: weight for arm, weight in zip(arms, (0.0, WEIGHT), strict=True)}
    if judgement.holds:
        with progress.step(f"all guardrails hold: {WEIGHTED.version} becomes the stream"):
            made = _promote(computing, lake, made)
        results[lake.root] = WEIGHT
    report = Report(
        experiment=made,
        match=RULE.match,
        comparisons=found,
        operations=tuple(operations),
        guardrails=judgement.guardrails,
    )
    places.page.write_text(page(report), "utf-8")
    with progress.step("asking pandas for the predictions"):
        wrong, rows = _checked(places, known, results)
    return Contest(report=report, compared=compared, differences=wrong, rows=rows)


def _begin(computing: Computing, lake: Lake) -> None:
    """The first micro-batches, which both arms go on from."""
    stop, done = threading.Event(), list[int]()

    def told(batch: BatchInfo) -> None:
        done.append(batch.batch_id)
        if len(done) >= _BEFORE:
            stop.set()

    computing.run_unbounded(MEAN, lake, until_caught_up=True, stop=stop, on_batch=told, files_per_batch=1)


def _arm(lake: Lake, name: str, code: Operator, origin: savepoints.Savepoint) -> Arm:
    there = fork(lake, origin, experiments.root_of(lake, _EXPERIMENT, name))
    changes = plan(origin.manifest.deployed, code)
    if changes.changes:
        upgrade(code, there, forward_only=True)
    differs = [f"{one.where}: {one.before or 'nothing'} -> {one.after or 'nothing'}" for one in changes.changes]
    return Arm(name=name, code=code.version, package="", version=code.version, root=there.root, differs=tuple(differs))


def _run(computing: Computing, arm: Arm, code: Operator) -> Operations:
    lake, usage = Lake.forked(arm.root), Usage()
    assert lake is not None

    def told(batch: BatchInfo) -> None:
        nonlocal usage
        usage = usage.plus(Usage(rows=batch.rows_in, late=batch.late, dropped=batch.dropped, busy=batch.seconds))

    done = computing.run_unbounded(code, lake, until_caught_up=True, on_batch=told)
    return Operations(arm=arm, driver="has read everything", progress=done.watermark, lag=0.0, behind=0.0, usage=usage)


def _promote(computing: Computing, lake: Lake, made: Experiment) -> Experiment:
    """The stream is what the arm is, with a savepoint to go back to, and goes on in its code."""
    arm = Lake(made.arm(made.candidate).root)
    back = savepoints.create(NAME, lake, why="before the promotion").manifest.id
    with switch.stopped(lake, [NAME]), switch.stopped(arm, [NAME]):
        taken = switch.become(lake, NAME, arm, again="python -m demo", back=back, why="promotion")
    savepoints.delete(savepoints.find(lake, taken))
    computing.run_unbounded(WEIGHTED, lake, until_caught_up=True)
    return experiments.keep(lake, replace(made, state="promoted", promoted=made.candidate, ended_at=_now()))


def _now() -> int:
    return time.time_ns() // 1_000_000


# ---- by pandas and DuckDB

_WRONG = """
SELECT count(*) FILTER (
    wanted.expected IS NULL OR held.expected IS NULL
    OR abs(wanted.expected - held.expected) > 1e-9 * greatest(1, abs(wanted.expected))
    OR abs(abs(wanted.delay - wanted.expected) - held.error) > 1e-9 * greatest(1, held.error)
), count(*)
FROM wanted FULL JOIN held USING (origin, dest, carrier, flight, _event_time)
"""


def _seen(lake: Lake) -> dict[tuple[str, str], int]:
    """Route -> its flights so far, of which the first one has no prediction."""
    known = _rows(lake).group_by(["origin", "dest"]).aggregate([([], "count_all")]).to_pylist()
    return {(one["origin"], one["dest"]): one["count_all"] + 1 for one in known}


def _checked(places: Places, seen: Mapping[Any, int], results: Mapping[str, float]) -> tuple[int, int]:
    """How many predictions pandas computes otherwise, and how many there are.

    Args:
        places: of the demo.
        seen: route -> flights before the arms parted.
        results: root of a lake -> weight of its predictor.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("log", read(places.landed.log("flights")))
        columns = "origin, dest, carrier, flight, _event_time, dep_delay::DOUBLE AS delay"
        flown = connection.sql(
            f"SELECT {columns} FROM log WHERE _kind = {ROW} AND dep_delay IS NOT NULL ORDER BY _sequence"
        ).df()
        wrong = rows = 0
        for root, weight in results.items():
            parts = [_expected(of, seen.get(route, 1), weight) for route, of in flown.groupby(["origin", "dest"])]
            connection.register("wanted", pd.concat(parts).dropna(subset=["expected"]))
            connection.register("held", _rows(Lake(root)))
            one, of = connection.sql(_WRONG).fetchall()[0]
            wrong, rows = wrong + one, rows + of
    return wrong, rows


def _expected(route: pd.DataFrame, seen: int, weight: float) -> pd.DataFrame:
    """The flights of a route with what is expected of each: the mean of all before; with a weight only of the first ``seen``."""
    means = route["delay"].expanding().mean()
    if weight:
        later = pd.concat([means.iloc[seen - 1 : seen], route["delay"].iloc[seen:]]).ewm(alpha=weight, adjust=False)
        means = pd.concat([means.iloc[: seen - 1], later.mean()])
    return route.assign(expected=means.shift())


def _rows(lake: Lake) -> pa.Table:
    table = read(lake.output(NAME))
    return table.filter(pc.equal(table["_kind"], ROW))
